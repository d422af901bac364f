//! What is measured: what runs on the server, what the client asks of it, and what counts as work.

mod check;

use super::kv::Value;
use super::lab::{ADDRESS, CLIENT_CPU, Lab, on_processor};
use super::measure::{Client, failed, parse_peer, parse_wrk};
use super::peer::{self, Operation, Service};
use super::plan::Plan;
use super::results::Unit;
use super::server::Server;
use super::variant::{Stack, Variant};
use super::web::{self, Site, Tuning, WebServer, Workload};
use crate::failure::Failure;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::net::SocketAddr;

/// A workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Task {
    /// A web server, which wrk asks for files, or the benchmark's own client at a rate.
    Web(Workload, WebServer),
    /// One connection, on which the server sends without end.
    BulkSend,
    /// One connection, on which the server receives without end.
    BulkReceive,
    /// One byte there and back, on so many connections at a time.
    RoundTrips(u32),
    /// 64 bytes there and back, from a server with any number of connections.
    Blocks,
    /// Connections that are made, accepted and closed.
    Connect,
    /// Values of redis or memcached.
    Value(Value),
    /// Frames of so many bytes there and back.
    Pairs(u16, Pace),
    /// What the server does by itself.
    Local(Operation),
}

/// How many frames are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// As many as come back.
    Most,
    /// So many in a second.
    Rate(u32),
    /// The next when the last one is back.
    InTurn,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Task::Web(workload, WebServer::Nginx) => workload.fmt(f),
            Task::Web(workload, WebServer::Lighttpd) => write!(f, "lighttpd-{workload}"),
            Task::BulkSend => f.pad("bulk-send"),
            Task::BulkReceive => f.pad("bulk-receive"),
            Task::RoundTrips(connections) => write!(f, "rr-{connections}"),
            Task::Blocks => f.pad("echo-64B"),
            Task::Connect => f.pad("conn"),
            Task::Value(value) => value.fmt(f),
            Task::Pairs(bytes, Pace::Most) => write!(f, "{bytes}B"),
            Task::Pairs(bytes, Pace::Rate(rate)) => write!(f, "{bytes}B-{rate}/s"),
            Task::Pairs(bytes, Pace::InTurn) => write!(f, "{bytes}B-1"),
            Task::Local(operation) => f.pad(operation.word()),
        }
    }
}

impl Task {
    pub fn unit(self) -> Unit {
        match self {
            Task::Web(..) | Task::Value(_) | Task::Blocks => Unit::Request,
            Task::BulkSend | Task::BulkReceive => Unit::Gibibyte,
            Task::RoundTrips(_) => Unit::RoundTrip,
            Task::Connect => Unit::Connection,
            Task::Pairs(..) => Unit::Pair,
            Task::Local(_) => Unit::Operation,
        }
    }

    /// Whether there is anything to measure: without a stack only frames can be answered.
    pub fn runs_on(self, variant: &Variant) -> bool {
        match variant.stack {
            Stack::Raw(_) => matches!(self, Task::Pairs(..)),
            Stack::Kernel | Stack::Skink(..) => true,
        }
    }

    /// How many units the client asks for in a second, where that doesn't depend on answers.
    pub fn rate(self, plan: &Plan) -> Option<u32> {
        match self {
            Task::Pairs(_, Pace::Rate(rate)) => Some(rate),
            Task::Pairs(_, Pace::Most | Pace::InTurn) => None,
            Task::Web(..)
            | Task::BulkSend
            | Task::BulkReceive
            | Task::RoundTrips(_)
            | Task::Blocks
            | Task::Connect
            | Task::Value(_)
            | Task::Local(_) => plan.rate,
        }
    }

    /// Programs that it needs.
    pub fn programs(self, rate: Option<u32>) -> &'static [&'static str] {
        match self {
            Task::Web(_, server) => server.programs(rate.is_none()),
            Task::Value(value) => value.programs(),
            Task::BulkSend
            | Task::BulkReceive
            | Task::RoundTrips(_)
            | Task::Blocks
            | Task::Connect
            | Task::Pairs(..)
            | Task::Local(_) => &[],
        }
    }

    /// Settings of the server among which the best is to be found.
    pub fn tunings(self) -> &'static [Tuning] {
        match self {
            Task::Web(_, server) => server.tunings(),
            Task::BulkSend
            | Task::BulkReceive
            | Task::RoundTrips(_)
            | Task::Blocks
            | Task::Connect
            | Task::Value(_)
            | Task::Pairs(..)
            | Task::Local(_) => &[Tuning::Nothing],
        }
    }

    /// The server's command line.
    pub fn server(
        self,
        site: &Site,
        tuning: Tuning,
        variant: &Variant,
    ) -> io::Result<Vec<OsString>> {
        let idle = variant.idle;
        match self {
            Task::Web(_, server) => Ok(site.server(server, tuning, variant.workers)),
            Task::BulkSend | Task::BulkReceive | Task::Local(_) => peer_line(&["serve", "1"]),
            Task::RoundTrips(connections) => peer_line(&["serve", &connections.to_string()]),
            Task::Blocks => peer_line(&[
                "many",
                &idle.div_ceil(peer::per_process()).max(1).to_string(),
            ]),
            Task::Connect => peer_line(&["close"]),
            Task::Value(value) => Ok(value.line(site.directory())),
            Task::Pairs(_, pace) => match (&variant.stack, pace) {
                (Stack::Kernel | Stack::Skink(..), _) => peer_line(&["datagrams"]),
                // The NIC and its address follow.
                (Stack::Raw(_), Pace::InTurn) => peer_line(&["reflect", "--look-on"]),
                (Stack::Raw(_), Pace::Most | Pace::Rate(_)) => peer_line(&["reflect"]),
            },
        }
    }

    /// The client, on its processor, for so long.
    pub fn client(self, lab: &Lab, seconds: u32, plan: &Plan) -> Result<Client, Failure> {
        let mut command = on_processor(&lab.client, CLIENT_CPU);
        let rate = self.rate(plan);
        if let (Task::Web(workload, _), None) = (self, rate) {
            web::add_wrk(&mut command, workload, seconds, plan.connections);
            return Ok(Client {
                name: "wrk",
                command,
                read: parse_wrk,
            });
        }
        let numbers = [self.connections(plan), seconds].into_iter().chain(rate);
        let mut words = self.words(rate);
        words.push(self.target());
        words.extend(numbers.map(|number| number.to_string()));
        command.args(peer_line(&words).map_err(failed)?);
        Ok(Client {
            name: "the client",
            command,
            read: parse_peer,
        })
    }

    /// What `skink bench peer` is told to be the client. The server's address, connections and seconds follow, and
    /// the rate.
    fn words(self, rate: Option<u32>) -> Vec<String> {
        let words = |one: &str, other: String| vec![one.to_owned(), other];
        match self {
            Task::Web(workload, _) => {
                let (file, bytes) = workload.file();
                words("load", format!("http:{file}:{bytes}"))
            }
            Task::BulkSend => words("ask", Service::Send.word().to_owned()),
            Task::BulkReceive => words("ask", Service::Receive.word().to_owned()),
            Task::RoundTrips(_) if rate.is_some() => words("load", "byte".to_owned()),
            Task::RoundTrips(_) => words("ask", Service::Echo.word().to_owned()),
            Task::Blocks => words("load", "block".to_owned()),
            Task::Connect => vec!["connect".to_owned()],
            Task::Value(value) => words("load", value.asked_as()),
            Task::Pairs(bytes, Pace::InTurn) => words("pair", bytes.to_string()),
            Task::Pairs(bytes, _) => words("pairs", bytes.to_string()),
            Task::Local(operation) => words("local", operation.word().to_owned()),
        }
    }

    fn connections(self, plan: &Plan) -> u32 {
        match self {
            Task::BulkSend | Task::BulkReceive | Task::Pairs(..) | Task::Local(_) => 1,
            Task::RoundTrips(connections) => connections,
            Task::Web(..) | Task::Blocks | Task::Connect | Task::Value(_) => plan.connections,
        }
    }

    fn port(self) -> u16 {
        match self {
            Task::Web(..) => web::PORT,
            Task::Value(value) => value.port(),
            Task::BulkSend
            | Task::BulkReceive
            | Task::RoundTrips(_)
            | Task::Blocks
            | Task::Connect
            | Task::Pairs(..)
            | Task::Local(_) => peer::PORT,
        }
    }

    /// Where the server listens.
    pub fn target(self) -> String {
        format!("{ADDRESS}:{}", self.port())
    }

    /// Waits until the server is there, and holds that it answers rightly.
    pub fn wait_and_check(self, lab: &Lab, server: &Server) -> Result<(), Failure> {
        let target = self.target();
        let target: SocketAddr = target
            .parse()
            .map_err(|_| Failure::tool("the server's address is none"))?;
        let ask = |question: fn(SocketAddr) -> io::Result<()>| {
            check::check(lab, server, move || question(target))
        };
        if let Task::Pairs(..) = self {
            return check::wait(lab, server, move || check::datagram(target));
        }
        check::wait(lab, server, move || check::connects(target))?;
        match self {
            Task::Web(workload, _) => web::check(lab, server.program(), target, workload),
            Task::BulkSend | Task::BulkReceive | Task::RoundTrips(_) | Task::Local(_) => {
                ask(check::echo)
            }
            Task::Blocks => ask(check::block),
            Task::Connect => ask(check::end),
            Task::Value(value) => check::check(lab, server, move || value.fill(target)),
            Task::Pairs(..) => Ok(()),
        }
    }
}

/// `skink bench peer` with these arguments.
pub fn peer_line<S: AsRef<OsStr>>(arguments: &[S]) -> io::Result<Vec<OsString>> {
    let tool = std::env::current_exe()?;
    let arguments = arguments.iter().map(|one| one.as_ref().to_owned());
    let words = ["bench", "peer"].into_iter().map(OsString::from);
    Ok(std::iter::once(tool.into())
        .chain(words)
        .chain(arguments)
        .collect())
}

#[cfg(test)]
mod tests;
