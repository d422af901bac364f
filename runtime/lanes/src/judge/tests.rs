use super::*;

fn end(text: &str) -> Endpoint {
    text.parse::<std::net::SocketAddr>().expect("an end").into()
}

fn account(local: &str, remote: &str, expected: Option<[u32; 2]>) -> FlowAccount {
    FlowAccount {
        protocol: 6,
        tuple: FourTuple::new(end(local), end(remote)),
        packets: [3, 4],
        bytes: [500, 1 << 40],
        expected,
        last: Instant::from_millis(7),
    }
}

#[test]
fn an_account_arrives_as_it_was_sent() {
    for sent in [
        account("192.0.2.1:80", "192.0.2.2:4000", Some([7, 0])),
        account("[2001:db8::1]:80", "[2001:db8::2]:4000", None),
    ] {
        match ToFilter::decode(&ToFilter::Account(sent).encode(1)) {
            Some(ToFilter::Account(received)) => assert_eq!(received, sent),
            other => panic!("{other:?} isn't an account"),
        }
    }
}

#[test]
fn what_the_filter_says_arrives_and_zeros_say_nothing() {
    for expected in [None, Some([0, 0]), Some([5, u32::MAX])] {
        match FromFilter::decode(&FromFilter::Offload { id: 9, expected }.encode(1)) {
            Some(FromFilter::Offload {
                id: 9,
                expected: received,
            }) => assert_eq!(received, expected),
            other => panic!("{other:?}"),
        }
    }
    for asked in [false, true] {
        let received = FromFilter::decode(&FromFilter::Asked(asked).encode(1));
        assert!(matches!(received, Some(FromFilter::Asked(it)) if it == asked));
    }
    for kind in [OFFLOAD, ASKED, ASKED + 1] {
        assert!(FromFilter::decode(&SmallMessage::new(kind, 1, &[0u8; 48])).is_none());
    }
    assert!(ToFilter::decode(&MiddleMessage::new(ACCOUNT, 1, &[0u8; 112])).is_none());
}
