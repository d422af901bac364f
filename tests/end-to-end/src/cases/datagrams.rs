//! Echo requests and UDP, also in fragments.

use super::{everywhere, python};
use crate::network::Network;
use crate::site::PATIENCE;
use crate::{Case, Failure, Outcome};
use skink_testbed::Process;

pub fn cases() -> Vec<Case> {
    let mut cases = everywhere("ping", ping);
    cases.extend(everywhere("udp/echo", udp_echo));
    cases
}

/// A program that answers each datagram with the same, on the address given.
pub const SERVER: &str = "
import socket, sys
s = socket.socket(socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 5353))
print('bound', flush=True)
while True:
    data, peer = s.recvfrom(65536)
    s.sendto(data, peer)
";

/// Asks it, with sizes around every bound; each answer must be the question.
const CLIENT: &str = "
import socket, sys, random
s = socket.socket(socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(2)
s.connect((sys.argv[1], 5353))
for size in [0, 1, 2, 511, 1400, 1452, 1453, 1472, 1473, 3000, 8972, 20000, 60001]:
    data = random.Random(size).randbytes(size)
    for attempt in range(5):
        try:
            s.send(data)
            answer = s.recv(65536)
            break
        except (TimeoutError, ConnectionRefusedError):
            continue
    else:
        sys.exit(f'no answer to {size} bytes')
    if answer != data:
        sys.exit(f'{size} bytes came back as {len(answer)}')
";

fn udp_echo(network: &Network) -> Outcome {
    for address in Network::SKINK {
        let server = python::start(network, "the echo server", SERVER, &[address], "bound")?;
        let name = format!("the echo client of {address}");
        let asked = python::finish_on_kernel(network, &name, CLIENT, &[address]);
        if let Err(Failure::Wrong(what)) = asked {
            let said = server.log();
            return Err(Failure::Wrong(format!(
                "{what}\nthe server printed:\n{said}"
            )));
        }
    }
    // The other way round.
    for address in Network::KERNEL {
        let mut server = network.kernel.command("python3");
        server.args(["-c", SERVER, address]);
        let server = Process::spawn(server, "the echo server")?;
        server.wait_until("it is bound", || server.log().contains("bound"))?;
        let client = network.skink_run("python3", ["-c", CLIENT, address])?;
        Network::finish(
            client,
            &format!("the echo client on Skink of {address}"),
            PATIENCE,
        )?;
    }
    Ok(())
}

fn ping(network: &Network) -> Outcome {
    // Any program that has a socket makes Skink answer for its address.
    let server = network.skink_run(
        "python3",
        ["-m", "http.server", "8000", "--bind", "0.0.0.0"],
    )?;
    let server = Process::spawn(server, "python's http.server on Skink")?;
    network.wait_for(&server, Network::SKINK[0], 8000)?;
    for address in Network::SKINK {
        for size in ["56", "1472", "5000", "40000"] {
            let mut ping = network.kernel.command("ping");
            ping.args(["-c", "3", "-i", "0.05", "-W", "2", "-s", size, address]);
            let said = Network::finish(
                ping,
                &format!("ping of {address} with {size} bytes"),
                PATIENCE,
            )?;
            if !said.contains("3 received") || said.contains("DUP") {
                return Err(Failure::Wrong(said));
            }
        }
    }
    Ok(())
}
