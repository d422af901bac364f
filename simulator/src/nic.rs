//! The simulated NIC: two bounded queues in memory, and as many abilities as the scenario says.

use crate::doom::Doom;
use crate::frame::{self, Frame};
use crate::random::Random;
use rustix::event::{EventfdFlags, eventfd};
use skink_messages::{Capabilities, Full, NicOutput, RxChecksum, RxFrame, Steering, TxPacket};
use skink_nic::{Budget, Nic, Receiver, Room, Sender};
use skink_time::Instant;
use skink_wire::MacAddr;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

/// What a host's NIC can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ability {
    /// Nothing: whole frames with checksums only.
    Plain,
    /// It completes checksums and vouches for those that arrive.
    Checksums,
    /// It cuts large segments too.
    Cuts {
        /// Largest packet that it cuts, in bytes.
        bytes: u32,
    },
    /// A virtual link within one machine: large segments go across whole, checksums are never made.
    Virtual,
}

/// A host's NIC, as data.
#[derive(Clone, Copy, Debug)]
pub struct NicPlan {
    /// Address on the link.
    pub mac: MacAddr,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// What it can do.
    pub ability: Ability,
    /// Frames that its receiving queue holds.
    pub receive_frames: usize,
    /// Frames that its sending queue holds.
    pub send_frames: usize,
    /// How often a flush leaves less room than there is, in thousandths.
    pub full_per_mille: u32,
}

struct Queues {
    plan: NicPlan,
    inbound: VecDeque<Frame>,
    outbound: VecDeque<Frame>,
    /// Frames in `outbound` that were flushed.
    flushed: usize,
    /// Frames that the sending half takes until the wire took some.
    room: usize,
    /// Somebody wanted more.
    refused: bool,
    dropped: u64,
    random: Random,
    complaint: Option<String>,
    /// Nobody fills the receiving queue until then.
    up_from: Instant,
    doom: Doom,
    /// What its owner sleeps on. Nobody does here, so it never rings.
    arrivals: OwnedFd,
}

/// The wire's hold on a NIC.
#[derive(Clone)]
pub struct NicHandle(Arc<Mutex<Queues>>);

struct Half(NicHandle);

impl NicHandle {
    /// Makes a NIC.
    pub fn new(plan: NicPlan, random: Random, doom: Doom) -> NicHandle {
        NicHandle(Arc::new(Mutex::new(Queues {
            plan,
            inbound: VecDeque::new(),
            outbound: VecDeque::new(),
            flushed: 0,
            room: plan.send_frames,
            refused: false,
            dropped: 0,
            random,
            complaint: None,
            up_from: Instant::ZERO,
            doom,
            arrivals: eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor"),
        })))
    }

    /// The NIC as its owner sees it. There may be another one after this.
    pub fn nic(&self) -> Nic {
        let plan = self.lock().plan;
        let (checksums, cut_bytes) = match plan.ability {
            Ability::Plain => (false, 0),
            Ability::Checksums => (true, 0),
            Ability::Cuts { bytes } => (true, bytes),
            Ability::Virtual => (true, 65535),
        };
        let capabilities = Capabilities {
            kind: "simulated",
            mac: plan.mac,
            mtu: plan.mtu,
            tx_checksum: checksums,
            rx_checksum: checksums,
            cut_bytes,
            joins: plan.ability == Ability::Virtual,
            queues: 1,
            steering: Steering::Sole,
            zero_copy: false,
        };
        Nic {
            capabilities,
            receiver: Box::new(Half(self.clone())),
            sender: Box::new(Half(self.clone())),
        }
    }

    /// The owner died. Frames that were handed over leave, or get `lost` with those that wait; nothing
    /// more is received until `up_from`.
    pub fn crash(&self, lost: bool, up_from: Instant) {
        let mut queues = self.lock();
        if lost {
            queues.inbound.clear();
            let flushed = queues.flushed;
            queues.outbound.truncate(flushed);
        }
        queues.flushed = queues.outbound.len();
        queues.up_from = up_from;
    }

    /// When somebody receives again.
    pub fn up_from(&self) -> Instant {
        self.lock().up_from
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        // One thread only; a poisoned lock means that a panic is on its way up already.
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The wire delivers a frame; a full queue drops it.
    pub fn deliver(&self, now: Instant, mut arriving: Frame) {
        let mut queues = self.lock();
        if now < queues.up_from {
            queues.dropped += 1;
            return;
        }
        let too_long = arriving.bytes.len() > queues.plan.mtu as usize + 14;
        let joined = arriving.segment_bytes > 0 && queues.plan.ability == Ability::Virtual;
        if queues.inbound.len() >= queues.plan.receive_frames || (too_long && !joined) {
            queues.dropped += 1;
            return;
        }
        if matches!(
            queues.plan.ability,
            Ability::Checksums | Ability::Cuts { .. }
        ) && frame::checksum_is_right(&arriving.bytes)
            && queues.random.chance(800)
        {
            arriving.checksum = RxChecksum::Verified;
        }
        queues.inbound.push_back(arriving);
    }

    /// Whether frames wait for the stack.
    pub fn has_inbound(&self) -> bool {
        !self.lock().inbound.is_empty()
    }

    /// The wire takes all flushed frames.
    pub fn take_outbound(&self) -> Vec<Frame> {
        let mut queues = self.lock();
        let flushed = std::mem::take(&mut queues.flushed);
        let frames: Vec<Frame> = queues.outbound.drain(..flushed).collect();
        let (frames_left, capacity) = (queues.outbound.len(), queues.plan.send_frames);
        let full = queues.plan.full_per_mille;
        queues.room = capacity.saturating_sub(frames_left);
        if queues.random.chance(full) {
            let room = queues.room as u64;
            queues.room = queues.random.range(0, room / 4) as usize;
        }
        frames
    }

    /// What the stack did wrong towards its NIC, if anything.
    pub fn complaint(&self) -> Option<String> {
        self.lock().complaint.take()
    }

    /// Frames that were handed over and never flushed.
    pub fn unflushed(&self) -> usize {
        let queues = self.lock();
        queues.outbound.len() - queues.flushed
    }
}

impl Receiver for Half {
    fn receive(
        &mut self,
        now: Instant,
        budget: &mut Budget,
        each: &mut dyn FnMut(RxFrame<'_>),
    ) -> usize {
        let mut count = 0;
        while !budget.is_spent() {
            let next = {
                let mut queues = self.0.lock();
                match queues.doom.is_dead() {
                    true => None,
                    false => queues.inbound.pop_front(),
                }
            };
            let Some(frame) = next else {
                break;
            };
            each(RxFrame {
                arrived: now,
                bytes: &frame.bytes,
                checksum: frame.checksum,
                segment_bytes: frame.segment_bytes,
            });
            budget.spend(frame.bytes.len());
            count += 1;
        }
        count
    }

    fn descriptors(&self, each: &mut dyn FnMut(BorrowedFd<'_>)) {
        each(self.0.lock().arrivals.as_fd());
    }

    fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.0.lock().dropped)
    }
}

impl NicOutput for Half {
    fn room(&mut self) -> usize {
        let mut queues = self.0.lock();
        queues.refused = queues.room == 0;
        queues.room
    }

    fn send(&mut self, packet: &TxPacket<'_>) -> Result<(), Full> {
        let mut queues = self.0.lock();
        if queues.doom.is_dead() {
            return Ok(());
        }
        queues.refused = queues.room == 0;
        if queues.refused {
            return Err(Full);
        }
        queues.room -= 1;
        queues.take(packet);
        if queues.doom.act() {
            // It was the last one that left.
            queues.flushed = queues.outbound.len();
        }
        Ok(())
    }
}

impl Sender for Half {
    fn flush(&mut self) {
        let mut queues = self.0.lock();
        queues.flushed = queues.outbound.len();
        queues.refused &= queues.room == 0;
    }

    fn blocked_on(&self) -> Option<Room<'_>> {
        self.0.lock().refused.then_some(Room::Untold(Room::SOON))
    }
}

impl Queues {
    /// Does what the hardware does, and checks what it was given.
    fn take(&mut self, packet: &TxPacket<'_>) {
        let mut bytes = frame::flatten(packet);
        let mtu = self.plan.mtu as usize;
        let headers = packet.headers().len();
        let transport = headers - usize::from(packet.transport_bytes);
        let large = bytes.len() > mtu + 14;
        let cuts = matches!(self.plan.ability, Ability::Cuts { .. } | Ability::Virtual);
        if large && !(cuts && packet.segment_bytes > 0) {
            self.complaint = Some(format!("a frame of {} bytes, MTU {mtu}", bytes.len()));
            return;
        }
        if packet.checksum_offset.is_some() && self.plan.ability == Ability::Plain {
            self.complaint = Some("an unfinished checksum to a NIC that makes none".to_owned());
            return;
        }
        let segment = usize::from(packet.segment_bytes);
        let cut = segment > 0 && packet.payload_bytes() > segment;
        let checksum = RxChecksum::Unverified;
        match self.plan.ability {
            Ability::Cuts { .. } if cut => {
                for bytes in frame::cut(&bytes, segment) {
                    self.queue(bytes, checksum, 0);
                }
            }
            Ability::Virtual if packet.checksum_offset.is_some() => {
                let segment = if cut { packet.segment_bytes } else { 0 };
                self.queue(bytes, RxChecksum::Verified, segment);
            }
            Ability::Plain | Ability::Checksums | Ability::Cuts { .. } | Ability::Virtual => {
                if let Some(field) = packet.checksum_offset {
                    frame::complete_checksum(&mut bytes, transport, usize::from(field));
                }
                self.queue(bytes, checksum, 0);
            }
        }
    }

    fn queue(&mut self, bytes: Vec<u8>, checksum: RxChecksum, segment_bytes: u16) {
        let most = self.plan.mtu as usize + 14;
        if segment_bytes == 0 && bytes.len() > most {
            self.complaint = Some(format!("a cut frame of {} bytes over {most}", bytes.len()));
            return;
        }
        self.outbound.push_back(Frame {
            bytes,
            checksum,
            segment_bytes,
        });
    }
}
