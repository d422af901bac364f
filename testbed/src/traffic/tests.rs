use super::*;

const DEV: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       0       0    0    0    0     0          0         0        1       2    0    0    0     0       0          0
  veth1:    1206      13    0    1    0     0          0         4     876      10    5    6    0     0       0          0
";

#[test]
fn an_interface_is_found_by_its_whole_name() {
    let found = Traffic {
        frames_in: 13,
        bytes_in: 1206,
        dropped_in: 1,
        frames_out: 10,
        bytes_out: 876,
        dropped_out: 6,
    };
    assert_eq!(parse(DEV, "veth1"), Some(found));
    assert_eq!(parse(DEV, "veth"), None);
    assert_eq!(parse("", "veth1"), None);
}

#[test]
fn what_was_carried_meanwhile() {
    let (Some(before), Some(after)) = (parse(DEV, "lo"), parse(DEV, "veth1")) else {
        panic!("both are there");
    };
    let meanwhile = Traffic {
        frames_in: 13,
        bytes_in: 1206,
        dropped_in: 1,
        frames_out: 8,
        bytes_out: 875,
        dropped_out: 6,
    };
    assert_eq!(after.since(&before), meanwhile);
}
