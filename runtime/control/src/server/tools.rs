//! What the broker answers to tools.
use super::{Answered, Owners, Question, Role, Server};
use crate::MAXIMUM_RULES;
use crate::message::{RegionKind, Reply, Request};
use rustix::fs::{FileType, OFlags};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

impl<O: Owners> Server<O> {
    pub(super) fn handle_tool(
        &mut self,
        key: u64,
        request: Request,
        descriptors: &mut Vec<OwnedFd>,
    ) -> Result<(), String> {
        self.has_changed |= !matches!(request, Request::List { .. } | Request::Open { .. });
        match request {
            Request::List { after } => {
                let reply = Reply::Instance(Box::new(self.describe(after)));
                self.reply(key, &reply, &[])
            }
            Request::Open { owner, kind } => self.open(key, owner, kind),
            Request::LoadFilter {} => {
                let loaded = rules_of(descriptors).and_then(|rules| self.load_filter(rules));
                self.tell(key, loaded)
            }
            Request::ShowFilter { owner: Some(owner) } => self.ask_owner(key, owner),
            Request::ShowFilter { owner: None } => {
                let answered = self.owners.show_filter(Question(key));
                self.tell_now(key, answered)
            }
            Request::Upgrade { component } => {
                let executable = only_file(descriptors, "the executable");
                let answered = executable.and_then(|file| {
                    let question = Question(key);
                    self.owners.upgrade(question, component.as_deref(), file)
                });
                self.tell_now(key, answered)
            }
            other => Err(format!("it asked out of turn: {other:?}")),
        }
    }

    /// Answers a question that was left open.
    pub fn answer(&mut self, question: Question, answer: Result<String, String>) {
        let Question(key) = question;
        let told = self.tell(key, answer);
        // One that can't be sent, such as one that is too long, is no fault of the tool's.
        let told = told.or_else(|why| self.refuse(key, format!("the answer was lost: {why}")));
        if let Err(why) = told {
            self.close(key, &why);
        }
    }

    /// Tells what is known now; otherwise [`Server::answer`] will be called.
    fn tell_now(&self, key: u64, answered: Answered) -> Result<(), String> {
        match answered.transpose() {
            Some(answer) => self.tell(key, answer),
            None => Ok(()),
        }
    }

    fn tell(&self, key: u64, answer: Result<String, String>) -> Result<(), String> {
        match answer {
            Ok(text) => self.reply(key, &Reply::Told { text }, &[]),
            Err(reason) => self.refuse(key, reason),
        }
    }

    fn open(&mut self, key: u64, owner: u16, kind: RegionKind) -> Result<(), String> {
        let mut connections = self.connections.values();
        let connection = connections.find(|connection| connection.role == Role::Owner(owner));
        let memory = connection.and_then(|connection| connection.regions.get(&kind));
        let memory = memory.map(AsFd::as_fd);
        let Some(memory) = memory.or_else(|| self.owners.memory(owner, kind)) else {
            return self.refuse(
                key,
                format!("process {owner} has ended or hasn't registered its {kind:?}"),
            );
        };
        match reopen(memory, kind == RegionKind::Capture) {
            Ok(memory) => self.reply(key, &Reply::Region {}, &[memory.as_fd()]),
            Err(error) => self.refuse(
                key,
                format!("the memory of process {owner} can't be opened: {error}"),
            ),
        }
    }
}

/// An open file description of our own for the memory file, so that neither its access mode nor a
/// lock is shared with the process that registered it.
fn reopen(memory: BorrowedFd<'_>, writable: bool) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(writable)
        .open(path)?;
    Ok(file.into())
}

/// The one file beside a request.
pub(super) fn only_file(descriptors: &mut Vec<OwnedFd>, what: &str) -> Result<OwnedFd, String> {
    match (descriptors.len(), descriptors.pop()) {
        (1, Some(file)) => Ok(file),
        (_, other) => {
            descriptors.extend(other);
            Err(format!("{what} came without exactly one file"))
        }
    }
}

/// The text of the file of rules beside a request.
fn rules_of(descriptors: &mut Vec<OwnedFd>) -> Result<String, String> {
    let file = only_file(descriptors, "the rules")?;
    // What isn't a file could make us wait.
    let is_file = |file: &OwnedFd| {
        let kind = rustix::fs::fstat(file)?.st_mode;
        let readable = !rustix::fs::fcntl_getfl(file)?.contains(OFlags::WRONLY);
        Ok(FileType::from_raw_mode(kind) == FileType::RegularFile && readable)
    };
    match is_file(&file) {
        Ok(true) => text_of(file, MAXIMUM_RULES as u64, "the rules"),
        Ok(false) => Err("the rules aren't in a file".to_owned()),
        Err::<bool, io::Error>(error) => Err(format!("the rules can't be read: {error}")),
    }
}

/// The text in a file, from where it stands on; up to `most` bytes.
pub(super) fn text_of(file: OwnedFd, most: u64, what: &str) -> Result<String, String> {
    let mut text = String::new();
    File::from(file)
        .take(most + 1)
        .read_to_string(&mut text)
        .map_err(|error| format!("{what} can't be read: {error}"))?;
    match text.len() as u64 > most {
        true => Err(format!("{what}: longer than {most} bytes")),
        false => Ok(text),
    }
}
