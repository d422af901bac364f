//! Who sends descriptors whose closing takes as long as he likes.
use super::*;
use crate::message::Request;
use crate::server::STRANGERS_PER_USER;
use rustix::event::PollFlags;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage};
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};

/// A connection to whom nobody reads, of which the last one to close it waits for that.
fn stuck(listener: &TcpListener) -> OwnedFd {
    let address = listener.local_addr().expect("an address");
    let mut stream = TcpStream::connect(address).expect("a connection");
    let linger = Some(Duration::from_secs(600));
    rustix::net::sockopt::set_socket_linger(&stream, linger).expect("an option");
    stream.set_nonblocking(true).expect("a mode");
    while stream.write(&[0; 1 << 16]).is_ok() {}
    stream.into()
}

/// Sends a message with so many of them, and a pipe's end behind them.
fn send(
    socket: &OwnedFd,
    listener: &TcpListener,
    message: &impl serde::Serialize,
    (count, last): (usize, Option<OwnedFd>),
) {
    let bytes = serde_json::to_vec(message).expect("a message");
    send_bytes(socket, listener, &bytes, (count, last));
}

fn send_bytes(
    socket: &OwnedFd,
    listener: &TcpListener,
    bytes: &[u8],
    (count, last): (usize, Option<OwnedFd>),
) {
    let stuck = (0..count).map(|_| stuck(listener));
    let all: Vec<OwnedFd> = stuck.chain(last).collect();
    let all: Vec<BorrowedFd<'_>> = all.iter().map(AsFd::as_fd).collect();
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(128))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !all.is_empty() {
        assert!(beside.push(SendAncillaryMessage::ScmRights(&all)));
    }
    let bytes = [IoSlice::new(bytes)];
    rustix::net::sendmsg(socket, &bytes, &mut beside, SendFlags::empty()).expect("sent");
}

#[test]
fn silent_connections_of_several_users_keep_nobody_out() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can connect as several users");
    }
    let directory = Directory::new("crowd");
    let (mut server, _) = server(&directory);
    let name = server.environment()[0].1.clone();
    let connect_as = |uid: u32, count: usize| {
        let connect = || {
            let uid = rustix::process::Uid::from_raw(uid);
            // Of this thread alone.
            rustix::thread::set_thread_uid(uid).expect("root may");
            (0..count).map(|_| raw(&name)).collect::<Vec<_>>()
        };
        std::thread::scope(|scope| scope.spawn(connect).join().expect("connected"))
    };
    // More than there is room for.
    let users = 2 + usize::from(Recorder::default().capacity()) / STRANGERS_PER_USER;
    let mut others: Vec<OwnedFd> = Vec::new();
    for uid in (1001..).take(users) {
        others.extend(connect_as(uid, STRANGERS_PER_USER));
        server.serve(Instant::now());
    }
    serve(&mut server, |environment, _| {
        connect(&environment).attach().expect("it is let in");
        drop(others);
    });
}

#[test]
fn what_takes_long_to_close_holds_nobody_up() {
    for round in [
        "in a message",
        "in the queue",
        "registered",
        "in a crowd",
        "beside nothing",
        "one too many",
    ] {
        let directory = Directory::new("stuck");
        let (mut server, _) = server(&directory);
        let environment = server.environment();
        // If the server hangs the program gives up, and this ends what it hangs by.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let socket = raw(&environment[0].1);
        let nonsense = "nonsense";
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let last = Some(writer);
        // Nobody hears it yet, so the last ones to close them aren't we.
        let (mut others, mut late) = (Vec::new(), None);
        match round {
            "beside nothing" => {
                for _ in 0..2 {
                    send_bytes(&socket, &listener, b"", (2, None));
                }
            }
            "one too many" => {
                others.extend((0..STRANGERS_PER_USER).map(|_| raw(&environment[0].1)));
                let last = raw(&environment[0].1);
                send(&last, &listener, &nonsense, (2, None));
                late = Some(last);
            }
            "in a message" => send(&socket, &listener, &nonsense, (3, last)),
            "in the queue" => {
                send(&socket, &listener, &nonsense, (0, None));
                send(&socket, &listener, &nonsense, (2, last));
            }
            "in a crowd" => send(&socket, &listener, &nonsense, (50, last)),
            _ => {
                let attach = Request::Attach {
                    protocol: crate::message::PROTOCOL,
                    token: environment[1].1.clone(),
                };
                send(&socket, &listener, &attach, (0, None));
                let register = Request::Register {
                    kind: RegionKind::Counters,
                };
                send(&socket, &listener, &register, (1, last));
            }
        }
        drop(socket);
        serve(&mut server, |environment, _| {
            let _ends_later = listener;
            if let Some(late) = late {
                // It has been refused, and is told why, before or after the error that what it had said was never read.
                let mut told = String::new();
                for _ in 0..2 {
                    let mut said = [0; 200];
                    if let Ok((count, _)) = rustix::net::recv(&late, &mut said, RecvFlags::empty())
                    {
                        told += &String::from_utf8_lossy(&said[..count]);
                    }
                }
                assert!(told.contains("too many connections"), "{told}");
            }
            drop(others);
            // It takes a while until the server has heard that they are gone.
            let until = Instant::now() + Duration::from_secs(10);
            while connect(&environment).attach().is_err() {
                assert!(Instant::now() < until, "{round}");
            }
            if round == "in a message" {
                // Nor does one that is stuck hold up the others.
                let mut end = [rustix::event::PollFd::new(&reader, PollFlags::empty())];
                let limit = rustix::event::Timespec {
                    tv_sec: 10,
                    tv_nsec: 0,
                };
                let closed = rustix::event::poll(&mut end, Some(&limit));
                assert_eq!(closed, Ok(1), "the pipe isn't closed");
            }
        });
    }
}
