//! Sockets passed over Unix sockets, from one program on Skink to another.

use super::{APART, cases_in, python, widely};
use crate::network::Network;
use crate::site::PATIENCE;
use crate::{Case, Failure, Outcome};
use skink_testbed::Scratch;

pub fn cases() -> Vec<Case> {
    let mut cases = cases_in(&APART, "passing/front-and-back", front_and_back);
    cases.extend(widely("passing/listeners", listeners));
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
