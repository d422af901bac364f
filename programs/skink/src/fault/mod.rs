//! `skink fault`: puts faults into components of a running stack, and shows how it recovers.

mod campaign;
mod peer;
mod strike;

use crate::failure::Failure;
use crate::stderr::tell;
use crate::tools;
use clap::{Args, Subcommand};
use skink_injector::{Class, Plan, Random};
use std::fmt::Write;
use std::time::Duration;
use strike::Strike;

/// Faults that one process gets at most.
const MOST: usize = 100;
/// How long it may go on with them.
const PATIENCE: Duration = Duration::from_secs(60);

/// Put faults into a component of a running stack, until it dies of them
///
/// Faults are put where the component comes by under its load, one at a time and up to 100, until it
/// crashes, hangs (then the supervisor kills it), or a minute has passed. docs/faults.md has the classes. A
/// component that survives keeps its faults: kill it with `kill -9` when you have seen enough.
///
/// Needs root and an x86-64 processor. Don't do it to a stack that you need.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = "\
Examples:
  skink fault --name main --component tcp
  skink fault --class stop --seed 7 --json
  skink fault campaign --runs 100 --output campaign"
)]
pub struct FaultOptions {
    #[command(subcommand)]
    verb: Option<FaultVerb>,
    /// Name or process id of the `skink up` [default: the only one that runs]
    #[arg(long, value_name = "NAME|PID")]
    name: Option<String>,
    /// The component's process, as `skink ps` calls it [default: the seed decides]
    #[arg(long, value_name = "NAME")]
    component: Option<String>,
    /// What kind of faults
    #[arg(long, value_name = "CLASS", default_value_t = Class::Random)]
    class: Class,
    /// Decides all that is drawn
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum FaultVerb {
    Campaign(campaign::CampaignOptions),
    #[command(hide = true)]
    Peer(peer::PeerOptions),
}

/// Injects.
pub fn fault(options: &FaultOptions) -> Result<(), Failure> {
    match &options.verb {
        Some(FaultVerb::Campaign(options)) => campaign::campaign(options),
        Some(FaultVerb::Peer(options)) => peer::peer(options),
        None => once(options),
    }
}

/// What keeps faults from being injected here, if something does.
fn check_machine() -> Result<(), Failure> {
    if !cfg!(target_arch = "x86_64") {
        return Err(Failure::tool(
            "faults can be injected on x86-64 only, and this machine has another processor",
        ));
    }
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::tool(
            "changing another process's machine code needs root: run `sudo skink fault`",
        ));
    }
    Ok(())
}

fn once(options: &FaultOptions) -> Result<(), Failure> {
    check_machine()?;
    let mut stack = tools::find_stack(options.name.as_deref())?;
    let mut random = Random::new(options.seed);
    let component = match &options.component {
        Some(name) => name.clone(),
        None => {
            let names: Vec<&str> = stack.info.components.iter().map(|it| &*it.name).collect();
            random
                .pick(&names)
                .map_or(String::new(), |it| (*it).to_owned())
        }
    };
    let plan = Plan {
        class: options.class,
        seed: options.seed,
        most: MOST,
        patience: PATIENCE,
    };
    let strike = Strike::new(&mut stack, &component, &plan, &mut |injection| {
        if !options.json {
            tell(format_args!("{} in {}", injection.what, injection.place));
        }
    })?;
    match options.json {
        true => tools::print_json(&strike, true),
        false => tools::print(&describe(&strike)),
    }
}

fn describe(strike: &Strike) -> String {
    let mut text = String::new();
    let active = strike.activated();
    let _ = writeln!(
        text,
        "{} (process {}): {} faults injected, {active} activated",
        strike.component,
        strike.pid,
        strike.injections.len()
    );
    let _ = writeln!(text, "{}", strike.in_words());
    if let Some(injection) = strike
        .injections
        .iter()
        .rfind(|it| it.activated_ms.is_some())
    {
        let _ = writeln!(
            text,
            "last activated: {}\n  in      {}\n  before  {}\n  after   {}",
            injection.what, injection.place, injection.before, injection.after
        );
    }
    text
}
