//! Processes that share a listening socket: who gets what waits there.

use super::workers::counters;
use super::{IN_PROGRAMS, cases_in, on_each_back_end};
use crate::network::Network;
use crate::site::PATIENCE;
use crate::{Case, Failure, Outcome, Topology};
use skink_testbed::Process;

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
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
    cases.extend(on_each_back_end(
        "listening/closed-by-the-only-one",
        closed_by_the_only_one,
    ));
    cases.extend(on_each_back_end("listening/bound-anew", bound_anew));
    cases.extend(on_each_back_end(
        "listening/after-the-only-one",
        after_the_only_one,
    ));
    cases.extend(on_each_back_end(
        "listening/after-the-only-one-was-killed",
        after_the_only_one_was_killed,
    ));
    cases.extend(on_each_back_end(
        "listening/all-are-replaced",
        all_are_replaced,
    ));
    cases.extend(cases_in(
        &IN_PROGRAMS,
        "listening/requests-at-a-dead-one",
        requests_at_a_dead_one,
    ));
    cases
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

/// Each child accepts, closes the listening socket, and serves on. The parent, which never accepts, goes on to have it until the second
/// child has closed it.
const ONE_AFTER_ANOTHER: &str = "
import os, socket
listener = socket.create_server(('10.9.0.2', 9402))
def child(count):
    closed, close = os.pipe()
    asked, ask = os.pipe()
    pid = os.fork()
    if pid == 0:
        connections = [listener.accept()[0] for _ in range(count)]
        listener.close()
        os.write(close, b'.')
        connections[0].sendall(b'closed')
        assert connections[0].recv(64) == b'next'
        os.write(ask, b'.')
        for connection in connections:
            connection.sendall(b'bye')
            assert connection.recv(64) == b''
        os._exit(0)
    os.read(closed, 1)
    return pid, asked
print('ready', flush=True)
first, asked = child(1)
os.read(asked, 1)
second, asked = child(3)
listener.close()
os.read(asked, 1)
for pid in first, second:
    assert os.waitpid(pid, 0)[1] == 0
print('done', flush=True)
";

/// What the clients of those have in common.
const CALLER: &str = "
import socket
def call(port=9402):
    return socket.create_connection(('10.9.0.2', port), 20)
def wait_until_refused():
    while True:
        try:
            with call() as unheard:
                assert unheard.recv(64) == b''
        except ConnectionRefusedError:
            return
        # When the socket was closed, which may be before the call has returned.
        except ConnectionResetError:
            pass
";

/// Calls while nobody accepts, and is served by who begins to. Then nobody has the socket any more, and it is refused.
const CALLS_BETWEEN: &str = "
first = call()
assert first.recv(64) == b'closed'
others = [call() for _ in range(3)]
first.sendall(b'next')
assert first.recv(64) == b'bye'
assert others[0].recv(64) == b'closed'
wait_until_refused()
others[0].sendall(b'next')
for connection in others:
    assert connection.recv(64) == b'bye'
    connection.close()
first.close()
";

/// The only process that accepted has closed its listening socket, and lives on: who calls waits for the next one that accepts, as
/// long as somebody has the socket.
fn closed_by_the_only_one(network: &Network) -> Outcome {
    serve_and_call(
        network,
        &[ONE_AFTER_ANOTHER],
        &[CALLER, CALLS_BETWEEN].concat(),
    )
}

/// Closes its listening socket, which a child had too, and binds the same port again.
const BINDS_ANEW: &str = "
import os, socket
def listen():
    listener = socket.create_server(('10.9.0.2', 9402))
    listener.settimeout(20)
    return listener
def serve(listener, word):
    connection, _ = listener.accept()
    connection.sendall(word)
    connection.close()
listener = listen()
print('ready', flush=True)
serve(listener, b'first')
if os.fork() == 0:
    os._exit(0)
os.wait()
listener.close()
serve(listen(), b'second')
print('done', flush=True)
";

/// Calls until it is served for the second time.
const CALLS_TWICE: &str = "
import socket
words = []
while words[-1:] != [b'second']:
    try:
        with socket.create_connection(('10.9.0.2', 9402), 20) as connection:
            words.append(connection.recv(64))
    except (ConnectionRefusedError, ConnectionResetError):
        pass
assert words[0] == b'first', words
";

/// What is kept for others is in nobody's way.
fn bound_anew(network: &Network) -> Outcome {
    serve_and_call(network, &[BINDS_ANEW], CALLS_TWICE)
}

/// Each child accepts, and ends. Another one, which has a port of its own, tells the parent when to go on: that never accepts, and has
/// the listening socket until the second child has ended.
const ONE_AT_LAST: &str = "
import os, select, signal, socket, sys
asked, ask = os.pipe()
messenger = os.fork()
if messenger == 0:
    control = socket.create_server(('10.9.0.2', 9403))
    os.write(ask, b'.')
    connection, _ = control.accept()
    while word := connection.recv(1):
        os.write(ask, word)
    os._exit(0)
os.read(asked, 1)
listener = socket.create_server(('10.9.0.2', 9402))
def serve(count, word=None):
    pid = os.fork()
    if pid == 0:
        select.select([listener], [], [], 0)
        if word:
            print(word, flush=True)
        for connection in [listener.accept()[0] for _ in range(count)]:
            connection.sendall(b'served')
        if 'killed' in sys.argv:
            os.kill(os.getpid(), signal.SIGKILL)
        # Which closes all sockets a moment before.
        sys.exit(0)
    os.waitpid(pid, 0)
serve(1, 'ready')
os.read(asked, 1)
serve(3)
listener.close()
os.read(asked, 1)
os.waitpid(messenger, 0)
print('done', flush=True)
";

/// Calls when the first child has ended, and is served by the second one. Then nobody has the socket, and it is refused.
const CALLS_AFTERWARDS: &str = "
control = call(9403)
def is_served(connection):
    with connection:
        return connection.recv(64) == b'served' and connection.recv(64) == b''
assert is_served(call())
others = [call() for _ in range(3)]
control.sendall(b'.')
assert all([is_served(connection) for connection in others])
wait_until_refused()
control.sendall(b'.')
control.close()
";

/// The only process that accepted has ended: who calls waits for the next one that does, as long as somebody has the socket.
fn after_the_only_one(network: &Network) -> Outcome {
    serve_and_call(
        network,
        &[ONE_AT_LAST],
        &[CALLER, CALLS_AFTERWARDS].concat(),
    )
}

/// The same after it was killed.
fn after_the_only_one_was_killed(network: &Network) -> Outcome {
    serve_and_call(
        network,
        &[ONE_AT_LAST, "killed"],
        &[CALLER, CALLS_AFTERWARDS].concat(),
    )
}

/// Replaces all its children at once, again and again, and tells those that are left to end each time one has ended, as gunicorn does.
const REPLACES: &str = "
import os, select, signal, socket, sys
listener = socket.create_server(('10.9.0.2', 9402), backlog=128)
listener.setblocking(False)
def work(begun):
    told, tell = os.pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.write(tell, b'.'))
    select.select([listener], [], [], 0)
    os.write(begun, b'.')
    while told not in select.select([listener, told], [], [])[0]:
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            continue
        connection.settimeout(20)
        connection.sendall(connection.recv(64))
        connection.close()
    listener.close()
    sys.exit(0)
def begin():
    begun, begin = os.pipe()
    children = []
    for _ in range(3):
        children.append(os.fork())
        if children[-1] == 0:
            work(begin)
    return children, begun
children, begun = begin()
for _ in range(3):
    os.read(begun, 1)
print('ready', flush=True)
for _ in range(10):
    ending = set(children)
    children, begun = begin()
    while ending:
        for child in ending:
            os.kill(child, signal.SIGTERM)
        ending.remove(os.wait()[0])
    for _ in range(3):
        os.read(begun, 1)
print('done', flush=True)
signal.pause()
";

/// Asks as long as it is answered, four at a time.
const ASKS: &str = "
import socket, threading
failed = []
def ask():
    try:
        for turn in range(400):
            with socket.create_connection(('10.9.0.2', 9402), 20) as connection:
                connection.sendall(b'%d' % turn)
                assert connection.recv(64) == b'%d' % turn
    except BaseException as failure:
        failed.append(failure)
threads = [threading.Thread(target=ask) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failed, failed
";

/// Nobody is refused or reset while those who accept change, also when there is none for a while, and when some are killed while they
/// give away what waits.
fn all_are_replaced(network: &Network) -> Outcome {
    serve_and_call(network, &[REPLACES], ASKS)
}

/// The first child takes nothing any more, and is killed once the second one has got a connection.
const ONE_DIES: &str = "
import os, select, signal, socket
listener = socket.create_server(('10.9.0.2', 9402))
def child(work):
    begun, begin = os.pipe()
    pid = os.fork()
    if pid == 0:
        select.select([listener], [], [], 0)
        os.write(begin, b'.')
        work()
    os.read(begun, 1)
    return pid
heard, hear = os.pipe()
def serve():
    listener.setblocking(False)
    for _ in range(16):
        while True:
            try:
                connection, _ = listener.accept()
                break
            except BlockingIOError:
                # Who waits for connections would get all of them.
                select.select([], [], [], 0.001)
        connection.sendall(b'served')
        connection.close()
        os.write(hear, b'.')
    os._exit(0)
first = child(signal.pause)
second = child(serve)
os.kill(first, signal.SIGSTOP)
os.waitpid(first, os.WUNTRACED)
print('ready', flush=True)
os.read(heard, 1)
os.kill(first, signal.SIGKILL)
os.waitpid(second, 0)
print('done', flush=True)
";

/// None of the 16 has to call again, which Linux does after a second.
const CALL_ONCE: &str = "
import socket, struct
callers = [socket.socket() for _ in range(16)]
for caller in callers:
    caller.setblocking(False)
    caller.connect_ex(('10.9.0.2', 9402))
again = 0
for caller in callers:
    caller.settimeout(20)
    assert caller.recv(64) == b'served'
    information = caller.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    again += struct.unpack_from('I', information, 100)[0]
assert again == 0, again
";

/// Requests that lie unseen in the queue of a process that dies are answered by another one.
fn requests_at_a_dead_one(network: &Network) -> Outcome {
    serve_and_call(network, &[ONE_DIES], CALL_ONCE)
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
