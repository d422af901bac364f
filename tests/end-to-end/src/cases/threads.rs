//! Several threads of a program, each with an epoll set or a connection of its own.

use super::{APART, cases_in, on_each_back_end, python, widely};
use crate::network::Network;
use crate::site::PATIENCE;
use crate::{BackEnd, Case, Failure, Outcome, Topology};
use skink_testbed::Process;

pub fn cases() -> Vec<Case> {
    let places = [BackEnd::Packet, BackEnd::Xdp].map(|back_end| (Topology::Library, back_end));
    let mut cases = cases_in(&places, "threads/woken-for-their-own", woken);
    cases.extend(widely("threads/blocking", blocking));
    let xdp = [(Topology::Library, BackEnd::Xdp)];
    let places = [&xdp[..], &APART].concat();
    cases.extend(cases_in(
        &places,
        "threads/woken-by-their-frames",
        by_frames,
    ));
    cases.extend(cases_in(
        &places,
        "threads/sets-woken-by-their-frames",
        sets,
    ));
    cases.extend(widely("threads/sets-change", sets_change));
    cases.extend(cases_in(&APART, "threads/one-computes", one_computes));
    cases.extend(on_each_back_end("threads/receive-first", receive_first));
    cases
}

/// One thread accepts; the other answers, and computes when it is told to, until one more connection is accepted.
const SERVER: &str = "
import os, select, socket, threading
listener = socket.create_server(('10.9.0.2', 9100))
accepts, answers = select.epoll(), select.epoll()
accepts.register(listener, select.EPOLLIN)
connections = {}
def accept():
    while True:
        accepts.poll()
        c, _ = listener.accept()
        connections[c.fileno()] = c
        answers.register(c, select.EPOLLIN)
def sleeps_of_the_one_that_accepts():
    with open(f'/proc/self/task/{os.getpid()}/status') as status:
        return [line.split()[1] for line in status if line.startswith('voluntary')][0]
def answer():
    while True:
        for fd, _ in answers.poll():
            word = connections[fd].recv(64)
            if word == b'compute':
                there = len(connections)
                while len(connections) == there:
                    pass
            if not word:
                answers.unregister(fd)
            connections[fd].send(sleeps_of_the_one_that_accepts().encode() if word == b'sleeps' else word)
threading.Thread(target=answer, daemon=True).start()
print('ready', flush=True)
accept()
";

const CLIENT: &str = "
import socket
c = socket.create_connection(('10.9.0.2', 9100))
def ask(word):
    c.sendall(word)
    return c.recv(64)
before = int(ask(b'sleeps'))
for _ in range(1000):
    assert ask(b'ping') == b'ping'
print(int(ask(b'sleeps')) - before)
c.sendall(b'compute')
other = socket.create_connection(('10.9.0.2', 9100))
assert c.recv(64) == b'compute'
";

/// A thread isn't woken for the frames of another one, again and again; but it is for its own, though that one computes.
fn woken(network: &Network) -> Outcome {
    let server = python::start(network, "a server", SERVER, &[], "ready")?;
    let woken = python::finish_on_kernel(network, "a client", CLIENT, &[])?;
    server.stop()?;
    match woken.trim().parse() {
        Ok(0..100) => Ok(()),
        _ => Err(Failure::Wrong(format!(
            "for 1000 requests to another thread the one that accepts woke up so often: {woken}"
        ))),
    }
}

/// Connections to a server that has a blocking thread for each, and how often its threads have gone to sleep.
const MANY: &str = "
import glob, os, signal, socket, sys, threading
# The program is the child of `skink run`, or what became of it.
with open(f'/proc/{sys.argv[1]}/task/{sys.argv[1]}/children') as children:
    server = int((children.read().split() or sys.argv[1:])[0])
def connect(count):
    connections = []
    for _ in range(count):
        c = socket.create_connection(('10.9.0.2', 5201))
        c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        c.sendall(b'e')
        connections.append(c)
    return connections
def sleeps():
    sleeps = 0
    for path in glob.glob(f'/proc/{server}/task/*/status'):
        with open(path) as status:
            sleeps += sum(int(line.split()[1]) for line in status if line.startswith('voluntary'))
    return sleeps
def ask(connections, rounds):
    for number in range(rounds):
        word = b'%d' % number
        for c in connections:
            c.sendall(word)
            assert c.recv(64) == word
";

/// Prints how many sleeps a thousand requests, one at a time, cost.
const COUNT: &str = "
connections = connect(16)
ask(connections, 100)
before = sleeps()
ask(connections, 100)
print((sleeps() - before) * 1000 // 1600)
";

/// More threads than can be woken by their frames alone, at everything that one can do to them.
const ATTACK: &str = "
connections = connect(40)
ask(connections, 30)
def stream(c):
    sent = os.urandom(1 << 20)
    sender = threading.Thread(target=c.sendall, args=(sent,))
    sender.start()
    came = bytearray()
    while len(came) < len(sent):
        came += c.recv(65536) or sys.exit('it closed a connection')
    sender.join()
    assert came == sent
def all_at_once(connections):
    failed = []
    def one(c):
        try:
            stream(c)
        except BaseException as error:
            failed.append(error)
    threads = [threading.Thread(target=one, args=(c,)) for c in connections]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert not failed, failed
all_at_once(connections)
# No call of the program's ends for a stop.
os.kill(server, signal.SIGSTOP)
for c in connections: c.sendall(b'stopped')
os.kill(server, signal.SIGCONT)
for c in connections: assert c.recv(64) == b'stopped'
# Threads whose connection ends wait for the next one, and others go on.
for c in connections[::2]: c.close()
connections = connections[1::2] + connect(20)
ask(connections, 30)
all_at_once(connections)
print('fine')
";

/// Runs a script against a server of so many blocking threads; answers what it printed.
fn with_a_server(network: &Network, threads: &str, script: &str) -> Result<String, Failure> {
    let tool = Network::tool()?;
    let tool = tool.to_string_lossy();
    let command = network.skink_run(&tool, ["bench", "peer", "serve", threads])?;
    let server = Process::spawn(command, "a server with blocking threads")?;
    network.wait_for(&server, Network::SKINK[0], 5201)?;
    let (script, run) = (format!("{MANY}{script}"), server.id().to_string());
    let said = python::finish_on_kernel(network, "a client", &script, &[&run])?;
    server.stop()?;
    Ok(said)
}

fn blocking(network: &Network) -> Outcome {
    let said = with_a_server(network, "41", ATTACK)?;
    match said.trim() {
        "fine" => Ok(()),
        said => Err(Failure::Wrong(said.to_owned())),
    }
}

/// A frame wakes the thread that it is for, and no other one.
fn by_frames(network: &Network) -> Outcome {
    let sleeps = with_a_server(network, "17", COUNT)?;
    match sleeps.trim().parse() {
        Ok(0..1400) => Ok(()),
        _ => Err(Failure::Wrong(format!(
            "for 1000 requests the threads went to sleep so often: {sleeps}"
        ))),
    }
}

/// Four threads with an epoll set each echo, and one accepts. What they are told to they do with their own sets before they
/// answer.
const SETS: &str = "
import os, select, socket, threading
listener = socket.create_server(('10.9.0.2', 5201), backlog=128)
end, hold = os.pipe()
class Worker:
    def __init__(self):
        self.set = select.epoll()
        self.outer = None
        self.connections = {}
        # Two threads may have the set: what one has read it answers before the other reads.
        self.turn = threading.Lock()
    def run(self):
        while True:
            if self.outer:
                self.outer.poll()
            for fd, _ in self.set.poll(0 if self.outer else None):
                with self.turn:
                    self.serve(fd)
    def add(self, c):
        self.connections[c.fileno()] = c
        self.set.register(c, select.EPOLLIN)
    def remove(self, fd):
        self.set.unregister(fd)
        return self.connections.pop(fd)
    def serve(self, fd):
        try:
            c = self.connections[fd]
            word = c.recv(65536, socket.MSG_DONTWAIT)
        except (KeyError, BlockingIOError):
            # Two threads were told.
            return
        if not word:
            return self.remove(fd).close()
        if word == b'move':
            workers[workers.index(self) + 1 & 3].add(self.remove(fd))
        elif word == b'share':
            begin(self.run)
        elif word == b'inner':
            self.outer = select.epoll()
            self.outer.register(self.set.fileno(), select.EPOLLIN)
        elif word == b'another':
            old = self.set
            self.set = select.epoll.fromfd(os.dup(old.fileno()))
            old.close()
        elif word in (b'new', b'fork'):
            # A child may have the old one, too.
            if word == b'fork' and not os.fork():
                os.close(hold)
                os.read(end, 1)
                os._exit(0)
            old = self.set
            self.set = select.epoll()
            for each in self.connections:
                self.set.register(each, select.EPOLLIN)
            old.close()
        c.sendall(word)
def begin(target):
    threading.Thread(target=target, daemon=True).start()
accepts = select.epoll()
accepts.register(listener, select.EPOLLIN)
workers = [Worker() for _ in range(4)]
for worker in workers:
    begin(worker.run)
print('ready', flush=True)
count = 0
while True:
    accepts.poll()
    c, _ = listener.accept()
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    assert c.recv(1) == b'e'
    workers[count & 3].add(c)
    count += 1
";

/// All that can be done to sets, once each wakes for its own frames.
const CHANGES: &str = "
connections = connect(16)
def warm():
    ask(connections, 100)
def tell(c, word):
    c.sendall(word)
    assert c.recv(64) == word
    ask(connections, 10)
warm()
for c in connections[:8]: tell(c, b'move')
for word in b'another', b'fork':
    warm()
    for c in connections[:4]: tell(c, word)
warm()
tell(connections[0], b'share')
tell(connections[1], b'inner')
warm()
for c in connections[8:]: c.close()
connections = connections[:8] + connect(20)
ask(connections, 30)
def stream(c):
    word = b'%09d' % id(c) * 1000
    for _ in range(20):
        c.sendall(word)
        came = b''
        while len(came) < len(word): came += c.recv(65536)
        assert came == word
    done.append(c)
done = []
threads = [threading.Thread(target=stream, args=(c,)) for c in connections]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(done) == len(connections)
print('fine')
";

/// More sets than there are rings and side bells, each waited on by two descriptors one after the other.
const DESCRIPTORS: &str = "
connections = connect(16)
for word in [b'another', b'new'] * 5:
    ask(connections, 100)
    for c in connections[:4]:
        c.sendall(word)
        assert c.recv(64) == word
for c in connections: c.close()
";

fn with_sets(network: &Network, script: &str) -> Result<String, Failure> {
    let server = python::start(network, "a server", SETS, &[], "ready")?;
    let (script, run) = (format!("{MANY}{script}"), server.id().to_string());
    let said = python::finish_on_kernel(network, "a client", &script, &[&run])?;
    server.stop()?;
    Ok(said)
}

/// A frame wakes the thread whose epoll set it is for, and no other one.
fn sets(network: &Network) -> Outcome {
    let sleeps = with_sets(network, &format!("{DESCRIPTORS}{COUNT}"))?;
    match sleeps.trim().parse() {
        Ok(0..1400) => Ok(()),
        _ => Err(Failure::Wrong(format!(
            "for 1000 requests the threads went to sleep so often: {sleeps}"
        ))),
    }
}

fn sets_change(network: &Network) -> Outcome {
    let said = with_sets(network, CHANGES)?;
    match said.trim() {
        "fine" => Ok(()),
        said => Err(Failure::Wrong(said.to_owned())),
    }
}

/// Two threads wait for a connection each, the first one on the stack's bell (`poll` or `ppoll`), the second on a futex that the
/// stack wakes. Then the first one computes until the second is done.
const COMPUTES: &str = "
import os, socket, threading
listener = socket.create_server(('10.9.0.2', 9106))
print('listening', flush=True)
(first, _), (second, _) = listener.accept(), listener.accept()
done = threading.Event()
def computes():
    first.recv(1)
    while not done.is_set():
        pass
def answers():
    for _ in range(3):
        second.sendall(second.recv(64))
    done.set()
def begin(target, sleeps):
    thread = threading.Thread(target=target)
    thread.start()
    while True:
        with open(f'/proc/self/task/{thread.native_id}/syscall') as call:
            if sleeps(call.read().split()):
                return thread
threads = [
    begin(computes, lambda call: call[0] in ('7', '271')),
    begin(answers, lambda call: call[0] == '202' and call[2] == '0x0'),
]
first.sendall(b'%d\\n' % os.getpid())
for thread in threads:
    thread.join()
print('done', flush=True)
";

/// Before the second thread is asked for the first time more is said to the one that computes than its stack may have to tell
/// (each byte when the one before has arrived, as several make one notice), or else the process is stopped, and goes on then.
const DISTURB: &str = "
import os, signal, socket, sys
first, second = (socket.create_connection(('10.9.0.2', 9106)) for _ in range(2))
first.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
second.settimeout(20)
server = int(first.makefile('rb').readline())
def ask(word):
    second.sendall(word)
    return second.recv(64)
def unacknowledged():
    return first.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 28)[24:]
for _ in range(1 if sys.argv[1] == 'stopped' else 1500):
    first.sendall(b'!')
    while unacknowledged() != bytes(4):
        pass
if sys.argv[1] == 'stopped':
    os.kill(server, signal.SIGSTOP)
    second.sendall(b'one')
    os.kill(server, signal.SIGCONT)
    assert second.recv(64) == b'one'
else:
    assert ask(b'one') == b'one'
assert ask(b'two') == b'two' and ask(b'three') == b'three'
";

fn one_computes(network: &Network) -> Outcome {
    for disturbance in ["stopped", "told"] {
        let server = python::start(network, "a server", COMPUTES, &[], "listening")?;
        python::finish_on_kernel(network, "a client", DISTURB, &[disturbance])?;
        server.wait_until("both threads are done", || server.log().contains("done"))?;
        server.stop()?;
    }
    Ok(())
}

const ECHO: &str = "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('10.9.0.1', 9102))
print('ready', flush=True)
while True:
    s.sendto(*s.recvfrom(64))
";

/// One thread sleeps for a datagram, in `recvfrom` or in `poll`, before the other one sends the first: to a station, and to
/// this host, which is the kernel's.
const RECEIVE_FIRST: &str = "
import select, socket, threading
near = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
near.bind(('127.0.0.1', 0))
def sleeps(thread):
    with open(f'/proc/self/task/{thread.native_id}/syscall') as call:
        # poll, recvfrom, ppoll
        return call.read().split()[0] in ('7', '45', '271')
def receive(s, polls, got):
    if polls:
        poll = select.poll()
        poll.register(s, select.POLLIN)
        assert poll.poll()
    got.append(s.recv(64))
for to in ('10.9.0.1', 9102), near.getsockname():
    for polls in False, True:
        got = []
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receiver = threading.Thread(target=receive, args=(s, polls, got))
        receiver.start()
        while not sleeps(receiver):
            pass
        s.sendto(b'echo', to)
        if to == near.getsockname():
            near.sendto(*near.recvfrom(64))
        receiver.join()
        print(to[0] == '10.9.0.1', polls, got[0])
";

fn receive_first(network: &Network) -> Outcome {
    let mut echo = network.kernel.command("python3");
    echo.args(["-c", ECHO]);
    let echo = Process::spawn(echo, "echo")?;
    echo.wait_until("it is ready", || echo.log().contains("ready"))?;
    let program = network.skink_run("python3", ["-c", RECEIVE_FIRST])?;
    let said = Network::finish(program, "receiver", PATIENCE)?;
    match said.matches("b'echo'").count() {
        4 => Ok(()),
        _ => Err(Failure::Wrong(format!("it printed:\n{said}"))),
    }
}
