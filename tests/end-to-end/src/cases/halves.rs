//! A socket that listens on every address listens in the kernel too, on the kernel's own addresses: `accept` takes from
//! both halves, whether it waits or not.

use super::{everywhere, python};
use crate::network::Network;
use crate::site::PATIENCE;
use crate::{Case, Failure, Outcome};

pub fn cases() -> Vec<Case> {
    everywhere("accept-from-both", both)
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
