//! Programs that are served: what was made for each, and who may have how many.
use skink_channel::SleeperDescriptors;
use skink_control::{Order, Peer, ServedParts, TableSize, unguessable};
use skink_memory::{Region, TableError};
use skink_sockets::{Attachment, ChannelParts};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long after the end of its connection a process that lives on keeps its sockets: long enough for
/// the program that it has become by `exec` to lay hands on those it inherited.
pub const GRACE: Duration = Duration::from_secs(2);

/// Where a program is on its way.
pub enum Stage {
    /// The stack hasn't answered yet. What the program will be handed.
    Attaching(Box<ServedParts>),
    /// It is served.
    Served,
    /// Its connection is closed; when its process lives on, it counts as ended then.
    HungUp(Instant),
    /// The stack knows that it has ended, and ends its connections.
    Ending,
}

/// A region's two memfds, readable and writable, as a successor of the stack needs them.
struct RegionFiles {
    records: OwnedFd,
    rings: OwnedFd,
}

/// One program.
pub struct Program {
    pub stage: Stage,
    /// The stack has been told of it.
    pub introduced: bool,
    /// Bits of the processes that must still say that they have its memory.
    pub awaited: u8,
    pub uid: u32,
    pid: u32,
    attachment: Attachment,
    tcp: RegionFiles,
    udp: RegionFiles,
    channel: ChannelParts,
}

impl Program {
    /// Makes everything that the program and the stack will share.
    pub fn make(
        number: u16,
        peer: &Peer,
        (tcp, udp): (TableSize, TableSize),
        stack: &SleeperDescriptors,
    ) -> Result<Program, String> {
        let why = |error: io::Error| {
            let advice = match error.raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE) => {
                    "; raise the limit of open files (ulimit -n) of skink up"
                }
                _ => "",
            };
            format!("no shared memory can be made for the program: {error}{advice}")
        };
        let (tcp_files, tcp_region) = region("skink-tcp", tcp).map_err(why)?;
        let (udp_files, udp_region) = region("skink-udp", udp).map_err(why)?;
        let channel = ChannelParts::create().map_err(why)?;
        let attachment = Attachment {
            program: number.into(),
            tcp_stride: tcp.sockets.next_power_of_two(),
            udp_stride: udp.sockets.next_power_of_two(),
            secret: unguessable().map_err(why)?,
        };
        let parts = ServedParts {
            attachment,
            tcp_region,
            udp_region,
            channel: channel.for_program(stack).map_err(why)?,
        };
        Ok(Program {
            stage: Stage::Attaching(Box::new(parts)),
            introduced: false,
            awaited: 0,
            uid: peer.uid,
            pid: peer.pid,
            attachment,
            tcp: tcp_files,
            udp: udp_files,
            channel,
        })
    }

    /// The order to serve it, and what goes with that.
    pub fn order(&self) -> io::Result<(Order, Vec<OwnedFd>)> {
        let files = [
            &self.tcp.records,
            &self.tcp.rings,
            &self.udp.records,
            &self.udp.rings,
        ];
        let mut descriptors = Vec::with_capacity(11);
        for file in files {
            descriptors.push(file.try_clone()?);
        }
        descriptors.extend(self.channel.for_stack()?);
        let order = Order::Attach {
            attachment: self.attachment,
            pid: self.pid,
            uid: self.uid,
        };
        Ok((order, descriptors))
    }

    /// Its TCP sockets, for the processes that only read what is sent.
    pub fn map(&self) -> io::Result<(Order, Vec<OwnedFd>)> {
        let files = [read_only(&self.tcp.records)?, read_only(&self.tcp.rings)?];
        let program = self.attachment.program;
        Ok((Order::Map { program }, files.into()))
    }

    /// Its regions for another program, that says it knows the secret: records can't be written.
    pub fn regions(&self, secret: u64) -> Result<[OwnedFd; 4], String> {
        // In constant time: the comparison looks at all bits whatever they are.
        if std::hint::black_box(self.attachment.secret ^ secret) != 0 {
            return Err("the secret of the socket that was handed over is wrong".to_owned());
        }
        let failed = |error: io::Error| format!("its sockets can't be handed over: {error}");
        let handed =
            |files: &RegionFiles| Ok((read_only(&files.records)?, files.rings.try_clone()?));
        let (tcp_records, tcp_rings) = handed(&self.tcp).map_err(failed)?;
        let (udp_records, udp_rings) = handed(&self.udp).map_err(failed)?;
        Ok([tcp_records, tcp_rings, udp_records, udp_rings])
    }

    /// TCP records, TCP rings, UDP records, UDP rings.
    pub fn files(&self) -> [BorrowedFd<'_>; 4] {
        [
            self.tcp.records.as_fd(),
            self.tcp.rings.as_fd(),
            self.udp.records.as_fd(),
            self.udp.rings.as_fd(),
        ]
    }

    /// Whether it may still ask the stack for something.
    pub fn lives(&self) -> bool {
        match self.stage {
            Stage::Attaching(_) | Stage::Served => true,
            Stage::HungUp(_) | Stage::Ending => false,
        }
    }
}

/// Makes a region; it isn't mapped here for longer than that takes. Answers its files, and what the
/// program is handed.
fn region(name: &str, size: TableSize) -> io::Result<(RegionFiles, [OwnedFd; 2])> {
    let region = Region::create(name, size.into()).map_err(|error| match error {
        TableError::Memory(error) => error,
        error => io::Error::other(error),
    })?;
    let files = RegionFiles {
        records: region.records_fd().try_clone_to_owned()?,
        rings: region.rings_fd().try_clone_to_owned()?,
    };
    Ok((files, region.program_descriptors()?))
}

/// A descriptor that can't be mapped for writing.
fn read_only(file: &OwnedFd) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(std::fs::File::open(path)?.into())
}

#[cfg(test)]
mod tests;
