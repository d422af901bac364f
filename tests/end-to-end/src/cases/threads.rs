//! Several threads of a program, each with an epoll set of its own.

use super::{cases_in, python};
use crate::network::Network;
use crate::{BackEnd, Case, Failure, Outcome, Topology};

pub fn cases() -> Vec<Case> {
    let places = [BackEnd::Packet, BackEnd::Xdp].map(|back_end| (Topology::Library, back_end));
    cases_in(&places, "threads/woken-for-their-own", woken)
}

/// One thread accepts; the other answers, and computes when it is told to, until one more connection is accepted.
const SERVER: &str = "
import os, select, socket, threading
listener = socket.create_server(('10.9.0.2', 9100))
accepts, answers = select.epoll(), select.epoll()
accepts.register(listener, select.EPOLLIN)
connections = {}
def accept():
    while True:
        accepts.poll()
        c, _ = listener.accept()
        connections[c.fileno()] = c
        answers.register(c, select.EPOLLIN)
def sleeps_of_the_one_that_accepts():
    with open(f'/proc/self/task/{os.getpid()}/status') as status:
        return [line.split()[1] for line in status if line.startswith('voluntary')][0]
def answer():
    while True:
        for fd, _ in answers.poll():
            word = connections[fd].recv(64)
            if word == b'compute':
                there = len(connections)
                while len(connections) == there:
                    pass
            if not word:
                answers.unregister(fd)
            connections[fd].send(sleeps_of_the_one_that_accepts().encode() if word == b'sleeps' else word)
threading.Thread(target=answer, daemon=True).start()
print('ready', flush=True)
accept()
";

const CLIENT: &str = "
import socket
c = socket.create_connection(('10.9.0.2', 9100))
def ask(word):
    c.sendall(word)
    return c.recv(64)
before = int(ask(b'sleeps'))
for _ in range(1000):
    assert ask(b'ping') == b'ping'
print(int(ask(b'sleeps')) - before)
c.sendall(b'compute')
other = socket.create_connection(('10.9.0.2', 9100))
assert c.recv(64) == b'compute'
";

/// A thread isn't woken for the frames of another one, again and again; but it is for its own, though that one computes.
fn woken(network: &Network) -> Outcome {
    let server = python::start(network, "a server", SERVER, &[], "ready")?;
    let woken = python::finish_on_kernel(network, "a client", CLIENT, &[])?;
    server.stop()?;
    match woken.trim().parse() {
        Ok(0..100) => Ok(()),
        _ => Err(Failure::Wrong(format!(
            "for 1000 requests to another thread the one that accepts woke up so often: {woken}"
        ))),
    }
}
