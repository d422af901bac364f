use crate::harness::{ALONE, LOCAL, Net, OFFER, REMOTE, REUSE, SHARED, new_region};
use crate::settings::Settings;
use crate::state::State;
use core::sync::atomic::Ordering::Relaxed;
use skink_memory::{Adopted, Record, SocketId, TableError};
use skink_messages::{
    Component, ConnectionOption, Counter, Events, Shutdown, SocketError, TcpInput, TcpRequest,
};
use skink_wire::Endpoint;

mod frozen;
mod sockets;
mod spoilt;

const PLAIN: &str = "mss 1000 sackok";

fn all(sockets: u32) -> Adopted {
    Adopted {
        sockets,
        given_up: 0,
    }
}

/// What an idle connection's peer sees: an acknowledgement, and a segment that it must answer.
const HELLO: [&str; 2] = [". 1 ack 1", ". 0 ack 1"];

#[test]
fn each_state_goes_on() {
    // (what had happened, the state found, what the peer sees at once, what it answers, what that leads
    // to, the state then)
    type Row<'a> = (
        &'a str,
        State,
        &'a [&'a str],
        &'a [&'a str],
        &'a [&'a str],
        State,
    );
    use State::*;
    let table: [Row<'_>; 24] = [
        (
            "idle",
            Established,
            &HELLO,
            &[". 1:1001 ack 1"],
            &[". 1 ack 1001"],
            Established,
        ),
        (
            "unsent",
            Established,
            &[". 1:1001 ack 1", ". 1001:1501 ack 1"],
            &[". 1 ack 1501"],
            &[],
            Established,
        ),
        (
            "in flight",
            Established,
            &[". 1:1001 ack 1", ". 1001:2001 ack 1", ". 2001:2501 ack 1"],
            &[". 1 ack 2501"],
            &[],
            Established,
        ),
        (
            "partly acknowledged",
            Established,
            &[". 1001:2001 ack 1", ". 2001:2501 ack 1"],
            &[". 1 ack 2501"],
            &[],
            Established,
        ),
        (
            "ahead of a gap",
            Established,
            &[". 1 ack 1", ". 0 ack 1"],
            &[". 1:1001 ack 1"],
            &[". 1 ack 1001"],
            Established,
        ),
        (
            "unread, unacknowledged",
            Established,
            &[". 1 ack 101", ". 0 ack 101"],
            &[". 101:1101 ack 1"],
            &[". 1 ack 1101"],
            Established,
        ),
        (
            "fin unsent",
            FinWait1,
            &["F. 1:501 ack 1"],
            &[". 1 ack 502"],
            &[],
            FinWait2,
        ),
        (
            "fin in flight",
            FinWait1,
            &["F. 1 ack 1"],
            &[". 1 ack 2"],
            &[],
            FinWait2,
        ),
        (
            "fin in flight",
            FinWait1,
            &["F. 1 ack 1"],
            &["F. 1 ack 2"],
            &[". 2 ack 2"],
            TimeWait,
        ),
        (
            "fin in flight",
            FinWait1,
            &["F. 1 ack 1"],
            &["F. 1 ack 1"],
            &[". 2 ack 2"],
            Closing,
        ),
        (
            "fin acknowledged",
            FinWait2,
            &[". 2 ack 1", ". 1 ack 1"],
            &["F. 1 ack 2"],
            &[". 2 ack 2"],
            TimeWait,
        ),
        (
            "peer finished",
            CloseWait,
            &[". 1 ack 2", ". 0 ack 2"],
            &["F. 1 ack 1"],
            &[". 1 ack 2"],
            CloseWait,
        ),
        (
            "both finished",
            Closing,
            &["F. 1 ack 2"],
            &[". 2 ack 2"],
            &[],
            TimeWait,
        ),
        (
            "peer first",
            LastAck,
            &["F. 1 ack 2"],
            &[". 2 ack 2"],
            &[],
            Closed,
        ),
        (
            "peer first",
            LastAck,
            &["F. 1 ack 2"],
            &["F. 1 ack 1"],
            &[". 2 ack 2"],
            LastAck,
        ),
        (
            "time-wait",
            TimeWait,
            &[],
            &["F. 1 ack 2"],
            &[". 2 ack 2"],
            TimeWait,
        ),
        (
            "closed, fin in flight",
            FinWait1,
            &["F. 1 ack 1"],
            &["F. 1 ack 2"],
            &[". 2 ack 2"],
            Closed,
        ),
        (
            "closed, in flight",
            FinWait1,
            &[". 1:1001 ack 1", "F. 1001:1501 ack 1"],
            &["F. 1 ack 1502"],
            &[". 1502 ack 2"],
            Closed,
        ),
        (
            "closed, in flight",
            FinWait1,
            &[". 1:1001 ack 1", "F. 1001:1501 ack 1"],
            &[". 1:11 ack 1502"],
            &["R 1502"],
            Closed,
        ),
        (
            "closed, fin acknowledged",
            FinWait2,
            &[". 2 ack 1", ". 1 ack 1"],
            &["F. 1 ack 2"],
            &[". 2 ack 2"],
            Closed,
        ),
        (
            "fin beyond the window, in flight",
            FinWait1,
            &[". 1:1001 ack 1"],
            &[". 1 ack 1001", ". 1 ack 1002"],
            &["F. 1001 ack 1"],
            FinWait2,
        ),
        (
            "fin, no window",
            FinWait1,
            &[". 1001 ack 1", ". 1000 ack 1"],
            &[". 1 ack 1001", ". 1 ack 1002"],
            &["F. 1001 ack 1"],
            FinWait2,
        ),
        ("reset", Closed, &[], &[], &[], Closed),
        (
            "no window",
            Established,
            &[". 1001 ack 1", ". 1000 ack 1"],
            &[". 1 ack 1001"],
            &[". 1001:2001 ack 1", ". 2001:2501 ack 1"],
            Established,
        ),
    ];
    for (what, found, seen, answers, last, then) in table {
        let mut net = Net::new();
        let id = net.accepted(PLAIN, 60_000);
        arrange(&mut net, id, what);
        net.drain();
        let sockets = net.crash();
        assert_eq!(sockets, all(2), "{what}");
        net.out
            .sent
            .iter()
            .for_each(|sent| print!("{what}: {sent}; "));
        println!();
        net.expect_all(seen);
        net.expect_nothing();
        let state = net.tcp.table().find(id).map(|it| it.state.load(Relaxed));
        assert_eq!(state, Some(found as u8), "{what}");
        for answer in answers {
            net.inject(&format!("{answer} win 60000"));
        }
        net.expect_all(last);
        net.expect_nothing();
        assert_eq!(net.state(id), then, "{what}");
    }
}

fn arrange(net: &mut Net, id: SocketId, what: &str) {
    let steps: &[&str] = match what {
        "idle" => &[],
        "unsent" => &["fill 1500"],
        "in flight" => &["write 2500"],
        "partly acknowledged" => &["write 2500", ". 1 ack 1001"],
        "ahead of a gap" => &[". 501:1001 ack 1"],
        "unread, unacknowledged" => &[". 1:101 ack 1"],
        "fin unsent" => &["fill 500", "unpolled"],
        "fin in flight" => &["shutdown"],
        "fin acknowledged" => &["shutdown", ". 1 ack 2"],
        "peer finished" => &["F. 1 ack 1"],
        "both finished" => &["shutdown", "F. 1 ack 1"],
        "peer first" => &["F. 1 ack 1", "shutdown"],
        "time-wait" => &["shutdown", "F. 1 ack 2"],
        "closed, fin in flight" => &["close"],
        "closed, in flight" => &["write 1500", "close"],
        "closed, fin acknowledged" => &["close", ". 1 ack 2"],
        "reset" => &["R. 1 ack 1"],
        "no window" => &["window 1000 1", "write 1000", "window 0 1001", "write 1500"],
        "fin beyond the window, in flight" => &["window 1000 1", "write 1000", "shutdown"],
        "fin, no window" => &["window 1000 1", "write 1000", "shutdown", "window 0 1001"],
        other => panic!("no such situation: {other}"),
    };
    for step in steps {
        let mut words = step.split_whitespace();
        let count = |word: Option<&str>| word.expect("a number").parse().expect("a number");
        match words.next() {
            Some("fill") => net.fill(id, count(words.next())),
            Some("write") => net.write(id, count(words.next())),
            Some("window") => {
                let [window, ack] = [words.next(), words.next()].map(count);
                net.inject(&format!(". 1 ack {ack} win {window}"));
            }
            Some("shutdown") => net.shutdown(id),
            Some("unpolled") => {
                let request = TcpInput::Request(TcpRequest::Shutdown(id, Shutdown::Write));
                assert!(net.tcp.handle(net.now, request, &mut net.out).is_ok());
            }
            Some("close") => net.close(id),
            _ => net.inject(&format!("{step} win 60000")),
        }
    }
}

/// A predecessor died before it gave back the memory of connections that it had closed.
#[test]
fn memory_of_closed_sockets_is_given_back_by_a_successor() {
    let region = new_region(64, 1 << 19, 1 << 19);
    for slot in 0..64 {
        region.open_slot(slot, skink_memory::SocketKind::Tcp);
        region.receive_ring(slot).write(&[7; 100_000]);
        assert!(region.close_slot(slot));
    }
    let held = || {
        let [_, _, receive_rings] = region.files();
        let fd = receive_rings.try_clone_to_owned();
        let file = std::fs::File::from(fd.expect("a descriptor"));
        let metadata = file.metadata().expect("a memfd");
        std::os::unix::fs::MetadataExt::blocks(&metadata) * 512
    };
    assert!(held() > 6_000_000);
    let mut net = Net::on(region.clone());
    assert_eq!(net.crash(), all(0));
    assert!(held() < 100_000, "{}", held());
    assert_eq!(core::iter::from_fn(|| net.tcp.open().ok()).count(), 64);
}
