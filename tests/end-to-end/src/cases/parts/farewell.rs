//! What peers hear of a stack that stops.
use crate::cases::python;
use crate::network::Network;
use crate::site::PATIENCE;
use crate::{Failure, Outcome};
use rustix::process::Signal;
use skink_testbed::{Process, signal};

/// Does for each connection what its first word says. When it hears of the stack's end it says what it gets by a socket that it has
/// only bound before.
const SERVER: &str = "
import errno, socket, threading
bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
bound.bind(('10.9.0.2', 0))
bound.settimeout(10)
listener = socket.create_server(('10.9.0.2', 9100), backlog=64)
def serve(c):
    try:
        word = c.recv(5)
        c.sendall(b'-')
        if word == b'flood':
            c.sendall(bytes(1 << 26))
        if word == b'greet':
            c.sendall(b'hello')
        while c.recv(1 << 16):
            pass
    except OSError:
        pass
print('ready', flush=True)
try:
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
except OSError:
    pass
try:
    bound.recv(64)
except OSError as error:
    print(f'bound: {errno.errorcode.get(error.errno)}', flush=True)
threading.Event().wait()
";

/// Says how its connections end, each of which must within seconds.
const CLIENT: &str = "
import select, socket
def ask(word):
    c = socket.create_connection(('10.9.0.2', 9100))
    c.settimeout(5)
    c.sendall(word)
    assert c.recv(1) == b'-'
    return c
quiet = [ask(b'quiet') for _ in range(40)]
greeted, flooded, giving = ask(b'greet'), [ask(b'flood') for _ in range(2)], ask(b'takes')
print('connected', flush=True)
try:
    while True:
        giving.sendall(bytes(1 << 16))
except (ConnectionResetError, BrokenPipeError):
    print('who gives: reset', flush=True)
print('quiet:', sum(c.recv(1) == b'' for c in quiet), flush=True)
print('greeted:', greeted.recv(64) + greeted.recv(64), flush=True)
for c in flooded:
    poll = select.poll()
    poll.register(c, 0)
    print('flooded:', [what & select.POLLERR != 0 for _, what in poll.poll(5000)], flush=True)
";

const HEARD: &str = "connected
who gives: reset
quiet: 40
greeted: b'hello'
flooded: [True]
flooded: [True]
";

/// Connections end as those of a program that ends; one that has still something to deliver, to a peer that doesn't
/// take it, is reset.
pub fn told(network: &Network) -> Outcome {
    let server = python::start(network, "a server", SERVER, &[], "ready")?;
    let mut command = network.kernel.command("python3");
    command.args(["-c", CLIENT]);
    let client = Process::spawn(command, "a client")?;
    client.wait_until("it is connected", || client.log().contains("connected"))?;
    signal(network.supervisor()?.unwrap_or(0), Signal::TERM)?;
    let (_, heard) = client.wait(PATIENCE)?;
    server.wait_until("it has received", || {
        server.log().contains("bound: ENETDOWN")
    })?;
    server.stop()?;
    match heard == HEARD {
        true => Ok(()),
        false => Err(Failure::Wrong(heard)),
    }
}
