//! `posix_spawn`. What a program wants done with descriptors in the child is noted as it says so, since
//! libc's own list of it is opaque.
use crate::errno::{self, Answer, Stop};
use crate::exec::{Environment, Legacy, leave_to_child};
use crate::lock::lock;
use crate::spawn::Action;
use crate::{next, raw};
use core::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

type Strings = *const *const c_char;
type Actions = *const c_void;

/// Notes an action that libc has accepted.
fn note(answer: c_int, actions: *mut c_void, action: Option<Action>) -> c_int {
    if answer == 0
        && crate::is_on()
        && let Ok(mut state) = lock()
    {
        match action {
            Some(action) => state.spawning.add(actions as usize, action),
            None => state.spawning.forget(actions as usize),
        }
    }
    answer
}

/// # Safety
/// As for `posix_spawn`.
unsafe fn legacy(actions: Actions, environment: Environment) -> Option<Legacy> {
    // SAFETY: the caller's promise.
    unsafe {
        leave_to_child(environment, |state| {
            state.staying_in_child(actions as usize)
        })
    }
}

/// `posix_spawn`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn posix_spawn(
    process: *mut libc::pid_t,
    path: *const c_char,
    actions: Actions,
    attributes: *const c_void,
    arguments: Strings,
    environment: Environment,
) -> c_int {
    // SAFETY: the program's own arguments, here and below.
    let legacy = unsafe { legacy(actions, environment) };
    let with = legacy.as_ref().map_or(environment, Legacy::environment);
    // SAFETY: as above.
    unsafe { next::posix_spawn(process, path, actions, attributes, arguments, with) }
}

/// `posix_spawnp`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn posix_spawnp(
    process: *mut libc::pid_t,
    file: *const c_char,
    actions: Actions,
    attributes: *const c_void,
    arguments: Strings,
    environment: Environment,
) -> c_int {
    // SAFETY: the program's own arguments, here and below.
    let legacy = unsafe { legacy(actions, environment) };
    let with = legacy.as_ref().map_or(environment, Legacy::environment);
    // SAFETY: as above.
    unsafe { next::posix_spawnp(process, file, actions, attributes, arguments, with) }
}

unsafe extern "C" {
    static environ: Environment;
}

/// `system`: libc's begins the shell by itself, in a way that nobody sees, and that inherits nothing of Skink's.
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn system(command: *const c_char) -> c_int {
    match !command.is_null() && crate::is_on() {
        // SAFETY: the program's own argument.
        true => unsafe { run_shell(command) },
        // SAFETY: as above.
        false => unsafe { next::system(command) },
    }
}

/// What `system` does with signals in the calling process (POSIX, `system`): how many calls ignore these two, and what was to become of
/// them before.
static IGNORED: Mutex<(u32, [Option<libc::sigaction>; 2])> = Mutex::new((0, [None; 2]));
const KEYBOARD: [c_int; 2] = [libc::SIGINT, libc::SIGQUIT];

/// # Safety
/// As for `system`, with a command.
unsafe fn run_shell(command: *const c_char) -> c_int {
    // SAFETY: plain structures, which libc's functions fill in; the shell's arguments are strings and end with null.
    unsafe {
        let mut defaults: libc::sigset_t = core::mem::zeroed();
        let (mut children, mut mask) = (defaults, defaults);
        libc::sigemptyset(&raw mut defaults);
        ignore_keyboard(&mut defaults);
        libc::sigemptyset(&raw mut children);
        libc::sigaddset(&raw mut children, libc::SIGCHLD);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const children, &raw mut mask);

        let mut attributes: libc::posix_spawnattr_t = core::mem::zeroed();
        libc::posix_spawnattr_init(&raw mut attributes);
        libc::posix_spawnattr_setsigmask(&raw mut attributes, &raw const mask);
        libc::posix_spawnattr_setsigdefault(&raw mut attributes, &raw const defaults);
        let flags = libc::POSIX_SPAWN_SETSIGMASK | libc::POSIX_SPAWN_SETSIGDEF;
        libc::posix_spawnattr_setflags(&raw mut attributes, flags as _);
        let arguments = [c"sh".as_ptr(), c"-c".as_ptr(), command, core::ptr::null()];
        let mut process = 0;
        let failed = posix_spawn(
            &raw mut process,
            c"/bin/sh".as_ptr(),
            core::ptr::null(),
            (&raw const attributes).cast(),
            arguments.as_ptr(),
            environ,
        );
        libc::posix_spawnattr_destroy(&raw mut attributes);
        // A shell that can't be begun counts as one that ends so.
        let ended = match failed {
            0 => wait_for(process),
            _ => Ok(127 << 8),
        };
        heed_keyboard();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, core::ptr::null_mut());
        match ended {
            Ok(status) => status,
            Err(Stop::Errno(number)) => {
                errno::set(number);
                -1
            }
            Err(_) => -1,
        }
    }
}

/// Waits for the end of a child, and answers how it ended.
fn wait_for(process: libc::pid_t) -> Answer<c_int> {
    let mut status: c_int = 0;
    let arguments = [process as usize, &raw mut status as usize, 0, 0, 0, 0];
    loop {
        // SAFETY: the number is ours.
        match unsafe { raw::call(libc::SYS_wait4, arguments) } {
            Err(Stop::Errno(libc::EINTR)) => {}
            answer => return answer.map(|_| status),
        }
    }
}

/// The two signals are ignored until [`heed_keyboard`]; those that were not are put into `defaults`.
fn ignore_keyboard(defaults: &mut libc::sigset_t) {
    let mut ignored = IGNORED.lock().unwrap_or_else(PoisonError::into_inner);
    for (signal, before) in KEYBOARD.into_iter().zip(&mut ignored.1) {
        // SAFETY: plain structures, for which zero is a value.
        unsafe {
            if before.is_none() {
                let mut ignore: libc::sigaction = core::mem::zeroed();
                ignore.sa_sigaction = libc::SIG_IGN;
                let mut old: libc::sigaction = core::mem::zeroed();
                if libc::sigaction(signal, &raw const ignore, &raw mut old) == 0 {
                    *before = Some(old);
                }
            }
            if before.is_some_and(|before| before.sa_sigaction != libc::SIG_IGN) {
                libc::sigaddset(&raw mut *defaults, signal);
            }
        }
    }
    ignored.0 += 1;
}

fn heed_keyboard() {
    let mut ignored = IGNORED.lock().unwrap_or_else(PoisonError::into_inner);
    ignored.0 -= 1;
    if ignored.0 == 0 {
        for (signal, before) in KEYBOARD.into_iter().zip(&mut ignored.1) {
            if let Some(before) = before.take() {
                // SAFETY: as it was.
                unsafe { libc::sigaction(signal, &raw const before, core::ptr::null_mut()) };
            }
        }
    }
}

/// Declares functions that change a list of actions: libc's is called, and what it accepted is noted.
macro_rules! actions {
    ($($symbol:ident $name:ident($($argument:ident: $type:ty),*) $action:expr;)*) => {$(
        #[doc = concat!("`", stringify!($symbol), "`")]
        ///
        /// # Safety
        /// As the function's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $symbol(actions: *mut c_void $(, $argument: $type)*) -> c_int {
            // SAFETY: the program's own arguments.
            let answer = unsafe { next::$name(actions $(, $argument)*) };
            note(answer, actions, $action)
        }
    )*};
}

actions! {
    posix_spawn_file_actions_init actions_init() None;
    posix_spawn_file_actions_destroy actions_destroy() None;
    posix_spawn_file_actions_adddup2 actions_dup2(old: c_int, new: c_int) Some(Action::Duplicate(old, new));
    posix_spawn_file_actions_addclose actions_close(fd: c_int) Some(Action::Close(fd));
    posix_spawn_file_actions_addopen actions_open(fd: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t) Some(Action::Close(fd));
    posix_spawn_file_actions_addclosefrom_np actions_close_from(first: c_int) Some(Action::CloseFrom(first));
}
