//! What a component's event loop needs, and must still have. Each panics if it doesn't work.

use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// One need.
pub struct Need {
    pub name: &'static str,
    pub run: fn(&Given),
}

/// What a component has when it enters the sandbox.
pub struct Given {
    pub bell: OwnedFd,
    /// An epoll set.
    pub set: OwnedFd,
}

impl Given {
    pub fn new() -> Given {
        Given {
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("eventfd"),
            set: epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll"),
        }
    }
}

/// All of them.
pub const NEEDS: &[Need] = &[
    need("allocate, grow and give back", |_| {
        thread_local!(static GROWN: RefCell<Vec<Vec<u64>>> = const { RefCell::new(Vec::new()) });
        GROWN.with_borrow_mut(|grown| {
            for power in 0..24 {
                let mut one = Vec::with_capacity(1);
                one.extend(0..1u64 << power.min(20));
                grown.push(one);
            }
            let sum: u64 = grown.iter().map(|one| one.len() as u64).sum();
            assert_eq!(sum, (1 << 21) - 1 + 3 * (1 << 20));
            grown.clear();
            grown.shrink_to_fit();
        });
        let random: HashMap<u32, u32> = (0..1000).map(|n| (n, n)).collect();
        assert_eq!(random[&999], 999);
    }),
    need("ring, wait and be woken", |Given { bell, set }| {
        let data = epoll::EventData::new_u64(7);
        epoll::add(set, bell, data, epoll::EventFlags::IN).expect("add");
        rustix::io::write(bell, &1u64.to_ne_bytes()).expect("ring");
        let mut events = Vec::with_capacity(4);
        let room = rustix::buffer::spare_capacity(&mut events);
        assert_eq!(epoll::wait(set, room, None).expect("wait"), 1);
        let mut polled = [PollFd::new(bell, PollFlags::IN)];
        assert_eq!(poll(&mut polled, None).expect("poll"), 1);
        let mut count = [0; 8];
        let mut read = || {
            let mut space = [IoSliceMut::new(&mut count)];
            let flags = rustix::io::ReadWriteFlags::NOWAIT;
            rustix::io::preadv2(bell, &mut space, u64::MAX, flags)
        };
        assert_eq!(read(), Ok(8));
        assert_eq!(read(), Err(rustix::io::Errno::AGAIN));
        assert_eq!(u64::from_ne_bytes(count), 1);
    }),
    need("tell the time and wait for it", |Given { bell, .. }| {
        let start = Instant::now();
        let mut polled = [PollFd::new(bell, PollFlags::IN)];
        let short = Duration::from_millis(1);
        let limit = short.try_into().expect("short");
        assert_eq!(poll(&mut polled, Some(&limit)).expect("poll"), 0);
        assert!(start.elapsed() >= short);
    }),
    need("be handed memory, map it and look at its seals", |_| {
        let memory = receive(std::io::stdin().as_fd());
        let seals = rustix::fs::fcntl_get_seals(&memory).expect("seals");
        assert!(seals.contains(SealFlags::SHRINK));
        let bytes = rustix::fs::fstat(&memory).expect("size").st_size as usize;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        let here = std::ptr::null_mut();
        // SAFETY: a new mapping, wherever the kernel likes.
        let base = unsafe { rustix::mm::mmap(here, bytes, protection, flags, &memory, 0) };
        let base = base.expect("map").cast::<u8>();
        // SAFETY: inside the mapping, which nobody else has yet, and which ends here.
        unsafe {
            assert_eq!(base.read_volatile(), b'm');
            base.write_volatile(b'n');
            rustix::mm::munmap(base.cast(), bytes).expect("unmap");
        }
    }),
    need("log, and duplicate and close descriptors", |given| {
        std::io::stderr().write_all(b"a line\n").expect("log");
        drop(given.bell.try_clone().expect("duplicate"));
    }),
    need("catch a panic", |_| {
        let result = std::panic::catch_unwind(|| panic!("caught"));
        assert!(result.is_err());
    }),
];

const fn need(name: &'static str, run: fn(&Given)) -> Need {
    Need { name, run }
}

/// A page of memory that begins with `m`.
pub fn make_memory() -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = rustix::fs::memfd_create("skink-test", flags).expect("memory");
    rustix::fs::ftruncate(&memory, 4096).expect("a page");
    rustix::io::write(&memory, b"m").expect("write");
    rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW).expect("seal");
    memory
}

/// The descriptor that comes with the next message.
fn receive(socket: BorrowedFd<'_>) -> OwnedFd {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(
        socket.as_fd(),
        &mut parts,
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )
    .expect("receive");
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    descriptor.expect("a descriptor")
}
