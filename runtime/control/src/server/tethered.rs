//! Connections that others may ask for than the process whose stack has them: they outlive it.
use crate::tether::{self, MOST_TETHERS, Numbers};
use rustix::fs::SeekFrom;
use skink_wire::FourTuple;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// A parcel isn't larger: what the sockets of one connection hold, and its record.
const MOST_BYTES: usize = 64 << 20;

/// One of them.
struct Tethered {
    owner: u16,
    flow: FourTuple,
    /// The stack's.
    end: OwnedFd,
    /// For the parcel, if the owner's process has ended.
    file: Option<OwnedFd>,
}

/// All of them.
#[derive(Default)]
pub(super) struct Tethers(Vec<Tethered>);

/// What a successor is handed of each: its flow, the stack's end, and an empty file.
pub type TetherParts = (FourTuple, OwnedFd, OwnedFd);

/// (What is taken out is closed by whoever may wait for that: another process may have put anything in its queue.)
impl Tethers {
    /// The owner has one more; if it has too many, or all have more than a quarter of the descriptors that this process may have, this one
    /// dies with it.
    #[must_use]
    pub fn add(&mut self, owner: u16, flow: FourTuple, end: Option<OwnedFd>) -> Vec<OwnedFd> {
        let mut gone = self.remove(owner, &flow);
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let most_of_all = limit.map_or(usize::MAX, |limit| {
            usize::try_from(limit / 4).unwrap_or(usize::MAX)
        });
        if self.count(owner) >= MOST_TETHERS || self.0.len() >= most_of_all {
            tracing::debug!(owner, %flow, "dies with its process: too many are shared");
            gone.extend(end);
        } else if let Some(end) = end {
            self.0.push(Tethered {
                owner,
                flow,
                end,
                file: None,
            });
        }
        gone
    }

    fn take(&mut self, is_such: impl Fn(&Tethered) -> bool) -> Vec<OwnedFd> {
        let taken = self.0.extract_if(.., |it| is_such(it));
        taken.map(|it| it.end).collect()
    }

    fn count(&self, owner: u16) -> usize {
        self.0.iter().filter(|it| it.owner == owner).count()
    }

    /// Whether it is one of the owner's.
    pub fn has(&self, owner: u16, flow: &FourTuple) -> bool {
        let mut all = self.0.iter();
        all.any(|it| it.owner == owner && it.flow == *flow)
    }

    /// It is another one's now.
    #[must_use]
    pub fn remove(&mut self, owner: u16, flow: &FourTuple) -> Vec<OwnedFd> {
        self.take(|it| it.owner == owner && it.flow == *flow)
    }

    /// Who asks for the owner's finds nobody.
    #[must_use]
    pub fn take_of(&mut self, owner: u16) -> Vec<OwnedFd> {
        self.take(|it| it.owner == owner)
    }

    /// Who asks for any finds nobody.
    #[must_use]
    pub fn take_all(&mut self) -> Vec<OwnedFd> {
        self.take(|_| true)
    }

    /// The owner's process has ended: what whoever takes its place is handed, of those that somebody has a descriptor of. The others are
    /// taken out.
    pub fn for_successor(&mut self, owner: u16) -> (Vec<TetherParts>, Vec<OwnedFd>) {
        let gone = self.take(|it| it.owner == owner && tether::is_let_go(it.end.as_fd()));
        let own = self.0.iter_mut().filter(|it| it.owner == owner);
        let parts = own.map(|it| {
            let file = tether::new_file()?;
            it.file = Some(file.try_clone()?);
            Ok((it.flow, it.end.try_clone()?, file))
        });
        let parts = parts.collect::<io::Result<_>>().unwrap_or_else(|error| {
            tracing::warn!(
                owner,
                "what others share with a process ends with it: {error}"
            );
            Vec::new()
        });
        (parts, gone)
    }

    /// The successor gives one.
    pub fn give(
        &mut self,
        owner: u16,
        flow: &FourTuple,
        serial: u32,
        token: &str,
    ) -> Result<(), String> {
        let mut all = self.0.iter();
        let found = all.find(|it| it.owner == owner && it.flow == *flow);
        let Some(Tethered {
            end,
            file: Some(file),
            ..
        }) = found
        else {
            return Err("nobody has it".to_owned());
        };
        let numbers = Numbers {
            from: owner,
            serial,
        };
        let given = tether::read_parcel(file.as_fd(), MOST_BYTES).and_then(|parcel| {
            let seal = tether::seal(token, numbers, &parcel);
            let given = tether::give(end.as_fd(), flow, file.as_fd(), seal, numbers);
            given.map_err(|error| error.to_string())
        });
        if given.is_err() {
            // It is written again, if it is asked for again.
            let _ = rustix::fs::ftruncate(file, 0);
            let _ = rustix::fs::seek(file, SeekFrom::Start(0));
        }
        given
    }
}
