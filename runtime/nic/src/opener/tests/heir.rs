//! The process with the opener becomes another program, which goes on with it.

use super::*;
use std::process::Command;

/// In the environment of who lends, and of who inherits.
const ROLE: &str = "SKINK_TEST_HEIR";
const VERSION: u32 = 1;

/// This very test, executed anew.
fn again(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = "opener::tests::heir::what_steers_goes_on_in_another_program";
    command.args([name, "--exact", "--nocapture"]);
    command.env(ROLE, role);
    command
}

fn program() -> Option<crate::XdpPlace> {
    let interface = interface::find("b0").unwrap().unwrap();
    crate::Device::of(&interface).xdp_program
}

/// Never returns, unless it can't open the NIC.
fn lend() {
    make_veth();
    // The kernel's own frames would come beside the queue.
    for end in ["a0", "b0"] {
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6"), "1");
    }
    let spec = NicSpec::Xdp("b0".into());
    let Some(mut opener) = opener_that_steers(&spec, Sharing::Sole) else {
        return;
    };
    set_address(&mut opener, IP_B);
    let (nic, _) = open_again(&mut opener);
    Far(open_packet("a0")).send(1);
    drop(nic);
    let lent = skink_inherit::lend(VERSION, &opener).unwrap();
    panic!("{}", lent.execute(&mut again("heir")));
}

fn inherit() {
    let mut opener: Opener = skink_inherit::inherited(VERSION).unwrap().unwrap();
    let mut far = Far(open_packet("a0"));
    // Nobody has taken the first from the queue; both came by it.
    let (mut nic, again) = open_again(&mut opener);
    far.send(2);
    assert_eq!((nic.capabilities.kind, again), ("xdp", true));
    assert_eq!(numbers(&mut *nic.receiver, 2), [1, 2]);
    assert_eq!(nic.receiver.take_beside(), 0);
    // Its tables can be changed: to others, nothing is ours.
    drop(nic);
    opener.close(0);
    set_address(&mut opener, IP_A);
    set_address(&mut opener, IP_B);
    // And queues that are opened anew are in them.
    let (mut nic, again) = open_again(&mut opener);
    far.send(3);
    assert_eq!((nic.capabilities.kind, again), ("xdp", false));
    assert_eq!(numbers(&mut *nic.receiver, 1), [3]);
    assert_eq!(nic.receiver.take_beside(), 0);
    assert_eq!(program(), Some(crate::XdpPlace::Driver));
    drop(opener);
    assert_eq!(program(), None, "with the last descriptor it is taken off");
    println!("inherited");
}

#[test]
fn what_steers_goes_on_in_another_program() {
    match std::env::var(ROLE).as_deref() {
        Ok("heir") => inherit(),
        Ok(_) => in_namespace(lend),
        Err(_) => {
            let output = again("lender").output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}{errors}");
            match said.lines().find(|line| line.contains("SKIP")) {
                Some(why) => println!("{why}"),
                None => assert!(said.contains("inherited"), "{said}"),
            }
        }
    }
}
