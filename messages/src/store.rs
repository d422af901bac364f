/// What something is stored under.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StoreKey {
    /// Who stores it: nobody else is shown it.
    pub client: StoreClient,
    /// What it is, in the client's own terms.
    pub kind: u8,
    /// Which one.
    pub id: u128,
}

/// Who stores things.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum StoreClient {
    /// `syscall`
    Syscall,
}

impl StoreClient {
    /// Its number in messages.
    pub const fn number(self) -> u8 {
        match self {
            StoreClient::Syscall => 1,
        }
    }

    /// Who has this number.
    pub const fn from_number(number: u8) -> Option<StoreClient> {
        match number {
            1 => Some(StoreClient::Syscall),
            _ => None,
        }
    }
}

/// Size of what is stored under one key, in bytes. The client knows what they mean.
pub const STORED_BYTES: usize = 48;

/// What is stored under one key.
pub type StoreValue = [u8; STORED_BYTES];

/// What a client asks of `store` (NewtOS, section 2.5.4).
///
/// What was stored outlives the process of `store`: a client stores all of it again only if the memory that it
/// is in was lost. (In NewtOS it does so whenever `store` was restarted.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreRequest {
    /// From now on this is stored under the key.
    Put(StoreKey, StoreValue),
    /// From now on nothing is.
    Remove(StoreKey),
    /// Shows all that the client has stored.
    List(StoreClient),
}

/// What `store` answers to [`StoreRequest::List`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreReply {
    /// One of them.
    Item(StoreKey, StoreValue),
    /// That was all; so many.
    End(StoreClient, u32),
}
