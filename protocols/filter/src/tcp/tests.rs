use super::*;
use crate::test_support::{PEER, US, tcp};

/// A history: who sends which flags (with `+` for a byte of payload, `!` for a wrong acknowledgement number, `=` for one of
/// four more, `^` for the next sequence number, `?` for one that nobody expects), and the phase after it.
fn play(history: &[(&str, &str)]) {
    let mut state: Option<TcpState> = None;
    for (step, (segment, expected)) in history.iter().enumerate() {
        let (who, rest) = segment.split_at(1);
        let (from, source, destination) = match who {
            "<" => (Side::Remote, PEER, US),
            _ => (Side::Local, US, PEER),
        };
        let letters: String = rest.chars().filter(char::is_ascii_alphabetic).collect();
        let mut packet = tcp(source, destination, &letters);
        packet.payload_length = u32::from(rest.contains('+'));
        packet.ack = match (rest.contains('!'), rest.contains('=')) {
            (true, _) => 5,
            (_, true) => 1005,
            _ => 1001,
        };
        packet.seq += rest.matches('^').count() as u32 + 70_000 * u32::from(rest.contains('?'));
        state = match state {
            None => TcpState::first(from, &packet),
            Some(before) => match before.step(from, &packet) {
                Step::Goes(state) => Some(state),
                Step::Over => None,
                Step::Asks => Some(before),
            },
        };
        let shown = match state {
            None => "none".to_owned(),
            Some(state) => match state.life {
                Life::Live => format!("{:?}", state.phase),
                life => format!("{life:?}"),
            },
        };
        assert_eq!(shown, *expected, "step {step} of {history:?}");
    }
}

#[test]
fn connections_come_and_go() {
    // Opened by us, by the peer, and by both at once.
    play(&[
        (">S", "SynSent"),
        ("<SA", "SynReceived"),
        (">A", "Established"),
        (">PA+", "Established"),
    ]);
    play(&[
        ("<S", "SynSent"),
        (">SA", "SynReceived"),
        ("<A", "Established"),
    ]);
    play(&[
        (">S", "SynSent"),
        ("<S", "SynReceived"),
        (">SA", "Established"),
        ("<SA", "Established"),
    ]);
    play(&[
        ("<S", "SynSent"),
        (">S", "SynReceived"),
        ("<SA", "Established"),
    ]);
    // Sent again.
    play(&[
        ("<S", "SynSent"),
        ("<S", "SynSent"),
        (">SA", "SynReceived"),
        (">SA", "SynReceived"),
        ("<S", "SynReceived"),
    ]);
    // Ended by either side, with the last segment sent again.
    let established = [
        (">S", "SynSent"),
        ("<SA", "SynReceived"),
        (">A", "Established"),
    ];
    let ending = |rest: &[(&'static str, &'static str)]| play(&[&established[..], rest].concat());
    ending(&[
        (">FA", "LocalClosed"),
        (">FA", "LocalClosed"),
        ("<A", "LocalClosed"),
        ("<PA+", "LocalClosed"),
        ("<FA", "BothClosed"),
        (">A", "BothClosed"),
        ("<FA", "BothClosed"),
    ]);
    ending(&[
        ("<FA", "RemoteClosed"),
        ("<FA", "RemoteClosed"),
        (">PA+", "RemoteClosed"),
        (">FA", "BothClosed"),
    ]);
    // A request between the same ends is another connection if we say so.
    ending(&[
        ("<S", "Established"),
        (">FA", "LocalClosed"),
        ("<S", "LocalClosed"),
        ("<FA", "BothClosed"),
        ("<S", "BothClosed"),
        (">SA?", "SynReceived"),
    ]);
    ending(&[
        ("<RA", "ResetByRemote"),
        ("<S", "ResetByRemote"),
        (">SA", "SynReceived"),
    ]);
    ending(&[
        ("<PA+", "Established"),
        ("<RA^", "ResetByRemote"),
        (">S", "none"),
    ]);
    ending(&[(">RA", "ResetByLocal"), (">S", "none")]);
    ending(&[(">S", "none")]);
    // A FIN behind what we haven't acknowledged yet, and one with data that we have.
    ending(&[("<PA+", "Established"), ("<FA^", "RemoteClosed")]);
    ending(&[("<PA+", "Established"), ("<FA+", "RemoteClosed")]);
    // The answer is sent again, since the ACK was lost behind the filter.
    play(&[
        ("<S", "SynSent"),
        (">SA", "SynReceived"),
        ("<A", "Established"),
        (">SA", "Established"),
    ]);
    // The first data shows that the handshake is done, though the ACK before it was lost.
    play(&[
        ("<S", "SynSent"),
        (">SA", "SynReceived"),
        ("<PA+", "Established"),
    ]);
    play(&[
        ("<S", "SynSent"),
        (">SA", "SynReceived"),
        ("<FA", "RemoteClosed"),
    ]);
    play(&[
        ("<S", "SynSent"),
        (">SA", "SynReceived"),
        (">PA+", "Established"),
    ]);
}

#[test]
fn what_is_forged_breaks_nothing_and_stays_nowhere() {
    let established = [
        ("<S", "SynSent"),
        (">SA", "SynReceived"),
        ("<A", "Established"),
    ];
    let then = |rest: &[(&'static str, &'static str)]| play(&[&established[..], rest].concat());
    // A forged reset: our challenge ACK, or any later segment of ours, shows that the connection lives.
    then(&[
        ("<R", "ResetByRemote"),
        ("<PA+", "ResetByRemote"),
        (">A", "Established"),
    ]);
    then(&[
        ("<FA", "RemoteClosed"),
        ("<R", "ResetByRemote"),
        (">PA+", "RemoteClosed"),
    ]);
    // Resets and FINs that `tcp` doesn't expect, and a request after them.
    then(&[
        ("<R?", "ResetInDoubt"),
        ("<S?", "ResetInDoubt"),
        ("<PA+", "ResetInDoubt"),
        (">PA+", "Established"),
    ]);
    then(&[("<FA?", "Established"), (">FA", "LocalClosed")]);
    then(&[(">FA", "LocalClosed"), ("<FA?", "LocalClosed")]);
    // A FIN ahead of what was lost is one if we acknowledge it.
    then(&[
        ("<FA^^^", "Established"),
        (">A", "Established"),
        ("<PA+^^", "Established"),
        (">A=", "RemoteClosed"),
        (">FA=", "BothClosed"),
    ]);
    // In the handshake, which goes on.
    play(&[
        ("<S", "SynSent"),
        (">SA", "SynReceived"),
        ("<R?", "ResetInDoubt"),
        ("<A", "ResetInDoubt"),
        (">PA+", "Established"),
    ]);
    play(&[
        (">S", "SynSent"),
        ("<R?", "ResetByRemote"),
        ("<SA", "ResetByRemote"),
        (">A", "Established"),
    ]);
    // A reset of ours that refuses a forged ACK.
    play(&[
        ("<S", "SynSent"),
        (">SA", "SynReceived"),
        ("<A!", "SynReceived"),
        (">R?", "SynReceived"),
        ("<A", "Established"),
    ]);
    play(&[
        ("<S", "SynSent"),
        (">SA", "SynReceived"),
        (">R", "ResetByLocal"),
    ]);
    // A reset of ours ends it, whatever else is claimed.
    then(&[
        (">RA", "ResetByLocal"),
        ("<RA", "ResetByLocal"),
        ("<PA+", "ResetByLocal"),
    ]);
    // A forged handshake, that acknowledges what it never saw, doesn't become one that stays.
    play(&[
        ("<S", "SynSent"),
        (">SA", "SynReceived"),
        ("<A!", "SynReceived"),
        ("<PA+!", "SynReceived"),
        (">A", "SynReceived"),
        ("<FA!", "SynReceived"),
    ]);
    play(&[("<S", "SynSent"), ("<A", "SynSent"), ("<FA", "SynSent")]);
    // Nor does what was picked up in the middle, until the other side agrees.
    play(&[
        ("<PA+", "PickedUp"),
        ("<PA+", "PickedUp"),
        (">A", "Established"),
    ]);
    play(&[("<PA+", "PickedUp"), (">R", "ResetByLocal")]);
    play(&[("<R", "none")]);
}

#[test]
fn numbers_are_read_back() {
    for number in 0..=u8::MAX {
        assert_eq!(
            Phase::from_number(number).is_some(),
            (1..=7).contains(&number)
        );
        assert_eq!(Life::from_number(number).is_some(), number <= 3);
        if let Some(phase) = Phase::from_number(number) {
            assert_eq!(phase as u8, number);
        }
    }
}
