//! What is asked of nginx, and how nginx is set up for it.

use super::lab::{ADDRESS, Lab};
use super::measure::failed;
use crate::failure::Failure;
use skink_testbed::{Process, Scratch};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
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

/// How nginx sends files. (`tcp_nopush` has an effect only together with `sendfile`.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tuning {
    Buffers,
    Sendfile,
    SendfileNopush,
    /// There is nothing to be set.
    Nothing,
}

impl Tuning {
    pub const ALL: [Tuning; 3] = [Tuning::Buffers, Tuning::Sendfile, Tuning::SendfileNopush];

    fn directives(self) -> &'static str {
        match self {
            Tuning::Buffers => "sendfile off; tcp_nopush off;",
            Tuning::Sendfile => "sendfile on; tcp_nopush off;",
            Tuning::SendfileNopush => "sendfile on; tcp_nopush on;",
            Tuning::Nothing => "",
        }
    }
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Tuning::Buffers => "sendfile off",
            Tuning::Sendfile => "sendfile",
            Tuning::SendfileNopush => "sendfile+nopush",
            Tuning::Nothing => "-",
        })
    }
}

/// Files to serve, and nginx's configurations.
pub struct Site {
    scratch: Scratch,
}

impl Site {
    /// Writes them.
    pub fn new() -> io::Result<Site> {
        let site = Site {
            scratch: Scratch::new("bench")?,
        };
        std::fs::create_dir_all(site.path("files"))?;
        for workload in Workload::ALL {
            let (name, bytes) = workload.file();
            std::fs::write(site.path("files").join(name), content(bytes))?;
        }
        for tuning in Tuning::ALL {
            let directory = site.scratch.path().display().to_string();
            std::fs::write(
                site.configuration(tuning),
                nginx_configuration(&directory, tuning),
            )?;
        }
        Ok(site)
    }

    /// Where it is, and where a server may write.
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Where nginx's configuration is.
    pub fn configuration(&self, tuning: Tuning) -> PathBuf {
        self.path(&format!("{tuning:?}.conf"))
    }
}

/// Bytes that depend on their position.
fn content(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ bytes as u64;
    let byte = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..bytes).map(byte).collect()
}

/// As fast as nginx gets with one worker: files stay open, nothing is logged, connections last.
fn nginx_configuration(directory: &str, tuning: Tuning) -> String {
    let tuning = tuning.directives();
    format!(
        "user root;
worker_processes 1;
daemon off;
pid {directory}/pid;
error_log stderr;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    {tuning}
    keepalive_requests 1000000000;
    open_file_cache max=1000 inactive=600s;
    open_file_cache_valid 600s;
    open_file_cache_min_uses 1;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    server {{
        listen {PORT} backlog=4096;
        root {directory}/files;
    }}
}}
"
    )
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
