//! Shared memory that another program which this process becomes goes on with: for `#[serde(with)]`.
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use skink_inherit::{Inherit, lend_borrowed};
use skink_memory::{CaptureRing, StoredTable};
use skink_messages::Counters;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

/// Something in one memfd.
pub trait InMemory: Sized {
    /// The memfd.
    fn memory(&self) -> BorrowedFd<'_>;
    /// What is in a memfd; an error says why it isn't.
    fn of(memory: OwnedFd) -> Result<Self, String>;
}

macro_rules! in_memory {
    ($($kind:ty),*) => {$(
        impl InMemory for $kind {
            fn memory(&self) -> BorrowedFd<'_> {
                self.fd()
            }

            fn of(memory: OwnedFd) -> Result<Self, String> {
                <$kind>::open(memory).map_err(|error| error.to_string())
            }
        }
    )*};
}

in_memory!(Counters, CaptureRing, StoredTable);

pub fn serialize<T: InMemory, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    let number = lend_borrowed(value.memory());
    number
        .ok_or_else(|| ser::Error::custom("memory has no text form but for an heir"))?
        .serialize(to)
}

pub fn deserialize<'de, T: InMemory, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    let memory = OwnedFd::take(RawFd::deserialize(from)?);
    let memory = memory.ok_or_else(|| de::Error::custom("memory wasn't lent"))?;
    T::of(memory).map_err(de::Error::custom)
}
