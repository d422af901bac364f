//! `skink component`: the process of a component, as the supervisor starts it. Not for people.
use crate::failure::Failure;
use clap::Args;
use skink_control::{Report, take_component_link};
use skink_process::{Ended, Host, Parts, confine, receive_start, serve};
use skink_sandbox::{Refusal, keep_only};
use std::os::fd::AsFd;

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
    let refusal = Refusal::from_environment();
    let (start, descriptors) = receive_start(&link).map_err(|error| failed(&error))?;
    let parts = Parts::new(*start, descriptors).map_err(|error| failed(&error))?;
    let nic = parts.nic.capabilities.kind;
    let user = parts.start.user;
    let host = Host::new(parts).map_err(|error| failed(&error))?;
    let sandbox = confine(nic, user, refusal).map_err(|error| failed(&error))?;
    tracing::info!("{sandbox}");
    let sandbox = sandbox.missing.join("; ");
    link.send(&Report::Started { sandbox }, &[])
        .map_err(|error| failed(&error))?;
    match serve(host, link) {
        Ended::Stopped => tracing::info!("stopped, as ordered"),
        Ended::Deserted => tracing::warn!("ending: the supervisor and all programs are gone"),
    }
    Ok(())
}
