//! What can't be taken over: records that make no sense, and TIME-WAITs that no record told of.

use super::{GIVEN_UP, is_credible};
use crate::connection::{Connection, Program};
use crate::ending::reply_header;
use crate::instance::{Socket, Tcp};
use crate::saved::FIN_OVER;
use crate::segment::Segment;
use crate::settings::Settings;
use crate::state::State;
use core::sync::atomic::Ordering::{Relaxed, Release};
use skink_memory::{Holder, SocketId, SocketKind};
use skink_messages::{Counter, Events, Network, SocketError};
use skink_time::Instant;
use skink_wire::SeqNum;
use skink_wire::tcp::{Flags, Options, Timestamps};

impl Tcp {
    /// The record makes no sense: the peer is told, if it can be told who that is, and the program too.
    pub(crate) fn give_up<O: Network>(
        &mut self,
        now: Instant,
        id: SocketId,
        reason: Counter,
        out: &mut O,
    ) {
        let slot = id.slot;
        let record = self.table.record(slot);
        let tuple = record.four_tuple();
        let numbers = [&record.snd_max, &record.rcv_nxt];
        let [snd_max, rcv_nxt] = numbers.map(|number| SeqNum(number.load(Relaxed)));
        let holder = record.holder();
        let state = State::from_number(record.state.load(Relaxed));
        let connected = state.is_none_or(|state| state.is_synchronized());
        // What the program sees from now on; as with any end, before the peer hears of it.
        record.error.store(SocketError::Reset as u32, Relaxed);
        record.fin.store(FIN_OVER, Relaxed);
        record.state.store(State::Closed as u8, Release);
        record.set_kind(SocketKind::Tcp);
        let is_its_own = is_credible(&tuple, out)
            && reason != Counter::TcpRecordEnds
            && self.demux.flow(&tuple).is_none();
        if is_its_own && connected {
            let header = reply_header(&tuple, snd_max, rcv_nxt, Flags::RST | Flags::ACK);
            self.counters.count(Counter::TcpResetsOut);
            let _ = self.send_bare(now, &tuple, &header, &Options::default(), out);
        }
        if is_its_own
            && let Some(predecessor) = &mut self.predecessor
            && predecessor.given_up.len() < GIVEN_UP
        {
            predecessor.given_up.insert(tuple);
        }
        if matches!(
            holder,
            Some(Holder::Awaited | Holder::Gone | Holder::Away | Holder::Passed)
        ) {
            return self.forget(slot);
        }
        // Nobody can tell what is in its rings.
        self.table.receive_ring(slot).take_back();
        self.table.send_ring(slot).clear();
        let record = self.table.record(slot);
        record.set_holder(Holder::Attached);
        let settings = Settings::default();
        let mut connection = Connection::new(id, settings, Program::Attached, now);
        connection.tell(Events::all());
        self.put(slot, Socket::Connection(Box::new(connection)));
        self.notice(slot);
    }

    /// A segment without data of a connection that isn't known: after an adoption it may be one that the predecessor had
    /// in TIME-WAIT, or was about to. All before a FIN without data was acknowledged, so it arrived; so is
    /// the FIN now, without which the peer would have to take the connection for broken. What the predecessor took in
    /// when it died comes again, and the peer's acknowledgement of our FIN may come before its own FIN: an acknowledgement
    /// is dropped, which leaves a peer without a connection to find that out by its data. Answers whether nothing else is to
    /// be done.
    pub(crate) fn answer_forgotten<O: Network>(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        out: &mut O,
    ) -> bool {
        let Some(predecessor) = &self.predecessor else {
            return false;
        };
        if now >= predecessor.until {
            self.predecessor = None;
            return false;
        }
        let bare = segment.has(Flags::ACK)
            && !segment.has(Flags::SYN)
            && !segment.has(Flags::RST)
            && segment.payload.is_empty();
        if !bare || predecessor.given_up.contains(&segment.tuple) {
            return false;
        }
        if !segment.has(Flags::FIN) {
            self.counters.count(Counter::TcpDropLost);
            return true;
        }
        let (seq, ack) = (segment.header.ack, segment.end());
        let header = reply_header(&segment.tuple, seq, ack, Flags::ACK);
        // What the peer echoes is the last of our timestamps, which is not older than itself.
        let timestamps = segment.options.timestamps.map(|stamp| Timestamps {
            value: stamp.echo,
            echo: stamp.value,
        });
        let options = Options {
            timestamps,
            ..Options::default()
        };
        self.counters.count(Counter::TcpFinAnswered);
        let _ = self.send_bare(now, &segment.tuple, &header, &options, out);
        true
    }
}
