//! A stack that keeps no state of connections, for comparison.
use super::names;
use crate::network::{Network, Plan};
use crate::{Case, Failure, Outcome, Topology};
use rustix::process::Signal;
use skink_testbed::Process;

pub fn case(plan: Plan) -> Case {
    Case::new(plan.prefixed("parts/stateless"), move || {
        let network = Network::with(plan, &["--recovery", "stateless"])?;
        killed(&network)?;
        network.stop()
    })
}

/// Says how each connection ended.
const SERVER: &str = "
import socket
s = socket.socket()
s.bind(('10.9.0.2', 80))
s.listen()
while True:
    c, _ = s.accept()
    c.send(b'x')
    try:
        how = c.recv(1)
    except ConnectionResetError:
        how = 'reset'
    print('ended by', how, flush=True)
";

const CLIENT: &str = "
import socket
for attempt in range(3):
    c = socket.create_connection(('10.9.0.2', 80))
    c.recv(1)
    print('connected', flush=True)
    try:
        how = c.recv(1)
    except ConnectionResetError:
        how = 'reset'
    print('ended by', how, flush=True)
";

/// When `tcp` is killed, both ends of a connection hear that it is reset, and the server accepts the next one.
fn killed(network: &Network) -> Outcome {
    let names = names(network)?;
    let tcp = match network.plan.topology {
        Topology::Split => "tcp",
        Topology::Library | Topology::Single => names.first().map_or("", String::as_str),
    };
    let command = network.skink_run("python3", ["-c", SERVER])?;
    let server = Process::spawn(command, "a server")?;
    network.wait_for(&server, Network::SKINK[0], 80)?;
    // That one ended by itself: by a reset, if the server's greeting came too late to be read.
    server.wait_until("it is alone again", || server.log().contains("ended by"))?;
    let resets = |end: &Process| end.log().matches("ended by reset").count();
    let before = resets(&server);
    let mut command = network.kernel.command("python3");
    command.args(["-c", CLIENT]);
    let client = Process::spawn(command, "a client")?;
    for round in 1..=2 {
        let connected = || client.log().matches("connected").count() == round;
        client.wait_until("it is connected", connected)?;
        network.replace(tcp, Signal::KILL)?;
        for (end, before) in [(&client, 0), (&server, before)] {
            let told = || resets(end) == before + round;
            end.wait_until("it hears of the reset", told)?;
        }
    }
    let connected = || client.log().matches("connected").count() == 3;
    client.wait_until("it is connected once more", connected)?;
    match server.log().matches("ended by").count() {
        3 => Ok(()),
        _ => Err(Failure::Wrong(server.log())),
    }
}
