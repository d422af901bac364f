//! Each process of the stack is killed during a download, and then all of them become another build.

use crate::connections::{OPEN, Others, Session};
use crate::pace::{Download, RATE, SAMPLE};
use crate::{announce, plot, tool};
use rustix::process::Signal;
use skink_end_to_end::{
    BackEnd, Failure, Network, Nginx, Outcome, Plan, Site, Topology, copy_of_build,
};
use skink_testbed::Scratch;
use std::time::{Duration, Instant};

/// What curl fetches, in bytes.
const BYTES: u64 = 170 << 20;
/// From one death to the next.
const INTERVAL: Duration = Duration::from_millis(900);

/// One process killed.
struct Death {
    name: String,
    pid: u32,
    at: Duration,
    away: Duration,
}

pub fn show() -> Outcome {
    let network = Network::new(Plan {
        topology: Topology::Split,
        back_end: BackEnd::Packet,
        mtu: 1_500,
        impairments: None,
        rules: None,
        queues: 1,
    })?;
    let site = Site::new()?;
    let scratch = Scratch::new("demo")?;
    let original = site.add("hundred", BYTES)?;
    println!(
        "\n== nginx and sshd on Skink (split), curl and ssh on the kernel; each process of the stack is \
         killed, and then replaced by another build"
    );
    announce(&network);
    let nginx = Nginx::on_skink(&network, &site)?;
    bound_receive_buffers(&network)?;
    println!(
        "   curl takes {} MiB/s of {BYTES} bytes; {OPEN} more connections are open and in use",
        RATE >> 20
    );

    let url = format!("http://{}:{}/hundred", Network::SKINK[0], Nginx::PORT);
    let mut others = Others::open(&network, &site)?;
    let session = Session::start(&network, &scratch)?;
    let download = Download::start(&network, &url, &original)?;
    let start = Instant::now();
    let deaths = kill_each(&network, &mut others, start)?;
    let upgrades = upgrade_all(&network, &scratch, start)?;
    others.ask_all();
    let watched = download.finish()?;

    println!();
    for death in &deaths {
        println!(
            "   kill -9 {:<5} {:<8} its successor runs after {:>3.0} ms",
            death.pid,
            death.name,
            death.away.as_secs_f64() * 1e3
        );
    }
    for upgrade in &upgrades {
        println!(
            "   upgrade      {:<10} the other build serves after {:>3.0} ms",
            upgrade.name,
            upgrade.away.as_secs_f64() * 1e3
        );
    }
    let most = watched.samples.iter().copied().max().unwrap_or(0) as f64;
    println!(
        "\n   what curl got in each {} ms; the highest is {:.0} MiB/s",
        SAMPLE.as_millis(),
        most / SAMPLE.as_secs_f64() / f64::from(1 << 20)
    );
    println!("   {}", plot::curve(&watched.samples));
    let column = |at: Duration| (at.as_millis() / SAMPLE.as_millis()) as usize;
    let deaths = deaths.iter().map(|it| (column(it.at), it.name.as_str()));
    let upgrades = upgrades.first().map(|it| (column(it.at), "upgrade"));
    println!("   {}", plot::marks(deaths.chain(upgrades)));
    tool(&["ps"])?;

    match watched.differs_at {
        None => println!("\n   {} bytes, the same as in the file", watched.bytes),
        Some(at) => {
            let text = format!("byte {at} of {} isn't as in the file", watched.bytes);
            return Err(Failure::Wrong(text));
        }
    }
    let (mut lost, mut all) = (others.lost, OPEN + 1);
    if let Some(session) = session {
        all += 1;
        lost += usize::from(!session.finish()?);
    }
    println!("   connections lost: {lost} of {all}");
    if lost > 0 {
        return Err(Failure::Wrong(format!("{lost} connections were lost")));
    }
    drop(others);
    nginx.stop()?;
    network.stop()
}

/// Kills one after the other; each time all other connections must be of use afterwards.
fn kill_each(
    network: &Network,
    others: &mut Others,
    start: Instant,
) -> Result<Vec<Death>, Failure> {
    let mut deaths = Vec::new();
    let mut next = INTERVAL / 2;
    for member in network.members()? {
        std::thread::sleep(next.saturating_sub(start.elapsed()));
        next += INTERVAL;
        let at = start.elapsed();
        let away = network.replace(&member.name, Signal::KILL)?;
        deaths.push(Death {
            name: member.name,
            pid: member.pid.unwrap_or(0),
            at,
            away,
        });
        others.ask_all();
    }
    Ok(deaths)
}

/// A process that is of another build since.
struct Upgraded {
    name: String,
    at: Duration,
    away: Duration,
}

/// Puts a copy of the build in the place of all processes.
fn upgrade_all(
    network: &Network,
    scratch: &Scratch,
    start: Instant,
) -> Result<Vec<Upgraded>, Failure> {
    let at = start.elapsed();
    let upgrade = network.upgrade(&[], &copy_of_build(scratch)?)?;
    if upgrade.code != Some(0) {
        return Err(upgrade.wrong("not all processes are of the other build"));
    }
    let processes = upgrade.processes()?.into_iter().map(|it| Upgraded {
        name: it["name"].as_str().unwrap_or_default().to_owned(),
        at,
        away: Duration::from_secs_f64(it["away_ms"].as_f64().unwrap_or(0.0) / 1e3),
    });
    Ok(processes.collect())
}

/// Keeps the kernel from taking in more than curl asks for, which would hide what happens.
fn bound_receive_buffers(network: &Network) -> Outcome {
    let mut shell = network.kernel.command("sh");
    let script = "echo 4096 131072 262144 >/proc/sys/net/ipv4/tcp_rmem";
    shell.args(["-c", script]);
    Network::finish(shell, "setting tcp_rmem", Duration::from_secs(10)).map(drop)
}
