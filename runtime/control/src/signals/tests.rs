use super::*;

/// `nohup`, and a shell's `&` in a script, start programs so.
#[test]
fn what_the_starter_ignores_is_not_taken() {
    // SAFETY: no other test has to do with this signal.
    unsafe { libc::signal(libc::SIGVTALRM, libc::SIG_IGN) };
    let signals = [libc::SIGPROF, libc::SIGVTALRM];
    let descriptor = SignalDescriptor::new(&signals).expect("a descriptor");
    for signal in signals {
        // SAFETY: it is blocked for this thread, or ignored.
        unsafe { libc::raise(signal) };
    }
    let taken = std::iter::from_fn(|| descriptor.take());
    let numbers: Vec<i32> = taken.map(|received| received.signal).collect();
    assert_eq!(numbers, [libc::SIGPROF]);
}
