use super::*;

#[test]
fn the_log_filter_decides() {
    let table = [
        ("", Refusal::Kill),
        ("info", Refusal::Kill),
        ("debug", Refusal::Tell),
        ("TRACE", Refusal::Tell),
        ("info,skink_sandbox=debug", Refusal::Tell),
        ("skink_tcp=debug", Refusal::Kill),
        ("skink_tcp=debug, trace", Refusal::Tell),
        ("skink_sandbox=warn", Refusal::Kill),
    ];
    for (filter, refusal) in table {
        assert_eq!(Refusal::from_filter(filter), refusal, "{filter}");
    }
}

#[test]
fn numbers_are_written_without_the_heap() {
    for number in [0, 7, 41, 1_000, -1, c_int::MAX, c_int::MIN] {
        let mut line = Line::default();
        line.number(number);
        assert_eq!(&line.bytes[..line.used], number.to_string().as_bytes());
    }
}

#[test]
fn a_line_is_cut_at_its_end() {
    let mut line = Line::default();
    line.push(&[b'x'; 200]);
    line.push(b"y");
    assert_eq!((line.used, line.bytes), (128, [b'x'; 128]));
}
