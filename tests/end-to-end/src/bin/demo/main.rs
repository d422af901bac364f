//! The main job, to be watched: an unmodified nginx on Skink's own TCP/IP serves a site to an
//! unmodified curl on the kernel's, over a veth pair between two private network namespaces. Then the
//! same while the stack's processes are killed and upgraded.

mod connections;
mod pace;
mod plot;
mod survival;

use skink_end_to_end::{BackEnd, Failure, Network, Nginx, Outcome, Plan, Site, Topology};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Each back end with the stack in the program, and the stack in a process of its own.
const PLACES: [(Topology, BackEnd); 4] = [
    (Topology::Library, BackEnd::Packet),
    (Topology::Library, BackEnd::Xdp),
    (Topology::Library, BackEnd::Tap),
    (Topology::Single, BackEnd::Packet),
];

fn main() -> ExitCode {
    if let Err(why) =
        skink_end_to_end::prepare(&["ip", "unshare", "nginx", "curl", "cmp", "sshd", "ssh"])
    {
        eprintln!("{why}");
        return ExitCode::FAILURE;
    }
    let mut shown = 0;
    for (topology, back_end) in PLACES {
        match show(topology, back_end) {
            Ok(()) => shown += 1,
            Err(Failure::Skip(why)) => println!("\n   not {topology} on {back_end} here: {why}"),
            Err(Failure::Wrong(what)) => {
                println!("\n   FAILED {topology} on {back_end}: {what}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!(
        "\nEverything arrived intact, in {shown} of {} ways.",
        PLACES.len()
    );
    if let Err(failure) = survival::show() {
        let (Failure::Wrong(what) | Failure::Skip(what)) = failure;
        println!("\n   FAILED when processes were killed and upgraded: {what}");
        return ExitCode::FAILURE;
    }
    if shown > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn show(topology: Topology, back_end: BackEnd) -> Outcome {
    let network = Network::new(Plan::plain(topology, back_end))?;
    let site = Site::new()?;
    println!(
        "\n== nginx on Skink ({topology}, {}), curl on the kernel",
        back_end.nic()
    );
    announce(&network);
    let nginx = Nginx::on_skink(&network, &site)?;
    print_indented(&nginx.process.log());
    for address in Network::SKINK {
        for (name, bytes) in Site::FILES {
            let mut shell = network.kernel.command("bash");
            shell.args(["-c", &site.fetch_and_compare(address, Nginx::PORT, name)]);
            let start = Instant::now();
            Network::finish(shell, &format!("fetching {name}"), Duration::from_secs(60))?;
            let milliseconds = start.elapsed().as_secs_f64() * 1e3;
            println!(
                "   {name:<8}{bytes:>10} bytes from {address:<10} intact, {milliseconds:>6.1} ms"
            );
        }
    }
    for arguments in [&["ss", "--all"][..], &["stat"]] {
        tool(arguments)?;
    }
    nginx.stop()?;
    network.stop()
}

/// What to type to get the same.
fn announce(network: &Network) {
    let Plan {
        topology, back_end, ..
    } = network.plan;
    let nic = back_end.nic();
    let place = format!("--nic {nic} --addr 10.9.0.2/24 --addr fd09::2/64");
    match topology {
        Topology::Library => println!("   skink run {place} -- nginx"),
        Topology::Single | Topology::Split => {
            let name = Network::name();
            println!("   skink up --name {name} --topology {topology} {place}");
            println!("   skink run --name {name} -- nginx");
        }
    }
    if let Some(up) = &network.up {
        print_indented(&up.log());
    }
}

/// Shows what one of Skink's tools says.
fn tool(arguments: &[&str]) -> Outcome {
    println!("\n   $ skink {}", arguments.join(" "));
    let mut command = Command::new(Network::tool()?);
    command.args(arguments);
    let said = Network::finish(command, "skink", Duration::from_secs(10))?;
    print_indented(&said);
    Ok(())
}

fn print_indented(text: &str) {
    text.lines().for_each(|line| println!("   {line}"));
}
