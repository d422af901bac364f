//! Processes killed, or replaced by another build, at random under every kind of load at once.

mod silence;
mod tally;

use super::names;
use crate::cases::datagrams;
use crate::cases::load::wait;
use crate::cases::servers::{MEMCACHED_CLIENT, no_wrk_errors, start_memcached, start_redis};
use crate::cases::ssh::Sshd;
use crate::network::Network;
use crate::site::{Nginx, PATIENCE, Site};
use crate::upgrade::copy_of_build;
use crate::{Failure, Outcome, Topology};
use rustix::process::Signal;
use silence::Watch;
use skink_testbed::{Process, Scratch};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tally::Tally;

/// For how long processes are killed, in seconds.
const SECONDS: u32 = 15;
/// Decides which are; the variable `SEED` of the environment can name another number.
const SEED: u64 = 20;
/// Is killed or replaced too, and isn't among the members.
const SUPERVISOR: &str = "supervisor";
/// Bits per second each way: enough that bytes are always on their way, and room for the rest.
const BULK_RATE: &str = "200M";
/// Runs that fail, after which no more are made.
const MOST_FAILURES: usize = 10;

/// Keeps what is sent to it by PUT.
const UPLOADS: &str = include_str!("uploads.py");
/// Stores values in redis and reads them back.
const VALUES: &str = include_str!("values.py");
/// Sends datagrams to an echo server.
const QUESTIONS: &str = include_str!("questions.py");

/// What befalls a process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deed {
    Kill,
    Upgrade,
}

/// No connection is lost and no byte is wrong, whichever process is killed when.
pub fn killed(network: &Network) -> Outcome {
    disturbed(network, Deed::Kill)
}

/// The same, when any process is replaced by another build and back.
pub fn upgraded(network: &Network) -> Outcome {
    disturbed(network, Deed::Upgrade)
}

/// With the variable `COUNT` of the environment it is tried again and again, with one seed after the other,
/// until so many were killed or replaced.
fn disturbed(network: &Network, deed: Deed) -> Outcome {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let (wanted, first) = (number("COUNT"), number("SEED").unwrap_or(SEED));
    let (mut tally, mut failed) = (Tally::default(), Vec::new());
    for seed in first.. {
        match run(network, deed, seed, &mut tally) {
            Err(Failure::Wrong(what)) => failed.push(what),
            outcome => outcome?,
        }
        let done = tally.count() as u64 >= wanted.unwrap_or(0);
        if done || failed.len() >= MOST_FAILURES {
            break;
        }
    }
    if wanted.is_some() {
        print!("{}: {tally}", network.plan.topology);
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::Wrong(failed.join("\n\n"))),
    }
}

fn run(network: &Network, deed: Deed, seed: u64, tally: &mut Tally) -> Outcome {
    let servers = Servers::start(network)?;
    let loads = servers.load(network)?;
    let mut log = String::new();
    let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let outcome = disturb(network, deed, &loads, random, &mut log, tally);
    let outcome = outcome.and_then(|()| finish(loads, tally));
    outcome.and_then(|()| servers.stop()).map_err(|failure| {
        let Failure::Wrong(what) = failure else {
            return failure;
        };
        Failure::Wrong(format!(
            "{what}\nseed {seed}; what was replaced, how long each was away, and until when nothing left:\n{log}{}",
            state(network)
        ))
    })
}

/// Programs on Skink.
struct Servers {
    site: Site,
    nginx: Nginx,
    uploads: Process,
    uploaded: Scratch,
    redis: Process,
    memcached: Process,
    echo: Process,
    iperf3: Process,
    /// Needs root.
    sshd: Option<Sshd>,
}

impl Servers {
    fn start(network: &Network) -> Result<Servers, Failure> {
        let site = Site::new()?;
        let nginx = Nginx::on_skink(network, &site)?;
        let address = Network::SKINK[0];
        let uploaded = Scratch::new("uploaded")?;
        let directory = uploaded.path().to_string_lossy();
        let command = network.skink_run("python3", ["-c", UPLOADS, address, &directory])?;
        let uploads = Process::spawn(command, "a server of uploads on Skink")?;
        network.wait_for(&uploads, address, 8000)?;
        let redis = start_redis(network)?;
        let memcached = start_memcached(network)?;
        let command = network.skink_run("python3", ["-c", datagrams::SERVER, address])?;
        let echo = Process::spawn(command, "an echo server on Skink")?;
        echo.wait_until("it is bound", || echo.log().contains("bound"))?;
        let command = network.skink_run("iperf3", ["-s", "--forceflush"])?;
        let iperf3 = Process::spawn(command, "iperf3 on Skink")?;
        iperf3.wait_until("it listens", || iperf3.log().contains("Server listening"))?;
        let sshd = match skink_testbed::is_root() {
            true => Some(Sshd::on_skink(network)?),
            false => None,
        };
        Ok(Servers {
            site,
            nginx,
            uploads,
            uploaded,
            redis,
            memcached,
            echo,
            iperf3,
            sshd,
        })
    }

    /// What clients on the kernel do, all at once.
    fn load(&self, network: &Network) -> Result<Vec<Load>, Failure> {
        let address = Network::SKINK[0];
        let mut loads = Vec::new();
        let mut add = |name, command: Command, check| -> Outcome {
            let process = Process::spawn(command, name)?;
            loads.push(Load {
                name,
                process,
                check,
            });
            Ok(())
        };
        for (name, extra) in [
            ("wrk", &[][..]),
            ("wrk that closes", &["-H", "Connection: close"]),
        ] {
            let mut wrk = network.kernel.command("wrk");
            wrk.args(["-t1", "-c32", &format!("-d{SECONDS}s"), "--timeout", "10s"]);
            wrk.args(extra).arg(format!("http://{address}:80/tiny"));
            add(name, wrk, no_wrk_errors)?;
        }
        let larger = self.site.path("larger");
        let copy = self.uploaded.path().join("copy");
        let (larger, copy) = (larger.display(), copy.display());
        let curl = "curl -sS --fail --max-time 60 --limit-rate 8M";
        let down = format!("{curl} http://{address}:80/larger | cmp - {larger}");
        add("downloads", repeated(network, &down), fine)?;
        let up = format!("{curl} -T {larger} http://{address}:8000/copy && cmp {copy} {larger}");
        add("uploads", repeated(network, &up), fine)?;
        for (name, script) in [
            ("values in redis", VALUES),
            ("values in memcached", MEMCACHED_CLIENT),
            ("datagrams", QUESTIONS),
        ] {
            let mut python = network.kernel.command("python3");
            python.args(["-c", script, address, &SECONDS.to_string()]);
            add(name, python, fine)?;
        }
        let mut iperf3 = network.kernel.command("iperf3");
        iperf3.args(["-c", address, "-t", &SECONDS.to_string()]);
        iperf3.args(["--bidir", "-b", BULK_RATE]);
        add("iperf3 both ways", iperf3, iperf3_done)?;
        if let Some(sshd) = &self.sshd {
            for (name, script) in self.ssh(network, sshd)? {
                add(name, shell(network, &script), fine)?;
            }
        }
        Ok(loads)
    }

    /// A session to and fro, and a file that is copied meanwhile.
    fn ssh(&self, network: &Network, sshd: &Sshd) -> Result<Vec<(&'static str, String)>, Failure> {
        let words = |command: Command| {
            let program = [command.get_program()].into_iter();
            let words = program.chain(command.get_args());
            let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
            words.join(" ")
        };
        let (ssh, scp) = (
            words(sshd.client(network, "ssh")),
            words(sshd.client(network, "scp")),
        );
        let address = Network::SKINK[0];
        let at = |name| self.uploaded.path().join(name).display().to_string();
        let session = format!(
            "for i in $(seq {}); do echo line $i; sleep 0.1; done | tee {sent} | \
             {ssh} root@{address} cat >{back} && cmp {sent} {back}",
            SECONDS * 9,
            sent = at("sent"),
            back = at("back"),
        );
        // At 4 MB/s, given in kbit/s, it takes as long as the rest.
        let original = self.site.add("archive", u64::from(SECONDS) * 4_000_000)?;
        let copied = format!(
            "{scp} -l 32000 {original} root@{address}:{copy} && cmp {original} {copy}",
            original = original.display(),
            copy = at("archive"),
        );
        Ok(vec![("an ssh session", session), ("scp", copied)])
    }

    /// Ends all of them, and holds that they saw nothing that they complain of.
    fn stop(self) -> Outcome {
        let others = [
            &self.uploads,
            &self.redis,
            &self.memcached,
            &self.echo,
            &self.iperf3,
        ];
        for process in others {
            let said = process.log();
            if process.has_ended() || said.contains("rror") || said.contains("panicked") {
                return Err(Failure::Wrong(format!("a server printed:\n{said}")));
            }
        }
        self.redis.stop()?;
        self.nginx.stop()
    }
}

/// A client and what it must have printed.
struct Load {
    name: &'static str,
    process: Process,
    check: fn(&str) -> Outcome,
}

fn fine(_: &str) -> Outcome {
    Ok(())
}

fn iperf3_done(said: &str) -> Outcome {
    match said.contains("iperf Done") {
        true => Ok(()),
        false => Err(Failure::Wrong(format!("iperf3 printed:\n{said}"))),
    }
}

fn shell(network: &Network, script: &str) -> Command {
    let mut shell = network.kernel.command("bash");
    shell.args(["-c", &format!("set -o pipefail; {script}")]);
    shell
}

/// The same again and again until the time is up.
fn repeated(network: &Network, script: &str) -> Command {
    let script = format!(
        "while [ $SECONDS -lt {SECONDS} ]; do {{ {script}; }} || \
         {{ echo \"after $SECONDS s\"; exit 1; }}; done"
    );
    shell(network, &script)
}

/// One process after the other, until the time is up or a client has ended in failure.
fn disturb(
    network: &Network,
    deed: Deed,
    loads: &[Load],
    mut random: u64,
    log: &mut String,
    tally: &mut Tally,
) -> Outcome {
    // One that dies again within a second is started the later the more often it does: a lone one
    // isn't killed that soon.
    let pause = Duration::from_millis(match network.plan.topology {
        Topology::Split => 400,
        Topology::Library | Topology::Single => 1_200,
    });
    let mut names = names(network)?;
    names.push(SUPERVISOR.to_owned());
    let scratch = Scratch::new("build")?;
    let builds = [copy_of_build(&scratch)?, Network::tool()?];
    let start = Instant::now();
    wait(pause);
    while start.elapsed() + Duration::from_secs(1) < Duration::from_secs(SECONDS.into()) {
        if loads.iter().any(|load| load.process.has_ended()) {
            break;
        }
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let Some(name) = names.get((random % names.len() as u64) as usize) else {
            continue;
        };
        let at = start.elapsed().as_secs_f64();
        let _ = write!(log, "{at:7.2} s  {name:<10}");
        let (away, silent) = match deed {
            Deed::Kill => kill(network, name, pause)?,
            Deed::Upgrade => (
                upgrade(network, name, &builds[(random >> 32) as usize % 2])?,
                None,
            ),
        };
        tally.replaced(name, away, silent);
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let _ = writeln!(log, "{:6.0} ms {:6.0} ms", ms(away), silent.map_or(0.0, ms));
    }
    Ok(())
}

/// How long it is away, and until when nothing leaves the stack.
fn kill(
    network: &Network,
    name: &str,
    pause: Duration,
) -> Result<(Duration, Option<Duration>), Failure> {
    let watch = Watch::start(network)?;
    let away = match name {
        SUPERVISOR => network.replace_supervisor()?,
        name => network.replace(name, Signal::KILL)?,
    };
    let killed = Instant::now() - away;
    wait(pause);
    Ok((away, Some(watch.stop(killed)?)))
}

/// How long it is away, as the supervisor says.
fn upgrade(network: &Network, name: &str, build: &Path) -> Result<Duration, Failure> {
    let upgrade = network.upgrade(&[name], build)?;
    let away = upgrade
        .processes()?
        .first()
        .and_then(|it| it["away_ms"].as_f64());
    match (upgrade.code, away) {
        (Some(0), Some(away)) => Ok(Duration::from_secs_f64(away / 1e3)),
        _ => Err(upgrade.wrong("it isn't of the other build")),
    }
}

/// Waits for all of them; says of each what is wrong.
fn finish(loads: Vec<Load>, tally: &mut Tally) -> Outcome {
    let mut all = String::new();
    for load in loads {
        let (said, wrong) = match load.process.wait(PATIENCE) {
            Ok((status, said)) if status.success() => match (load.check)(&said) {
                Ok(()) => (said, None),
                Err(Failure::Wrong(what) | Failure::Skip(what)) => (said, Some(what)),
            },
            Ok((status, said)) => (said.clone(), Some(format!("ended with {status}:\n{said}"))),
            Err(error) => (String::new(), Some(error.to_string())),
        };
        tally.client(&said, wrong.as_deref());
        if let Some(what) = wrong {
            let _ = writeln!(all, "{}: {what}", load.name);
        }
    }
    tally.end_run();
    match all.is_empty() {
        true => Ok(()),
        false => Err(Failure::Wrong(all)),
    }
}

/// What the stack says of itself.
fn state(network: &Network) -> String {
    let mut text = network.up.as_ref().map_or(String::new(), Process::log);
    for tool in ["ps", "stat"] {
        let Ok(path) = Network::tool() else { continue };
        let mut command = network.skink.command(&path.to_string_lossy());
        command.arg(tool);
        if let Ok(said) = Network::finish(command, tool, PATIENCE) {
            let _ = write!(text, "\n$ skink {tool}\n{said}");
        }
    }
    text
}
