//! What components say to each other.
//!
//! A component ([`Component`]) is a single-threaded state machine: it is handed messages and the
//! time, and answers with messages and its next deadline. It can't tell whether its neighbour is in
//! the same process (then a message is a call that the compiler inlines) or in another one.
//!
//! The data path, from the wire up: a NIC hands [`RxFrame`]s to `link`, `link` to `ip`, `ip` hands
//! [`RxPacket`]s to `tcp` and `udp`. On the way down a [`TxPacket`] collects headers in front of
//! payload that stays where it is until the NIC (or the kernel behind it) copies it.
//!
//! Nothing here has state.
#![forbid(unsafe_code)]

mod call;
mod component;
mod counter;
mod nic;
mod packet;
mod ports;
mod socket;
mod store;

pub use call::{
    Answer, CallBody, CallOutcome, Holder, PortOptions, Protocol, SocketCall, TransportCall,
    attachment_tag,
};
pub use component::{Component, Full, Progress};
pub use counter::{Counter, Counters};
pub use nic::{Capabilities, NicOutput, Steering};
pub use packet::{
    ErrorKind, FlowAccount, FrameOutput, Lent, LinkLimits, Network, NetworkError, NetworkView,
    Outbound, Path, RxChecksum, RxFrame, RxPacket, Sent, TxPacket,
};
pub use ports::{Ports, SoleOwner, Waits};
pub use socket::{
    BindOptions, ConnectionOption, Events, Shutdown, SocketError, SocketEvent, SocketEvents,
    TcpInput, TcpRequest, UdpInput, UdpRequest,
};
pub use store::{STORED_BYTES, StoreClient, StoreKey, StoreReply, StoreRequest, StoreValue};
