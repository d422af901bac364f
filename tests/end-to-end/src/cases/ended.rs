//! Programs that end without closing their sockets: killed, or become another program. Their peers hear of it, as from the
//! kernel's stack.

use super::{IN_PROGRAMS, cases_in, python, widely};
use crate::network::Network;
use crate::site::PATIENCE;
use crate::{Case, Failure, Outcome};
use rustix::process::Signal;
use skink_testbed::signal;

pub fn cases() -> Vec<Case> {
    let mut cases = widely("ended/killed", killed);
    cases.extend(widely("ended/became-another", became_another));
    cases.extend(cases_in(
        &IN_PROGRAMS,
        "ended/one-of-several",
        one_of_several,
    ));
    cases.extend(cases_in(&IN_PROGRAMS, "ended/many-at-once", many_at_once));
    cases.extend(cases_in(&IN_PROGRAMS, "ended/unread", unread));
    cases.extend(widely("ended/before-its-peer", before_its_peer));
    cases
}

/// Has a connection on which nothing happens, one whose peer takes its time with what was written, and one with bytes that it
/// doesn't read. Then it becomes a program without sockets, if it is told so by the first.
const SERVER: &str = "
import os, socket
listener = socket.create_server(('10.9.0.2', 9100))
print('listens', flush=True)
idle, slow, unread = (listener.accept()[0] for _ in range(3))
slow.setblocking(False)
sent = 0
try:
    while sent < 600000:
        sent += slow.send(bytes(600000 - sent))
except BlockingIOError:
    pass
unread.recv(1, socket.MSG_PEEK)
idle.sendall(f'{os.getpid()} {sent}\\n'.encode())
if idle.recv(4) == b'exec':
    os.execv('/bin/sleep', ['sleep', '1000'])
";

/// What it hears on each of them, once the server has ended.
const CLIENT: &str = "
import socket, sys
idle, slow, unread = socket.socket(), socket.socket(), socket.socket()
slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
for c in (idle, slow, unread):
    c.connect(('10.9.0.2', 9100))
unread.sendall(b'x')
pid, sent = idle.makefile().readline().split()
print(f'pid {pid}.', flush=True)
if len(sys.argv) > 1:
    idle.sendall(b'exec')
assert idle.recv(64) == b'', 'not closed'
got = 0
while True:
    data = slow.recv(65536)
    if not data:
        break
    got += len(data)
assert got == int(sent), f'{got} of {sent}'
try:
    raise SystemExit(f'not reset: {unread.recv(64)}')
except ConnectionResetError:
    pass
print('heard', flush=True)
";

fn killed(network: &Network) -> Outcome {
    let server = python::start(network, "server", SERVER, &[], "listens")?;
    let client = python::start_on_kernel(network, "client", CLIENT, &[], ".")?;
    signal(pid_in(&client.log())?, Signal::KILL)?;
    client.wait_until("it has heard of the end", || client.log().contains("heard"))?;
    // Whoever started the program isn't kept waiting for long.
    server.wait(PATIENCE)?;
    Ok(())
}

/// Has nothing but a connection with a byte that it doesn't read.
const UNREADER: &str = "
import os, socket, time
c, _ = socket.create_server(('10.9.0.2', 9100)).accept()
c.recv(1, socket.MSG_PEEK)
c.sendall(f'pid {os.getpid()}.'.encode())
time.sleep(1000)
";

const UNHEARD: &str = "
import socket
c = socket.create_connection(('10.9.0.2', 9100))
c.sendall(b'x')
print(c.recv(64).decode(), flush=True)
try:
    raise SystemExit(f'not reset: {c.recv(64)}')
except ConnectionResetError:
    print('heard', flush=True)
";

/// A peer that is to be told of a reset alone is told, though whoever tells it knows no neighbour yet.
fn unread(network: &Network) -> Outcome {
    let server = python::start(network, "server", UNREADER, &[], "has")?;
    let client = python::start_on_kernel(network, "client", UNHEARD, &[], "pid")?;
    signal(pid_in(&client.log())?, Signal::KILL)?;
    client.wait_until("it has heard of the end", || client.log().contains("heard"))?;
    server.wait(PATIENCE)?;
    Ok(())
}

/// Ends as it is told, after its peer has what it wrote.
const FIRST_TO_END: &str = "
import os, signal, socket, sys
listener = socket.create_server(('10.9.0.2', 9100))
print('listens', flush=True)
c = listener.accept()[0]
c.sendall(b'all')
if 'closes' in sys.argv:
    c.close()
elif 'killed' in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
";

/// Sends when it is told that the other side has gone.
const LAST_TO_SEND: &str = "
import os, signal, socket
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
c = socket.create_connection(('10.9.0.2', 9100), 20)
assert c.makefile().read() == 'all'
print(f'pid {os.getpid()}.', flush=True)
signal.sigwait([signal.SIGUSR1])
try:
    while True:
        c.sendall(bytes(1000))
except (BrokenPipeError, ConnectionResetError):
    print('heard', flush=True)
";

/// Who sends to a program that has ended is told so, and doesn't wait for a timer of minutes.
fn before_its_peer(network: &Network) -> Outcome {
    for how in ["closes", "ends", "killed"] {
        let server = python::start(network, "server", FIRST_TO_END, &[how], "listens")?;
        let client = python::start_on_kernel(network, "client", LAST_TO_SEND, &[], ".")?;
        server.wait(PATIENCE)?;
        signal(pid_in(&client.log())?, Signal::USR1)?;
        client.wait_until("it has heard of the end", || client.log().contains("heard"))?;
    }
    Ok(())
}

fn became_another(network: &Network) -> Outcome {
    let server = python::start(network, "server", SERVER, &[], "listens")?;
    let client = python::start_on_kernel(network, "client", CLIENT, &["exec"], ".")?;
    client.wait_until("it has heard of the end", || client.log().contains("heard"))?;
    signal(pid_in(&client.log())?, Signal::KILL)?;
    server.wait(PATIENCE)?;
    Ok(())
}

/// What a client printed.
fn pid_in(log: &str) -> Result<u32, Failure> {
    let pid = log
        .split("pid ")
        .nth(1)
        .and_then(|rest| rest.split('.').next());
    pid.and_then(|pid| pid.parse().ok())
        .ok_or_else(|| Failure::Wrong(format!("no process id in {log:?}")))
}

/// Two processes that tell whoever calls at their port who they are, as often as they are asked.
const WORKERS: &str = "
import os, signal, socket, threading
listener = socket.create_server(('10.9.0.2', 9100))
def answer(c):
    while c.recv(64):
        c.sendall(b'%d\\n' % os.getpid())
    c.close()
workers = []
for _ in range(2):
    if not (worker := os.fork()):
        while True:
            threading.Thread(target=answer, args=listener.accept()[:1]).start()
    workers.append(worker)
def stop(*_):
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    os._exit(0)
signal.signal(signal.SIGTERM, stop)
print('listens', flush=True)
while True:
    signal.pause()
";

/// Connections to both of them; then to the one that is left.
const CALLER: &str = "
import socket
def call():
    c = socket.create_connection(('10.9.0.2', 9100), 30)
    c.sendall(b'who?')
    return c, c.recv(64).strip()
calls = []
while len(set(who for _, who in calls)) < 2 or len(calls) < 8:
    calls.append(call())
dead = calls[0][1]
print(f'pid {dead.decode()}.', flush=True)
for c, who in calls:
    if who == dead:
        assert c.recv(64) == b''
for c, who in calls:
    if who != dead:
        c.sendall(b'who?')
        assert c.recv(64).strip() == who
for _ in range(8):
    assert call()[1] != dead
print('done', flush=True)
";

fn one_of_several(network: &Network) -> Outcome {
    let server = python::start(network, "server", WORKERS, &[], "listens")?;
    let caller = python::start_on_kernel(network, "caller", CALLER, &[], ".")?;
    signal(pid_in(&caller.log())?, Signal::KILL)?;
    caller.wait_until("the others go on", || caller.log().contains("done"))?;
    server.stop()?;
    Ok(())
}

/// A process for each of some ports; all of them are killed at once.
const MANY: &str = "
import os, signal, socket
workers = []
for port in range(9100, 9112):
    if not (worker := os.fork()):
        listener = socket.create_server(('10.9.0.2', port))
        c, _ = listener.accept()
        c.sendall(b'accepted')
        signal.pause()
    workers.append(worker)
def end(*_):
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
print('listens', flush=True)
while True:
    signal.pause()
";

/// A peer for each of them. (In a child that was forked off a socket listens once it accepts.)
const PEERS: &str = "
import socket
calls = []
for port in range(9100, 9112):
    while True:
        try:
            c = socket.create_connection(('10.9.0.2', port))
            break
        except ConnectionRefusedError:
            pass
    assert c.recv(64) == b'accepted'
    calls.append(c)
print('called', flush=True)
for c in calls:
    assert c.recv(64) == b''
print('heard', flush=True)
";

/// More than there are processes for that at a time.
fn many_at_once(network: &Network) -> Outcome {
    let server = python::start(network, "server", MANY, &[], "listens")?;
    let peers = python::start_on_kernel(network, "peers", PEERS, &[], "called")?;
    server.stop()?;
    peers.wait_until("all have heard", || peers.log().contains("heard"))?;
    Ok(())
}
