//! What steers packets passes to another build of the supervisor too: the XDP program in front of the NIC, its tables,
//! and the queues.

use super::upgrade::{BUILD_THAT_DIES, build, changed_under_programs, not_inherited};
use super::{Download, bound_receive_buffers, names};
use crate::cases::workers::until_on_queues;
use crate::network::{Network, Plan};
use crate::site::{Nginx, Site};
use crate::upgrade::copy_of_build;
use crate::{BackEnd, Failure, Outcome, Topology};
use rustix::process::Signal;
use skink_testbed::{Process, Scratch};
use std::path::Path;

/// Some queues, where one process has all of the stack.
pub fn plan(topology: Topology) -> Plan {
    Plan {
        queues: match topology {
            Topology::Single => 2,
            Topology::Library | Topology::Split => 1,
        },
        ..Plan::plain(topology, BackEnd::Xdp)
    }
}

/// A download goes on while another build becomes the supervisor and then starts each process again, which need what it
/// was handed: the NIC as it was, or opened anew, and the tables of who has which port. It goes on with the standby too
/// when a build is no good, and all the while one XDP program brings the frames to the queues. (That it is taken off
/// at the end is [`Network::stop`]'s to see.)
pub fn handed_on(network: &Network) -> Outcome {
    let scratch = Scratch::new("build")?;
    let other = copy_of_build(&scratch)?;
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    bound_receive_buffers(network)?;
    let program = network.xdp_program()?;
    let is_the_same = |when: &str| match network.xdp_program()? {
        now if now == program && now.is_some() => Ok(()),
        now => Err(Failure::Wrong(format!(
            "XDP program {now:?} is in front of the NIC {when}, and was {program:?} before"
        ))),
    };
    until_on_queues(network)?;
    let download = Download::start(network, &site.path("copy"), &site.path("larger"))?;
    changed_under_programs(network, &other)?;
    is_the_same("after the upgrade")?;
    for name in names(network)? {
        network.replace(&name, Signal::KILL)?;
        download.goes_on()?;
    }
    until_on_queues(network)?;
    opened_anew(network)?;
    download.finish()?;
    until_on_queues(network)?;
    is_the_same("after its processes were killed")?;
    taken_back(network, &site, &other)?;
    is_the_same("after a build that was no good")?;
    nginx.stop()
}

/// Which process has the NIC.
fn holder(network: &Network) -> Result<String, Failure> {
    match network.plan.topology {
        Topology::Split => Ok("link".to_owned()),
        Topology::Library | Topology::Single => Ok(names(network)?.swap_remove(0)),
    }
}

/// Who has the NIC dies soon after he was started, until his queues count as spoilt: others are opened, and put into
/// the tables.
fn opened_anew(network: &Network) -> Outcome {
    let holder = holder(network)?;
    let said = || network.up.as_ref().map_or(String::new(), Process::log);
    for _ in 0..5 {
        network.replace(&holder, Signal::KILL)?;
        if said().contains("the NIC is opened anew") {
            return Ok(());
        }
    }
    Err(Failure::Wrong(format!(
        "the NIC wasn't opened anew; skink up printed:\n{}",
        said()
    )))
}

/// The supervisor's standby goes on with what steers when a build dies that was handed it.
fn taken_back(network: &Network, site: &Site, own: &Path) -> Outcome {
    // Beside the other build, which runs.
    let scratch = Scratch::new("build")?;
    let download = Download::start(network, &site.path("copy-2"), &site.path("larger"))?;
    not_inherited(network, &build(&scratch, BUILD_THAT_DIES)?, own)?;
    network.replace(&holder(network)?, Signal::KILL)?;
    download.goes_on()?;
    until_on_queues(network)?;
    download.finish()
}
