//! `store`: keeps what must outlive another component (NewtOS, section 2.5.4).
//!
//! **Purpose.** [`Store`] keeps typed keys and values for its clients, and shows a client that was restarted
//! all that its predecessor had stored.
//!
//! **Place on the data path.** None. Clients write when something changes that is worth keeping.
//!
//! **What survives a restart.** All that is stored: it is in memory that the supervisor made and hands to each
//! process that has `store` in turn (`skink_memory::StoredTable`). The index is rebuilt from it by one scan. So a
//! process that `store` shares with its clients may die whole and lose nothing. Only if the memory was lost or
//! has another layout do clients store everything again, as NewtOS has it for each restart (section 2.5.4).
//!
//! **Capacity.** As many keys as the table has entries, but for one. `syscall` limits itself to less than
//! `StoredTable::ENTRIES`: 2^18 bound ports, 2^18 shares and as many sockets that their owners let go of, 1024
//! tickets, 2 turns, and programs. What has no room is dropped and counted.
//!
//! **What it leaves out.** What values mean (the clients know), and disks: what outlives the machine isn't its
//! business.
#![forbid(unsafe_code)]

mod store;

pub use store::Store;
