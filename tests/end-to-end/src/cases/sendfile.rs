//! `sendfile` and `splice`: files in memory, on disk, and not in the page cache; from offsets and from where a file
//! is; to sockets that block and that don't.

use super::{everywhere, python};
use crate::network::Network;
use crate::site::PATIENCE;
use crate::{Case, Failure, Outcome};

pub fn cases() -> Vec<Case> {
    everywhere("sendfile", files)
}

/// Sends parts of files on one connection, and prints what they are together.
const SERVER: &str = "
import hashlib, os, random, select, socket, sys, tempfile
random.seed(7)
whole = hashlib.sha256()
listener = socket.create_server((sys.argv[1], 7100))
print('listening', flush=True)
connection, _ = listener.accept()

def file(directory, size):
    made = tempfile.TemporaryFile(dir=directory)
    made.write(random.randbytes(size))
    made.flush()
    os.fsync(made.fileno())
    return made

def send(made, start, count):
    # All of it, as a server does that may be told to come again.
    fd, done = made.fileno(), 0
    while done < count:
        try:
            sent = os.sendfile(connection.fileno(), fd, None if start is None else start + done, count - done)
        except BlockingIOError:
            select.select([], [connection], [])
            continue
        if sent == 0:
            break
        done += sent
    return done

memory, disk = file('/dev/shm', 3000001), file(None, 5000003)
for blocking in [True, False]:
    connection.setblocking(blocking)
    for made, size in [(memory, 3000001), (disk, 5000003)]:
        for cold in [False, True]:
            for start, count in [(0, size), (1, 22000), (65535, 131073), (size - 10, 100), (size + 5, 10)]:
                if cold:
                    os.posix_fadvise(made.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                assert send(made, start, count) == max(0, min(count, size - start))
                whole.update(os.pread(made.fileno(), count, start))
        # From where the file is, which moves on.
        os.lseek(made.fileno(), 100, os.SEEK_SET)
        assert send(made, None, 70000) == 70000
        assert os.lseek(made.fileno(), 0, os.SEEK_CUR) == 70100
        whole.update(os.pread(made.fileno(), 70000, 100))
# One of a file system that doesn't say whether reading it waits.
with open('/proc/version', 'rb') as version:
    text = version.read()
    whole.update(text)
    assert send(version, 0, len(text) + 10) == len(text)
read, write = os.pipe()
connection.setblocking(True)
for _ in range(50):
    piece = random.randbytes(3001)
    os.write(write, piece)
    moved = 0
    while moved < len(piece):
        moved += os.splice(read, connection.fileno(), len(piece) - moved)
    whole.update(piece)
# Nothing at all, also where there is nothing.
assert os.splice(read, connection.fileno(), 0) == 0
# The client's own bytes, into a pipe that is full at first.
os.set_blocking(write, False)
filled = 0
try:
    while True:
        filled += os.write(write, bytes(4096))
except BlockingIOError:
    os.set_blocking(write, True)
try:
    print(os.splice(connection.fileno(), write, 5000, flags=os.SPLICE_F_NONBLOCK))
    sys.exit('it had no room')
except BlockingIOError:
    pass
while filled > 0:
    filled -= len(os.read(read, filled))
assert os.splice(connection.fileno(), write, 0) == 0
got = b''
while len(got) < 5000:
    moved = os.splice(connection.fileno(), write, 5000 - len(got))
    got += os.read(read, moved)
assert got == bytes(range(250)) * 20
connection.close()
print('sent', whole.hexdigest(), flush=True)
";

const CLIENT: &str = "
import hashlib, socket, sys
whole = hashlib.sha256()
with socket.create_connection((sys.argv[1], 7100), 20) as s:
    s.sendall(bytes(range(250)) * 20)
    while data := s.recv(100000):
        whole.update(data)
print('sent', whole.hexdigest())
";

/// The client gets what the files hold, byte for byte.
fn files(network: &Network) -> Outcome {
    let address = Network::SKINK[0];
    let server = python::start(network, "the server", SERVER, &[address], "listening")?;
    let got = python::finish_on_kernel(network, "the client", CLIENT, &[address])?;
    let (status, log) = server.wait(PATIENCE)?;
    if status.success() && log.lines().any(|line| line == got.trim_end()) {
        return Ok(());
    }
    Err(Failure::Wrong(format!(
        "the server said {log:?}, the client {got:?}"
    )))
}
