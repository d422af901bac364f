//! A program, as the preload library would serve it.

use super::{Peer, World, end};
use skink_memory::{SocketId, SocketTable};
use skink_messages::TcpRequest;
use skink_sockets::{
    Answer, Client, ClientError, PortOptions, Protocol, RequestBody, Routes, SocketCall,
};
use skink_wire::Endpoint;
use std::os::fd::OwnedFd;

/// What a program is handed.
pub struct Files {
    pub number: u32,
    pub secret: u64,
    pub routes: Routes,
    pub channels: Vec<OwnedFd>,
    pub tcp: SocketTable,
    pub udp: SocketTable,
}

/// What a program may write of one of its channels, and what it rings by.
pub struct Writable {
    pub requests: OwnedFd,
    pub notices: OwnedFd,
    pub bell: OwnedFd,
}

pub struct Program {
    pub number: u32,
    pub secret: u64,
    pub client: Client,
    pub tcp: SocketTable,
    pub udp: SocketTable,
    /// The page that says that it sleeps.
    pub page: OwnedFd,
    /// The pipe by which it is rung, its reading end.
    pub pipe: OwnedFd,
    /// By channel.
    pub writable: Vec<Writable>,
}

impl Files {
    pub fn writable(&self) -> Vec<Writable> {
        let clone = |fd: &OwnedFd| fd.try_clone().expect("a descriptor");
        let each = self.channels[2..].chunks_exact(6);
        each.map(|fds| Writable {
            requests: clone(&fds[0]),
            notices: clone(&fds[2]),
            bell: clone(&fds[5]),
        })
        .collect()
    }
}

impl Program {
    pub fn new(files: Files) -> Program {
        Program {
            number: files.number,
            secret: files.secret,
            page: files.channels[0].try_clone().expect("a descriptor"),
            pipe: files.channels[1].try_clone().expect("a descriptor"),
            writable: files.writable(),
            client: Client::attach(files.channels, files.routes).expect("channels"),
            tcp: files.tcp,
            udp: files.udp,
        }
    }

    pub fn ask(&mut self, call: SocketCall) -> Result<Answer, ClientError> {
        self.client.ask(call)
    }

    pub fn open(&mut self, protocol: Protocol) -> SocketId {
        let answer = self.ask(SocketCall::Open(protocol)).expect("a socket");
        answer.socket.expect("a socket")
    }

    pub fn bind(
        &mut self,
        protocol: Protocol,
        local: Endpoint,
        options: PortOptions,
    ) -> Result<(SocketId, u64), ClientError> {
        let socket = self.open(protocol);
        let answer = self.ask(SocketCall::Bind(protocol, socket, local, options))?;
        Ok((socket, answer.value))
    }

    pub fn listen(&mut self, port: u16) -> SocketId {
        let local = end("0.0.0.0", port);
        let bound = self.bind(Protocol::Tcp, local, PortOptions::default());
        let (socket, _) = bound.expect("a free port");
        self.ask(SocketCall::Listen(socket, 16)).expect("listens");
        socket
    }

    pub fn tell(&mut self, body: RequestBody) {
        self.client.tell(body).expect("room");
        self.client.flush();
    }

    pub fn close(&mut self, socket: SocketId) {
        self.tell(RequestBody::Call(SocketCall::Close(Protocol::Tcp, socket)));
    }

    /// Takes a connection, if one was offered.
    pub fn accept(&mut self, listener: SocketId) -> Option<SocketId> {
        self.client.poll().expect("a good channel");
        let accepted = self.client.accept(listener, |it| self.tcp.take_offer(it));
        let accepted = accepted.expect("room");
        self.client.flush();
        accepted
    }

    /// Sends back what has come; answers how much.
    pub fn echo(&mut self, socket: SocketId) -> usize {
        let mut bytes = [0; 4096];
        let room = self.tcp.send_ring(socket.slot).free().min(bytes.len());
        let got = self.tcp.receive_ring(socket.slot).read(&mut bytes[..room]);
        if got > 0 {
            self.tell(RequestBody::Tcp(TcpRequest::Received(socket)));
            assert_eq!(self.write(socket, &bytes[..got]), got);
        }
        got
    }

    pub fn write(&mut self, socket: SocketId, bytes: &[u8]) -> usize {
        let wrote = self.tcp.send_ring(socket.slot).write(bytes);
        self.tell(RequestBody::Tcp(TcpRequest::Sent(socket)));
        wrote
    }
}

/// Connects the peer to a listening program, which accepts.
pub fn connect(
    world: &mut World,
    program: &mut Program,
    listener: SocketId,
    port: u16,
) -> (SocketId, SocketId) {
    let theirs = world.peer.connect(port);
    let mut accepted = None;
    world.until("a connection", |peer| {
        accepted = accepted.or_else(|| program.accept(listener));
        accepted.is_some() && peer.is_established(theirs)
    });
    (theirs, accepted.expect("accepted"))
}

/// Sends so many bytes to and fro, and checks them.
pub fn exchange(
    world: &mut World,
    program: &mut Program,
    theirs: SocketId,
    ours: SocketId,
    bytes: usize,
) {
    let byte = |at: usize| (at * 31 % 251) as u8;
    let (mut sent, mut got) = (0, 0);
    world.until("the echo", |peer: &mut Peer| {
        let next: Vec<u8> = (sent..bytes.min(sent + 4096)).map(byte).collect();
        if !next.is_empty() {
            sent += peer.write(theirs, &next);
        }
        program.client.poll().expect("a good channel");
        program.echo(ours);
        for received in peer.read(theirs) {
            assert_eq!(received, byte(got), "byte {got}");
            got += 1;
        }
        got == bytes
    });
}
