//! What few programs do, and some do: each was found with one that didn't work.

use super::{APART, APART_ONCE, IN_PROGRAMS, cases_in, in_each_topology, python};
use crate::network::Network;
use crate::site::PATIENCE;
use crate::{BackEnd, Case, Failure, Outcome, Topology};
use rustix::process::Signal;
use skink_testbed::signal;

pub fn cases() -> Vec<Case> {
    let mut cases = in_each_topology("seldom/calls", calls);
    cases.extend(in_each_topology("seldom/any-port", any_port));
    cases.extend(in_each_topology("seldom/fast-open", fast_open));
    cases.extend(in_each_topology("seldom/whole", whole));
    cases.extend(cases_in(&APART_ONCE, "seldom/processes", processes));
    let library = [(Topology::Library, BackEnd::Packet)];
    cases.extend(cases_in(&library, "seldom/shared", shared));
    let on_interfaces = [&IN_PROGRAMS[..2], &APART].concat();
    cases.extend(cases_in(&on_interfaces, "seldom/smaller-mtu", smaller_mtu));
    cases
}

/// Asks and answers until the other end has closed.
const CLIENT: &str = "
import socket, sys
for port in sys.argv[2:]:
    with socket.create_connection((sys.argv[1], int(port)), 20) as s:
        s.sendall(b'?')
        got = 0
        while part := s.recv(65536):
            got += len(part)
        print(port, got)
";

/// - nuttcp waits by `TCP_INFO` until all that it has sent is acknowledged, and calls nothing else meanwhile.
/// - sockperf sends on TCP to the address that `recvfrom` hasn't filled in.
/// - vsftpd wants urgent data inline, on a connection that it has accepted.
/// - nghttpd looks for addresses of the families that the machine has, and named for its address among the interfaces'. Java does by
///   `ioctl`.
/// - Seastar's programs poll by `io_submit`, unless that is refused when they try it on an eventfd.
/// - dovecot's processes bound their address space. (`prlimit` may be told to put the old bound where the new one is.)
const CALLS: &str = "
import ctypes, errno, fcntl, os, platform, resource, select, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
address = sys.argv[1]
bound = (512 << 20, 1 << 30)
both = (ctypes.c_ulong * 2)(*bound)
assert libc.prlimit(0, resource.RLIMIT_AS, both, both) == 0 and tuple(both) != bound
assert resource.getrlimit(resource.RLIMIT_AS) == bound
try:
    bytes(600 << 20)
    sys.exit('more memory than was allowed')
except MemoryError:
    pass
found = socket.getaddrinfo(address, 7000, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
assert [name for *_, name in found] == [(address, 7000)], found
def addresses():
    first = ctypes.c_void_p()
    assert libc.getifaddrs(ctypes.byref(first)) == 0
    at = first.value
    while at:
        at, _, _, name = struct.unpack('PPQP', ctypes.string_at(at, 32))
        if name and ctypes.string_at(name, 2) == struct.pack('H', socket.AF_INET):
            yield socket.inet_ntoa(ctypes.string_at(name + 4, 4))
    libc.freeifaddrs(first)
assert address in addresses()
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    room = ctypes.create_string_buffer(4096)
    def listed(length, at):
        found = fcntl.ioctl(s, 0x8912, struct.pack('iP', length, at))
        return room[:struct.unpack_from('i', found)[0]]
    entries = listed(4096, ctypes.addressof(room))
    assert fcntl.ioctl(s, 0x8912, struct.pack('iP', 0, 0))[:4] == struct.pack('i', len(entries))
    mine = [entries[at:at + 40] for at in range(0, len(entries), 40) if socket.inet_ntoa(entries[at + 20:at + 24]) == address]
    assert len(mine) == 1, entries
    assert socket.inet_aton(address) not in listed(len(entries) - 1, ctypes.addressof(room))
    for named in mine[0], mine[0][:16] + bytes(24):
        told = [socket.inet_ntoa(fcntl.ioctl(s, request, named)[20:24]) for request in (0x8915, 0x891b, 0x8919)]
        assert told == [address, '255.255.255.0', address[:-1] + '255'], told
    try:
        sys.exit(fcntl.ioctl(s, 0x8915, b'nothing'.ljust(40, b'\\0')))
    except OSError as error:
        assert error.errno == errno.ENODEV
    # What is for all has to be asked for.
    everybody = address[:-1] + '255', 7000
    for call in lambda: s.sendto(b'?', everybody), lambda: s.connect(everybody):
        try:
            sys.exit(call())
        except PermissionError:
            pass
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    assert s.sendto(b'?', everybody) == 1
listener = socket.create_server((address, 7000))
print('listening', flush=True)
s, _ = listener.accept()
garbage = ctypes.create_string_buffer(b'tU' * 8)
assert libc.recvfrom(s.fileno(), ctypes.create_string_buffer(1), 1, 0, garbage, ctypes.byref(ctypes.c_uint(16))) == 1
assert libc.sendto(s.fileno(), b'!', 1, 0, garbage, 16) == 1, ctypes.get_errno()
for level, option, value in [
    (socket.SOL_SOCKET, socket.SO_OOBINLINE, 1),
    (socket.SOL_SOCKET, socket.SO_PRIORITY, 6),
]:
    s.setsockopt(level, option, value)
    assert s.getsockopt(level, option) == value, option
# Who has no room for anything waits all the same, or would.
assert libc.recv(s.fileno(), None, 0, socket.MSG_DONTWAIT) == -1 and ctypes.get_errno() == errno.EAGAIN
setup, submit = (206, 209) if platform.machine() == 'x86_64' else (0, 2)
context = ctypes.c_ulong()
assert libc.syscall(setup, 4, ctypes.byref(context)) == 0
def request(operation, fd, argument):
    return ctypes.create_string_buffer(struct.pack('QQHhiQQqQII', 0, 0, operation, 0, fd, argument, 1, 0, 0, 0, 0))
def reading(fd):
    return request(0, fd, ctypes.addressof(garbage))
def submitted(*requests):
    addresses = (ctypes.c_void_p * len(requests))(*map(ctypes.addressof, requests))
    taken = libc.syscall(submit, context, ctypes.c_long(len(requests)), addresses)
    return taken if taken >= 0 else errno.errorcode[ctypes.get_errno()]
file = os.open('/dev/zero', os.O_RDONLY)
assert submitted(reading(file), reading(file)) == 2
assert submitted(reading(file), reading(s.fileno()), reading(file)) == 1
assert submitted(reading(s.fileno())) == submitted(request(5, file, select.POLLIN)) == 'EINVAL'
# DTLS asks how large its datagrams may be (IP_MTU), sshd whether there are options.
assert s.getsockopt(socket.IPPROTO_IP, 14) == 1500
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as u:
    u.bind((address, 0))
    try:
        sys.exit(u.getsockopt(socket.IPPROTO_IP, 14))
    except OSError as error:
        assert error.errno == errno.ENOTCONN
    u.connect((s.getpeername()[0], 7009))
    assert u.getsockopt(socket.IPPROTO_IP, 14) == 1500
# IP_OPTIONS, IP_MTU_DISCOVER, SO_COOKIE.
assert s.getsockopt(socket.IPPROTO_IP, 4, 40) == b'' and s.getsockopt(socket.IPPROTO_IP, 10) == 1
assert s.getsockopt(socket.SOL_SOCKET, 57, 8) != listener.getsockopt(socket.SOL_SOCKET, 57, 8)
# No device at all, as trio says it.
s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, None, 0)
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b'cubic')
assert s.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b'\\0') == b'cubic'
# Tor asks how much isn't sent yet (SIOCOUTQNSD).
s.send(b'?', socket.MSG_MORE)
assert fcntl.ioctl(s, 0x894b, bytes(4)) == struct.pack('i', 1)
s.sendall(bytes(199_999))
def info(offset):
    return struct.unpack_from('I', s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), offset)[0]
for attempt in range(20_000):
    if info(24) == 0:
        break
    select.select([], [], [], 0.001)
assert info(24) == 0, 'not all is acknowledged'
assert fcntl.ioctl(s, 0x894b, bytes(4)) == bytes(4)
# 1500 bytes less the headers, and timestamps.
assert info(16) == 1448 == s.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG), info(16)
s.close()
print('done', flush=True)
";

/// What QUIC sends mustn't be fragmented (RFC 9000 section 14): IP_MTU_DISCOVER, before `bind` or behind it.
const WHOLE: &str = "
import errno, socket, sys
address, peer = sys.argv[1:3]
for mode, before in (2, True), (3, True), (2, False), (1, True):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        if before:
            s.setsockopt(socket.IPPROTO_IP, 10, mode)
        s.bind((address, 0))
        s.setsockopt(socket.IPPROTO_IP, 10, mode)
        assert s.getsockopt(socket.IPPROTO_IP, 10) == mode
        try:
            assert s.sendto(bytes(1473), (peer, 7009)) == 1473 and mode == 1
        except OSError as error:
            assert error.errno == errno.EMSGSIZE and mode > 1, error
        assert s.sendto(bytes(1472), (peer, 7009)) == 1472
        # It was Skink's.
        assert s.getsockname()[0] == address
print('sent', flush=True)
";

/// Prints the length of each fragment that comes from `argv[1]`, and its flags, until there are six.
const FRAGMENTS: &str = "
import socket, struct, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x800))
s.bind((next(name for _, name in socket.if_nameindex() if name != 'lo'), 0))
print('listening', flush=True)
seen = []
while len(seen) < 6:
    packet = s.recv(65536)
    if packet[9] == 17 and socket.inet_ntoa(packet[12:16]) == sys.argv[1]:
        length, _, flags = struct.unpack_from('>HHH', packet, 2)
        seen.append((length, flags >> 13))
print(seen, flush=True)
";

fn whole(network: &Network) -> Outcome {
    let (own, peer) = (Network::SKINK[0], Network::KERNEL[0]);
    let seen = python::start_on_kernel(network, "the wire", FRAGMENTS, &[own], "listening")?;
    let program = network.skink_run("python3", ["-c", WHOLE, own, peer])?;
    Network::finish(program, "the sender", PATIENCE)?;
    seen.wait_until("it has seen all", || seen.log().contains(']'))?;
    // DF, three times, and then what may be fragmented.
    let expected = "[(1500, 2), (1500, 2), (1500, 2), (1500, 1), (21, 0), (1500, 0)]";
    match seen.log().contains(expected) {
        true => Ok(()),
        false => Err(Failure::Wrong(format!("this came: {}", seen.log()))),
    }
}

fn calls(network: &Network) -> Outcome {
    let address = Network::SKINK[0];
    let server = python::start(network, "the server", CALLS, &[address], "listening")?;
    let arguments = [address, "7000"];
    let answer = python::finish_on_kernel(network, "the client", CLIENT, &arguments)?;
    server.wait_until("it has seen all acknowledged", || {
        server.log().contains("done")
    })?;
    match answer.contains("7000 200001") {
        true => Ok(()),
        false => Err(Failure::Wrong(format!("the client got {answer}"))),
    }
}

/// Tcl's clients, and those of Python with a source address, bind to any port before they connect. Of those that have had a
/// connection to the same peer in the last minute none is free. Nor are, for who receives datagrams there, those of sockets that only send.
const ANY_PORT: &str = "
import resource, socket, sys
own, peer = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, 2048))
def datagrams(count, *end):
    for at in range(count):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        if end:
            s.bind((end[at % len(end)], 0))
            told = s.getsockname()
        s.sendto(b'?', (peer, 7009))
        assert not end or s.getsockname() == told
        yield s
senders = list(datagrams(700))
receivers = list(datagrams(140, '', own))
for attempt in range(80):
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.bind(('::', 0))
    s.sendto(b'?', ('::ffff:' + peer, 7009))
    receivers.append(s)
for s in senders + receivers:
    s.close()
# While no port is in use towards the peer: who asks has the port that he was told.
with socket.socket() as s:
    s.bind((own, 0))
    told = s.getsockname()
    s.connect((peer, 7009))
    assert s.getsockname() == told
for attempt in range(400):
    with socket.socket() as s:
        s.bind((own if attempt % 2 else '', 0))
        s.connect((peer, 7009))
        assert s.getsockname()[0] == own
        s.shutdown(socket.SHUT_WR)
        assert s.recv(1) == b''
print('done')
";

/// Lets the other end close first.
const CLOSING: &str = "
import socket, sys
listener = socket.create_server((sys.argv[1], 7009), backlog=100)
print('listening', flush=True)
while True:
    c, _ = listener.accept()
    with c:
        c.recv(1)
";

fn any_port(network: &Network) -> Outcome {
    client_of_closing(network, ANY_PORT, &[Network::SKINK[0]])
}

/// A client that is told `arguments`, and the address of a peer.
fn client_of_closing(network: &Network, client: &str, arguments: &[&str]) -> Outcome {
    let peer = Network::KERNEL[0];
    let closing = python::start_on_kernel(network, "the peer", CLOSING, &[peer], "listening")?;
    let all = [&["-c", client], arguments, &[peer]].concat();
    let program = network.skink_run("python3", all)?;
    let said = Network::finish(program, "the client", PATIENCE)?;
    drop(closing);
    match said.ends_with("done\n") {
        true => Ok(()),
        false => Err(Failure::Wrong(format!("it said {said}"))),
    }
}

/// What Netty asks `/proc/sys/net/ipv4/tcp_fastopen` about: data with the request to connect. Who was refused isn't connected, and may try
/// again.
const FAST_OPEN: &str = "
import errno, select, socket, sys
peer = sys.argv[1]
def failure(of, *arguments):
    try:
        of(*arguments)
    except OSError as error:
        return error.errno
with socket.socket() as s:
    assert failure(s.sendto, b'?', socket.MSG_FASTOPEN, (peer, 7008)) == errno.ECONNREFUSED
    assert failure(s.recv, 1) == errno.ENOTCONN
    assert failure(s.getpeername) == errno.ENOTCONN
    assert failure(s.send, b'?', socket.MSG_FASTOPEN) == errno.EINVAL
    assert s.sendto(b'?', socket.MSG_FASTOPEN, (peer, 7009)) == 1
    assert failure(s.sendto, b'?', socket.MSG_FASTOPEN, (peer, 7009)) == errno.EISCONN
    assert failure(s.send, b'?', socket.MSG_FASTOPEN) == errno.EISCONN
    assert s.recv(1) == b''
with socket.socket() as s:
    at_once = socket.MSG_FASTOPEN | socket.MSG_DONTWAIT
    assert failure(s.sendto, b'?', at_once, (peer, 7009)) == errno.EINPROGRESS
    select.select([], [s], [])
    assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
with socket.socket() as s:
    s.setblocking(False)
    assert failure(s.connect, (peer, 7008)) == errno.EINPROGRESS
    select.select([], [s], [])
    assert failure(s.connect, (peer, 7008)) == errno.ECONNREFUSED
    assert failure(s.recv, 1) == errno.ENOTCONN
with socket.socket() as s:
    s.setblocking(False)
    assert failure(s.sendto, b'?', socket.MSG_FASTOPEN, (peer, 7009)) == errno.EINPROGRESS
    select.select([], [s], [])
    assert s.sendto(b'?', socket.MSG_FASTOPEN, (peer, 7009)) == 1
    select.select([s], [], [])
    assert s.recv(1) == b''
print('done')
";

fn fast_open(network: &Network) -> Outcome {
    client_of_closing(network, FAST_OPEN, &[])
}

/// - smbd's children leave its epoll set alone, which mustn't wake it for what comes for them; nor is a set left that the other
///   one takes the number of.
/// - vsftpd forks by the system call `clone`, and its child answers.
/// - Node's `cluster` binds in one process, and listens in others that it passes the socket to; uvicorn does so in programs that it
///   starts with the socket, and servers that fork, in their children. A process that is bound and has forked may still connect,
///   and try again, and is told what a socket answers that does neither yet.
/// - Puma starts itself again by `exec`, with a socket that it has accepted on, and leaves that to its children then.
/// - Dante begins to connect in one process, and passes the socket on to another one, which waits until it is connected (the
///   attempt may fail as well, and the process have been forked).
const PROCESSES: &str = "
import ctypes, errno, os, platform, select, signal, socket, subprocess, sys
libc = ctypes.CDLL(None)
WORKER = '''
import socket, sys
with socket.socket(fileno=int(sys.argv[1])) as own:
    own.listen()
    print('listening', flush=True)
    c, _ = own.accept()
with c:
    assert c.recv(1) == b'?'
    c.sendall(b'program')
'''
with socket.socket() as bound:
    bound.bind((sys.argv[1], 7002))
    fd = bound.fileno()
    command = [sys.executable, '-c', WORKER, str(fd)]
    programs = [subprocess.Popen(command, pass_fds=[fd], stdout=subprocess.PIPE) for _ in range(2)]
AGAIN = '''
import os, socket, sys
def answer():
    c, _ = listener.accept()
    assert c.recv(1) == b'?'
    c.sendall(b'again')
    c.close()
if len(sys.argv) == 3:
    listener = socket.create_server((sys.argv[2], 7008))
    print('listening', flush=True)
    answer()
    os.set_inheritable(listener.fileno(), True)
    os.execv(sys.executable, [sys.executable, '-c', sys.argv[1], sys.argv[1], sys.argv[2], str(listener.fileno())])
listener = socket.socket(fileno=int(sys.argv[3]))
if not os.fork():
    answer()
    os._exit(0)
assert os.wait()[1] == 0
'''
command = [sys.executable, '-c', AGAIN, AGAIN, sys.argv[1]]
programs.append(subprocess.Popen(command, stdout=subprocess.PIPE))
for program in programs:
    assert program.stdout.readline() == b'listening\\n'
out = socket.socket()
out.bind((sys.argv[1], 7003))
twice = [socket.socket() for _ in range(2)]
for s in twice:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((sys.argv[1], 7007))
near, far = socket.socketpair()
if not os.fork():
    near.close()
    far.recv(1)
    os._exit(0)
far.close()
def fails(error, call, *arguments):
    try:
        call(*arguments)
    except OSError as raised:
        assert raised.errno == error, raised
    else:
        raise AssertionError(f'{call} succeeded')
poll = select.poll()
poll.register(out, select.POLLIN | select.POLLOUT)
assert poll.poll(0) == [(out.fileno(), select.POLLOUT | select.POLLHUP)]
fails(errno.ENOTCONN, out.shutdown, socket.SHUT_RDWR)
for _ in range(2):
    fails(errno.ECONNREFUSED, out.connect, (sys.argv[2], 7006))
twice[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b'reno')
twice[0].listen()
fails(errno.EADDRINUSE, twice[1].listen)
twice[0].close()
near.close()
os.wait()
out.connect((sys.argv[2], 7004))
assert out.recv(1) == b'.'
out.close()
def attempt(port):
    while True:
        s = socket.socket()
        s.setblocking(False)
        # (The answer may be there at once.)
        if s.connect_ex((sys.argv[2], port)) == errno.EINPROGRESS:
            return s
        s.close()
def decided(s):
    poll = select.poll()
    poll.register(s, select.POLLOUT)
    assert poll.poll(10_000), 'nothing is known of an attempt to connect'
def outcome(s):
    decided(s)
    return s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
for port, expected in (7004, 0), (7006, errno.ECONNREFUSED):
    near, far = socket.socketpair()
    s = attempt(port)
    socket.send_fds(near, [b'.'], [s.fileno()])
    if not os.fork():
        decided(s)
        os._exit(0)
    decided(s)
    assert os.wait()[1] == 0
    s.close()
    _, [fd], _, _ = socket.recv_fds(far, 1, 1)
    with socket.socket(fileno=fd) as s:
        assert outcome(s) == expected, 'passed'
    s = attempt(port)
    if not os.fork():
        assert outcome(s) == expected, 'forked'
        os._exit(0)
    assert os.wait()[1] == 0
    s.close()
bound = socket.socket()
bound.bind((sys.argv[1], 7005))
ready, tell = os.pipe()
children = []
for _ in range(2):
    if not (child := os.fork()):
        bound.listen()
        os.write(tell, b'.')
        c, _ = bound.accept()
        bound.close()
        assert c.recv(1) == b'?'
        c.sendall(b'forked')
        c.close()
        os._exit(0)
    children.append(child)
bound.close()
assert [os.read(ready, 1) for _ in children] == [b'.', b'.']
listener = socket.create_server((sys.argv[1], 7000))
epoll = select.epoll()
epoll.register(listener, select.EPOLLIN)
epoll.poll(0)
def members():
    with open(f'/proc/self/fdinfo/{epoll.fileno()}') as info:
        return info.read().count('tfd')
before = members()
near, far = socket.socketpair()
if not os.fork():
    near.close()
    for step in lambda: None, lambda: epoll.poll(0), epoll.close:
        step()
        far.send(b'.')
        far.recv(1)
    os._exit(0)
far.close()
assert near.recv(1) == b'.' and members() == before, 'the child has members in the set of its parent'
near.send(b'.')
assert near.recv(1) == b'.'
near.send(b'.')
assert near.recv(1) == b'.' and members() == before, 'the child has left some there'
near.send(b'.')
os.wait()
old = select.epoll()
old.register(listener, select.EPOLLIN)
old.poll(0)
os.dup2(epoll.fileno(), old.fileno())
assert members() == before, 'the set that stays has lost some'
old.close()
near, far = socket.socketpair()
if not os.fork():
    near.close()
    far.recv(1)
    os._exit(0 if members() == before - 1 else 1)
os.closerange(epoll.fileno(), epoll.fileno() + 1)
far.close()
near.close()
assert os.wait()[1] == 0, 'the parent has left some there'
bound = socket.socket()
bound.bind((sys.argv[1], 7001))
near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
workers = []
for _ in range(2):
    if not (worker := os.fork()):
        bound.close()
        _, [fd], _, _ = socket.recv_fds(far, 1, 1)
        with socket.socket(fileno=fd) as own:
            own.listen()
            far.send(b'!')
            c, _ = own.accept()
        with c:
            assert c.recv(1) == b'?'
            c.sendall(b'worker')
        os._exit(0)
    workers.append(worker)
    socket.send_fds(near, [b'.'], [bound.fileno()])
bound.close()
for worker in workers:
    assert near.recv(1) == b'!'
print('listening', flush=True)
c, _ = listener.accept()
clone = {'x86_64': 56, 'aarch64': 220}[platform.machine()]
child = libc.syscall(clone, signal.SIGCHLD, 0, 0, 0, 0)
if child == 0:
    assert c.recv(1) == b'?'
    c.sendall(b'the child')
    os._exit(0)
c.close()
for one in [child, *children, *workers]:
    assert os.waitpid(one, 0)[1] == 0, one
for program in programs:
    assert program.wait() == 0
print('done', flush=True)
";

/// Takes connections.
const PEER: &str = "
import socket, sys
listener = socket.create_server((sys.argv[1], 7004))
print('listening', flush=True)
c, (_, port) = listener.accept()
assert port == 7003, port
c.sendall(b'.')
while True:
    listener.accept()
";

fn processes(network: &Network) -> Outcome {
    let address = Network::SKINK[0];
    let peer = python::start_on_kernel(
        network,
        "the peer",
        PEER,
        &[Network::KERNEL[0]],
        "listening",
    )?;
    let arguments = [address, Network::KERNEL[0]];
    let server = python::start(network, "the server", PROCESSES, &arguments, "listening")?;
    drop(peer);
    let arguments = [
        address, "7000", "7001", "7001", "7002", "7002", "7005", "7005", "7008", "7008",
    ];
    let answer = python::finish_on_kernel(network, "the client", CLIENT, &arguments)?;
    server.wait_until("its processes have ended well", || {
        server.log().contains("done")
    })?;
    match answer.as_str() {
        "7000 9\n7001 6\n7001 6\n7002 7\n7002 7\n7005 6\n7005 6\n7008 5\n7008 5\n" => Ok(()),
        _ => Err(Failure::Wrong(format!("the client got {answer}"))),
    }
}

/// A program for each connection, which is begun by `vfork`.
const SHARED: &str = "
import socket, subprocess, sys
listener = socket.create_server((sys.argv[1], 7000))
print('listening', flush=True)
c, _ = listener.accept()
subprocess.run(['cat'], stdin=c)
assert c.recv(1) == b'?'
";

/// With a stack in each process that can't be, and the program says only that it isn't connected: what it takes is said.
fn shared(network: &Network) -> Outcome {
    let address = Network::SKINK[0];
    let server = python::start(network, "the server", SHARED, &[address], "listening")?;
    python::finish_on_kernel(network, "the client", CLIENT, &[address, "7000"])?;
    server.wait_until("it says what would work", || {
        server.log().contains("`skink run --name main -- PROGRAM`")
    })?;
    Ok(())
}

/// Answers a byte with many, and a datagram with the same.
const ANSWERING: &str = "
import select, socket, sys
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind((sys.argv[1], 7400))
listener = socket.create_server((sys.argv[1], 7400))
print('listens', flush=True)
connection, _ = listener.accept()
while True:
    ready, _, _ = select.select([datagrams, connection], [], [])
    if datagrams in ready:
        datagrams.sendto(*datagrams.recvfrom(9000))
    elif connection.recv(1):
        connection.sendall(bytes(1 << 20))
    else:
        break
";

/// Asks before and after a signal.
const ASKING: &str = "
import signal, socket, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
connection = socket.create_connection((sys.argv[1], 7400), 10)
connection.settimeout(60)
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.connect((sys.argv[1], 7400))
datagrams.settimeout(0.5)
def ask():
    connection.sendall(b'?')
    left = 1 << 20
    while left:
        part = connection.recv(left)
        assert part == bytes(len(part)) != b''
        left -= len(part)
    for attempt in range(40):
        try:
            datagrams.send(bytes(1200))
            assert datagrams.recv(9000) == bytes(1200)
            return
        except TimeoutError:
            pass
    sys.exit('no datagram came back')
ask()
print('asked', flush=True)
signal.sigwait([signal.SIGUSR1])
ask()
";

/// The interface's MTU is lowered on both ends, as that of a tunnel: what has begun goes on.
fn smaller_mtu(network: &Network) -> Outcome {
    let address = Network::SKINK[0];
    let server = python::start(network, "the server", ANSWERING, &[address], "listens")?;
    let client = python::start_on_kernel(network, "the client", ASKING, &[address], "asked")?;
    for host in [&network.skink, &network.kernel] {
        host.ip("link set wire mtu 1000")?;
    }
    signal(client.id(), Signal::USR1)?;
    let (status, said) = client.wait(PATIENCE)?;
    if status.success() {
        return Ok(());
    }
    let server = server.log();
    Err(Failure::Wrong(format!(
        "the client said {said:?}, the server {server:?}"
    )))
}
