//! What components and the registry say to each other.
use std::fmt;

/// A component. It keeps its number when it is restarted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ComponentId(pub u32);

/// Who says something. The supervisor vouches for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// User id that the component's process runs under.
    pub uid: u32,
    /// The component.
    pub component: ComponentId,
}

/// A meaningful string: 1 to 32 printable ASCII characters without spaces, such as `ip/transmit`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelName(pub(super) [u8; 32]);

impl ChannelName {
    /// `None` if it can't be a name.
    pub fn new(name: &str) -> Option<ChannelName> {
        let mut bytes = [0; 32];
        bytes
            .get_mut(..name.len())?
            .copy_from_slice(name.as_bytes());
        ChannelName::from_bytes(bytes)
    }

    /// From a message: padded with zeros.
    pub(super) fn from_bytes(bytes: [u8; 32]) -> Option<ChannelName> {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(32);
        let (name, padding) = bytes.split_at(end);
        let good = !name.is_empty()
            && name.iter().all(u8::is_ascii_graphic)
            && padding.iter().all(|byte| *byte == 0);
        good.then_some(ChannelName(bytes))
    }
}

impl fmt::Display for ChannelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.iter().take_while(|byte| **byte != 0);
        name.map(|byte| char::from(*byte))
            .try_for_each(|character| write!(f, "{character}"))
    }
}

impl fmt::Debug for ChannelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// What is offered: how many descriptors come with a grant, and what to attach them with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offer {
    /// One end of a queue, for one component: its two descriptors.
    Queue {
        /// Size of a slot in bytes.
        slot_bytes: u32,
        /// In slots.
        capacity: u32,
    },
    /// A pool, for any number of components: its descriptor.
    Pool {
        /// The pool's id.
        id: u32,
        /// Size of a chunk in bytes.
        chunk_bytes: u32,
        /// How many there are.
        chunks: u32,
    },
    /// A doorbell, for any number of components: page and eventfd.
    Doorbell,
}

impl Offer {
    /// How many descriptors go with a grant.
    pub fn descriptors(self) -> usize {
        match self {
            Offer::Queue { .. } | Offer::Doorbell => 2,
            Offer::Pool { .. } => 1,
        }
    }

    /// How many may be attached at a time.
    pub(super) fn places(self) -> usize {
        match self {
            Offer::Queue { .. } => 1,
            Offer::Pool { .. } | Offer::Doorbell => usize::MAX,
        }
    }
}

/// What is published under a name now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Publication {
    /// Its name.
    pub name: ChannelName,
    /// Who made it.
    pub creator: Credentials,
    /// Grows whenever it is made anew.
    pub generation: u64,
    /// What it is.
    pub offer: Offer,
}

/// What a component asks of the registry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Offer a channel under a name, instead of that of a lower generation if there is one.
    Publish {
        /// Nobody else's.
        name: ChannelName,
        /// Higher than ever before.
        generation: u64,
        /// What it is.
        offer: Offer,
    },
    /// Offer it no more.
    Withdraw {
        /// One's own.
        name: ChannelName,
    },
    /// Be told whenever something is published under a name, and at once if something is.
    Subscribe {
        /// Perhaps nobody's yet.
        name: ChannelName,
    },
    /// Don't be told any more.
    Unsubscribe {
        /// A name subscribed to.
        name: ChannelName,
    },
    /// Ask its creator for an export.
    Attach {
        /// What is wanted.
        name: ChannelName,
        /// As it was published.
        generation: u64,
    },
    /// The creator's answer: the descriptors go with it.
    Grant {
        /// One's own.
        name: ChannelName,
        /// As it was asked for.
        generation: u64,
        /// Who asked.
        to: ComponentId,
    },
    /// The creator's answer: no.
    Deny {
        /// One's own.
        name: ChannelName,
        /// As it was asked for.
        generation: u64,
        /// Who asked.
        to: ComponentId,
    },
    /// Its memory was unmapped.
    Detach {
        /// What was attached.
        name: ChannelName,
    },
}

/// What a component is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A subscriber: this is there now.
    Published(Publication),
    /// Who was attached, and subscribers: this isn't valid any more; detach.
    Withdrawn {
        /// What.
        name: ChannelName,
        /// Which of that name.
        generation: u64,
    },
    /// The creator: somebody wants it. Answer with `Grant` or `Deny`.
    ExportAsked {
        /// What.
        name: ChannelName,
        /// Which of that name.
        generation: u64,
        /// Who.
        by: Credentials,
    },
    /// Who asked: here it is, with its descriptors.
    Attached(Publication),
    /// Who asked: the creator said no, or is gone.
    Denied {
        /// What.
        name: ChannelName,
        /// Which of that name.
        generation: u64,
    },
    /// The creator: somebody has detached or died. Take back what it held.
    Detached {
        /// What.
        name: ChannelName,
        /// Who.
        component: ComponentId,
    },
}

/// An event and whom to tell it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notification {
    /// Whom.
    pub to: ComponentId,
    /// What.
    pub event: Event,
}

/// Why a request wasn't granted. Nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Refusal {
    /// There are too many names, or this component uses too many.
    Full = 1,
    /// The name is another component's.
    NotYours = 2,
    /// The generation isn't the current one, or not higher than all before.
    Stale = 3,
    /// Nothing is published under the name.
    NotPublished = 4,
    /// Somebody else has the queue's end.
    Taken = 5,
    /// That is so already.
    Already = 6,
    /// There is nothing to be undone or answered.
    NoSuch = 7,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Full => "too many channels are in use: detach from some",
            Refusal::NotYours => "the channel's name belongs to another component",
            Refusal::Stale => "the channel was made anew since: ask for the new one",
            Refusal::NotPublished => "no such channel is published: subscribe to its name",
            Refusal::Taken => "the queue has another component at its end",
            Refusal::Already => "this was asked for before",
            Refusal::NoSuch => "this wasn't asked for before",
        })
    }
}

impl std::error::Error for Refusal {}
