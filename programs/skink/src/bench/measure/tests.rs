use super::*;

const GOOD: &str = "\
Running 1s test @ http://10.9.0.2/tiny
  1 threads and 8 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   118.98us  139.65us   3.80ms   99.09%
    Req/Sec    69.99k     3.30k   72.95k    80.00%
  Latency Distribution
     50%  110.00us
     75%  124.00us
     90%    1.50ms
     99%    2.00s 
  69355 requests in 1.05s, 17.00MB read
Requests/sec:  66052.38
Transfer/sec:     16.99MB
";

#[test]
fn output_of_wrk_is_read() {
    let expected = Load {
        units: 69_355.0,
        seconds: 1.05,
        latency: Some(Latency {
            p50_us: 110.0,
            p75_us: 124.0,
            p90_us: 1500.0,
            p99_us: 2e6,
            p999_us: None,
            p99_moments_us: None,
        }),
        socket_errors: 0,
        bad_responses: 0,
    };
    assert_eq!(parse_wrk(GOOD), Ok(expected));
    let errors = format!(
        "{GOOD}  Socket errors: connect 1, read 20, write 300, timeout 4000\n  \
         Non-2xx or 3xx responses: 13635\n"
    );
    let load = parse_wrk(&errors).expect("good");
    assert_eq!((load.socket_errors, load.bad_responses), (4321, 13_635));
}

#[test]
fn anything_else_is_an_error() {
    for bad in [
        "",
        "unable to connect to 127.0.0.1:81 Connection refused",
        &GOOD.replace("99%  ", "98%  "),
        &GOOD.replace(" requests in", " answers in"),
        &GOOD.replace("1.05s", "1.05 fortnights"),
        &GOOD.replace("110.00us", "fast"),
    ] {
        assert!(parse_wrk(bad).is_err(), "{bad}");
    }
}

#[test]
fn output_of_the_peer_is_read() {
    let load = parse_wrk(GOOD).expect("good");
    let line = serde_json::to_string(&load).expect("JSON");
    assert_eq!(parse_peer(&format!("{line}\n")), Ok(load));
    assert!(parse_peer("skink: the benchmark's peer: timed out").is_err());
}

#[test]
fn times_have_units() {
    for (text, expected) in [
        ("631.00us", Some(631.0)),
        ("1.06ms", Some(1060.0)),
        ("2.00m", Some(120e6)),
        ("1.00h", Some(3600e6)),
        ("1.00", None),
        ("1.00d", None),
        ("us", None),
    ] {
        assert_eq!(microseconds(text), expected, "{text}");
    }
}

#[test]
fn more_than_a_twentieth_of_a_processor_is_a_disturbance() {
    for (others, server, client, words) in [
        (0.0, 0.0, 0.0, None),
        (0.05, 0.05, 0.05, None),
        (
            0.06,
            0.0,
            0.0,
            Some("other processes used a processor 6% of the time"),
        ),
        (0.06, 0.2, 0.0, Some("server's processor 20%")),
        (0.0, 0.0, 0.07, Some("client's processor 7%")),
    ] {
        let one = Disturbance {
            other_processes: others,
            stolen_from_server: server,
            stolen_from_client: client,
        };
        match (disturbed(&one), words) {
            (None, None) => {}
            (Some(why), Some(words)) => assert!(why.contains(words), "{why}"),
            (found, _) => panic!("{found:?}, expected {words:?}"),
        }
    }
}
