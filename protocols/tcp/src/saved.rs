//! What a connection stores in its record, and in which order: see [`Record`].

use crate::connection::{Connection, Context, Program};
use crate::state::State;
use core::sync::atomic::Ordering::{Relaxed, Release};
use skink_memory::{Holder, Record};
use skink_wire::SeqNum;

/// Bits of [`Record::options`].
pub const OPTION_SACK: u8 = 1;
pub const OPTION_TIMESTAMPS: u8 = 2;
pub const OPTION_WINDOW_SCALING: u8 = 4;
/// Bits of [`Record::fin`].
pub const FIN_OURS: u8 = 1;
const FIN_PEERS: u8 = 2;
/// There was a connection, and it has ended: what tells CLOSED from a socket never connected.
pub const FIN_OVER: u8 = 4;

/// Whether the peer has said all that it had to say (its FIN has come), as the record of its connection has it.
pub fn has_peer_finished(record: &Record) -> bool {
    record.fin.load(Relaxed) & FIN_PEERS != 0
}

/// Whether a connection's record says that nothing more is sent: some program that has it has closed that direction.
#[inline]
pub fn has_finished(record: &Record) -> bool {
    record.fin.load(Relaxed) & FIN_OURS != 0
}

/// Whether records are left as they are, but for what programs read in them. Never so in a build that is
/// used: nothing could be adopted. `bench/records.py` measures with it what records cost.
pub const UNRECORDED: bool = cfg!(skink_unrecorded);

impl Connection {
    /// The one place where the holder changes.
    pub fn set_program(&mut self, program: Program, context: &Context<'_>) {
        self.program = program;
        self.save_program(context);
    }

    /// It is offered to a program, and tells it what happens; the record says that it waits, until the
    /// program is known to have it.
    pub fn offer(&mut self) {
        self.program = Program::Attached;
    }

    /// Stores who holds the socket; after everything else that an adopter needs, since a socket
    /// without a holder is forgotten.
    pub fn save_program(&self, context: &Context<'_>) {
        if UNRECORDED {
            return;
        }
        let record = self.record(context);
        match self.program {
            Program::Attached => record.set_holder(Holder::Attached),
            Program::Gone => record.set_holder(Holder::Gone),
            Program::Awaited(listener) => {
                let local = listener & (context.table.stride() - 1);
                record.listener.store(local, Relaxed);
                record.set_holder(Holder::Awaited);
            }
        }
    }

    /// Stores that the connection has ended. Before a reset leaves: a successor that knew nothing of it
    /// would go on with what the peer has given up.
    pub fn save_over(&self, context: &Context<'_>) {
        let record = self.record(context);
        record.fin.store(self.fin_bits() | FIN_OVER, Relaxed);
        record.state.store(State::Closed as u8, Release);
    }

    /// Brings the record up to date; `snd_max` is the end of what is about to leave. What leaves is
    /// published later, by a store with `Release` or a system call.
    pub fn save(&self, context: &Context<'_>, snd_max: SeqNum) {
        let record = self.record(context);
        // By these the program knows whether the peer waits for it to read.
        record.rcv_nxt.store(self.rcv_nxt.0, Relaxed);
        record.rcv_adv.store(self.rcv_adv.0, Relaxed);
        if UNRECORDED {
            return;
        }
        record.snd_una.store(self.snd_una.0, Relaxed);
        record.snd_max.store(snd_max.0, Relaxed);
        record.snd_wnd.store(self.snd_wnd, Relaxed);
        record.ts_recent.store(self.ts_recent, Relaxed);
        record.fin.store(self.fin_bits(), Relaxed);
        record.cwnd.store(self.congestion.window(), Relaxed);
        record.rtt_us.store(self.rtt.smoothed_us(), Relaxed);
    }

    /// Which FINs there were.
    fn fin_bits(&self) -> u8 {
        let has_come = self.peer_fin.is_some_and(|fin| self.rcv_nxt.gt(fin));
        (u8::from(self.fin.is_some()) * FIN_OURS) | (u8::from(has_come) * FIN_PEERS)
    }

    /// Stores what never changes once the handshake is over.
    pub fn save_negotiated(&self, context: &Context<'_>) {
        if UNRECORDED {
            return;
        }
        let record = self.record(context);
        record.iss.store(self.iss.0, Relaxed);
        record.irs.store(self.irs.0, Relaxed);
        record.mss.store(self.peer_mss, Relaxed);
        record.snd_wscale.store(self.snd_wscale, Relaxed);
        record.rcv_wscale.store(self.rcv_wscale, Relaxed);
        record.ts_offset.store(self.ts_offset, Relaxed);
        let options = (u8::from(self.sack) * OPTION_SACK)
            | (u8::from(self.timestamps) * OPTION_TIMESTAMPS)
            | (u8::from(self.window_scaling) * OPTION_WINDOW_SCALING);
        record.options.store(options, Relaxed);
        record.seal.store(record.seal(), Relaxed);
    }
}
