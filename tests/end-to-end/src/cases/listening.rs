//! Listening sockets that nobody waits on: who queues connections for them, and for whom.

use super::workers::counters;
use super::{APART_ONCE, cases_in, on_each_back_end};
use crate::network::Network;
use crate::site::PATIENCE;
use crate::{Case, Failure, Outcome, Topology};
use skink_testbed::{Process, Scratch};

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, run) in [
        ("told-to-a-peer", told_to_a_peer as fn(&Network) -> Outcome),
        ("told-before-a-fork", told_before_a_fork),
        ("told-by-another-thread", told_by_another_thread),
        ("told-through-a-file", told_through_a_file),
        ("told-after-a-program", told_after_a_program),
        ("beside-a-helper", beside_a_helper),
        ("for-children", for_children),
        ("left-to-children", left_to_children),
        ("datagrams", datagrams),
        ("datagrams-for-children", datagrams_for_children),
    ] {
        cases.extend(on_each_back_end(&format!("listening/{name}"), run));
    }
    for (name, run) in [
        (
            "for-who-accepts",
            for_who_accepts as fn(&Network) -> Outcome,
        ),
        ("told-after-a-fork", told_after_a_fork),
        ("told-by-a-child", told_by_a_child),
    ] {
        cases.extend(cases_in(&APART_ONCE, &format!("listening/{name}"), run));
    }
    cases.extend(on_each_back_end("listening/in-a-set", in_a_set));
    cases.extend(on_each_back_end("listening/under-a-lock", under_a_lock));
    cases.extend(on_each_back_end("listening/one-at-a-time", one_at_a_time));
    cases.extend(on_each_back_end(
        "listening/left-to-another",
        left_to_another,
    ));
    cases.extend(on_each_back_end(
        "listening/left-by-a-dead-one",
        left_by_a_dead_one,
    ));
    cases.extend(on_each_back_end(
        "listening/left-to-a-program",
        left_to_a_program,
    ));
    cases.extend(on_each_back_end("listening/while-one-ends", while_one_ends));
    cases
}

/// Each time it is told a port, connects to it, sends, and says so, in the named file if there is one; it doesn't end before it
/// is answered.
const PEER: &str = "
import socket, sys
def say():
    if len(sys.argv) == 1:
        return control.sendall(b'.')
    with open(sys.argv[1], 'wb') as file:
        file.write(b'.')
control = socket.create_server(('10.9.0.1', 9400))
print('ready', flush=True)
control, _ = control.accept()
for line in control.makefile('r'):
    address, port = line.split()
    data = socket.create_connection((address, int(port)), 10)
    data.sendall(b'before it was accepted')
    say()
    assert data.recv(64) == b'then'
print('done', flush=True)
";

/// Tells a peer each port that it listens on, and waits for the peer's word before anything else. The first socket
/// listens before the program has said anything to anybody. With `fork` a child comes and goes before a connection is accepted,
/// with `child` one comes before anybody is told, and accepts it, and with `orphan` the parent has closed the socket by then;
/// with `spawn` another program that inherits the socket, before anybody is told; with `thread` another thread waits for the word,
/// and does so already when the socket listens; with `file` it waits for nothing but the file whose name comes next.
const PROGRAM: &str = "
import os, socket, sys, threading
def hear():
    if 'file' not in sys.argv:
        return control.recv(1)
    with open(sys.argv[-1], 'rb') as file:
        return file.read()
def sleeps(thread):
    return open('/proc/self/task/%d/stat' % thread.native_id).read().rsplit(') ')[1][0] == 'S'
def serve(data, address):
    if 'thread' in sys.argv:
        thread = threading.Thread(target=hear)
        thread.start()
        while not sleeps(thread):
            pass
        data = socket.create_server((address.decode(), 0), family=data.family)
    if 'spawn' in sys.argv:
        data.set_inheritable(True)
        os.waitpid(os.posix_spawn('/bin/true', ['true'], os.environ), 0)
    if 'child' in sys.argv:
        ready, told = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            os.write(ready[1], b'.')
            os.read(told[0], 1)
            accept(data)
            os._exit(0)
        os.read(ready[0], 1)
    name = data.getsockname()
    if 'orphan' in sys.argv:
        data.close()
    control.sendall(b'%s %d\\n' % (address, name[1]))
    if 'thread' in sys.argv:
        thread.join()
    else:
        assert hear() == b'.'
    if 'fork' in sys.argv:
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    if 'child' in sys.argv:
        os.write(told[1], b'.')
        assert os.waitpid(child, 0)[1] == 0
    else:
        accept(data)
def accept(data):
    data, _ = data.accept()
    assert data.recv(64) == b'before it was accepted'
    data.sendall(b'then')
first = socket.create_server(('10.9.0.2', 0))
control = socket.create_connection(('10.9.0.1', 9400))
serve(first, b'10.9.0.2')
serve(socket.create_server(('10.9.0.2', 0)), b'10.9.0.2')
serve(socket.create_server(('', 0)), b'10.9.0.2')
serve(socket.create_server(('', 0), family=socket.AF_INET6, dualstack_ipv6=True), b'fd09::2')
";

/// A peer that is told a port connects to it while the program waits for something else: the connection waits, with
/// what was sent on it, until it is accepted.
fn told_to_a_peer(network: &Network) -> Outcome {
    tell(network, &[])
}

/// So it does when the program forks meanwhile, for whatever else.
fn told_before_a_fork(network: &Network) -> Outcome {
    tell(network, &["fork"])
}

/// So it does though a program has inherited the socket that doesn't wait for connections.
fn told_after_a_program(network: &Network) -> Outcome {
    tell(network, &["spawn"])
}

/// So it does though a child has the socket too, and hasn't waited for connections either, and the child may be the one who
/// accepts it.
fn told_after_a_fork(network: &Network) -> Outcome {
    tell(network, &["child"])
}

/// So it does if only the child has it any more.
fn told_by_a_child(network: &Network) -> Outcome {
    tell(network, &["child", "orphan"])
}

/// So it does if the thread that sleeps isn't the one that listens.
fn told_by_another_thread(network: &Network) -> Outcome {
    tell(network, &["thread"])
}

/// So it does if the program makes no call on a socket before it is connected to.
fn told_through_a_file(network: &Network) -> Outcome {
    let scratch = Scratch::new("told")?;
    let file = scratch.path().join("told");
    rustix::fs::mkfifoat(rustix::fs::CWD, &file, rustix::fs::Mode::RWXU)?;
    let file = file.to_string_lossy();
    tell_of(network, (PROGRAM, &["file", &file]), (PEER, &[&file]))
}

fn tell(network: &Network, how: &[&str]) -> Outcome {
    tell_of(network, (PROGRAM, how), (PEER, &[]))
}

/// Runs a program with its arguments, and the peer that it tells what it is bound to.
fn tell_of(
    network: &Network,
    (program, how): (&str, &[&str]),
    (peer, peers): (&str, &[&str]),
) -> Outcome {
    let mut command = network.kernel.command("python3");
    command.args(["-c", peer]).args(peers);
    let peer = Process::spawn(command, "the peer")?;
    peer.wait_until("it is ready", || peer.log().contains("ready"))?;
    let arguments = [&["-c", program], how].concat();
    let program = network.skink_run("python3", arguments)?;
    Network::finish(program, "the program", PATIENCE)?;
    peer.wait_until("all is done", || peer.log().contains("done"))?;
    Ok(())
}

/// Puts a listening socket in a set, goes on in a child, as a daemon does, and waits on the set there.
const DAEMON: &str = "
import os, select, socket
listener = socket.create_server(('10.9.0.2', 0))
set = select.epoll()
set.register(listener, select.EPOLLIN)
child = os.fork()
if child:
    listener.close()
    assert os.waitpid(child, 0)[1] == 0
    raise SystemExit
assert set.poll(0) == []
control = socket.create_connection(('10.9.0.1', 9400))
control.sendall(b'10.9.0.2 %d\\n' % listener.getsockname()[1])
assert control.recv(1) == b'.'
assert set.poll(10) == [(listener.fileno(), select.EPOLLIN)]
data, _ = listener.accept()
assert data.recv(64) == b'before it was accepted'
data.sendall(b'then')
";

/// Who waits on a set that its parent has made waits on the listening sockets that are in it.
fn in_a_set(network: &Network) -> Outcome {
    tell_of(network, (DAEMON, &[]), (PEER, &[]))
}

/// Has a connection of its own, listens, and leaves the rest to its children. `wait` has it do so when the first connection is
/// in its queue.
const PARENT: &str = "
import os, signal, socket, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
control = socket.create_connection(('10.9.0.1', 9401))
listener = socket.create_server(('10.9.0.2', 9402))
control.sendall(b'listening')
if 'wait' in sys.argv:
    assert control.recv(1) == b'.'
children = []
for _ in range(2):
    children.append(os.fork())
    if children[-1] == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while True:
            c, _ = listener.accept()
            c.sendall(c.recv(64))
            c.close()
control.sendall(b'forked')
try:
    assert control.recv(1) == b'.'
finally:
    for child in children:
        os.kill(child, 9)
        os.waitpid(child, 0)
";

/// Makes connections until one is answered, since at first no child may wait, and then more, of which each must be. With `wait`
/// there is one in the parent's queue before, and that and one more may be reset.
const CLIENTS: &str = "
import socket, sys, time
control = socket.create_server(('10.9.0.1', 9401))
other = socket.create_server(('10.9.0.1', 9404))
print('ready', flush=True)
control, _ = control.accept()
assert control.recv(9) == b'listening'
def connect():
    c = socket.create_connection(('10.9.0.2', 9402), 10)
    c.sendall(b'word')
    return c
def is_answered(c):
    return c.recv(64) == b'word'
waits = 'wait' in sys.argv
if waits:
    first = connect()
    control.sendall(b'.')
assert control.recv(6) == b'forked'
until = time.monotonic() + 10
while True:
    try:
        if is_answered(connect()):
            break
    except ConnectionError:
        assert time.monotonic() < until
lost = 0
for _ in range(60):
    try:
        assert is_answered(connect())
    except ConnectionError:
        lost += 1
assert lost <= waits, lost
control.sendall(b'.')
print('done', flush=True)
";

/// Takes connections itself, beside a helper that has inherited the socket and doesn't use it: it listens on one of its own,
/// and sleeps.
const MASTER: &str = "
import select, signal, socket, subprocess, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
control = socket.create_connection(('10.9.0.1', 9401))
listener = socket.create_server(('10.9.0.2', 9402))
listener.set_inheritable(True)
select.select([listener], [], [], 0)
program = '''
import socket
control = socket.create_connection((\"10.9.0.1\", 9404))
listener = socket.create_server((\"10.9.0.2\", 9403))
print(\"sleeps\", flush=True)
control.recv(1)
'''
helper = subprocess.Popen([sys.executable, '-c', program], close_fds=False, stdout=subprocess.PIPE)
try:
    assert helper.stdout.readline() == b'sleeps\\n'
    control.sendall(b'listeningforked')
    for _ in range(61):
        c, _ = listener.accept()
        c.sendall(c.recv(64))
        c.close()
    assert control.recv(1) == b'.'
finally:
    helper.kill()
    helper.wait()
";

/// A program that doesn't wait on a socket that it has inherited gets nothing that comes there.
fn beside_a_helper(network: &Network) -> Outcome {
    serve_clients(network, MASTER, &[])
}

/// Connections go to the children of a program that has a stack, but listens just for them.
fn for_children(network: &Network) -> Outcome {
    fork_for(network, &[])
}

/// So they do if one was in the parent's queue when it forked: only that one, and the next that comes to the parent,
/// are lost.
fn left_to_children(network: &Network) -> Outcome {
    fork_for(network, &["wait"])
}

/// Accepts one connection, leaves the others to its child, and sleeps.
const RETIRED: &str = "
import os, socket
control = socket.create_connection(('10.9.0.1', 9401))
listener = socket.create_server(('10.9.0.2', 9402))
def answer():
    c, _ = listener.accept()
    c.sendall(c.recv(64))
    c.close()
control.sendall(b'listening')
answer()
child = os.fork()
while child == 0:
    answer()
control.sendall(b'forked')
try:
    assert control.recv(1) == b'.'
finally:
    os.kill(child, 9)
    os.waitpid(child, 0)
";

/// Calls, one after the other, each of which must be answered.
const CALLERS: &str = "
import socket
control = socket.create_server(('10.9.0.1', 9401))
print('ready', flush=True)
control, _ = control.accept()
def call():
    c = socket.create_connection(('10.9.0.2', 9402), 10)
    c.sendall(b'word')
    assert c.recv(64) == b'word'
assert control.recv(9) == b'listening'
call()
assert control.recv(6) == b'forked'
for _ in range(40):
    call()
control.sendall(b'.')
print('done', flush=True)
";

/// A process that has accepted a connection, and then leaves that to its child, keeps none from it.
fn for_who_accepts(network: &Network) -> Outcome {
    call_and_serve(network, CALLERS, RETIRED, &[])
}

fn fork_for(network: &Network, how: &[&str]) -> Outcome {
    serve_clients(network, PARENT, how)
}

fn serve_clients(network: &Network, program: &str, how: &[&str]) -> Outcome {
    call_and_serve(network, CLIENTS, program, how)
}

fn call_and_serve(network: &Network, clients: &str, program: &str, how: &[&str]) -> Outcome {
    let mut command = network.kernel.command("python3");
    command.args(["-c", clients]).args(how);
    let clients = Process::spawn(command, "the clients")?;
    clients.wait_until("they are ready", || clients.log().contains("ready"))?;
    let arguments = [&["-c", program], how].concat();
    let parent = Process::spawn(network.skink_run("python3", arguments)?, "the parent")?;
    clients.wait_until("all is done", || clients.log().contains("done"))?;
    let (status, said) = parent.wait(PATIENCE)?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::Wrong(format!(
            "the parent ended with {status}; it printed:\n{said}"
        ))),
    }
}

/// Each child serves one connection for as long as it lasts, and says who it is.
const ONE_EACH: &str = "
import os, select, signal, socket
listener = socket.create_server(('10.9.0.2', 9402))
begun, begin = os.pipe()
children = []
for _ in range(12):
    children.append(os.fork())
    if children[-1] == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        select.select([listener], [], [], 0)
        os.write(begin, b'.')
        while True:
            c, _ = listener.accept()
            while c.recv(64) == b'?':
                c.sendall(b'%d' % os.getpid())
            c.close()
for _ in range(12):
    os.read(begun, 1)
def end(*_):
    for child in children:
        os.kill(child, signal.SIGTERM)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
print('ready', flush=True)
signal.pause()
";

/// Has more and more connections, each with a child of its own. The next one comes when the child of the last one sleeps until it hears more.
/// Before that each of the ports had a connection with whatever child, as those of a proxy have in the long run.
const ONE_MORE: &str = "
import socket
def sleeps(pid):
    return open('/proc/%s/stat' % pid).read().rsplit(') ')[1][0] == 'S'
def connect(port):
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    connection.bind(('10.9.0.1', port))
    connection.settimeout(20)
    connection.connect(('10.9.0.2', 9402))
    connection.sendall(b'?')
    return connection, connection.recv(64).decode()
def close(connection, pid):
    connection.sendall(b'.')
    assert connection.recv(64) == b''
    connection.close()
    while not sleeps(pid):
        pass
for round in range(3):
    for port in range(9410, 9419):
        close(*connect(port))
    served = {}
    for port in range(9410, 9419):
        connection, pid = connect(port)
        assert pid and pid not in served, pid
        served[pid] = connection
        while not sleeps(pid):
            pass
    for pid, connection in served.items():
        close(connection, pid)
";

/// Who comes gets a process that waits, not one that is busy with another connection.
fn one_at_a_time(network: &Network) -> Outcome {
    let server = Process::spawn(
        network.skink_run("python3", ["-c", ONE_EACH])?,
        "the server",
    )?;
    server.wait_until("it is ready", || server.log().contains("ready"))?;
    let mut clients = network.kernel.command("python3");
    clients.args(["-c", ONE_MORE]);
    Network::finish(clients, "the clients", PATIENCE)?;
    let [stalled] = counters(network, ["tcp.stalled"])?;
    if stalled > 0 {
        let text = format!("{stalled} processes were given connections that they didn't wait for");
        return Err(Failure::Wrong(text));
    }
    Ok(())
}

/// Three connections wait at the first child, which accepts none. When the second one listens, it closes its socket, or is killed.
const LEAVER_AND_HEIR: &str = "
import os, select, signal, socket, sys
shared = socket.create_server(('10.9.0.2', 9402))
told, tell = os.pipe()
first, go_first = os.pipe()
second, go_second = os.pipe()
leaver = os.fork()
if leaver == 0:
    select.select([shared], [], [], 0)
    os.write(tell, b'.')
    os.read(first, 1)
    shared.close()
    os.write(tell, b'.')
    os.read(first, 1)
    os._exit(0)
os.read(told, 1)
heir = os.fork()
if heir == 0:
    os.read(second, 1)
    select.select([shared], [], [], 0)
    os.write(tell, b'.')
    for _ in range(3):
        connection, _ = shared.accept()
        connection.settimeout(20)
        connection.sendall(b'served ' + connection.recv(64))
        connection.close()
    os._exit(0)
shared.close()
control = socket.create_server(('10.9.0.2', 9403))
print('ready', flush=True)
control, _ = control.accept()
assert control.recv(1) == b'.'
os.write(go_second, b'.')
os.read(told, 1)
if 'killed' in sys.argv:
    os.kill(leaver, signal.SIGKILL)
    os.waitpid(leaver, 0)
else:
    os.write(go_first, b'.')
    os.read(told, 1)
control.sendall(b'.')
assert os.waitpid(heir, 0)[1] == 0
if 'killed' not in sys.argv:
    os.write(go_first, b'.')
    os.waitpid(leaver, 0)
print('done', flush=True)
";

/// Has said something on one of three connections when they are left.
const LEFT: &str = "
import socket
def connect(port):
    return socket.create_connection(('10.9.0.2', port), 20)
waiting = [connect(9402) for _ in range(3)]
waiting[0].sendall(b'early')
control = connect(9403)
control.sendall(b'.')
assert control.recv(1) == b'.'
for connection in waiting[1:]:
    connection.sendall(b'later')
for connection, said in zip(waiting, (b'early', b'later', b'later')):
    assert connection.recv(64) == b'served ' + said
    assert connection.recv(64) == b''
";

/// What waits at a process that stops to listen is accepted by another one.
fn left_to_another(network: &Network) -> Outcome {
    serve_and_call(network, &[LEAVER_AND_HEIR], LEFT)
}

/// And what waits at one that is killed.
fn left_by_a_dead_one(network: &Network) -> Outcome {
    serve_and_call(network, &[LEAVER_AND_HEIR, "killed"], LEFT)
}

/// Becomes itself anew while a connection waits that has said something.
const ANEW: &str = "
import os, socket, sys
if 'anew' not in sys.argv:
    listener = socket.create_server(('10.9.0.2', 9402))
    listener.set_inheritable(True)
    control = socket.create_server(('10.9.0.2', 9403))
    print('ready', flush=True)
    control.accept()[0].recv(1)
    os.execv(sys.executable, [*sys.orig_argv, 'anew', str(listener.fileno())])
connection, _ = socket.socket(fileno=int(sys.argv[-1])).accept()
connection.sendall(b'served ' + connection.recv(64))
print('done', flush=True)
";

/// Waits before the process becomes another program.
const WAITS_MEANWHILE: &str = "
import socket
control = socket.create_connection(('10.9.0.2', 9403), 20)
waiting = socket.create_connection(('10.9.0.2', 9402), 20)
waiting.sendall(b'early')
control.sendall(b'.')
assert waiting.recv(64) == b'served early'
";

/// What waits at a process that becomes another program, with its socket, is accepted by that.
fn left_to_a_program(network: &Network) -> Outcome {
    serve_and_call(network, &[ANEW], WAITS_MEANWHILE)
}

/// The server says when it is ready, and when it is done.
fn serve_and_call(network: &Network, server: &[&str], clients: &str) -> Outcome {
    let server = [&["-c"], server].concat();
    let server = Process::spawn(network.skink_run("python3", server)?, "the server")?;
    server.wait_until("it is ready", || server.log().contains("ready"))?;
    let mut command = network.kernel.command("python3");
    command.args(["-c", clients]);
    Network::finish(command, "the clients", PATIENCE)?;
    server.wait_until("all are served", || server.log().contains("done"))?;
    Ok(())
}

/// The second child begins when the first one has ended, whose peer takes its time.
const ONE_THEN_ANOTHER: &str = "
import os, socket
listener = socket.create_server(('10.9.0.2', 9402))
def child(serve):
    pid = os.fork()
    if pid == 0:
        connection, _ = listener.accept()
        serve(connection)
        os._exit(0)
    return pid
def slowly(connection):
    connection.sendall(b'%20d' % os.getpid() + bytes(300000))
first = child(slowly)
print('ready', flush=True)
assert os.waitpid(first, 0)[1] == 0
second = child(lambda connection: connection.sendall(b'second'))
assert os.waitpid(second, 0)[1] == 0
print('done', flush=True)
";

/// Calls once more while the first child, which has ended for itself, has something to deliver.
const CALLS_MEANWHILE: &str = "
import select, socket
def sleeps(pid):
    try:
        return open('/proc/%d/stat' % pid).read().rsplit(') ')[1][0] != 'R'
    except OSError:
        return True
first = socket.create_connection(('10.9.0.2', 9402))
pid = int(first.recv(20, socket.MSG_WAITALL))
while not sleeps(pid):
    pass
second = socket.socket()
second.setblocking(False)
second.connect_ex(('10.9.0.2', 9402))
select.select([], [second], [], 0.5)
assert second.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
assert len(first.recv(300000, socket.MSG_WAITALL)) == 300000
assert first.recv(1) == b''
second.settimeout(20)
assert second.recv(64) == b'second'
";

/// A process that ends, and delivers what it has written, refuses nobody whom another one serves then.
fn while_one_ends(network: &Network) -> Outcome {
    serve_and_call(network, &[ONE_THEN_ANOTHER], CALLS_MEANWHILE)
}

/// Who has the lock waits on an epoll set and accepts, as workers of Postfix and uWSGI do.
const UNDER_A_LOCK: &str = "
import fcntl, os, select, signal, socket, tempfile
listener = socket.create_server(('10.9.0.2', 9402))
listener.setblocking(False)
lock = tempfile.NamedTemporaryFile()
children = []
def serve():
    mine = open(lock.name)
    with select.epoll() as events:
        events.register(listener, select.EPOLLIN)
        while True:
            fcntl.flock(mine, fcntl.LOCK_EX)
            events.poll()
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                connection = None
            fcntl.flock(mine, fcntl.LOCK_UN)
            if connection:
                connection.setblocking(True)
                connection.sendall(connection.recv(64))
                connection.close()
for _ in range(4):
    children.append(os.fork())
    if children[-1] == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        serve()
def end(*_):
    for child in children:
        os.kill(child, signal.SIGTERM)
    print('done', flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
control = socket.create_server(('10.9.0.2', 9403))
print('ready', flush=True)
control.accept()
end()
";

/// One connection after the other.
const ONE_BY_ONE: &str = "
import socket
def served(number):
    print('connection', number)
    connection = socket.create_connection(('10.9.0.2', 9402), 20)
    connection.sendall(b'%d' % number)
    return connection.recv(64) == b'%d' % number
assert all(served(number) for number in range(60))
socket.create_connection(('10.9.0.2', 9403), 20)
";

/// Connections come to the worker that waits for them, not to those that wait for their turn.
fn under_a_lock(network: &Network) -> Outcome {
    serve_and_call(network, &[UNDER_A_LOCK], ONE_BY_ONE)?;
    if network.plan.topology == Topology::Library {
        // What was counted there ends with the program.
        return Ok(());
    }
    match counters(network, ["tcp.stalled"])? {
        [0..=8] => Ok(()),
        [stalled] => Err(Failure::Wrong(format!("workers stalled {stalled} times"))),
    }
}

/// Each time it is told a port, sends a datagram there, and says so.
const SENDER: &str = "
import socket
control = socket.create_server(('10.9.0.1', 9400))
print('ready', flush=True)
control, _ = control.accept()
for line in control.makefile('r'):
    address, port = line.split()
    data = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET, socket.SOCK_DGRAM)
    data.sendto(b'early', (address, int(port)))
    control.sendall(b'.')
print('done', flush=True)
";

/// Tells a peer where it can be sent datagrams, and waits for the peer's word before it receives any. With `fork` a child receives
/// what comes after the fork. In the end it sends to itself from a socket that was bound, by the kernel's stack, and binds another one to
/// the same port; before that it watches one that it binds only then.
const RECEIVER: &str = "
import os, select, socket, sys
first = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
first.bind(('10.9.0.2', 0))
control = socket.create_connection(('10.9.0.1', 9400))
def tell(data, address):
    control.sendall(b'%s %d\\n' % (address, data.getsockname()[1]))
    assert control.recv(1) == b'.'
def receive(data):
    data.settimeout(10)
    assert data.recv(64) == b'early'
def bound(family, address):
    data = socket.socket(family, socket.SOCK_DGRAM)
    data.bind((address, 0))
    return data
both = bound(socket.AF_INET6, '::')
for data, address in [
    (first, b'10.9.0.2'),
    (bound(socket.AF_INET, ''), b'10.9.0.2'),
    (both, b'10.9.0.2'),
    (both, b'fd09::2'),
]:
    if 'fork' in sys.argv:
        ready, told = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            data.settimeout(0)
            try:
                data.recv(64)
            except BlockingIOError:
                os.write(ready[1], b'.')
            os.read(told[0], 1)
            receive(data)
            os._exit(0)
        assert os.read(ready[0], 1) == b'.'
        tell(data, address)
        os.write(told[1], b'.')
        assert os.waitpid(child, 0)[1] == 0
    else:
        tell(data, address)
        receive(data)
waits = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
with select.epoll() as set:
    set.register(waits, select.EPOLLIN)
    waits.bind(('10.9.0.2', 0))
    tell(waits, b'10.9.0.2')
    assert set.poll(10) == [(waits.fileno(), select.EPOLLIN)]
receive(waits)
here = bound(socket.AF_INET, '127.0.0.1')
data = bound(socket.AF_INET, '')
data.sendto(b'early', here.getsockname())
receive(here)
port = data.getsockname()[1]
data.close()
data = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
data.bind(('10.9.0.2', port))
tell(data, b'10.9.0.2')
receive(data)
";

/// What comes for a UDP socket before anybody receives waits for that, as long as it isn't the kernel's.
fn datagrams(network: &Network) -> Outcome {
    tell_of(network, (RECEIVER, &[]), (SENDER, &[]))
}

/// A child receives by a socket that its parent has bound, and which the parent does nothing with.
fn datagrams_for_children(network: &Network) -> Outcome {
    tell_of(network, (RECEIVER, &["fork"]), (SENDER, &[]))
}
