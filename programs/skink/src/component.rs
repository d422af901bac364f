//! `skink component`: the process of a component, as the supervisor starts it. Not for people.
use crate::failure::Failure;
use crate::interfaces;
use clap::Args;
use skink_control::{ComponentLink, PartStart, Report, StackStart, take_component_link};
use skink_process::{
    Ended, First, Host, Orphans, Parts, StartError, confine, confine_parts, receive_start, serve,
};
use skink_sandbox::{Refusal, keep_only};
use std::os::fd::{AsFd, OwnedFd};

/// As which a build only says what it is: to find out whether it can be the supervisor.
pub const SUPERVISOR: &str = "supervisor";

/// Be a component (for the supervisor's use)
#[derive(Args, Debug)]
pub struct ComponentOptions {
    /// Its process's name in the topology, for the log
    pub name: String,
}

/// Hosts what the supervisor says, until it says to stop.
pub fn component(options: &ComponentOptions) -> Result<(), Failure> {
    let span = tracing::error_span!("process", name = options.name);
    let _entered = span.enter();
    let failed =
        |what: &dyn std::fmt::Display| Failure::tool(format!("process {}: {what}", options.name));
    let link = take_component_link().ok_or_else(|| {
        failed(&"`skink component` is started by `skink up` alone, which hands it a socket")
    })?;
    keep_only(&[link.as_fd()]).map_err(|error| failed(&error))?;
    let build = match options.name.as_str() {
        SUPERVISOR => interfaces::of_supervisor(),
        _ => interfaces::own(),
    };
    let refusal = Refusal::from_environment();
    let born = link.send(&Report::Born(build), &[]);
    born.map_err(|error| failed(&error))?;
    let (first, descriptors) = receive_start(&link).map_err(|error| failed(&error))?;
    let ended = match first {
        First::Stack(start) => stack(*start, descriptors, link, refusal, &failed)?,
        First::Part(start) => parts(*start, descriptors, link, refusal, &failed)?,
        First::Orphans(start) => return orphans(*start, descriptors, refusal, &failed),
    };
    match ended {
        Ended::Stopped => tracing::info!("stopped, as ordered"),
        Ended::Deserted => tracing::warn!("ending: the supervisor and all programs are gone"),
        Ended::Broken => {
            return Err(failed(
                &"a neighbour has spoilt its queue, so this process can't go on",
            ));
        }
    }
    Ok(())
}

type Failed<'a> = &'a dyn Fn(&dyn std::fmt::Display) -> Failure;

fn stack(
    start: StackStart,
    descriptors: Vec<OwnedFd>,
    link: ComponentLink,
    refusal: Refusal,
    failed: Failed<'_>,
) -> Result<Ended, Failure> {
    let parts = Parts::new(start, descriptors).map_err(|error| failed(&error))?;
    let nic = parts.nic.capabilities.kind;
    let user = parts.start.user;
    let host = Host::new(parts).map_err(|error| failed(&error))?;
    let sandbox = confine(nic, user, refusal).map_err(|error| failed(&error))?;
    started(&link, &sandbox).map_err(|error| failed(&error))?;
    Ok(serve(host, link))
}

fn parts(
    start: PartStart,
    descriptors: Vec<OwnedFd>,
    link: ComponentLink,
    refusal: Refusal,
    failed: Failed<'_>,
) -> Result<Ended, Failure> {
    let user = start.stack.user;
    let host = Host::of_parts(start, descriptors);
    if let Err(StartError::Spoilt(_)) = &host {
        // Its successors would fail alike.
        link.send(&Report::Broken {}, &[])
            .map_err(|error| failed(&error))?;
    }
    let mut host = host.map_err(|error| failed(&error))?;
    // Before it is confined: no descriptor can be sent from then on.
    for (report, descriptors) in host.introduction().map_err(|error| failed(&error))? {
        let all: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        link.send(&report, &all).map_err(|error| failed(&error))?;
    }
    let sandbox = confine_parts(&host, user, refusal).map_err(|error| failed(&error))?;
    started(&link, &sandbox).map_err(|error| failed(&error))?;
    Ok(serve(host, link))
}

/// The one who ordered it hears of its end.
fn orphans(
    start: StackStart,
    descriptors: Vec<OwnedFd>,
    refusal: Refusal,
    failed: Failed<'_>,
) -> Result<(), Failure> {
    let orphans = Orphans::new(start, descriptors).map_err(|error| failed(&error))?;
    let sandbox = orphans.confine(refusal).map_err(|error| failed(&error))?;
    tracing::debug!("{sandbox}");
    orphans.end().map_err(|error| failed(&error))
}

fn started(link: &ComponentLink, sandbox: &skink_sandbox::Report) -> std::io::Result<()> {
    tracing::info!("{sandbox}");
    let sandbox = sandbox.missing.join("; ");
    link.send(&Report::Started { sandbox }, &[])
}
