//! The privileged side of one queue.

use super::memory::{Mapped, Umem};
use super::ring::{Offsets, Producer};
use super::{Geometry, QueueDescription, driver};
use crate::error;
use crate::interface::Interface;
use crate::segmentation;
use crate::socket::{self, check};
use rustix::fs::{MemfdFlags, SealFlags};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// One queue, open.
#[derive(Serialize, Deserialize)]
pub(super) struct QueueParts {
    pub(super) description: QueueDescription,
    #[serde(with = "skink_inherit::descriptors")]
    pub(super) socket: OwnedFd,
    #[serde(with = "skink_inherit::descriptors")]
    pub(super) memory: OwnedFd,
    /// More sockets on the queue, see [`add_flow_rings`].
    #[serde(with = "skink_inherit::descriptors")]
    pub(super) flow_rings: Vec<OwnedFd>,
}

/// Why a queue can't be had.
#[derive(Debug)]
pub(super) enum OpenError {
    /// Somebody has it.
    Taken,
    /// The interface has fewer queues.
    NoSuchQueue,
    /// The memory can't be pinned.
    Pinned(io::Error),
    /// Frames are larger than a chunk, and the kernel knows no chains of chunks.
    Chains { mtu: u32 },
    /// The rings of a socket that is bound can't be mapped, as each owner must.
    Unmappable,
    /// The kernel's reason.
    System(&'static str, io::Error),
}

impl OpenError {
    /// In words for a person.
    pub(super) fn about(self, name: &str) -> error::OpenError {
        let unavailable = |what: String, advice: String| error::OpenError::Unavailable {
            what: format!("AF_XDP on {name} ({what})"),
            advice,
        };
        match self {
            OpenError::Taken => unavailable(
                "another program has all its queues".to_owned(),
                format!("stop it, or use packet:{name}"),
            ),
            OpenError::NoSuchQueue => unavailable(
                "the kernel refuses to bind a socket to its first queue".to_owned(),
                format!("use packet:{name}"),
            ),
            OpenError::Pinned(source) => unavailable(
                format!(
                    "{} MiB of memory can't be pinned for it: {source}",
                    Geometry::QUEUE.bytes() >> 20
                ),
                format!(
                    "raise the limit with `ulimit -l unlimited`, run with CAP_IPC_LOCK, or use \
                     packet:{name}"
                ),
            ),
            OpenError::Chains { mtu } => unavailable(
                format!("its MTU is {mtu}, and this kernel has no multi-buffer AF_XDP"),
                format!(
                    "use Linux 6.6 or later, `ip link set {name} mtu {}`, or packet:{name}",
                    Geometry::QUEUE.room() - skink_wire::ethernet::LEN as u32
                ),
            ),
            OpenError::Unmappable => unavailable(
                "this kernel doesn't let a process map the rings of a socket that another has bound"
                    .to_owned(),
                format!("use Linux 6.4 or later, or packet:{name}"),
            ),
            OpenError::System(doing, source) => error::OpenError::System {
                doing,
                name: name.to_owned(),
                source,
            },
        }
    }
}

fn system(doing: &'static str) -> impl Fn(io::Error) -> OpenError {
    move |error| OpenError::System(doing, error)
}

/// Whether there is AF_XDP at all, and we may use it.
pub(super) fn probe(name: &str) -> Result<(), error::OpenError> {
    match xdp_socket() {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(error::OpenError::Denied(error::Denial::PacketSocket))
        }
        Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {
            Err(error::OpenError::Unavailable {
                what: "AF_XDP".to_owned(),
                advice: format!("use a kernel with CONFIG_XDP_SOCKETS, or packet:{name}"),
            })
        }
        Err(error) => Err(error::OpenError::doing("opening an AF_XDP socket on", name)(error)),
    }
}

fn xdp_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory is involved.
    let fd = check(unsafe { libc::socket(libc::AF_XDP, kind, 0) })?;
    // SAFETY: the kernel just made this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What the smallest frame takes of a socket's send buffer, as one asks for it: half of what the kernel then allows
/// (socket(7)), of which a frame with its `struct sk_buff` takes 768.
const SMALL_FRAME: i32 = 768 / 2;

/// Opens `queue` of `interface`: memory, rings, binding; chunks to receive into are with the kernel
/// already, so that frames wait for the process that will use the queue.
pub(super) fn queue(
    interface: &Interface,
    queue: u32,
    geometry: Geometry,
) -> Result<QueueParts, OpenError> {
    let socket = xdp_socket().map_err(system("opening an AF_XDP socket on"))?;
    let memory = memory(geometry).map_err(system("taking memory for"))?;
    register(socket.as_fd(), memory.as_fd(), geometry)?;
    rings(socket.as_fd(), geometry).map_err(system("making AF_XDP rings for"))?;
    let fits = interface.mtu + skink_wire::ethernet::LEN as u32 <= geometry.room();
    let chains = bind(socket.as_fd(), interface, queue, fits)?;
    fill(socket.as_fd(), geometry).map_err(|error| match error.raw_os_error() {
        // Before Linux 6.4 (net/xdp/xsk.c, xsk_mmap).
        Some(libc::EBUSY) => OpenError::Unmappable,
        _ => OpenError::System("filling AF_XDP rings for", error),
    })?;
    // Frames that the card still has to send count against this buffer where they are copied, until the other end
    // of a veth has taken them in: more than it has room for would be lost there. A failure leaves the default.
    let room = match driver::is_veth(&interface.name) {
        Ok(true) => driver::VETH_QUEUE * SMALL_FRAME,
        _ => geometry.bytes() as i32,
    };
    let _ = socket::set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, room);
    let options = socket::get_option(&socket, libc::SOL_XDP, libc::XDP_OPTIONS)
        .map_err(system("asking for AF_XDP options of"))?;
    Ok(QueueParts {
        description: QueueDescription {
            queue,
            geometry,
            zero_copy: options[0] & libc::XDP_OPTIONS_ZEROCOPY != 0,
            chains,
            // The program's place is the caller's business.
            generic: false,
            local_partner: driver::may_be_local(&interface.name).unwrap_or(false),
            cuts: segmentation::segments(&interface.name).unwrap_or(false),
            mtu: interface.mtu,
            flow_rings: 0,
        },
        socket,
        memory,
        flow_rings: Vec::new(),
    })
}

/// Opens up to `count` more sockets on the queue. They share its memory, *fill* and *completion*, and receive into
/// rings of their own; none can overflow, since each has a slot for every chunk. Where frames come as chains there are
/// none: a chain must be seen whole in one ring. What can't be had is done without.
pub(super) fn add_flow_rings(parts: &mut QueueParts, interface: &Interface, count: u8) {
    let count = if parts.description.chains { 0 } else { count };
    for _ in 0..count {
        match flow_ring(parts, interface) {
            Ok(socket) => parts.flow_rings.push(socket),
            Err(error) => {
                tracing::debug!(interface = interface.name, %error, "no more sockets on the queue");
                break;
            }
        }
    }
    parts.description.flow_rings = parts.flow_rings.len() as u8;
}

fn flow_ring(parts: &QueueParts, interface: &Interface) -> io::Result<OwnedFd> {
    let QueueDescription {
        queue, geometry, ..
    } = parts.description;
    let socket = xdp_socket()?;
    socket::set_option(&socket, libc::SOL_XDP, libc::XDP_RX_RING, geometry.chunks)?;
    let first = parts.socket.as_raw_fd() as u32;
    bind_to(
        socket.as_fd(),
        interface,
        queue,
        libc::XDP_SHARED_UMEM,
        first,
    )?;
    Ok(socket)
}

/// A memfd of the right size, which can't shrink under its users.
fn memory(geometry: Geometry) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = rustix::fs::memfd_create("skink-frames", flags)?;
    rustix::fs::ftruncate(&memory, geometry.bytes() as u64)?;
    rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(memory)
}

/// Registers the memory. The kernel pins its pages, which belong to the memfd: whoever else maps it
/// sees the same frames, and this process's mapping isn't needed any more.
fn register(
    socket: BorrowedFd<'_>,
    memory: BorrowedFd<'_>,
    geometry: Geometry,
) -> Result<(), OpenError> {
    let mapped = Mapped::map(memory, geometry.bytes(), 0).map_err(system("mapping frames of"))?;
    let registration = libc::xdp_umem_reg {
        addr: mapped.base().as_ptr() as u64,
        len: geometry.bytes() as u64,
        chunk_size: geometry.chunk_bytes,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    socket::set_option(socket, libc::SOL_XDP, libc::XDP_UMEM_REG, registration).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::ENOBUFS | libc::ENOMEM | libc::EPERM) => OpenError::Pinned(error),
            _ => OpenError::System("registering the memory of", error),
        }
    })
}

fn rings(socket: BorrowedFd<'_>, geometry: Geometry) -> io::Result<()> {
    for ring in [
        libc::XDP_UMEM_FILL_RING,
        libc::XDP_UMEM_COMPLETION_RING,
        libc::XDP_RX_RING,
        libc::XDP_TX_RING,
    ] {
        socket::set_option(socket, libc::SOL_XDP, ring, geometry.chunks)?;
    }
    Ok(())
}

/// Binds to the queue; with `XDP_SHARED_UMEM`, beside the socket `first`.
fn bind_to(
    socket: BorrowedFd<'_>,
    interface: &Interface,
    queue: u32,
    flags: u16,
    first: u32,
) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: interface.index,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: first,
    };
    // SAFETY: the address lives across the call and its size is given.
    check(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_xdp>() as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// Binds to the queue, without a copy where the driver can; answers whether chains are possible.
/// `fits`: every frame fits into a chunk.
fn bind(
    socket: BorrowedFd<'_>,
    interface: &Interface,
    queue: u32,
    fits: bool,
) -> Result<bool, OpenError> {
    let attempt = |flags| bind_to(socket, interface, queue, flags, 0);
    // Neither XDP_ZEROCOPY nor XDP_COPY: the kernel tries the first and falls back to the second.
    let flags = libc::XDP_USE_NEED_WAKEUP;
    let plain = if fits {
        // Without chains some drivers can do without a copy that couldn't with them.
        attempt(flags)
    } else {
        match attempt(flags | libc::XDP_USE_SG) {
            Ok(_) => return Ok(true),
            // Before Linux 6.6 the flag is unknown; bound without it, the queue's number is told
            // from the flag.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                attempt(flags).and(Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)))
            }
            Err(error) => Err(error),
        }
    };
    match plain {
        Ok(_) => Ok(false),
        Err(error) => Err(match error.raw_os_error() {
            Some(libc::EBUSY) => OpenError::Taken,
            Some(libc::EINVAL) => OpenError::NoSuchQueue,
            Some(libc::EOPNOTSUPP) if !fits => OpenError::Chains { mtu: interface.mtu },
            _ => OpenError::System("binding an AF_XDP socket to", error),
        }),
    }
}

/// Hands all chunks to receive into to the kernel.
fn fill(socket: BorrowedFd<'_>, geometry: Geometry) -> io::Result<()> {
    let offsets = Offsets::of(socket)?;
    let mut fill = Producer::<u64>::map(
        socket,
        &offsets.fill,
        libc::XDP_UMEM_PGOFF_FILL_RING,
        geometry.chunks,
    )?;
    for chunk in Umem::receive_chunks(geometry) {
        fill.write(chunk);
    }
    fill.publish();
    Ok(())
}
