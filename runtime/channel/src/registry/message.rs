//! Requests and events as plain data, for the socket between a component and the supervisor.
use super::{ChannelName, ComponentId, Credentials, Event, Offer, Publication, Refusal, Request};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A request, an event or a refusal as it travels. All zeros is none.
#[repr(C)]
#[derive(
    FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, PartialEq, Eq, Debug, Default,
)]
pub struct RegistryMessage {
    operation: u32,
    /// Of the offer; 0 where there is none.
    kind: u32,
    generation: u64,
    component: u32,
    uid: u32,
    parameters: [u32; 3],
    reserved: u32,
    name: [u8; 32],
}

const _: () = assert!(size_of::<RegistryMessage>() == 72);

const PUBLISH: u32 = 1;
const WITHDRAW: u32 = 2;
const SUBSCRIBE: u32 = 3;
const UNSUBSCRIBE: u32 = 4;
const ATTACH: u32 = 5;
const GRANT: u32 = 6;
const DENY: u32 = 7;
const DETACH: u32 = 8;
const PUBLISHED: u32 = 33;
const WITHDRAWN: u32 = 34;
const EXPORT_ASKED: u32 = 35;
const ATTACHED: u32 = 36;
const DENIED: u32 = 37;
const DETACHED: u32 = 38;
const REFUSED: u32 = 65;

impl RegistryMessage {
    fn of(operation: u32, name: ChannelName) -> RegistryMessage {
        RegistryMessage {
            operation,
            name: name.0,
            ..RegistryMessage::default()
        }
    }

    fn generation(self, generation: u64) -> RegistryMessage {
        RegistryMessage { generation, ..self }
    }

    fn component(self, component: ComponentId) -> RegistryMessage {
        RegistryMessage {
            component: component.0,
            ..self
        }
    }

    fn credentials(self, credentials: Credentials) -> RegistryMessage {
        RegistryMessage {
            uid: credentials.uid,
            ..self.component(credentials.component)
        }
    }

    fn with_offer(self, offer: Offer) -> RegistryMessage {
        let (kind, parameters) = match offer {
            Offer::Queue {
                slot_bytes,
                capacity,
            } => (1, [slot_bytes, capacity, 0]),
            Offer::Pool {
                id,
                chunk_bytes,
                chunks,
            } => (2, [id, chunk_bytes, chunks]),
            Offer::Doorbell => (3, [0; 3]),
        };
        RegistryMessage {
            kind,
            parameters,
            ..self
        }
    }

    fn with_publication(operation: u32, publication: Publication) -> RegistryMessage {
        let Publication {
            name,
            creator,
            generation,
            offer,
        } = publication;
        RegistryMessage::of(operation, name)
            .generation(generation)
            .credentials(creator)
            .with_offer(offer)
    }

    /// `None` if it is no offer.
    fn offer(&self) -> Option<Offer> {
        let [first, second, third] = self.parameters;
        match self.kind {
            1 => Some(Offer::Queue {
                slot_bytes: first,
                capacity: second,
            }),
            2 => Some(Offer::Pool {
                id: first,
                chunk_bytes: second,
                chunks: third,
            }),
            3 => Some(Offer::Doorbell),
            _ => None,
        }
    }

    fn who(&self) -> Credentials {
        Credentials {
            uid: self.uid,
            component: ComponentId(self.component),
        }
    }

    fn publication(&self, name: ChannelName) -> Option<Publication> {
        Some(Publication {
            name,
            creator: self.who(),
            generation: self.generation,
            offer: self.offer()?,
        })
    }

    /// The request that it is, if it is one.
    pub fn request(&self) -> Option<Request> {
        let name = ChannelName::from_bytes(self.name)?;
        let (generation, to) = (self.generation, ComponentId(self.component));
        Some(match self.operation {
            PUBLISH => Request::Publish {
                name,
                generation,
                offer: self.offer()?,
            },
            WITHDRAW => Request::Withdraw { name },
            SUBSCRIBE => Request::Subscribe { name },
            UNSUBSCRIBE => Request::Unsubscribe { name },
            ATTACH => Request::Attach { name, generation },
            GRANT => Request::Grant {
                name,
                generation,
                to,
            },
            DENY => Request::Deny {
                name,
                generation,
                to,
            },
            DETACH => Request::Detach { name },
            _ => return None,
        })
    }

    /// The event that it is, if it is one.
    pub fn event(&self) -> Option<Event> {
        let name = ChannelName::from_bytes(self.name)?;
        let generation = self.generation;
        Some(match self.operation {
            PUBLISHED => Event::Published(self.publication(name)?),
            WITHDRAWN => Event::Withdrawn { name, generation },
            EXPORT_ASKED => Event::ExportAsked {
                name,
                generation,
                by: self.who(),
            },
            ATTACHED => Event::Attached(self.publication(name)?),
            DENIED => Event::Denied { name, generation },
            DETACHED => Event::Detached {
                name,
                component: ComponentId(self.component),
            },
            _ => return None,
        })
    }

    /// Answers a request that was refused.
    pub fn refused(request: Request, refusal: Refusal) -> RegistryMessage {
        let request = RegistryMessage::from(request);
        RegistryMessage {
            operation: REFUSED,
            kind: request.operation,
            parameters: [refusal as u32, 0, 0],
            ..request
        }
    }

    /// The refusal that it is, if it is one, and the name.
    pub fn refusal(&self) -> Option<(ChannelName, Refusal)> {
        let name = ChannelName::from_bytes(self.name)?;
        let [code, ..] = self.parameters;
        let all = [
            Refusal::Full,
            Refusal::NotYours,
            Refusal::Stale,
            Refusal::NotPublished,
            Refusal::Taken,
            Refusal::Already,
            Refusal::NoSuch,
        ];
        let refusal = all.into_iter().find(|refusal| *refusal as u32 == code);
        refusal
            .filter(|_| self.operation == REFUSED)
            .map(|refusal| (name, refusal))
    }
}

impl From<Request> for RegistryMessage {
    fn from(request: Request) -> RegistryMessage {
        match request {
            Request::Publish {
                name,
                generation,
                offer,
            } => RegistryMessage::of(PUBLISH, name)
                .generation(generation)
                .with_offer(offer),
            Request::Withdraw { name } => RegistryMessage::of(WITHDRAW, name),
            Request::Subscribe { name } => RegistryMessage::of(SUBSCRIBE, name),
            Request::Unsubscribe { name } => RegistryMessage::of(UNSUBSCRIBE, name),
            Request::Attach { name, generation } => {
                RegistryMessage::of(ATTACH, name).generation(generation)
            }
            Request::Grant {
                name,
                generation,
                to,
            } => RegistryMessage::of(GRANT, name)
                .generation(generation)
                .component(to),
            Request::Deny {
                name,
                generation,
                to,
            } => RegistryMessage::of(DENY, name)
                .generation(generation)
                .component(to),
            Request::Detach { name } => RegistryMessage::of(DETACH, name),
        }
    }
}

impl From<Event> for RegistryMessage {
    fn from(event: Event) -> RegistryMessage {
        match event {
            Event::Published(publication) => {
                RegistryMessage::with_publication(PUBLISHED, publication)
            }
            Event::Withdrawn { name, generation } => {
                RegistryMessage::of(WITHDRAWN, name).generation(generation)
            }
            Event::ExportAsked {
                name,
                generation,
                by,
            } => RegistryMessage::of(EXPORT_ASKED, name)
                .generation(generation)
                .credentials(by),
            Event::Attached(publication) => {
                RegistryMessage::with_publication(ATTACHED, publication)
            }
            Event::Denied { name, generation } => {
                RegistryMessage::of(DENIED, name).generation(generation)
            }
            Event::Detached { name, component } => {
                RegistryMessage::of(DETACHED, name).component(component)
            }
        }
    }
}
