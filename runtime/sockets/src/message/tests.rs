use super::*;
use skink_messages::Holder;

fn id(slot: u32) -> SocketId {
    SocketId {
        slot,
        generation: slot + 7,
    }
}

fn endpoints() -> [Endpoint; 2] {
    ["10.1.2.3", "fd00::5"].map(|addr| Endpoint::new(addr.parse().expect("an address"), 8080))
}

#[test]
fn requests_come_out_as_they_went_in() {
    let [v4, v6] = endpoints();
    let options = PortOptions {
        reuse_address: true,
        reuse_port: false,
        ticket: u64::MAX - 3,
    };
    let calls = [
        SocketCall::Open(Protocol::Tcp),
        SocketCall::Open(Protocol::Udp),
        SocketCall::Bind(Protocol::Tcp, id(1), v4, options),
        SocketCall::Bind(Protocol::Udp, id(2), v6, PortOptions::default()),
        SocketCall::Rest(id(3)),
        SocketCall::Listen(id(4), 511),
        SocketCall::Connect(Protocol::Tcp, id(5), Some(v6)),
        SocketCall::Connect(Protocol::Udp, id(6), None),
        SocketCall::Share(Protocol::Tcp, id(8), 1 << 63),
        SocketCall::Relieve(
            Protocol::Udp,
            id(14),
            Holder {
                program: u32::MAX - 1,
                secret: 1 << 62,
            },
        ),
        SocketCall::Close(Protocol::Tcp, id(11)),
        SocketCall::Close(Protocol::Udp, id(13)),
    ];
    let mut bodies = Vec::from(calls.map(RequestBody::Call));
    bodies.extend([
        RequestBody::Accepted {
            listener: id(7),
            connection: id(u32::MAX - 7),
        },
        RequestBody::Tcp(TcpRequest::Sent(id(9))),
        RequestBody::Tcp(TcpRequest::Received(id(10))),
        RequestBody::Udp(UdpRequest::Sent(id(12))),
    ]);
    for how in [Shutdown::Read, Shutdown::Write, Shutdown::Both] {
        bodies.push(RequestBody::Tcp(TcpRequest::Shutdown(id(14), how)));
    }
    for code in 1.. {
        let Some(option) = option(code, 1) else { break };
        assert_eq!(option_code(option), (code, 1));
        bodies.push(RequestBody::Tcp(TcpRequest::SetOption(id(15), option)));
    }
    assert!(bodies.len() > 30, "every option");
    for body in bodies {
        let request = Request { serial: 99, body };
        let decoded = RequestMessage::from(&request).decode();
        let text = format!("{:?}", decoded.expect("it makes sense"));
        assert_eq!(text, format!("{request:?}"));
    }
}

#[test]
fn who_serves_a_request_and_closing_is_a_call() {
    let closed = |protocol| RequestBody::Call(SocketCall::Close(protocol, id(1)));
    let (tcp, udp) = (closed(Protocol::Tcp), closed(Protocol::Udp));
    let arrives_as = |body: RequestBody, other: RequestBody| {
        let message = RequestMessage::from(&Request { serial: 0, body });
        let body = message.decode().expect("it makes sense").body;
        assert_eq!(format!("{body:?}"), format!("{other:?}"));
    };
    arrives_as(RequestBody::Tcp(TcpRequest::Close(id(1))), tcp);
    arrives_as(RequestBody::Udp(UdpRequest::Close(id(1))), udp);
    for (body, server) in [
        (tcp, ServedBy::Syscall),
        (
            RequestBody::Tcp(TcpRequest::Close(id(1))),
            ServedBy::Syscall,
        ),
        (
            RequestBody::Udp(UdpRequest::Close(id(1))),
            ServedBy::Syscall,
        ),
        (RequestBody::Tcp(TcpRequest::Sent(id(1))), ServedBy::Tcp),
        (
            RequestBody::Accepted {
                listener: id(1),
                connection: id(2),
            },
            ServedBy::Tcp,
        ),
        (RequestBody::Udp(UdpRequest::Sent(id(1))), ServedBy::Udp),
    ] {
        assert_eq!(body.server(), server, "{body:?}");
    }
}

#[test]
fn notices_come_out_as_they_went_in() {
    let [v4, v6] = endpoints();
    let answer = |socket, local, value| {
        Notice::Answer(
            5,
            Ok(Answer {
                socket,
                local,
                value,
            }),
        )
    };
    let event = SocketEvent {
        socket: id(3),
        events: Events::all(),
    };
    for notice in [
        answer(None, None, 0),
        answer(Some(id(0)), Some(v4), 1),
        answer(Some(id(9)), Some(v6), u64::MAX),
        Notice::Answer(6, Err(SocketError::AddressInUse)),
        Notice::Event(Protocol::Tcp, event),
        Notice::Event(Protocol::Udp, event),
        Notice::Offered {
            listener: id(1),
            connection: id(u32::MAX - 7),
        },
    ] {
        let decoded = NoticeMessage::from(&notice).decode();
        let text = format!("{:?}", decoded.expect("it makes sense"));
        assert_eq!(text, format!("{notice:?}"));
    }
}

#[test]
fn whatever_a_neighbour_writes_is_decoded_or_refused() {
    let mut word = 1u64;
    let mut refused = 0;
    for _ in 0..100_000 {
        let mut bytes = [0; size_of::<RequestMessage>()];
        for chunk in bytes.chunks_exact_mut(8) {
            // SplitMix64 (Steele, Lea, Flood 2014).
            word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            chunk.copy_from_slice(&(mixed ^ (mixed >> 27)).to_ne_bytes());
        }
        // Mostly near what makes sense.
        let (kind, protocol) = (u32::from(bytes[0] % 14), [6, 17, bytes[52]]);
        bytes[..4].copy_from_slice(&kind.to_ne_bytes());
        bytes[52] = protocol[usize::from(bytes[53]) % 3];
        let request = RequestMessage::read_from_bytes(&bytes).expect("as many bytes");
        let notice = NoticeMessage::read_from_bytes(&bytes).expect("as many bytes");
        refused += usize::from(request.decode().is_none());
        refused += usize::from(notice.decode().is_none());
    }
    assert!((50_000..190_000).contains(&refused), "{refused}");
}
