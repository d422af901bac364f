//! What is measured: what runs on the server, what the client asks of it, and what counts as work.

use super::kv::Value;
use super::lab::{ADDRESS, CLIENT_CPU, Lab, on_processor};
use super::measure::{Client, failed, parse_peer, parse_wrk};
use super::peer::{self, Service};
use super::plan::Plan;
use super::results::Unit;
use super::server::Server;
use super::web::{self, Site, Tuning, Workload};
use crate::failure::Failure;
use std::ffi::{OsStr, OsString};
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
    /// Values of redis or memcached.
    Value(Value),
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Task::Web(workload) => workload.fmt(f),
            Task::BulkSend => f.pad("bulk-send"),
            Task::BulkReceive => f.pad("bulk-receive"),
            Task::RoundTrips(connections) => write!(f, "rr-{connections}"),
            Task::Connect => f.pad("conn"),
            Task::Value(value) => value.fmt(f),
        }
    }
}

impl Task {
    pub fn unit(self) -> Unit {
        match self {
            Task::Web(_) | Task::Value(_) => Unit::Request,
            Task::BulkSend | Task::BulkReceive => Unit::Gibibyte,
            Task::RoundTrips(_) => Unit::RoundTrip,
            Task::Connect => Unit::Connection,
        }
    }

    /// Programs that it needs.
    pub fn programs(self, rate: Option<u32>) -> &'static [&'static str] {
        match self {
            Task::Web(_) if rate.is_some() => &["nginx"],
            Task::Web(_) => &["nginx", "wrk"],
            Task::Value(value) => value.programs(),
            Task::BulkSend | Task::BulkReceive | Task::RoundTrips(_) | Task::Connect => &[],
        }
    }

    /// Settings of the server among which the best is to be found.
    pub fn tunings(self) -> &'static [Tuning] {
        match self {
            Task::Web(_) => &Tuning::ALL,
            Task::BulkSend
            | Task::BulkReceive
            | Task::RoundTrips(_)
            | Task::Connect
            | Task::Value(_) => &[Tuning::Nothing],
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
            Task::Value(value) => Ok(value.line(site.directory())),
        }
    }

    /// The client, on its processor, for so long.
    pub fn client(self, lab: &Lab, seconds: u32, plan: &Plan) -> Result<Client, Failure> {
        let mut command = on_processor(&lab.client, CLIENT_CPU);
        let line = match (self, self.talk(), plan.rate) {
            (Task::Web(workload), _, None) => {
                web::add_wrk(&mut command, workload, seconds, plan.connections);
                return Ok(Client {
                    name: "wrk",
                    command,
                    read: parse_wrk,
                });
            }
            (Task::Value(_), Some(talk), _) | (_, Some(talk), Some(_)) => {
                let mut words = vec!["load".to_owned(), talk, self.target()];
                words.extend([self.connections(plan), seconds].map(|number| number.to_string()));
                words.extend(plan.rate.map(|rate| rate.to_string()));
                peer_line(&words)
            }
            (Task::Connect, ..) => self.ask(&["connect"], seconds, plan),
            (Task::BulkSend, ..) => self.ask(&["ask", Service::Send.word()], seconds, plan),
            (Task::BulkReceive, ..) => self.ask(&["ask", Service::Receive.word()], seconds, plan),
            (Task::RoundTrips(_) | Task::Web(_) | Task::Value(_), ..) => {
                self.ask(&["ask", Service::Echo.word()], seconds, plan)
            }
        };
        command.args(line.map_err(failed)?);
        Ok(Client {
            name: "the client",
            command,
            read: parse_peer,
        })
    }

    fn ask(self, words: &[&str], seconds: u32, plan: &Plan) -> io::Result<Vec<OsString>> {
        let words = words.iter().map(|word| (*word).to_owned());
        let numbers = [self.connections(plan), seconds].map(|number| number.to_string());
        let words: Vec<String> = words.chain([self.target()]).chain(numbers).collect();
        peer_line(&words)
    }

    /// What the client that keeps many connections in one thread says.
    fn talk(self) -> Option<String> {
        match self {
            Task::Web(workload) => {
                let (file, bytes) = workload.file();
                Some(format!("http:{file}:{bytes}"))
            }
            Task::RoundTrips(_) => Some("byte".to_owned()),
            Task::Value(value) => Some(value.to_string()),
            Task::BulkSend | Task::BulkReceive | Task::Connect => None,
        }
    }

    fn connections(self, plan: &Plan) -> u32 {
        match self {
            Task::BulkSend | Task::BulkReceive => 1,
            Task::RoundTrips(connections) => connections,
            Task::Web(_) | Task::Connect | Task::Value(_) => plan.connections,
        }
    }

    fn port(self) -> u16 {
        match self {
            Task::Web(_) => web::PORT,
            Task::Value(value) => value.port(),
            Task::BulkSend | Task::BulkReceive | Task::RoundTrips(_) | Task::Connect => peer::PORT,
        }
    }

    /// Where the server listens.
    fn target(self) -> String {
        format!("{ADDRESS}:{}", self.port())
    }

    /// Waits until the server accepts connections, and holds that it answers rightly.
    pub fn wait_and_check(self, lab: &Lab, server: &Server) -> Result<(), Failure> {
        let target: SocketAddr = self
            .target()
            .parse()
            .map_err(|_| Failure::tool("the server's address is none"))?;
        wait(lab, server, target)?;
        match self {
            Task::Web(workload) => web::check(lab, server.program(), target, workload),
            Task::BulkSend | Task::BulkReceive | Task::RoundTrips(_) => {
                check(lab, server, move || echo(target))
            }
            Task::Connect => check(lab, server, move || end(target)),
            Task::Value(value) => check(lab, server, move || value.fill(target)),
        }
    }
}

/// `skink bench peer` with these arguments.
fn peer_line<S: AsRef<OsStr>>(arguments: &[S]) -> io::Result<Vec<OsString>> {
    let tool = std::env::current_exe()?;
    let arguments = arguments.iter().map(|one| one.as_ref().to_owned());
    let words = ["bench", "peer"].into_iter().map(OsString::from);
    Ok(std::iter::once(tool.into())
        .chain(words)
        .chain(arguments)
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
