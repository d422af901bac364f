//! The filter doesn't forget connections that there are, however long nothing is sent.

use super::*;
use crate::common::{APART, HALVES, MIXED, PEERS, end};
use skink_control::{FlowSummary, Order};
use skink_messages::{Shutdown, TcpRequest};
use skink_sockets::RequestBody;

const DAY: Duration = Duration::from_secs(86_400);
const RULES: &str = "
set block-policy return
block proto tcp all
pass out proto tcp to port 90 flags S/SA keep state
";

fn begin(grouping: Grouping) -> World {
    clock::AHEAD.set(Duration::ZERO);
    World::run_by(grouping, RULES, by_hand)
}

/// Time goes on, and so does everybody.
fn pass(world: &mut World, time: Duration) {
    clock::AHEAD.set(clock::AHEAD.get() + time);
    world.calm();
}

/// What `tcp` says unasked is passed on.
fn relay(world: &mut World) -> Vec<FlowSummary> {
    let place = world.split.place(Part::Tcp);
    let report = world.await_report(Some(place), "connections", |report| {
        matches!(report, Report::Flows { last: false, .. })
    });
    let Report::Flows { flows, .. } = report else {
        panic!("{report:?}");
    };
    let told = flows.clone();
    world.order(Part::Filter, &Order::Flows { flows }, &[]);
    world.calm();
    told
}

struct Connection {
    program: Raw,
    ours: SocketId,
    theirs: SocketId,
}

impl Connection {
    fn new(world: &mut World) -> Connection {
        let listening = world.peer.listen(90);
        let mut program = world.raw(3, 1000);
        let ours = world.open(&mut program, Protocol::Tcp);
        let call = SocketCall::Connect(Protocol::Tcp, ours, Some(end(PEERS, 90)));
        world.ask(&mut program, call).expect("a route");
        let mut theirs = None;
        world.until("a connection", |peer| {
            theirs = theirs.or_else(|| peer.stack.tcp_accept(listening));
            theirs.is_some()
        });
        Connection {
            program,
            ours,
            theirs: theirs.expect("just come"),
        }
    }

    /// Whether something gets through both ways at once.
    fn works(&mut self, world: &mut World) -> bool {
        let Connection {
            program,
            ours,
            theirs,
        } = self;
        world.peer.write(*theirs, b"ping");
        assert_eq!(program.tcp.send_ring(ours.slot).write(b"pong"), 4);
        program.tell(RequestBody::Tcp(TcpRequest::Sent(*ours)));
        world.calm();
        let mut got = [0; 8];
        let got = program.tcp.receive_ring(ours.slot).read(&mut got);
        program.tell(RequestBody::Tcp(TcpRequest::Received(*ours)));
        let heard = world.peer.read(*theirs).len();
        // What was put off is done now, not days later.
        pass(world, Duration::from_secs(1));
        (got, heard) == (4, 4)
    }
}

#[test]
fn an_idle_connection_is_not_forgotten() {
    for grouping in [APART, HALVES, MIXED] {
        let mut world = begin(grouping);
        let mut connection = Connection::new(&mut world);
        for _ in 0..4 {
            pass(&mut world, 2 * DAY);
            assert_eq!(relay(&mut world).len(), 1);
        }
        assert!(connection.works(&mut world));
        // Of itself the filter remembers it for 5 days.
        pass(&mut world, 6 * DAY);
        assert!(!connection.works(&mut world), "what is this test for?");
    }
}

#[test]
fn a_half_closed_connection_is_not_forgotten() {
    let mut world = begin(APART);
    let mut connection = Connection::new(&mut world);
    let shutdown = TcpRequest::Shutdown(connection.theirs, Shutdown::Write);
    world.peer.stack.tcp_request(clock::now(), shutdown);
    pass(&mut world, Duration::from_secs(1));
    for _ in 0..8 {
        pass(&mut world, DAY / 4);
        assert_eq!(relay(&mut world).len(), 1);
    }
    let Connection { program, ours, .. } = &mut connection;
    program.tcp.send_ring(ours.slot).write(b"pong");
    program.tell(RequestBody::Tcp(TcpRequest::Sent(*ours)));
    world.calm();
    assert_eq!(world.peer.read(connection.theirs), b"pong");
}

/// A million of them would keep `tcp` from everything else.
#[test]
fn many_connections_are_told_a_few_at_a_time() {
    const MANY: usize = 40;
    let mut world = begin(APART);
    let listening = world.peer.listen(90);
    let mut program = world.raw(3, 1000);
    for _ in 0..MANY {
        let ours = world.open(&mut program, Protocol::Tcp);
        let call = SocketCall::Connect(Protocol::Tcp, ours, Some(end(PEERS, 90)));
        world.ask(&mut program, call).expect("a route");
        world.until("a connection", |peer| {
            peer.stack.tcp_accept(listening).is_some()
        });
    }
    world.calm();
    let place = world.split.place(Part::Tcp);
    // Twice the same.
    for _ in 0..2 {
        clock::AHEAD.set(clock::AHEAD.get() + DAY / 4);
        let mut told = std::collections::BTreeSet::new();
        let mut rounds = 0;
        while told.len() < MANY {
            rounds += 1;
            assert!(rounds < MANY, "some aren't told");
            assert!(matches!(world.step(Part::Tcp), Step::Busy | Step::Idle));
            let mut said = 0;
            while let Ok(Some((report, _))) = world.split.link(place).receive() {
                let Report::Flows { flows, last: false } = report else {
                    continue;
                };
                said += flows.len();
                for flow in flows {
                    assert!(told.insert((flow.local, flow.remote)), "told twice");
                }
            }
            assert!(said <= 32, "{said} in one round");
            clock::AHEAD.set(clock::AHEAD.get() + Duration::from_secs(1));
        }
        // That was all.
        for _ in 0..5 {
            clock::AHEAD.set(clock::AHEAD.get() + Duration::from_secs(1));
            world.step(Part::Tcp);
            assert!(matches!(world.split.link(place).receive(), Ok(None)));
        }
    }
}

#[test]
fn successors_of_tcp_and_filter_go_on_with_it() {
    let mut world = begin(APART);
    let mut connection = Connection::new(&mut world);
    for _ in 0..3 {
        // What one says that dies isn't passed on: its successor's acknowledgements are enough.
        pass(&mut world, 4 * DAY);
        world.replace(Part::Tcp);
        world.calm();
    }
    assert!(connection.works(&mut world));
    for _ in 0..3 {
        pass(&mut world, 4 * DAY);
        world.replace(Part::Filter);
    }
    assert!(connection.works(&mut world));
}

#[test]
fn what_tcp_says_later_lets_nobody_in() {
    let mut world = begin(APART);
    let mut connection = Connection::new(&mut world);
    pass(&mut world, DAY);
    let [told] = relay(&mut world)[..] else {
        panic!("one connection");
    };
    let flows = (1..1000).map(|port| FlowSummary {
        remote: (told.remote.ip(), port).into(),
        ..told
    });
    let flows = flows.collect::<Vec<_>>();
    for flows in flows.chunks(100) {
        let flows = flows.to_vec();
        world.order(Part::Filter, &Order::Flows { flows }, &[]);
        world.calm();
    }
    world.order(Part::Filter, &Order::ShowFilter {}, &[]);
    let shown = world.await_report(None, "the filter", |report| {
        matches!(report, Report::Filter { .. })
    });
    let Report::Filter { shown } = shown else {
        panic!("{shown:?}");
    };
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(shown["states"], 1);
    assert!(connection.works(&mut world));
}
