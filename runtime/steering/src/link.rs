//! A program at an interface, held there by a descriptor.
//!
//! A link goes with its last descriptor, whoever has that: a broker, a copy of it, or the program that it has become.
//! What is attached by netlink, as on kernels before 5.9, stays until somebody takes it off, and nobody knows whether he
//! is the last who wants it. Our XDP program needs Linux 5.18, so there is no other way here.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Where it sits.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// An XDP program in the driver.
    InDriver,
    /// An XDP program behind it.
    BehindDriver,
    /// A classifier, where packet sockets have had their copy and the kernel's stack begins (tcx, from Linux 6.6 on).
    Ingress,
}

/// Of `enum bpf_cmd` of linux/bpf.h.
const BPF_LINK_CREATE: libc::c_int = 28;
/// As above.
const BPF_LINK_DETACH: libc::c_int = 34;

impl Place {
    /// Its `enum bpf_attach_type`, and flags.
    fn attributes(self) -> (u32, u32) {
        const BPF_XDP: u32 = 37;
        const BPF_TCX_INGRESS: u32 = 46;
        // Of linux/if_link.h.
        const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
        const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
        match self {
            Place::InDriver => (BPF_XDP, XDP_FLAGS_DRV_MODE),
            Place::BehindDriver => (BPF_XDP, XDP_FLAGS_SKB_MODE),
            Place::Ingress => (BPF_TCX_INGRESS, 0),
        }
    }
}

/// The first members of `union bpf_attr` for `BPF_LINK_CREATE`; the kernel takes the others as 0.
#[repr(C)]
struct Attributes {
    program: RawFd,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// Puts a program to the interface of this number.
pub(crate) fn attach(program: BorrowedFd<'_>, interface: u32, place: Place) -> io::Result<OwnedFd> {
    let (attach_type, flags) = place.attributes();
    let attributes = Attributes {
        program: program.as_raw_fd(),
        interface,
        attach_type,
        flags,
    };
    // SAFETY: the attributes outlive the call, their size is given, and the kernel only reads them.
    let link = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_LINK_CREATE,
            &raw const attributes,
            size_of::<Attributes>(),
        )
    };
    match RawFd::try_from(link) {
        // SAFETY: the kernel just made this descriptor (closed on exec), and nobody else has it.
        Ok(link) if link >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(link) }),
        Ok(_) | Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Takes the program off, whoever else has descriptors of the link, which are of no use any more.
pub(crate) fn detach(link: BorrowedFd<'_>) -> io::Result<()> {
    let link = link.as_raw_fd();
    // SAFETY: the first member of `union bpf_attr` for this command, all that the kernel reads, outlives the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_LINK_DETACH,
            &raw const link,
            size_of::<RawFd>(),
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// An interface's number in the calling thread's network namespace.
pub(crate) fn index_of(interface: &str) -> io::Result<u32> {
    let name = CString::new(interface)?;
    // SAFETY: the name ends with a zero and outlives the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}
