//! Which sockets are the kernel's: those on loopback, on addresses of the kernel's interfaces, to
//! where Skink has no route, and those with options that only the kernel has.
use crate::errno::{Answer, Stop, fail};
use crate::fd_table::{self, Entry};
use crate::log::log;
use crate::next;
use crate::raw;
use crate::state::State;
use core::ffi::c_int;
use core::net::{IpAddr, Ipv4Addr};
use core::sync::atomic::{AtomicBool, Ordering};
use skink_control::NetworkInfo;
use skink_memory::{Fallback, FallbackReason};
use skink_messages::Counter;
use skink_time::Instant;
use skink_wire::{Endpoint, IpCidr};
use std::ffi::CString;
use std::time::Duration;

/// Whether `address` is for all of one of its networks.
fn has_broadcast(network: &NetworkInfo, address: IpAddr) -> bool {
    let mut broadcasts = network.addresses.iter().filter_map(IpCidr::broadcast);
    broadcasts.any(|broadcast| broadcast == address)
}

/// Whether a process without a stack ends.
static REQUIRED: AtomicBool = AtomicBool::new(false);

/// Whether [`State::tell_of_sharing`] has said what it has to.
static SAID: AtomicBool = AtomicBool::new(false);

/// Notes what the environment says.
pub fn start() {
    REQUIRED.store(
        std::env::var_os("SKINK_REQUIRE").is_some(),
        Ordering::Relaxed,
    );
}

/// How long the list of the kernel's addresses is believed.
const FRESH: Duration = Duration::from_secs(2);

/// The addresses of the kernel's interfaces.
pub struct Interfaces {
    addresses: Vec<IpAddr>,
    read: Option<Instant>,
}

impl Interfaces {
    /// Not read yet.
    pub const fn new() -> Interfaces {
        Interfaces {
            addresses: Vec::new(),
            read: None,
        }
    }

    /// Whether an interface of the kernel has `address`.
    pub fn have(&mut self, address: IpAddr) -> bool {
        self.refresh();
        self.addresses.contains(&address)
    }

    /// Whether there is an address of IPv4, and of IPv6, that others can reach.
    fn have_families(&self) -> [bool; 2] {
        let reachable = self
            .addresses
            .iter()
            .filter(|address| !address.is_loopback());
        let [mut v4, mut v6] = [false; 2];
        for address in reachable {
            v4 |= address.is_ipv4();
            v6 |= address.is_ipv6();
        }
        [v4, v6]
    }

    fn refresh(&mut self) {
        let now = raw::now();
        if self.read.is_none_or(|read| now.since(read) > FRESH) {
            self.read = Some(now);
            self.addresses = read_interfaces();
        }
    }
}

fn read_interfaces() -> Vec<IpAddr> {
    let mut list = core::ptr::null_mut();
    let mut found = Vec::new();
    // SAFETY: libc fills in the pointer; its list is read until it is freed.
    unsafe {
        if next::getifaddrs(&mut list) != 0 {
            return found;
        }
        let mut entry = list;
        while let Some(interface) = entry.as_ref() {
            let length = size_of::<libc::sockaddr_in6>() as u32;
            if let Some(family) = interface.ifa_addr.as_ref().map(|name| name.sa_family)
                && matches!(i32::from(family), libc::AF_INET | libc::AF_INET6)
                && let Ok(crate::sockaddr::Name::Inet(endpoint)) =
                    crate::sockaddr::read(interface.ifa_addr, length)
            {
                found.push(endpoint.addr);
            }
            entry = interface.ifa_next;
        }
        next::freeifaddrs(list);
    }
    found
}

/// Whether the kernel has a way to an address. Nothing is sent.
fn kernel_reaches(to: Endpoint) -> Answer<()> {
    let domain = match to.addr {
        IpAddr::V4(_) => libc::AF_INET,
        IpAddr::V6(_) => libc::AF_INET6,
    };
    let kind = (libc::SOCK_DGRAM | libc::SOCK_CLOEXEC) as usize;
    // SAFETY: only numbers.
    let fd = unsafe { raw::call(libc::SYS_socket, [domain as usize, kind, 0, 0, 0, 0]) }?;
    let (name, length) = crate::sockaddr::encode(to, domain);
    let arguments = [fd, name.as_ptr() as usize, length, 0, 0, 0];
    // SAFETY: the name is borrowed, and so long.
    let reached = unsafe { raw::call(libc::SYS_connect, arguments) };
    raw::close(fd as c_int);
    reached.map(drop)
}

impl State {
    /// Makes sure that there is a stack. If there can't be one, says so once, and sockets go to the
    /// kernel from then on (or the program ends, if `SKINK_REQUIRE` is set).
    pub fn need_engine(&mut self) -> bool {
        if self.engine.is_some() {
            return true;
        }
        if self.refused {
            return false;
        }
        match crate::attach::start(None) {
            Ok(engine) => {
                self.adopt_engine(engine);
                true
            }
            Err(reason) => {
                self.give_up(&reason);
                false
            }
        }
    }

    /// The process has a stack from now on.
    pub fn adopt_engine(&mut self, engine: crate::engine::Engine) {
        // A stack in another process drives itself.
        let drives_itself = engine.stack.is_served();
        self.engine = Some(Box::new(engine));
        match drives_itself {
            true => self.parking.prepare(),
            false => crate::helper::start(),
        }
        // The program may be about to forbid itself to ask.
        self.own_interface_index();
        if let Some((name, _)) = self.own_interface().filter(|_| drives_itself) {
            self.interface_mtu = crate::interfaces::requests::mtu(&name);
        }
        self.adopt_epolls();
        self.listen_beside();
    }

    /// What the broker says of the network, if there is one.
    fn network(&mut self) -> Option<&NetworkInfo> {
        if self.network.is_none() && !self.refused {
            match crate::attach::network() {
                Ok(network) => self.network = Some(network),
                Err(reason) => self.give_up(&reason),
            }
        }
        self.network.as_ref().filter(|_| !self.refused)
    }

    /// Whether Skink or the kernel has an address of IPv4, and of IPv6; `None` if there is no stack to ask.
    pub fn has_families(&mut self) -> Option<[bool; 2]> {
        let own = &self.network()?.addresses;
        let has = |v6: bool| own.iter().any(|own| own.addr.is_ipv6() == v6);
        let own = [has(false), has(true)];
        self.interfaces.refresh();
        let kernels = self.interfaces.have_families();
        Some([own[0] || kernels[0], own[1] || kernels[1]])
    }

    /// The interface that Skink uses, and the addresses that it has on it.
    pub fn own_interface(&mut self) -> Option<(String, Vec<IpCidr>)> {
        let network = self.network()?;
        let (_, name) = network.nic.rsplit_once(':').unwrap_or(("", &network.nic));
        (!name.is_empty()).then(|| (name.to_owned(), network.addresses.clone()))
    }

    /// The number of that interface, 0 if nobody knows it.
    pub fn own_interface_index(&mut self) -> u32 {
        if self.interface_index == 0
            && let Some((name, _)) = self.own_interface()
            && let Ok(name) = CString::new(name)
        {
            // SAFETY: a C string.
            self.interface_index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        }
        self.interface_index
    }

    /// Whether there is a broker to come by a stack, so far.
    pub fn has_prospects(&mut self) -> bool {
        !self.refused && (self.engine.is_some() || self.network().is_some())
    }

    /// Whether the stack is, or will be, in another process.
    pub fn is_served(&mut self) -> bool {
        match &self.engine {
            Some(engine) => engine.stack.is_served(),
            None => {
                let network = self.network();
                network.is_some_and(|network| network.topology.is_some())
            }
        }
    }

    /// A program shares connections between processes, which it can't where each has a stack of its own. Said once.
    #[cold]
    pub fn tell_of_sharing(&mut self, what: &str) {
        if SAID.swap(true, Ordering::Relaxed) {
            return;
        }
        let (mut nic, mut addresses) = ("INTERFACE", String::new());
        if let Some(network) = self
            .network
            .as_ref()
            .filter(|network| !network.nic.is_empty())
        {
            nic = &network.nic;
            for address in &network.addresses {
                addresses.push_str(&format!(" --addr {address}"));
            }
        }
        crate::log::write(format_args!(
            "{what}, which works under `skink up` only, where processes share one stack. Start it by `skink up --nic {nic}{addresses} --name main`, and then the program by `skink run --name main -- PROGRAM`"
        ));
    }

    fn give_up(&mut self, reason: &str) {
        self.refused = true;
        if REQUIRED.load(Ordering::Relaxed) {
            crate::log::write(format_args!("no stack for this process: {reason}"));
            // SAFETY: ends the process.
            unsafe { raw::syscall(libc::SYS_exit_group, [1, 0, 0, 0, 0, 0]) };
        }
        crate::log::write(format_args!(
            "no stack for this process, its sockets are the kernel's: {reason}"
        ));
    }

    /// Whether `address` is one of Skink's own.
    pub fn is_own_address(&mut self, address: IpAddr) -> bool {
        if let Some(engine) = &self.engine {
            return engine.stack.is_local(address);
        }
        let network = self.network();
        network.is_some_and(|network| network.addresses.iter().any(|own| own.addr == address))
    }

    /// Whether it is the only address of its family that Skink has.
    pub fn is_only_address(&mut self, address: IpAddr) -> bool {
        self.network().is_some_and(|network| {
            let addresses = network.addresses.iter().map(|own| own.addr);
            let mut alike = addresses.filter(|own| own.is_ipv4() == address.is_ipv4());
            alike.next() == Some(address) && alike.next().is_none()
        })
    }

    /// Whether what is sent there is for all on the link, or on a network of Skink's. Asks nobody: who has a stack knows the network.
    pub fn is_broadcast(&self, address: IpAddr) -> bool {
        let own = self.network.as_ref();
        address == IpAddr::V4(Ipv4Addr::BROADCAST)
            || own.is_some_and(|network| has_broadcast(network, address))
    }

    /// Whether it is the broadcast address of a network of Skink's: sockets for datagrams may have it.
    pub fn is_own_broadcast(&mut self, address: IpAddr) -> bool {
        let network = self.network();
        network.is_some_and(|network| has_broadcast(network, address))
    }

    /// Why a flow to `address` is the kernel's, or `None` if it is Skink's. Makes the stack, if
    /// nothing speaks against Skink.
    pub fn reason_against(&mut self, index: u32, address: IpAddr) -> Option<FallbackReason> {
        if address.is_loopback() || address.is_unspecified() {
            return Some(FallbackReason::Loopback);
        }
        if address.is_multicast() || address == IpAddr::from([255, 255, 255, 255]) {
            return Some(FallbackReason::UnsupportedType);
        }
        if self.sockets[index].unsupported.is_some() {
            return Some(FallbackReason::UnsupportedOption);
        }
        if self.interfaces.have(address) {
            return Some(FallbackReason::KernelAddress);
        }
        if !self.need_engine() {
            return Some(FallbackReason::NotAttached);
        }
        let routed = self
            .engine
            .as_ref()
            .is_some_and(|engine| engine.stack.has_route(address));
        (!routed).then_some(FallbackReason::NoRoute)
    }

    /// As [`State::fall_back`], for a call to an address that isn't Skink's. If the kernel doesn't reach it either, the call
    /// fails, and the socket may still go elsewhere.
    pub fn leave_unless_unreachable<T>(
        &mut self,
        index: u32,
        reason: FallbackReason,
        to: Endpoint,
    ) -> Answer<T> {
        if reason == FallbackReason::NoRoute
            && let Err(Stop::Errno(error @ (libc::ENETUNREACH | libc::EHOSTUNREACH))) =
                kernel_reaches(to)
        {
            return fail(error);
        }
        self.fall_back(index, reason, to)
    }

    /// Leaves the socket to the kernel: its descriptors are ordinary from now on.
    pub fn fall_back<T>(&mut self, index: u32, reason: FallbackReason, to: Endpoint) -> Answer<T> {
        if !self.sockets[index].own_kernel_socket {
            return fail(libc::EINVAL);
        }
        self.release(index);
        if self.is_served() {
            self.ask_where_to(index, false);
        }
        let socket = &mut self.sockets[index];
        log!(
            Info,
            "descriptor {:?} to {to}: the kernel's ({})",
            socket.fds,
            reason.label()
        );
        let (protocol, detail) = (socket.protocol(), socket.unsupported.unwrap_or(0) as u32);
        if socket.kernel_listens
            && let Some(fd) = socket.fds.first()
        {
            let _ = crate::calls::restore_mode(*fd, socket.nonblocking);
        }
        let fds = core::mem::take(&mut socket.fds);
        if let Some(engine) = &self.engine {
            engine.count(Counter::AppFallbacks);
            if let (Some(table), Some(fd)) = (&engine.fallbacks, fds.first()) {
                let fd = *fd as u32;
                table.set(&Fallback {
                    fd,
                    reason,
                    protocol,
                    detail,
                    endpoint: to,
                });
            }
        }
        for fd in &fds {
            fd_table::set(*fd, Entry::Ordinary);
        }
        if let Some(fd) = fds.first() {
            fd_table::fall(*fd);
        }
        self.watchers_to_kernel(index);
        self.wake_waiters(index);
        self.sockets.remove(index);
        Err(Stop::Kernel)
    }
}
