//! Calls whose outcome on the kernel's stack and on Skink was compared, by programs that made the same ones on both
//! (2026-11-28): what was different.

use super::{in_each_topology, python};
use crate::network::Network;
use crate::site::PATIENCE;
use crate::{Case, Outcome};

pub fn cases() -> Vec<Case> {
    in_each_topology("alike", alike)
}

/// Does for the other end what each line on the first connection says, with a new connection or a datagram, and then says so.
const PEER: &str = "
import socket, struct, sys
own, other = sys.argv[1:]
listener = socket.create_server((own, 9500))
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind((own, 9500))
datagrams.setsockopt(socket.IPPROTO_IP, 12, 1)
print('ready', flush=True)
control, _ = listener.accept()
def reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    s.close()
for line in control.makefile('r'):
    word, *rest = line.split()
    if word == 'reset':
        reset(listener.accept()[0])
    elif word == 'answer':
        s, _ = listener.accept()
        s.sendall(b'the whole answer')
        s.shutdown(socket.SHUT_WR)
        s.recv(1)
        reset(s)
    elif word == 'accept':
        s, _ = listener.accept()
    elif word == 'read':
        control.sendall(b'%d\\n' % len(s.recv(1 << 24, socket.MSG_WAITALL)))
        continue
    elif word == 'datagram':
        datagrams.sendto(b'datagram', (other, int(rest[0])))
    elif word == 'marked':
        marks = [(socket.IPPROTO_IP, kind, struct.pack('i', mark)) for kind, mark in [(socket.IP_TTL, 33), (socket.IP_TOS, 0x2a)]]
        datagrams.sendmsg([b'marked'], marks, 0, (other, int(rest[0])))
    elif word == 'hops':
        data = b''
        while data != b'hops':
            data, ancillary, _, _ = datagrams.recvmsg(64, 64)
        control.sendall(b'%d\\n' % struct.unpack('i', ancillary[0][2]))
        continue
    elif word == 'send':
        s.sendall(bytes(int(rest[0])))
    elif word == 'say':
        s, _ = listener.accept()
        s.sendall(bytes(1000))
    elif word == 'ask':
        s, _ = listener.accept()
        s.sendall(bytes(7000))
    elif word == 'hear':
        heard = 0
        try:
            while data := s.recv(1 << 16):
                heard += len(data)
        except ConnectionResetError:
            pass
        control.sendall(b'%d\\n' % heard)
        continue
    elif word == 'break':
        s, _ = listener.accept()
        s.sendall(b'part')
        reset(s)
    elif word == 'ends':
        s, _ = listener.accept()
        assert s.recv(1) == b''
    control.sendall(b'.\\n')
";

const PROGRAM: &str = "
import ctypes, errno, fcntl, os, select, signal, socket, struct, sys, threading, time
own, peer, own6, peer6, topology = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
IP_PKTINFO = 8
control = socket.create_connection((peer, 9500))
words = control.makefile('r')
def tell(word):
    control.sendall(word.encode() + b'\\n')
    return words.readline()
def connect():
    return socket.create_connection((peer, 9500))
def udp(*where):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if where:
        s.bind(where)
    return s
def error_of(call, *arguments):
    try:
        return 0 * bool(call(*arguments))
    except OSError as error:
        return error.errno
def sleeps(thread):
    return open('/proc/self/task/%d/stat' % thread.native_id).read().rsplit(') ')[1][0] == 'S'
def until(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
def in_thread(call):
    found = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    until(lambda: sleeps(thread))
    return thread, found

# Where nobody has a way to is no reason not to go elsewhere.
nowhere = ('203.0.113.9', 9500)
for s in udp(), udp(), socket.socket():
    assert error_of(s.connect, nowhere) == errno.ENETUNREACH
    if s.type == socket.SOCK_DGRAM:
        assert error_of(s.sendto, b'x', nowhere) == errno.ENETUNREACH
        assert s.sendto(b'x', (peer, 9500)) == 1
    s.connect((peer, 9500))
    s.close()
tell('accept')

# Who only sends learns that the peer is gone, and on UDP that nobody is there.
s = connect()
tell('reset')
found = []
until(lambda: found.append(error_of(s.send, b'x')) or found[-1])
assert found[-1] in (errno.ECONNRESET, errno.EPIPE), found
assert error_of(s.send, b'x') == errno.EPIPE
s = udp()
s.connect((peer, 9501))
until(lambda: error_of(s.send, b'x') == errno.ECONNREFUSED)

# Who connects again until it has an answer gets one.
for port, end in (9500, 0), (9501, errno.ECONNREFUSED):
    s = socket.socket()
    s.setblocking(False)
    found = [s.connect_ex((peer, port))]
    assert found[-1] in (errno.EINPROGRESS, end), found
    until(lambda: found[-1] not in (errno.EINPROGRESS, errno.EALREADY) or found.append(s.connect_ex((peer, port))))
    assert found[-1] == end, (port, found[-1])
    if end == 0:
        assert s.connect_ex((peer, port)) == errno.EISCONN
        tell('reset')

# A reset that comes after the end of all that the peer had to say isn't the reader's business.
s = connect()
control.sendall(b'answer\\n')
assert s.recv(16, socket.MSG_WAITALL) == b'the whole answer'
s.send(b'x')
words.readline()
until(lambda: select.select([], [], [s], 0)[2] or s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == bytes([7]))
assert s.recv(16) == b''
assert s.recv(16) == b''
assert error_of(s.send, b'x') == errno.EPIPE

# To close directions wakes who waits, though there is no connection.
s = udp(own, 0)
thread, found = in_thread(lambda: s.recv(16))
assert error_of(s.shutdown, socket.SHUT_RDWR) == errno.ENOTCONN
thread.join(10)
assert found == [b''], found
s = socket.socket()
thread, found = in_thread(lambda: s.connect_ex((peer.rsplit('.', 1)[0] + '.77', 9500)))
s.shutdown(socket.SHUT_RDWR)
thread.join(10)
assert found == [errno.ECONNRESET], found
s = socket.socket()
s.setblocking(False)
assert s.connect_ex((peer.rsplit('.', 1)[0] + '.77', 9500)) == errno.EINPROGRESS
s.shutdown(socket.SHUT_RDWR)
found = [s.connect_ex((peer, 9500))]
until(lambda: found[-1] not in (errno.EINPROGRESS, errno.EALREADY) or found.append(s.connect_ex((peer, 9500))))
assert found[-1] == 0, found
tell('reset')

# Ends, and what control messages say.
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.connect((peer6, 9500))
assert s.getsockname()[0] == own6, s.getsockname()
s = udp(own, 0)
s.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
s.settimeout(10)
port = s.getsockname()[1]
tell('datagram %d' % port)
assert os.read(s.fileno(), 0) == b''
data, ancillary, _, _ = s.recvmsg(64, 64)
index, destination = struct.unpack('I4x4s', ancillary[0][2])
assert (data, socket.inet_ntoa(destination)) == (b'datagram', own)
assert socket.if_indextoname(index) in [name for _, name in socket.if_nameindex() if name != 'lo']
low_delay = [(socket.IPPROTO_IP, socket.IP_TOS, struct.pack('i', 16))]
assert s.sendmsg([b'x'], low_delay, 0, (peer, 9500)) == 1
foreign = [(socket.IPPROTO_IP, IP_PKTINFO, struct.pack('I4s4x', 0, socket.inet_aton('192.0.2.1')))]
assert error_of(s.sendmsg, [b'x'], foreign, 0, (peer, 9500)) == errno.ENETUNREACH
assert control.sendmsg([b'nothing\\n'], low_delay + foreign) == 8
words.readline()

# All that control messages may tell, and how they are cut off.
s = udp(own, 0)
s.settimeout(10)
SO_TIMESTAMP, SO_TIMESTAMPNS, IP_RECVTTL, IP_RECVTOS = 29, 35, 12, 13
before = time.time()
for level, option in (socket.SOL_SOCKET, SO_TIMESTAMPNS), (0, IP_PKTINFO), (0, IP_RECVTTL), (0, IP_RECVTOS):
    s.setsockopt(level, option, 1)
    assert s.getsockopt(level, option) == 1
tell('marked %d' % s.getsockname()[1])
s.recv(1, socket.MSG_PEEK)
def told(room):
    data, ancillary, flags, _ = s.recvmsg(64, room, socket.MSG_PEEK)
    return flags & socket.MSG_CTRUNC, {(level, kind): data for level, kind, data in ancillary}
cut, messages = told(256)
assert cut == 0 and list(messages) == [(1, SO_TIMESTAMPNS), (0, IP_PKTINFO), (0, socket.IP_TTL), (0, socket.IP_TOS)], messages
assert before - 1 < struct.unpack('qq', messages[1, SO_TIMESTAMPNS])[0] <= time.time()
assert messages[0, socket.IP_TTL] == struct.pack('i', 33) and messages[0, socket.IP_TOS] == b'\x2a', messages
cut, messages = told(socket.CMSG_SPACE(16) + socket.CMSG_SPACE(12))
assert cut and list(messages) == [(1, SO_TIMESTAMPNS), (0, IP_PKTINFO)], (cut, messages)
s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMP, 1)
assert (1, SO_TIMESTAMP) in told(256)[1]
s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMP, 0)
assert (1, SO_TIMESTAMP) not in told(256)[1]

# Nothing is neither sent nor awaited by `writev` and `readv`.
s.recv(64)
s.sendto(b'x', (peer, 9500))
assert os.writev(s.fileno(), [b'']) == 0 and os.readv(s.fileno(), [bytearray()]) == 0

# What may wait to be sent.
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
assert s.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 32768
s.connect((peer, 9500))
tell('accept')
s.setblocking(False)
sent = 0
def fill():
    global sent
    while select.select([], [s], [], 0)[1]:
        sent += s.send(bytes(1 << 16))
idle = lambda: struct.unpack('i', fcntl.ioctl(s, 0x5411, bytes(4)))[0]
fill()
last = [0]
while last[-1] != sent:
    last.append(sent)
    select.select([], [s], [], 0.05)
    fill()
assert idle() <= 65536, idle()
control.sendall(b'read\\n')
while sent < 4 << 20:
    assert select.select([], [s], [], 10)[1]
    fill()
s.close()
assert int(words.readline()) == sent

# What is taken from a pipe goes there though there is little room.
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
s.connect((peer, 9500))
tell('accept')
s.setblocking(False)
source, sink = os.pipe()
sent = full = 0
while sent < 4 << 20:
    left = os.write(sink, bytes(60000))
    while left:
        try:
            count = os.splice(source, s.fileno(), left)
            left, sent = left - count, sent + count
        except BlockingIOError:
            if not full:
                control.sendall(b'read\\n')
            full += 1
            assert select.select([], [s], [], 10)[1]
s.close()
assert full and int(words.readline()) == sent

# How long to wait.
s = udp(own, 0)
forbidden = struct.pack('qq', -1, 0)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, forbidden)
assert error_of(s.recv, 1) == errno.EAGAIN
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('qq', 60, 0))
signal.signal(signal.SIGALRM, lambda *_: None)
signal.siginterrupt(signal.SIGALRM, False)
signal.setitimer(signal.ITIMER_REAL, 0.1)
assert libc.recv(s.fileno(), ctypes.create_string_buffer(1), 1, 0) == -1
assert ctypes.get_errno() == errno.EINTR

# What could be had from the kernel only is refused, and what needn't be heeded is taken.
s = socket.socket()
for option in 7, 10, 18, 25:
    s.setsockopt(socket.IPPROTO_TCP, option, 4096 if option in (10, 25) else 1)
names = [name for _, name in socket.if_nameindex() if name != 'lo']
s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, names[0].encode())
s.connect((peer, 9500))
tell('reset')

# A set that has a socket before that listens.
s = socket.socket()
watch = select.epoll()
watch.register(s, select.EPOLLIN)
s.bind((own, 0))
s.listen(7)
assert watch.poll(0) == []
info = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
assert struct.unpack('II', info[24:32]) == (0, 7), info

# What is called first after a connect that doesn't wait finds the connection.
for _ in range(5):
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex((peer, 9500))
    tell('say')
    s.shutdown(socket.SHUT_WR)
    s.setblocking(True)
    assert s.recv(1000, socket.MSG_WAITALL) == bytes(1000)
    s.close()

# A bind that fails leaves the socket as it was.
for s in socket.socket(), udp():
    assert error_of(s.bind, ('203.0.113.9', 0)) == errno.EADDRNOTAVAIL
    s.bind((own, 0))
    s.connect((peer, 9500))
tell('accept')

# Where somebody listens nobody else binds, in this process or another one.
def bound(port):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((own, port))
    return s
def is_refused(port):
    return error_of(bound, port) == errno.EADDRINUSE
first = bound(0)
port = first.getsockname()[1]
second = bound(port)
first.listen()
assert is_refused(port)
child = os.fork()
if child == 0:
    os._exit(not is_refused(port))
assert os.waitpid(child, 0)[1] == 0
assert error_of(second.listen) == errno.EADDRINUSE
first.shutdown(socket.SHUT_RD)
second.listen()
second.close()
bound(port)

# A signal that only a mask lets through comes though nobody waits.
caught = []
signal.signal(signal.SIGUSR1, lambda *_: caught.append(1))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
os.kill(os.getpid(), signal.SIGUSR1)
listed = struct.pack('ihh', s.fileno(), select.POLLIN, 0)
no_time = struct.pack('qq', 0, 0)
assert libc.ppoll(listed, 1, no_time, bytes(8)) == -1 and ctypes.get_errno() == errno.EINTR
assert caught

# Datagrams: hops, sizes, directions and addresses.
s = udp()
s.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 9)
s.sendto(b'hops', (peer, 9500))
assert tell('hops') == '9\\n'
s.sendmsg([b'hops'], [(socket.IPPROTO_IP, socket.IP_TTL, struct.pack('i', 7))], 0, (peer, 9500))
assert tell('hops') == '7\\n'
no_hops = [(socket.IPPROTO_IP, socket.IP_TTL, struct.pack('i', 0))]
assert error_of(s.sendmsg, [b'x'], no_hops, 0, (peer, 9500)) == errno.EINVAL
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 30000)
assert s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 60000
assert struct.unpack('i', fcntl.ioctl(s, 0x5411, bytes(4)))[0] >= 0
bad_time = struct.pack('qq', 0, 2 * 10**9)
assert libc.recvmmsg(s.fileno(), bytes(64), 1, 0, bad_time) == -1 and ctypes.get_errno() == errno.EINVAL
s.connect((peer, 9500))
s.shutdown(socket.SHUT_RD)
watch = select.poll()
watch.register(s, select.POLLIN | select.POLLRDHUP)
assert watch.poll(0) == [(s.fileno(), select.POLLIN | select.POLLRDHUP)]
assert error_of(s.recv, 1, socket.MSG_DONTWAIT) == errno.EAGAIN
assert s.recv(1) == b''
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
assert s.sendto(bytes(65527), (peer6, 9500)) == 65527
assert error_of(s.sendto, bytes(65528), (peer6, 9500)) == errno.EMSGSIZE
udp(own.rsplit('.', 1)[0] + '.255', 0)

# Who wants to see more than comes is told.
s = connect()
thread, found = in_thread(lambda: s.recv(2000, socket.MSG_PEEK | socket.MSG_WAITALL))
tell('say')
s.shutdown(socket.SHUT_RD)
thread.join(10)
assert found == [bytes(1000)], found

# An answer to a request that isn't read arrives, though closing resets the connection.
for linger in range(6):
    s = connect()
    tell('ask')
    assert select.select([s], [], [], 10)[0]
    if linger % 2:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    s.sendall(bytes(20000))
    s.close()
    assert tell('hear') == '20000\\n'

# What is cut off by a reset isn't taken for whole.
s = connect()
thread, found = in_thread(lambda: s.recv(16, socket.MSG_WAITALL))
tell('break')
thread.join(10)
# (The reset may take away what hasn't been read, as on the kernel's stack.)
assert found in ([b'part'], []), found
if found:
    assert error_of(s.recv, 16, socket.MSG_WAITALL) == errno.ECONNRESET
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
s = connect()
thread, found = in_thread(lambda: s.send(bytes(1 << 26)))
tell('break')
thread.join(10)
assert 0 < found[0] < 1 << 26, found
assert error_of(s.send, b'x') == errno.ECONNRESET
assert error_of(s.send, b'x') == errno.EPIPE

# What `splice` is told of waiting is about the pipe.
s = connect()
source, sink = os.pipe()
fcntl.fcntl(sink, 1031, 4096)
thread, found = in_thread(lambda: os.splice(s.fileno(), sink, 4096, flags=2))
tell('say')
thread.join(10)
assert found == [1000], found

# Little isn't told of, if that is asked for; what comes then is.
for wait, told in (lambda: s.recv(100), bytes(100)), (lambda: bool(select.select([s], [], [], 10)[0]), True):
    s = connect()
    tell('accept')
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 100)
    assert s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 100
    thread, found = in_thread(wait)
    tell('send 40')
    until(lambda: sleeps(thread))
    tell('send 60')
    thread.join(10)
    assert found == [told], found

# Who lingers waits until the peer has all.
s = connect()
tell('accept')
s.setblocking(False)
sent = 0
try:
    while True:
        sent += s.send(bytes(1 << 16))
except BlockingIOError:
    pass
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 60))
fd = s.fileno()
thread, found = in_thread(lambda: s.close())
assert error_of(os.close, fd) == errno.EBADF
assert tell('hear') == '%d\\n' % sent
thread.join(10)
assert found == [None], found

# To connect to nobody resets a connection, and ends listening; the socket can be used again.
def disconnect(s):
    assert libc.connect(s.fileno(), struct.pack('H14x', 0), 16) == 0
s = connect()
tell('accept')
for _ in range(2):
    disconnect(s)
    assert error_of(s.getpeername) == errno.ENOTCONN
    assert tell('hear') == '0\\n'
    s.connect((peer, 9500))
    tell('accept')
s.close()
s = socket.create_server((own, 9511))
thread, found = in_thread(lambda: error_of(s.accept))
disconnect(s)
thread.join(10)
assert found == [errno.EINVAL], found
s.listen()
s.close()

# A port is free once a child that had it too has ended.
for _ in range(50):
    s = socket.create_server((own, 9512))
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    s.close()

# A program that a child has become keeps nothing that is to be closed then.
s = connect()
(input_end, to_child), (from_child, output_end) = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    os.dup2(input_end, 0)
    os.dup2(output_end, 1)
    os.execvp('cat', ['cat'])
os.write(to_child, b'x')
assert os.read(from_child, 1) == b'x'
s.close()
tell('ends')
os.close(to_child)
os.waitpid(child, 0)

# Directions that a child closes are closed for its parent, too.
if topology != 'library':
    s = connect()
    tell('accept')
    thread, found = in_thread(lambda: s.recv(16))
    child = os.fork()
    if child == 0:
        s.shutdown(socket.SHUT_RDWR)
        os._exit(0)
    thread.join(10)
    assert found == [b''], found
    os.waitpid(child, 0)
    assert error_of(s.send, b'x') == errno.EPIPE

    # A shell that the C library begins has what isn't to be closed.
    s = connect()
    tell('accept')
    os.set_inheritable(s.fileno(), True)
    assert libc.system(b'bash -c \"echo one >&%d\"' % s.fileno()) == 0
    assert libc.system(b'exit 3') == 3 << 8
    s.close()
    assert tell('read') == '4\\n'
print('done', flush=True)
";

/// (`TCP_INFO` begins with the state, 7 for a connection that is over; options of TCP by their numbers are `TCP_SYNCNT`, `TCP_WINDOW_CLAMP`,
/// `TCP_USER_TIMEOUT` and `TCP_NOTSENT_LOWAT`; 0x5411 is `SIOCOUTQ`, 12 `IP_RECVTTL`, 1031 `F_SETPIPE_SZ`, 2 `SPLICE_F_NONBLOCK`. The limit of the queue of a socket that listens is in
/// `TCP_INFO` at 28.)
fn alike(network: &Network) -> Outcome {
    let ([own, own6], [peer, peer6]) = (Network::SKINK, Network::KERNEL);
    let _other = python::start_on_kernel(network, "the peer", PEER, &[peer, own], "ready")?;
    let topology = network.plan.topology.to_string();
    let arguments = ["-c", PROGRAM, own, peer, own6, peer6, &topology];
    let program = network.skink_run("python3", arguments)?;
    Network::finish(program, "the program", PATIENCE).map(drop)
}
