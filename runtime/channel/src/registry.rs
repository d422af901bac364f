//! The registry of channels: publish, subscribe, attach (NewtOS, sections 2.4.3 and 2.4.4).
//!
//! A component publishes a channel under a name; whoever subscribed to the name is told, and asks for
//! an export; the creator grants or denies it; a grant carries the descriptors. When the creator has
//! been restarted it publishes under the same name with a higher generation, and everybody detaches
//! from the old channel and asks anew.
//!
//! This is the state machine alone: the supervisor hosts it, knows by the socket that a request came by
//! who sent it, and passes descriptors along. It does no I/O. It isn't on the data path: nothing that
//! is attached needs it, and if it is lost with the supervisor, components publish again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

mod message;
mod types;

pub use message::RegistryMessage;
pub use types::{
    ChannelName, ComponentId, Credentials, Event, Notification, Offer, Publication, Refusal,
    Request,
};

/// How much a registry keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegistryLimits {
    /// Names in all.
    pub names: usize,
    /// Names owned, subscribed to, asked for or attached to, in sum, by each component.
    pub per_component: usize,
}

impl Default for RegistryLimits {
    fn default() -> RegistryLimits {
        RegistryLimits {
            names: 4096,
            per_component: 512,
        }
    }
}

/// All that is known of a name. It stays with its owner for good, so that an old generation can't come
/// back after a new one was withdrawn.
#[derive(Default)]
struct Entry {
    owner: Option<Credentials>,
    /// The highest there ever was.
    generation: u64,
    offer: Option<Offer>,
    subscribers: BTreeSet<ComponentId>,
    asking: BTreeSet<ComponentId>,
    attached: BTreeSet<ComponentId>,
}

impl Entry {
    fn publication(&self, name: ChannelName) -> Option<Publication> {
        Some(Publication {
            name,
            creator: self.owner?,
            generation: self.generation,
            offer: self.offer?,
        })
    }

    /// How many places of a component's limit it takes.
    fn uses(&self, component: ComponentId) -> usize {
        let sets = [&self.subscribers, &self.asking, &self.attached];
        usize::from(self.is_owned_by(component))
            + sets.iter().filter(|set| set.contains(&component)).count()
    }

    fn is_owned_by(&self, component: ComponentId) -> bool {
        self.owner.is_some_and(|owner| owner.component == component)
    }
}

/// Who offers what, who wants it, and who has it.
#[derive(Default)]
pub struct Registry {
    limits: RegistryLimits,
    entries: BTreeMap<ChannelName, Entry>,
    events: VecDeque<Notification>,
    refused: u64,
}

impl Registry {
    /// Empty.
    pub fn new(limits: RegistryLimits) -> Registry {
        Registry {
            limits,
            ..Registry::default()
        }
    }

    /// Gives a name to a component beforehand: nobody else can publish under it. Without this the
    /// first to publish has it.
    ///
    /// # Errors
    /// [`Refusal::NotYours`] if it is another's by now, [`Refusal::Full`].
    pub fn reserve(&mut self, name: ChannelName, owner: Credentials) -> Result<(), Refusal> {
        self.admit(name, owner.component)?;
        let entry = self.entries.entry(name).or_default();
        match entry.owner {
            Some(other) if other != owner => Err(Refusal::NotYours),
            Some(_) | None => {
                entry.owner = Some(owner);
                Ok(())
            }
        }
    }

    /// Does what a component asks, and queues what others are to be told: poll
    /// [`Registry::poll_event`] until there is nothing before the next request, and there are never more
    /// events than a few for each component.
    ///
    /// # Errors
    /// Why not; it is counted.
    pub fn on_request(&mut self, from: Credentials, request: Request) -> Result<(), Refusal> {
        let done = self.dispatch(from, request);
        if done.is_err() {
            self.refused = self.refused.wrapping_add(1);
        }
        done
    }

    fn dispatch(&mut self, from: Credentials, request: Request) -> Result<(), Refusal> {
        let who = from.component;
        match request {
            Request::Publish {
                name,
                generation,
                offer,
            } => self.publish(from, name, generation, offer),
            Request::Withdraw { name } => {
                let entry = self.owned(name, from)?;
                entry.offer.ok_or(Refusal::NotPublished)?;
                self.withdraw(name);
                Ok(())
            }
            Request::Subscribe { name } => self.subscribe(who, name),
            Request::Unsubscribe { name } => {
                let entry = self.entries.get_mut(&name).ok_or(Refusal::NoSuch)?;
                let was = entry.subscribers.remove(&who);
                self.forget_if_unused(name);
                was.then_some(()).ok_or(Refusal::NoSuch)
            }
            Request::Attach { name, generation } => self.attach(from, name, generation),
            Request::Grant {
                name,
                generation,
                to,
            } => {
                let publication = self.answer(from, name, generation, to)?;
                if let Some(entry) = self.entries.get_mut(&name) {
                    entry.attached.insert(to);
                }
                self.tell(to, Event::Attached(publication));
                Ok(())
            }
            Request::Deny {
                name,
                generation,
                to,
            } => {
                self.answer(from, name, generation, to)?;
                self.tell(to, Event::Denied { name, generation });
                Ok(())
            }
            Request::Detach { name } => self.detach(who, name),
        }
    }

    /// A component's process ended: what it published is withdrawn, what it had is given back. Its names
    /// stay its own, for its next incarnation, which subscribes and publishes anew.
    pub fn on_death(&mut self, component: ComponentId) {
        let names: Vec<ChannelName> = self.entries.keys().copied().collect();
        for name in names {
            if let Some(entry) = self.entries.get_mut(&name) {
                entry.subscribers.remove(&component);
                entry.asking.remove(&component);
            }
            // It may not have had it.
            let _ = self.detach(component, name);
            let entry = self.entries.get(&name);
            if entry.is_some_and(|entry| entry.is_owned_by(component) && entry.offer.is_some()) {
                self.withdraw(name);
            }
            self.forget_if_unused(name);
        }
        self.events.retain(|event| event.to != component);
    }

    /// What to tell whom next.
    pub fn poll_event(&mut self) -> Option<Notification> {
        self.events.pop_front()
    }

    /// What is published under a name.
    pub fn publication(&self, name: ChannelName) -> Option<Publication> {
        self.entries.get(&name)?.publication(name)
    }

    /// How many requests were refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn publish(
        &mut self,
        from: Credentials,
        name: ChannelName,
        generation: u64,
        offer: Offer,
    ) -> Result<(), Refusal> {
        let entry = self.entries.get(&name);
        match entry.and_then(|entry| entry.owner) {
            Some(owner) if owner != from => return Err(Refusal::NotYours),
            Some(_) => {}
            None => self.admit(name, from.component)?,
        }
        if generation <= entry_generation(self.entries.get(&name)) {
            return Err(Refusal::Stale);
        }
        self.withdraw_old(name);
        let entry = self.entries.entry(name).or_default();
        entry.owner = Some(from);
        entry.generation = generation;
        entry.offer = Some(offer);
        let publication = Publication {
            name,
            creator: from,
            generation,
            offer,
        };
        for to in entry.subscribers.clone() {
            self.tell(to, Event::Published(publication));
        }
        Ok(())
    }

    fn subscribe(&mut self, who: ComponentId, name: ChannelName) -> Result<(), Refusal> {
        self.admit(name, who)?;
        let entry = self.entries.entry(name).or_default();
        if !entry.subscribers.insert(who) {
            return Err(Refusal::Already);
        }
        if let Some(publication) = entry.publication(name) {
            self.tell(who, Event::Published(publication));
        }
        Ok(())
    }

    fn attach(
        &mut self,
        from: Credentials,
        name: ChannelName,
        generation: u64,
    ) -> Result<(), Refusal> {
        let entry = self.entries.get(&name);
        let publication = entry.and_then(|entry| entry.publication(name));
        let publication = publication.ok_or(Refusal::NotPublished)?;
        if publication.generation != generation {
            return Err(Refusal::Stale);
        }
        self.admit(name, from.component)?;
        let entry = self.entries.get_mut(&name).ok_or(Refusal::NotPublished)?;
        if entry.asking.contains(&from.component) || entry.attached.contains(&from.component) {
            return Err(Refusal::Already);
        }
        if entry.asking.len() + entry.attached.len() >= publication.offer.places() {
            return Err(Refusal::Taken);
        }
        entry.asking.insert(from.component);
        let event = Event::ExportAsked {
            name,
            generation,
            by: from,
        };
        self.tell(publication.creator.component, event);
        Ok(())
    }

    /// Takes what a creator answers, if it was asked that.
    fn answer(
        &mut self,
        from: Credentials,
        name: ChannelName,
        generation: u64,
        to: ComponentId,
    ) -> Result<Publication, Refusal> {
        let entry = self.owned(name, from)?;
        let publication = entry.publication(name).ok_or(Refusal::NotPublished)?;
        if publication.generation != generation {
            return Err(Refusal::Stale);
        }
        match entry.asking.remove(&to) {
            true => Ok(publication),
            false => Err(Refusal::NoSuch),
        }
    }

    fn detach(&mut self, component: ComponentId, name: ChannelName) -> Result<(), Refusal> {
        let entry = self.entries.get_mut(&name).ok_or(Refusal::NoSuch)?;
        if !entry.attached.remove(&component) {
            return Err(Refusal::NoSuch);
        }
        if let Some(owner) = entry.owner {
            self.tell(owner.component, Event::Detached { name, component });
        }
        Ok(())
    }

    fn withdraw(&mut self, name: ChannelName) {
        let Some(entry) = self.entries.get(&name) else {
            return;
        };
        let generation = entry.generation;
        // Who is attached is told below.
        let subscribers: Vec<ComponentId> = entry
            .subscribers
            .difference(&entry.attached)
            .copied()
            .collect();
        self.withdraw_old(name);
        for to in subscribers {
            self.tell(to, Event::Withdrawn { name, generation });
        }
    }

    /// Ends what is published, for those who have it or asked for it.
    fn withdraw_old(&mut self, name: ChannelName) {
        let Some(entry) = self.entries.get_mut(&name) else {
            return;
        };
        let generation = entry.generation;
        entry.offer = None;
        let attached = std::mem::take(&mut entry.attached);
        let asking = std::mem::take(&mut entry.asking);
        for to in attached {
            self.tell(to, Event::Withdrawn { name, generation });
        }
        for to in asking {
            self.tell(to, Event::Denied { name, generation });
        }
    }

    /// Whether a component may use one name more.
    fn admit(&self, name: ChannelName, component: ComponentId) -> Result<(), Refusal> {
        let uses: usize = self
            .entries
            .values()
            .map(|entry| entry.uses(component))
            .sum();
        let new = !self.entries.contains_key(&name);
        let full =
            uses >= self.limits.per_component || (new && self.entries.len() >= self.limits.names);
        match full {
            true => Err(Refusal::Full),
            false => Ok(()),
        }
    }

    fn owned(&mut self, name: ChannelName, from: Credentials) -> Result<&mut Entry, Refusal> {
        let entry = self.entries.get_mut(&name).ok_or(Refusal::NotPublished)?;
        match entry.owner {
            Some(owner) if owner == from => Ok(entry),
            Some(_) => Err(Refusal::NotYours),
            None => Err(Refusal::NotPublished),
        }
    }

    fn forget_if_unused(&mut self, name: ChannelName) {
        let unused = self
            .entries
            .get(&name)
            .is_some_and(|entry| entry.owner.is_none() && entry.subscribers.is_empty());
        if unused {
            self.entries.remove(&name);
        }
    }

    fn tell(&mut self, to: ComponentId, event: Event) {
        self.events.push_back(Notification { to, event });
    }
}

fn entry_generation(entry: Option<&Entry>) -> u64 {
    entry.map_or(0, |entry| entry.generation)
}

#[cfg(all(test, not(loom)))]
mod tests;
