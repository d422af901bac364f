//! Which back end a stack gets on an interface when the person names the interface alone.
//!
//! The choice is a function of [`Facts`]. What was measured is in [`measured`]; docs/performance.md shows it
//! ("Which back end").
mod measured;

use crate::failure::Failure;
use measured::{LARGE, SMALL};
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};
use skink_nic::interface::Interface;
use skink_nic::{Device, NicSpec, OpenError, XDP_MTU};
use std::fmt;
use std::str::FromStr;

/// What stands after `--nic`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// This and no other.
    Named(NicSpec),
    /// The best on this interface.
    BestOn(String),
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Wanted, String> {
        if text.contains(':') {
            let named = text.parse().map(Wanted::Named);
            return named.map_err(|error| {
                format!("{error}; or the interface alone, such as eth0, and Skink chooses")
            });
        }
        // What can be an interface's name is the same for all kinds.
        let spec: Result<NicSpec, _> = format!("packet:{text}").parse();
        spec.map(|_| Wanted::BestOn(text.to_owned()))
            .map_err(|error| error.to_string())
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wanted::Named(nic) => nic.fmt(formatter),
            Wanted::BestOn(interface) => formatter.write_str(interface),
        }
    }
}

/// Who is to have the NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// The processes of one program, each with a stack inside (`skink run`).
    Inside,
    /// A stack in processes of its own (`skink up`).
    Apart,
}

/// A back end that may be tried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    pub nic: NicSpec,
    /// Why Skink chose it, in a clause; `None` if the person did.
    pub why: Option<String>,
}

impl Candidate {
    pub fn named(nic: NicSpec) -> Candidate {
        Candidate { nic, why: None }
    }
}

/// What the choice depends on.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Facts {
    interface: String,
    device: Device,
    /// Largest IP packet in bytes.
    mtu: u32,
    /// It is on, and somebody has the other end of the link.
    running: bool,
    /// This process may load XDP programs.
    may_load: bool,
    /// It may pin the memory of AF_XDP's frames.
    may_pin: bool,
    used: Use,
}

/// The NICs to try, best first; none if the person says nothing about it.
pub fn candidates(
    wanted: Option<&Wanted>,
    interfaces: &[Interface],
    used: Use,
) -> Result<Vec<Candidate>, Failure> {
    match wanted {
        None => Ok(Vec::new()),
        Some(Wanted::Named(nic)) => Ok(vec![Candidate::named(nic.clone())]),
        Some(Wanted::BestOn(name)) => {
            let found = interfaces.iter().find(|interface| interface.name == *name);
            let interface = found.ok_or_else(|| {
                Failure::own(OpenError::no_interface(name, interfaces).to_string())
            })?;
            Ok(best(&Facts {
                interface: name.clone(),
                device: Device::of(interface),
                mtu: interface.mtu,
                running: interface.running,
                may_load: may_load_programs(),
                may_pin: may_pin_memory(),
                used,
            }))
        }
    }
}

/// Whether the kernel lets this process put an XDP program in front of an interface.
fn may_load_programs() -> bool {
    let own = capabilities(None).map_or(CapabilitySet::empty(), |own| own.effective);
    // What a user has in a namespace of the user's own doesn't count. That of the whole machine has a fixed number
    // (PROC_USER_INIT_INO of <linux/proc_ns.h>).
    let users = std::fs::read_link("/proc/self/ns/user");
    users.is_ok_and(|users| users.as_os_str() == "user:[4026531837]")
        && own.contains(CapabilitySet::NET_ADMIN)
        && own.intersects(CapabilitySet::BPF | CapabilitySet::SYS_ADMIN)
}

/// Whether the kernel lets this process pin what AF_XDP needs for all queues that are used.
fn may_pin_memory() -> bool {
    const MOST: u64 = 256 << 20;
    let own = capabilities(None).map_or(CapabilitySet::empty(), |own| own.effective);
    let limit = getrlimit(Resource::Memlock).current;
    own.contains(CapabilitySet::IPC_LOCK) || limit.is_none_or(|bytes| bytes >= MOST)
}

/// The choice itself.
fn best(facts: &Facts) -> Vec<Candidate> {
    let name = &facts.interface;
    let candidate = |nic: fn(String) -> NicSpec, why: &str| Candidate {
        nic: nic(name.clone()),
        why: Some(why.to_owned()),
    };
    if facts.device.driver == "tun" && !facts.running {
        let why = format!("{name} is a TAP whose other end nobody has");
        return vec![candidate(NicSpec::Tap, &why)];
    }
    match for_xdp(facts) {
        Ok(why) => vec![
            candidate(NicSpec::Xdp, &why),
            candidate(NicSpec::Packet, "it works on every Ethernet interface"),
        ],
        Err(why) => vec![candidate(NicSpec::Packet, &why)],
    }
}

/// What speaks for AF_XDP, or against it.
fn for_xdp(facts: &Facts) -> Result<String, String> {
    let (name, device) = (&facts.interface, &facts.device);
    let veth = device.driver == "veth";
    let known = match device.driver.as_str() {
        "" => String::new(),
        driver => format!(" ({driver})"),
    };
    if !facts.may_load {
        return Err(
            "AF_XDP needs CAP_BPF and CAP_NET_ADMIN, or root, of the whole machine".to_owned(),
        );
    }
    if !facts.may_pin {
        return Err(
            "AF_XDP pins memory: that needs CAP_IPC_LOCK, or `ulimit -l unlimited`".to_owned(),
        );
    }
    if device.xdp_program.is_some() {
        return Err(format!(
            "another XDP program is in front of {name} (`ip link show {name}`)"
        ));
    }
    // Kernels before 6.3 don't say. A veth can since 4.19.
    if !device.xdp.map_or(veth, |xdp| xdp.native) {
        return Err(format!(
            "the driver of {name}{known} takes no XDP program, as far as the kernel tells"
        ));
    }
    if facts.mtu > XDP_MTU {
        return Err(format!(
            "frames of {name} (MTU {}) don't fit into AF_XDP's chunks (MTU {XDP_MTU} at most)",
            facts.mtu
        ));
    }
    if veth {
        return for_xdp_on_veth(facts);
    }
    if facts.used == Use::Apart {
        return Err(format!(
            "AF_XDP isn't measured for `skink up` on {name}{known}"
        ));
    }
    let unmeasured = "which isn't measured (docs/performance.md#which-back-end)";
    match device.xdp.is_some_and(|xdp| xdp.zero_copy) {
        true => Ok(format!(
            "{name}{known} exchanges frames with AF_XDP without a copy, {unmeasured}"
        )),
        false => Err(format!(
            "{name}{known} would copy AF_XDP's frames, {unmeasured}"
        )),
    }
}

/// Where both were measured, small requests decide: most answers of most servers are.
fn for_xdp_on_veth(facts: &Facts) -> Result<String, String> {
    let cuts = facts.device.cuts;
    let [small, large] = [SMALL, LARGE].map(|workload| measured::ratio(facts.used, cuts, workload));
    let without = if cuts {
        ""
    } else {
        " without segmentation offload"
    };
    let why = format!(
        "on a veth{without} small requests on xdp do {small:.2} of packet's work per CPU second, large answers \
         {large:.2} (docs/performance.md#which-back-end)"
    );
    match small > 1.0 {
        true => Ok(why),
        false => Err(why),
    }
}

#[cfg(test)]
mod tests;
