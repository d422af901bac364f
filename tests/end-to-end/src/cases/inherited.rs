//! Connections that a program's processes inherit, at `fork`, `exec` and `posix_spawn`, and use as they like.

use super::{python, widely};
use crate::network::Network;
use crate::{Case, Outcome};

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, run) in [
        ("one-each", one_each as fn(&Network) -> Outcome),
        ("by-several", by_several),
        ("whose-process-was-killed", whose_process_was_killed),
    ] {
        cases.extend(widely(&format!("inherited/{name}"), run));
    }
    cases
}

/// Accepts connections, each for a child, as servers have done for ever. What the client said first, which nobody has read, says how the
/// child waits for more.
const ONE_EACH: &str = "
import hashlib, os, select, signal, socket
def poll(c):
    it = select.poll()
    it.register(c, select.POLLIN)
    it.poll()
def epoll(c):
    with select.epoll() as it:
        it.register(c, select.EPOLLIN)
        it.poll()
ways = {
    b'receive': lambda c: None,
    b'poll...': poll,
    b'epoll..': epoll,
    b'select.': lambda c: select.select([c], [], []),
    b'names..': lambda c: (c.getsockname(), c.getpeername()),
    b'options': lambda c: c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
}
def serve(c):
    way = ways[c.recv(7, socket.MSG_WAITALL)]
    way(c)
    digest = hashlib.sha256()
    while data := c.recv(65536):
        digest.update(data)
        way(c)
    c.sendall(digest.digest() * 10_000)
listener = socket.create_server(('', 9100), backlog=64)
print('ready', flush=True)
for _ in range(48):
    c, _ = listener.accept()
    if not os.fork():
        listener.close()
        serve(c)
        os._exit(0)
    c.close()
for _ in range(48):
    assert os.wait()[1] == 0
";

/// Four at a time.
const CALLERS: &str = "
import hashlib, random, socket, threading
failed = []
def call(rng, way):
    with socket.create_connection(('10.9.0.2', 9100), 20) as s:
        data = rng.randbytes(rng.randrange(1, 300_000))
        s.sendall(way + data)
        s.shutdown(socket.SHUT_WR)
        got = b''
        while more := s.recv(65536):
            got += more
        assert got == hashlib.sha256(data).digest() * 10_000, (way, len(got))
def run(seed):
    rng = random.Random(seed)
    try:
        for way in (b'receive', b'poll...', b'epoll..', b'select.', b'names..', b'options') * 2:
            call(rng, way)
    except BaseException as failure:
        failed.append((seed, failure))
        raise
threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failed, failed
";

/// A server that has a child for each of its connections serves them, to the byte.
fn one_each(network: &Network) -> Outcome {
    let server = python::start(network, "server", ONE_EACH, &[], "ready")?;
    python::asked(network, server, CALLERS, &[])
}

/// One connection after the other, of which the first word says what several processes do with it.
const FAMILY: &str = "
import os, socket
def child(work):
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    return pid
def ended(pid):
    assert os.waitpid(pid, 0)[1] == 0
def goes_on(c):
    ended(child(lambda: c.sendall(b'child, ')))
    c.sendall(b'parent')
def silent(c):
    ended(child(lambda: None))
    c.sendall(b'parent')
def later(c):
    # The child doesn't use it before its parent has done so, and closed it.
    told, tell = os.pipe()
    def work():
        os.read(told, 1)
        c.sendall(b'child')
    pid = child(work)
    c.sendall(b'parent, ')
    c.close()
    os.write(tell, b'.')
    ended(pid)
def in_turns(c):
    there, back = socket.socketpair()
    def work():
        while back.recv(1) == b'.':
            c.sendall(c.recv(1))
            back.send(b'.')
    pid = child(work)
    for _ in range(4):
        c.sendall(c.recv(1))
        there.send(b'.')
        assert there.recv(1) == b'.'
    there.send(b'-')
    ended(pid)
def executed(c):
    def work():
        os.dup2(c.fileno(), 0)
        os.dup2(c.fileno(), 1)
        os.execlp('tr', 'tr', 'a-z', 'A-Z')
    pid = child(work)
    c.close()
    ended(pid)
def spawned(c):
    actions = [(os.POSIX_SPAWN_DUP2, c.fileno(), number) for number in (0, 1)]
    pid = os.posix_spawnp('tr', ['tr', 'a-z', 'A-Z'], os.environ, file_actions=actions)
    c.close()
    ended(pid)
def spawned_and_kept(c):
    actions = [(os.POSIX_SPAWN_DUP2, c.fileno(), number) for number in (0, 1)]
    pid = os.posix_spawnp('tr', ['tr', 'a-z', 'A-Z'], os.environ, file_actions=actions)
    ended(pid)
    c.sendall(b', parent')
def grandchild(c):
    # Each has used it before, and ends first.
    told, tell = os.pipe()
    def last():
        os.close(tell)
        os.read(told, 1)
        c.sendall(b'last')
    def work():
        c.sendall(b'child, ')
        child(last)
    c.sendall(b'parent, ')
    pid = child(work)
    c.close()
    ended(pid)
    os.close(told)
    os.close(tell)
def outlived(c):
    # Who has accepted it ends, as a daemon's first process does.
    told, tell = os.pipe()
    def work():
        s, _ = listener.accept()
        c.close()
        if os.fork() == 0:
            os.close(tell)
            os.read(told, 1)
            s.sendall(b'another')
            os._exit(0)
    pid = child(work)
    ended(pid)
    os.close(told)
    os.close(tell)
    c.sendall(b'one')
def left_alone(c):
    # What the child has written leaves though it has ended, and nobody else uses it before the client has all of that.
    ended(child(lambda: c.sendall(bytes(1 << 20))))
    other, _ = listener.accept()
    assert other.recv(64) == b'has it'
    other.close()
    c.sendall(b'parent')
def spliced(c):
    def work():
        told, tell = os.pipe()
        os.write(tell, b'child, ')
        assert os.splice(told, c.fileno(), 7) == 7
    ended(child(work))
    c.sendall(b'parent')
def passed(c):
    # While another process has it.
    told, tell = os.pipe()
    near, far = socket.socketpair()
    def work():
        c.sendall(b'child, ')
        os.write(tell, b'.')
        near.recv(1)
    def receive():
        c.close()
        _, fds, _, _ = socket.recv_fds(far, 1, 1)
        socket.socket(fileno=fds[0]).sendall(b'received')
    user, receiver = child(work), child(receive)
    os.read(told, 1)
    socket.send_fds(near, [b'.'], [c.fileno()])
    ended(receiver)
    far.send(b'.')
    ended(user)
def shut_down(c):
    # The others' too.
    pid = child(lambda: c.shutdown(socket.SHUT_WR))
    ended(pid)
    assert c.recv(16) == b'still read'
def duplicates(c):
    other = c.dup()
    def work():
        c.close()
        other.sendall(b'child, ')
    ended(child(work))
    c.close()
    other.sendall(b'parent')
works = [
    goes_on, silent, later, in_turns, executed, spawned, spawned_and_kept, grandchild, outlived, left_alone,
    spliced, passed, shut_down, duplicates,
]
listener = socket.create_server(('', 9100), backlog=64)
print('ready', flush=True)
while True:
    c, _ = listener.accept()
    word = b''
    while not word.endswith(b'.'):
        more = c.recv(1)
        assert more
        word += more
    if word == b'stop.':
        break
    next(it for it in works if it.__name__ == word[:-1].decode())(c)
    c.close()
c.close()
";

const RELATIVES: &str = "
import socket
def dial(word):
    s = socket.create_connection(('10.9.0.2', 9100), 20)
    s.sendall(word + b'.')
    return s
def hear(s, expected, word):
    got = b''
    while more := s.recv(64):
        got += more
    assert got == expected, (word, got)
def ask(word, expected, said=b''):
    with dial(word) as s:
        s.sendall(said)
        if said:
            s.shutdown(socket.SHUT_WR)
        hear(s, expected, word)
for _ in range(3):
    ask(b'goes_on', b'child, parent')
    ask(b'silent', b'parent')
    ask(b'later', b'parent, child')
    ask(b'in_turns', b'12345678', b'12345678')
    ask(b'executed', b'ABC', b'abc')
    ask(b'spawned', b'ABC', b'abc')
    ask(b'spawned_and_kept', b'ABC, parent', b'abc')
    ask(b'grandchild', b'parent, child, last')
    ask(b'duplicates', b'child, parent')
    ask(b'spliced', b'child, parent')
    ask(b'passed', b'child, received')
    with dial(b'outlived') as one, socket.create_connection(('10.9.0.2', 9100), 20) as another:
        hear(one, b'one', b'one')
        hear(another, b'another', b'another')
    with dial(b'left_alone') as s:
        left = 1 << 20
        while left:
            more = s.recv(min(left, 65536))
            assert more == bytes(len(more)) and more, left
            left -= len(more)
        with socket.create_connection(('10.9.0.2', 9100), 20) as other:
            other.sendall(b'has it')
            assert other.recv(1) == b''
        hear(s, b'parent', b'parent')
    with dial(b'shut_down') as s:
        assert s.recv(1) == b''
        s.sendall(b'still read')
with dial(b'stop') as s:
    assert s.recv(1) == b''
";

/// Whichever of them uses it, in whatever order, and whoever ends meanwhile.
fn by_several(network: &Network) -> Outcome {
    let server = python::start(network, "server", FAMILY, &[], "ready")?;
    python::asked(network, server, RELATIVES, &[])
}

/// A child is killed that hasn't used the connection, one that has, and a parent whose child has.
const KILLED: &str = "
import os, signal, socket
listener = socket.create_server(('', 9100))
print('ready', flush=True)
def kill(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
for _ in range(3):
    c, _ = listener.accept()
    pid = os.fork()
    if pid == 0:
        signal.pause()
    kill(pid)
    c.sendall(b'by the parent')
    c.close()
    c, _ = listener.accept()
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        assert c.recv(2) == b'ab'
        c.sendall(b'by the child, ')
        os.write(tell, b'.')
        signal.pause()
    os.read(told, 1)
    kill(pid)
    # What it hadn't read is there.
    assert c.recv(64) == b'c'
    c.sendall(b'by the parent')
    c.close()
    os.close(told)
    os.close(tell)
    told, tell = os.pipe()
    middle = os.fork()
    if middle == 0:
        c, _ = listener.accept()
        c.sendall(b'by the parent, ')
        if os.fork() == 0:
            os.close(told)
            c.sendall(b'by the child, ')
            os.write(tell, b'.')
            while data := c.recv(64):
                c.sendall(data)
            os._exit(0)
        signal.pause()
    os.close(tell)
    os.read(told, 1)
    kill(middle)
    assert os.read(told, 1) == b''
    os.close(told)
";

const SURVIVORS: &str = "
import socket
def dial():
    return socket.create_connection(('10.9.0.2', 9100), 20)
def hear(s, expected):
    got = b''
    while len(got) < len(expected):
        more = s.recv(64)
        assert more, got
        got += more
    assert got == expected, got
for _ in range(3):
    with dial() as s:
        hear(s, b'by the parent')
        assert s.recv(64) == b''
    with dial() as s:
        s.sendall(b'abc')
        hear(s, b'by the child, by the parent')
        assert s.recv(64) == b''
    with dial() as s:
        hear(s, b'by the parent, by the child, ')
        for turn in range(100):
            s.sendall(b'%d' % turn)
            hear(s, b'%d' % turn)
        s.shutdown(socket.SHUT_WR)
        assert s.recv(64) == b''
";

/// It goes on with the others.
fn whose_process_was_killed(network: &Network) -> Outcome {
    let server = python::start(network, "server", KILLED, &[], "ready")?;
    python::asked(network, server, SURVIVORS, &[])
}
