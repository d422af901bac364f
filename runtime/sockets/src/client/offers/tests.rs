use super::*;

const LISTENER: SocketId = id(1, 1);

const fn id(slot: u32, generation: u32) -> SocketId {
    SocketId { slot, generation }
}

/// What happened before a connection is offered again.
#[derive(Clone, Copy, Debug)]
enum Past {
    Offered(SocketId),
    Taken,
    Closed(SocketId),
    Forgotten,
    Restored(SocketId),
}

#[test]
fn what_is_offered_again_is_known() {
    use Past::*;
    let it = id(7, 5);
    let (older, newer) = (id(7, 4), id(7, 6));
    let last = id(7, u32::MAX);
    let first = id(7, 0);
    for (past, offered, expected) in [
        (&[][..], it, None),
        (&[Offered(it)], it, Some(Progress::Waits(LISTENER))),
        (&[Offered(it), Taken], it, Some(Progress::Taken)),
        (
            &[Offered(it), Taken, Closed(it)],
            it,
            Some(Progress::Closed),
        ),
        (
            &[Offered(it), Forgotten],
            it,
            Some(Progress::Waits(LISTENER)),
        ),
        (&[Offered(older)], it, None),
        (&[Offered(older), Taken, Closed(older)], it, None),
        // The slot's next socket isn't one that was offered.
        (
            &[Offered(it), Taken, Closed(it), Closed(newer)],
            it,
            Some(Progress::Closed),
        ),
        (&[Restored(newer)], it, Some(Progress::Closed)),
        (&[Restored(newer), Closed(it)], newer, Some(Progress::Taken)),
        // In a new program, and one that was passed away and came back.
        (&[Restored(it)], it, Some(Progress::Taken)),
        (&[Closed(it)], it, Some(Progress::Closed)),
        (&[Closed(it), Restored(it)], it, Some(Progress::Taken)),
        // Generations wrap.
        (&[Closed(last)], first, None),
        (&[Restored(first)], last, Some(Progress::Closed)),
    ] {
        let mut offers = Offers::default();
        for past in past {
            match *past {
                Offered(id) => assert_eq!(offers.put(LISTENER, id), None),
                Taken => assert!(offers.take(LISTENER, |_| true).is_some()),
                Closed(id) => offers.note(id, Progress::Closed),
                Forgotten => offers.remove(LISTENER),
                Restored(id) => offers.note(id, Progress::Taken),
            }
        }
        let waiting = offers.of(LISTENER).map_or(0, VecDeque::len);
        assert_eq!(offers.put(LISTENER, offered), expected, "{past:?}");
        let more = usize::from(expected.is_none());
        let waits = offers.of(LISTENER).map_or(0, VecDeque::len);
        assert_eq!(waits, waiting + more, "{past:?}");
    }
}

/// The stack has given them to another program; one it offers again, since that had no room.
#[test]
fn what_was_withdrawn_is_forgotten() {
    let mut offers = Offers::default();
    let [first, second, third] = [5, 6, 7].map(|slot| id(slot, 5));
    for it in [first, second, third] {
        assert_eq!(offers.put(LISTENER, it), None);
    }
    assert_eq!(offers.take(LISTENER, |it| it == third), Some(third));
    assert_eq!(offers.take(LISTENER, |_| true), None);
    assert_eq!(offers.put(LISTENER, second), None);
    assert_eq!(offers.take(LISTENER, |_| true), Some(second));
    assert_eq!(offers.put(LISTENER, second), Some(Progress::Taken));
    // What is known of the slot's next socket stays.
    assert_eq!(offers.put(LISTENER, first), None);
    offers.note(id(first.slot, 6), Progress::Taken);
    assert_eq!(offers.take(LISTENER, |_| false), None);
    assert_eq!(
        offers.put(LISTENER, id(first.slot, 6)),
        Some(Progress::Taken)
    );
}

/// The program has two listening sockets on one end, and accepts at the other one.
#[test]
fn what_moved_waits_in_one_place() {
    let (other, it) = (id(2, 1), id(7, 5));
    let mut offers = Offers::default();
    assert_eq!(offers.put(LISTENER, it), None);
    assert_eq!(offers.put(other, it), None);
    assert_eq!(offers.take(LISTENER, |_| true), None);
    assert_eq!(offers.take(other, |_| true), Some(it));
}

/// Its listening socket is closed, and the program has another one on the same end.
#[test]
fn what_was_left_is_taken_elsewhere() {
    let (other, it) = (id(2, 1), id(7, 5));
    let mut offers = Offers::default();
    assert_eq!(offers.put(LISTENER, it), None);
    offers.remove(LISTENER);
    assert_eq!(offers.put(other, it), None);
    assert_eq!(offers.put(other, it), Some(Progress::Waits(other)));
    assert_eq!(
        (
            offers.take(LISTENER, |_| true),
            offers.take(other, |_| true)
        ),
        (None, Some(it))
    );
    assert_eq!(offers.put(other, it), Some(Progress::Taken));
}
