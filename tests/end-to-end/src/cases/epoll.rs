//! Epoll sets in other sets, and sets with several descriptors.

use super::on_each_back_end;
use crate::network::Network;
use crate::site::PATIENCE;
use crate::{Case, Failure, Outcome};
use skink_testbed::Process;

pub fn cases() -> Vec<Case> {
    let mut cases = on_each_back_end("epoll/inside-another", inside_another);
    cases.extend(on_each_back_end("epoll/several-descriptors", descriptors));
    cases.extend(on_each_back_end("epoll/little-room", little_room));
    cases
}

/// Answers every connection with what it says.
const ECHO: &str = "
import socket, threading
listener = socket.create_server(('10.9.0.1', 9103))
print('ready', flush=True)
def echo(c):
    while word := c.recv(64):
        c.sendall(word)
while True:
    threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()
";

const BEGINNING: &str = "
import os, select, socket, threading
IN, EDGE = select.EPOLLIN, select.EPOLLIN | select.EPOLLET
def connect():
    return socket.create_connection(('10.9.0.1', 9103))
def take_in(c, before=0):
    # The answer is there, and its event was taken in before this thread sleeps on any set.
    c.sendall(b'word')
    while len(c.recv(64, socket.MSG_PEEK)) < before + 4:
        pass
a, b = connect(), connect()
A = [(a.fileno(), IN)]
def is_quiet(outer, inner):
    # Frames that have nothing in them for the program may make the set readable, until somebody looks at it.
    while outer.poll(0):
        assert inner.poll(0) == []
    return True
";

/// Each way in which a set may be in another one, and who waits there.
const INSIDE: &str = "
def pair(filled, ours, how=IN):
    inner, outer = select.epoll(), select.epoll()
    if ours:
        outer.register(b, IN)
    if filled:
        inner.register(a, IN)
    outer.register(inner, how)
    if not filled:
        inner.register(a, IN)
    return inner, outer
def check(filled, ours):
    inner, outer = pair(filled, ours)
    there = [(inner.fileno(), IN)]
    take_in(a)
    # It stays so, for as long as the member is ready.
    assert outer.poll() == there and outer.poll() == there
    assert inner.poll() == A and outer.poll() == there
    # Until what came is read, by whomever.
    assert a.recv(64) == b'word'
    assert is_quiet(outer, inner)
    # Nobody has to look at the set for the next one.
    take_in(a)
    assert a.recv(64) == b'word'
    assert is_quiet(outer, inner)
    take_in(a)
    for poller in select.poll(), select.epoll():
        poller.register(outer.fileno(), IN)
        assert poller.poll() == [(outer.fileno(), IN)]
    assert select.select([outer], [], [])[0] == [outer]
    assert select.select([outer, b], [], [])[0] == [outer]
    assert select.select([inner], [], [])[0] == [inner]
    poller = select.poll()
    for entry in outer, b:
        poller.register(entry, IN)
    assert poller.poll(0) == [(outer.fileno(), IN)]
    assert a.recv(64) == b'word'
    # One that begins to sleep before anything comes, and whom nobody else drives.
    for _ in range(100):
        a.sendall(b'word')
        while not inner.poll(0):
            assert outer.poll() == there
        assert a.recv(64) == b'word'
    # Another thread takes it in, as it waits for an answer that comes later.
    for _ in range(100):
        other = threading.Thread(target=b.recv, args=(64,))
        other.start()
        a.sendall(b'word')
        while not inner.poll(0):
            outer.poll()
        assert a.recv(64) == b'word'
        b.sendall(b'word')
        other.join()
    # It is another set's no more.
    take_in(a)
    outer.unregister(inner)
    assert outer.poll(0) == []
    outer.register(inner, IN)
    assert outer.poll() == there
    assert a.recv(64) == b'word'
    assert is_quiet(outer, inner)
    take_in(a)
    inner.close()
    assert outer.poll(0) == []
    assert a.recv(64) == b'word'
for filled in True, False:
    for ours in False, True:
        check(filled, ours)
        print('level', filled, ours, flush=True)
for filled in True, False:
    for ours in False, True:
        # Each event is told, also if the one before isn't read.
        inner, outer = pair(filled, ours, EDGE)
        for before in 0, 4, 8:
            take_in(a, before)
            assert outer.poll() == [(inner.fileno(), IN)]
            while outer.poll(0):
                assert inner.poll(0) == A
        assert a.recv(64) == b'word' * 3
        assert is_quiet(outer, inner)
        print('edge', filled, ours, flush=True)
# In the second one is what the third waits for.
inner, middle, outer = select.epoll(), select.epoll(), select.epoll()
outer.register(middle, IN)
middle.register(inner, IN)
inner.register(a, IN | select.EPOLLONESHOT)
take_in(a)
assert outer.poll() == [(middle.fileno(), IN)] and middle.poll() == [(inner.fileno(), IN)] and inner.poll() == A
assert is_quiet(outer, inner)
inner.modify(a, IN)
assert outer.poll() == [(middle.fileno(), IN)]
# Another process that has the sets as well, and closes what is ready, takes nothing away.
child = os.fork()
if not child:
    a.close()
    s = connect()
    s.sendall(b'word')
    os._exit(s.recv(64) != b'word')
assert os.waitpid(child, 0)[1] == 0
assert outer.poll() == [(middle.fileno(), IN)] and inner.poll() == A
assert a.recv(64) == b'word'
assert is_quiet(outer, inner)
# It goes on with sets of its own.
child = os.fork()
if not child:
    a = connect()
    inner, outer = pair(False, False)
    take_in(a)
    assert outer.poll() == [(inner.fileno(), IN)] and inner.poll() == [(a.fileno(), IN)]
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
take_in(a)
assert outer.poll() == [(middle.fileno(), IN)]
print('fine', flush=True)
";

/// A set is one, by whichever descriptor: those made before it has a socket of Skink's, too.
const DESCRIPTORS: &str = "
import fcntl
copies = [os.dup, lambda fd: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 0), lambda fd: os.dup2(fd, os.open('/dev/null', os.O_RDONLY))]
for copy in copies:
    for early in True, False:
        one = select.epoll()
        if not early:
            one.register(b, IN)
        two = select.epoll.fromfd(copy(one.fileno()))
        outer = select.epoll()
        outer.register(one, IN)
        two.register(a, IN)
        take_in(a)
        assert one.poll() == A and two.poll() == A
        assert outer.poll() == [(one.fileno(), IN)]
        assert a.recv(64) == b'word'
        assert is_quiet(outer, one)
        a.sendall(b'word')
        while not one.poll(0):
            assert outer.poll() == [(one.fileno(), IN)]
        # (For as long as another descriptor is open the set stays in the outer one.)
        two.close()
        assert one.poll() == A and outer.poll() == [(one.fileno(), IN)]
        assert a.recv(64) == b'word'
        one.close()
        assert outer.poll(0) == []
    print('copied', flush=True)
print('fine', flush=True)
";

fn run(network: &Network, name: &str, script: &str) -> Outcome {
    let mut echo = network.kernel.command("python3");
    echo.args(["-c", ECHO]);
    let echo = Process::spawn(echo, "echo")?;
    echo.wait_until("it is ready", || echo.log().contains("ready"))?;
    let script = format!("{BEGINNING}{script}");
    let program = network.skink_run("python3", ["-c", &script])?;
    let said = Network::finish(program, name, PATIENCE)?;
    match said.trim_end().ends_with("fine") {
        true => Ok(()),
        false => Err(Failure::Wrong(format!("it printed:\n{said}"))),
    }
}

fn inside_another(network: &Network) -> Outcome {
    run(network, "a program with sets in sets", INSIDE)
}

fn descriptors(network: &Network) -> Outcome {
    run(network, "a program with copied sets", DESCRIPTORS)
}

/// What is the library's own in a set takes no room from what is the program's, and doesn't keep an outer set readable. The program
/// reads its sockets without asking the sets.
const LITTLE_ROOM: &str = "
def answer(c):
    c.sendall(b'word')
    while len(c.recv(64, socket.MSG_PEEK)) < 4:
        pass
    assert c.recv(64) == b'word'
r, w = os.pipe()
mixed = select.epoll()
mixed.register(a, IN)
mixed.register(r, IN)
for _ in range(200):
    answer(a)
    os.write(w, b'x')
    assert mixed.poll(0, 1) == [(r, IN)]
    os.read(r, 1)
inner, outer = select.epoll(), select.epoll()
inner.register(b, IN)
outer.register(inner, IN)
for _ in range(50):
    b.sendall(b'word')
    assert outer.poll(20)
    while len(b.recv(64, socket.MSG_PEEK)) < 4:
        pass
    b.recv(64)
    # What comes for a socket in no set.
    a.sendall(b'word')
    assert sum(len(outer.poll(0)) for _ in range(2000)) < 1000
    while len(a.recv(64, socket.MSG_PEEK)) < 4:
        pass
    a.recv(64)
# A connection to the own address, of which both ends hear when it has moved.
listener = socket.create_server(('10.9.0.2', 9104))
near = socket.create_connection(('10.9.0.2', 9104))
far, _ = listener.accept()
inner, outer = select.epoll(), select.epoll()
inner.register(far, IN)
outer.register(inner, IN)
for _ in range(50):
    near.sendall(b'x')
    assert outer.poll(20)
    far.recv(1)
    assert sum(len(outer.poll(0)) for _ in range(2000)) < 1000
for how, fits in (select.EPOLLET, True), (select.EPOLLONESHOT, False), (select.EPOLLRDHUP, False):
    exclusive = select.epoll()
    try:
        exclusive.register(a, IN | how | select.EPOLLEXCLUSIVE)
        assert fits
    except OSError:
        assert not fits
print('fine', flush=True)
";

fn little_room(network: &Network) -> Outcome {
    run(
        network,
        "a program whose waits have little room",
        LITTLE_ROOM,
    )
}
