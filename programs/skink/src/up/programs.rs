//! Programs that are served: what was made for each, and which processes have it.
use super::layout::{Layout, Places};
use super::split::PlaceOrder;
use serde::{Deserialize, Serialize};
use skink_channel::SleeperDescriptors;
use skink_control::{Order, Part, Peer, ServedParts, TableSize, unguessable};
use skink_memory::{Region, TableError};
use skink_sockets::{Attachment, ChannelParts, NOTICES, REQUESTS, Routes};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Where a program is on its way.
#[derive(Serialize, Deserialize)]
pub enum Stage {
    /// The stack hasn't answered yet. What the program will be handed.
    Attaching(Box<ServedParts>),
    /// It is served.
    Served,
    /// The stack knows that it has ended, and ends its connections.
    Ending,
}

/// A region's memfds as [`Region::files`] names them, readable and writable, as a successor of the stack needs them.
#[derive(Serialize, Deserialize)]
struct RegionFiles(#[serde(with = "skink_inherit::descriptors")] [OwnedFd; 3]);

/// Which processes of the stack have a program, and what they must still say of it.
#[derive(Default, Serialize, Deserialize)]
pub struct Holders {
    /// They have been told of it.
    pub introduced: bool,
    /// Must say whether they attach it.
    pub attaching: Places,
    /// Must say that they can read what it sends.
    pub mapping: Places,
    /// Have attached it, and will say when its last socket is gone.
    pub holding: Places,
    /// Why one of them hasn't attached it.
    pub refused: Option<String>,
    /// They have been told that it ended.
    pub detached: bool,
}

/// What is to be done about a program next.
#[derive(PartialEq, Eq, Debug)]
pub enum Step {
    /// Nothing, until one of the processes says something.
    Wait,
    /// All have it: it may begin.
    Grant,
    /// One doesn't want it, so it has ended.
    Refuse(String),
    /// A successor of one that had it doesn't want it, so it has ended.
    Lose(String),
    /// It has ended: `syscall` is to be told.
    Detach,
    /// Nobody has it any more.
    Forget,
}

/// One program.
#[derive(Serialize, Deserialize)]
pub struct Program {
    pub stage: Stage,
    pub holders: Holders,
    pub uid: u32,
    pid: u32,
    attachment: Attachment,
    tcp: RegionFiles,
    udp: RegionFiles,
    channels: ChannelParts,
}

impl Program {
    /// Makes everything that the program and the stack will share. `stack` is what wakes the process
    /// that each channel leads to.
    pub fn make(
        number: u16,
        peer: &Peer,
        (tcp, udp): (TableSize, TableSize),
        routes: Routes,
        stack: &[&SleeperDescriptors],
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
        // Half of the numbers are left to count on.
        let generation = unguessable().map_err(why)? as u32 >> 1;
        let region = |name, size| region(name, size, generation);
        let (tcp_files, tcp_region) = region("skink-tcp", tcp).map_err(why)?;
        let (udp_files, udp_region) = region("skink-udp", udp).map_err(why)?;
        let channels = ChannelParts::create(routes.channels()).map_err(why)?;
        let attachment = Attachment {
            program: number.into(),
            tcp_stride: tcp.sockets.next_power_of_two(),
            udp_stride: udp.sockets.next_power_of_two(),
            secret: unguessable().map_err(why)?,
            routes,
        };
        let parts = ServedParts {
            attachment,
            tcp_region,
            udp_region,
            channel: channels.for_program(stack).map_err(why)?,
        };
        Ok(Program {
            stage: Stage::Attaching(Box::new(parts)),
            holders: Holders::default(),
            uid: peer.uid,
            pid: peer.pid,
            attachment,
            tcp: tcp_files,
            udp: udp_files,
            channels,
        })
    }

    /// The orders to serve it, to those of these processes that a channel leads to, and what goes with
    /// them.
    pub fn attach(&self, layout: &Layout, to: Places) -> io::Result<Vec<PlaceOrder>> {
        let mut orders = Vec::new();
        let channels = layout.channels().into_iter().enumerate();
        for (channel, place) in channels.filter(|(_, place)| to.contains(*place)) {
            let mut descriptors = Vec::with_capacity(13);
            for (part, files) in [(Part::Tcp, &self.tcp), (Part::Udp, &self.udp)] {
                if layout.hosts(place, part) {
                    for file in &files.0 {
                        descriptors.push(file.try_clone()?);
                    }
                }
            }
            descriptors.extend(self.channels.for_stack(channel)?);
            let order = Order::Attach {
                attachment: self.attachment,
                pid: self.pid,
                uid: self.uid,
            };
            orders.push((place, order, descriptors));
        }
        Ok(orders)
    }

    /// A process that has it died, and a successor is told of it. Whatever `syscall` was told of its end
    /// it is told again.
    pub fn introduce_again(&mut self, place: usize) {
        self.holders.attaching.insert(place);
        self.holders.detached = false;
    }

    /// A process has attached it, or says why not. A word that isn't waited for is from one that was
    /// told of another program.
    pub fn attached(&mut self, layout: &Layout, place: usize, refused: Option<String>) {
        if !self.holders.attaching.remove(place) {
            return;
        }
        if refused.is_none() && layout.transports().contains(place) {
            self.holders.holding.insert(place);
        }
        self.holders.refused = self.holders.refused.take().or(refused);
    }

    /// What is next, as far as is known now. Nobody is told of its end before all have answered whether
    /// they attach it: what `syscall` tells the transports could overtake what they were told here.
    pub fn step(&mut self) -> Step {
        let holders = &mut self.holders;
        if !holders.introduced || !holders.attaching.is_empty() {
            return Step::Wait;
        }
        match &self.stage {
            Stage::Attaching(_) => match holders.refused.take() {
                Some(why) => Step::Refuse(why),
                None if holders.mapping.is_empty() => Step::Grant,
                None => Step::Wait,
            },
            Stage::Served => match holders.refused.take() {
                Some(why) => Step::Lose(why),
                None => Step::Wait,
            },
            Stage::Ending if !holders.detached => {
                holders.detached = true;
                Step::Detach
            }
            Stage::Ending if holders.holding.is_empty() => Step::Forget,
            Stage::Ending => Step::Wait,
        }
    }

    /// Messages that wait in the program's channel to the stack, and for how many there is room.
    pub fn requests(&self, channel: usize) -> (u64, u64) {
        let depth = self.channels.requests(channel).unwrap_or_default();
        (depth.into(), REQUESTS.into())
    }

    /// As [`Program::requests`], in the other direction.
    pub fn notices(&self, channel: usize) -> (u64, u64) {
        let depth = self.channels.notices(channel).unwrap_or_default();
        (depth.into(), NOTICES.into())
    }

    /// Whether what the program wrote into the channel to this place is as it should be, as far as that can be read.
    pub fn uses_well(&self, layout: &Layout, place: usize) -> bool {
        let mut channels = layout.channels().into_iter();
        let channel = channels.position(|other| other == place);
        channel.is_some_and(|channel| self.channels.is_used_well(channel).unwrap_or(false))
    }

    /// Its sockets, for the processes that only read what is sent.
    pub fn map(&self) -> io::Result<(Order, Vec<OwnedFd>)> {
        let regions = [&self.tcp, &self.udp];
        let files = regions
            .into_iter()
            .flat_map(|RegionFiles([records, send_rings, _])| [records, send_rings]);
        let files = files.map(read_only).collect::<io::Result<_>>()?;
        let program = self.attachment.program;
        Ok((Order::Map { program }, files))
    }

    /// Its regions for another program, that says it knows the secret, as for the program itself.
    pub fn regions(&self, secret: u64) -> Result<[[OwnedFd; 3]; 2], String> {
        // In constant time: the comparison looks at all bits whatever they are.
        if std::hint::black_box(self.attachment.secret ^ secret) != 0 {
            return Err("the secret of the socket that was handed over is wrong".to_owned());
        }
        let failed = |error: io::Error| format!("its sockets can't be handed over: {error}");
        let handed = |RegionFiles([records, send_rings, receive_rings]): &RegionFiles| {
            let (records, receive_rings) = (read_only(records)?, read_only(receive_rings)?);
            Ok([records, send_rings.try_clone()?, receive_rings])
        };
        let tcp = handed(&self.tcp).map_err(failed)?;
        let udp = handed(&self.udp).map_err(failed)?;
        Ok([tcp, udp])
    }

    /// The files of its TCP region and of its UDP region.
    pub fn files(&self) -> [&[OwnedFd; 3]; 2] {
        [&self.tcp.0, &self.udp.0]
    }

    /// Whether it may still ask the stack for something.
    pub fn lives(&self) -> bool {
        match self.stage {
            Stage::Attaching(_) | Stage::Served => true,
            Stage::Ending => false,
        }
    }
}

/// Makes a region; it isn't mapped here for longer than that takes. Answers its files, and what the
/// program is handed.
fn region(name: &str, size: TableSize, generation: u32) -> io::Result<(RegionFiles, [OwnedFd; 3])> {
    let region = Region::create(name, size.into()).map_err(|error| match error {
        TableError::Memory(error) => error,
        error => io::Error::other(error),
    })?;
    // A packet that was on its way when another program had this number mustn't find this one's bytes.
    region.count_generations_from(generation);
    let [records, send_rings, receive_rings] = region.files().map(|it| it.try_clone_to_owned());
    let files = RegionFiles([records?, send_rings?, receive_rings?]);
    Ok((files, region.program_files()?))
}

/// A descriptor that can't be mapped for writing.
fn read_only(file: &OwnedFd) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(std::fs::File::open(path)?.into())
}

#[cfg(test)]
mod tests;
