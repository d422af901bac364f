//! A socket that listens on every address listens in the kernel too, on the kernel's own addresses: `accept` takes from
//! both halves, whether it waits or not. So it is with datagrams, which may be sent either way as well.

use super::{datagrams, everywhere, python};
use crate::network::Network;
use crate::site::PATIENCE;
use crate::{Case, Failure, Outcome};
use skink_testbed::Process;

pub fn cases() -> Vec<Case> {
    let mut cases = everywhere("accept-from-both", both);
    cases.extend(everywhere("udp/both-halves", datagrams_of_both));
    cases
}

/// Accepts connections of its own over loopback, and others.
const SERVER: &str = "
import select, socket, threading
listener = socket.create_server(('', 7200))
print('listening', flush=True)

def call():
    with socket.create_connection(('127.0.0.1', 7200)) as own:
        assert own.recv(1) == b''

def accept():
    while True:
        try:
            connection, peer = listener.accept()
        except BlockingIOError:
            select.select([listener], [], [])
            continue
        print('from', 'itself' if peer[0] == '127.0.0.1' else 'others', flush=True)
        return connection

for blocking in [True, False]:
    listener.setblocking(blocking)
    # Others come again when theirs is closed.
    theirs = accept()
    threading.Thread(target=call).start()
    accept().close()
    theirs.close()
";

const CLIENT: &str = "
import socket, sys
for _ in range(2):
    with socket.create_connection((sys.argv[1], 7200), 20) as s:
        assert s.recv(1) == b''
";

/// They come in the order in which they were made.
fn both(network: &Network) -> Outcome {
    let server = python::start(network, "the server", SERVER, &[], "listening")?;
    python::finish_on_kernel(network, "the client", CLIENT, &[Network::SKINK[0]])?;
    let (status, log) = server.wait(PATIENCE)?;
    let from: Vec<&str> = log
        .lines()
        .filter_map(|it| it.strip_prefix("from "))
        .collect();
    if status.success() && from == ["others", "itself", "others", "itself"] {
        return Ok(());
    }
    Err(Failure::Wrong(format!("the server said {log:?}")))
}

/// Sends to loopback and to the other end by one socket, and receives from both, in all the ways of waiting.
const DATAGRAMS: &str = "
import select, socket, sys
there = (sys.argv[1], 5353)

# What the kernel's stack has on loopback.
local = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
local.bind(('127.0.0.1', 0))
local.settimeout(10)

def ask_local(s):
    s.sendto(b'here', local.getsockname())
    data, peer = local.recvfrom(9)
    assert (data, peer[1]) == (b'here', s.getsockname()[1]), (data, peer, s.getsockname())
    local.sendto(b'from here', peer)

def ask_other(s):
    s.sendto(b'from there', there)

def by_poll(s):
    poll = select.poll()
    poll.register(s, select.POLLIN)
    assert poll.poll(10000)
    return s.recvfrom(99)

def by_select(s):
    assert select.select([s], [], [], 10)[0]
    return s.recvfrom(99)

def by_epoll(s, edge=0):
    with select.epoll() as epoll:
        epoll.register(s, select.EPOLLIN | edge)
        assert epoll.poll(10)
        return s.recvfrom(99)

def by_waiting(s):
    return s.recvfrom(99)

ways = [by_waiting, by_poll, by_select, by_epoll, lambda s: by_epoll(s, select.EPOLLET)]
for first, second in [(ask_local, ask_other), (ask_other, ask_local)]:
    for bound in [False, True]:
        for way in ways:
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            if bound:
                s.bind(('', 0))
            for ask in [first, second, first]:
                ask(s)
                data, peer = way(s)
                expected = (b'from here', local.getsockname()) if ask is ask_local else (b'from there', there)
                assert (data, peer) == expected, (data, peer)
            s.close()

# A set that watches the socket all the while; room alone is no event of the kernel's half.
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setblocking(False)
epoll = select.epoll()
epoll.register(s, select.EPOLLIN)
for ask in [ask_other, ask_local, ask_local, ask_other]:
    ask(s)
    assert epoll.poll(10) == [(s.fileno(), select.EPOLLIN)]
    s.recvfrom(99)
    assert epoll.poll(0) == []

# What is connected hears its peer alone.
ask_local(s)
assert epoll.poll(10)
assert s.recv(99) == b'from here'
here = ('127.0.0.1', s.getsockname()[1])
s.connect(there)
local.sendto(b'not for it', here)
s.send(b'answer')
assert epoll.poll(10) == [(s.fileno(), select.EPOLLIN)]
assert s.recv(99) == b'answer'
assert epoll.poll(0) == []
import ctypes
nobody = (ctypes.c_char * 16)()
assert ctypes.CDLL(None).connect(s.fileno(), nobody, 16) == 0
assert epoll.poll(0) == []
ask_local(s)
assert epoll.poll(10)
assert s.recv(99) == b'from here'

# The JDK sets this on each socket; and what comes to a group comes by the kernel.
group = ('239.9.9.9', 5300)
loopback = socket.inet_aton('127.0.0.1')
java = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
java.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
java.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 1)
java.setsockopt(socket.IPPROTO_IP, 10, 5) # As name servers do: IP_MTU_DISCOVER, IP_PMTUDISC_OMIT.
java.bind(('::', 5300))
java.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group[0]) + loopback)
java.settimeout(10)
local.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, loopback)
for _ in range(2):
    java.sendto(b'from there', ('::ffff:' + there[0], there[1]))
    assert java.recv(99) == b'from there'
    local.sendto(b'to all', group)
    assert java.recv(99) == b'to all'
assert java.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS) == 1

# The kernel's, at last.
s.connect(local.getsockname())
assert s.getsockname()[1] == here[1]
s.send(b'here')
assert local.recvfrom(9) == (b'here', here)
local.sendto(b'heard', here)
assert epoll.poll(10)
assert s.recv(99) == b'heard'
print('both', flush=True)
";

fn datagrams_of_both(network: &Network) -> Outcome {
    let other = Network::KERNEL[0];
    let mut server = network.kernel.command("python3");
    server.args(["-c", datagrams::SERVER, other]);
    let server = Process::spawn(server, "the echo server")?;
    server.wait_until("it is bound", || server.log().contains("bound"))?;
    let client = network.skink_run("python3", ["-c", DATAGRAMS, other])?;
    Network::finish(client, "the program with both halves", PATIENCE)?;
    Ok(())
}
