//! What a program does to bells.
use super::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Whether the process of the stack is rung.
fn is_rung(server: &Server) -> bool {
    let mut bell = [PollFd::from_borrowed_fd(server.bell(), PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut bell, Some(&now)) == Ok(1)
}

#[test]
fn a_bell_that_its_program_made_blocking_and_emptied_holds_nobody_up() {
    let (_client, mut server, _sleeper) = channel();
    rustix::fs::fcntl_setfl(server.bell(), rustix::fs::OFlags::empty()).expect("flags");
    server.hush();
    assert!(!is_rung(&server));
}

#[test]
fn a_program_cant_take_back_what_another_rang() {
    let stack = SleeperDescriptors::create("stack").expect("memory");
    let [good, bad] = [(); 2].map(|()| ChannelParts::create(1).expect("memory"));
    let of_program = |it: &ChannelParts| it.for_program(&[&stack]).expect("descriptors");
    let mut client = Client::attach(of_program(&good), Routes::SINGLE).expect("a channel");
    let server = Server::attach(good.for_stack(0).expect("descriptors")).expect("a channel");
    let sleeper = stack.sleeper().expect("descriptors");
    let mut sleeper = Sleeper::attach(sleeper, SpinBudget::new(0)).expect("a sleeper");
    sleeper.announce();
    let close = SocketCall::Close(Protocol::Tcp, id(1));
    client.tell(RequestBody::Call(close)).expect("room");
    client.flush();
    for fd in of_program(&bad) {
        rustix::io::ioctl_fionbio(&fd, true).expect("FIONBIO");
        let _ = rustix::io::read(&fd, &mut [0; 8]);
    }
    assert!(is_rung(&server));
}
