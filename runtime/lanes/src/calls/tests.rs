use super::*;
use std::net::{Ipv4Addr, Ipv6Addr};

const SOCKET: SocketId = SocketId {
    slot: 70_000,
    generation: 3,
};

fn ends() -> [Endpoint; 2] {
    let four = Ipv4Addr::new(192, 0, 2, 1).into();
    [
        Endpoint::new(four, 443),
        Endpoint::new(Ipv6Addr::LOCALHOST.into(), 65_535),
    ]
}

#[test]
fn calls_arrive_as_they_were_sent() {
    let mut bodies = vec![
        CallBody::Open,
        CallBody::Rest(SOCKET),
        CallBody::Listen(SOCKET, 511),
        CallBody::Connect(SOCKET, None),
        CallBody::Share(SOCKET),
        CallBody::Release(SOCKET),
        CallBody::Close(SOCKET),
        CallBody::Detach(u32::MAX),
        CallBody::Abandon(7),
        CallBody::Sharing,
        CallBody::AllShared,
    ];
    for end in ends() {
        bodies.push(CallBody::Connect(SOCKET, Some(end)));
        for (reuse_address, shared) in [(false, false), (true, false), (false, true)] {
            let options = BindOptions {
                reuse_address,
                shared,
            };
            bodies.push(CallBody::Bind(SOCKET, end, options));
        }
    }
    for (serial, body) in (0..).zip(bodies) {
        let call = TransportCall {
            program: 17,
            serial,
            body,
        };
        assert_eq!(TransportCall::decode(&call.encode(1)), Some(call));
    }
}

#[test]
fn outcomes_arrive_as_they_were_sent() {
    let mut results = vec![Ok((SOCKET, None)), Err(SocketError::AddressInUse)];
    results.extend(ends().map(|end| Ok((SOCKET, Some(end)))));
    for result in results {
        let outcome = CallOutcome {
            program: 4095,
            serial: u32::MAX,
            result,
        };
        assert_eq!(CallOutcome::decode(&outcome.encode(1)), Some(outcome));
    }
}

#[test]
fn what_is_stored_arrives_as_it_was_sent() {
    let key = StoreKey {
        client: StoreClient::Syscall,
        kind: 7,
        id: 1 << 127 | 1,
    };
    let value = std::array::from_fn(|at| at as u8);
    let requests = [
        StoreRequest::Put(key, value),
        StoreRequest::Remove(key),
        StoreRequest::List(StoreClient::Syscall),
    ];
    for request in requests {
        assert_eq!(StoreRequest::decode(&request.encode(1)), Some(request));
    }
    let replies = [
        StoreReply::Item(key, value),
        StoreReply::End(StoreClient::Syscall, 12),
    ];
    for reply in replies {
        assert_eq!(StoreReply::decode(&reply.encode(1)), Some(reply));
    }
}

#[test]
fn nonsense_is_nothing() {
    // Memory that was never written; kinds, errors and clients that there aren't.
    let zero = |kind| SmallMessage::new(kind, 1, &[0u8; 48]);
    assert_eq!(TransportCall::decode(&zero(0)), None);
    assert_eq!(TransportCall::decode(&zero(13)), None);
    assert_eq!(CallOutcome::decode(&zero(0)), None);
    let mut fields = [0u8; 48];
    fields[16] = 200;
    let error = SmallMessage::new(kind::OUTCOME, 1, &fields);
    assert_eq!(CallOutcome::decode(&error), None);
    // A bind to nowhere.
    assert_eq!(TransportCall::decode(&zero(kind::BIND)), None);
    let nobody = MiddleMessage::new(PUT, 1, &[0u8; 112]);
    assert_eq!(StoreRequest::decode(&nobody), None);
    assert_eq!(StoreReply::decode(&nobody), None);
}
