//! Each process of the stack is killed during a download, while other connections are kept open.

use crate::pace::{Download, RATE, SAMPLE};
use crate::{announce, plot, tool};
use rustix::process::Signal;
use skink_end_to_end::{BackEnd, Failure, Network, Nginx, Outcome, Plan, Site, Topology};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// What curl fetches, in bytes.
const BYTES: u64 = 100 << 20;
/// Connections besides curl's.
const OPEN: usize = 20;
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
    })?;
    let site = Site::new()?;
    let original = site.add("hundred", BYTES)?;
    println!(
        "\n== nginx on Skink (split), curl on the kernel; each process of the stack is killed"
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
    let download = Download::start(&network, &url, &original)?;
    let deaths = kill_each(&network, &mut others)?;
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
    let most = watched.samples.iter().copied().max().unwrap_or(0) as f64;
    println!(
        "\n   what curl got in each {} ms; the highest is {:.0} MiB/s",
        SAMPLE.as_millis(),
        most / SAMPLE.as_secs_f64() / f64::from(1 << 20)
    );
    println!("   {}", plot::curve(&watched.samples));
    let column = |at: Duration| (at.as_millis() / SAMPLE.as_millis()) as usize;
    let marks = deaths.iter().map(|it| (column(it.at), it.name.as_str()));
    println!("   {}", plot::marks(marks));
    tool(&["ps"])?;

    match watched.differs_at {
        None => println!("\n   {} bytes, the same as in the file", watched.bytes),
        Some(at) => {
            let text = format!("byte {at} of {} isn't as in the file", watched.bytes);
            return Err(Failure::Wrong(text));
        }
    }
    let lost = others.lost;
    println!("   connections lost: {lost} of {}", OPEN + 1);
    if lost > 0 {
        return Err(Failure::Wrong(format!("{lost} connections were lost")));
    }
    drop(others);
    nginx.stop()?;
    network.stop()
}

/// Kills one after the other; each time all other connections must be of use afterwards.
fn kill_each(network: &Network, others: &mut Others) -> Result<Vec<Death>, Failure> {
    let start = Instant::now();
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

/// Keeps the kernel from taking in more than curl asks for, which would hide what happens.
fn bound_receive_buffers(network: &Network) -> Outcome {
    let mut shell = network.kernel.command("sh");
    let script = "echo 4096 131072 262144 >/proc/sys/net/ipv4/tcp_rmem";
    shell.args(["-c", script]);
    Network::finish(shell, "setting tcp_rmem", Duration::from_secs(10)).map(drop)
}

/// Connections that were opened before anything was killed.
struct Others {
    open: Vec<TcpStream>,
    expected: Vec<u8>,
    lost: usize,
}

impl Others {
    fn open(network: &Network, site: &Site) -> Result<Others, Failure> {
        let connect = || -> std::io::Result<Vec<TcpStream>> {
            let address = format!("{}:{}", Network::SKINK[0], Nginx::PORT);
            let connections = (0..OPEN).map(|_| {
                let connection = TcpStream::connect(&address)?;
                connection.set_read_timeout(Some(Duration::from_secs(5)))?;
                Ok(connection)
            });
            connections.collect()
        };
        let opened = network.kernel.thread(connect)?.join();
        let opened = opened.map_err(|_| Failure::Wrong("a thread panicked".to_owned()))?;
        let mut others = Others {
            open: opened??,
            expected: std::fs::read(site.path("tiny"))?,
            lost: 0,
        };
        others.ask_all();
        Ok(others)
    }

    /// Asks for a file on each of them; closes those that aren't answered with it.
    fn ask_all(&mut self) {
        let before = self.open.len();
        self.open.retain_mut(|it| ask(it, &self.expected).is_ok());
        self.lost += before - self.open.len();
    }
}

fn ask(connection: &mut TcpStream, expected: &[u8]) -> std::io::Result<()> {
    connection.write_all(b"GET /tiny HTTP/1.1\r\nHost: skink\r\n\r\n")?;
    let (mut said, mut buffer) = (Vec::new(), [0; 4096]);
    while !said.ends_with(expected) {
        let count = connection.read(&mut buffer)?;
        if count == 0 || said.len() > 4096 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        said.extend_from_slice(&buffer[..count]);
    }
    Ok(())
}
