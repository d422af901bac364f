use crate::harness::{LOCAL, Net, SHARED};
use crate::state::State;
use skink_memory::SocketId;
use skink_messages::{ConnectionOption, Counter, Events, Waits};
use skink_wire::Endpoint;

/// As [`two_listeners`], of which the second one has some connections that wait. Answers how many.
fn one_is_behind() -> (Net, SocketId, SocketId, usize) {
    let (mut net, first, behind) = two_listeners();
    connect(&mut net, 1..21);
    serve_all(&mut net, first);
    let [_, left] = waiting(&net, [first, behind]);
    (net, first, behind, left)
}

/// A listener each in region 0 and in another one, on one end.
fn two_listeners() -> (Net, SocketId, SocketId) {
    let mut net = Net::new();
    let region = net.add_region(64);
    let idle = net.listen_in(region, 80, 100, SHARED);
    let busy = net.listen_in(0, 80, 100, SHARED);
    (net, idle, busy)
}

/// Peers connect from these ports, and send ten bytes each.
fn connect(net: &mut Net, ports: core::ops::Range<u16>) {
    connect_to(net, 80, ports);
}

fn connect_to(net: &mut Net, local_port: u16, ports: core::ops::Range<u16>) {
    net.local_port = local_port;
    for port in ports {
        net.remote_port = port;
        net.inject("S 0 win 60000 mss 1000");
        net.inject(". 1 ack 1 win 60000");
        net.inject(". 1:11 ack 1 win 60000");
        net.drain();
    }
}

fn take_all(net: &mut Net, listener: SocketId) -> Vec<SocketId> {
    core::iter::from_fn(|| net.tcp.accept(listener)).collect()
}

/// Accepts all that wait at a listener, and ends them.
fn serve_all(net: &mut Net, listener: SocketId) {
    let all = take_all(net, listener);
    finish(net, all);
}

/// Accepted connections end.
fn finish(net: &mut Net, all: Vec<SocketId>) {
    for id in all {
        let tuple = net.tcp.table().record(id.slot).four_tuple();
        net.remote_port = tuple.remote.port;
        net.inject("R. 11 ack 1");
        net.close(id);
    }
}

fn waiting(net: &Net, listeners: [SocketId; 2]) -> [usize; 2] {
    listeners.map(|it| net.tcp.acceptable(it) + net.tcp.offered(it))
}

#[test]
fn what_a_program_does_not_accept_goes_to_one_that_does() {
    let (mut net, idle, busy) = two_listeners();
    connect(&mut net, 1..21);
    let own = take_all(&mut net, busy).len();
    let [left, _] = waiting(&net, [idle, busy]);
    assert!(left > 3 && own > 3, "{left} {own}");
    let offered = [0; 2].map(|_| net.tcp.offer(idle).expect("one waits"));
    net.advance(249);
    assert_eq!(waiting(&net, [idle, busy]), [left, 0]);
    net.advance(2);
    assert_eq!(waiting(&net, [idle, busy]), [0, left]);
    assert_eq!(net.count(Counter::TcpStalled), 1);
    for id in offered {
        assert!(!net.tcp.table().take_offer(id), "it is another's");
    }
    let mut ports = Vec::new();
    for id in take_all(&mut net, busy) {
        let tuple = net.tcp.table().record(id.slot).four_tuple();
        ports.push(tuple.remote.port);
        net.remote_port = tuple.remote.port;
        assert_eq!(net.state(id), State::Established);
        assert_eq!(net.read(id, 100), 10);
    }
    assert!(ports.is_sorted(), "in their order: {ports:?}");
    // So do new ones, at once.
    connect(&mut net, 100..120);
    assert_eq!(waiting(&net, [idle, busy]), [0, 20]);
}

#[test]
fn a_stalled_listener_is_tried_again_less_and_less_often() {
    let (mut net, idle, busy) = two_listeners();
    let mut port = 1;
    let mut more = |net: &mut Net| {
        connect(net, port..port + 20);
        port += 20;
        serve_all(net, busy);
        let [left, _] = waiting(net, [idle, busy]);
        left
    };
    assert!(more(&mut net) > 1);
    net.advance(251);
    serve_all(&mut net, busy);
    for pause in [1_000, 2_000, 4_000, 8_000, 16_000, 16_000] {
        assert_eq!(more(&mut net), 0, "after {pause}");
        net.advance(pause - 2);
        assert_eq!(more(&mut net), 0, "after {pause}");
        net.advance(3);
        assert_eq!(more(&mut net), 1, "just to see, after {pause}");
        net.advance(251);
        assert_eq!(waiting(&net, [idle, busy]), [0, 1]);
        serve_all(&mut net, busy);
    }
    // It accepts again, and has its share.
    net.advance(17_000);
    assert_eq!(more(&mut net), 1);
    assert!(net.tcp.accept(idle).is_some());
    assert!(more(&mut net) > 3);
}

#[test]
fn what_the_program_is_taking_stays_with_it() {
    let (mut net, idle, busy) = two_listeners();
    connect(&mut net, 1..21);
    take_all(&mut net, busy);
    let [left, _] = waiting(&net, [idle, busy]);
    let first = net.tcp.offer(idle).expect("one waits");
    // It has taken it, and is stopped before it can say so.
    assert!(net.tcp.table().take_offer(first));
    net.advance(1_000);
    assert_eq!(waiting(&net, [idle, busy]), [1, left - 1]);
    net.tcp.accepted(first);
    assert_eq!(net.tcp.offered(idle), 0);
    assert_eq!(net.read(first, 100), 10);
    let at = net.count(Counter::TcpStalled);
    take_all(&mut net, busy);
    connect(&mut net, 100..120);
    let [left, _] = waiting(&net, [idle, busy]);
    assert!(left > 3, "it accepts");
    assert_eq!(net.count(Counter::TcpStalled), at);
}

/// Nobody accepts: nothing goes to and fro, until somebody does or begins to listen.
#[test]
fn if_all_are_stalled_what_waits_stays_where_it_is() {
    let (mut net, one, other) = two_listeners();
    connect(&mut net, 1..21);
    let before = waiting(&net, [one, other]);
    net.advance(60_000);
    assert_eq!(waiting(&net, [one, other]), before);
    assert!(net.tcp.accept(one).is_some());
    net.advance(1);
    assert_eq!(waiting(&net, [one, other]), [19, 0]);
    net.advance(60_000);
    assert_eq!(waiting(&net, [one, other]), [18, 1], "one, just to see");
    let region = net.add_region(64);
    let third = net.listen_in(region, 80, 100, SHARED);
    net.advance(1);
    // It is given more as it accepts.
    let taken = take_all(&mut net, third);
    assert!(!taken.is_empty());
    net.advance(251);
    let more = take_all(&mut net, third);
    assert_eq!(taken.len() + more.len(), 19);
    assert_eq!(waiting(&net, [one, other]), [0, 0]);
}

/// Who listened alone, and accepts nothing, shares from then on.
#[test]
fn what_waits_at_a_lone_listener_goes_to_who_listens_later() {
    let mut net = Net::new();
    let region = net.add_region(64);
    let alone = net.listen_in(region, 80, 100, SHARED);
    connect(&mut net, 1..4);
    net.advance(10_000);
    assert_eq!(net.count(Counter::TcpStalled), 0);
    let later = net.listen_in(0, 80, 100, SHARED);
    net.advance(1);
    assert_eq!(waiting(&net, [alone, later]), [3, 0], "it may just be slow");
    net.advance(251);
    assert_eq!(waiting(&net, [alone, later]), [0, 3]);
}

/// In turns, so that nobody else waits for long, and as they are accepted.
#[test]
fn a_long_queue_goes_in_turns() {
    let mut net = Net::new();
    let region = net.add_region(64);
    let idle = net.listen_in(region, 80, 100, SHARED);
    connect(&mut net, 1..61);
    let busy = net.listen_in(0, 80, 100, SHARED);
    net.advance(1);
    net.advance(251);
    assert_eq!(waiting(&net, [idle, busy]), [28, 32]);
    net.advance(100);
    assert_eq!(waiting(&net, [idle, busy]), [28, 32], "it accepts none");
    serve_all(&mut net, busy);
    net.advance(251);
    assert_eq!(waiting(&net, [idle, busy]), [0, 28]);
}

#[test]
fn what_finds_no_room_is_offered_to_its_program_again() {
    let mut net = Net::new();
    let region = net.add_region(64);
    let idle = net.listen_in(region, 80, 100, SHARED);
    connect(&mut net, 1..7);
    let offered = [0; 4].map(|_| net.tcp.offer(idle).expect("one waits"));
    let small = net.listen_in(0, 80, 1, SHARED);
    net.advance(1);
    net.events(idle);
    // The next turn finds that there is no room.
    net.advance(262);
    assert_eq!(waiting(&net, [idle, small]), [4, 2]);
    assert!(net.events(idle).contains(Events::READABLE));
    let own = offered.map(|id| net.tcp.table().take_offer(id));
    assert_eq!(own, [false; 4], "all were withdrawn");
    let again = net.tcp.offer(idle).expect("one waits");
    assert_eq!(again, offered[2]);
    assert!(net.tcp.table().take_offer(again));
    net.tcp.accepted(again);
    assert_eq!(waiting(&net, [idle, small]), [3, 2]);
}

/// Who has room for few is given more as soon as it has accepted those.
#[test]
fn a_small_queue_is_filled_again_and_again() {
    let mut net = Net::new();
    let region = net.add_region(64);
    let idle = net.listen_in(region, 80, 100, SHARED);
    connect(&mut net, 1..41);
    let small = net.listen_in(0, 80, 4, SHARED);
    net.advance(252);
    let mut taken = 0;
    for _ in 0..8 {
        let some = take_all(&mut net, small);
        assert_eq!(some.len(), 5, "after {taken}");
        taken += some.len();
        net.advance(251);
    }
    assert_eq!((taken, waiting(&net, [idle, small])), (40, [0, 0]));
}

/// Both are of one program: what was withdrawn from the first, and not given away before the second is stalled too.
#[test]
fn what_stays_is_offered_to_its_program_again() {
    let mut net = Net::new();
    let region = net.add_region(64);
    let one = net.listen_in(region, 80, 100, SHARED);
    connect(&mut net, 1..51);
    while net.tcp.offered(one) < 40 {
        net.tcp.offer(one).expect("one waits");
    }
    let other = net.listen_in(region, 80, 100, SHARED);
    net.advance(252);
    assert_eq!(waiting(&net, [one, other]), [18, 32]);
    net.events(one);
    net.advance(1_000);
    assert_eq!(waiting(&net, [one, other]), [18, 32]);
    assert!(net.events(one).contains(Events::READABLE));
}

/// Its program's region is adopted first, when nobody else seems to listen.
#[test]
fn a_successor_looks_after_whom_it_adopts_first() {
    let mut net = Net::new();
    let idle = net.listen_in(0, 80, 100, SHARED);
    connect(&mut net, 1..6);
    let region = net.add_region(64);
    let busy = net.listen_in(region, 80, 100, SHARED);
    net.crash();
    net.drain();
    assert_eq!(waiting(&net, [idle, busy]), [5, 0]);
    net.advance(252);
    assert_eq!(waiting(&net, [idle, busy]), [0, 5]);
}

/// A predecessor died when it had withdrawn one, and before the program could say that it has taken another.
#[test]
fn a_successor_goes_by_what_the_program_has_taken() {
    let (mut net, idle, busy) = two_listeners();
    connect(&mut net, 1..21);
    take_all(&mut net, busy);
    let [left, _] = waiting(&net, [idle, busy]);
    let [withdrawn, taken] = [0; 2].map(|_| net.tcp.offer(idle).expect("one waits"));
    let table = net.tcp.table().clone();
    assert!(table.withdraw(withdrawn) && table.take_offer(taken));
    net.crash();
    net.drain();
    assert_eq!(waiting(&net, [idle, busy]), [left, 0]);
    // It offers both again.
    let again = [0; 2].map(|_| net.tcp.offer(idle).expect("one waits"));
    assert_eq!(again, [withdrawn, taken]);
    net.advance(1_000);
    assert_eq!(waiting(&net, [idle, busy]), [1, left - 1]);
    net.tcp.accepted(taken);
    assert_eq!(net.read(taken, 100), 10);
}

/// However many are stalled at the same time: others aren't held up for longer by that.
#[test]
fn several_queues_go_in_turns_as_one_does() {
    let mut net = Net::new();
    let region = net.add_region(64);
    let ports = [80, 81];
    let idle = ports.map(|port| net.listen_in(region, port, 100, SHARED));
    for port in ports {
        connect_to(&mut net, port, 1..21);
    }
    let busy = ports.map(|port| net.listen_in(0, port, 100, SHARED));
    net.advance(1);
    net.advance(251);
    let given = busy.map(|it| net.tcp.acceptable(it));
    assert_eq!(given.iter().sum::<usize>(), 32, "{given:?}");
    for listener in busy {
        take_all(&mut net, listener);
    }
    net.advance(300);
    assert_eq!(
        busy.map(|it| net.tcp.acceptable(it)).iter().sum::<usize>(),
        8
    );
    assert_eq!(idle.map(|it| net.tcp.acceptable(it)), [0; 2]);
}

/// A process has forked, and hasn't waited for connections before: its listener keeps what nobody else would get.
#[test]
fn a_listener_in_reserve_gets_what_nobody_else_accepts() {
    let mut net = Net::new();
    let region = net.add_region(64);
    let parent = net.listen_in(region, 80, 100, SHARED);
    let reserve = |net: &mut Net, id, on| net.set(id, ConnectionOption::Reserve(on));
    reserve(&mut net, parent, true);
    connect(&mut net, 1..4);
    assert_eq!(net.tcp.acceptable(parent), 3, "there is nobody else");
    let notified = |net: &mut Net, id| {
        let events = core::mem::take(&mut net.out.events);
        let mut events = events.into_iter().filter(|event| event.socket == id);
        events.any(|event| event.events.contains(Events::READABLE))
    };
    assert!(!notified(&mut net, parent), "its program doesn't wait");
    // A child of its does, after the parent's `tcp` was replaced.
    net.crash();
    let child = net.listen_in(0, 80, 100, SHARED);
    net.advance(1);
    assert_eq!(waiting(&net, [parent, child]), [0, 3], "at once");
    connect(&mut net, 4..20);
    assert_eq!(waiting(&net, [parent, child]), [0, 19]);
    // As it is alone, all stays with it though it is busy for long, and comes though it has no room.
    net.advance(100_000);
    net.tcp.listen(child, 5, &mut net.out).expect("it listens");
    connect(&mut net, 20..30);
    assert_eq!(waiting(&net, [parent, child]), [0, 19]);
    assert!(net.count(Counter::TcpDropListenOverflow) > 0);
    // It has taken all, and neither waits for more; then it does.
    assert_eq!(take_all(&mut net, child).len(), 19);
    reserve(&mut net, child, true);
    net.tcp
        .listen(child, 100, &mut net.out)
        .expect("it listens");
    connect(&mut net, 30..50);
    let [left, _] = waiting(&net, [parent, child]);
    assert_eq!(left, 20, "all with one of them");
    net.advance(1_000);
    reserve(&mut net, child, false);
    net.advance(1);
    assert_eq!(waiting(&net, [parent, child]), [0, left], "at once");
    assert_eq!(net.count(Counter::TcpStalled), 0);
    // It goes: what it had is the parent's again, who waits for it at last.
    net.close(child);
    net.run();
    assert_eq!(net.tcp.acceptable(parent), left);
    assert!(!notified(&mut net, parent));
    reserve(&mut net, parent, false);
    net.run();
    assert!(notified(&mut net, parent), "it is told what waits");
    assert_eq!(take_all(&mut net, parent).len(), left);
}

/// What waits at a listener that is closed goes to one that accepts, though one in reserve would be nearer.
#[test]
fn what_a_closed_listener_leaves_goes_past_one_in_reserve() {
    let mut net = Net::new();
    let region = net.add_region(64);
    let [closed, near] = [0; 2].map(|_| net.listen_in(region, 80, 100, SHARED));
    net.set(near, ConnectionOption::Reserve(true));
    connect(&mut net, 1..11);
    let far = net.listen_in(0, 80, 100, SHARED);
    net.close(closed);
    net.run();
    assert_eq!(waiting(&net, [near, far]), [0, 10]);
}

/// A server forks for each connection, and its children keep the listening socket.
#[test]
fn thousands_in_reserve_keep_nothing_from_the_one_that_accepts() {
    let mut net = Net::new();
    let in_reserve = |net: &mut Net| {
        let region = net.add_region(64);
        let ids = [0; 40].map(|_| net.listen_in(region, 80, 100, SHARED));
        for id in ids {
            net.set(id, ConnectionOption::Reserve(true));
        }
        ids
    };
    in_reserve(&mut net);
    in_reserve(&mut net);
    let parent = net.listen_in(0, 80, 50, SHARED);
    let children = [0; 4].map(|_| in_reserve(&mut net));
    connect(&mut net, 1..31);
    assert_eq!(net.tcp.acceptable(parent), 30);
    assert_eq!(take_all(&mut net, parent).len(), 30);
    // It goes as well: whoever comes next gets what has come meanwhile, and what has come already.
    connect(&mut net, 31..41);
    net.close(parent);
    connect(&mut net, 41..51);
    let last = children[3][39];
    net.set(last, ConnectionOption::Reserve(false));
    net.advance(1);
    assert_eq!(net.tcp.acceptable(last), 20);
}

/// Somebody begins to accept between two steps of a handshake with a listener in reserve.
#[test]
fn a_handshake_that_ends_at_a_listener_in_reserve_goes_to_who_accepts() {
    let mut net = Net::new();
    let region = net.add_region(64);
    let [parent, child] = [region, 0].map(|region| net.listen_in(region, 80, 100, SHARED));
    for id in [parent, child] {
        net.set(id, ConnectionOption::Reserve(true));
    }
    connect(&mut net, 1..2);
    net.remote_port = 2;
    net.inject("S 0 win 60000 mss 1000");
    net.drain();
    net.set(child, ConnectionOption::Reserve(false));
    net.advance(1);
    assert_eq!(waiting(&net, [parent, child]), [0, 1]);
    assert!(net.tcp.accept(child).is_some());
    net.inject(". 1 ack 1 win 60000");
    net.advance(251);
    assert_eq!(waiting(&net, [parent, child]), [0, 1]);
}

fn waits(net: &Net, id: SocketId, waits: bool) {
    net.tcp.table().set_waiting(id, waits);
}

#[test]
fn new_flows_go_to_who_waits_for_them_one_each() {
    let (mut net, idle, busy) = two_listeners();
    for on in [true, false] {
        waits(&net, busy, on);
    }
    for ports in [1..2, 2..3, 3..4, 4..5] {
        waits(&net, idle, true);
        connect(&mut net, ports);
        assert_eq!(waiting(&net, [idle, busy]), [1, 0]);
        waits(&net, idle, false);
        serve_all(&mut net, idle);
    }
    // Who has one that it hasn't taken yet isn't free any more.
    waits(&net, idle, true);
    connect(&mut net, 10..40);
    let [own, others] = waiting(&net, [idle, busy]);
    assert!(own > 3 && others > 3, "{own} {others}");
}

#[test]
fn what_a_busy_program_leaves_waiting_goes_to_who_is_free() {
    let (mut net, free, busy, left) = one_is_behind();
    let offered = net.tcp.offer(busy).expect("one waits");
    waits(&net, free, true);
    net.advance(1);
    assert_eq!(waiting(&net, [free, busy]), [0, left], "it may be about to");
    net.advance(2);
    assert_eq!(waiting(&net, [free, busy]), [1, left - 1], "one each");
    assert!(!net.tcp.table().take_offer(offered), "it was the first");
    assert_eq!(net.count(Counter::TcpMoved), 1);
    assert_eq!(net.count(Counter::TcpStalled), 0);
}

#[test]
fn a_program_that_is_being_woken_keeps_what_waits() {
    let (mut net, free, woken, left) = one_is_behind();
    waits(&net, free, true);
    waits(&net, woken, true);
    net.advance(200);
    assert_eq!(waiting(&net, [free, woken]), [0, left]);
    // It wasn't. What it says counts for nothing until it accepts.
    net.advance(60);
    assert_eq!(waiting(&net, [free, woken])[1], 0);
    serve_all(&mut net, free);
    waits(&net, free, false);
    connect(&mut net, 30..40);
    assert_eq!(waiting(&net, [free, woken]), [10, 0]);
}

#[test]
fn who_begins_to_wait_while_others_connections_do_says_so_and_gets_one() {
    let (mut net, late, busy, left) = one_is_behind();
    let wanted = |net: &Net| {
        let record = net.tcp.table().record(late.slot);
        record.is_wanted.load(core::sync::atomic::Ordering::Relaxed)
    };
    for given in 1..=left {
        assert_eq!(wanted(&net), 1, "there are more");
        waits(&net, late, true);
        net.set(late, ConnectionOption::Reserve(false));
        assert_eq!(waiting(&net, [late, busy]), [1, left - given], "at once");
        waits(&net, late, false);
        serve_all(&mut net, late);
    }
    assert_eq!(wanted(&net), 0);
}

#[test]
fn new_flows_go_where_fewest_wait() {
    let (mut net, one, other) = two_listeners();
    connect(&mut net, 1..11);
    assert_eq!(waiting(&net, [one, other]), [5, 5]);
    serve_all(&mut net, one);
    connect(&mut net, 11..15);
    assert_eq!(waiting(&net, [one, other]), [4, 5]);
}

#[test]
fn who_gave_away_all_that_waited_is_looked_after_again() {
    let (mut net, free, busy) = two_listeners();
    let mut port = 0;
    for _ in 0..3 {
        // Until one waits at the busy one, while nobody is free.
        while waiting(&net, [free, busy])[1] == 0 {
            port += 1;
            connect(&mut net, port..port + 1);
            serve_all(&mut net, free);
        }
        waits(&net, free, true);
        net.advance(13);
        assert_eq!(waiting(&net, [free, busy]), [1, 0], "{port}");
        waits(&net, free, false);
        serve_all(&mut net, free);
    }
    assert_eq!(net.count(Counter::TcpStalled), 0);
}

#[test]
fn what_was_moved_is_not_moved_back_by_who_feigns_to_wait() {
    let (mut net, one, other) = two_listeners();
    let mut port = 0;
    while waiting(&net, [one, other])[1] == 0 {
        port += 1;
        connect(&mut net, port..port + 1);
        serve_all(&mut net, one);
    }
    for _ in 0..20 {
        for (waiter, has) in [(one, 0), (other, 1)] {
            waits(&net, waiter, waiting(&net, [one, other])[has] == 0);
        }
        net.advance(10);
    }
    assert_eq!(net.count(Counter::TcpMoved), 1);
}

#[test]
fn each_that_is_free_gets_one() {
    let (mut net, first, busy) = two_listeners();
    let region = net.add_region(64);
    let second = net.listen_in(region, 80, 100, SHARED);
    for round in 0..5 {
        connect(&mut net, 40 * round + 1..40 * round + 41);
        for free in [first, second] {
            serve_all(&mut net, free);
            waits(&net, free, true);
        }
        net.advance(13);
        assert_eq!(waiting(&net, [first, second]), [1, 1]);
        for free in [first, second] {
            waits(&net, free, false);
        }
        for all in [first, second, busy] {
            serve_all(&mut net, all);
        }
    }
}

/// Where each process has a stack of its own: threads sleep until a socket has a connection, which is a listener for each address.
struct Alone {
    net: Net,
    listeners: [SocketId; 2],
}

impl Alone {
    fn new() -> Alone {
        let mut net = Net::new();
        let any = net.listen_in(0, 80, 10, SHARED);
        let own = net.tcp.open().expect("a slot");
        let end = Endpoint::new(LOCAL, 80);
        net.tcp.bind(own, end, SHARED, &mut net.out).expect("bound");
        net.tcp.listen(own, 10, &mut net.out).expect("listening");
        net.run();
        Alone {
            net,
            listeners: [own, any],
        }
    }

    /// So many threads wait: whether that is shown.
    fn shows(&mut self, threads: usize) -> bool {
        self.shows_of(&self.listeners.clone(), threads)
    }

    fn shows_of(&mut self, listeners: &[SocketId], threads: usize) -> bool {
        let waits = Waits {
            threads,
            only_then: true,
        };
        let (shown, only_then) = self.says(listeners, waits);
        assert!(only_then);
        shown
    }

    fn says(&mut self, listeners: &[SocketId], waits: Waits) -> (bool, bool) {
        let ids = listeners.iter().copied();
        let out = &mut self.net.out;
        self.net.tcp.show_waiting(ids, waits, out);
        self.net.out.waiting[&80]
    }
}

#[test]
fn who_is_about_to_have_a_connection_is_not_shown_to_wait_for_one() {
    let mut alone = Alone::new();
    assert!(alone.shows(1));
    assert!(!alone.shows(0));
    alone.net.inject("S 0 win 60000 mss 1000");
    assert!(!alone.shows(1), "it is on its way, to either half");
    assert!(alone.shows(2), "one is left");
    alone.net.inject(". 1 ack 1 win 60000");
    assert!(!alone.shows(1), "it is there");
    let [own, _] = alone.listeners;
    alone.net.tcp.accept(own).expect("it waits");
    assert!(alone.shows(1), "it was accepted");
    // Two sockets on one port: one thread's waking doesn't hide the other.
    let [own, any] = alone.listeners;
    assert!(alone.shows_of(&[own], 1));
    assert!(alone.shows_of(&[any], 0));
    assert!(!alone.shows_of(&[own], 0));
    // Who accepts from one of them at other times, too, isn't one that accepts only then.
    for (threads, shown) in [(1, true), (0, false)] {
        let waits = Waits {
            threads,
            only_then: false,
        };
        assert_eq!(alone.says(&[own], waits), (shown, false));
    }
}

#[test]
fn a_handshake_that_nobody_completes_hides_nobody_for_long() {
    let mut alone = Alone::new();
    alone.net.inject("S 0 win 60000 mss 1000");
    assert!(!alone.shows(1));
    alone.net.advance(999);
    assert!(!alone.shows(1));
    alone.net.advance(2);
    assert!(alone.shows(1), "our answer was sent again");
}

/// Who steers takes out who waits, when it gives a flow there.
#[test]
fn who_waits_is_shown_again_when_a_handshake_comes_to_nothing() {
    for how in ["a reset", "silence"] {
        let mut alone = Alone::new();
        assert!(alone.shows(1));
        alone.net.inject("S 0 win 60000 mss 1000");
        alone.net.out.waiting.clear();
        match how {
            "a reset" => alone.net.inject("R 1"),
            _ => alone.net.advance(1_001),
        }
        alone.net.run();
        assert_eq!(alone.net.out.waiting.get(&80), Some(&(true, true)), "{how}");
    }
}

#[test]
fn who_had_better_get_none_is_in_reserve_for_other_stacks_too() {
    let mut net = Net::new();
    net.tcp.set_hands_over();
    let id = net.listen_in(0, 80, 10, SHARED);
    for on in [true, false, true] {
        net.set(id, ConnectionOption::Reserve(on));
        assert_eq!(net.out.reserved.contains(&80), on);
    }
    let waits = Waits {
        threads: 1,
        only_then: true,
    };
    net.set(id, ConnectionOption::Reserve(false));
    net.tcp.show_waiting([id].into_iter(), waits, &mut net.out);
    assert!(!net.out.reserved.contains(&80));
}

/// In reserve, without others on this stack: it goes elsewhere once somebody waits there.
#[test]
fn what_waits_in_reserve_goes_to_who_waits_elsewhere() {
    let mut net = Net::new();
    net.tcp.set_hands_over();
    net.out.others = vec![80];
    let id = net.listen_in(0, 80, 10, SHARED);
    net.set(id, ConnectionOption::Reserve(true));
    net.tcp
        .show_waiting([id].into_iter(), Waits::UNKNOWN, &mut net.out);
    connect(&mut net, 1..3);
    net.advance(50);
    assert!(net.tcp.take_parcel(net.now).is_none(), "nobody waits");
    net.out.wait = vec![80];
    net.advance(30);
    let left = core::iter::from_fn(|| net.tcp.take_parcel(net.now));
    assert_eq!(left.count(), 2);
}

#[test]
fn who_never_says_whether_it_waits_has_its_share_of_new_flows() {
    let (mut net, asleep, never) = two_listeners();
    waits(&net, asleep, true);
    connect(&mut net, 1..41);
    let [one, other] = waiting(&net, [asleep, never]);
    assert!(one > 0 && other > 9, "{one} {other}");
    // One that says that it is busy gets none beside it.
    let (mut net, busy, never) = two_listeners();
    for on in [true, false] {
        waits(&net, busy, on);
    }
    connect(&mut net, 1..41);
    assert_eq!(waiting(&net, [busy, never]), [0, 40]);
}

#[test]
fn stacks_with_one_secret_go_on_from_each_others_numbers() {
    let number = |secret, after| {
        let mut net = Net::new();
        net.tcp.set_sequence_secret(secret);
        net.listen(80, 10);
        net.advance(after);
        net.inject("S 0 win 60000 mss 1000");
        net.iss()
    };
    assert_eq!(number(5, 0), number(5, 0));
    assert_ne!(number(5, 0), number(6, 0));
    assert_eq!(number(5, 0) + 250_000, number(5, 1000), "as the clock does");
}

/// A listener that was closed says nothing more of the port, though something still waits there.
#[test]
fn what_a_closed_listener_said_counts_no_more() {
    let mut net = Net::new();
    net.tcp.set_hands_over();
    net.out.others = vec![80];
    let closed = net.listen_in(0, 80, 10, SHARED);
    let stays = net.listen_in(0, 80, 10, SHARED);
    net.set(stays, ConnectionOption::Reserve(true));
    let waits = Waits {
        threads: 1,
        only_then: true,
    };
    net.tcp
        .show_waiting([closed].into_iter(), waits, &mut net.out);
    assert!(!net.out.reserved.contains(&80));
    net.tcp.close(net.now, closed, &mut net.out);
    net.tcp
        .show_waiting([stays].into_iter(), Waits::UNKNOWN, &mut net.out);
    assert!(net.out.reserved.contains(&80));
}
