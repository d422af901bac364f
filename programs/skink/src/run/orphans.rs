//! Processes of the program that ended with connections: a process of Skink's takes each one's place, and tells its peers.
use skink_control::{
    ComponentProcess, Executable, Order, RegionKind, SignalDescriptor, StackStart, spawn_component,
};
use skink_memory::{Record, SendRegion, SocketKind};
use skink_tcp::State;
use skink_wire::Endpoint;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

/// So many processes at a time that end connections: others wait for their turn.
const MOST: usize = 8;
/// So many at a time that go on to listen, or have connections that others may ask for: for as long as it takes.
const MOST_STAYING: usize = 32;

/// What is to be ended in place of one owner's process.
struct Orphans {
    /// Until there is a process for it.
    order: Option<(Order, Vec<OwnedFd>)>,
    process: Option<ComponentProcess>,
    /// Others may need it for as long as it takes.
    stays: bool,
    /// The owner's own process has closed all descriptors.
    is_released: bool,
}

/// By owner.
#[derive(Default)]
pub struct Orphanage(BTreeMap<u16, Orphans>);

impl Orphanage {
    /// Whether nobody is here.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of them is there for as long as it takes.
    pub fn stay(&self) -> bool {
        self.0.values().any(|it| it.stays)
    }

    /// Whether one more may.
    pub fn has_room_to_stay(&self) -> bool {
        self.0.values().filter(|it| it.stays).count() < MOST_STAYING
    }

    /// Whether the owner's connections are being ended.
    pub fn has(&self, owner: u16) -> bool {
        self.0.contains_key(&owner)
    }

    /// The owner's connections are to be ended, with what `start` says, and beside it the NIC's descriptors, those of the
    /// tables of ports, the files of its sockets, the tethers', and a connection to the broker. [`Orphanage::tend`] begins.
    pub fn take_in(&mut self, owner: u16, start: StackStart, descriptors: Vec<OwnedFd>) {
        let orphans = Orphans {
            stays: !start.listens.is_empty() || !start.tethers.is_empty(),
            order: Some((Order::EndOrphans(Box::new(start)), descriptors)),
            process: None,
            is_released: false,
        };
        self.0.insert(owner, orphans);
    }

    /// The owner's own process has closed all descriptors. Answers whether its connections are being ended, so that its part
    /// of the NIC is used on.
    pub fn release(&mut self, owner: u16) -> bool {
        let orphans = self.0.get_mut(&owner);
        orphans.map(|orphans| orphans.is_released = true).is_some()
    }

    /// Starts a process for each that has none. Answers the owners for whom that failed, which are forgotten.
    pub fn tend(&mut self, signals: &SignalDescriptor) -> Vec<Gone> {
        let mut failed = Vec::new();
        let running = self.0.values();
        let running = running.filter(|it| it.process.is_some() && !it.stays);
        let mut places = MOST.saturating_sub(running.count());
        for (owner, orphans) in self.0.iter_mut().filter(|(_, it)| it.order.is_some()) {
            if !orphans.stays {
                let Some(left) = places.checked_sub(1) else {
                    continue;
                };
                places = left;
            }
            let Some((order, descriptors)) = orphans.order.take() else {
                continue;
            };
            match start(&order, &descriptors, signals) {
                Ok(process) => orphans.process = Some(process),
                Err(error) => {
                    tracing::warn!(
                        owner,
                        "a process of the program has ended, and its peers aren't told: {error}"
                    );
                    failed.push(*owner);
                }
            }
        }
        failed
            .into_iter()
            .filter_map(|it| self.forget(it))
            .collect()
    }

    /// Whether it is a process of ours.
    pub fn has_process(&self, pid: u32) -> bool {
        self.owner_of(pid).is_some()
    }

    fn owner_of(&self, pid: u32) -> Option<u16> {
        let is_it = |it: &Orphans| it.process.as_ref().map(ComponentProcess::id) == Some(pid);
        let mut all = self.0.iter();
        all.find(|(_, it)| is_it(it)).map(|(owner, _)| *owner)
    }

    /// A child has ended. Answers whose connections it was to end.
    pub fn ended(&mut self, pid: u32) -> Option<Gone> {
        let owner = self.owner_of(pid)?;
        self.forget(owner)
    }

    /// Gives up the connections of one owner, since its place is needed.
    pub fn give_up_one(&mut self) -> Option<Gone> {
        let mut others = self.0.iter().filter(|(_, it)| !it.stays);
        let first = others.next().or_else(|| self.0.iter().next())?;
        let owner = *first.0;
        tracing::warn!(
            owner,
            "the peers of a process that has ended aren't told: its place is needed"
        );
        self.forget(owner)
    }

    fn forget(&mut self, owner: u16) -> Option<Gone> {
        let mut orphans = self.0.remove(&owner)?;
        if let Some(process) = &mut orphans.process {
            // Unless it has ended.
            process.kill();
            process.wait();
        }
        let Orphans { is_released, .. } = orphans;
        Some(Gone { owner, is_released })
    }
}

/// An owner whose connections are ended.
pub struct Gone {
    pub owner: u16,
    /// Nobody has its part of the NIC any more.
    pub is_released: bool,
}

fn start(
    order: &Order,
    descriptors: &[OwnedFd],
    signals: &SignalDescriptor,
) -> std::io::Result<ComponentProcess> {
    let arguments = ["component", "orphans"];
    let process = spawn_component(&Executable::own()?, &arguments, &[], signals)?;
    let all: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    process.link.send(order, &all)?;
    Ok(process)
}

/// The files of the TCP sockets of a process that has ended: records, and what it sends and receives.
pub fn files(mut memory: BTreeMap<RegionKind, OwnedFd>) -> Option<[OwnedFd; 3]> {
    let [records, send_rings, receive_rings] = RegionKind::TCP.map(|kind| memory.remove(&kind));
    Some([records?, send_rings?, receive_rings?])
}

/// Whether peers of its connections are to be told.
pub fn have_peers(files: &[OwnedFd; 3]) -> bool {
    let has_peer = |state, _: &Record| {
        matches!(
            state,
            State::SynReceived
                | State::Established
                | State::CloseWait
                | State::FinWait1
                | State::Closing
                | State::LastAck
        )
    };
    table(files).is_some_and(|table| has_connection(table, has_peer))
}

/// Where it listened.
pub fn listeners(files: &[OwnedFd; 3]) -> Vec<Endpoint> {
    let table = table(files).and_then(|files| SendRegion::open_read_only(files).ok());
    let Some(table) = table else {
        return Vec::new();
    };
    let records = (0..table.used()).map(|slot| table.record(slot));
    let listen = records.filter(|record| record.kind() == SocketKind::TcpListener);
    listen.map(|record| record.four_tuple().local).collect()
}

fn table([records, send_rings, _]: &[OwnedFd; 3]) -> Option<[OwnedFd; 2]> {
    Some([records.try_clone().ok()?, send_rings.try_clone().ok()?])
}

/// Whether a table, as the files of its records and of its send rings, has such a connection.
pub fn has_connection(table: [OwnedFd; 2], is_such: impl Fn(State, &Record) -> bool) -> bool {
    let Ok(table) = SendRegion::open_read_only(table) else {
        return false;
    };
    (0..table.used()).any(|slot| {
        let record = table.record(slot);
        let state = State::from_number(record.state.load(Relaxed));
        record.kind() == SocketKind::Tcp && state.is_some_and(|state| is_such(state, record))
    })
}
