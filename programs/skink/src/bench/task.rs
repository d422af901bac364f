//! What is measured: what runs on the server, what the client asks of it, and what counts as work.

use super::lab::{ADDRESS, CLIENT_CPU, Lab, on_processor};
use super::measure::{Client, failed, parse_peer, parse_wrk};
use super::peer::{self, Service};
use super::results::Unit;
use super::server::Server;
use super::web::{self, Site, Tuning, Workload};
use crate::failure::Failure;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Task {
    /// nginx, which wrk asks for files.
    Web(Workload),
    /// One connection, on which the server sends without end.
    BulkSend,
    /// One connection, on which the server receives without end.
    BulkReceive,
    /// One byte there and back, on so many connections at a time.
    RoundTrips(u32),
    /// Connections that are made, accepted and closed.
    Connect,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Task::Web(workload) => workload.fmt(f),
            Task::BulkSend => f.pad("bulk-send"),
            Task::BulkReceive => f.pad("bulk-receive"),
            Task::RoundTrips(connections) => write!(f, "rr-{connections}"),
            Task::Connect => f.pad("conn"),
        }
    }
}

impl Task {
    pub fn unit(self) -> Unit {
        match self {
            Task::Web(_) => Unit::Request,
            Task::BulkSend | Task::BulkReceive => Unit::Gibibyte,
            Task::RoundTrips(_) => Unit::RoundTrip,
            Task::Connect => Unit::Connection,
        }
    }

    /// Programs that it needs.
    pub fn programs(self) -> &'static [&'static str] {
        match self {
            Task::Web(_) => &["nginx", "wrk"],
            Task::BulkSend | Task::BulkReceive | Task::RoundTrips(_) | Task::Connect => &[],
        }
    }

    /// Settings of the server among which the best is to be found.
    pub fn tunings(self) -> &'static [Tuning] {
        match self {
            Task::Web(_) => &Tuning::ALL,
            Task::BulkSend | Task::BulkReceive | Task::RoundTrips(_) | Task::Connect => {
                &[Tuning::Nothing]
            }
        }
    }

    /// The server's command line.
    pub fn server(self, site: &Site, tuning: Tuning) -> io::Result<Vec<OsString>> {
        match self {
            Task::Web(_) => {
                let configuration = site.configuration(tuning);
                Ok(vec!["nginx".into(), "-c".into(), configuration.into()])
            }
            Task::BulkSend | Task::BulkReceive => peer_line(&["serve", "1"]),
            Task::RoundTrips(connections) => peer_line(&["serve", &connections.to_string()]),
            Task::Connect => peer_line(&["close"]),
        }
    }

    /// The client, on its processor, for so long.
    pub fn client(self, lab: &Lab, seconds: u32, connections: u32) -> Result<Client, Failure> {
        let mut command = on_processor(&lab.client, CLIENT_CPU);
        let ask = |service: Service, connections: u32| {
            let numbers = [connections, seconds].map(|number| number.to_string());
            peer_line(&["ask", service.word(), &server(), &numbers[0], &numbers[1]])
        };
        let line = match self {
            Task::Web(workload) => {
                web::add_wrk(&mut command, workload, seconds, connections);
                return Ok(Client {
                    name: "wrk",
                    command,
                    read: parse_wrk,
                });
            }
            Task::BulkSend => ask(Service::Send, 1),
            Task::BulkReceive => ask(Service::Receive, 1),
            Task::RoundTrips(connections) => ask(Service::Echo, connections),
            Task::Connect => {
                let numbers = [connections, seconds].map(|number| number.to_string());
                peer_line(&["connect", &server(), &numbers[0], &numbers[1]])
            }
        };
        command.args(line.map_err(failed)?);
        Ok(Client {
            name: "the client",
            command,
            read: parse_peer,
        })
    }

    /// Waits until the server accepts connections, and holds that it answers rightly.
    pub fn wait_and_check(self, lab: &Lab, server: &Server) -> Result<(), Failure> {
        let port = match self {
            Task::Web(_) => web::PORT,
            Task::BulkSend | Task::BulkReceive | Task::RoundTrips(_) | Task::Connect => peer::PORT,
        };
        let target: SocketAddr = format!("{ADDRESS}:{port}")
            .parse()
            .map_err(|_| Failure::tool("the server's address is none"))?;
        wait(lab, server, target)?;
        match self {
            Task::Web(workload) => web::check(lab, server.program(), target, workload),
            Task::BulkSend | Task::BulkReceive | Task::RoundTrips(_) => {
                check(lab, server, move || echo(target))
            }
            Task::Connect => check(lab, server, move || end(target)),
        }
    }
}

/// Where the benchmark's own servers are.
fn server() -> String {
    format!("{ADDRESS}:{}", peer::PORT)
}

/// `skink bench peer` with these arguments.
fn peer_line(arguments: &[&str]) -> io::Result<Vec<OsString>> {
    let tool = std::env::current_exe()?;
    let words = ["bench", "peer"].iter().chain(arguments);
    Ok(std::iter::once(tool.into())
        .chain(words.map(OsString::from))
        .collect())
}

fn wait(lab: &Lab, server: &Server, target: SocketAddr) -> Result<(), Failure> {
    let accepts = || {
        let connect =
            move || TcpStream::connect_timeout(&target, Duration::from_millis(500)).is_ok();
        let thread = lab.client.thread(connect);
        thread.is_ok_and(|thread| matches!(thread.join(), Ok(Ok(true))))
    };
    server
        .program()
        .wait_until("it accepts connections", accepts)
        .map_err(failed)
}

/// Has the client's host hold that the server does what it is to do.
fn check(
    lab: &Lab,
    server: &Server,
    question: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> Result<(), Failure> {
    let thread = lab.client.thread(question).map_err(failed)?;
    let answered = match thread.join() {
        Ok(answered) => answered.and_then(|answered| answered),
        Err(_) => Err(io::Error::other("the client panicked")),
    };
    answered.map_err(|error| {
        Failure::tool(format!(
            "the server's answer is wrong: {error}; the server printed: {}",
            server.log()
        ))
    })
}

/// Nothing but the end of the connection.
fn end(target: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&target, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    match stream.read(&mut [0; 16])? {
        0 => Ok(()),
        count => Err(io::Error::other(format!("{count} bytes came"))),
    }
}

fn echo(target: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&target, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    // The wish, and what is to come back.
    stream.write_all(b"eabc")?;
    let mut answer = [0; 3];
    stream.read_exact(&mut answer)?;
    match &answer == b"abc" {
        true => Ok(()),
        false => Err(io::Error::other(format!("abc came back as {answer:?}"))),
    }
}
