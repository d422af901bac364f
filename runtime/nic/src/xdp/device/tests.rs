use super::super::driver;
use super::{Device, XdpPlace};
use crate::interface::find;
use crate::test_support::{in_namespace, ip, make_veth};
use crate::{NicSpec, Opener, Sharing};

fn device(name: &str) -> Device {
    Device::of(&find(name).unwrap().expect("there"))
}

#[test]
fn a_veth_says_what_it_is() {
    in_namespace(|| {
        make_veth();
        let a = device("a0");
        assert_eq!(a.driver, "veth");
        assert!(a.cuts && a.xdp_program.is_none());
        // An older kernel doesn't say.
        assert!(a.xdp.is_none_or(|xdp| xdp.native && !xdp.zero_copy));
        driver::set_segments("a0", false).unwrap();
        assert!(!device("a0").cuts);
    });
}

#[test]
fn a_program_in_front_is_seen_and_seen_to_be_gone() {
    in_namespace(|| {
        make_veth();
        let opener = match Opener::new(&NicSpec::Xdp("a0".into()), Sharing::Sole) {
            Ok(opener) => opener,
            Err(why) => return println!("SKIP: {why}"),
        };
        assert_eq!(device("a0").xdp_program, Some(XdpPlace::Driver));
        assert_eq!(device("b0").xdp_program, None);
        drop(opener);
        assert_eq!(device("a0").xdp_program, None);
    });
}

#[test]
fn a_driver_without_xdp_is_told_apart() {
    in_namespace(|| {
        ip("link add bridge0 type bridge");
        ip("link set bridge0 up");
        let bridge = device("bridge0");
        assert_eq!(bridge.driver, "bridge");
        assert!(bridge.xdp.is_none_or(|xdp| !xdp.native));
        match Opener::new(&NicSpec::Xdp("bridge0".into()), Sharing::Sole) {
            Ok(_opener) => assert_eq!(device("bridge0").xdp_program, Some(XdpPlace::Generic)),
            Err(why) => println!("SKIP: {why}"),
        }
    });
}
