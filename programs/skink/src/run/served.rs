//! Programs on a stack that `skink up` runs: nothing is opened here, so no privileges are needed.
use crate::cli::RunOptions;
use crate::failure::Failure;
use crate::stderr::say;
use skink_control::{
    CONTROL_VARIABLE, ControlError, MEMORY_VARIABLE, NetworkInfo, TOKEN_VARIABLE, check_name,
    named, names,
};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The instance that a program is to be served by, if it is asked for: by its name, and without
/// saying what a stack of the program's own would need.
pub fn instance(options: &RunOptions) -> Option<&str> {
    let network = &options.network;
    let own = network.nic.is_some()
        || !network.addresses.is_empty()
        || !network.gateways.is_empty()
        || options.rules.is_some();
    options.name.as_deref().filter(|_| !own)
}

/// Becomes the program, unless that fails. Nothing is left for this process to do: the supervisor
/// knows its programs by itself.
pub fn become_program(mut command: Command, name: &str, program: &str, path: &Path) -> Failure {
    let (info, place) = match find(name) {
        Ok(found) => found,
        Err(failure) => return failure,
    };
    say(format_args!("{}", describe(program, name, &info)));
    command.env(CONTROL_VARIABLE, place).env(TOKEN_VARIABLE, "");
    command.env(MEMORY_VARIABLE, super::socket_memory().to_string());
    let error = command.exec();
    super::cannot_run(path, &error)
}

fn find(name: &str) -> Result<(NetworkInfo, String), Failure> {
    check_name(name).map_err(|why| Failure::own(format!("--name: {why}")))?;
    let asked = named(name).and_then(|(mut broker, place)| Ok((broker.network()?, place)));
    asked.map_err(|error| match error {
        ControlError::Unreachable(_) => Failure::own(missing(name, &names())),
        ControlError::Refused(reason) => {
            Failure::own(format!("{name} doesn't serve you: {reason}"))
        }
        error => Failure::own(format!("{name} can't be asked: {error}")),
    })
}

fn describe(program: &str, name: &str, info: &NetworkInfo) -> String {
    let topology = info.topology.as_deref().unwrap_or("library");
    let addresses = info.addresses.iter().map(ToString::to_string);
    let addresses = addresses.collect::<Vec<_>>().join(" and ");
    let nic = &info.nic;
    format!("{program} is served by {name} ({topology}, {addresses} on {nic})")
}

fn missing(name: &str, running: &[String]) -> String {
    let others = match running {
        [] => "none runs at all".to_owned(),
        names => format!("there runs {}", names.join(", ")),
    };
    format!(
        "no `skink up` called {name} runs here ({others}): start one with `skink up --name {name} --nic NIC \
         --addr ADDRESS/PREFIX`, or leave --name out for a stack of the program's own"
    )
}

#[cfg(test)]
mod tests;
