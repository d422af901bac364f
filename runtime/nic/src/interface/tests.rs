use super::{find, list, set_up};
use crate::test_support::{in_namespace, ip};
use skink_wire::MacAddr;

#[test]
fn facts() {
    in_namespace(|| {
        ip("link add a0 type veth peer name b0");
        ip("link set a0 address 02:00:00:00:00:0a");
        ip("addr add 10.9.0.1/24 dev a0");
        ip("addr add 10.9.1.1/16 dev a0 label a0:1");
        ip("addr add fd00::1/64 dev a0");
        let names: Vec<String> = list().unwrap().into_iter().map(|i| i.name).collect();
        assert_eq!(names, ["lo", "b0", "a0"]);
        let a = find("a0").unwrap().unwrap();
        assert!(!a.up && !a.loopback && a.index != 0);
        assert_eq!((a.mac, a.mtu), (Some(MacAddr([2, 0, 0, 0, 0, 10])), 1500));

        set_up("a0").unwrap();
        set_up("a0").unwrap();
        ip("link set a0 mtu 9000");
        set_up("lo").unwrap();
        let a = find("a0").unwrap().unwrap();
        assert!(a.up);
        assert_eq!(a.mtu, 9000);
        let mut addresses: Vec<String> = a.addresses.iter().map(ToString::to_string).collect();
        addresses.sort();
        assert_eq!(addresses, ["10.9.0.1/24", "10.9.1.1/16", "fd00::1/64"]);

        let lo = find("lo").unwrap().unwrap();
        assert!(lo.loopback && lo.mac.is_none());
        assert_eq!(find("none").unwrap(), None);
    });
}
