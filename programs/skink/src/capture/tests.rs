use super::*;

#[test]
fn a_line_of_json_is_stable() {
    let frame = Frame::read(&frame::tests::ip(
        "10.0.0.1",
        "10.0.0.2",
        6,
        &frame::tests::tcp(80, 5000),
        20,
    ));
    let line = JsonFrame {
        time_ns: 5,
        instance: "web",
        pid: 7,
        program: "nginx",
        direction: "in",
        bytes: 54,
        frame: &frame,
        summary: frame.summary(),
    };
    let expected = concat!(
        r#"{"time_ns":5,"instance":"web","pid":7,"program":"nginx","direction":"in","bytes":54,"#,
        r#""ether_type":2048,"source":"10.0.0.1","destination":"10.0.0.2","protocol":6,"#,
        r#""source_port":80,"destination_port":5000,"payload_bytes":0,"#,
        r#""summary":"TCP 10.0.0.1:80 > 10.0.0.2:5000 [P.] seq 9 ack 8 win 100 length 0"}"#,
    );
    assert_eq!(serde_json::to_string(&line).expect("JSON"), expected);
}

#[test]
fn times_are_those_of_the_day() {
    assert_eq!(time_of_day(0), "00:00:00.000000");
    assert_eq!(time_of_day(86_399_999_999_999), "23:59:59.999999");
    assert_eq!(time_of_day(1_700_000_000_000_001_000), "22:13:20.000001");
}
