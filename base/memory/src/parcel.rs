//! A connection on its way from one table of sockets to another.
use crate::record::{CONNECTION_WORDS, LAYOUT_VERSION, ends_of, iss_of};
use crate::ring::Ring;
use skink_wire::FourTuple;

/// A connection, and what is in its rings: plain data, which a stack in another process may adopt. It comes from
/// [`SocketTable::copy_out`](crate::SocketTable::copy_out), and what it says was checked by
/// nobody: [`SocketTable::put_in`](crate::SocketTable::put_in) heeds what a ring takes, `tcp` the rest when it adopts the record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parcel {
    /// Bytes of the rings where it was, for sending and for receiving: the window's scale belongs to them.
    pub(crate) rings: [u32; 2],
    pub(crate) state: u8,
    pub(crate) fin: u8,
    pub(crate) words: [u32; CONNECTION_WORDS],
    pub(crate) sent: Contents,
    pub(crate) received: Contents,
}

/// What a ring holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Contents {
    /// Position of the first byte.
    pub head: u64,
    pub bytes: Vec<u8>,
    /// The ring uses all of its memory.
    pub grown: bool,
}

impl Contents {
    /// Of a ring whose positions can't be, none.
    pub fn of(ring: &Ring<'_>) -> Option<Contents> {
        if ring.is_spoilt() {
            return None;
        }
        let mut bytes = vec![0; ring.len()];
        let count = ring.peek(0, &mut bytes);
        (count == bytes.len()).then(|| Contents {
            head: ring.head(),
            bytes,
            grown: ring.size() == ring.capacity(),
        })
    }

    /// Whether nobody has taken anything out.
    pub fn is_untouched(&self) -> bool {
        self.head == 0
    }

    /// Puts it into a ring that is empty, and new. Answers whether it has room for that.
    pub fn put_in(&self, ring: &Ring<'_>) -> bool {
        if self.head != 0 {
            ring.skip_to(self.head);
        }
        if self.grown {
            ring.grow(0);
        }
        ring.write(&self.bytes) == self.bytes.len()
    }
}

/// Words before those of the connection: the layout's version, the rings' sizes, `state` and `fin` and which rings have grown, bytes
/// sent and received, and the positions where these begin, of two words each.
const HEAD: usize = 10;

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
        4 * (HEAD + CONNECTION_WORDS) + self.sent.bytes.len() + self.received.bytes.len()
    }

    /// As bytes, for a process of the same build: 196, what was sent and isn't acknowledged, and what was received and isn't read.
    pub fn to_bytes(&self) -> Vec<u8> {
        let [send, receive] = self.rings;
        let (sent, received) = (&self.sent, &self.received);
        let grown = u32::from(sent.grown) | u32::from(received.grown) << 1;
        let states = u32::from(self.state) | u32::from(self.fin) << 8 | grown << 16;
        let head: [u32; HEAD] = [
            LAYOUT_VERSION,
            send,
            receive,
            states,
            sent.bytes.len() as u32,
            received.bytes.len() as u32,
            sent.head as u32,
            (sent.head >> 32) as u32,
            received.head as u32,
            (received.head >> 32) as u32,
        ];
        let mut bytes = Vec::with_capacity(self.len());
        for word in head.iter().chain(&self.words) {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(&sent.bytes);
        bytes.extend(&received.bytes);
        bytes
    }

    /// What [`Parcel::to_bytes`] made; `None` if it is something else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Parcel> {
        let (words, contents) = bytes.split_at_checked(4 * (HEAD + CONNECTION_WORDS))?;
        let (words, _) = words.as_chunks::<4>();
        let word = |index: usize| words.get(index).map(|bytes| u32::from_le_bytes(*bytes));
        let position =
            |index: usize| Some(u64::from(word(index)?) | u64::from(word(index + 1)?) << 32);
        let (sent, received) = contents.split_at_checked(word(4)? as usize)?;
        if word(0)? != LAYOUT_VERSION || word(5)? as usize != received.len() {
            return None;
        }
        let [state, fin, grown @ 0..=3, 0] = word(3)?.to_le_bytes() else {
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
            sent: Contents {
                head: position(6)?,
                bytes: sent.to_vec(),
                grown: grown & 1 != 0,
            },
            received: Contents {
                head: position(8)?,
                bytes: received.to_vec(),
                grown: grown & 2 != 0,
            },
        })
    }
}
