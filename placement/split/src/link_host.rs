use crate::host::{Host, Neighbour};
use crate::{BUDGET, FRAME_BYTES};
use core::net::IpAddr;
use rustix::event::PollFlags;
use skink_channel::{AttachError, Pool, PoolGeometry, PoolReader, PoolSet};
use skink_lanes::{
    AttachParts, EndCounters, FrameDown, Incarnation, LinkEnd, Payload, Regions, Transport,
};
use skink_link::{Link, LinkConfig};
use skink_memory::{Bytes, CaptureDirection, CaptureRing, SendRegion};
use skink_messages::{
    Capabilities, Counter, Counters, Full, LinkLimits, NicOutput, Progress, RxFrame, TxPacket,
};
use skink_nic::{BatchBytes, Budget, Nic, Receiver, Room, Sender};
use skink_time::{Duration, Instant};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// How often the NIC is asked what it dropped, which may take a system call.
const DROPPED_EVERY: Duration = Duration::from_secs(1);
/// Chunks for received frames: fewer than `ip` keeps of answers about them, and three times what each
/// transport, or the filter, may hold up. Pages are taken as they are touched.
const CHUNKS: u32 = 768;

/// Sizes of a pool for what a NIC receives: a frame to a chunk, with a little room behind each.
pub fn receive_geometry(capabilities: &Capabilities) -> Option<PoolGeometry> {
    match capabilities.joins {
        true => PoolGeometry::new(FRAME_BYTES as u32, CHUNKS),
        false => {
            // An Ethernet header, and what makes it a whole number of cache lines.
            let bytes = capabilities
                .mtu
                .checked_add(64)?
                .checked_next_multiple_of(64)?;
            PoolGeometry::new(bytes.max(2048), CHUNKS)
        }
    }
}

/// What a [`LinkHost`] is made of.
pub struct LinkHostParts {
    /// The NIC.
    pub nic: Nic,
    /// Addresses that frames may come from; see [`LinkConfig`].
    pub addresses: Option<Vec<IpAddr>>,
    /// Where to count.
    pub counters: Counters,
    /// The lane to `ip`.
    pub ip: AttachParts,
    /// For received frames, of [`receive_geometry`] and one holder.
    pub pool: Pool,
}

/// `link`, its NIC, and its end towards `ip`.
pub struct LinkHost {
    link: Link,
    receiver: Box<dyn Receiver>,
    sender: Box<dyn Sender>,
    end: LinkEnd,
    regions: Regions,
    pools: PoolSet,
    /// The receiver's descriptors, which don't change.
    arrivals: Vec<OwnedFd>,
    /// The NIC had no room for it.
    pending: Option<FrameDown>,
    /// Payload from a pool.
    scratch: Box<[u8]>,
    /// There was no room for frames that may wait in the NIC.
    starved: bool,
    now: Instant,
    dropped_asked: Instant,
    batch_bytes: BatchBytes,
    counters: Counters,
    capture: Option<CaptureRing>,
}

/// The NIC's sending half, with the place where frames that leave are captured.
struct Tap<'a> {
    sender: &'a mut dyn Sender,
    capture: Option<&'a CaptureRing>,
    now: Instant,
}

impl NicOutput for Tap<'_> {
    fn room(&mut self) -> usize {
        self.sender.room()
    }

    fn send(&mut self, packet: &TxPacket<'_>) -> Result<(), Full> {
        self.sender.send(packet)?;
        if let Some(capture) = self.capture.filter(|capture| capture.wants()) {
            let [first, second] = packet.payload;
            let pieces = [Bytes::from(packet.headers()), first, second];
            let direction = CaptureDirection::Outbound;
            capture.push(self.now.as_nanos(), direction, &pieces, packet.len());
        }
        Ok(())
    }
}

fn capture_received(capture: &CaptureRing, frame: &RxFrame<'_>) {
    let pieces = [Bytes::from(frame.bytes)];
    let (at, length) = (frame.arrived.as_nanos(), frame.bytes.len());
    capture.push(at, CaptureDirection::Inbound, &pieces, length);
}

/// What became of a frame.
enum Left {
    Sent,
    Stale,
    Full,
}

impl LinkHost {
    /// Starts.
    ///
    /// # Errors
    /// If the lane isn't one, or there are no descriptors left.
    pub fn new(parts: LinkHostParts) -> Result<LinkHost, AttachError> {
        let LinkHostParts {
            nic,
            addresses,
            counters,
            ip,
            pool,
        } = parts;
        let mut arrivals = Vec::new();
        nic.receiver
            .descriptors(&mut |fd| arrivals.push(fd.try_clone_to_owned()));
        let arrivals = arrivals.into_iter().collect::<Result<_, _>>()?;
        let link = Link::new(nic.capabilities, LinkConfig { addresses }, counters.clone());
        Ok(LinkHost {
            end: LinkEnd::attach(ip, pool, link.limits())?,
            link,
            receiver: nic.receiver,
            sender: nic.sender,
            regions: Regions::new(),
            pools: PoolSet::new(),
            arrivals,
            pending: None,
            scratch: vec![0; FRAME_BYTES].into_boxed_slice(),
            starved: false,
            now: Instant::ZERO,
            dropped_asked: Instant::ZERO,
            batch_bytes: BatchBytes::default(),
            counters,
            capture: None,
        })
    }

    /// From now on frames are copied to `capture` while a reader wants them.
    pub fn set_capture(&mut self, capture: Option<CaptureRing>) {
        self.capture = capture;
    }

    /// Ends, and gives the NIC back, for a successor in the same process.
    pub fn into_nic(self) -> (Box<dyn Receiver>, Box<dyn Sender>) {
        (self.receiver, self.sender)
    }

    /// What the link takes.
    pub fn limits(&self) -> LinkLimits {
        self.link.limits()
    }

    /// The pool of received frames, to be mapped by `ip`, `tcp` and `udp`.
    pub fn pool(&self) -> &Pool {
        self.end.pool()
    }

    /// Maps a pool of `ip`.
    pub fn add_pool(&mut self, pool: PoolReader) {
        self.pools.insert(pool);
    }

    /// Unmaps the pool of one that died.
    pub fn remove_pool(&mut self, id: u32) {
        self.pools.remove(id);
    }

    /// Maps a program's sockets of a transport, opened for reading.
    pub fn add_region(&mut self, transport: Transport, index: u32, region: SendRegion) {
        self.regions.insert(transport, index, region);
    }

    /// Unmaps a program's sockets.
    pub fn remove_regions(&mut self, index: u32) {
        for transport in Transport::ALL {
            self.regions.remove(transport, index);
        }
    }

    /// `ip` was replaced: nothing is kept that its predecessor was to be told of.
    pub fn ip_restarted(&mut self, now: Instant, incarnation: Incarnation) {
        self.end.ip_restarted(now, incarnation);
        self.pending.take_if(|frame| frame.id != 0);
    }

    /// As [`LinkEnd::held_back`].
    pub fn held_back(&self) -> usize {
        self.end.held_back()
    }

    /// What was dropped at its end.
    pub fn end_counters(&self) -> EndCounters {
        self.end.counters()
    }

    fn transmit(&mut self, now: Instant) -> usize {
        for taken in 0..BUDGET {
            let Some(frame) = self.pending.take().or_else(|| self.end.take_frame()) else {
                return taken;
            };
            match self.transmit_one(now, &frame) {
                Left::Sent => self.end.sent(&frame),
                Left::Stale => {
                    self.end.count_stale();
                    self.end.sent(&frame);
                }
                Left::Full => {
                    self.pending = Some(frame);
                    return 0;
                }
            }
        }
        BUDGET
    }

    fn transmit_one(&mut self, now: Instant, frame: &FrameDown) -> Left {
        let payload = match frame.payload {
            // Copied, and looked at again: its maker may think that we are dead.
            Payload::Pool(pointer) => {
                let copied = self.pools.copy_out(pointer, &mut self.scratch);
                let bytes = self.scratch.get(..pointer.length as usize);
                match (copied, bytes) {
                    (Ok(()), Some(bytes)) => Some([Bytes::from(bytes), Bytes::EMPTY]),
                    _ => None,
                }
            }
            Payload::Empty | Payload::Ring(..) => self.regions.resolve(&self.pools, &frame.payload),
        };
        let Some(payload) = payload else {
            return Left::Stale;
        };
        let mut packet = frame.headers.packet(payload);
        let mut tap = Tap {
            sender: self.sender.as_mut(),
            capture: self.capture.as_ref(),
            now,
        };
        match self.link.send(now, &mut packet, &mut tap) {
            Ok(()) => Left::Sent,
            Err(Full) => Left::Full,
        }
    }

    fn receive(&mut self, now: Instant) -> Progress {
        let room = self.end.room(BUDGET as u32) as usize;
        let overtaken = self.receiver.take_overtaken();
        self.counters.add(Counter::LinkOvertook, overtaken);
        let mut budget = Budget::new(room, self.batch_bytes.next(now, overtaken));
        self.starved = room == 0;
        let (link, end) = (&self.link, &mut self.end);
        let capture = self.capture.as_ref();
        self.receiver.receive(now, &mut budget, &mut |frame| {
            if let Some(capture) = capture.filter(|capture| capture.wants()) {
                capture_received(capture, &frame);
            }
            if link.receive(&frame) && !end.frame(&frame) {
                self.counters.count(Counter::LinkDropNic);
            }
        });
        match room > 0 && budget.is_spent() {
            true => Progress::More,
            false => Progress::Idle,
        }
    }

    fn ask_dropped(&mut self, now: Instant) {
        if now.since(self.dropped_asked) >= DROPPED_EVERY {
            self.dropped_asked = now;
            let received = self.receiver.take_dropped();
            self.counters.add(Counter::LinkDropNic, received);
            let beside = self.receiver.take_beside();
            self.counters.add(Counter::LinkBeside, beside);
            let sent = self.sender.take_dropped();
            self.counters.add(Counter::LinkDropSend, sent);
        }
    }
}

impl Host for LinkHost {
    fn poll(&mut self, now: Instant) -> Progress {
        self.now = now;
        self.end.begin();
        let sent = self.transmit(now);
        let received = self.receive(now);
        self.end.publish();
        self.sender.flush();
        self.end.flush(now);
        self.ask_dropped(now);
        match sent >= BUDGET || received == Progress::More {
            true => Progress::More,
            false => Progress::Idle,
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let again = match self.sender.blocked_on() {
            Some(Room::Untold(again)) => Some(self.now + again),
            Some(Room::At(_)) | None => None,
        };
        let both = [again, self.end.next_deadline()];
        both.into_iter().flatten().min()
    }

    fn is_ready(&self) -> bool {
        self.pending.is_none() && self.end.is_ready()
    }

    fn descriptors<'a>(&'a self, each: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {
        if let Some(room) = self.sender.blocked_on().and_then(Room::descriptor) {
            each(room, PollFlags::OUT);
        }
        if !self.starved {
            let arrivals = self.arrivals.iter();
            arrivals.for_each(|fd| each(fd.as_fd(), PollFlags::IN));
        }
    }

    fn broken(&self) -> Option<Neighbour> {
        self.end.is_broken().then_some(Neighbour::Ip)
    }
}
