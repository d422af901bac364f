//! How a scenario is drawn from its seed.

use super::*;
use crate::random::{Random, mix};

impl Scenario {
    /// The scenario of `seed`.
    pub fn from_seed(seed: u64) -> Scenario {
        let scenario = Draft::new(seed).mixed();
        // Drawn apart from the rest, which stays as it is.
        let mut random = Random::new(crate::random::mix(seed ^ 0x6469_7669_6465));
        match random.range(0, 5) {
            0 => {
                let deaths = random.scale(0, 40);
                scenario.divided(deaths)
            }
            _ => scenario,
        }
    }

    /// The scenario `name` (one of [`NAMED`]) with `seed`.
    pub fn named(name: &str, seed: u64) -> Option<Scenario> {
        let mut draft = Draft::new(seed);
        let harm = &mut draft.harm;
        *harm = Harm::default();
        match name {
            "clean" => {}
            "lossy" => harm.loss = 100,
            "reordered" => (harm.reorder, harm.duplicate, harm.ghost) = (200, 50, 10),
            "corrupted" => harm.corrupt = 50,
            "narrow" => harm.bits_per_second = 2_000_000,
            "slow-readers" => (draft.slow, draft.ring_bytes) = (true, Some(8192)),
            "crowd" => draft.crowd = true,
            "aborts" => draft.aborts = true,
            "small-rings" => draft.ring_bytes = Some(4096),
            "virtual" => draft.all_virtual = Some(true),
            "outages" => harm.outages = 4,
            "datagrams" => (draft.datagrams, harm.loss) = (true, 20),
            "noise" => draft.noise = true,
            "path-mtu" => draft.narrows = true,
            "programs" => draft.programs = true,
            "split" | "parts" => {
                (harm.loss, harm.reorder) = (20, 50);
                draft.datagrams = true;
            }
            "flood" => draft.datagrams = true,
            "crashes" => (draft.crashes, harm.loss, harm.reorder) = (40, 20, 50),
            "spoilt" => (draft.crashes, draft.spoils) = (6, true),
            "few-ports" => (draft.few_ports, draft.crowd) = (true, true),
            _ => return None,
        }
        draft.all_virtual = Some(draft.all_virtual.unwrap_or(false));
        let scenario = draft.build();
        Some(match name {
            "split" => scenario.divided(0),
            "parts" => scenario.divided(40),
            "flood" => scenario.divided(0).flooded(),
            _ => scenario,
        })
    }
}

#[derive(Clone, Copy, Default)]
struct Harm {
    loss: u32,
    duplicate: u32,
    ghost: u32,
    reorder: u32,
    corrupt: u32,
    outages: u64,
    bits_per_second: u64,
    full: u32,
}

struct Draft {
    seed: u64,
    random: Random,
    harm: Harm,
    slow: bool,
    crowd: bool,
    aborts: bool,
    datagrams: bool,
    noise: bool,
    narrows: bool,
    /// Clients bind to few ports, again and again.
    few_ports: bool,
    /// One host serves several programs, of which one is killed.
    programs: bool,
    /// How often a stack is killed, and whether that spoils a record.
    crashes: u64,
    spoils: bool,
    all_virtual: Option<bool>,
    ring_bytes: Option<u32>,
    /// Bytes that the whole run may still send.
    bytes_left: u64,
}

impl Draft {
    fn new(seed: u64) -> Draft {
        Draft {
            seed,
            random: Random::new(seed),
            harm: Harm::default(),
            slow: false,
            crowd: false,
            aborts: false,
            datagrams: false,
            noise: false,
            narrows: false,
            few_ports: false,
            programs: false,
            crashes: 0,
            spoils: false,
            all_virtual: None,
            ring_bytes: None,
            bytes_left: 3_000_000,
        }
    }

    /// Draws which harms there are.
    fn mixed(mut self) -> Scenario {
        let random = &mut self.random;
        let mut sometimes = |often: u32, most: u64| {
            if random.chance(often) {
                random.scale(1, most) as u32
            } else {
                0
            }
        };
        self.harm = Harm {
            loss: sometimes(500, 200),
            duplicate: sometimes(300, 100),
            ghost: sometimes(200, 20),
            reorder: sometimes(400, 300),
            corrupt: sometimes(300, 100),
            outages: u64::from(sometimes(100, 5)),
            bits_per_second: 0,
            full: sometimes(300, 500),
        };
        if self.random.chance(300) {
            self.harm.bits_per_second = self.random.scale(500_000, 1_000_000_000);
        }
        self.slow = self.random.chance(200);
        self.crowd = self.random.chance(150);
        self.aborts = self.random.chance(300);
        self.datagrams = self.random.chance(300);
        self.noise = self.random.chance(150);
        self.few_ports = self.random.chance(150);
        self.narrows = self.random.chance(200);
        self.programs = self.random.chance(150);
        if self.random.chance(250) {
            self.crashes = self.random.scale(1, 40);
        }
        self.build()
    }

    fn build(mut self) -> Scenario {
        let host_count = self.random.range(2, 4) as usize;
        let all_virtual = self.all_virtual.unwrap_or_else(|| self.random.chance(200));
        let hosts: Vec<HostPlan> = (0..host_count)
            .map(|host| self.host(host, all_virtual))
            .collect();
        let v6 = hosts.iter().all(|host| host.nic.mtu >= 1280);
        let listeners: Vec<ListenerPlan> = (0..self.random.range(1, 3) as usize)
            .map(|index| self.listener(index, host_count, v6))
            .collect();
        let count = if self.crowd {
            self.random.range(30, 120)
        } else {
            self.random.scale(1, 24)
        };
        let connections = (0..count)
            .map(|_| self.connection(host_count, &listeners, v6))
            .collect();
        let datagrams = if self.datagrams {
            vec![self.datagram(host_count, v6)]
        } else {
            Vec::new()
        };
        let noise_us = if self.noise {
            self.random.scale(10, 10_000)
        } else {
            0
        };
        let path_mtu = self.narrows.then(|| {
            let sizes: &[u32] = if v6 {
                &[1280, 1400]
            } else {
                &[576, 1006, 1400]
            };
            self.random.pick(sizes)
        });
        let harm = &self.harm;
        let gentle = harm.loss + harm.corrupt == 0 && harm.outages + harm.bits_per_second == 0;
        let mut scenario = Scenario {
            seed: self.seed,
            hosts,
            listeners,
            connections,
            datagrams,
            death: None,
            crashes: Vec::new(),
            apart: None,
            noise_us,
            path_mtu,
            pings: self.random.range(0, 3) as u16,
            gentle: gentle && !self.crowd,
            quiet: gentle && self.harm.full == 0 && noise_us == 0 && count < 3,
        };
        if self.programs {
            scenario.divide(&mut self.random);
        }
        if self.crashes > 0 {
            scenario.crashes = self.crashes(host_count);
            scenario.gentle = false;
            scenario.quiet = false;
        }
        scenario
    }

    fn host(&mut self, host: usize, all_virtual: bool) -> HostPlan {
        let harm = self.harm;
        // Of a sequence of its own, so that the rest of a seed is as it was before there was this.
        let memories = [u64::MAX, u64::MAX, 1 << 14, 1 << 16, 1 << 18];
        let socket_memory = Random::new(mix(self.seed ^ host as u64)).pick(&memories);
        let random = &mut self.random;
        let ability = match (all_virtual, random.range(0, 3)) {
            (true, _) => Ability::Virtual,
            (false, 0) => Ability::Checksums,
            (false, 1) => Ability::Cuts {
                bytes: random.pick(&[9000, 16_384, 65_535]),
            },
            (false, _) => Ability::Plain,
        };
        let outages = (0..harm.outages).map(|_| {
            let from = Instant::from_millis(random.range(0, 20_000));
            (from, from + Duration::from_millis(random.scale(50, 8000)))
        });
        let outages = outages.collect();
        let ring_bytes = self.ring_bytes;
        let mut ring =
            || ring_bytes.unwrap_or_else(|| 1 << random.pick(&[12u32, 13, 14, 16, 16, 17, 18]));
        let (send_bytes, receive_bytes) = (ring(), ring());
        let limited = harm.bits_per_second > 0;
        HostPlan {
            nic: NicPlan {
                mac: mac(host),
                mtu: random.pick(&[576, 1280, 1500, 1500, 1500, 4000, 9000]),
                ability,
                receive_frames: random.pick(&[16, 64, 256, 1024]),
                send_frames: random.pick(&[8, 32, 256, 1024]),
                full_per_mille: harm.full,
            },
            wire: WirePlan {
                loss: harm.loss,
                duplicate: harm.duplicate,
                ghost: harm.ghost,
                reorder: harm.reorder,
                corrupt: harm.corrupt,
                delay_us: random.scale(5, 50_000),
                jitter_us: random.scale(0, 10_000),
                bits_per_second: harm.bits_per_second,
                queue_bytes: if limited {
                    random.scale(10_000, 500_000)
                } else {
                    0
                },
                outages,
            },
            send_bytes,
            receive_bytes,
            programs: 1,
            lag_us: random.scale(0, 5000),
            socket_memory,
        }
    }

    fn crashes(&mut self, hosts: usize) -> Vec<CrashPlan> {
        let (count, spoils) = (self.crashes, self.spoils);
        let random = &mut self.random;
        let one = |_| CrashPlan {
            host: random.range(0, hosts as u64 - 1) as usize,
            at: Instant::from_nanos(random.scale(1_000_000, 20_000_000_000)),
            step: 0,
            acts: random.pick(&[0, 1, 2, 3, 5, 10]),
            deaths: random.pick(&[0, 0, 0, 1, 2, 5]),
            loses: random.chance(300),
            down: Duration::from_micros(random.pick(&[0, 0, 1_000, 20_000, 300_000])),
            spoils: spoils.then(|| random.next()),
        };
        (0..count).map(one).collect()
    }

    fn listener(&mut self, index: usize, hosts: usize, v6: bool) -> ListenerPlan {
        let random = &mut self.random;
        ListenerPlan {
            host: random.range(0, hosts as u64 - 1) as usize,
            port: 8000 + index as u16,
            backlog: random.pick(&[1, 2, 8, 128]),
            pause_us: if random.chance(300) {
                random.scale(1, 200_000)
            } else {
                0
            },
            v6: v6 && random.chance(400),
            program: 0,
            shared: false,
        }
    }

    fn connection(&mut self, hosts: usize, listeners: &[ListenerPlan], v6: bool) -> ConnectionPlan {
        let random = &mut self.random;
        let client = random.range(0, hosts as u64 - 1) as usize;
        let (target, v6) = match random.range(0, 29) {
            0 => {
                let server = random.range(0, hosts as u64 - 1) as usize;
                (Target::ClosedPort(server), v6 && random.chance(500))
            }
            1 => (Target::Nobody, v6 && random.chance(500)),
            _ => {
                let index = random.range(0, listeners.len() as u64 - 1) as usize;
                (Target::Listener(index), listeners[index].v6)
            }
        };
        let latest = if self.few_ports {
            200_000_000_000
        } else {
            3_000_000_000
        };
        let start = Instant::from_nanos(random.scale(0, latest));
        let client_port = self.few_ports.then(|| random.range(20_000, 20_003) as u16);
        let echo = random.chance(250);
        let mut ends = [self.end(), self.end()];
        if echo {
            // The server sends exactly what it receives, and must read to the end for that.
            ends[1].bytes = ends[0].bytes;
            ends[1].ending = Ending::HalfClose;
        }
        if ends.iter().all(|end| end.ending == Ending::AfterPeer) {
            ends[0].ending = Ending::HalfClose;
        }
        if echo && ends[0].ending == Ending::AfterPeer {
            ends[0].ending = Ending::Close;
        }
        ConnectionPlan {
            client,
            program: 0,
            client_port,
            target,
            v6,
            start,
            echo,
            ends,
        }
    }

    fn end(&mut self) -> EndPlan {
        let random = &mut self.random;
        let most = (self.bytes_left / 4).max(100);
        let bytes = NAME_BYTES + random.scale(0, most);
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        let total = bytes * 2;
        let ending = match random.range(0, 9) {
            0 if self.aborts => Ending::Abort(random.scale(0, total)),
            1 if self.aborts => Ending::CloseEarly(random.scale(0, total)),
            2..=4 => Ending::AfterPeer,
            5 | 6 => Ending::Close,
            _ => Ending::HalfClose,
        };
        let mut pause = |slow: bool| {
            let longest = if slow { 3_000_000 } else { 20_000 };
            let often = random.pick(&[0, 0, 10, 100]);
            (random.scale(1, longest), often)
        };
        let write_pause = pause(false);
        let read_pause = pause(self.slow);
        EndPlan {
            bytes,
            write_bytes: random.scale(1 + bytes / 500, 40_000 + bytes / 500),
            write_pause,
            read_bytes: random.scale(1 + bytes / 500, 60_000 + bytes / 500),
            read_pause,
            ending,
            options: options(random),
            mortal: false,
        }
    }

    fn datagram(&mut self, hosts: usize, v6: bool) -> DatagramPlan {
        let random = &mut self.random;
        let client = random.range(0, hosts as u64 - 1) as usize;
        DatagramPlan {
            client,
            server: random.range(0, hosts as u64 - 1) as usize,
            v6: v6 && random.chance(500),
            count: random.range(1, 60),
            largest: random.scale(100, 9000),
            pause_us: random.scale(1, 20_000),
        }
    }
}

fn options(random: &mut Random) -> Vec<ConnectionOption> {
    let all = [
        ConnectionOption::NoDelay(true),
        ConnectionOption::NoDelay(false),
        ConnectionOption::QuickAck(true),
        ConnectionOption::Cork(true),
        ConnectionOption::KeepAlive(true),
        ConnectionOption::KeepAliveIdle(5),
        ConnectionOption::KeepAliveInterval(1),
        ConnectionOption::MaximumSegment(536),
        ConnectionOption::SendBuffer(8192),
        ConnectionOption::ReceiveBuffer(8192),
        ConnectionOption::TrafficClass(0x20),
        ConnectionOption::HopLimit(9),
    ];
    all.into_iter().filter(|_| random.chance(60)).collect()
}
