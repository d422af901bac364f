//! Sockets passed over Unix sockets, from one program on Skink to another.

use super::{APART, cases_in, python, widely};
use crate::network::Network;
use crate::site::PATIENCE;
use crate::{Case, Failure, Outcome};
use skink_testbed::Scratch;

pub fn cases() -> Vec<Case> {
    let mut cases = cases_in(&APART, "passing/front-and-back", front_and_back);
    cases.extend(widely("passing/listeners", listeners));
    cases.extend(widely("passing/connections", connections));
    cases.extend(widely("passing/by-who-dies", by_who_dies));
    cases
}

/// Binds for its child, which hasn't inherited that, and passes it; the second listening socket twice, of which the child closes
/// one. Then it ends with nothing of its own left.
const BINDER: &str = "
import os, select, socket
near, far = socket.socketpair()
def receive():
    _, fds, _, _ = socket.recv_fds(far, 1, 4)
    return [socket.socket(fileno=fd) for fd in fds]
if not os.fork():
    near.close()
    first, second, again, udp = receive()
    second.close()
    listeners = [first, again]
    for it in listeners:
        assert it.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
    far.send(b'.')
    left = 41
    while left:
        for it in select.select(listeners + [udp], [], [])[0]:
            left -= 1
            if it is udp:
                data, client = udp.recvfrom(64)
                udp.sendto(data[::-1], client)
            else:
                c, _ = it.accept()
                c.sendall(c.recv(64)[::-1])
                c.close()
    os._exit(0)
far.close()
listeners = [socket.create_server(('10.9.0.2', 9100)), socket.create_server(('', 9101))]
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(('10.9.0.2', 9102))
first, second = [it.fileno() for it in listeners]
socket.send_fds(near, [b'.'], [first, second, second, udp.fileno()])
for it in listeners + [udp]:
    it.close()
assert near.recv(1) == b'.'
print('passed', flush=True)
assert os.wait()[1] == 0
";

/// Asks all three. Its datagram is said again until it is answered: in `library` the socket hears from when on it is waited on.
const ASKER: &str = "
import socket
for round in range(20):
    for port in 9100, 9101:
        with socket.create_connection(('10.9.0.2', port), 20) as c:
            c.settimeout(20)
            c.sendall(b'abc')
            assert c.recv(64) == b'cba', port
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.settimeout(0.2)
udp.connect(('10.9.0.2', 9102))
for _ in range(100):
    try:
        udp.send(b'abc')
        assert udp.recv(64) == b'cba'
        break
    except (TimeoutError, ConnectionRefusedError):
        pass
else:
    raise AssertionError('nobody answers datagrams')
";

/// Listening and bound sockets are passed in every topology.
fn listeners(network: &Network) -> Outcome {
    let server = python::start(network, "server", BINDER, &[], "passed")?;
    python::asked(network, server, ASKER, &[])
}

/// Accepts connections and passes each to a child, which closes it. The first four bytes say what they do with it.
const GATE: &str = "
import hashlib, os, socket
def receive(link):
    _, fds, _, _ = socket.recv_fds(link, 1, 1)
    c = socket.socket(fileno=fds[0])
    c.settimeout(20)
    return c
def work(link):
    while order := link.recv(4):
        if order == b'lost':
            # Nobody takes the descriptor.
            link.recv(1)
            continue
        c = receive(link)
        if order == b'echo':
            while data := c.recv(65536):
                c.sendall(data)
        elif order == b'load':
            digest = hashlib.sha256()
            while data := c.recv(65536):
                digest.update(data)
            c.sendall(digest.digest())
        elif order == b'sent':
            c.sendall(b'the end')
        elif order == b'back':
            c.sendall(b'there ')
            socket.send_fds(link, [b'.'], [c.fileno()])
        c.close()
links = []
for _ in range(2):
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if not os.fork():
        for link in links + [near]:
            link.close()
        work(far)
        os._exit(0)
    far.close()
    links.append(near)
listener = socket.create_server(('', 9100), backlog=64)
print('ready', flush=True)
while True:
    c, _ = listener.accept()
    order = c.recv(4, socket.MSG_WAITALL)
    if order == b'stop':
        break
    if order in (b'self', b'free', b'full'):
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        a.setblocking(False)
        try:
            while order == b'full':
                a.send(bytes(1000))
        except BlockingIOError:
            pass
        try:
            socket.send_fds(a, [b'.'], [c.fileno()])
            assert order != b'full'
        except BlockingIOError:
            assert order == b'full'
        if order == b'self':
            c.close()
            c = receive(b)
        a.close()
        b.close()
        c.sendall(order)
        c.close()
        continue
    if order == b'sent':
        c.sendall(bytes(range(256)) * 1200)
    link = links[0]
    links.reverse()
    link.send(order)
    socket.send_fds(link, [b'.'], [c.fileno()])
    c.close()
    if order == b'back':
        c = receive(link)
        c.sendall(b'and back')
        c.close()
for link in links:
    link.close()
    assert os.wait()[1] == 0
c.close()
";

/// Four clients at a time, each with some of all that there is to do.
const CALLERS: &str = "
import hashlib, random, socket, threading
def call(order, data=b'', expected=None):
    with socket.create_connection(('10.9.0.2', 9100), 20) as s:
        s.sendall(order + data)
        if order == b'load':
            s.shutdown(socket.SHUT_WR)
        got = b''
        while more := s.recv(65536):
            got += more
        assert got == expected, (order, len(got), got[-40:])
def echo(rng):
    with socket.create_connection(('10.9.0.2', 9100), 20) as s:
        s.sendall(b'echo')
        for _ in range(rng.randrange(1, 6)):
            data = rng.randbytes(rng.randrange(1, 5000))
            s.sendall(data)
            got = b''
            while len(got) < len(data):
                more = s.recv(65536)
                assert more, 'it ended'
                got += more
            assert got == data
        s.shutdown(socket.SHUT_WR)
        assert s.recv(1) == b''
failed = []
def run(seed):
    rng = random.Random(seed)
    try:
        for turn in range(12):
            echo(rng)
            data = rng.randbytes(rng.randrange(1, 400_000))
            call(b'load', data, hashlib.sha256(data).digest())
            call(b'sent', b'', bytes(range(256)) * 1200 + b'the end')
            call(b'back', b'', b'there and back')
            if turn % 6 == 0:
                call(b'lost', b'', b'')
            for order in b'self', b'free', b'full':
                call(order, b'', order)
    except BaseException as failure:
        failed.append((seed, failure))
        raise
threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failed, failed
with socket.create_connection(('10.9.0.2', 9100), 20) as s:
    s.sendall(b'stop')
    assert s.recv(1) == b''
";

/// A program gives what it has accepted to another of its processes, which goes on with it, to the byte: what was read and not, what
/// was written and hasn't left, and what comes meanwhile. What nobody receives stays where it was.
fn connections(network: &Network) -> Outcome {
    let server = python::start(network, "server", GATE, &[], "ready")?;
    python::asked(network, server, CALLERS, &[])
}

/// One child passes a connection, keeps another one, and stands still; another child receives it and says so. Then the first one is
/// killed, which hasn't heard of that.
const DIES: &str = "
import os, signal, socket
near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
told, tell = os.pipe()
heard, hear = os.pipe()
def receive():
    near.close()
    os.read(told, 1)
    _, fds, _, _ = socket.recv_fds(far, 1, 1)
    c = socket.socket(fileno=fds[0])
    c.settimeout(20)
    os.write(hear, b'.')
    while data := c.recv(64):
        c.sendall(data)
def send():
    far.close()
    listener = socket.create_server(('10.9.0.2', 9100))
    print('ready', flush=True)
    c, _ = listener.accept()
    kept, _ = listener.accept()
    socket.send_fds(near, [b'.'], [c.fileno()])
    os.kill(os.getpid(), signal.SIGSTOP)
def child(work):
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    return pid
receiver, sender = child(receive), child(send)
near.close()
far.close()
os.waitpid(sender, os.WUNTRACED)
os.write(tell, b'.')
os.read(heard, 1)
os.kill(sender, signal.SIGKILL)
os.waitpid(sender, 0)
assert os.waitpid(receiver, 0)[1] == 0
";

/// Says nothing before the dead one's connections are ended.
const ASKS_ON: &str = "
import socket
def dial():
    return socket.create_connection(('10.9.0.2', 9100), 20)
with dial() as s, dial() as kept:
    assert kept.recv(64) == b''
    for turn in range(100):
        s.sendall(b'%d' % turn)
        assert s.recv(64) == b'%d' % turn, turn
    s.shutdown(socket.SHUT_WR)
    assert s.recv(64) == b''
";

/// What was received stays, though its sender never heard that it was.
fn by_who_dies(network: &Network) -> Outcome {
    let server = python::start(network, "server", DIES, &[], "ready")?;
    python::asked(network, server, ASKS_ON, &[])
}

/// Accepts connections and passes them on. What the client sent says what comes next.
const FRONT: &str = "
import os, socket, sys
def dial():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(sys.argv[1])
    return s
link, word = dial(), dial()
listener = socket.create_server(('', 9100))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(('', 9101))
print('ready', flush=True)
order = b''
while order != b'last':
    c, _ = listener.accept()
    order = c.recv(64)
    if order == b'last':
        # With it goes everything else, and nobody receives it before this process has ended.
        socket.send_fds(link, [order], [c.fileno(), listener.fileno(), udp.fileno()])
        # It closes nothing itself.
        os._exit(0)
    for _ in range(2 if order == b'twice' else 1):
        socket.send_fds(link, [order], [c.fileno()])
    if order == b'early':
        # What the library needs for that isn't the program's to close.
        descriptors = os.listdir('/proc/self/fd')
        os.closerange(1000, 1 << 20)
        assert os.listdir('/proc/self/fd') == descriptors
    if order == b'late':
        word.send(order)
        assert word.recv(64) == b'answered'
        c.sendall(b', front')
    c.close()
    if order != b'late':
        word.send(order)
    if order == b'again':
        _, fds, _, _ = socket.recv_fds(link, 64, 1)
        assert word.recv(64) == b'answered'
        with socket.socket(fileno=fds[0]) as c:
            c.sendall(b', front')
";

/// Receives them, when it is told to, and answers.
const BACK: &str = "
import socket, struct, sys
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.bind(sys.argv[1])
server.listen()
print('ready', flush=True)
link, word = server.accept()[0], server.accept()[0]
order = b'-'
while order:
    order = word.recv(64)
    if order == b'unread':
        # Nobody takes the descriptor.
        link.recv(64)
        continue
    if order == b'peeked':
        _, control, _, _ = link.recvmsg(64, socket.CMSG_SPACE(4), socket.MSG_PEEK)
        with socket.socket(fileno=struct.unpack('i', control[0][2][:4])[0]) as c:
            c.sendall(b'peeked, ')
    _, fds, _, _ = socket.recv_fds(link, 64, 3)
    c = socket.socket(fileno=fds[0])
    assert c.getsockname()[1] == 9100, c
    c.sendall(b'back')
    if order == b'again':
        socket.send_fds(link, [order], [c.fileno()])
    c.close()
    if order == b'twice':
        # It is still open, as it is in the other message, too.
        _, fds, _, _ = socket.recv_fds(link, 64, 1)
        with socket.socket(fileno=fds[0]) as c:
            c.sendall(b', twice')
    if order in (b'again', b'late'):
        word.send(b'answered')
listener, udp = [socket.socket(fileno=fd) for fd in fds[1:]]
c, _ = listener.accept()
assert c.recv(64) == b'more'
c.sendall(b'alone')
c.close()
listener.close()
data, client = udp.recvfrom(64)
udp.sendto(data[::-1], client)
";

const CLIENT: &str = "
import socket, sys
def dial():
    return socket.create_connection((sys.argv[1], 9100), 20)
def hear(s, expected):
    got = b''
    while more := s.recv(64):
        got += more
    assert got == expected, got
def ask(order, expected):
    with dial() as s:
        s.sendall(order)
        hear(s, expected)
for _ in range(3):
    ask(b'early', b'back')
    ask(b'late', b'back, front')
    ask(b'peeked', b'peeked, back')
    ask(b'unread', b'')
    ask(b'again', b'back, front')
    ask(b'twice', b'back, twice')
for _ in range(100):
    ask(b'early', b'back')
with dial() as last, dial() as queued:
    # Nobody has accepted this one when its listening socket is passed on.
    queued.sendall(b'more')
    last.sendall(b'last')
    hear(last, b'back')
    hear(queued, b'alone')
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.settimeout(20)
    s.sendto(b'abc', (sys.argv[1], 9101))
    assert s.recv(64) == b'cba'
";

/// Whoever closes first, or ends: a connection lives as long as one of them holds it, or a message on its
/// way. Listening sockets and UDP sockets are passed, too.
fn front_and_back(network: &Network) -> Outcome {
    let scratch = Scratch::new("passing")?;
    let path = scratch.path().join("link").display().to_string();
    let start = |script: &str, name: &str| python::start(network, name, script, &[&path], "ready");
    let back = start(BACK, "who receives connections")?;
    let front = start(FRONT, "who passes connections")?;
    let arguments = [Network::SKINK[0]];
    let asked = python::finish_on_kernel(network, "a client of both", CLIENT, &arguments);
    if let Err(failure) = asked {
        let logs = format!(
            "{failure:?}\nfront:\n{}\nback:\n{}",
            front.log(),
            back.log()
        );
        return Err(Failure::Wrong(logs));
    }
    for (process, name) in [(front, "front"), (back, "back")] {
        let (status, said) = process.wait(PATIENCE)?;
        if !status.success() || said.contains("skink[") {
            let text = format!("{name} ended with {status}; it printed:\n{said}");
            return Err(Failure::Wrong(text));
        }
    }
    Ok(())
}
