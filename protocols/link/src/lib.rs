//! `link`: between `ip` and the NIC.
//!
//! **Purpose.** [`Link`] makes frames fit the NIC that there happens to be, and lets no frame out
//! whose source isn't ours (PIKA's link server, section 3.2). A NIC that can complete transport
//! checksums and cut large TCP packets gets them untouched; for one that can't, the checksum is
//! completed and the cutting done here, so that `tcp` and `udp` never need to know.
//!
//! **Place on the data path.** The last component on the way down, the first on the way up. Payload
//! is copied (once, into a scratch buffer) only where its checksum must be computed in software,
//! since a program may change it meanwhile. Nothing is allocated for a frame.
//!
//! **What survives a restart.** Nothing; there is no state but the configuration.
//!
//! **What it leaves out.** Steering frames to their owner among several: that is the NIC's and
//! `skink-steering`'s business. VLAN tags.
//!
//! [`Link::receive`] and [`Link::send`] are for a placement that has `ip` in the same thread (`ip`
//! calls the latter through [`LinkOutput`]); for any other, `Link` is a
//! [`Component`](skink_messages::Component) that is handed [`LinkInput`]s.
#![forbid(unsafe_code)]

mod component;
mod cut;
mod link;
mod output;
mod source;

pub use component::{Above, LinkInput};
pub use link::{Link, LinkConfig};
pub use output::LinkOutput;
