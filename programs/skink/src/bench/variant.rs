//! What is compared: where a stack runs, what carries its frames, and what it is given to do besides.

use super::results::Comparison;
use skink_topology::Topology;
use std::fmt;

/// What a variant of Skink is held against, where that is its back end without a stack.
pub const RAW: &str = "the raw back end";

/// What carries Skink's frames.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackEnd {
    Packet,
    Xdp,
    Tap,
}

impl BackEnd {
    pub const ALL: [BackEnd; 3] = [BackEnd::Packet, BackEnd::Xdp, BackEnd::Tap];
}

impl fmt::Display for BackEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            BackEnd::Packet => "packet",
            BackEnd::Xdp => "xdp",
            BackEnd::Tap => "tap",
        })
    }
}

/// Where Skink's components run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// What `skink up --topology` is given.
    pub word: String,
    pub name: String,
    /// In the program: there is no `skink up`.
    pub in_program: bool,
}

impl Place {
    /// Reads the name of a topology that is built in, or a topology's file.
    pub fn parse(word: &str) -> Result<Place, String> {
        let topology = Topology::load(word).map_err(|mistakes| mistakes.to_string())?;
        Ok(Place {
            word: word.to_owned(),
            in_program: topology.processes.iter().any(|process| process.program),
            name: topology.name,
        })
    }

    /// Those that are built in.
    pub fn all() -> Vec<Place> {
        let names = ["library", "single", "split"].into_iter();
        names.filter_map(|name| Place::parse(name).ok()).collect()
    }
}

/// Whose TCP/IP it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stack {
    Kernel,
    Skink(Place, BackEnd),
    /// None: frames go back from where they are received.
    Raw(BackEnd),
}

impl Stack {
    /// Whether its end of the cable is to have no segmentation offload: Skink puts that off by itself while packets are
    /// small, and its back ends alone have only such.
    pub fn without_segmentation(&self) -> bool {
        matches!(self, Stack::Raw(BackEnd::Packet | BackEnd::Xdp))
    }
}

/// What serves, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variant {
    pub stack: Stack,
    /// Both ends of the cable have segmentation and checksum offloads.
    pub gso: bool,
    /// So many rules of the packet filter; none: everything passes.
    pub rules: u32,
    /// So many connections besides, on which nothing happens.
    pub idle: u32,
    /// Processes of the server, each with a queue of the cable if the stack is in them.
    pub workers: u32,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gso = if self.gso { "-gso-on" } else { "-gso-off" };
        match &self.stack {
            Stack::Kernel => write!(f, "kernel{gso}")?,
            Stack::Skink(place, nic) => write!(f, "{}-{nic}{gso}", place.name)?,
            Stack::Raw(nic) if self.gso => write!(f, "raw-{nic}")?,
            Stack::Raw(nic) => write!(f, "raw-{nic}{gso}")?,
        }
        if self.rules > 0 {
            write!(f, "-rules-{}", self.rules)?;
        }
        if self.workers > 1 {
            write!(f, "-workers-{}", self.workers)?;
        }
        match self.idle {
            0 => Ok(()),
            idle => write!(f, "-idle-{idle}"),
        }
    }
}

impl Variant {
    /// The kernel's stack with and without its offloads.
    pub fn kernels() -> [Variant; 2] {
        [true, false].map(|gso| Variant {
            stack: Stack::Kernel,
            gso,
            rules: 0,
            idle: 0,
            workers: 1,
        })
    }

    /// The back ends without a stack, each once; on a cable without offloads too if `both`.
    pub fn raw(nics: &[BackEnd], both: bool) -> Vec<Variant> {
        Variant::of(nics.iter().map(|nic| Stack::Raw(*nic)), both)
    }

    /// Skink in each place, on each back end, each once; without offloads too if `both`.
    pub fn of_skink(places: &[Place], nics: &[BackEnd], both: bool) -> Vec<Variant> {
        let on = |place: &Place| {
            let place = place.clone();
            nics.iter()
                .map(move |nic| Stack::Skink(place.clone(), *nic))
        };
        Variant::of(places.iter().flat_map(on), both)
    }

    fn of(stacks: impl Iterator<Item = Stack>, both: bool) -> Vec<Variant> {
        let mut variants = Vec::new();
        for stack in stacks {
            for gso in [true, false] {
                let variant = Variant {
                    stack: stack.clone(),
                    gso,
                    rules: 0,
                    idle: 0,
                    workers: 1,
                };
                let wanted = gso || both;
                if wanted && !variants.contains(&variant) {
                    variants.push(variant);
                }
            }
        }
        variants
    }

    /// Whether segments larger than frames leave its stack and are not cut on the way.
    fn has_large_segments(&self) -> bool {
        self.gso && !self.sends_frames_only()
    }

    /// Whether it never hands a large segment to the cable.
    pub fn sends_frames_only(&self) -> bool {
        self.stack == Stack::Raw(BackEnd::Xdp)
    }

    /// What `base` is to this variant; `None` if they aren't to be compared.
    fn against(&self, base: &Variant) -> Option<&'static str> {
        if self.idle != base.idle {
            let without = Variant {
                idle: 0,
                ..self.clone()
            };
            return (*base == without).then_some("the same without idle connections");
        }
        if self.workers != base.workers {
            let alone = Variant {
                workers: 1,
                ..self.clone()
            };
            return (*base == alone).then_some("the same with one worker");
        }
        match (&self.stack, &base.stack) {
            (Stack::Kernel, _) => None,
            (_, Stack::Kernel) if base.gso => Some("kernel, GSO on"),
            (_, Stack::Kernel) => Some("kernel, GSO off"),
            _ if self == base || self.gso != base.gso => None,
            (Stack::Skink(_, nic), Stack::Raw(same)) if nic == same => Some(RAW),
            (Stack::Raw(_), _) | (_, Stack::Raw(_)) => None,
            (Stack::Skink(place, nic), Stack::Skink(other, same)) => {
                if other == place && same == nic && base.rules == 0 {
                    Some("the same without rules")
                } else if other.in_program && same == nic && self.rules == base.rules {
                    Some("the library")
                } else {
                    None
                }
            }
        }
    }

    fn beside(&self, base: &Variant) -> Option<Comparison> {
        Some(Comparison {
            variant: self.to_string(),
            base: base.to_string(),
            against: self.against(base)?.to_owned(),
            like_for_like: base.stack == Stack::Kernel
                && self.stack != Stack::Kernel
                && self.has_large_segments() == base.has_large_segments(),
        })
    }
}

/// Each variant of Skink beside the kernel's, beside the library, beside its back end without a stack, and
/// beside itself without rules, idle connections or more workers, as far as these are among the variants.
pub fn comparisons(variants: &[Variant]) -> Vec<Comparison> {
    let beside = |variant: &Variant| {
        let variant = variant.clone();
        let bases = variants.iter();
        bases
            .filter_map(move |base| variant.beside(base))
            .collect::<Vec<_>>()
    };
    variants.iter().flat_map(beside).collect()
}

#[cfg(test)]
mod tests;
