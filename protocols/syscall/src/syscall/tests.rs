use super::*;
use crate::test_support::Recorder;
use skink_messages::{BindOptions, Holder, PortOptions};
use skink_wire::Endpoint;

mod random;
mod world;

const TCP: Protocol = Protocol::Tcp;
const UDP: Protocol = Protocol::Udp;
const CONFIG: SyscallConfig = SyscallConfig {
    first_unprivileged_port: 1024,
    strides: [16, 8],
};
const PLAIN: PortOptions = PortOptions {
    reuse_address: false,
    reuse_port: false,
    ticket: 0,
};
const REUSE: PortOptions = PortOptions {
    reuse_port: true,
    ..PLAIN
};
const INVALID: Result<Answer, SocketError> = Err(SocketError::Invalid);

fn secret(program: u32) -> u64 {
    1000 + u64::from(program)
}

/// A TCP socket in the region of a program.
fn id(program: u32, slot: u32) -> SocketId {
    SocketId {
        slot: program * 16 + slot,
        generation: 1,
    }
}

fn end(port: u16) -> Endpoint {
    Endpoint::new("10.0.0.1".parse().expect("an address"), port)
}

fn bind(socket: SocketId, port: u16, options: PortOptions) -> SocketCall {
    SocketCall::Bind(TCP, socket, end(port), options)
}

struct Bench {
    syscall: Syscall,
    out: Recorder,
}

impl Bench {
    /// Programs 0 to 4 are attached: user 1 has the even ones, user 2 the odd ones.
    fn new() -> Bench {
        let counters = Counters::create().expect("memory");
        let mut bench = Bench {
            syscall: Syscall::new(CONFIG, counters),
            out: Recorder::default(),
        };
        bench.attach_all();
        bench
    }

    fn attach_all(&mut self) {
        for program in 0..5 {
            let uid = 1 + program % 2;
            let secret = secret(program);
            self.syscall.attach(program, uid, secret, &mut self.out);
        }
    }

    fn ask(&mut self, program: u32, serial: u32, call: SocketCall) {
        self.syscall.request(program, serial, call, &mut self.out);
    }

    fn outcome(
        &mut self,
        program: u32,
        serial: u32,
        result: Result<(SocketId, Option<Endpoint>), SocketError>,
    ) {
        let outcome = CallOutcome {
            program,
            serial,
            result,
        };
        self.syscall.outcome(TCP, outcome, &mut self.out);
    }

    fn detach(&mut self, program: u32) {
        self.syscall.detach(program, &mut self.out);
    }

    /// As [`Bench::calls`], and those too that say where what is shared begins and ends.
    fn all_calls(&mut self, protocol: Protocol) -> Vec<(u32, u32, CallBody)> {
        let calls = self.out.calls[protocol.index()].drain(..);
        calls.map(|it| (it.program, it.serial, it.body)).collect()
    }

    /// What was asked of a transport since this was last called.
    fn calls(&mut self, protocol: Protocol) -> Vec<(u32, u32, CallBody)> {
        let calls = self.all_calls(protocol).into_iter();
        let marks = [CallBody::Sharing, CallBody::AllShared];
        calls.filter(|(.., body)| !marks.contains(body)).collect()
    }

    fn answers(&mut self) -> Vec<(u32, u32, Result<Answer, SocketError>)> {
        std::mem::take(&mut self.out.answers)
    }

    /// What the program was answered, and nobody else.
    fn answer(&mut self, program: u32, serial: u32) -> Result<Answer, SocketError> {
        match self.answers()[..] {
            [(to, of, result)] if (to, of) == (program, serial) => result,
            ref other => panic!("{program} {serial}: {other:?}"),
        }
    }

    /// Binds a socket, and answers the ticket.
    fn bound(&mut self, program: u32, socket: SocketId, port: u16, options: PortOptions) -> u64 {
        self.ask(program, 77, bind(socket, port, options));
        self.outcome(program, 77, Ok((socket, Some(end(port)))));
        let answer = self.answer(program, 77).expect("bound");
        self.calls(TCP);
        answer.value
    }

    /// A socket is shared from now on.
    fn shared(&mut self, program: u32, socket: SocketId) {
        let owner = self.syscall.owner_of(TCP, socket);
        self.ask(program, 78, SocketCall::Share(TCP, socket, secret(owner)));
        self.outcome(program, 78, Ok((socket, None)));
        assert!(self.answer(program, 78).is_ok());
        self.calls(TCP);
    }

    /// The component dies; its successor has what was stored.
    fn restart(&mut self) {
        let counters = Counters::create().expect("memory");
        self.syscall = Syscall::new(CONFIG, counters);
        for (key, value) in self.out.stored.clone() {
            self.syscall.restore(key, value);
        }
        assert_eq!(self.syscall.ignored(), 0, "all of it is understood");
    }
}

fn socket_answer(socket: SocketId, local: Option<Endpoint>) -> Result<Answer, SocketError> {
    Ok(Answer {
        socket: Some(socket),
        local,
        value: 0,
    })
}

#[test]
fn calls_go_to_the_transport_and_outcomes_back() {
    let own = id(1, 3);
    let local = Some(end(40000));
    let remote = Some(end(80));
    // Request, what is asked, the outcome, the answer.
    let table = [
        (
            SocketCall::Open(TCP),
            CallBody::Open,
            Ok((own, None)),
            socket_answer(own, None),
        ),
        // Not in the program's region.
        (
            SocketCall::Open(TCP),
            CallBody::Open,
            Ok((id(2, 0), None)),
            INVALID,
        ),
        (
            SocketCall::Open(TCP),
            CallBody::Open,
            Err(SocketError::NoBuffers),
            Err(SocketError::NoBuffers),
        ),
        (
            SocketCall::Connect(TCP, own, remote),
            CallBody::Connect(own, remote),
            Ok((own, local)),
            socket_answer(own, local),
        ),
        (
            SocketCall::Listen(own, 5),
            CallBody::Listen(own, 5),
            Ok((own, local)),
            socket_answer(own, local),
        ),
        (
            SocketCall::Connect(TCP, own, remote),
            CallBody::Connect(own, remote),
            Ok((id(1, 4), local)),
            INVALID,
        ),
        // A port that wasn't asked for.
        (
            bind(own, 5000, PLAIN),
            CallBody::Bind(
                own,
                end(5000),
                BindOptions {
                    reuse_address: false,
                    shared: true,
                },
            ),
            Ok((own, local)),
            INVALID,
        ),
    ];
    for (call, body, outcome, answer) in table {
        let mut bench = Bench::new();
        assert!(bench.syscall.may_ask(1));
        bench.ask(1, 9, call);
        assert_eq!(bench.calls(TCP), [(1, 9, body)]);
        assert!(!bench.syscall.may_ask(1) && bench.syscall.may_ask(2));
        assert_eq!((bench.answers().len(), bench.syscall.unfinished()), (0, 1));
        bench.outcome(1, 9, outcome);
        assert_eq!(bench.answer(1, 9), answer, "{call:?}");
        assert_eq!(bench.syscall.unfinished(), 0);
        assert!(bench.syscall.may_ask(1) && bench.calls(TCP).is_empty());
    }
}

#[test]
fn what_may_not_be_is_refused_at_once() {
    let other = id(2, 0);
    let table = [
        (bind(other, 5000, PLAIN), SocketError::Invalid),
        (bind(id(1, 0), 80, PLAIN), SocketError::Prohibited),
        (SocketCall::Listen(other, 5), SocketError::Invalid),
        (
            SocketCall::Connect(TCP, other, Some(end(80))),
            SocketError::Invalid,
        ),
        (
            SocketCall::Connect(TCP, id(1, 0), None),
            SocketError::Invalid,
        ),
        (SocketCall::Share(TCP, other, 5), SocketError::Invalid),
        (SocketCall::Rest(other), SocketError::Invalid),
        (
            SocketCall::Share(TCP, id(9, 0), secret(9)),
            SocketError::Invalid,
        ),
    ];
    for (call, error) in table {
        let mut bench = Bench::new();
        bench.ask(1, 9, call);
        assert_eq!(bench.answer(1, 9), Err(error), "{call:?}");
        bench.ask(1, 10, SocketCall::Close(TCP, other));
        assert!(bench.calls(TCP).is_empty() && bench.syscall.may_ask(1));
        let foreign = bench.syscall.counters.get(Counter::SocketsDropForeign);
        assert!(foreign >= 1, "{call:?}");
    }
    // Without a number there would be no outcome to wait for.
    let mut bench = Bench::new();
    bench.ask(1, 0, SocketCall::Open(TCP));
    assert_eq!(bench.answer(1, 0), INVALID);
    bench.ask(99, 1, SocketCall::Open(TCP));
    assert!(bench.answers().is_empty() && bench.calls(TCP).is_empty());
}

#[test]
fn ports_are_taken_one_after_the_other() {
    let mut bench = Bench::new();
    // The last one's is of the other transport.
    bench.ask(1, 1, bind(id(1, 0), 5000, REUSE));
    bench.ask(3, 2, bind(id(3, 0), 5000, PLAIN));
    bench.ask(2, 3, SocketCall::Listen(id(2, 0), 5));
    let (udp, options) = (
        SocketId {
            slot: 33,
            generation: 1,
        },
        REUSE,
    );
    bench.ask(4, 4, SocketCall::Bind(UDP, udp, end(5000), options));
    let body = |socket, shared| {
        let reuse_address = false;
        CallBody::Bind(
            socket,
            end(5000),
            BindOptions {
                reuse_address,
                shared,
            },
        )
    };
    assert_eq!(bench.calls(TCP), [(1, 1, body(id(1, 0), true))]);
    assert_eq!(bench.calls(UDP), [(4, 4, body(udp, true))]);
    // An outcome for who waits is nothing yet.
    bench.outcome(3, 2, Ok((id(3, 0), Some(end(5000)))));
    assert_eq!((bench.answers().len(), bench.syscall.ignored()), (0, 1));
    bench.outcome(1, 1, Ok((id(1, 0), Some(end(5000)))));
    assert!(bench.answer(1, 1).is_ok());
    assert_eq!(bench.calls(TCP), [(3, 2, body(id(3, 0), false))]);
    bench.outcome(3, 2, Err(SocketError::AddressInUse));
    assert_eq!(bench.answer(3, 2), Err(SocketError::AddressInUse));
    assert_eq!(bench.calls(TCP), [(2, 3, CallBody::Listen(id(2, 0), 5))]);
    bench.outcome(2, 3, Ok((id(2, 0), Some(end(40000)))));
    assert_eq!(
        bench.answer(2, 3),
        socket_answer(id(2, 0), Some(end(40000)))
    );
    // The port that it was given is its own.
    bench.ask(3, 5, bind(id(3, 0), 40000, REUSE));
    assert_eq!(bench.answer(3, 5), Err(SocketError::AddressInUse));
    assert!(bench.calls(TCP).is_empty());
}

#[test]
fn a_bound_socket_listens_without_a_turn() {
    let mut bench = Bench::new();
    bench.bound(1, id(1, 0), 5000, PLAIN);
    bench.ask(3, 1, bind(id(3, 0), 5001, PLAIN));
    bench.calls(TCP);
    bench.ask(1, 2, SocketCall::Listen(id(1, 0), 5));
    assert_eq!(bench.calls(TCP), [(1, 2, CallBody::Listen(id(1, 0), 5))]);
}

#[test]
fn the_last_holder_closes() {
    let mut bench = Bench::new();
    let socket = id(0, 3);
    bench.bound(0, socket, 5000, PLAIN);
    bench.shared(1, socket);
    bench.shared(2, socket);
    let close = SocketCall::Close(TCP, socket);
    for program in [0, 2] {
        bench.ask(program, 1, close);
        assert_eq!(bench.calls(TCP), [(program, 0, CallBody::Release(socket))]);
    }
    assert!(bench.syscall.ports.is_bound(TCP, socket));
    // Who has let go of another's may not name it any more.
    bench.ask(2, 2, close);
    assert_eq!(bench.calls(TCP), []);
    bench.ask(1, 3, close);
    assert_eq!(bench.calls(TCP), [(1, 0, CallBody::Close(socket))]);
    assert!(!bench.syscall.ports.is_bound(TCP, socket));
    // One that nobody shares is closed at once.
    bench.ask(0, 4, SocketCall::Close(TCP, id(0, 4)));
    assert_eq!(bench.calls(TCP), [(0, 0, CallBody::Close(id(0, 4)))]);
}

#[test]
fn who_has_a_passed_socket_relieves_its_holder() {
    let socket = id(0, 3);
    let holder = |program, secret| SocketCall::Relieve(TCP, socket, Holder { program, secret });
    let mut bench = Bench::new();
    bench.bound(0, socket, 5000, PLAIN);
    // 2 holds it while a message is under way, in which 0 has passed it to 1.
    bench.shared(2, socket);
    // Who hasn't got it yet can't, nor can it be done to who owns it, or without the holder's secret.
    bench.ask(1, 1, holder(2, secret(2)));
    bench.shared(1, socket);
    for (program, secret) in [
        (0, secret(0)),
        (2, secret(3)),
        (9, secret(2)),
        (3, secret(3)),
    ] {
        bench.ask(1, 2, holder(program, secret));
    }
    assert_eq!(bench.calls(TCP), []);
    bench.ask(0, 3, SocketCall::Close(TCP, socket));
    assert_eq!(bench.calls(TCP), [(0, 0, CallBody::Release(socket))]);
    // Said twice it is done once, by a successor too.
    bench.ask(1, 4, holder(2, secret(2)));
    assert_eq!(bench.calls(TCP), [(2, 0, CallBody::Release(socket))]);
    bench.restart();
    bench.attach_all();
    bench.ask(1, 4, holder(2, secret(2)));
    let again = bench.calls(TCP).into_iter();
    assert_eq!(again.filter(|(program, ..)| *program == 2).count(), 0);
    bench.ask(1, 5, SocketCall::Close(TCP, socket));
    assert_eq!(bench.calls(TCP), [(1, 0, CallBody::Close(socket))]);
}

#[test]
fn a_holder_to_be_holds_already() {
    let socket = id(0, 3);
    let error = Err(SocketError::Invalid);
    // What the transport says, and what is told then of a socket that its owner has closed.
    let table = [
        (Ok((socket, None)), vec![]),
        (error, vec![(1, 0, CallBody::Close(socket))]),
    ];
    for (outcome, told) in table {
        let mut bench = Bench::new();
        bench.ask(1, 1, SocketCall::Share(TCP, socket, secret(0)));
        bench.ask(0, 2, SocketCall::Close(TCP, socket));
        let calls = bench.calls(TCP);
        let expected = [
            (1, 1, CallBody::Share(socket)),
            (0, 0, CallBody::Release(socket)),
        ];
        assert_eq!(calls, expected);
        bench.outcome(1, 1, outcome);
        assert_eq!(bench.calls(TCP), told);
        assert_eq!(bench.answer(1, 1).is_ok(), outcome.is_ok());
        assert_eq!(
            bench.syscall.shares.is_shared((TCP, socket)),
            outcome.is_ok()
        );
    }
}

#[test]
fn an_owner_has_its_socket_back() {
    let mut bench = Bench::new();
    let socket = id(0, 3);
    bench.shared(1, socket);
    bench.ask(0, 1, SocketCall::Close(TCP, socket));
    bench.calls(TCP);
    bench.ask(0, 2, SocketCall::Share(TCP, socket, secret(0)));
    assert_eq!(bench.calls(TCP), [(0, 2, CallBody::Share(socket))]);
    // Meanwhile the other lets go: the socket stays.
    bench.ask(1, 3, SocketCall::Close(TCP, socket));
    assert_eq!(bench.calls(TCP), [(1, 0, CallBody::Release(socket))]);
    bench.outcome(0, 2, Ok((socket, None)));
    assert!(bench.answer(0, 2).is_ok());
    bench.ask(0, 4, SocketCall::Close(TCP, socket));
    assert_eq!(bench.calls(TCP), [(0, 0, CallBody::Close(socket))]);
}

#[test]
fn an_owner_that_asks_a_successor_again_has_its_socket_back() {
    let mut bench = Bench::new();
    let socket = id(0, 3);
    bench.shared(1, socket);
    bench.ask(0, 1, SocketCall::Close(TCP, socket));
    bench.ask(0, 2, SocketCall::Share(TCP, socket, secret(0)));
    bench.restart();
    bench.attach_all();
    bench.ask(1, 3, SocketCall::Close(TCP, socket));
    bench.calls(TCP);
    // By now it is the owner's alone; whether it was closed, the transport knows.
    bench.ask(0, 2, SocketCall::Share(TCP, socket, secret(0)));
    assert_eq!(bench.calls(TCP), [(0, 2, CallBody::Share(socket))]);
    bench.outcome(0, 2, Ok((socket, None)));
    assert!(bench.answer(0, 2).is_ok());
    bench.ask(0, 4, SocketCall::Close(TCP, socket));
    assert_eq!(bench.calls(TCP), [(0, 0, CallBody::Close(socket))]);
}

#[test]
fn a_program_ends() {
    let mut bench = Bench::new();
    let (kept, lost) = (id(0, 3), id(0, 4));
    bench.bound(0, kept, 5000, PLAIN);
    bench.bound(0, lost, 5001, PLAIN);
    bench.shared(1, kept);
    bench.detach(0);
    for protocol in Protocol::ALL {
        assert_eq!(bench.calls(protocol), [(0, 0, CallBody::Detach(0))]);
    }
    let ports = &bench.syscall.ports;
    assert!(ports.is_bound(TCP, kept) && !ports.is_bound(TCP, lost));
    // Who knows its secret may share what is left of it, and it is gone with the last of that.
    bench.ask(1, 1, SocketCall::Share(TCP, lost, secret(0)));
    assert_eq!(bench.answer(1, 1), INVALID);
    bench.shared(2, kept);
    bench.ask(1, 1, SocketCall::Close(TCP, kept));
    bench.calls(TCP);
    bench.detach(2);
    let expected = [
        (2, 0, CallBody::Close(kept)),
        (0, 0, CallBody::Abandon(0)),
        (2, 0, CallBody::Abandon(0)),
    ];
    assert_eq!(bench.calls(TCP), expected);
    assert_eq!(bench.calls(UDP), expected[1..]);
    bench.ask(1, 2, SocketCall::Share(TCP, kept, secret(0)));
    assert_eq!(bench.answer(1, 2), INVALID);
    // Once is enough.
    bench.detach(2);
    assert!(bench.calls(TCP).is_empty());
}

#[test]
fn who_ends_while_binding_lets_the_next_bind() {
    let mut bench = Bench::new();
    let socket = id(0, 3);
    bench.shared(1, socket);
    bench.ask(1, 1, bind(socket, 5000, REUSE));
    bench.ask(3, 2, bind(id(3, 0), 5000, PLAIN));
    bench.ask(2, 3, bind(id(2, 0), 5001, REUSE));
    bench.detach(1);
    bench.detach(2);
    assert_eq!(bench.calls(TCP).len(), 4, "one bind, one release, two ends");
    // The socket is its owner's still, and bound.
    bench.outcome(1, 1, Ok((socket, Some(end(5000)))));
    assert!(bench.answers().is_empty());
    let reuse_address = false;
    let options = BindOptions {
        reuse_address,
        shared: false,
    };
    assert_eq!(
        bench.calls(TCP),
        [(3, 2, CallBody::Bind(id(3, 0), end(5000), options))]
    );
    bench.outcome(3, 2, Ok((id(3, 0), Some(end(5000)))));
    assert!(bench.answer(3, 2).is_ok() && bench.calls(TCP).is_empty());
}

#[test]
fn a_socket_closed_while_it_is_bound_has_no_port() {
    let mut bench = Bench::new();
    let socket = id(0, 3);
    bench.shared(1, socket);
    bench.ask(1, 1, bind(socket, 5000, PLAIN));
    bench.detach(1);
    bench.ask(0, 2, SocketCall::Close(TCP, socket));
    bench.outcome(1, 1, Ok((socket, Some(end(5000)))));
    assert!(!bench.syscall.ports.is_bound(TCP, socket));
    // As with one whose program has ended.
    bench.ask(0, 3, bind(id(0, 5), 5000, PLAIN));
    bench.detach(0);
    bench.outcome(0, 3, Ok((id(0, 5), Some(end(5000)))));
    assert!(!bench.syscall.ports.is_bound(TCP, id(0, 5)));
}

#[test]
fn a_restarted_transport_is_asked_and_told_again() {
    let mut bench = Bench::new();
    let (first, second) = (id(0, 3), id(4, 3));
    bench.shared(1, first);
    bench.shared(2, first);
    bench.ask(0, 1, SocketCall::Close(TCP, first));
    bench.shared(2, second);
    bench.detach(4);
    bench.ask(1, 2, bind(id(1, 0), 5000, PLAIN));
    bench.ask(2, 3, SocketCall::Listen(id(2, 0), 5));
    bench.ask(3, 4, SocketCall::Open(TCP));
    bench.ask(0, 5, SocketCall::Open(UDP));
    bench.calls(TCP);
    bench.calls(UDP);
    bench.syscall.transport_restarted(TCP, &mut bench.out);
    let reuse_address = false;
    let options = BindOptions {
        reuse_address,
        shared: true,
    };
    let expected = [
        (0, 0, CallBody::Sharing),
        (1, 0, CallBody::Share(first)),
        (2, 0, CallBody::Share(first)),
        (0, 0, CallBody::Release(first)),
        (2, 0, CallBody::Share(second)),
        (4, 0, CallBody::Detach(0)),
        (0, 0, CallBody::AllShared),
        (1, 2, CallBody::Bind(id(1, 0), end(5000), options)),
        (3, 4, CallBody::Open),
    ];
    assert_eq!(bench.all_calls(TCP), expected);
    assert!(bench.calls(UDP).is_empty());
}

#[test]
fn a_bind_is_taken_up_by_a_successor() {
    let mut bench = Bench::new();
    bench.ask(1, 1, bind(id(1, 0), 5000, REUSE));
    bench.calls(TCP);
    // It may have been carried out. Nobody else may bind before that is known.
    bench.restart();
    bench.attach_all();
    bench.ask(3, 2, bind(id(3, 0), 5000, PLAIN));
    let reuse_address = false;
    let options = |shared| BindOptions {
        reuse_address,
        shared,
    };
    let again = (1, 1, CallBody::Bind(id(1, 0), end(5000), options(true)));
    assert_eq!(bench.calls(TCP), [again]);
    // The program's request is still in its queue.
    bench.ask(1, 1, bind(id(1, 0), 5000, REUSE));
    bench.outcome(1, 1, Ok((id(1, 0), Some(end(5000)))));
    let next = (3, 2, CallBody::Bind(id(3, 0), end(5000), options(false)));
    assert_eq!(bench.calls(TCP), [next]);
    bench.outcome(3, 2, Err(SocketError::AddressInUse));
    assert!(bench.answer(3, 2).is_err());
    assert_eq!(bench.calls(TCP), [again]);
    bench.outcome(1, 1, Ok((id(1, 0), Some(end(5000)))));
    let ticket = bench.answer(1, 1).expect("bound").value;
    // And again after that, with the same ticket.
    bench.restart();
    bench.attach_all();
    bench.ask(1, 1, bind(id(1, 0), 5000, REUSE));
    assert_eq!(bench.calls(TCP), [again]);
    bench.outcome(1, 1, Ok((id(1, 0), Some(end(5000)))));
    assert_eq!(bench.answer(1, 1).map(|it| it.value), Ok(ticket));
}

#[test]
fn a_successor_ends_what_ended_meanwhile() {
    let mut bench = Bench::new();
    let socket = id(0, 3);
    bench.bound(0, socket, 5000, PLAIN);
    bench.shared(1, socket);
    bench.detach(0);
    bench.calls(TCP);
    bench.restart();
    for program in [2, 3, 4] {
        let uid = 1 + program % 2;
        bench
            .syscall
            .attach(program, uid, secret(program), &mut bench.out);
    }
    bench.detach(1);
    let expected = [
        // The transport may have died too.
        (1, 0, CallBody::Share(socket)),
        (0, 0, CallBody::Detach(0)),
        (1, 0, CallBody::Close(socket)),
        (0, 0, CallBody::Abandon(0)),
        (1, 0, CallBody::Abandon(0)),
    ];
    assert_eq!(bench.calls(TCP), expected);
    assert!(!bench.syscall.ports.is_bound(TCP, socket));
}

#[test]
fn what_is_stored_of_an_old_program_is_not_a_new_ones() {
    let mut bench = Bench::new();
    let socket = id(0, 3);
    bench.bound(0, socket, 5000, PLAIN);
    bench.shared(1, socket);
    bench.detach(0);
    let stored = bench.out.stored.clone();
    // At once, or when what was stored comes only after the new one has attached.
    for late in [false, true] {
        bench.out.stored = stored.clone();
        if late {
            let counters = Counters::create().expect("memory");
            bench.syscall = Syscall::new(CONFIG, counters);
            bench.syscall.attach(1, 2, secret(1), &mut bench.out);
        }
        bench.syscall.attach(0, 2, 999, &mut bench.out);
        if late {
            for (key, value) in stored.clone() {
                bench.syscall.restore(key, value);
            }
            bench.syscall.resume(&mut bench.out);
        }
        assert!(!bench.syscall.ports.is_bound(TCP, socket), "{late}");
        bench.calls(TCP);
        bench.ask(1, 1, SocketCall::Connect(TCP, socket, Some(end(80))));
        assert_eq!(bench.answer(1, 1), INVALID, "{late}");
        assert!(bench.calls(TCP).is_empty());
    }
}

#[test]
fn nonsense_from_the_store_is_dropped() {
    let mut bench = Bench::new();
    bench.bound(1, id(1, 0), 5000, PLAIN);
    let stored = bench.out.stored.clone();
    bench.restart();
    let (key, mut value) = stored.into_iter().next().expect("something");
    bench.syscall.restore(key, value);
    value[47] = 1;
    let before = bench.syscall.ignored();
    bench.syscall.restore(key, value);
    assert_eq!(bench.syscall.ignored(), before + 1);
    bench.syscall.resume(&mut bench.out);
    value[47] = 0;
    bench.syscall.restore(key, value);
    assert_eq!(bench.syscall.ignored(), before + 2, "too late");
}
