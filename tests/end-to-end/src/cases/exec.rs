//! A program that executes itself anew, and inherits no socket.

use super::{PLACES, cases_in, python};
use crate::network::Network;
use crate::{Case, Failure, Outcome};

pub fn cases() -> Vec<Case> {
    cases_in(&PLACES, "exec/ports-are-free", ports_are_free)
}

/// Answers one client, then the next image does.
const SERVER: &str = "
import os, socket, sys
image = int(sys.argv[1])
listener = socket.create_server(('10.9.0.2', 9100))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(('10.9.0.2', 9101))
print(f'image {image}', flush=True)
c, _ = listener.accept()
data, client = udp.recvfrom(64)
c.sendall(b'image %d, ' % image)
udp.sendto(data, client)
if c.recv(64) == b'next':
    os.execv(sys.executable, [sys.executable, '-c', sys.orig_argv[2], str(image + 1)])
";

/// Sends its datagram until it is answered: in `library` the server's socket hears from when on it receives.
const CLIENT: &str = "
import socket, sys
c = socket.create_connection(('10.9.0.2', 9100))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.settimeout(0.2)
udp.connect(('10.9.0.2', 9101))
for _ in range(100):
    try:
        udp.send(b'echo')
        echo = udp.recv(64)
        break
    except (TimeoutError, ConnectionRefusedError):
        pass
print(c.recv(64).decode() + echo.decode(), end='')
c.sendall(sys.argv[1].encode())
try:
    assert c.recv(64) == b''
except ConnectionResetError:
    # Its stack has gone with the image.
    assert sys.argv[2] == 'library'
";

/// The next image listens on the same ports, at once.
fn ports_are_free(network: &Network) -> Outcome {
    let topology = network.plan.topology.to_string();
    let server = python::start(network, "server", SERVER, &["0"], "image 0")?;
    for (image, word) in ["next", "next", "last"].into_iter().enumerate() {
        server.wait_until("the next image listens", || {
            server.log().contains(&format!("image {image}"))
        })?;
        let said = python::finish_on_kernel(network, "client", CLIENT, &[word, &topology])?;
        if said != format!("image {image}, echo") {
            let wrong = format!("a client of image {image} was told {said:?}");
            return Err(Failure::Wrong(wrong));
        }
    }
    Ok(())
}
