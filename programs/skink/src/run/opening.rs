//! Opens the NIC that a plan names, or the best that can be had.
use super::choice::Candidate;
use super::network::Plan;
use super::{netlink, probe};
use crate::cli::NetworkOptions;
use crate::failure::Failure;
use skink_nic::{Device, NicSpec, Opener, Sharing, XdpPlace, interface};
use skink_wire::IpCidr;

/// Opens the first of the plan's candidates that can be had, which is the plan's NIC from then on, and sets it up. What
/// Skink chose and what it couldn't have goes to the plan's remarks.
pub fn open(
    plan: &mut Plan,
    options: &NetworkOptions,
    sharing: Sharing,
) -> Result<Opener, Failure> {
    probe_addresses(plan, options)?;
    let addresses = plan.addresses.clone();
    let mut opener = open_best(plan, |candidate| {
        try_to_open(candidate, sharing, &addresses)
    })?;
    let steers = opener.steering().is_some();
    if sharing == Sharing::Several && !steers && matches!(plan.nic, NicSpec::Packet(_)) {
        plan.remarks.push(format!(
            "one process at a time can have a stack on {}: more need CAP_BPF, or root",
            plan.nic
        ));
    }
    set_up(plan)?;
    Ok(opener)
}

/// The first candidate that can be opened is the plan's NIC from then on.
fn open_best<T>(
    plan: &mut Plan,
    mut open: impl FnMut(&Candidate) -> Result<T, String>,
) -> Result<T, Failure> {
    let mut last = Failure::own(format!("nothing can serve on {}", plan.nic));
    for candidate in std::mem::take(&mut plan.candidates) {
        let nic = &candidate.nic;
        match open(&candidate) {
            Ok(opened) => {
                let why = candidate.why.iter();
                plan.remarks
                    .extend(why.map(|why| format!("{nic} chosen: {why}")));
                plan.nic = candidate.nic;
                return Ok(opened);
            }
            Err(why) => {
                plan.remarks.push(format!("{nic} can't be had: {why}"));
                last = Failure::own(why);
            }
        }
    }
    Err(last)
}

fn try_to_open(
    candidate: &Candidate,
    sharing: Sharing,
    addresses: &[IpCidr],
) -> Result<Opener, String> {
    let mut opener = Opener::new(&candidate.nic, sharing).map_err(|error| error.to_string())?;
    // A driver that takes programs may refuse all the same, such as for want of queues to send by.
    if candidate.why.is_some() && is_generic(&candidate.nic) {
        let why = "the driver doesn't take the XDP program, and behind it frames cost more";
        return Err(why.to_owned());
    }
    let set = opener.set_addresses(addresses);
    set.map_err(|error| error.to_string())?;
    Ok(opener)
}

/// Whether AF_XDP's program came to sit behind the driver.
fn is_generic(nic: &NicSpec) -> bool {
    let NicSpec::Xdp(name) = nic else {
        return false;
    };
    let interface = interface::find(name).ok().flatten();
    interface.is_some_and(|it| Device::of(&it).xdp_program == Some(XdpPlace::Generic))
}

/// Fails if somebody on the link has one of the addresses already.
fn probe_addresses(plan: &Plan, options: &NetworkOptions) -> Result<(), Failure> {
    let shared = matches!(&plan.nic, NicSpec::Packet(_) | NicSpec::Xdp(_));
    if shared && !options.no_probe {
        probe::probe(plan.nic.interface(), &plan.addresses)?;
    }
    Ok(())
}

/// The kernel's side of a TAP, which is there by now.
fn set_up(plan: &Plan) -> Result<(), Failure> {
    if let NicSpec::Tap(name) = &plan.nic {
        let failed = |what: String| Failure::own(format!("can't set {name} up: {what}"));
        interface::set_up(name).map_err(|error| failed(error.to_string()))?;
        for address in &plan.kernel_addresses {
            netlink::add_address(name, address)
                .map_err(|error| failed(format!("adding {address}: {error}")))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
