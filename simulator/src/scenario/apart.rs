//! What befalls components that are on their own.

use super::{DatagramPlan, Scenario};
use crate::machine::{Shown, Who};
use crate::random::{Random, mix};
use core::fmt;
use core::str::FromStr;
use skink_time::{Duration, Instant};

/// The components of each host are on their own.
#[derive(Clone, Debug, Default)]
pub struct ApartPlan {
    /// Each host has a filter, whose rules let in what begins with a handshake.
    pub filters: bool,
    /// How often a bell isn't heard, in thousandths.
    pub lost_bells: u32,
    /// Components that die.
    pub deaths: Vec<PartDeath>,
    /// Each host has several processes, which hand connections on to each other.
    pub shares: bool,
}

/// How a component comes to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Manner {
    /// In its turn or after it.
    #[default]
    Kill,
    /// It has no turn any more, and is ended after a while.
    Hang,
    /// It is replaced after its turn, and after a while its successor too, as if that had been no good.
    Upgrade,
}

/// A component that is on its own dies, and gets a successor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartDeath {
    /// On which host.
    pub host: usize,
    /// Which.
    pub who: Who,
    /// When, if no turn is said: in the turn that comes then.
    pub at: Instant,
    /// In which of its turns, and its successors'; 0 for none.
    pub turn: u64,
    /// How.
    pub manner: Manner,
    /// When it has acted so many times in that turn: a frame sent, a port used or given back. 0, or it doesn't
    /// act so often: at the end.
    pub acts: u64,
    /// What its neighbours see of that turn.
    pub shown: Shown,
    /// After how long it has a successor (an upgrade's own: is replaced too).
    pub down: Duration,
    /// So many successors die before all know of them, each a step later.
    pub deaths: u32,
    /// With `link`, frames in the NIC's queues get lost.
    pub loses: bool,
}

impl PartDeath {
    /// A plain kill.
    pub fn new(host: usize, who: Who) -> PartDeath {
        PartDeath {
            host,
            who,
            at: Instant::ZERO,
            turn: 0,
            manner: Manner::Kill,
            acts: 0,
            shown: Shown::All,
            down: Duration::ZERO,
            deaths: 0,
            loses: false,
        }
    }
}

impl fmt::Display for PartDeath {
    /// As [`PartDeath::from_str`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = match self.shown {
            Shown::All => "all",
            Shown::Nothing => "nothing",
            Shown::Taken | Shown::PacketsTaken => "taken",
            Shown::Answers => "answers",
            Shown::AllBy(1) => "first",
            Shown::AllBy(2) => "second",
            Shown::AllBy(_) => "third",
        };
        let manner = match self.manner {
            Manner::Kill => "kill",
            Manner::Hang => "hang",
            Manner::Upgrade => "upgrade",
        };
        let PartDeath {
            host,
            who,
            turn,
            acts,
            deaths,
            loses,
            down,
            ..
        } = self;
        let (who, down, loses) = (who.name(), down.as_micros(), u8::from(*loses));
        write!(
            f,
            "{host},{who},{turn},{manner},{acts},{shown},{down},{deaths},{loses}"
        )
    }
}

impl FromStr for PartDeath {
    type Err = String;

    /// Host, component, turn, manner, acts, what is shown, microseconds until a successor, successors that
    /// die too, and 1 if frames get lost.
    fn from_str(text: &str) -> Result<PartDeath, String> {
        let wrong = || {
            format!(
                "{text} is not the death of a component; write one such as 1,tcp,20,kill,0,all,0,0,0"
            )
        };
        let words: Vec<&str> = text.split(',').collect();
        let [host, who, turn, manner, acts, shown, down, deaths, loses] = words.as_slice() else {
            return Err(wrong());
        };
        let number = |word: &str| word.parse::<u64>().map_err(|_| wrong());
        Ok(PartDeath {
            turn: number(turn)?,
            manner: match *manner {
                "kill" => Manner::Kill,
                "hang" => Manner::Hang,
                "upgrade" => Manner::Upgrade,
                _ => return Err(wrong()),
            },
            acts: number(acts)?,
            shown: match *shown {
                "all" => Shown::All,
                "nothing" => Shown::Nothing,
                "taken" => Shown::Taken,
                "answers" => Shown::Answers,
                "first" => Shown::AllBy(1),
                "second" => Shown::AllBy(2),
                "third" => Shown::AllBy(3),
                _ => return Err(wrong()),
            },
            down: Duration::from_micros(number(down)?),
            deaths: number(deaths)? as u32,
            loses: number(loses)? != 0,
            ..PartDeath::new(number(host)? as usize, Who::named(who).ok_or_else(wrong)?)
        })
    }
}

impl PartDeath {
    /// Each component's deaths in each of its turns, in all manners. `turns` is what a run without deaths
    /// has reported ([`crate::Report::turns`]).
    pub fn all(turns: &[[Vec<u64>; Who::COUNT]]) -> Vec<PartDeath> {
        let mut all = Vec::new();
        for (host, parts) in turns.iter().enumerate() {
            for (who, acts) in Who::ALL.into_iter().zip(parts) {
                for (turn, acts) in acts.iter().enumerate() {
                    let death = PartDeath {
                        turn: turn as u64 + 1,
                        loses: turn % 2 == 1,
                        ..PartDeath::new(host, who)
                    };
                    all.extend(death.in_all_manners(*acts));
                }
            }
        }
        all
    }

    fn in_all_manners(self, acts: u64) -> Vec<PartDeath> {
        let mut all = Vec::new();
        let programs = usize::from(self.who.channel().is_some());
        let neighbours = self.who.neighbours().len() + programs;
        let mut shown = SHOWN.into_iter();
        let possible = |shown: &Shown| !matches!(shown, Shown::AllBy(by) if *by >= neighbours);
        let kills = shown.by_ref().filter(possible);
        all.extend(kills.map(|shown| PartDeath { shown, ..self }));
        for acts in 1..=acts {
            for shown in [Shown::Nothing, Shown::Taken] {
                all.push(PartDeath {
                    acts,
                    shown,
                    ..self
                });
            }
        }
        for (manner, down_us) in [
            (Manner::Kill, 3_000),
            (Manner::Hang, 2_000),
            (Manner::Hang, 900_000),
            (Manner::Upgrade, 1_500),
        ] {
            let down = Duration::from_micros(down_us);
            all.push(PartDeath {
                manner,
                down,
                ..self
            });
        }
        // Again, during adoption itself.
        for deaths in [1, 2, 5] {
            all.push(PartDeath { deaths, ..self });
        }
        all
    }
}

const SHOWN: [Shown; 7] = [
    Shown::All,
    Shown::Nothing,
    Shown::Taken,
    Shown::Answers,
    Shown::AllBy(1),
    Shown::AllBy(2),
    Shown::AllBy(3),
];

/// Processes of each host that hand connections on to each other: the first and the last never end.
pub(super) const PROCESSES: u32 = 5;

impl Scenario {
    /// Whether nothing of a host ever dies.
    pub fn is_immortal(&self) -> bool {
        let parts = self.apart.as_ref();
        self.crashes.is_empty() && parts.is_none_or(|apart| apart.deaths.is_empty())
    }

    /// The same with the components of each host on their own, and deaths at random instead of those of
    /// whole stacks.
    pub fn divided(mut self, deaths: u64) -> Scenario {
        let mut random = Random::new(mix(self.seed ^ 0x6170_6172_7400));
        let hosts = self.hosts.len() as u64;
        let plan = ApartPlan {
            filters: random.chance(500),
            lost_bells: if random.chance(250) { 30 } else { 0 },
            deaths: (0..deaths).map(|_| death(&mut random, hosts)).collect(),
            shares: self.death.is_none() && random.chance(400),
        };
        if plan.shares {
            self.hosts
                .iter_mut()
                .for_each(|host| host.programs = PROCESSES);
        }
        if deaths > 0 || plan.lost_bells > 0 {
            self.gentle = false;
            self.quiet = false;
        }
        self.crashes.clear();
        self.apart = Some(plan);
        self
    }
}

impl Scenario {
    /// The same with more datagrams, all at once, than any queue holds.
    pub fn flooded(mut self) -> Scenario {
        self.datagrams = vec![DatagramPlan {
            client: 0,
            server: 1,
            v6: false,
            count: 4_000,
            largest: 300,
            pause_us: 40,
        }];
        for host in &mut self.hosts {
            (host.nic.receive_frames, host.nic.send_frames) = (2048, 2048);
            host.lag_us = 10;
        }
        self.quiet = false;
        self
    }
}

fn death(random: &mut Random, hosts: u64) -> PartDeath {
    let micros = random.pick(&[0, 0, 0, 10, 1_000, 20_000, 300_000, 1_000_000]);
    PartDeath {
        host: random.range(0, hosts - 1) as usize,
        who: random.pick(&Who::ALL),
        at: Instant::from_nanos(random.scale(1_000_000, 20_000_000_000)),
        turn: 0,
        manner: random.pick(&[Manner::Kill, Manner::Kill, Manner::Hang, Manner::Upgrade]),
        acts: random.pick(&[0, 0, 1, 2, 5]),
        shown: random.pick(&SHOWN),
        down: Duration::from_micros(micros),
        deaths: random.pick(&[0, 0, 0, 1, 2, 5]),
        loses: random.chance(200),
    }
}
