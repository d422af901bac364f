//! The packet filter: `pf.conf`-like rules and connection tracking.
//!
//! **Purpose.** [`Filter::check`] says of a packet whether it passes. A packet of a flow that the
//! filter knows passes by its state, found in one hash look-up; every other one is decided by the
//! rules, which are a subset of those of pf (`docs/filter.md`).
//!
//! **Place on the data path.** In a T-junction off `ip` (NewtOS 2.5.1, figure 2.3): whoever moves
//! packets between `ip` and its neighbours asks for each packet on its way up before `ip` gets it, and for
//! each on its way down before it leaves. The filter sees a [`Summary`] of the packet, never the packet. Where it is in
//! a process of its own, a [`FlowTable`] beside whoever asks spares the question for established flows.
//!
//! **What survives a restart.** The rules are given anew by whoever started it. Tracking is rebuilt
//! from what `tcp` and `udp` know ([`Filter::rebuild`]), so that the filter is neither closed to
//! established flows nor open to others; what only the filter knows (datagrams, echo) is kept in memory that
//! outlives it ([`Filter::keep_in`]), or can be carried over as plain data ([`Filter::export_states`],
//! [`Filter::import`]).
//!
//! **What it leaves out.** Address translation, queues, anchors, operating-system fingerprints and
//! everything else of pf that changes packets. No segment is dropped for its sequence number: `tcp` itself
//! does that right behind the filter (RFC 9293 section 3.10.7.4, RFC 5961). Here it says whether a reset or
//! a FIN is one that `tcp` can have taken.
#![forbid(unsafe_code)]

mod address_table;
mod filter;
mod flow_table;
mod index;
mod kept;
mod prepared;
mod records;
mod rules;
mod states;
mod summary;
mod tcp;
mod timeouts;
mod track;
mod verdict;

pub use filter::{Filter, FilterConfig, RuleCounters, Totals};
pub use flow_table::{FlowTable, Offload, OffloadedFlow};
pub use prepared::{Prepared, Snapshot};
pub use records::{Flow, FlowPhase, StateRecord};
pub use rules::{
    Action, Address, Answer, FlagTest, IcmpTest, Interface, ParseError, Peer, PortTest, Rule,
    RuleSet, State, Table,
};
pub use summary::{Family, Piece, Summary};
pub use tcp::{Life, Phase};
pub use timeouts::Timeouts;
pub use verdict::{Direction, Side, Verdict};

#[cfg(test)]
mod test_support;
