use super::*;
use skink_channel::SleeperDescriptors;
use skink_control::TableSize;
use skink_lanes::{Coded, Exchange};
use skink_memory::SocketId;
use skink_messages::{
    CallBody, CallOutcome, StoreClient, StoreKey, StoreReply, StoreRequest, TransportCall,
};
use std::collections::BTreeSet;

fn apart() -> Split {
    let layout = Layout::new(Part::ALL.map(|part| vec![part]).to_vec());
    Split::new(layout).expect("memory")
}

/// Three processes: the wire's, the programs', and a `udp` with `filter`.
fn grouped() -> Split {
    use Part::{Filter, Ip, Link, Store, Syscall, Tcp, Udp};
    let groups = [vec![Ip, Link], vec![Syscall, Store, Tcp], vec![Udp, Filter]];
    Split::new(Layout::new(groups.to_vec())).expect("memory")
}

fn stack() -> StackStart {
    let size = TableSize {
        sockets: 1,
        send_bytes: 4096,
        receive_bytes: 4096,
    };
    StackStart {
        process: String::new(),
        user: None,
        addresses: Vec::new(),
        gateways: Vec::new(),
        seed: 1,
        nic: String::new(),
        nic_descriptors: 0,
        owner: None,
        tcp_table: size,
        udp_table: size,
        socket_memory: u64::MAX,
        processors: 1,
        interface: String::new(),
        rules: String::new(),
        listens: Vec::new(),
        tethers: Vec::new(),
        successor: false,
        stateless: false,
    }
}

fn sizes() -> LinkSizes {
    LinkSizes {
        mac: [2; 6],
        mtu: 1500,
        cut_bytes: 0,
        cuts: false,
    }
}

fn start(split: &mut Split, place: usize) -> Vec<(usize, Order)> {
    let orders = split.started(place).expect("descriptors");
    let orders = orders.into_iter();
    orders.map(|(to, order, _)| (to, order)).collect()
}

/// Everybody says that it knows of `part`.
fn all_know(split: &mut Split, part: Part) {
    for by in 0..Part::COUNT {
        split.knows(by, part, split.incarnation(part));
    }
}

fn start_all(split: &mut Split, places: &[usize]) {
    for place in places {
        split.start(*place, stack());
        start(split, *place);
    }
    Part::ALL.iter().for_each(|part| all_know(split, *part));
    while split.flows.iter().any(|flows| *flows > 0) {
        (0..Part::COUNT).for_each(|place| split.flows_told(place));
    }
    going(split);
}

fn going(split: &mut Split) -> Vec<Part> {
    std::iter::from_fn(|| split.take_going()).collect()
}

/// Who is told of which part.
fn told(orders: &[(usize, Order)]) -> BTreeSet<(usize, &'static str)> {
    let told = orders.iter().filter_map(|(to, order)| match order {
        Order::Neighbour { part, .. } => Some((*to, part.name())),
        _ => None,
    });
    told.collect()
}

#[test]
fn a_part_begins_when_all_that_run_know_of_it() {
    let mut split = apart();
    let [link, ip, tcp] = [Part::Link, Part::Ip, Part::Tcp].map(Part::index);
    assert_eq!(start(&mut split, link), []);
    assert_eq!(going(&mut split), [Part::Link]);
    let orders = start(&mut split, ip);
    assert_eq!(told(&orders), BTreeSet::from([(link, "ip"), (ip, "link")]));
    assert_eq!(going(&mut split), []);
    split.knows(link, Part::Ip, 2);
    assert_eq!(going(&mut split), [], "that was of another one");
    split.knows(link, Part::Ip, 1);
    assert_eq!(going(&mut split), [Part::Ip]);
    start(&mut split, tcp);
    split.knows(ip, Part::Tcp, 1);
    assert_eq!(going(&mut split), [], "link hasn't said so");
    split.ended(link).expect("memory");
    assert_eq!(going(&mut split), [Part::Tcp], "it never will");
}

#[test]
fn only_who_reads_a_pool_is_handed_it() {
    use Part::{Filter, Ip, Link, Store, Syscall, Tcp, Udp};
    let mut split = apart();
    let sizes = PoolSizes {
        id: 1,
        chunk_bytes: 4096,
        chunks: 1,
    };
    // Twice, since whoever starts later is told of the others, and they of him.
    let order = [Link, Ip, Filter, Udp, Tcp, Syscall, Store];
    let mut handed = BTreeSet::new();
    for place in order.into_iter().chain(order).map(Part::index) {
        split.start(place, stack());
        let part = Part::ALL[place];
        if matches!(part, Link | Ip) {
            let memory = std::fs::File::open("/dev/null").expect("a file");
            split.set_pool(place, part, sizes, memory.into());
        }
        for (to, order, with) in split.started(place).expect("descriptors") {
            let Order::Neighbour { part, pool, .. } = order else {
                continue;
            };
            assert_eq!(pool.is_some(), !with.is_empty());
            if pool.is_some() {
                handed.insert((part.name(), Part::ALL[to].name()));
            }
        }
    }
    let expected = [
        ("link", ["ip", "tcp", "udp"].as_slice()),
        ("ip", &["link", "tcp", "udp"]),
    ];
    let expected = expected.into_iter();
    let expected = expected.flat_map(|(of, to)| to.iter().map(move |to| (of, *to)));
    assert_eq!(handed, expected.collect());
}

#[test]
fn parts_that_share_a_process_are_told_of_each_other() {
    let mut split = grouped();
    let orders = start(&mut split, 0);
    assert_eq!(told(&orders), BTreeSet::from([(0, "link"), (0, "ip")]));
    assert_eq!(going(&mut split), []);
    split.knows(0, Part::Ip, 1);
    assert_eq!(going(&mut split), [Part::Ip]);
    split.knows(0, Part::Link, 1);
    assert_eq!(going(&mut split), [Part::Link]);
    let orders = start(&mut split, 2);
    let of_both = [(0, "udp"), (0, "filter"), (2, "udp"), (2, "filter")];
    let expected = [&of_both[..], &[(2, "link"), (2, "ip")]].concat();
    assert_eq!(told(&orders), expected.into_iter().collect());
}

#[test]
fn a_process_is_told_what_it_hosts_and_pools_get_new_numbers() {
    let mut split = grouped();
    let first = split.start(0, stack());
    assert_eq!(first.parts, [Part::Link, Part::Ip]);
    assert_eq!((first.link, first.incarnations), (None, [1; Part::COUNT]));
    split.set_sizes(sizes());
    let next = split.start(0, stack());
    assert_eq!(next.link, None, "it has link itself");
    assert_eq!(next.incarnations, [2, 2, 1, 1, 1, 1, 1]);
    let numbers = |start: &PartStart| Part::ALL.map(|part| start.pool + part.index() as u32);
    let shared = numbers(&first).iter().any(|it| numbers(&next).contains(it));
    assert!(!shared);
    let mut split = apart();
    let ip = Part::Ip.index();
    assert!(!split.can_start(ip), "it must know what the link takes");
    split.set_sizes(sizes());
    assert!(split.can_start(ip));
    assert_eq!(split.start(ip, stack()).link, Some(sizes()));
}

#[test]
fn the_ends_are_as_many_as_the_order_says() {
    let bell = SleeperDescriptors::create("test").expect("memory");
    let count = |split: &Split, place| {
        let outside = Outside {
            nic: vec![split.life.0.try_clone().expect("a descriptor")],
            capture: Some(split.life.0.try_clone().expect("a descriptor")),
            ports: Some(PortMaps {
                tcp: split.life.0.try_clone().expect("a descriptor"),
                udp: split.life.0.try_clone().expect("a descriptor"),
            }),
            stored: Some(split.life.0.try_clone().expect("a descriptor")),
            flows: Some(split.life.0.try_clone().expect("a descriptor")),
        };
        let ends = split.ends_with(place, &|_| bell.doorbell(), outside);
        ends.expect("descriptors").len()
    };
    // A lane has six.
    let expected = [
        1 + 6 + 2,
        1 + 24 + 1,
        1 + 6 + 1,
        2 + 14,
        2 + 14,
        2 + 18,
        1 + 7,
    ];
    let split = apart();
    for (place, expected) in expected.into_iter().enumerate() {
        assert_eq!(count(&split, place), expected, "{place}");
    }
    let split = grouped();
    for (place, expected) in [(0, 1 + 8 + 25), (1, 2 + 14 + 18 + 7), (2, 2 + 7 + 14)] {
        assert_eq!(count(&split, place), expected, "{place}");
    }
}

#[test]
fn the_filter_waits_for_the_connections_that_there_are() {
    let mut split = apart();
    let [filter, udp, tcp] = [Part::Filter, Part::Udp, Part::Tcp].map(Part::index);
    start(&mut split, tcp);
    start(&mut split, udp);
    let orders = start(&mut split, filter);
    for place in [tcp, udp] {
        assert!(orders.contains(&(place, Order::ShowFlows {})));
    }
    Part::ALL
        .iter()
        .for_each(|part| all_know(&mut split, *part));
    assert_eq!(going(&mut split), [Part::Udp, Part::Tcp]);
    split.flows_told(tcp);
    assert_eq!(going(&mut split), []);
    split.flows_told(udp);
    assert_eq!(going(&mut split), [Part::Filter]);
    // And for each change of rules, or until there is nobody to ask.
    assert_eq!(split.new_rules().len(), 2);
    assert_eq!(split.new_rules().len(), 2);
    split.flows_told(tcp);
    split.flows_told(udp);
    assert_eq!(going(&mut split), []);
    // One that died meanwhile has a successor that knows.
    split.start(tcp, stack());
    split.ended(tcp).expect("memory");
    split.flows_told(udp);
    assert_eq!(going(&mut split), []);
    start(&mut split, tcp);
    let question = split.ask_flows(tcp);
    assert!(matches!(question, Some((place, Order::ShowFlows {}, _)) if place == tcp));
    all_know(&mut split, Part::Tcp);
    assert_eq!(going(&mut split), [Part::Tcp]);
    split.flows_told(tcp);
    assert_eq!(going(&mut split), [Part::Filter]);
    assert!(split.ask_flows(tcp).is_none());
}

#[test]
fn each_dies_alone() {
    for part in Part::ALL {
        let mut split = apart();
        start_all(&mut split, &[0, 1, 2, 3, 4, 5, 6]);
        let place = part.index();
        split.ended(place).expect("memory");
        split.set_sizes(sizes());
        assert!(split.can_start(place));
        for other in Part::ALL {
            assert_eq!(split.is_going(other), other != part);
        }
        let start = split.start(place, stack());
        assert_eq!(start.incarnations[place], 2);
    }
}

#[test]
fn only_queues_within_what_died_are_new() {
    let mut split = grouped();
    start_all(&mut split, &[0, 1, 2]);
    let memory = |split: &Split, other, part| {
        let lane = split.lanes.lane(other, part).expect("a lane");
        let own = lane.down.producer().expect("a descriptor").own;
        rustix::fs::fstat(own).expect("an open file").st_ino
    };
    let lanes = |split: &Split| {
        let outside = memory(split, Part::Ip, Part::Tcp);
        (outside, memory(split, Part::Syscall, Part::Tcp))
    };
    let before = lanes(&split);
    split.ended(1).expect("memory");
    assert_eq!(
        going_now(&split),
        [Part::Link, Part::Ip, Part::Filter, Part::Udp]
    );
    assert!(split.can_start(1));
    let after = lanes(&split);
    assert_eq!(before.0, after.0, "ip still has the other end");
    assert_ne!(before.1, after.1);
    let started = split.start(1, stack());
    assert_eq!(started.incarnations, [1, 1, 1, 1, 2, 2, 2]);
}

#[test]
fn what_is_made_anew_is_a_successor() {
    let mut split = apart();
    start_all(&mut split, &[0, 1, 2, 3, 4, 5, 6]);
    split.give_up();
    (0..7).for_each(|place| split.ended(place).expect("memory"));
    assert!(!split.can_start(Part::Tcp.index()));
    split.renew().expect("memory");
    let started = split.start(Part::Tcp.index(), stack());
    assert_eq!(started.incarnations, [2; Part::COUNT]);
}

fn going_now(split: &Split) -> Vec<Part> {
    let all = Part::ALL.into_iter();
    all.filter(|part| split.is_going(*part)).collect()
}

/// `syscall` lets go of a socket, and forgets what it had stored.
fn ask(split: &Split) {
    let socket = SocketId {
        slot: 5,
        generation: 1,
    };
    let call = TransportCall {
        program: 3,
        serial: 0,
        body: CallBody::Close(socket),
    };
    let key = StoreKey {
        client: StoreClient::Syscall,
        kind: 1,
        id: 5,
    };
    upper::<CallOutcome, TransportCall>(split, Part::Tcp, &call);
    upper::<StoreReply, StoreRequest>(split, Part::Store, &StoreRequest::Remove(key));
}

fn upper<In: Coded, Out: Coded>(split: &Split, lower: Part, message: &Out) {
    let bell = SleeperDescriptors::create("test").expect("a sleeper");
    let lane = split.lanes.lane(lower, Part::Syscall).expect("a lane");
    let end = lane.upper(1, 1, bell.doorbell().expect("a bell"));
    let mut end = Exchange::<In, Out>::attach(end.expect("descriptors")).expect("a lane");
    end.send(message).expect("room");
    end.flush();
}

/// How much waits in the lanes from `syscall` to these.
fn asked(split: &Split) -> [u32; 2] {
    [Part::Tcp, Part::Store].map(|lower| {
        let lane = split.lanes.lane(lower, Part::Syscall).expect("a lane");
        lane.down.depth().expect("readable")
    })
}

/// Nobody asks for it again.
#[test]
fn what_syscall_asked_for_outlives_all_who_knew_of_it() {
    let mut split = grouped();
    start_all(&mut split, &[0, 1, 2]);
    ask(&split);
    split.ended(1).expect("memory");
    assert_eq!(asked(&split), [1, 1]);
    split.give_up();
    (0..3).for_each(|place| split.ended(place).expect("memory"));
    split.renew().expect("memory");
    assert_eq!(asked(&split), [1, 1]);
}

#[test]
fn each_transport_is_handed_the_table_of_its_own_ports_alone() {
    let bell = SleeperDescriptors::create("test").expect("memory");
    let split = apart();
    let memory = || rustix::fs::memfd_create("ports", rustix::fs::MemfdFlags::CLOEXEC);
    let [tcp, udp] = [memory(), memory()].map(|memory| memory.expect("memory"));
    let number = |memory: &OwnedFd| rustix::fs::fstat(memory).expect("a file").st_ino;
    let numbers = [number(&tcp), number(&udp)];
    for part in Part::ALL {
        let outside = Outside {
            ports: Some(PortMaps {
                tcp: tcp.try_clone().expect("a descriptor"),
                udp: udp.try_clone().expect("a descriptor"),
            }),
            ..Outside::default()
        };
        let ends = split.ends_with(part.index(), &|_| bell.doorbell(), outside);
        let ends = ends.expect("descriptors");
        let has = numbers.map(|table| ends.iter().any(|end| number(end) == table));
        assert_eq!(has, [part == Part::Tcp, part == Part::Udp], "{part:?}");
    }
}
