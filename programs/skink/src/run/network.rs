//! Which NIC and addresses a stack gets.
use super::choice::Candidate;
use crate::cli::NetworkOptions;
use crate::failure::Failure;
use skink_nic::NicSpec;
use skink_nic::interface::Interface;
use skink_wire::IpCidr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What was asked for, checked, with everything that was left open chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The first of the candidates, until one is open.
    pub nic: NicSpec,
    /// What may be tried, best first.
    pub candidates: Vec<Candidate>,
    /// On the choice, for the user.
    pub remarks: Vec<String>,
    pub addresses: Vec<IpCidr>,
    pub gateways: Vec<IpAddr>,
    /// To be given to the kernel's side of a TAP.
    pub kernel_addresses: Vec<IpCidr>,
    /// Whether the interface is there already.
    existed: bool,
}

/// Whether the kernel would take an IPv6 address.
pub fn kernel_has_ipv6() -> bool {
    std::fs::read_to_string("/proc/sys/net/ipv6/conf/default/disable_ipv6")
        .is_ok_and(|text| text.trim() == "0")
}

/// Chooses what `options` leave open; an error says what can't be had. Without candidates for the NIC it is a TAP.
pub fn plan(
    options: &NetworkOptions,
    mut candidates: Vec<Candidate>,
    interfaces: &[Interface],
    ipv6: bool,
) -> Result<Plan, Failure> {
    let nic = match candidates.first() {
        Some(first) => first.nic.clone(),
        None => {
            let tap = NicSpec::Tap(free_name(interfaces)?);
            candidates.push(Candidate::named(tap.clone()));
            tap
        }
    };
    let present = interfaces
        .iter()
        .find(|interface| interface.name == nic.interface());
    if options.addresses.is_empty() && !matches!(nic, NicSpec::Tap(_)) {
        let given = match &options.nic {
            Some(given) => given.to_string(),
            None => nic.to_string(),
        };
        return Err(Failure::own(format!(
            "--nic {given} needs an address for the stack: give one with --addr ADDRESS/PREFIX that is on the network of {} and that nobody has, not this machine either",
            nic.interface()
        )));
    }
    check_addresses(&options.addresses, interfaces)?;
    let mut plan = Plan::new(nic, options.addresses.clone());
    plan.candidates = candidates;
    plan.gateways = options.gateways.clone();
    plan.existed = present.is_some();
    if matches!(plan.nic, NicSpec::Tap(_)) {
        choose_for_tap(&mut plan, present, interfaces, ipv6)?;
    }
    check_gateways(&plan)?;
    Ok(plan)
}

fn free_name(interfaces: &[Interface]) -> Result<String, Failure> {
    let taken = |name: &String| interfaces.iter().any(|interface| interface.name == *name);
    let mut names = (0..100).map(|number| format!("skink{number}"));
    names.find(|name| !taken(name)).ok_or_else(|| {
        Failure::own("skink0 to skink99 are all taken: name another interface with --nic tap:NAME")
    })
}

fn check_addresses(addresses: &[IpCidr], interfaces: &[Interface]) -> Result<(), Failure> {
    for (at, cidr) in addresses.iter().enumerate() {
        let address = cidr.addr;
        let refuse = |why: String| Err(Failure::own(format!("--addr {cidr}: {why}")));
        if !can_be_a_hosts(cidr) {
            return refuse(
                "no host can have this address: give one that names a single host".to_owned(),
            );
        }
        if addresses
            .iter()
            .take(at)
            .any(|earlier| earlier.addr == address)
        {
            return refuse("the address is given twice: leave one out".to_owned());
        }
        let has =
            |interface: &&Interface| interface.addresses.iter().any(|own| own.addr == address);
        if let Some(interface) = interfaces.iter().find(has) {
            return refuse(format!(
                "the kernel has this address on {}, and the program needs one of its own: give another, or take it away with `ip address del {cidr} dev {}`",
                interface.name, interface.name
            ));
        }
    }
    Ok(())
}

fn can_be_a_hosts(cidr: &IpCidr) -> bool {
    let address = cidr.addr;
    let general = !address.is_unspecified() && !address.is_multicast() && !address.is_loopback();
    let special = match address {
        IpAddr::V4(address) => {
            address.is_broadcast()
                || (cidr.prefix < 31 && cidr.network().addr == address)
                || cidr.broadcast() == Some(address)
        }
        // That would be an IPv4 address, which may be the kernel's.
        IpAddr::V6(address) => address.to_ipv4_mapped().is_some(),
    };
    general && !special
}

/// Fills in what is missing for a TAP: the program's addresses and, where the TAP is made for it, the
/// kernel's on the other side. An interface that is there already stays as its owner set it up: it
/// may be a port of a bridge, where any address might be somebody's.
///
/// The kernel's side doesn't become the program's gateway by itself: what the kernel doesn't forward
/// would only time out, while destinations without a route go to the kernel's own stack.
fn choose_for_tap(
    plan: &mut Plan,
    present: Option<&Interface>,
    interfaces: &[Interface],
    ipv6: bool,
) -> Result<(), Failure> {
    if let Some(present) = present {
        return choose_beside(plan, present);
    }
    if plan.addresses.is_empty() {
        plan.addresses = free_networks(interfaces, ipv6)?;
    }
    for cidr in &plan.addresses {
        if !ipv6 && cidr.addr.is_ipv6() {
            continue;
        }
        let gateway = plan
            .gateways
            .iter()
            .find(|gateway| cidr.contains(**gateway));
        let chosen = match gateway {
            Some(gateway) => IpCidr::new(*gateway, cidr.prefix).ok(),
            None => another_host(cidr, &plan.addresses),
        };
        let new = |chosen: &IpCidr| !plan.kernel_addresses.contains(chosen);
        let chosen = chosen.filter(new);
        plan.kernel_addresses.extend(chosen);
    }
    Ok(())
}

/// The program's addresses beside those that the kernel has on a TAP of its own making.
fn choose_beside(plan: &mut Plan, present: &Interface) -> Result<(), Failure> {
    let link_local = |cidr: &&IpCidr| matches!(cidr.addr, IpAddr::V6(address) if address.is_unicast_link_local());
    if plan.addresses.is_empty() {
        plan.addresses = present
            .addresses
            .iter()
            .filter(|cidr| !link_local(cidr))
            .filter_map(|cidr| another_host(cidr, &[]))
            .collect();
    }
    if plan.addresses.is_empty() {
        return Err(Failure::own(format!(
            "{} is there already and has no address to choose one beside: give the program one with --addr ADDRESS/PREFIX",
            present.name
        )));
    }
    Ok(())
}

/// The first host address on the network of `cidr` that is neither its own nor among `taken`.
fn another_host(cidr: &IpCidr, taken: &[IpCidr]) -> Option<IpCidr> {
    let base = cidr.network().addr;
    let candidates = (0..16u8).filter_map(|offset| {
        let address: IpAddr = match base {
            IpAddr::V4(base) => {
                Ipv4Addr::from_bits(base.to_bits().checked_add(offset.into())?).into()
            }
            IpAddr::V6(base) => {
                Ipv6Addr::from_bits(base.to_bits().checked_add(offset.into())?).into()
            }
        };
        IpCidr::new(address, cidr.prefix).ok()
    });
    let free = |candidate: &IpCidr| {
        // An IPv6 network's first address is its routers' (RFC 4291 section 2.6.1).
        let routers = candidate.addr.is_ipv6() && candidate.addr == base && candidate.prefix < 127;
        cidr.contains(candidate.addr)
            && candidate.addr != cidr.addr
            && !routers
            && can_be_a_hosts(candidate)
            && !taken.iter().any(|taken| taken.addr == candidate.addr)
    };
    let mut candidates = candidates;
    candidates.find(free)
}

/// The program's addresses on networks that no interface is on: 10.77.N.2/24 and fd77:0:0:N::2/64.
fn free_networks(interfaces: &[Interface], ipv6: bool) -> Result<Vec<IpCidr>, Failure> {
    let networks = |number: u8| {
        let v4 = IpCidr::new(Ipv4Addr::new(10, 77, number, 2).into(), 24);
        let v6 = Ipv6Addr::new(0xfd77, 0, 0, number.into(), 0, 0, 0, 2);
        let v6 = IpCidr::new(v6.into(), 64);
        [v4.ok(), v6.ok().filter(|_| ipv6)]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
    };
    let clash = |wanted: &IpCidr| {
        let mut theirs = interfaces.iter().flat_map(|interface| &interface.addresses);
        theirs.any(|their| their.contains(wanted.addr) || wanted.contains(their.addr))
    };
    let mut numbers = (0..=u8::MAX).map(networks);
    numbers
        .find(|networks| !networks.iter().any(clash))
        .ok_or_else(|| {
            Failure::own(
                "all of 10.77.0.0/16 is in use here: give the program an address with --addr",
            )
        })
}

fn check_gateways(plan: &Plan) -> Result<(), Failure> {
    for (at, gateway) in plan.gateways.iter().enumerate() {
        let refuse = |why: String| Err(Failure::own(format!("--gateway {gateway}: {why}")));
        let link_local = matches!(gateway, IpAddr::V6(address) if address.is_unicast_link_local());
        let mut own = plan.addresses.iter();
        let network = own.find(|cidr| cidr.contains(*gateway));
        // An address that is alone on its network, as clouds give them, has its router elsewhere on the link.
        let is_alone = |cidr: &IpCidr| match (cidr.addr, gateway) {
            (IpAddr::V4(_), IpAddr::V4(_)) => cidr.prefix == 32,
            (IpAddr::V6(_), IpAddr::V6(_)) => cidr.prefix == 128,
            _ => false,
        };
        let prefix = network.map_or(if gateway.is_ipv4() { 32 } else { 128 }, |cidr| cidr.prefix);
        if !IpCidr::new(*gateway, prefix).is_ok_and(|cidr| can_be_a_hosts(&cidr)) {
            return refuse("no host has that address: give the router's".to_owned());
        }
        if !link_local && network.is_none() && !plan.addresses.iter().any(is_alone) {
            let own: Vec<String> = plan.addresses.iter().map(ToString::to_string).collect();
            return refuse(format!(
                "it is on no network of the program ({}): give a router on one of them",
                own.join(", ")
            ));
        }
        if plan.addresses.iter().any(|cidr| cidr.addr == *gateway) {
            return refuse("it is the program's own address: give the router's".to_owned());
        }
        let same_family = |earlier: &IpAddr| earlier.is_ipv4() == gateway.is_ipv4();
        if plan.gateways.iter().take(at).any(same_family) {
            return refuse(
                "there can be one gateway for IPv4 and one for IPv6: leave one out".to_owned(),
            );
        }
    }
    Ok(())
}

impl Plan {
    pub fn new(nic: NicSpec, addresses: Vec<IpCidr>) -> Plan {
        Plan {
            nic,
            candidates: Vec::new(),
            remarks: Vec::new(),
            addresses,
            gateways: Vec::new(),
            kernel_addresses: Vec::new(),
            existed: false,
        }
    }

    /// What to tell the user, a line each.
    pub fn describe(&self, program: &str) -> Vec<String> {
        let join = |words: Vec<String>| words.join(" and ");
        let addresses = join(self.addresses.iter().map(ToString::to_string).collect());
        let made = match (&self.nic, self.existed) {
            (NicSpec::Tap(_), false) => ", made for it",
            (_, _) => "",
        };
        let mut lines = self.remarks.clone();
        lines.push(format!("{program} has {addresses} on {}{made}", self.nic));
        if !self.kernel_addresses.is_empty() {
            let ours = join(
                self.kernel_addresses
                    .iter()
                    .map(|cidr| cidr.addr.to_string())
                    .collect(),
            );
            let theirs = join(
                self.addresses
                    .iter()
                    .map(|cidr| cidr.addr.to_string())
                    .collect(),
            );
            lines.push(format!(
                "this machine reaches it at {theirs}, and is {ours} to it"
            ));
        } else if !self.gateways.is_empty() {
            let gateways = join(self.gateways.iter().map(ToString::to_string).collect());
            lines.push(format!("gateway {gateways}"));
        }
        lines
    }
}

#[cfg(test)]
mod tests;
