//! The stack in other processes, as this one sees it: channels to them, and the regions of memory that
//! its sockets are in.
//!
//! What is told leaves when the lock is released ([`settle`]), in one batch with one doorbell. There too
//! it is made sure that the stack rings as long as a thread sleeps on the bell: a page says whether
//! one does, and it is one page for all threads.
use crate::errno::{Answer, Stop, fail};
use crate::holdings::Holdings;
use crate::log::{log, write};
use crate::raw;
use crate::state::State;
use core::ffi::c_int;
use core::net::IpAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use foldhash::fast::FixedState;
use skink_memory::{SocketId, SocketTable};
use skink_messages::{
    Counter, Counters, Holder, PortOptions, Protocol, Shutdown, SocketCall, SocketEvent,
    TcpRequest, UdpRequest,
};
use skink_sockets::{
    self as sockets, Attachment, Berth, Client, ClientError, RequestBody, SIDE_BELLS, ServedBy,
};
use skink_tcp::{Budget, State as TcpState};
use skink_wire::{Endpoint, IpCidr};
use std::collections::HashMap;
use std::os::fd::AsRawFd;

/// There is something to do before the lock is released: see [`settle`].
static UNSETTLED: AtomicBool = AtomicBool::new(false);

/// Notes that there is something to do before the lock is released.
#[inline]
pub fn unsettle() {
    UNSETTLED.store(true, Ordering::Relaxed);
}

/// Whether there is something to do before the lock is released.
#[inline]
pub fn is_unsettled() -> bool {
    UNSETTLED.load(Ordering::Relaxed)
}

/// How many bytes of its memory each socket's send ring has touched, and all together. A ring gives nothing back before its socket
/// is closed.
#[derive(Default)]
struct Reaches {
    of: HashMap<SocketId, usize, FixedState>,
    all: u64,
}

impl Reaches {
    #[inline]
    fn note(&mut self, id: SocketId, reach: usize, budget: &mut Budget) {
        let known = self.of.entry(id).or_default();
        if reach > *known {
            self.all += (reach - *known) as u64;
            *known = reach;
            budget.set_taken(self.all);
        }
    }

    fn forget(&mut self, id: SocketId, budget: &mut Budget) {
        if let Some(reach) = self.of.remove(&id) {
            self.all -= reach as u64;
            budget.set_taken(self.all);
        }
    }
}

/// The stack that serves this process.
pub struct Remote {
    client: Client,
    /// What was agreed on.
    pub attachment: Attachment,
    /// The channels' descriptors, which `client` owns.
    pub channel: Vec<c_int>,
    /// Regions and addresses.
    pub holdings: Holdings,
    counters: Counters,
    /// For what is in send rings, and how far each was filled.
    memory: Budget,
    reaches: Reaches,
    /// The socket that was last said to have sent, and in which batch.
    told: Option<(Protocol, SocketId, u64)>,
    /// Since the bell was last made quiet, it was looked what the stack has said.
    looked: bool,
    /// Which side bells epoll sets have.
    side_bells: [bool; SIDE_BELLS],
    /// The stack is gone, or the channel spoilt.
    down: bool,
    /// The process has other connections to the stack: nobody need know if this one ends.
    is_aside: bool,
}

impl Remote {
    /// Begins with a channel that was handed over. What is in send rings may take `memory` bytes.
    pub fn new(
        client: Client,
        attachment: Attachment,
        channel: Vec<c_int>,
        holdings: Holdings,
        counters: Counters,
        memory: u64,
    ) -> Remote {
        Remote {
            client,
            attachment,
            channel,
            holdings,
            counters,
            memory: Budget::new(memory),
            reaches: Reaches::default(),
            told: None,
            looked: false,
            side_bells: [false; SIDE_BELLS],
            down: false,
            is_aside: false,
        }
    }

    /// The process has another connection to the stack, which isn't lost with this one.
    pub fn set_aside(&mut self) {
        self.is_aside = true;
    }

    /// Hands on what it holds. It is of no use then.
    pub fn take_holdings(&mut self) -> Holdings {
        core::mem::replace(&mut self.holdings, Holdings::none())
    }

    /// Whether the stack is gone.
    #[inline]
    pub fn is_down(&self) -> bool {
        self.down
    }

    /// The stack is gone: its sockets are lost.
    pub fn go_down(&mut self, reason: &dyn core::fmt::Display) {
        if !core::mem::replace(&mut self.down, true) && !self.is_aside {
            write(format_args!(
                "the stack is lost, and with it this process's connections: {reason}"
            ));
        }
    }

    fn failed<T>(&mut self, error: ClientError) -> Answer<T> {
        match error {
            ClientError::Socket(error) => Err(error.into()),
            ClientError::Silent | ClientError::Broken | ClientError::Gone => {
                self.go_down(&error);
                fail(libc::ENETDOWN)
            }
        }
    }

    fn ask(&mut self, call: SocketCall) -> Answer<sockets::Answer> {
        if self.down {
            return fail(libc::ENETDOWN);
        }
        unsettle();
        self.counters.count(Counter::AppAsked);
        match self.client.ask(call) {
            Ok(answer) => Ok(answer),
            Err(error) => self.failed(error),
        }
    }

    /// Asks, and doesn't wait for the answer: [`Remote::synchronize`] does.
    fn ask_later(&mut self, call: SocketCall) {
        if self.down {
            return;
        }
        unsettle();
        // Calls are answered in their order.
        self.counters.count(Counter::AppAsked);
        if let Err(error) = self.client.ask_later(call) {
            let _ = self.failed::<()>(error);
        }
    }

    /// Makes a call that isn't answered.
    fn call(&mut self, call: SocketCall) {
        self.counters.count(Counter::AppAsked);
        self.tell(RequestBody::Call(call));
    }

    fn tell(&mut self, body: RequestBody) {
        if self.down {
            return;
        }
        unsettle();
        if let Err(error) = self.client.tell(body) {
            let _ = self.failed::<()>(error);
        }
    }

    /// The table of sockets.
    #[inline]
    pub fn table(&self, protocol: Protocol) -> &SocketTable {
        match protocol {
            Protocol::Tcp => &self.holdings.tcp,
            Protocol::Udp => &self.holdings.udp,
        }
    }

    /// `socket`
    pub fn open(&mut self, protocol: Protocol) -> Answer<SocketId> {
        let answer = self.ask(SocketCall::Open(protocol))?;
        let known = |id: &SocketId| self.table(protocol).find(*id).is_some();
        answer
            .socket
            .filter(known)
            .ok_or(Stop::Errno(libc::ENETDOWN))
    }

    /// Waits until the stack has done what it was told, but not for long: the process is about to end.
    pub fn settle_at_last(&mut self) {
        self.client.hurry(LAST_PATIENCE);
        // What is answered was asked for after all that; the socket goes with the process.
        let _ = self.client.ask(SocketCall::Open(Protocol::Tcp));
    }

    /// `bind`; answers the socket's end, and the ticket with which children share it.
    pub fn bind(
        &mut self,
        protocol: Protocol,
        id: SocketId,
        end: Endpoint,
        options: PortOptions,
    ) -> Answer<(Endpoint, u64)> {
        let answer = self.ask(SocketCall::Bind(protocol, id, end, options))?;
        Ok((answer.local.unwrap_or(end), answer.value))
    }

    /// `listen`
    pub fn listen(&mut self, id: SocketId, backlog: u32) -> Answer<Endpoint> {
        let answer = self.ask(SocketCall::Listen(id, backlog))?;
        answer.local.ok_or(Stop::Errno(libc::ENETDOWN))
    }

    /// Lets a bound socket rest: from then on who asks for a connection isn't refused.
    pub fn rest(&mut self, id: SocketId) -> Answer<()> {
        self.ask(SocketCall::Rest(id)).map(drop)
    }

    /// `connect`
    pub fn connect(
        &mut self,
        protocol: Protocol,
        id: SocketId,
        remote: Option<Endpoint>,
    ) -> Answer<()> {
        self.ask(SocketCall::Connect(protocol, id, remote))
            .map(drop)
    }

    /// Says that this process uses a socket that is in another one's region. The answer is waited for by
    /// [`Remote::synchronize`].
    pub fn share(&mut self, protocol: Protocol, id: SocketId) {
        let region = self.table(protocol).region_of(id.slot);
        if region == self.attachment.program {
            return;
        }
        match self.holdings.secret_of(region) {
            Some(secret) => self.share_by(protocol, id, secret),
            None => log!(
                Warn,
                "a socket of program {region} was inherited without its secret"
            ),
        }
    }

    /// Says that this process uses a socket that it was passed, its own region's too: it may have let
    /// go of that before. The answer is waited for by [`Remote::synchronize`].
    pub fn take(&mut self, protocol: Protocol, id: SocketId) {
        let region = self.table(protocol).region_of(id.slot);
        if let Some(secret) = self.holdings.secret_of(region) {
            self.share_by(protocol, id, secret);
        }
    }

    /// As [`Remote::share`], of a socket in the region with this secret.
    pub fn share_by(&mut self, protocol: Protocol, id: SocketId, secret: u64) {
        self.ask_later(SocketCall::Share(protocol, id, secret));
    }

    /// Lets go of a socket.
    pub fn close(&mut self, protocol: Protocol, id: SocketId) {
        self.call(SocketCall::Close(protocol, id));
    }

    /// Says that who has held a socket on its way to this process may let go of it: this one holds it.
    pub fn relieve(&mut self, protocol: Protocol, id: SocketId, holder: Holder) {
        self.call(SocketCall::Relieve(protocol, id, holder));
    }

    /// Waits until the stack has heard which sockets this process shares. Answers how many it doesn't share.
    pub fn synchronize(&mut self) -> Answer<usize> {
        if self.down {
            return fail(libc::ENETDOWN);
        }
        unsettle();
        match self.client.settle_answers() {
            Ok(0) => Ok(0),
            Ok(refused) => {
                log!(
                    Warn,
                    "the stack doesn't share {refused} sockets with this process"
                );
                Ok(refused)
            }
            Err(error) => self.failed(error),
        }
    }

    /// Takes the connection that was offered first.
    pub fn accept(&mut self, listener: SocketId) -> Option<SocketId> {
        loop {
            if self.down {
                return None;
            }
            unsettle();
            // Of what is gone the stack hears as before: it counts what was offered.
            let tcp = &self.holdings.tcp;
            let is_ours = |id| tcp.find(id).is_none() || tcp.take_offer(id);
            match self.client.accept(listener, is_ours) {
                Ok(Some(id)) if self.holdings.tcp.find(id).is_none() => {}
                Ok(taken) => return taken,
                Err(error) => {
                    let _ = self.failed::<()>(error);
                    return None;
                }
            }
        }
    }

    /// Connections that wait to be taken.
    pub fn acceptable(&self, listener: SocketId) -> usize {
        self.client.acceptable(listener)
    }

    /// Whether the stack will hear of a socket that it has sent, since nothing left after that was said
    /// last; notes that it is said now.
    #[inline]
    fn has_told(&mut self, protocol: Protocol, id: SocketId) -> bool {
        let now = Some((protocol, id, self.client.batch()));
        core::mem::replace(&mut self.told, now) == now
    }

    /// Asks something of `tcp`; closing is a call.
    pub fn tcp_request(&mut self, request: TcpRequest) {
        match request {
            TcpRequest::Sent(id) => {
                if self.has_told(Protocol::Tcp, id) {
                    return;
                }
            }
            TcpRequest::Close(id) => {
                self.client.forget_offers(id);
                self.reaches.forget(id, &mut self.memory);
                return self.call(SocketCall::Close(Protocol::Tcp, id));
            }
            TcpRequest::Received(_) | TcpRequest::Shutdown(..) | TcpRequest::SetOption(..) => {}
        }
        self.tell(RequestBody::Tcp(request));
    }

    /// A connection that nobody else has is about to be closed: its FIN follows at once what was written. Where `syscall` is in a
    /// process of its own closing takes a detour, and a peer that has all it waited for would often be the first to close
    /// meanwhile, so that TIME-WAIT, and with it the port, is on its side.
    pub fn finish(&mut self, id: SocketId) {
        let routes = &self.attachment.routes;
        let together = routes.channel(ServedBy::Syscall) == routes.channel(ServedBy::Tcp);
        let table = &self.holdings.tcp;
        if together || table.region_of(id.slot) != self.attachment.program {
            return;
        }
        let state = table.find(id).map(|it| it.state.load(Ordering::Relaxed));
        let is_open = matches!(
            state.and_then(TcpState::from_number),
            Some(TcpState::Established | TcpState::CloseWait)
        );
        // If something is unread, closing resets it.
        if is_open && table.receive_ring(id.slot).is_empty() {
            self.tell(RequestBody::Tcp(TcpRequest::Shutdown(id, Shutdown::Write)));
        }
    }

    /// Asks something of `udp`; closing is a call.
    pub fn udp_request(&mut self, request: UdpRequest) {
        match request {
            UdpRequest::Sent(id) => {
                if self.has_told(Protocol::Udp, id) {
                    return;
                }
            }
            UdpRequest::Close(id) => return self.call(SocketCall::Close(Protocol::Udp, id)),
        }
        self.tell(RequestBody::Udp(request));
    }

    /// So many bytes were put into a send ring. What rings take isn't asked of the system: programs may have forbidden themselves that
    /// call.
    #[inline]
    pub fn put(&mut self, id: SocketId, count: usize) {
        if let Some([ring, _]) = self.holdings.tcp.find_rings(id) {
            let end = ring.index(ring.tail());
            // Around the end, all of it was touched.
            let reach = if count > end { ring.size() } else { end };
            self.reaches.note(id, reach, &mut self.memory);
        }
    }

    /// How many bytes may be in each send ring, as far as that is a matter of memory.
    #[inline]
    pub fn send_limit(&self) -> usize {
        self.memory.send_limit()
    }

    /// Bytes were taken from the receive ring, which held `held` before. The stack looks at the ring
    /// whenever it sends something; it must be told only if the peer may be waiting for a window.
    pub fn received(&mut self, id: SocketId, held: usize) {
        let Some(record) = self.holdings.tcp.find(id) else {
            return;
        };
        let half = skink_tcp::unread_limit(&self.holdings.tcp.receive_ring(id.slot)) / 2;
        let edge = record.rcv_adv.load(Ordering::Relaxed);
        let window = edge.wrapping_sub(record.rcv_nxt.load(Ordering::Relaxed));
        if held > half || (window as usize) < half {
            self.tell(RequestBody::Tcp(TcpRequest::Received(id)));
        }
    }

    /// Whether the stack has said something that wasn't taken in.
    #[inline]
    pub fn has_news(&self) -> bool {
        !self.down && self.client.has_news()
    }

    /// Takes in what the stack has said.
    pub fn poll(&mut self) {
        if !self.down
            && let Err(error) = self.client.poll()
        {
            let _ = self.failed::<()>(error);
        }
        self.looked = true;
        if self.client.has_repeated_offers() {
            unsettle();
        }
    }

    /// Lets the stack see what it was told.
    pub fn flush(&mut self) {
        if !self.down
            && let Err(error) = self.client.settle_offers()
        {
            let _ = self.failed::<()>(error);
        }
        self.client.flush();
    }

    /// Takes the next event.
    pub fn take_event(&mut self) -> Option<(Protocol, SocketEvent)> {
        self.client.take_event()
    }

    /// Readable when the stack has rung.
    pub fn bell(&self) -> c_int {
        self.client.bell().as_raw_fd()
    }

    /// A thread that slept on the bell is awake: the bell is quiet from now on, and rings no more.
    pub fn woke(&mut self) {
        self.client.awake();
        self.looked = false;
        if !raw::hush_bell(self.bell()) {
            // What it has said last is still there.
            self.poll();
            self.go_down(&ClientError::Gone);
        }
        unsettle();
    }

    /// A thread is about to sleep until something happens to this TCP socket; another one sleeps on the bell.
    pub fn lie_down(&mut self, id: SocketId) -> Option<Berth> {
        match self.down {
            true => None,
            false => self.client.lie_down(id),
        }
    }

    /// A side bell that no epoll set has: its number and its descriptor. It is the caller's until [`Remote::give_side_bell`].
    pub fn take_side_bell(&mut self) -> Option<(u8, c_int)> {
        let number = self.side_bells.iter().position(|taken| !taken)?;
        let bell = self.client.side_bell(number)?.as_raw_fd();
        self.side_bells[number] = true;
        Some((number as u8, bell))
    }

    /// Nobody's any more.
    pub fn give_side_bell(&mut self, number: u8) {
        self.client.retract_beside(number.into());
        if let Some(taken) = self.side_bells.get_mut(usize::from(number)) {
            *taken = false;
        }
    }

    /// The descriptor of a side bell.
    pub fn side_bell(&self, number: u8) -> Option<c_int> {
        let bell = self.client.side_bell(number.into())?;
        Some(bell.as_raw_fd())
    }

    /// A thread is about to sleep on this side bell, and on the bell.
    pub fn announce_beside(&mut self, number: u8) {
        self.client.announce_beside(number.into());
    }

    /// It is awake.
    pub fn retract_beside(&mut self, number: u8) {
        self.client.retract_beside(number.into());
    }

    /// What happens to this TCP socket is told by this side bell, if somebody sleeps there and nothing else is told.
    pub fn lead(&mut self, id: SocketId, number: u8) {
        self.client.lead(id, number.into());
    }

    /// Offers that nobody has taken, for a successor.
    pub fn offers(&self, listener: SocketId) -> Vec<SocketId> {
        self.client.offers(listener).collect()
    }

    /// Puts back offers that a predecessor hadn't taken.
    pub fn restore_offer(&mut self, listener: SocketId, connection: SocketId) {
        self.client.restore_offer(listener, connection);
    }

    /// Notes that a predecessor had taken this connection, and that it is still open.
    pub fn restore_taken(&mut self, connection: SocketId) {
        self.client.restore_taken(connection);
    }

    /// Whether a packet to `destination` can be sent.
    pub fn has_route(&self, destination: IpAddr) -> bool {
        let near = |address: &IpCidr| address.contains(destination);
        let way = |gateway: &IpAddr| gateway.is_ipv4() == destination.is_ipv4();
        // No gateway forwards what is for the link.
        let is_link_local =
            matches!(destination, IpAddr::V6(address) if address.is_unicast_link_local());
        self.holdings.addresses.iter().any(near)
            || !is_link_local && self.holdings.gateways.iter().any(way)
    }

    /// Whether the address is Skink's.
    pub fn is_local(&self, address: IpAddr) -> bool {
        let mut own = self.holdings.addresses.iter();
        own.any(|own| own.addr == address)
    }
}

/// Before the lock is released: what was told leaves; if threads sleep on the bell, or an inner set watches it, the stack knows
/// that it must ring; and the bells of inner sets say what is so.
#[cold]
pub fn settle(state: &mut State) {
    UNSETTLED.store(false, Ordering::Relaxed);
    settle_stack(state);
    state.settle_bells();
}

fn settle_stack(state: &mut State) {
    // The last round has nothing new to tell anybody but the stack.
    for _ in 0..ROUNDS {
        let sleeps = state.parking.on_nic > 0;
        let watched = !sleeps && state.epolls.inner > 0;
        let remote = state.engine.as_deref_mut();
        let Some(remote) = remote.and_then(|engine| engine.stack.remote()) else {
            return;
        };
        remote.flush();
        if watched && !remote.down {
            // Nobody else takes in what it rings for, or makes it quiet: each call does.
            unsettle();
            if remote.looked {
                remote.woke();
            }
        }
        let knows = remote.client.is_announced() && !watched;
        if !(sleeps || watched) || knows || remote.down || remote.client.announce() {
            return;
        }
        // There is something to do first: it may be what one of them sleeps for.
        remote.client.awake();
        state.pump();
    }
    // It never stops talking: let the sleepers look.
    if let Some(engine) = state.engine.as_deref_mut()
        && let Some(remote) = engine.stack.remote()
    {
        remote.client.announce();
        raw::ring(remote.bell());
    }
}

/// How often the stack may have something new to say before the sleepers are left to look.
const ROUNDS: usize = 16;

/// See [`Remote::settle_at_last`].
const LAST_PATIENCE: core::time::Duration = core::time::Duration::from_millis(500);

#[cfg(test)]
mod tests;
