use super::*;
use std::net::TcpListener;

/// Echoes on each connection; after `good` bytes on it, says nothing more.
fn echo(good: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a client");
            std::thread::spawn(move || {
                let (mut left, mut bytes) = (good, [0; 4096]);
                while let Ok(read @ 1..) = stream.read(&mut bytes) {
                    let some = read.min(left);
                    left -= some;
                    let _ = stream.write_all(bytes.get(..some).unwrap_or_default());
                }
            });
        }
    });
    address
}

fn demand(rate: Option<u32>) -> Demand {
    Demand {
        connections: 3,
        time: Duration::from_millis(100),
        rate,
    }
}

#[test]
fn answers_are_counted_with_and_without_a_rate() {
    let address = echo(usize::MAX);
    for rate in [None, Some(1000)] {
        let load = load(&Talk::Block, address, demand(rate)).expect("answered");
        assert!(load.units > 0.0 && load.latency.is_some(), "{load:?}");
        assert!(load.seconds >= 0.1 && load.socket_errors == 0, "{load:?}");
        if rate.is_some() {
            // 100 are due on average, the same ones each time.
            assert!(load.units <= 130.0, "{load:?}");
        }
    }
}

#[test]
fn a_server_that_stalls_isnt_spared() {
    // One answer on each connection; all that is due after that waits until the end.
    let load = load(&Talk::Block, echo(64), demand(Some(1000))).expect("connected");
    assert!(load.units <= 3.0, "{load:?}");
    let latency = load.latency.expect("some");
    assert!(latency.p99_us > 90_000.0, "{load:?}");
    // Nor are the moments in which nothing was answered: each of two had requests that waited for 50 ms or longer.
    let load = self::load(&Talk::Block, echo(64), demand(Some(10_000))).expect("connected");
    let of_moments = load.latency.and_then(|latency| latency.p99_moments_us);
    assert!(of_moments.is_some_and(|us| us > 50_000.0), "{load:?}");
}

#[test]
fn a_pause_reaches_few_moments() {
    let start = Instant::now();
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll set");
    // 2,000 answers in each of five moments; a pause in one of them makes half of them slow. The last moment is too short to tell.
    let moment = |slow: u32| (0..2000).map(move |at| if at < slow { 9_000_000 } else { at });
    let mut moments: Vec<Vec<u32>> = [0, 1000, 0, 0, 0].map(|slow| moment(slow).collect()).into();
    moments.push(vec![9_000_000; LEAST_IN_MOMENT - 1]);
    let run = Run {
        talk: &Talk::Block,
        epoll,
        connections: Vec::new(),
        free: VecDeque::new(),
        waiting: VecDeque::new(),
        schedule: Some(Schedule::new(start, 1)),
        asked: 0,
        request: String::new(),
        buffer: Vec::new(),
        times: moments.concat(),
        start,
        moments,
    };
    let latency = run.count(1.0).latency.expect("some");
    assert_eq!(latency.p99_us, 9000.0);
    assert!(
        latency.p99_moments_us.is_some_and(|us| us < 2.0),
        "{latency:?}"
    );
}

#[test]
fn moments_are_the_same_each_time_and_of_the_rate() {
    let start = Instant::now();
    let moments = || {
        let mut schedule = Schedule::new(start, 1000);
        let far = start + Duration::from_secs(10);
        std::iter::from_fn(|| schedule.due(far)).collect::<Vec<_>>()
    };
    let all = moments();
    assert_eq!(all, moments());
    assert!((9_500..=10_500).contains(&all.len()), "{}", all.len());
    assert!(all.is_sorted());
    assert_eq!(Schedule::new(start + SPIN, 1).due(start), None);
}
