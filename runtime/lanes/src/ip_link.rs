use crate::codec::Few;
use crate::exchange::{EndCounters, Exchange, is_before};
use crate::lane::AttachParts;
use crate::packet_down::{FrameDown, Headers, ToLink};
use crate::packet_up::{FrameUp, FromLink};
use crate::payload::Payload;
use crate::{Incarnation, Transport};
use skink_channel::{
    AttachError, Chunk, NeighbourId, Pool, PoolError, RequestDatabase, RequestId, RichPointer,
};
use skink_memory::Bytes;
use skink_messages::{FrameOutput, Full, LinkLimits, TxPacket};
use skink_time::Instant;
use std::collections::VecDeque;

/// The holders that `ip`'s own pool lends to.
pub mod holder {
    use crate::Transport;
    use skink_channel::HolderId;

    /// `link`
    pub const LINK: HolderId = HolderId(0);
    /// How many there are.
    pub const COUNT: u16 = 3;

    /// `tcp` or `udp`.
    pub const fn of(transport: Transport) -> HolderId {
        match transport {
            Transport::Tcp => HolderId(1),
            Transport::Udp => HolderId(2),
        }
    }
}

const LINK: NeighbourId = NeighbourId(0);
/// Frames with payload in pools that `link` may have at a time. Less than `link` keeps of answers and
/// than the queue holds, so that `link` never has to stop sending for want of room for an answer.
const REQUESTS: u32 = 255;
/// Pointers that may wait for room; no more frames are taken then.
const WAITING: usize = 1024;

/// Whose payload a frame has that left.
#[derive(Clone, Copy, Debug)]
enum Owner {
    /// In our own pool.
    Own(RichPointer),
    /// A transport's.
    Transport(Lender),
}

/// Who is to be told that a packet has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lender {
    /// The transport.
    pub transport: Transport,
    /// Which restart of it.
    pub incarnation: Incarnation,
    /// The id that it gave the packet.
    pub id: u64,
    /// It is to be told at once.
    pub awaited: bool,
}

/// What a transport has lent to `link`.
#[derive(Clone, Copy, Default, Debug)]
struct Loans {
    /// Which restart of the transport runs.
    incarnation: Incarnation,
    /// Packets of that one.
    own: u32,
    /// Packets of those before it.
    former: u32,
}

/// A transport's packet whose payload can go on as it is.
#[derive(Clone, Copy, Debug)]
struct Origin {
    /// Where the payload is mapped here, and how long the two spans are.
    at: [(usize, usize); 2],
    payload: Payload,
    owner: Option<Lender>,
    passed_on: bool,
}

fn places(payload: &[Bytes<'_>; 2]) -> [(usize, usize); 2] {
    payload.map(|bytes| match bytes.len() {
        0 => (0, 0),
        length => (bytes.as_ptr() as usize, length),
    })
}

/// Copies both spans to the front of a chunk; answers how many bytes they are.
fn write(pool: &mut Pool, chunk: &Chunk, payload: &[Bytes<'_>; 2]) -> Result<u32, PoolError> {
    let [first, second] = *payload;
    // No longer than a chunk, whose length is such a number.
    let length = |bytes: Bytes<'_>| u32::try_from(bytes.len()).map_err(|_| PoolError::TooLong);
    let (front, back) = (length(first)?, length(second)?);
    pool.write_bytes(chunk, 0, first)?;
    pool.write_bytes(chunk, front, second)?;
    front.checked_add(back).ok_or(PoolError::TooLong)
}

/// A frame that can be handed to `link`, or dropped.
#[derive(Debug)]
pub struct Prepared {
    headers: Headers<128>,
    payload: Prepare,
}

#[derive(Debug)]
enum Prepare {
    Given(Payload, Option<Lender>),
    Own(Chunk, u32),
}

/// `ip`'s side towards `link`. As a [`FrameOutput`] it is what [`skink_messages`] calls a channel that
/// leads to the link.
pub struct IpLinkEnd {
    exchange: Exchange<FromLink, ToLink>,
    /// For payload of `ip`'s own, either way.
    pool: Pool,
    /// Whose payload `link` has, and the number of the message that told of it.
    database: RequestDatabase<(u64, Owner)>,
    done: VecDeque<RichPointer>,
    /// Transports' packets that have left, or were dropped.
    sent: VecDeque<Lender>,
    /// By [`Transport::index`].
    loans: [Loans; 2],
    limits: LinkLimits,
    origin: Option<Origin>,
    /// Something couldn't be copied since the batch began.
    exhausted: bool,
}

impl IpLinkEnd {
    /// With a new pool of [`holder::COUNT`] holders, whose chunks hold a packet of 64 KiB each.
    /// `limits` are valid until `link` tells others.
    ///
    /// # Errors
    /// As [`Exchange::attach`].
    pub fn attach(
        parts: AttachParts,
        pool: Pool,
        limits: LinkLimits,
    ) -> Result<IpLinkEnd, AttachError> {
        let exchange = Exchange::attach(parts)?;
        Ok(IpLinkEnd {
            database: RequestDatabase::new(REQUESTS, 1, exchange.request_incarnation()),
            exchange,
            pool,
            done: VecDeque::with_capacity(WAITING + 1),
            sent: VecDeque::with_capacity(REQUESTS as usize),
            loans: [Loans::default(); 2],
            limits,
            origin: None,
            exhausted: false,
        })
    }

    /// `ip`'s own pool.
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// Frames that have arrived and not been given back by [`IpLinkEnd::done`] are the caller's to keep
    /// account of. `None` too while `link` is slow to take back what isn't needed any more.
    pub fn take_frame(&mut self) -> Option<FrameUp> {
        while self.done.len() < WAITING {
            match self.exchange.take()? {
                FromLink::Frame(frame) => return Some(frame),
                FromLink::Sent(ids) => ids.as_slice().iter().for_each(|id| self.complete(*id)),
                FromLink::Limits(limits) => {
                    // The address is part of the configuration, and doesn't change.
                    self.limits = LinkLimits {
                        mac: self.limits.mac,
                        ..limits
                    };
                }
            }
        }
        None
    }

    fn complete(&mut self, id: u64) {
        match self.database.complete(RequestId::from_wire(id), LINK) {
            Some((_, owner)) => self.release(owner),
            None => {
                let unasked = &mut self.exchange.counters.unasked;
                *unasked = unasked.wrapping_add(1);
            }
        }
    }

    fn release(&mut self, owner: Owner) {
        match owner {
            Owner::Own(pointer) => {
                let _ = self.pool.give_back(pointer, holder::LINK);
            }
            Owner::Transport(lender) => {
                let loans = &mut self.loans[lender.transport.index()];
                if lender.incarnation == loans.incarnation {
                    loans.own = loans.own.saturating_sub(1);
                    self.done_with(lender);
                } else {
                    loans.former = loans.former.saturating_sub(1);
                }
            }
        }
    }

    /// A transport's packet isn't needed any more: it has left, or was copied or dropped.
    pub fn done_with(&mut self, lender: Lender) {
        if lender.id != 0 {
            self.sent.push_back(lender);
        }
    }

    /// A transport's packet of which that is to be told. None while `link` still has one of that transport's predecessor:
    /// it may be the same, and be read just now.
    pub fn take_sent(&mut self) -> Option<Lender> {
        let loans = &self.loans;
        let mut waiting = self.sent.iter();
        let at = waiting.position(|lender| loans[lender.transport.index()].former == 0)?;
        self.sent.remove(at)
    }

    /// A received frame isn't needed any more; any pointer into it will do.
    pub fn done(&mut self, pointer: RichPointer) {
        self.done.push_back(pointer);
    }

    /// What is sent until [`IpLinkEnd::end_packet`] may be a transport's packet with this payload, which
    /// is mapped here at `mapped`: it then goes on as it is, without a copy.
    pub fn begin_packet(
        &mut self,
        payload: Payload,
        mapped: &[Bytes<'_>; 2],
        owner: Option<Lender>,
    ) {
        self.origin = Some(Origin {
            at: places(mapped),
            payload,
            owner,
            passed_on: false,
        });
    }

    /// Answers whether the packet's owner is told by [`IpLinkEnd::take_sent`] once it has left. If not,
    /// it was copied or dropped, and isn't needed any more.
    pub fn end_packet(&mut self) -> bool {
        self.origin.take().is_some_and(|origin| origin.passed_on)
    }

    /// Copies what must be copied, so that the frame can be kept.
    ///
    /// # Errors
    /// [`Full`] if the pool is exhausted.
    pub fn prepare(&mut self, packet: &TxPacket<'_>) -> Result<Prepared, Full> {
        // Headers in a packet are never longer.
        let headers = Headers::of(packet).ok_or(Full)?;
        let at = places(&packet.payload);
        let origin = self.origin.as_mut().filter(|origin| origin.at == at);
        let payload = match origin {
            _ if packet.payload_bytes() == 0 => Prepare::Given(Payload::Empty, None),
            Some(origin) => {
                origin.passed_on = origin.owner.is_some();
                Prepare::Given(origin.payload, origin.owner)
            }
            None => self.copy(packet)?,
        };
        Ok(Prepared { headers, payload })
    }

    fn copy(&mut self, packet: &TxPacket<'_>) -> Result<Prepare, Full> {
        let Ok(chunk) = self.pool.allocate() else {
            self.exhausted = true;
            return Err(Full);
        };
        match write(&mut self.pool, &chunk, &packet.payload) {
            Ok(bytes) => Ok(Prepare::Own(chunk, bytes)),
            Err(_) => {
                self.pool.free(chunk);
                Err(Full)
            }
        }
    }

    /// Hands a frame to `link`.
    ///
    /// # Errors
    /// [`Full`] with the frame.
    #[expect(clippy::result_large_err, reason = "the frame comes back as it is")]
    pub fn submit(&mut self, prepared: Prepared) -> Result<(), (Full, Prepared)> {
        if self.database.awaited() >= REQUESTS {
            self.exhausted = true;
            return Err((Full, prepared));
        }
        // What `ip` has to say itself is little, and goes along.
        let reserved = match &prepared.payload {
            Prepare::Given(payload, _) if payload.bytes() > 0 => self.exchange.reserve_payload(),
            Prepare::Given(..) | Prepare::Own(..) => self.exchange.reserve(1),
        };
        if reserved.is_err() {
            return Err((Full, prepared));
        }
        let Prepared { headers, payload } = prepared;
        let (payload, owner) = match payload {
            Prepare::Given(payload, owner) => {
                if let Some(lender) = owner {
                    let loans = &mut self.loans[lender.transport.index()];
                    loans.incarnation = lender.incarnation;
                    loans.own += 1;
                }
                (payload, owner.map(Owner::Transport))
            }
            Prepare::Own(chunk, bytes) => {
                let lent = self.pool.lend(&chunk, 0, bytes, holder::LINK);
                self.pool.free(chunk);
                // It has been asked for what it has room for, and lent a few times at most.
                let Ok(pointer) = lent else { return Ok(()) };
                (Payload::Pool(pointer), Some(Owner::Own(pointer)))
            }
        };
        let awaited = matches!(owner, Some(Owner::Transport(lender)) if lender.awaited);
        let number = self.exchange.position();
        let id = match owner.map(|owner| self.database.issue(LINK, (number, owner))) {
            None => 0,
            Some(Ok(id)) => id.to_wire(),
            Some(Err(unsent)) => {
                self.release(unsent.0.1);
                return Ok(());
            }
        };
        let bytes = payload.bytes();
        let packets = headers.packets(bytes, self.limits.cuts);
        let frame = FrameDown {
            id,
            awaited,
            pressing: self.exchange.note_payload(bytes, packets),
            payload,
            headers,
        };
        // There is room: see above.
        let _ = self.exchange.send(&ToLink::Frame(frame));
        Ok(())
    }

    /// Drops a frame that was prepared.
    pub fn discard(&mut self, prepared: Prepared) {
        match prepared.payload {
            Prepare::Given(_, None) => {}
            Prepare::Given(_, Some(owner)) => self.sent.push_back(owner),
            Prepare::Own(chunk, _) => self.pool.free(chunk),
        }
    }

    /// Begins a batch.
    pub fn begin(&mut self) {
        self.exhausted = false;
        self.exchange.begin();
    }

    /// Received frames of which the neighbour doesn't know yet that they aren't needed any more.
    pub fn held_back(&self) -> usize {
        self.done.len()
    }

    /// Ends a batch.
    pub fn flush(&mut self) {
        while self.exchange.gives_back(self.done.len()) && self.exchange.reserve(1).is_ok() {
            let pointers = Few::take(&mut self.done, RichPointer::default());
            let _ = self.exchange.send(&ToLink::Done(pointers));
        }
        self.exchange.flush();
    }

    /// `link` was restarted: what it had lent is void. What it had taken is done with, whether it has left or not. What it hadn't taken stays
    /// lent, and its successor sends it.
    pub fn link_restarted(&mut self, incarnation: Incarnation) {
        self.exchange.restarted(incarnation);
        self.done.clear();
        let untaken = self.exchange.first_untaken();
        let was_taken = |(number, _): &(u64, Owner)| is_before(*number, untaken);
        self.database.abort_while(LINK, was_taken);
        while let Some(aborted) = self.database.poll_aborted() {
            self.release(aborted.abort.1);
        }
    }

    /// A transport was restarted: it isn't told of what its predecessor had lent.
    pub fn transport_restarted(&mut self, transport: Transport, incarnation: Incarnation) {
        self.sent.retain(|lender| lender.transport != transport);
        let loans = &mut self.loans[transport.index()];
        *loans = Loans {
            incarnation,
            own: 0,
            former: loans.former + loans.own,
        };
    }

    /// Whether there is something to do.
    pub fn is_ready(&self) -> bool {
        self.exchange.is_ready()
    }

    /// Whether there was no room for something since the batch began.
    pub fn was_full(&self) -> bool {
        self.exhausted || self.exchange.was_full()
    }

    /// As [`Exchange::is_broken`].
    pub fn is_broken(&self) -> bool {
        self.exchange.is_broken()
    }

    /// What was dropped here.
    pub fn counters(&mut self) -> &mut EndCounters {
        &mut self.exchange.counters
    }
}

impl FrameOutput for IpLinkEnd {
    fn send(&mut self, _now: Instant, packet: &mut TxPacket<'_>) -> Result<(), Full> {
        // Before anything is copied for nothing.
        self.exchange.reserve(1)?;
        let prepared = self.prepare(packet)?;
        self.submit(prepared).map_err(|(full, prepared)| {
            if let Some(origin) = &mut self.origin {
                origin.passed_on = false;
            }
            match prepared.payload {
                Prepare::Given(..) => {}
                Prepare::Own(chunk, _) => self.pool.free(chunk),
            }
            full
        })
    }

    fn limits(&self) -> LinkLimits {
        self.limits
    }
}

#[cfg(test)]
mod tests;
