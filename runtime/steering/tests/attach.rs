//! The XDP program in front of interfaces of each kind, in a network namespace of the test's own.

use skink_steering::{AttachMode, Steering, SteeringError};
use std::process::Command;

#[test]
fn a_driver_that_cannot_is_stood_in_for() {
    let thread = std::thread::spawn(|| {
        // SAFETY: it changes this thread's namespace only.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            let error = std::io::Error::last_os_error();
            println!("SKIP: no network namespace can be made here: {error}");
            return;
        }
        let veth = Command::new("ip")
            .args(["link", "add", "near", "type", "veth", "peer", "name", "far"])
            .status()
            .expect("the ip tool");
        assert!(veth.success());
        for (interface, expected) in [("near", AttachMode::Driver), ("lo", AttachMode::Generic)] {
            let mut steering = match Steering::load() {
                Ok(steering) => steering,
                Err(SteeringError::Privileges { what }) => {
                    println!("SKIP: loading programs isn't permitted here: {what}");
                    return;
                }
                Err(error) => panic!("{error}"),
            };
            assert_eq!(
                steering.attach_xdp(interface).expect("attached"),
                expected,
                "{interface}"
            );
            let mut second = Steering::load().expect("loaded");
            let taken = second.attach_xdp(interface);
            assert!(
                matches!(taken, Err(SteeringError::Attach { .. })),
                "one program at a time"
            );
            steering.detach_xdp().expect("taken off");
            assert!(!steering.is_attached());
            second.attach_xdp(interface).expect("free again");
            steering.detach_xdp().expect("it isn't there any more");
            assert!(steering.attach_xdp(interface).is_err(), "the other's stays");
            drop(second);
            steering.attach_xdp(interface).expect("free again");
        }
        let mut steering = Steering::load().expect("loaded");
        let missing = steering.attach_xdp("nowhere");
        let words = missing.expect_err("no such interface").to_string();
        assert!(words.contains("nowhere"), "{words}");
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}
