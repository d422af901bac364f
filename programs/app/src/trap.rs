//! System calls that the program makes by instructions of its own.
//!
//! A preloaded library stands before libc's functions. Rust's `rustix` and what is built on it (smol, async-std), Zig and Bun call the
//! kernel themselves, at least to wait: a socket that was made by libc, and is Skink's, then never has anything to tell. So if
//! the program's own code seems to do that ([`scan`]), the kernel is told to send a signal in place of each system call whose
//! instruction is there (Syscall User Dispatch, Linux 5.11; prctl(2)), and its handler makes the call by libc's `syscall`, which leads
//! [here](crate::entry) as from anybody. That takes about a microsecond. Libraries, this one and libc among them, call the kernel as
//! ever.
//!
//! The kernel forgets it for each new thread and process, which begin in libc: there it is told again.

use crate::log::{log, write};
use crate::{cancel, entry, next, raw};
use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};
use libc::{siginfo_t, ucontext_t};

mod scan;

/// Of prctl(2), and the two values of the byte by which a thread says whether its calls are to be signals.
const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;
const PR_SYS_DISPATCH_ON: usize = 1;
const ALLOW: u8 = 0;
const BLOCK: u8 = 1;
/// In a signal's `si_code`: that is why it was sent.
const SYS_USER_DISPATCH: c_int = 2;

/// In a set of signals as the kernel has it.
const SIGNAL: u64 = 1 << (libc::SIGSYS - 1);

/// The addresses of instructions that may call the kernel: where they begin, and how many; none while nothing is trapped.
static ALLOWED: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

thread_local! {
    static SELECTOR: Cell<u8> = const { Cell::new(BLOCK) };
}

/// Whether calls by the program's own instructions are trapped.
pub fn is_on() -> bool {
    ALLOWED[1].load(Ordering::Relaxed) != 0
}

/// When the library is loaded, by the first thread: traps the program's own calls, if it seems to make some.
pub fn start() {
    let Some(program) = Program::find() else {
        return;
    };
    let mut calls = program.code().flat_map(scan::own_calls).collect::<Vec<_>>();
    calls.sort_unstable();
    calls.dedup();
    if calls.is_empty() {
        return;
    }
    let calls = calls.join(", ");
    // Its threads have stacks too small for a handler, handlers for all signals, and begin and end past libc.
    let is_trapped = !program.is_gos()
        && program.others().is_some_and(|others| {
            ALLOWED[0].store(others.start, Ordering::Relaxed);
            ALLOWED[1].store(others.len(), Ordering::Relaxed);
            handle() && arm()
        });
    if is_trapped {
        log!(
            Info,
            "the program calls the kernel itself ({calls}): its calls are trapped"
        );
    } else {
        ALLOWED[1].store(0, Ordering::Relaxed);
        write(format_args!(
            "this program seems to call the kernel itself, past libc ({calls}), and that can't be trapped here: its connections are the kernel's, or wait for ever"
        ));
    }
}

/// Takes the signal out of a mask that the program wants: a call that is trapped while it is blocked would end the process.
pub fn leave_open(mask: &mut libc::sigset_t) {
    // SAFETY: a mask, and a number.
    unsafe { libc::sigdelset(mask, libc::SIGSYS) };
}

/// The calling thread's calls are trapped from now on, if the program's are. Answers whether they are.
pub fn arm() -> bool {
    if !is_on() {
        return false;
    }
    // Whoever made the thread, or executed the program, may have had it blocked.
    let signal = SIGNAL;
    let arguments = [
        libc::SIG_UNBLOCK as usize,
        &raw const signal as usize,
        0,
        size_of_val(&signal),
        0,
        0,
    ];
    // SAFETY: the set is there.
    unsafe { raw::syscall(libc::SYS_rt_sigprocmask, arguments) };
    let [start, count] = ALLOWED.each_ref().map(|word| word.load(Ordering::Relaxed));
    let selector = SELECTOR.with(Cell::as_ptr) as usize;
    let arguments = [
        PR_SET_SYSCALL_USER_DISPATCH,
        PR_SYS_DISPATCH_ON,
        start,
        count,
        selector,
        0,
    ];
    // SAFETY: only numbers, and the place of a byte that the thread has for as long as instructions that aren't allowed run in it.
    unsafe { raw::syscall(libc::SYS_prctl, arguments) == 0 }
}

/// Gives the signal its handler. The program can't have another one for it then.
fn handle() -> bool {
    // SAFETY: all zeros is such a structure, and the handler is one as its flags say.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = trapped as *const () as usize;
        // A handler of the program's that comes while a call is made in this one may make calls, too.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_RESTART;
        next::sigaction(libc::SIGSYS, &raw const action, core::ptr::null_mut()) == 0
    }
}

/// The registers that hold a call's number and its answer, and its arguments.
const NUMBER: usize = libc::REG_RAX as usize;
const ARGUMENTS: [c_int; 6] = [
    libc::REG_RDI,
    libc::REG_RSI,
    libc::REG_RDX,
    libc::REG_R10,
    libc::REG_R8,
    libc::REG_R9,
];
/// Of the instruction.
const SYSCALL_BYTES: i64 = 2;

unsafe extern "C-unwind" fn trapped(_: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives both to the handler of a signal.
    let (code, context) = unsafe { ((*info).si_code, &mut *context.cast::<ucontext_t>()) };
    if code != SYS_USER_DISPATCH {
        return end_by_signal();
    }
    let registers = &mut context.uc_mcontext.gregs;
    let number = registers[NUMBER];
    let arguments = ARGUMENTS.map(|register| registers[register as usize] as usize);
    if must_be_made_there(number, arguments) {
        // From now on nothing is trapped in this thread: what it does next may be on another stack, or in another thread.
        SELECTOR.set(ALLOW);
        registers[libc::REG_RIP as usize] -= SYSCALL_BYTES;
        return;
    }
    // SAFETY: the program's own arguments.
    let answer = unsafe {
        match number {
            // What the handler's end puts back.
            libc::SYS_rt_sigprocmask => change_mask(context, arguments),
            libc::SYS_sigaltstack => change_stack(context, arguments),
            // A frame of the program's, to which its stack pointer leads.
            libc::SYS_rt_sigreturn => {
                registers[libc::REG_RIP as usize] = end_of_handler as *const () as i64;
                return;
            }
            libc::SYS_rt_sigaction => change_action(arguments),
            _ => call(number, arguments),
        }
    };
    context.uc_mcontext.gregs[NUMBER] = answer as i64;
}

/// `rt_sigreturn`, by an instruction that is allowed, with the stack as it is.
#[unsafe(naked)]
unsafe extern "C" fn end_of_handler() {
    core::arch::naked_asm!("mov eax, {number}", "syscall", "ud2", number = const libc::SYS_rt_sigreturn)
}

/// Whether a call goes on with what the instruction's place has: on another stack, or in memory that a child shares.
fn must_be_made_there(number: i64, [flags, stack, ..]: [usize; 6]) -> bool {
    match number {
        libc::SYS_clone => flags & libc::CLONE_VM as usize != 0 || stack != 0,
        libc::SYS_clone3 | libc::SYS_vfork => true,
        _ => false,
    }
}

/// Makes a call as libc's `syscall`. Answers as the kernel does. The thread isn't cancelled in it, as it wouldn't be in the kernel: its
/// code there counts on that.
///
/// # Safety
/// As the call's.
unsafe fn call(number: i64, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    // SAFETY: the thread's own; the program expects it as it was.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above, and the caller's promise.
    unsafe {
        let before = *errno;
        let answer =
            cancel::not_during(|| entry::process::syscall(number, a, b, c, d, e, f)) as isize;
        let error = core::mem::replace(&mut *errno, before);
        if answer == -1 {
            -(error as isize)
        } else {
            answer
        }
    }
}

/// `rt_sigaction`. This signal has its handler, and others' leave it open.
///
/// # Safety
/// As the call's.
unsafe fn change_action([signal, new, old, size, ..]: [usize; 6]) -> isize {
    // The kernel's structure: handler, flags, restorer, mask.
    type Action = [u64; 4];
    // SAFETY: the caller's promise.
    unsafe {
        if signal as c_int == libc::SIGSYS {
            if let Some(old) = (old as *mut Action).as_mut() {
                *old = Action::default();
            }
            return 0;
        }
        let mut action = (new as *const Action).as_ref().copied();
        if let Some([.., mask]) = &mut action {
            *mask &= !SIGNAL;
        }
        let new = action
            .as_ref()
            .map_or(0, |action| &raw const *action as usize);
        call(libc::SYS_rt_sigaction, [signal, new, old, size, 0, 0])
    }
}

/// `rt_sigprocmask`, of the mask that the thread has when the handler has ended.
///
/// # Safety
/// As the call's.
unsafe fn change_mask(context: &mut ucontext_t, [how, new, old, size, ..]: [usize; 6]) -> isize {
    if size != size_of::<u64>() {
        return -(libc::EINVAL as isize);
    }
    let mask = (&raw mut context.uc_sigmask).cast::<u64>();
    // SAFETY: a mask begins with the 64 signals that the kernel has; the rest is the caller's promise.
    unsafe {
        let before = *mask;
        let new = (new as *const u64).as_ref().copied();
        *mask = match (new, how as c_int) {
            (None, _) => before,
            (Some(new), libc::SIG_BLOCK) => before | new,
            (Some(new), libc::SIG_UNBLOCK) => before & !new,
            (Some(new), libc::SIG_SETMASK) => new,
            _ => return -(libc::EINVAL as isize),
        };
        *mask &= !SIGNAL;
        if let Some(old) = (old as *mut u64).as_mut() {
            *old = before;
        }
    }
    0
}

/// `sigaltstack`, of the stack that the thread has when the handler has ended.
///
/// # Safety
/// As the call's.
unsafe fn change_stack(context: &mut ucontext_t, [new, old, ..]: [usize; 6]) -> isize {
    const LEAST: usize = 2048;
    let before = context.uc_stack;
    let at = context.uc_mcontext.gregs[libc::REG_RSP as usize] as usize;
    let on_it = at.wrapping_sub(before.ss_sp as usize) <= before.ss_size && before.ss_size > 0;
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(new) = (new as *const libc::stack_t).as_ref() {
            let is_none = new.ss_flags & libc::SS_DISABLE != 0;
            if on_it {
                return -(libc::EPERM as isize);
            }
            if !is_none && new.ss_size < LEAST {
                return -(libc::ENOMEM as isize);
            }
            context.uc_stack = *new;
        }
        if let Some(old) = (old as *mut libc::stack_t).as_mut() {
            *old = before;
            old.ss_flags |= if on_it { libc::SS_ONSTACK } else { 0 };
        }
    }
    0
}

/// Somebody else has sent the signal (a filter of system calls, or `kill`): the process ends by it, as without a handler.
fn end_by_signal() {
    // SAFETY: all zeros is the default action; the rest are numbers.
    unsafe {
        let action: libc::sigaction = core::mem::zeroed();
        next::sigaction(libc::SIGSYS, &raw const action, core::ptr::null_mut());
        libc::raise(libc::SIGSYS);
    }
}

/// Where the program itself lies, and not its libraries.
struct Program {
    /// Each part that is loaded, and whether it is code.
    parts: Vec<(Range<usize>, bool)>,
    /// Notes of who has made it.
    notes: Vec<Range<usize>>,
}

impl Program {
    /// By its program headers, which the kernel tells of.
    fn find() -> Option<Program> {
        // SAFETY: only numbers.
        let value = |kind| unsafe { libc::getauxval(kind) as usize };
        let (at, count) = (value(libc::AT_PHDR), value(libc::AT_PHNUM));
        let headers = at as *const libc::Elf64_Phdr;
        if headers.is_null() || value(libc::AT_PHENT) != size_of::<libc::Elf64_Phdr>() {
            return None;
        }
        // SAFETY: the kernel has loaded so many there.
        let headers = unsafe { core::slice::from_raw_parts(headers, count) };
        let own = headers
            .iter()
            .find(|header| header.p_type == libc::PT_PHDR)?;
        let base = at.wrapping_sub(own.p_vaddr as usize);
        let loaded = headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD);
        let parts = loaded.map(|header| {
            let start = base.wrapping_add(header.p_vaddr as usize);
            let is_code = header.p_flags & (libc::PF_X | libc::PF_R) == libc::PF_X | libc::PF_R;
            (start..start.wrapping_add(header.p_memsz as usize), is_code)
        });
        let parts: Vec<_> = parts.filter(|(part, _)| !part.is_empty()).collect();
        let notes = headers
            .iter()
            .filter(|header| header.p_type == libc::PT_NOTE);
        let notes = notes.map(|header| {
            let start = base.wrapping_add(header.p_vaddr as usize);
            start..start.wrapping_add(header.p_memsz as usize)
        });
        let is_loaded = |note: &Range<usize>| {
            let mut parts = parts.iter();
            parts.any(|(part, _)| part.start <= note.start && note.end <= part.end)
        };
        let notes = notes.filter(is_loaded).collect();
        (!parts.is_empty()).then_some(Program { parts, notes })
    }

    /// Whether Go's tools have made it, which say so in a note: the lengths of its name and its content, its kind, and the name.
    fn is_gos(&self) -> bool {
        self.notes.iter().any(|note| {
            // SAFETY: in a part that the kernel has loaded to be read, which stays as it is.
            let note = unsafe { core::slice::from_raw_parts(note.start as *const u8, note.len()) };
            let mut heads = note.windows(16);
            heads.any(|head| head.starts_with(b"\x04\0\0\0") && head.ends_with(b"\x04\0\0\0Go\0\0"))
        })
    }

    fn code(&self) -> impl Iterator<Item = &[u8]> {
        let code = self.parts.iter().filter(|(_, is_code)| *is_code);
        // SAFETY: the kernel has loaded it there, to be read, and it stays as it is for as long as the program runs.
        code.map(|(part, _)| unsafe {
            core::slice::from_raw_parts(part.start as *const u8, part.len())
        })
    }

    /// The addresses on that side of the program where its libraries are, and what the kernel itself has there.
    fn others(&self) -> Option<Range<usize>> {
        /// Beyond all that a process has.
        const END: usize = 0x7fff_ffff_f000;
        let first = self.parts.iter().map(|(part, _)| part.start).min()?;
        let last = self.parts.iter().map(|(part, _)| part.end).max()?;
        // SAFETY: only a number.
        let of_kernel = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
        let libraries = [
            start as *const () as usize,
            libc::getpid as *const () as usize,
            of_kernel,
        ];
        let known = libraries.iter().filter(|address| **address != 0);
        let [mut above, mut below] = [true; 2];
        for address in known {
            above &= *address >= last;
            below &= *address < first;
        }
        match (above, below) {
            (true, _) => Some(last..END),
            (_, true) => Some(0..first),
            _ => None,
        }
    }
}
