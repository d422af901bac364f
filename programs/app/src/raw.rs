//! System calls without libc, for the library's own use: libc's functions are the ones that are
//! interposed here, and a call of ours must not come back to us.
use crate::errno::{Answer, Stop};
use core::cell::Cell;
use core::ffi::{CStr, c_int, c_void};
use skink_time::Instant;
use std::time::Duration;

/// Makes system call `number`; a negative answer is an errno.
///
/// # Safety
/// As the system call's.
#[cfg(target_arch = "x86_64")]
#[inline]
pub unsafe fn syscall(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let answer: isize;
    // SAFETY: the kernel keeps all registers but these; the caller vouches for the call's effects.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    answer
}

/// Makes system call `number`; a negative answer is an errno.
///
/// # Safety
/// As the system call's.
#[cfg(target_arch = "aarch64")]
#[inline]
pub unsafe fn syscall(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let answer: isize;
    // SAFETY: the kernel keeps all registers but these; the caller vouches for the call's effects.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a => answer,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack)
        );
    }
    answer
}

/// A word of the calling thread's, and what it must be for the thread to go to sleep.
#[derive(Clone, Copy)]
pub struct Unless {
    word: *const u64,
    expected: u64,
}

impl Unless {
    /// The thread sleeps as long as `word`, which its signal handlers may change, is as it is now.
    pub fn changed(word: &Cell<u64>) -> Unless {
        Unless {
            word: word.as_ptr(),
            expected: word.get(),
        }
    }
}

static ZERO: u64 = 0;
/// The thread sleeps in any case.
pub const NEVER: Unless = Unless {
    word: &raw const ZERO,
    expected: 0,
};

unsafe extern "C" {
    /// Where [`wait_in_kernel`] goes on after its system call.
    static skink_after_wait: u8;
}

/// Makes a system call that waits, or answers `-EINTR` at once if the word isn't what is expected.
///
/// A signal handler that runs meanwhile may end the thread (`pthread_exit`), by which libc unwinds its stack from here on. So this isn't an
/// instruction among others, of which the compiler knows that nothing is unwound there. One that runs after the word was
/// looked at, and before the thread sleeps, is seen by where it has interrupted this: see [`skip_wait`]. (musl cancels threads
/// so.)
///
/// # Safety
/// As the system call's; the word must be readable.
#[unsafe(naked)]
unsafe extern "C-unwind" fn wait_in_kernel(
    number: libc::c_long,
    arguments: *const [usize; 6],
    word: *const u64,
    expected: u64,
) -> isize {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "cmp [rdx], rcx",
        "jne 2f",
        "mov rax, rdi",
        "mov r11, rsi",
        "mov rdi, [r11]",
        "mov rsi, [r11 + 8]",
        "mov rdx, [r11 + 16]",
        "mov r10, [r11 + 24]",
        "mov r8, [r11 + 32]",
        "mov r9, [r11 + 40]",
        "syscall",
        ".globl skink_after_wait",
        ".hidden skink_after_wait",
        "skink_after_wait:",
        "ret",
        "2:",
        "mov rax, {interrupted}",
        "ret",
        ".cfi_endproc",
        interrupted = const -libc::EINTR,
    );
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "ldr x9, [x2]",
        "cmp x9, x3",
        "b.ne 2f",
        "mov x8, x0",
        "mov x9, x1",
        "ldp x0, x1, [x9]",
        "ldp x2, x3, [x9, #16]",
        "ldp x4, x5, [x9, #32]",
        "svc 0",
        ".globl skink_after_wait",
        ".hidden skink_after_wait",
        "skink_after_wait:",
        "ret",
        "2:",
        "mov x0, #{interrupted}",
        "ret",
        ".cfi_endproc",
        interrupted = const -libc::EINTR,
    );
}

/// For a signal handler: if it has interrupted the thread right before it goes to sleep, or where the kernel would begin the wait
/// anew, the thread won't sleep, but find that it was interrupted.
///
/// # Safety
/// `context` must be the kernel's.
pub unsafe fn skip_wait(context: *mut libc::ucontext_t) {
    let before = wait_in_kernel as *const () as usize;
    let after = (&raw const skink_after_wait) as usize;
    // SAFETY: the caller's promise.
    let registers = unsafe { &mut (*context).uc_mcontext };
    #[cfg(target_arch = "x86_64")]
    {
        let registers = &mut registers.gregs;
        if (before..after).contains(&(registers[libc::REG_RIP as usize] as usize)) {
            registers[libc::REG_RIP as usize] = after as i64;
            registers[libc::REG_RAX as usize] = i64::from(-libc::EINTR);
        }
    }
    #[cfg(target_arch = "aarch64")]
    if (before..after).contains(&(registers.pc as usize)) {
        registers.pc = after as u64;
        registers.regs[0] = i64::from(-libc::EINTR) as u64;
    }
}

/// As [`call`], for one that waits.
///
/// # Safety
/// As the system call's.
pub unsafe fn waiting_call(
    number: libc::c_long,
    arguments: [usize; 6],
    unless: Unless,
) -> Answer<usize> {
    let Unless { word, expected } = unless;
    // SAFETY: as the caller's; the word is there for as long as its thread.
    match unsafe { wait_in_kernel(number, &raw const arguments, word, expected) } {
        answer @ 0.. => Ok(answer as usize),
        errno => Err(Stop::Errno(-errno as c_int)),
    }
}

/// As [`syscall`], with the errno as an error.
///
/// # Safety
/// As the system call's.
#[inline]
pub unsafe fn call(number: libc::c_long, arguments: [usize; 6]) -> Answer<usize> {
    // SAFETY: as the caller's.
    let answer = unsafe { syscall(number, arguments) };
    if answer < 0 {
        Err(Stop::Errno(-answer as c_int))
    } else {
        Ok(answer as usize)
    }
}

/// Reads a file from `offset` on, as far as that takes no wait: what is in the page cache, or in a file system that
/// is nothing but memory.
///
/// # Safety
/// The list must describe memory that may be written.
pub unsafe fn pread_at_hand(file: c_int, list: &[libc::iovec], offset: i64) -> Answer {
    let read = |flags: c_int| {
        let (at, count) = (list.as_ptr() as usize, list.len());
        let arguments = [file as usize, at, count, offset as usize, 0, flags as usize];
        // SAFETY: as the caller's.
        unsafe { call(libc::SYS_preadv2, arguments) }
    };
    match read(libc::RWF_NOWAIT) {
        Err(Stop::Errno(libc::EOPNOTSUPP)) if is_memory(file) => read(0),
        answer => answer,
    }
}

/// Of linux/magic.h.
const RAMFS_MAGIC: libc::__fsword_t = 0x8584_58f6;

/// Whether a file is of a file system without a disk: these don't know `RWF_NOWAIT`.
fn is_memory(file: c_int) -> bool {
    // SAFETY: all zeros are a valid statfs.
    let mut found: libc::statfs = unsafe { core::mem::zeroed() };
    let arguments = [file as usize, &raw mut found as usize, 0, 0, 0, 0];
    // SAFETY: the kernel writes a statfs.
    let answer = unsafe { call(libc::SYS_fstatfs, arguments) };
    answer.is_ok() && [libc::TMPFS_MAGIC, RAMFS_MAGIC].contains(&found.f_type)
}

/// Closes a descriptor of ours.
pub fn close(fd: c_int) {
    // SAFETY: the number alone goes to the kernel.
    let _ = unsafe { syscall(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// The process's id, asked of the kernel: after `vfork` it tells the child from its parent, whose
/// memory it uses.
pub fn process_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_getpid, [0; 6]) as u32 }
}

/// The kernel's number for the calling thread.
pub fn thread_id() -> c_int {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_gettid, [0; 6]) as c_int }
}

/// Signals a thread of this process, by the kernel's number for it; 0 is no signal. Answers whether it is there.
pub fn signal_thread(thread: c_int, signal: c_int) -> bool {
    let arguments = [
        process_id() as usize,
        thread as usize,
        signal as usize,
        0,
        0,
        0,
    ];
    // SAFETY: no memory is passed.
    unsafe { syscall(libc::SYS_tgkill, arguments) >= 0 }
}

/// Sleeps for so long, or until a signal.
pub fn pause(time: Duration) {
    let _ = ppoll(&mut [], Some(time), core::ptr::null());
}

/// `fcntl` on a descriptor.
pub fn fcntl(fd: c_int, command: c_int, argument: usize) -> Answer<usize> {
    let arguments = [fd as usize, command as usize, argument, 0, 0, 0];
    // SAFETY: used with commands whose argument is a number.
    unsafe { call(libc::SYS_fcntl, arguments) }
}

/// An eventfd that doesn't block.
pub fn eventfd() -> Answer<c_int> {
    let flags = (libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) as usize;
    // SAFETY: no memory is passed.
    unsafe { call(libc::SYS_eventfd2, [0, flags, 0, 0, 0, 0]) }.map(|fd| fd as c_int)
}

/// An epoll set.
pub fn epoll_create() -> Answer<c_int> {
    let flags = libc::EPOLL_CLOEXEC as usize;
    // SAFETY: no memory is passed.
    unsafe { call(libc::SYS_epoll_create1, [flags, 0, 0, 0, 0, 0]) }.map(|fd| fd as c_int)
}

/// `epoll_pwait`, to the next millisecond; no `timeout` waits for ever. `mask` is the caller's 8-byte signal set, or null.
/// Answers how many events there are.
pub fn epoll_wait(
    set: c_int,
    events: &mut [libc::epoll_event],
    timeout: Option<Duration>,
    mask: *const c_void,
    unless: Unless,
) -> Answer<usize> {
    let milliseconds = timeout.map_or(-1, |timeout| {
        c_int::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
    });
    let (at, room) = (events.as_mut_ptr() as usize, events.len());
    let arguments = [
        set as usize,
        at,
        room,
        milliseconds as usize,
        mask as usize,
        8,
    ];
    // SAFETY: the events are borrowed; the program vouches for its signal set.
    unsafe { waiting_call(libc::SYS_epoll_pwait, arguments, unless) }
}

/// Reads the beginning of a file.
pub fn read_file(path: &CStr, into: &mut [u8]) -> Answer<usize> {
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    let path = path.as_ptr() as usize;
    let (at, room) = (into.as_mut_ptr() as usize, into.len());
    // SAFETY: the path is a C string.
    let fd = unsafe {
        call(
            libc::SYS_openat,
            [libc::AT_FDCWD as usize, path, flags, 0, 0, 0],
        )
    }?;
    // SAFETY: the bytes are borrowed.
    let answer = unsafe { call(libc::SYS_read, [fd, at, room, 0, 0, 0]) };
    close(fd as c_int);
    answer
}

/// A pipe: its reading end and its writing end.
pub fn pipe() -> Answer<[c_int; 2]> {
    let mut ends = [-1; 2];
    let arguments = [
        ends.as_mut_ptr() as usize,
        libc::O_CLOEXEC as usize,
        0,
        0,
        0,
        0,
    ];
    // SAFETY: the ends are ours.
    unsafe { call(libc::SYS_pipe2, arguments) }.map(|_| ends)
}

/// Rings an eventfd.
pub fn ring(eventfd: c_int) {
    let one = 1u64;
    let at = &raw const one as usize;
    // SAFETY: eight bytes at `at` are readable.
    let _ = unsafe { syscall(libc::SYS_write, [eventfd as usize, at, 8, 0, 0, 0]) };
}

/// Makes an eventfd quiet again.
pub fn hush(eventfd: c_int) {
    let mut count = 0u64;
    let at = &raw mut count as usize;
    // SAFETY: eight bytes at `at` are ours.
    let _ = unsafe { syscall(libc::SYS_read, [eventfd as usize, at, 8, 0, 0, 0]) };
}

/// Has the kernel send what is in the ring of an AF_XDP socket; `false` if it didn't.
pub fn kick(socket: c_int) -> bool {
    let arguments = [socket as usize, 0, 0, libc::MSG_DONTWAIT as usize, 0, 0];
    // SAFETY: no memory is handed over.
    unsafe { syscall(libc::SYS_sendto, arguments) >= 0 }
}

/// Makes the bell of a stack in another process quiet again: an eventfd or a pipe that doesn't block.
/// `false` if nobody can ring it any more.
pub fn hush_bell(bell: c_int) -> bool {
    let mut rung = [0u8; 256];
    let at = rung.as_mut_ptr() as usize;
    let arguments = [bell as usize, at, rung.len(), 0, 0, 0];
    // SAFETY: the bytes are ours.
    unsafe { syscall(libc::SYS_read, arguments) != 0 }
}

/// What [`ppoll`] is to look at: these events of a descriptor. Of -1 there are none.
pub const fn to_poll(fd: c_int, events: libc::c_short) -> libc::pollfd {
    libc::pollfd {
        fd,
        events,
        revents: 0,
    }
}

/// `ppoll`; no `timeout` waits for ever. `mask` is the caller's 8-byte signal set, or null.
pub fn ppoll(
    list: &mut [libc::pollfd],
    timeout: Option<Duration>,
    mask: *const c_void,
) -> Answer<usize> {
    ppoll_unless(list, timeout, mask, NEVER)
}

/// As [`ppoll`], if a word is as it was.
pub fn ppoll_unless(
    list: &mut [libc::pollfd],
    timeout: Option<Duration>,
    mask: *const c_void,
    unless: Unless,
) -> Answer<usize> {
    let mut spec = timeout.map(timespec);
    let at = spec.as_mut().map_or(0, |spec| &raw mut *spec as usize);
    let arguments = [
        list.as_mut_ptr() as usize,
        list.len(),
        at,
        mask as usize,
        8,
        0,
    ];
    // SAFETY: the list and the time are borrowed; the program vouches for its signal set.
    unsafe { waiting_call(libc::SYS_ppoll, arguments, unless) }
}

/// Who wakes, and is woken, by a futex.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Threads of this process.
    Process = libc::FUTEX_PRIVATE_FLAG as isize,
    /// Whoever has mapped the memory.
    Shared = 0,
}

/// Waits until what `word` leads to isn't `expected` any more and somebody wakes us. Only the kernel follows the pointer.
pub fn futex_wait(word: *mut u32, expected: u32, timeout: Option<Duration>) -> Answer<usize> {
    futex_wait_unless(Scope::Process, word, expected, timeout, NEVER)
}

/// As [`futex_wait`], if a word of the thread's own is as it was.
pub fn futex_wait_unless(
    scope: Scope,
    word: *mut u32,
    expected: u32,
    timeout: Option<Duration>,
    unless: Unless,
) -> Answer<usize> {
    let spec = timeout.map(timespec);
    let at = spec.as_ref().map_or(0, |spec| &raw const *spec as usize);
    let operation = libc::FUTEX_WAIT as usize | scope as usize;
    let arguments = [word as usize, operation, expected as usize, at, 0, 0];
    // SAFETY: the time is borrowed, and the word is read only, if it is there.
    unsafe { waiting_call(libc::SYS_futex, arguments, unless) }
}

/// Wakes up to `count` waiters.
pub fn futex_wake(word: *mut u32, count: u32) {
    futex_wake_in(Scope::Process, word, count);
}

/// As [`futex_wake`].
pub fn futex_wake_in(scope: Scope, word: *mut u32, count: u32) {
    let operation = libc::FUTEX_WAKE as usize | scope as usize;
    let arguments = [word as usize, operation, count as usize, 0, 0, 0];
    // SAFETY: the word's address is all that counts.
    let _ = unsafe { syscall(libc::SYS_futex, arguments) };
}

/// Lets others run that want this processor.
pub fn give_way() {
    // SAFETY: no memory is involved.
    unsafe { syscall(libc::SYS_sched_yield, [0; 6]) };
}

/// What all threads of the process have used of processors so far: that of threads on other processors is as old as the last tick of
/// the kernel's clock.
pub fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// On how many processors the process's first thread may run, if it may on one of the first 1,024; or 1.
pub fn processors() -> u32 {
    let process = rustix::process::getpid();
    let set = rustix::thread::sched_getaffinity(Some(process));
    set.map_or(1, |set| set.count())
}

/// Where the handler of a signal is that the kernel was given, if it was, and whether that makes calls go on (`SA_RESTART`).
pub fn handler(signal: c_int) -> Option<(usize, bool)> {
    // The kernel's structure: handler, flags, restorer, mask.
    let mut action = [0usize; 4];
    let arguments = [signal as usize, 0, action.as_mut_ptr() as usize, 8, 0, 0];
    // SAFETY: the structure is ours and large enough.
    let answer = unsafe { syscall(libc::SYS_rt_sigaction, arguments) };
    let handled = answer >= 0 && action[0] != libc::SIG_DFL && action[0] != libc::SIG_IGN;
    handled.then_some((action[0], action[1] & libc::SA_RESTART as usize != 0))
}

/// Replaces the calling thread's signal mask (8 bytes, as the kernel has it).
pub fn set_signals(mask: u64) {
    let arguments = [
        libc::SIG_SETMASK as usize,
        &raw const mask as usize,
        0,
        8,
        0,
        0,
    ];
    // SAFETY: the set is ours, of the size that is given.
    unsafe { syscall(libc::SYS_rt_sigprocmask, arguments) };
}

/// A time span as the kernel takes it.
pub fn timespec(span: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(span.subsec_nanos()),
    }
}

/// The time now, by `CLOCK_MONOTONIC` (no system call: the vDSO answers).
#[inline]
pub fn now() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Instant::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
