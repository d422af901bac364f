//! `posix_spawn`. What a program wants done with descriptors in the child is noted as it says so, since
//! libc's own list of it is opaque.
use crate::exec::{Environment, Legacy, leave_to_child};
use crate::lock::lock;
use crate::next;
use crate::spawn::Action;
use core::ffi::{c_char, c_int, c_void};

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
    static mut environ: Environment;
}

/// Calls a function of libc's that begins a program by itself, in an environment that it isn't told: the process's own. `taken` is
/// the descriptor that it gives the program for something else.
///
/// # Safety
/// The environment must be a list of strings, as libc has it.
unsafe fn begins<T>(taken: Option<c_int>, call: impl FnOnce() -> T) -> T {
    // SAFETY: the caller's promise. (Who changes the environment in another thread meanwhile breaks libc's own reading, too.)
    let before = unsafe { environ };
    // SAFETY: as above.
    let legacy = unsafe {
        leave_to_child(before, |state| {
            let mut staying = state.staying_in_child(0);
            staying.retain(|(fd, _)| Some(*fd) != taken);
            staying
        })
    };
    let Some(legacy) = legacy else { return call() };
    // SAFETY: as above; the list is there until the end.
    unsafe { environ = legacy.environment() };
    let answer = call();
    // SAFETY: as above. If it is another one now, that is a copy, with what was added.
    unsafe {
        if environ == legacy.environment() {
            environ = before;
        }
    }
    answer
}

/// `system`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn system(command: *const c_char) -> c_int {
    // SAFETY: the program's own argument.
    let call = || unsafe { next::system(command) };
    match command.is_null() {
        true => call(),
        // SAFETY: the environment is libc's.
        false => unsafe { begins(None, call) },
    }
}

/// `popen`
///
/// # Safety
/// As the function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn popen(
    command: *const c_char,
    mode: *const c_char,
) -> *mut libc::FILE {
    // SAFETY: the program's own arguments: a mode is a string.
    let writes = !mode.is_null() && unsafe { mode.cast::<u8>().read() } == b'w';
    let taken = if writes {
        libc::STDIN_FILENO
    } else {
        libc::STDOUT_FILENO
    };
    // SAFETY: as above, and the environment is libc's.
    unsafe { begins(Some(taken), || next::popen(command, mode)) }
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
