//! `store`: keeps what must outlive another component (NewtOS, section 2.5.4).
//!
//! **Purpose.** [`Store`] keeps typed keys and values for its clients, and shows a client that was restarted
//! all that its predecessor had stored.
//!
//! **Place on the data path.** None. Clients write when something changes that is worth keeping.
//!
//! **What survives a restart.** Nothing: its clients store everything again.
//!
//! **What it leaves out.** What values mean (the clients know), and disks: what outlives the machine isn't its
//! business.
#![forbid(unsafe_code)]

mod store;

pub use store::{CAPACITY, Store};
