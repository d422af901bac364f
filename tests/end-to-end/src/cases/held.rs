//! A program computes: what was held back leaves, and what comes meanwhile is answered.

use super::{cases_in, everywhere, python};
use crate::network::Network;
use crate::{BackEnd, Case, Failure, Outcome, Topology};

pub fn cases() -> Vec<Case> {
    let mut cases = everywhere("held", answers_of_a_program_that_computes);
    let places = [BackEnd::Packet, BackEnd::Xdp].map(|back_end| (Topology::Library, back_end));
    cases.extend(cases_in(
        &places,
        "held/after-a-long-sleep",
        after_a_long_sleep,
    ));
    cases
}

/// Answers each question on two connections by two calls; after the last one it never makes a call again.
const SERVER: &str = "
import select, socket, sys
listener = socket.create_server((sys.argv[1], 7000))
print('listening', flush=True)
connections = {}
poll = select.epoll()
for _ in range(2):
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connections[connection.fileno()] = connection
    poll.register(connection, select.EPOLLIN)
last = 0
while last < 2:
    for number, _ in poll.poll():
        question = connections[number].recv(1)
        connections[number].send(question)
        connections[number].send(b'.')
        last += question == b'!'
print('computing', flush=True)
while True:
    pass
";

/// Asks on both connections at a time, often enough for the server to be known as a busy one.
const CLIENT: &str = "
import socket, sys
connections = [socket.create_connection((sys.argv[1], 7000), 10) for _ in range(2)]
for round in range(1001):
    question = b'?' if round < 1000 else b'!'
    for connection in connections:
        connection.send(question)
    for answers in [connection.makefile('rb', 0) for connection in connections]:
        answer = answers.read(1) + answers.read(1)
        if answer != question + b'.':
            sys.exit(f'{question} of round {round} was answered by {answer}')
";

fn answers_of_a_program_that_computes(network: &Network) -> Outcome {
    let address = Network::SKINK[0];
    let server = python::start(network, "the server", SERVER, &[address], "listening")?;
    python::finish_on_kernel(network, "the client", CLIENT, &[address])?;
    match server.log().contains("computing") {
        true => Ok(()),
        false => Err(Failure::Wrong(
            "the server has not come to compute".to_owned(),
        )),
    }
}

/// Sleeps in a call until something comes, and never makes one again.
const SLEEPER: &str = "
import os, select, socket, sys
listener = socket.create_server((sys.argv[1], 7000))
print('listening', os.getpid(), flush=True)
way = sys.argv[2]
if way == 'accept':
    listener.accept()
elif way == 'recv':
    connection, _ = listener.accept()
    connection.recv(1)
else:
    poll = select.poll() if way == 'poll' else select.epoll()
    poll.register(listener, select.POLLIN)
    poll.poll()
print('computing', flush=True)
while True:
    pass
";

/// Ends the sleep when the library's thread, which looks after the stack while the program doesn't, sleeps until it is
/// told otherwise (it is in `ppoll`, 271, without a timeout).
const RATHER_LATE: &str = "
import glob, socket, sys, time
address, way, server = sys.argv[1:]
connection = socket.create_connection((address, 7000), 10) if way == 'recv' else None
def thread():
    tasks = glob.glob(f'/proc/{server}/task/*')
    return next((task for task in tasks if open(f'{task}/comm').read() == 'skink\\n'), None)
def call():
    try:
        helper = thread()
        return open(f'{helper}/syscall').read().split() if helper else ['none']
    except OSError:
        return ['ended']
limit = time.monotonic() + 10
while not (call()[0] == '271' and call()[3:4] == ['0x0']):
    if time.monotonic() > limit:
        sys.exit(f'the thread never sleeps for good: {call()}')
    time.sleep(0.01)
if connection:
    connection.send(b'.')
else:
    socket.create_connection((address, 7000), 10)
";

const ONE_MORE: &str = "
import socket, sys
socket.create_connection((sys.argv[1], 7000), 10)
";

fn after_a_long_sleep(network: &Network) -> Outcome {
    let address = Network::SKINK[0];
    for way in ["accept", "recv", "poll", "epoll"] {
        let name = format!("a server in {way}");
        let server = python::start(network, &name, SLEEPER, &[address, way], "listening")?;
        let said = server.log();
        let id = said.split_whitespace().next_back().unwrap_or_default();
        let name = format!("a client of {name}");
        python::finish_on_kernel(network, &name, RATHER_LATE, &[address, way, id])?;
        server.wait_until("it computes", || server.log().contains("computing"))?;
        python::finish_on_kernel(network, &name, ONE_MORE, &[address])?;
        server.stop()?;
    }
    Ok(())
}
