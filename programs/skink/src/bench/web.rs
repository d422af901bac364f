//! What is asked of web servers.

mod site;

pub use site::{Site, Tuning, WebServer};

use super::lab::{ADDRESS, Lab};
use super::measure::failed;
use crate::failure::Failure;
use site::content;
use skink_testbed::Process;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

/// Where nginx listens.
pub const PORT: u16 = 80;

/// What the client asks for.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workload {
    /// 20 bytes, over and over on each connection
    #[value(name = "20B")]
    Small,
    /// 20 bytes, one request per connection
    #[value(name = "20B-close")]
    SmallClose,
    /// 22,000 bytes, over and over on each connection
    #[value(name = "22KB")]
    Page,
    /// 22,000 bytes, one request per connection
    #[value(name = "22KB-close")]
    PageClose,
    /// 1 MiB, over and over on each connection
    #[value(name = "1MB")]
    Large,
}

impl Workload {
    pub const ALL: [Workload; 5] = [
        Workload::Small,
        Workload::SmallClose,
        Workload::Page,
        Workload::PageClose,
        Workload::Large,
    ];

    /// The file's name and its size in bytes.
    pub fn file(self) -> (&'static str, usize) {
        match self {
            Workload::Small | Workload::SmallClose => ("small", 20),
            Workload::Page | Workload::PageClose => ("page", 22_000),
            Workload::Large => ("large", 1 << 20),
        }
    }

    /// Whether each connection carries one request only.
    pub fn close(self) -> bool {
        matches!(self, Workload::SmallClose | Workload::PageClose)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Workload::Small => "20B",
            Workload::SmallClose => "20B-close",
            Workload::Page => "22KB",
            Workload::PageClose => "22KB-close",
            Workload::Large => "1MB",
        })
    }
}

/// Adds wrk, which asks for the workload's file, to a command.
pub fn add_wrk(command: &mut Command, workload: Workload, seconds: u32, connections: u32) {
    let (file, _) = workload.file();
    command.args(["wrk", "-t1", "--latency", "--timeout", "5s"]);
    command.args([format!("-c{connections}"), format!("-d{seconds}s")]);
    if workload.close() {
        command.args(["-H", "Connection: close"]);
    }
    command.arg(format!("http://{ADDRESS}:{PORT}/{file}"));
}

/// Holds that the server sends the workload's file unchanged.
pub fn check(
    lab: &Lab,
    server: &Process,
    target: SocketAddr,
    workload: Workload,
) -> Result<(), Failure> {
    let (name, bytes) = workload.file();
    let thread = lab
        .client
        .thread(move || fetch(target, name))
        .map_err(failed)?;
    let answer = match thread.join() {
        Ok(fetched) => fetched.and_then(|fetched| fetched),
        Err(_) => Err(io::Error::other("the client panicked")),
    };
    match answer {
        Ok(answer) if is_answer(&answer, &content(bytes)) => Ok(()),
        Ok(answer) => Err(Failure::tool(format!(
            "/{name} arrived changed: {} bytes with the header, of {bytes}; the server printed: {}",
            answer.len(),
            server.log()
        ))),
        Err(error) => Err(Failure::tool(format!(
            "/{name} didn't arrive: {error}; the server printed: {}",
            server.log()
        ))),
    }
}

fn fetch(target: SocketAddr, name: &str) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&target, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let request = format!("GET /{name} HTTP/1.1\r\nHost: {ADDRESS}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

fn is_answer(answer: &[u8], body: &[u8]) -> bool {
    let header = answer.strip_suffix(body);
    header
        .is_some_and(|header| header.starts_with(b"HTTP/1.1 200 ") && header.ends_with(b"\r\n\r\n"))
}
