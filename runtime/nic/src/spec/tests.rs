use super::{NicSpec, SpecError};

#[test]
fn texts_and_specs() {
    for text in ["xdp:eth0", "packet:eth0.5@", "tap:skink-0123456789"] {
        let spec: Result<NicSpec, _> = text.parse();
        match spec {
            Ok(spec) => assert_eq!(spec.to_string(), text),
            Err(error) => assert_eq!(
                (text, error),
                (
                    "tap:skink-0123456789",
                    SpecError::Name("skink-0123456789".into())
                )
            ),
        }
    }
    for (text, words) in [
        ("", "names no NIC"),
        ("eth0", "names no NIC"),
        ("dpdk:eth0", "names no NIC"),
        ("tap:", "1 to 15 bytes"),
        ("tap:a b", "1 to 15 bytes"),
        ("packet:eth0:1", "1 to 15 bytes"),
        // The kernel would put a number in.
        ("tap:skink%d", "1 to 15 bytes"),
        ("xdp:sixteen-bytes-xx", "1 to 15 bytes"),
    ] {
        let error = text.parse::<NicSpec>().unwrap_err();
        assert!(error.to_string().contains(words), "{text}: {error}");
    }
}
