//! Listening sockets that nobody waits on: who queues connections for them, and for whom.

use super::{APART_ONCE, cases_in, on_each_back_end};
use crate::network::Network;
use crate::site::PATIENCE;
use crate::{Case, Failure, Outcome};
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
