//! Datagrams that are under way when the packet filter dies.
use crate::network::Network;
use crate::{Failure, Outcome};
use rustix::process::Signal;
use skink_testbed::Process;

/// Nothing comes in but what was asked for.
pub const RULES: &str = "
block in all
pass out inet proto udp all keep state
";

/// Asks, waits for a line on its standard input, and asks for the answer.
const CLIENT: &str = "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(15)
s.bind(('10.9.0.2', 4000))
s.sendto(b'question', ('10.9.0.1', 5353))
print('asked', flush=True)
print('heard', s.recv(100), flush=True)
";

/// Answers when the file is there: to who asked, and from another port than was asked.
const SERVER: &str = "
import os, socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('10.9.0.1', 5353))
other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
other.bind(('10.9.0.1', 5354))
print('bound', flush=True)
_, peer = s.recvfrom(100)
print('was asked', flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
other.sendto(b'intruder', peer)
s.sendto(b'answer', peer)
";

/// The answer to a question that was asked before gets through afterwards, and nothing else does.
pub fn datagrams(network: &Network) -> Outcome {
    let scratch = skink_testbed::Scratch::new("answer")?;
    let sign = scratch.path().join("now");
    let mut command = network.kernel.command("python3");
    command.args(["-c", SERVER]).arg(&sign);
    let server = Process::spawn(command, "a server")?;
    server.wait_until("it is bound", || server.log().contains("bound"))?;
    let command = network.skink_run("python3", ["-c", CLIENT])?;
    let client = Process::spawn(command, "a client")?;
    server.wait_until("it was asked", || server.log().contains("was asked"))?;
    network.replace("filter", Signal::KILL)?;
    network.replace("udp", Signal::KILL)?;
    network.replace("filter", Signal::KILL)?;
    std::fs::write(&sign, "")?;
    client.wait_until("it has an answer", || client.log().contains("heard"))?;
    match client.log().contains("heard b'answer'") {
        true => Ok(()),
        false => Err(Failure::Wrong(client.log())),
    }
}
