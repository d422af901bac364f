//! A peer that is far away, on a way that loses nothing: more is under way at a time than rings hold in the beginning, and every
//! byte arrives.

use super::{on, once_in_each_topology, python};
use crate::network::{Network, Plan};
use crate::{Case, Outcome};
use skink_testbed::Impairments;
use std::time::Duration;

pub fn cases() -> Vec<Case> {
    let impairments = Impairments {
        loss: 0,
        duplicate: 0,
        reorder: 0,
        delay: Duration::from_millis(10),
    };
    let case = |(topology, back_end)| {
        let plan = Plan::impaired(topology, back_end, impairments);
        on(plan, &plan.prefixed("far/both-ways"), both_ways)
    };
    once_in_each_topology().into_iter().map(case).collect()
}

/// Receives, doesn't read for a while once much has come, and sends as much. What waits to be read, and what is to be sent and
/// acknowledged, must each have been half as much again as rings hold in the beginning.
const SERVER: &str = "
import fcntl, select, socket, struct, termios
BYTES, MUCH = 48 << 20, 3 << 19
def waits(s, request):
    return struct.unpack('i', fcntl.ioctl(s, request, bytes(4)))[0]
listener = socket.create_server(('', 9600))
print('ready', flush=True)
s, _ = listener.accept()
data = bytearray()
def take(until):
    while len(data) < until:
        data.extend(s.recv(until - len(data)))
take(BYTES // 2)
while waits(s, termios.FIONREAD) < MUCH:
    select.select([], [], [], 0.01)
take(BYTES)
most = 0
for start in range(0, BYTES, 1 << 16):
    s.sendall(data[start:start + (1 << 16)])
    most = max(most, waits(s, termios.TIOCOUTQ))
assert most > MUCH, most
assert s.recv(1) == b''
";

const CLIENT: &str = "
import random, socket, sys
data = random.Random(9).randbytes(48 << 20)
s = socket.create_connection((sys.argv[1], 9600))
s.sendall(data)
back = bytearray()
while len(back) < len(data):
    piece = s.recv(1 << 20)
    assert piece, len(back)
    back += piece
assert back == data
";

fn both_ways(network: &Network) -> Outcome {
    let server = python::start(network, "server", SERVER, &[], "ready")?;
    python::asked(network, server, CLIENT, &[Network::SKINK[0]])
}
