//! Short scenarios, of which every step and act is gone through.

use super::apart::PROCESSES;
use super::*;

/// Their names.
pub const SHORT: [&str; 13] = [
    "handshake",
    "client-first",
    "server-first",
    "both-at-once",
    "both-ways",
    "echo",
    "zero-window",
    "losses",
    "overload",
    "plain-options",
    "half-open",
    "datagrams",
    "shared",
];

impl Scenario {
    /// The short scenario of this name: two hosts, and one or two connections.
    pub fn short(name: &str) -> Option<Scenario> {
        let mut seed = 0u64;
        for byte in name.bytes() {
            seed = crate::random::mix(seed ^ u64::from(byte));
        }
        let mut scenario = two_hosts(seed);
        let sizes = match name {
            "handshake" => (8, 0),
            "client-first" | "server-first" | "both-at-once" => (2_000, 1_000),
            "plain-options" => (5_000, 5_000),
            "half-open" => (1_000, 1_000),
            "datagrams" => (8, 8),
            "both-ways" | "losses" | "overload" | "echo" | "shared" => (30_000, 20_000),
            "zero-window" => (30_000, 0),
            _ => return None,
        };
        let endings = match name {
            "server-first" => [Ending::AfterPeer, Ending::HalfClose],
            "client-first" | "zero-window" => [Ending::HalfClose, Ending::AfterPeer],
            "both-ways" | "plain-options" => [Ending::Close, Ending::Close],
            _ => [Ending::HalfClose, Ending::HalfClose],
        };
        let mut connection = connection(sizes, endings);
        match name {
            "zero-window" => connection.ends[1].read_pause = (2_000_000, 300),
            "echo" => {
                connection.echo = true;
                connection.ends[1].bytes = connection.ends[0].bytes;
            }
            "losses" => {
                for host in &mut scenario.hosts {
                    (host.wire.loss, host.wire.reorder) = (50, 100);
                    host.wire.duplicate = 50;
                }
            }
            "half-open" => {
                // What answers the first request gets lost.
                let outage = (Instant::ZERO, Instant::from_millis(800));
                scenario.hosts[1].wire.outages.push(outage);
            }
            "datagrams" => {
                scenario.datagrams.push(DatagramPlan {
                    client: 0,
                    server: 1,
                    v6: false,
                    count: 12,
                    largest: 4_000,
                    pause_us: 2_000,
                });
            }
            "overload" => {
                for host in &mut scenario.hosts {
                    (host.nic.send_frames, host.nic.full_per_mille) = (8, 300);
                }
            }
            "plain-options" => {
                connection.ends[0].options = vec![
                    ConnectionOption::KeepAlive(true),
                    ConnectionOption::MaximumSegment(536),
                    ConnectionOption::Cork(true),
                ];
                connection.ends[1].options = vec![
                    ConnectionOption::NoDelay(true),
                    ConnectionOption::ReceiveBuffer(2_000),
                ];
            }
            _ => {}
        }
        if matches!(name, "handshake" | "both-ways" | "shared") {
            // Another one at the same time, that waits longer to be accepted.
            scenario.listeners[0].pause_us = 50_000;
            scenario.connections.push(connection.clone());
        }
        scenario.connections.push(connection);
        Some(scenario)
    }
}

impl Scenario {
    /// The short scenario of this name with the components of each host on their own, of which these die.
    /// Every other one has a filter.
    pub fn short_apart(name: &str, deaths: Vec<PartDeath>) -> Option<Scenario> {
        let mut scenario = Scenario::short(name)?;
        let index = SHORT.iter().position(|other| *other == name)?;
        scenario.gentle = deaths.is_empty();
        scenario.quiet = false;
        scenario.apart = Some(ApartPlan {
            filters: index % 2 == 0 || name == "datagrams",
            lost_bells: 0,
            deaths,
            shares: name == "shared",
        });
        if name == "shared" {
            for host in &mut scenario.hosts {
                host.programs = PROCESSES;
            }
            for connection in &mut scenario.connections {
                connection.program = 1;
            }
        }
        Some(scenario)
    }
}

fn two_hosts(seed: u64) -> Scenario {
    let host = |index: usize| HostPlan {
        nic: NicPlan {
            mac: mac(index),
            mtu: 1500,
            ability: Ability::Checksums,
            receive_frames: 64,
            send_frames: 64,
            full_per_mille: 0,
        },
        wire: WirePlan {
            loss: 0,
            duplicate: 0,
            ghost: 0,
            reorder: 0,
            corrupt: 0,
            delay_us: 500,
            jitter_us: 10,
            bits_per_second: 0,
            queue_bytes: 0,
            outages: Vec::new(),
        },
        send_bytes: 8192,
        receive_bytes: 8192,
        socket_memory: u64::MAX,
        programs: 1,
        lag_us: 20,
    };
    Scenario {
        seed,
        hosts: vec![host(0), host(1)],
        listeners: vec![ListenerPlan {
            host: 1,
            port: 8000,
            backlog: 8,
            pause_us: 0,
            v6: false,
            program: 0,
            shared: false,
        }],
        connections: Vec::new(),
        datagrams: Vec::new(),
        death: None,
        crashes: Vec::new(),
        apart: None,
        noise_us: 0,
        path_mtu: None,
        pings: 0,
        gentle: true,
        quiet: false,
    }
}

fn connection(sizes: (u64, u64), endings: [Ending; 2]) -> ConnectionPlan {
    let end = |bytes: u64, ending: Ending| EndPlan {
        bytes: bytes + NAME_BYTES,
        write_bytes: 5_000,
        write_pause: (1_000, 100),
        read_bytes: 5_000,
        read_pause: (1_000, 100),
        ending,
        options: Vec::new(),
        mortal: false,
    };
    ConnectionPlan {
        client: 0,
        program: 0,
        client_port: None,
        target: Target::Listener(0),
        v6: false,
        start: Instant::from_millis(2),
        echo: false,
        ends: [end(sizes.0, endings[0]), end(sizes.1, endings[1])],
    }
}
