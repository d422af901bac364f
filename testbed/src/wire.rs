use crate::host::Host;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a bad cable does to frames. Chances are in parts of 10,000.
#[derive(Clone, Copy, Debug, Default)]
pub struct Impairments {
    /// Chance that a frame is lost.
    pub loss: u32,
    /// Chance that a frame arrives twice.
    pub duplicate: u32,
    /// Chance that a frame is held back by 2 ms, so that later ones overtake it.
    pub reorder: u32,
    /// How long every frame takes.
    pub delay: Duration,
}

/// A cable with [`Impairments`] between two interfaces of one host: a thread that carries frames
/// from each to the other. (The test machines' kernels have no netem.)
pub struct Wire {
    stop: Arc<AtomicBool>,
    carried: Arc<AtomicU64>,
    lost: Arc<AtomicU64>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

/// Frames under way at most in each direction; what comes beyond is lost, as in a switch.
const QUEUE: usize = 20_000;
const LARGEST_FRAME: usize = 70_000;

impl Wire {
    /// Joins interfaces `a` and `b` of `host`. The same seed draws the same chances, though what
    /// they fall on depends on the order in which frames come.
    pub fn start(host: &Host, a: &str, b: &str, bad: Impairments, seed: u64) -> io::Result<Wire> {
        let stop = Arc::new(AtomicBool::new(false));
        let carried = Arc::new(AtomicU64::new(0));
        let lost = Arc::new(AtomicU64::new(0));
        let mut threads = Vec::new();
        for (index, (from, to)) in [(a, b), (b, a)].into_iter().enumerate() {
            let (from, to) = (from.to_owned(), to.to_owned());
            let mut direction = Direction {
                bad,
                random: seed.wrapping_mul(2).wrapping_add(index as u64) | 1,
                queue: BinaryHeap::new(),
                number: 0,
                stop: stop.clone(),
                carried: carried.clone(),
                lost: lost.clone(),
            };
            let work = move || {
                let input = packet_socket(&from)?;
                let output = packet_socket(&to)?;
                direction.run(&input, &output)
            };
            let thread = host.thread(work)?;
            threads.push(std::thread::spawn(move || match thread.join() {
                Ok(result) => result.and_then(|result| result),
                Err(_) => Err(io::Error::other("the wire's thread panicked")),
            }));
        }
        Ok(Wire {
            stop,
            carried,
            lost,
            threads,
        })
    }

    /// Frames carried and lost so far.
    pub fn frames(&self) -> (u64, u64) {
        (
            self.carried.load(Ordering::Relaxed),
            self.lost.load(Ordering::Relaxed),
        )
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

struct Direction {
    bad: Impairments,
    random: u64,
    queue: BinaryHeap<Reverse<(Instant, u64, Vec<u8>)>>,
    number: u64,
    stop: Arc<AtomicBool>,
    carried: Arc<AtomicU64>,
    lost: Arc<AtomicU64>,
}

impl Direction {
    fn run(&mut self, input: &OwnedFd, output: &OwnedFd) -> io::Result<()> {
        let mut buffer = vec![0; LARGEST_FRAME];
        while !self.stop.load(Ordering::Relaxed) {
            self.wait(input)?;
            while let Some(length) = receive(input, &mut buffer) {
                self.take(&buffer[..length]);
            }
            let now = Instant::now();
            while let Some(Reverse((due, _, _))) = self.queue.peek() {
                if *due > now {
                    break;
                }
                if let Some(Reverse((_, _, frame))) = self.queue.pop() {
                    send(output, &frame);
                    self.carried.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    /// Waits for a frame, for the next one to be due, or 50 ms.
    fn wait(&self, input: &OwnedFd) -> io::Result<()> {
        let longest = Duration::from_millis(50);
        let timeout = match self.queue.peek() {
            Some(Reverse((due, _, _))) => {
                due.saturating_duration_since(Instant::now()).min(longest)
            }
            None => longest,
        };
        let mut poll = [rustix::event::PollFd::new(
            input,
            rustix::event::PollFlags::IN,
        )];
        let timeout = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match rustix::event::poll(&mut poll, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn take(&mut self, frame: &[u8]) {
        if self.chance(self.bad.loss) || self.queue.len() >= QUEUE {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut due = Instant::now() + self.bad.delay;
        if self.chance(self.bad.reorder) {
            due += Duration::from_millis(2);
        }
        let copies = 1 + u32::from(self.chance(self.bad.duplicate));
        for _ in 0..copies {
            self.number += 1;
            self.queue.push(Reverse((due, self.number, frame.to_vec())));
        }
    }

    fn chance(&mut self, of_ten_thousand: u32) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 10_000 < u64::from(of_ten_thousand)
    }
}

/// A socket that takes and gives whole frames of interface `name`, but not what it sent itself.
fn packet_socket(name: &str) -> io::Result<OwnedFd> {
    let protocol = (libc::ETH_P_ALL as u16).to_be();
    // SAFETY: plain system calls on plain values; each result is checked.
    unsafe {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        let fd = check(libc::socket(libc::AF_PACKET, kind, i32::from(protocol)))?;
        let fd = OwnedFd::from_raw_fd(fd);
        let one: libc::c_int = 1;
        let large: libc::c_int = 16 << 20;
        let options = [
            (libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, one),
            (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, large),
            (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, large),
        ];
        for (level, option, value) in options {
            let size = size_of::<libc::c_int>() as u32;
            // The buffer sizes are wishes only.
            let _ = libc::setsockopt(
                fd.as_raw_fd(),
                level,
                option,
                (&raw const value).cast(),
                size,
            );
        }
        let c_name = std::ffi::CString::new(name)?;
        let index = libc::if_nametoindex(c_name.as_ptr());
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index as i32;
        let size = size_of::<libc::sockaddr_ll>() as u32;
        check(libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            size,
        ))?;
        let mut promiscuous: libc::packet_mreq = std::mem::zeroed();
        promiscuous.mr_ifindex = index as i32;
        promiscuous.mr_type = libc::PACKET_MR_PROMISC as u16;
        let size = size_of::<libc::packet_mreq>() as u32;
        check(libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            (&raw const promiscuous).cast(),
            size,
        ))?;
        Ok(fd)
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn receive(fd: &OwnedFd, buffer: &mut [u8]) -> Option<usize> {
    // SAFETY: the buffer is valid for its length.
    let length = unsafe { libc::recv(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    usize::try_from(length).ok()
}

fn send(fd: &OwnedFd, frame: &[u8]) {
    // SAFETY: the frame is valid for its length. A frame that doesn't go is lost, as on any wire.
    let _ = unsafe { libc::send(fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
}
