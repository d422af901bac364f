//! `skink fault campaign`: faults under load, run after run, until so many components have died.

mod lab;
mod load;
mod report;
mod run;
mod state;

use crate::failure::Failure;
use crate::stderr::tell;
use crate::tools;
use clap::Args;
use lab::Lab;
use load::Loads;
use skink_injector::{Class, Random};
use state::{Campaign, Settings};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Set in the environment of the inner half, to the mount namespace of the outer one.
const INNER: &str = "SKINK_FAULT_INNER";
/// Runs for each crash that is wanted, until it is given up.
const PATIENCE: usize = 20;

/// Put faults into the components of a stack of its own, in turn, and count how it recovers
///
/// Makes private namespaces with a client and a stack that serves nginx, OpenSSH, transfers both ways and
/// datagrams, all verified. Each run puts faults into one component until it crashes or hangs; then it looks
/// which connections were lost, whether bytes are right, and whether all services are reached anew. Runs
/// go on until so many have crashed. The state is kept: the same command goes on where it was interrupted.
#[derive(Args, Debug)]
pub struct CampaignOptions {
    /// Runs that end in a crash or a hang
    #[arg(long, value_name = "N", default_value_t = 100)]
    runs: usize,
    /// Decides all that is drawn
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// What kind of faults
    #[arg(long, value_name = "CLASS", default_value_t = Class::Random)]
    class: Class,
    /// Where the stack's components run
    #[arg(long, value_name = "TOPOLOGY", default_value = "split")]
    topology: String,
    /// Handed to `skink up`: whether connections are adopted when a component dies, or given up
    #[arg(long, value_name = "adopt|stateless")]
    recovery: Option<String>,
    /// How long a component may go on with its faults, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    patience: u64,
    /// Keep the state and the report here, as campaign.json, report.md and report.json
    #[arg(long, value_name = "DIRECTORY", default_value = "campaign")]
    output: PathBuf,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

/// Runs a campaign.
pub fn campaign(options: &CampaignOptions) -> Result<(), Failure> {
    super::check_machine()?;
    match std::env::var_os(INNER) {
        Some(outside) => inner(options, Path::new(&outside)),
        None => Err(outer(options)),
    }
}

/// Goes on as the inner half; answers why it couldn't.
fn outer(options: &CampaignOptions) -> Failure {
    let missing = skink_testbed::missing_programs(&[
        "nginx",
        "sshd",
        "ssh",
        "ssh-keygen",
        "ip",
        "unshare",
        "mount",
    ]);
    if !missing.is_empty() {
        return Failure::tool(format!(
            "these programs are missing: {}. Install them first; on Debian: \
             apt-get install nginx openssh-server openssh-client iproute2 util-linux",
            missing.join(", ")
        ));
    }
    match prepare(options) {
        Ok(mut command) => {
            let error = command.exec();
            Failure::tool(format!("can't start the campaign: {error}"))
        }
        Err(error) => Failure::tool(format!(
            "can't prepare {}: {error}",
            options.output.display()
        )),
    }
}

fn prepare(options: &CampaignOptions) -> std::io::Result<Command> {
    std::fs::create_dir_all(&options.output)?;
    // This process's number stays the same: no other has a directory of that name.
    let scratch = options
        .output
        .join(format!("scratch-{}", std::process::id()));
    std::fs::create_dir(&scratch)?;
    let mut path = std::env::var("PATH").unwrap_or_default();
    path.push_str(":/usr/sbin:/sbin");
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1));
    command
        .env("PATH", path)
        .env("TMPDIR", scratch.canonicalize()?);
    command.env(INNER, std::fs::read_link("/proc/self/ns/mnt")?);
    Ok(command)
}

/// In private namespaces, where all but the output can't be written: what a faulty stack makes of the programs
/// that it serves as root must not reach the machine.
fn inner(options: &CampaignOptions, outside: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::tool(format!("can't make namespaces: {error}"));
    skink_testbed::enter().map_err(failed)?;
    let here = std::fs::read_link("/proc/self/ns/mnt").map_err(failed)?;
    if here == outside {
        return Err(Failure::tool("this isn't a mount namespace of its own"));
    }
    let output = options.output.canonicalize().map_err(|_| {
        Failure::tool("the output can't be below /tmp or /run, which are private meanwhile")
    })?;
    let name = output.to_string_lossy();
    for arguments in [
        &["--bind", &*name, &*name][..],
        &["-o", "remount,bind,ro", "/"],
    ] {
        let status = Command::new("mount").args(arguments).status();
        if !status.map_err(failed)?.success() {
            return Err(Failure::tool("the machine's files can't be made read-only"));
        }
    }
    // The old one is behind the mount, and read-only.
    std::env::set_current_dir("/").map_err(failed)?;
    let campaign = go_on(options, &output);
    // Empty by now, and of no use to anybody if not.
    let _ = std::fs::remove_dir(std::env::temp_dir());
    let campaign = campaign?;
    match options.json {
        true => tools::print(&report::json(&campaign)?),
        false => tools::print(&report::markdown(&campaign)),
    }
}

fn go_on(options: &CampaignOptions, output: &Path) -> Result<Campaign, Failure> {
    let settings = Settings {
        seed: options.seed,
        class: options.class,
        topology: options.topology.clone(),
        recovery: options.recovery.clone(),
        patience: options.patience,
    };
    let mut campaign = Campaign::load(output, settings)?;
    if campaign.crashes() >= options.runs {
        return Ok(campaign);
    }
    let mut lab = Lab::new(options).map_err(lab::failed)?;
    let mut loads = Loads::start(&lab).map_err(lab::failed)?;
    let stack = lab.stack()?;
    let names = stack.info.components.iter();
    let names: Vec<String> = names.map(|it| it.name.clone()).collect();
    while campaign.crashes() < options.runs {
        let number = campaign.runs.len();
        if number >= options.runs.saturating_mul(PATIENCE) {
            return Err(Failure::tool(format!(
                "only {} of {number} runs crashed: the campaign is given up",
                campaign.crashes()
            )));
        }
        let component = turn(&names, options.seed, number);
        let run = run::run(&lab, &loads, &component, number, options)?;
        campaign.runs.push(run);
        // Kept before anything is mended: should that fail, it is known what it was.
        campaign.store(output)?;
        if let Some(run) = campaign.runs.last_mut() {
            if !run.is_transparent() {
                state::replace(&output.join(format!("run-{number}.log")), &lab.logs())?;
            }
            let cleaned = run::clean_up(&mut lab, &mut loads, run);
            tell(format_args!("run {number}: {}", run.in_words()));
            cleaned?;
        }
        keep(&campaign, output)?;
    }
    loads.stop();
    Ok(campaign)
}

/// Keeps state and reports.
fn keep(campaign: &Campaign, output: &Path) -> Result<(), Failure> {
    campaign.store(output)?;
    state::replace(&output.join("report.md"), &report::markdown(campaign))?;
    state::replace(&output.join("report.json"), &report::json(campaign)?)
}

/// Whose turn it is: each once in a round, in an order that the seed decides.
fn turn(names: &[String], seed: u64, number: usize) -> String {
    let count = names.len().max(1);
    let round = (number / count) as u64;
    let mut random = Random::new(seed ^ round.wrapping_mul(0x9e37_79b9));
    let mut left: Vec<&String> = names.iter().collect();
    for _ in 0..number % count {
        let at = random.below(left.len());
        left.swap_remove(at);
    }
    random.pick(&left).map_or(String::new(), |it| (*it).clone())
}

#[cfg(test)]
mod tests;
