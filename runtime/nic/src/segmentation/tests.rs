use super::*;
use crate::test_support::{in_namespace, ip, make_veth};

fn alias() -> String {
    let directory = sysfs::directory_of("a0").unwrap();
    Setting::open(directory.as_fd(), "ifalias").unwrap().before
}

/// What the driver does, what it would do, and what is noted.
fn state() -> (bool, bool, bool) {
    let does = driver::segments("a0").unwrap();
    (does, segments("a0").unwrap(), alias() == NOTE)
}

#[test]
fn it_is_put_off_and_comes_back() {
    in_namespace(|| {
        make_veth();
        let mut segmentation = Segmentation::of("a0").unwrap();
        assert_eq!(state(), (true, true, false), "nothing changes yet");
        segmentation.put_off(true).unwrap();
        assert_eq!(state(), (false, true, true));
        segmentation.put_off(false).unwrap();
        assert_eq!((state(), alias()), ((true, true, false), String::new()));
        segmentation.put_off(true).unwrap();
        drop(segmentation);
        assert_eq!(state(), (true, true, false), "also when it is dropped");
    });
}

#[test]
fn what_a_killed_process_left_behind_is_undone() {
    in_namespace(|| {
        make_veth();
        let mut killed = Segmentation::of("a0").unwrap();
        killed.put_off(true).unwrap();
        std::mem::forget(killed);
        let _successor = Segmentation::of("a0").unwrap();
        assert_eq!(state(), (true, true, false));
    });
}

#[test]
fn what_others_have_set_is_left_alone() {
    in_namespace(|| {
        make_veth();
        ip("link set a0 alias uplink");
        let why = Segmentation::of("a0").unwrap_err().to_string();
        assert!(why.contains("alias"), "{why}");
        assert_eq!(alias(), "uplink");
        driver::set_segments("b0", false).unwrap();
        let why = Segmentation::of("b0").unwrap_err().to_string();
        assert!(why.contains("anyway"), "{why}");
        ip("tuntap add d0 mode tap");
        let why = Segmentation::of("d0").unwrap_err().to_string();
        assert!(why.contains("veth"), "{why}");
    });
}
