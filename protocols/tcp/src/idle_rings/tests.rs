use crate::harness::{Net, new_region};
use skink_memory::SocketId;
use std::fs::File;
use std::os::unix::fs::MetadataExt;

const MEBIBYTE: u32 = 1 << 20;
/// What an idle ring keeps, and the header and records beside it take.
const LITTLE: u64 = 100_000;

/// A connection, and how much memory its send rings and receive rings take.
struct Bulky {
    net: Net,
    id: SocketId,
    files: [File; 2],
    /// Up to where the peer has said something, and got something.
    said: u32,
    got: u32,
}

impl Bulky {
    fn new(beside_programs: bool) -> Bulky {
        let region = new_region(4, 4 * MEBIBYTE, 4 * MEBIBYTE);
        let [_, send, receive] = region.files();
        let files = [send, receive].map(|fd| fd.try_clone_to_owned().expect("a descriptor").into());
        let mut net = Net::on(region);
        if beside_programs {
            net.tcp.set_beside_programs();
        }
        let id = net.accepted("mss 1460 sackok ws 7", 60_000);
        Bulky {
            net,
            id,
            files,
            said: 1,
            got: 1,
        }
    }

    fn takes(&self) -> [u64; 2] {
        let blocks = |file: &File| file.metadata().expect("a file").blocks() * 512;
        self.files.each_ref().map(blocks)
    }

    /// The peer says what is in between, and that it has got as much as before.
    fn inject(&mut self, from: u32, end: u32) {
        for at in (from..end).step_by(50_000) {
            let to = (at + 50_000).min(end);
            self.net
                .inject(&format!(". {at}:{to} ack {} win 60000", self.got));
        }
    }

    fn offered(&self) -> u32 {
        let connection = self.net.connection(self.id);
        connection.rcv_nxt.distance_to(connection.rcv_adv)
    }

    /// The program sends so much, and the peer gets it.
    fn send(&mut self, count: u32) {
        self.net.write(self.id, count);
        self.deliver(count);
    }

    /// The peer gets so much of what was written, and compares it.
    fn deliver(&mut self, count: u32) {
        let all = self.got + count;
        while self.got < all {
            self.net.drain();
            self.got += self.net.connection(self.id).flight();
            let (said, got) = (self.said, self.got);
            self.net.inject(&format!(". {said} ack {got} win 60000"));
        }
    }

    /// The peer says so much more, and only then it is read.
    fn receive(&mut self, count: u32) {
        // As long as nothing is read, little is offered.
        let id = self.id;
        while self.offered() < count {
            self.inject(self.said, self.said + 50_000);
            self.said += 50_000;
            assert_eq!(self.net.read(id, 50_000), 50_000);
            self.net.advance(100);
        }
        self.inject(self.said, self.said + count);
        self.said += count;
        assert_eq!(self.net.read(id, count), count);
        self.net.advance(100);
        self.net.drain();
    }
}

#[test]
fn idle_connections_give_back_what_they_once_needed() {
    let mut it = Bulky::new(true);
    for _ in 0..2 {
        it.send(400_000);
        it.receive(300_000);
        let takes = it.takes();
        assert!(takes.iter().all(|bytes| *bytes >= 300_000), "{takes:?}");
        it.net.advance(4_000);
        it.net.advance(4_000);
        let takes = it.takes();
        assert!(takes.iter().all(|bytes| *bytes < LITTLE), "{takes:?}");
        let next = it.net.tcp.idle_rings.next_deadline();
        assert_eq!(next, None, "nobody is woken for it any more");
    }
}

/// The program is elsewhere, and may write at any moment: what it sends from is its own.
#[test]
fn a_send_ring_that_another_thread_fills_is_left_alone() {
    let mut it = Bulky::new(false);
    it.send(400_000);
    it.receive(300_000);
    it.net.advance(4_000);
    it.net.advance(4_000);
    let [send, receive] = it.takes();
    assert!(send >= 400_000 && receive < LITTLE, "{send} {receive}");
}

#[test]
fn nothing_that_is_unread_or_ahead_or_not_acknowledged_is_lost() {
    let mut it = Bulky::new(true);
    it.send(400_000);
    it.receive(300_000);
    // Ahead of what is next, and then not read.
    let from = it.said;
    it.inject(from + 100_000, from + 200_000);
    it.net.advance(4_000);
    it.net.advance(4_000);
    it.inject(from, from + 100_000);
    it.said += 200_000;
    it.net.advance(4_000);
    it.net.advance(4_000);
    assert_eq!(it.net.read(it.id, 200_000), 200_000);
    // Not acknowledged, and sent again and again.
    it.net.write(it.id, 200_000);
    it.net.advance(4_000);
    it.net.advance(4_000);
    it.deliver(200_000);
}
