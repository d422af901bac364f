//! How messages lie in slots: a kind, the sender's incarnation, and a body that the kind gives a meaning.

use crate::Incarnation;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use skink_channel::Message;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A message as it lies in a slot.
pub trait Envelope: Message {
    /// Which of the messages it is; 0 is none, so that memory never written says nothing.
    fn kind(&self) -> u32;
    /// Which restart of its sender it comes from; never 0.
    fn incarnation(&self) -> Incarnation;
    /// The rest.
    fn body(&self) -> &[u8];
    /// A message with this at the beginning of its body.
    fn new<B: IntoBytes + Immutable>(kind: u32, incarnation: Incarnation, body: &B) -> Self;

    /// The body as the kind has it. Every pattern of bits is one; the values are still to be checked.
    #[inline]
    fn read<B: FromBytes + KnownLayout + Immutable>(&self) -> Option<B> {
        B::read_from_prefix(self.body()).ok().map(|(body, _)| body)
    }
}

macro_rules! envelope {
    ($(#[$doc:meta])* $name:ident $body:literal $whole:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub struct $name {
            kind: u32,
            incarnation: u32,
            body: [u8; $body],
        }

        const _: () = assert!(size_of::<$name>() == $whole);

        impl Envelope for $name {
            #[inline]
            fn kind(&self) -> u32 {
                self.kind
            }
            #[inline]
            fn incarnation(&self) -> Incarnation {
                self.incarnation
            }
            #[inline]
            fn body(&self) -> &[u8] {
                &self.body
            }
            #[inline]
            fn new<B: IntoBytes + Immutable>(kind: u32, incarnation: Incarnation, from: &B) -> Self {
                const { assert!(size_of::<B>() <= $body) };
                let mut body = [0; $body];
                body[..size_of::<B>()].copy_from_slice(from.as_bytes());
                $name { kind, incarnation, body }
            }
        }
    };
}

envelope! {
    /// One cache line with the stamp of its slot.
    SmallMessage 48 56
}
envelope! {
    /// Two cache lines.
    MiddleMessage 112 120
}
envelope! {
    /// Three cache lines: room for headers.
    LargeMessage 176 184
}

/// What can be put into a message and taken out of it again.
pub trait Coded: Sized {
    /// The message's size.
    type Wire: Envelope;
    /// As it travels.
    fn encode(&self, incarnation: Incarnation) -> Self::Wire;
    /// As it was meant; `None` if it makes no sense.
    fn decode(wire: &Self::Wire) -> Option<Self>;
    /// Whether it means nothing from another incarnation of the sender, as an answer to what that one was asked, or what
    /// it would be answered.
    fn is_between(&self) -> bool;
    /// As it travels to this incarnation of the receiver.
    #[inline]
    fn encode_for(&self, sender: Incarnation, _receiver: Incarnation) -> Self::Wire {
        self.encode(sender)
    }
    /// Whether this incarnation of the receiver takes it: most messages are for whoever does first.
    #[inline]
    fn is_for(_wire: &Self::Wire, _receiver: Incarnation) -> bool {
        true
    }
    /// Whether its sender is to be woken once it was taken, see [`crate::Exchange::note_payload`].
    #[inline]
    fn is_pressing(_wire: &Self::Wire) -> bool {
        false
    }
}

/// The family of an address in a message.
pub(crate) const V4: u8 = 4;
pub(crate) const V6: u8 = 6;

#[inline]
pub(crate) fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => V4,
        IpAddr::V6(_) => V6,
    }
}

/// `::ffff:0:0`
const MAPPED: u128 = 0xffff << 32;

#[inline]
pub(crate) fn put_address(address: IpAddr) -> [u8; 16] {
    match address {
        // As `Ipv4Addr::to_ipv6_mapped`, in one number: byte by byte, it takes a processor as many stores as the message.
        IpAddr::V4(address) => (MAPPED | u128::from(address.to_bits())).to_be_bytes(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[inline]
pub(crate) fn get_address(bytes: [u8; 16], family: u8) -> Option<IpAddr> {
    let [.., a, b, c, d] = bytes;
    match family {
        V4 => Some(Ipv4Addr::new(a, b, c, d).into()),
        V6 => Some(Ipv6Addr::from(bytes).into()),
        _ => None,
    }
}

/// What there is of a list of `N` that says how many of them count; `None` if it claims more.
pub(crate) fn counted<T: Copy, const N: usize>(all: [T; N], count: u32) -> Option<Few<T, N>> {
    let count = usize::try_from(count).ok().filter(|count| *count <= N)?;
    Some(Few { all, count })
}

/// A short list without memory of its own.
#[derive(Clone, Copy, Debug)]
pub struct Few<T, const N: usize> {
    pub(crate) all: [T; N],
    pub(crate) count: usize,
}

impl<T: Copy, const N: usize> Few<T, N> {
    /// Takes up to `N` from the front of `from`.
    pub(crate) fn take(from: &mut std::collections::VecDeque<T>, empty: T) -> Few<T, N> {
        let mut list = Few {
            all: [empty; N],
            count: 0,
        };
        for place in &mut list.all {
            let Some(next) = from.pop_front() else { break };
            *place = next;
            list.count += 1;
        }
        list
    }

    /// What is in it.
    pub fn as_slice(&self) -> &[T] {
        self.all.get(..self.count).unwrap_or_default()
    }
}
