use super::*;

#[test]
fn a_user_is_trusted_once_in_a_while() {
    let mut trusted = Trusted::default();
    let start = Instant::now();
    // (seconds, user, whether it is trusted)
    let table = [
        (0, 1000, true),
        (0, 1001, true),
        (5, 1000, false),
        (9, 1000, false),
        (10, 1000, true),
        (15, 1001, true),
        (19, 1000, false),
        (20, 1000, true),
    ];
    for (seconds, uid, expected) in table {
        let now = start + Duration::from_secs(seconds);
        assert_eq!(trusted.may(now, uid), expected, "{seconds} s, {uid}");
    }
}
