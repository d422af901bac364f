//! What happens when this component or another is restarted.
use crate::SyscallOutput;
use crate::stored::{Item, keep};
use crate::syscall::{Presence, Program, Stage, Syscall, ask, tell};
use crate::turns::Taken;
use skink_messages::{CallBody, Protocol, StoreKey, StoreValue, attachment_tag};

impl Syscall {
    /// A transport has a successor. It is told who holds which shared socket, and asked again for what is
    /// unfinished.
    pub fn transport_restarted(&mut self, protocol: Protocol, out: &mut impl SyscallOutput) {
        if !self.resumed {
            // All of this comes with `resume`.
            return;
        }
        self.tell_shares(protocol, out);
        self.ask_turn_again(protocol, out);
        for (program, known) in &self.programs {
            let Some(unfinished) = known.unfinished else {
                continue;
            };
            let turn = self.is_turn_of(protocol, *program, unfinished.serial);
            let asked = unfinished.stage != Stage::Queued && !turn;
            if unfinished.protocol == protocol && asked {
                ask(*program, unfinished, out);
            }
        }
    }

    /// Tells a transport what it was told before, of sockets that are shared. Those who wait for its word
    /// whether they can be are told as well: before anything that ends the socket.
    fn tell_shares(&self, protocol: Protocol, out: &mut impl SyscallOutput) {
        let tell = |program, body, out: &mut _| tell(protocol, program, body, out);
        tell(0, CallBody::Sharing, out);
        for (socket, owner, owner_holds, others) in self.shares.of(protocol) {
            for holder in others {
                tell(holder, CallBody::Share(socket), out);
            }
            if !owner_holds && !self.has_departed(owner) {
                tell(owner, CallBody::Release(socket), out);
            }
        }
        for (program, known) in &self.programs {
            if known.presence == Presence::Departed {
                let tag = attachment_tag(known.secret);
                tell(*program, CallBody::Detach(tag), out);
            }
        }
        tell(0, CallBody::AllShared, out);
    }

    /// `store` has a successor, and has forgotten everything: everything is stored again.
    pub fn store_restarted(&mut self, out: &mut impl SyscallOutput) {
        for item in self.items() {
            keep(out, &item);
        }
    }

    /// All that is stored.
    pub(crate) fn items(&self) -> impl Iterator<Item = Item> {
        let programs = self.programs.iter();
        let programs = programs.map(|(number, program)| program.item(*number));
        let turns = Protocol::ALL.into_iter().filter_map(|protocol| {
            let current = self.turns(protocol).current.as_ref();
            current.map(|taken| Item::Turn(protocol, taken.turn))
        });
        let sockets = self.ports.items().chain(self.shares.items());
        programs.chain(sockets).chain(turns)
    }

    /// After this component's own restart, before all but [`Syscall::attach`]: something that `store` had,
    /// in any order. What makes no sense is counted and dropped.
    pub fn restore(&mut self, key: StoreKey, value: StoreValue) {
        let item = Item::decode(key, &value).filter(|_| !self.resumed);
        let taken = item.is_some_and(|item| self.take_back(item));
        self.ignored += u64::from(!taken);
    }

    fn take_back(&mut self, item: Item) -> bool {
        match item {
            Item::Port(protocol, bound) => return self.ports.restore_bound(protocol, bound),
            Item::Retired(number, retired) => return self.ports.restore_retired(number, retired),
            Item::Share(protocol, socket, holder, confirmed) => {
                let owner = self.owner_of(protocol, socket);
                let key = (protocol, socket);
                return self.shares.restore_share(key, owner, holder, confirmed);
            }
            Item::OwnerGone(protocol, socket) => {
                let owner = self.owner_of(protocol, socket);
                self.shares.restore_owner_gone((protocol, socket), owner);
            }
            Item::Program(number, known) => {
                // One that has attached again by now is better known, but for whether it had ended.
                if let Some(now) = self.programs.get_mut(&number) {
                    if now.secret != known.secret {
                        self.superseded.push(number);
                    } else if known.departed {
                        now.presence = Presence::Departed;
                    }
                    return true;
                }
                self.programs.insert(
                    number,
                    Program {
                        uid: known.uid,
                        secret: known.secret,
                        presence: match known.departed {
                            true => Presence::Departed,
                            false => Presence::Remembered,
                        },
                        unfinished: None,
                    },
                );
            }
            Item::Turn(protocol, turn) => {
                self.turns_mut(protocol).current = Some(Taken {
                    turn,
                    awaited: false,
                    closed: false,
                });
            }
        }
        true
    }

    /// All that `store` had has been handed in: goes on with what a predecessor had begun. At the latest
    /// the first request, outcome or detachment means that too.
    pub fn resume(&mut self, out: &mut impl SyscallOutput) {
        if self.resumed {
            return;
        }
        self.resumed = true;
        for program in std::mem::take(&mut self.superseded) {
            self.supersede(program, out);
        }
        for (number, program) in &self.programs {
            keep(out, &program.item(*number));
        }
        self.tidy(out);
        for protocol in Protocol::ALL {
            // The transport may have died together with our predecessor: then nobody says that it restarted.
            // One that knows it already is told nothing new.
            self.tell_shares(protocol, out);
            self.ask_turn_again(protocol, out);
        }
    }
}
