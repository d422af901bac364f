//! What components tell each other where each is a process of its own (topology `split`; NewtOS, sections 2.4
//! and 2.5).
//!
//! **Purpose.** Messages over the queues of `skink-channel`, and an *end* for each side of each pair of
//! neighbours. An end checks what arrives, keeps account of what was lent, and has the calls by which
//! components talk where they share a process ([`skink_messages::FrameOutput`] is one).
//!
//! | from, to | message | it says | slots | if there is no room |
//! | --- | --- | --- | --- | --- |
//! | `link`, `ip` | [`FromLink`] | a frame arrived; frames have left; what the link takes | 512 of 64 bytes | frames wait in the NIC |
//! | `ip`, `link` | [`ToLink`] | send a frame; received chunks aren't needed any more | 512 of 192 | `Full` goes up to the transport, which keeps its data |
//! | `ip`, transport | [`ToTransport`] | a packet arrived; an error; packets have left | 512 of 128 | packets and errors are dropped and counted; what has left is told later |
//! | transport, `ip` | [`FromTransport`] | send a packet; received ones aren't needed any more | 512 of 192 | `Full`: the transport keeps its data |
//! | `ip`, `filter` | [`ToFilter`] | may this packet pass? so much passed unasked | 512 of 128 | `ip` takes no more packets meanwhile |
//! | `filter`, `ip` | [`FromFilter`] | answers, and whether it is to be asked at all | 512 of 64 | the filter answers later |
//! | `syscall`, transport | [`TransportCall`](skink_messages::TransportCall) | do this for a program | 512 of 64 | `syscall` takes no more requests of programs |
//! | transport, `syscall` | [`CallOutcome`](skink_messages::CallOutcome) | it came to this | 512 of 64 | the transport takes no more calls |
//! | client, `store` | [`StoreRequest`](skink_messages::StoreRequest) | keep, forget, or show something | 512 of 128 | the client takes no more work |
//! | `store`, client | [`StoreReply`](skink_messages::StoreReply) | what it keeps | 512 of 128 | the store shows the rest later |
//!
//! Of payload that is sent down at most 512 KiB wait in each lane, before that many slots are taken (docs/decisions/0026).
//!
//! What must not be lost (that a chunk is free again, an answer) is kept by its sender until there is
//! room; who has too much of that takes no more work until then.
//!
//! **Bytes.** Headers travel in the message. Received frames are in a pool that `link` made and `ip`, `tcp`
//! and `udp` map for reading; what goes down is named by its place in a socket's send ring
//! ([`skink_memory::RingSpan`]) or in a pool of the sender. [`Payload`] has the two. What `tcp` must know
//! to choose a path is on a [`board`] that `ip` writes.
//!
//! **Place on the data path.** All of it, between any two of the components.
//!
//! **Trust.** A message is copied out of its queue, and each field is checked once, by `decode`: what makes
//! no sense is counted in [`EndCounters`] and dropped. An answer must be to a request that its sender was
//! asked and hasn't answered ([`skink_channel::RequestDatabase`]), and come from the incarnation that was.
//! A neighbour that spoils its queue is noticed by [`Exchange::is_broken`].
//!
//! **What survives a restart.** Queues and boards are made by whoever starts components, and a successor
//! goes on where its predecessor was. Pools end with their maker: pointers into them become stale. Accounts
//! are private memory. Each end has a method to be told that its neighbour was restarted: what that hadn't taken from the
//! queue is its successor's, and what is known to do no harm if it comes twice is said again.
//!
//! **What it leaves out.** What is done with packets (the components'), who starts whom, and how
//! descriptors travel. IPv6 and IPv4 alike; the messages know no protocol's headers.
#![forbid(unsafe_code)]

/// Version of the messages, and of the board. Raise it with every change of their form or meaning: a
/// neighbour may be of another build.
// Layout digest: 703c4c5c5258a1d8
pub const MESSAGES_VERSION: u32 = 8;

pub mod board;
mod calls;
mod codec;
mod exchange;
mod filter;
#[cfg(test)]
mod fixture;
mod ip_filter;
mod ip_link;
mod ip_transport;
mod judge;
mod lane;
mod link;
mod packet_down;
mod packet_up;
mod payload;
mod regions;
mod returned;
mod transport;

pub use codec::{Coded, Envelope, Few, LargeMessage, MiddleMessage, SmallMessage};
pub use exchange::{EndCounters, Exchange, HELD_BACK};
pub use filter::FilterEnd;
pub use ip_filter::{Answer, IpFilterEnd};
pub use ip_link::{IpLinkEnd, Lender, Prepared, holder};
pub use ip_transport::IpTransportEnd;
pub use judge::{FromFilter, Question, ToFilter};
pub use lane::{AttachParts, CAPACITY, Lane};
pub use link::LinkEnd;
pub use packet_down::{FrameDown, FromTransport, Headers, PacketDown, ToLink};
pub use packet_up::{Fate, FrameUp, FromLink, PacketUp, ToTransport};
pub use payload::Payload;
pub use regions::Regions;
pub use transport::{Arrival, TransportEnd};

use core::time::Duration;
use skink_time::Instant;

/// Which transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// `tcp`
    Tcp,
    /// `udp`
    Udp,
}

impl Transport {
    /// Both, in the order of [`Transport::index`].
    pub const ALL: [Transport; 2] = [Transport::Tcp, Transport::Udp];

    /// Its number: 0 or 1.
    pub const fn index(self) -> usize {
        match self {
            Transport::Tcp => 0,
            Transport::Udp => 1,
        }
    }

    /// Number of its protocol in IP headers.
    pub const fn protocol(self) -> u8 {
        match self {
            Transport::Tcp => skink_wire::protocol::TCP,
            Transport::Udp => skink_wire::protocol::UDP,
        }
    }

    /// The transport of a protocol.
    pub const fn of(protocol: u8) -> Option<Transport> {
        match protocol {
            skink_wire::protocol::TCP => Some(Transport::Tcp),
            skink_wire::protocol::UDP => Some(Transport::Udp),
            _ => None,
        }
    }
}

/// Which restart of a component something comes from, counted from 1.
pub type Incarnation = u32;

/// Whether what arrived then is handed up again after who had it was replaced: who sent it may have sent it again since, or have
/// gone.
fn is_worth_repeating(now: Instant, arrived: Instant) -> bool {
    const LATE: Duration = Duration::from_secs(1);
    now.since(arrived) < LATE
}
