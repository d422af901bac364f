//! What a successor does before it knows who holds which socket. `syscall` says all of it to each
//! (docs/decisions/0019), but the lane may still have what it said before.
use crate::front::Front;
use skink_messages::{CallBody, Protocol, TcpRequest, TransportCall};
use skink_sockets::RequestBody;
use skink_time::Instant;

/// Whether this process knows who holds which socket of a protocol.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Sharing {
    /// Nothing of what a predecessor was told. Programs have ended meanwhile.
    Unknown(Vec<u32>),
    /// It is being said.
    Heard(Vec<u32>),
    /// All of it.
    #[default]
    Known,
}

impl Sharing {
    pub fn new(is_successor: bool) -> Sharing {
        match is_successor {
            true => Sharing::Unknown(Vec::new()),
            false => Sharing::Known,
        }
    }

    /// Programs that ended too early; `None` if all is known.
    fn ended(&mut self) -> Option<&mut Vec<u32>> {
        match self {
            Sharing::Unknown(ended) | Sharing::Heard(ended) => Some(ended),
            Sharing::Known => None,
        }
    }
}

impl Front {
    /// How many sockets several programs hold here, or one that isn't their owner.
    pub fn shared(&self) -> usize {
        self.holders.len()
    }

    fn knows(&self, protocol: Protocol) -> bool {
        self.sharing.get(protocol.index()) == Some(&Sharing::Known)
    }

    /// What is said from now on is all of it.
    pub(crate) fn begin_sharing(&mut self, protocol: Protocol) {
        if let Some(sharing) = self.sharing.get_mut(protocol.index())
            && let Some(ended) = sharing.ended()
        {
            *sharing = Sharing::Heard(std::mem::take(ended));
        }
    }

    /// All has been said. If the beginning was said to a predecessor only, it comes once more.
    pub(crate) fn end_sharing(&mut self, now: Instant, protocol: Protocol) {
        let Some(sharing) = self.sharing.get_mut(protocol.index()) else {
            return;
        };
        let Sharing::Heard(ended) = sharing else {
            return;
        };
        let ended = std::mem::take(ended);
        *sharing = Sharing::Known;
        for program in ended {
            self.end_program(now, protocol, program);
        }
        for number in self.programs.numbers.clone() {
            if let Some(program) = self.programs.get_mut(number) {
                program.blocked = false;
            }
            self.make_due(number);
        }
    }

    /// A program has ended: at once, or as soon as it is known which of its sockets others hold.
    pub(crate) fn end_program_if_known(&mut self, now: Instant, protocol: Protocol, program: u32) {
        let sharing = self.sharing.get_mut(protocol.index());
        match sharing.and_then(Sharing::ended) {
            Some(ended) if !ended.contains(&program) => ended.push(program),
            Some(_) => {}
            None => self.end_program(now, protocol, program),
        }
    }

    /// Nothing of an ended program waits any more: soon another one may have its number.
    pub(crate) fn forget_ended(&mut self, protocol: Protocol, program: u32) {
        let sharing = self.sharing.get_mut(protocol.index());
        if let Some(ended) = sharing.and_then(Sharing::ended) {
            ended.retain(|other| *other != program);
        }
    }

    /// Who lets go of a socket has held it: what it has said of that before comes first.
    pub(crate) fn vouch(&mut self, protocol: Protocol, call: &TransportCall) {
        let (CallBody::Release(id) | CallBody::Close(id)) = call.body else {
            return;
        };
        let owner = self.owner_of(protocol, id);
        let table = self.stack.transports().table(protocol);
        let is_there = table.is_some_and(|table| table.find(id).is_some());
        if is_there && owner != call.program && !self.knows(protocol) {
            self.holders.add((protocol, id), owner, call.program);
        }
    }

    /// Whether this stays in the program's queue until it is known who holds what.
    pub(crate) fn waits_for_shares(&mut self, program: u32, body: &RequestBody) -> bool {
        let waits = self.is_early(program, body);
        if let Some(attached) = self.programs.get_mut(program) {
            attached.blocked |= waits;
        }
        waits
    }

    /// Whether it can't be told yet if a program may say this. The socket isn't its own. (What it says of
    /// its rings needn't wait: who becomes known as a holder is looked after as if it had said so.)
    fn is_early(&self, program: u32, body: &RequestBody) -> bool {
        let RequestBody::Tcp(TcpRequest::Shutdown(id, _) | TcpRequest::SetOption(id, _)) = body
        else {
            return false;
        };
        let protocol = Protocol::Tcp;
        self.stack.has(protocol)
            && !self.knows(protocol)
            && self.owner_of(protocol, *id) != program
            && !self.holders.holds((protocol, *id), program)
    }
}
