//! Output that is held back leaves, whatever the program does next.

use super::{everywhere, python};
use crate::network::Network;
use crate::{Case, Failure, Outcome};

pub fn cases() -> Vec<Case> {
    everywhere("held", answers_of_a_program_that_computes)
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
