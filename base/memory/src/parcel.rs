//! A connection on its way from one table of sockets to another.
use crate::record::{CONNECTION_WORDS, LAYOUT_VERSION, ends_of, iss_of};
use skink_wire::FourTuple;

/// A connection that no program has read from or written to, and what it has received: plain data, which a stack in another process
/// may adopt. It comes from [`SocketTable::copy_out`](crate::SocketTable::copy_out), and what it says was checked by
/// nobody: [`SocketTable::put_in`](crate::SocketTable::put_in) heeds what a ring takes, `tcp` the rest when it adopts the record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parcel {
    /// Bytes of the rings where it was, for sending and for receiving: the window's scale belongs to them.
    pub(crate) rings: [u32; 2],
    pub(crate) state: u8,
    pub(crate) fin: u8,
    pub(crate) words: [u32; CONNECTION_WORDS],
    pub(crate) received: Vec<u8>,
}

/// Words before those of the connection: the layout's version, the rings' sizes, state and `fin`, bytes received.
const HEAD: usize = 5;

impl Parcel {
    /// The connection's ends.
    pub fn four_tuple(&self) -> FourTuple {
        ends_of(&self.words)
    }

    /// The initial send sequence number.
    pub fn iss(&self) -> u32 {
        iss_of(&self.words)
    }

    /// The state of its record.
    pub fn state(&self) -> u8 {
        self.state
    }

    /// The `fin` flags of its record.
    pub fn fin(&self) -> u8 {
        self.fin
    }

    /// Its size in bytes.
    #[allow(clippy::len_without_is_empty, reason = "none is")]
    pub fn len(&self) -> usize {
        4 * (HEAD + CONNECTION_WORDS) + self.received.len()
    }

    /// As bytes, for a process of the same build: 176 and what was received.
    pub fn to_bytes(&self) -> Vec<u8> {
        let [send, receive] = self.rings;
        let states = u32::from(self.state) | u32::from(self.fin) << 8;
        let head: [u32; HEAD] = [
            LAYOUT_VERSION,
            send,
            receive,
            states,
            self.received.len() as u32,
        ];
        let words = head.iter().chain(&self.words);
        let words = words.flat_map(|word| word.to_le_bytes());
        words.chain(self.received.iter().copied()).collect()
    }

    /// What [`Parcel::to_bytes`] made; `None` if it is something else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Parcel> {
        let (words, received) = bytes.split_at_checked(4 * (HEAD + CONNECTION_WORDS))?;
        let (words, _) = words.as_chunks::<4>();
        let word = |index: usize| words.get(index).map(|bytes| u32::from_le_bytes(*bytes));
        if word(0)? != LAYOUT_VERSION || word(4)? as usize != received.len() {
            return None;
        }
        let [state, fin, 0, 0] = word(3)?.to_le_bytes() else {
            return None;
        };
        let mut connection = [0; CONNECTION_WORDS];
        for (index, to) in connection.iter_mut().enumerate() {
            *to = word(HEAD + index)?;
        }
        Some(Parcel {
            rings: [word(1)?, word(2)?],
            state,
            fin,
            words: connection,
            received: received.to_vec(),
        })
    }
}
