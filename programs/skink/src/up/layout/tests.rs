use super::*;

#[test]
fn channels_lead_to_each_process_that_programs_speak_to_once() {
    use Part::{Filter, Ip, Link, Store, Syscall, Tcp, Udp};
    let cases: [(Vec<Vec<Part>>, &[usize]); 4] = [
        (vec![Part::ALL.to_vec()], &[0]),
        (Part::ALL.map(|part| vec![part]).to_vec(), &[5, 4, 3]),
        (
            vec![vec![Store, Filter], vec![Udp, Link, Syscall], vec![Ip, Tcp]],
            &[1, 2],
        ),
        (
            vec![vec![Tcp, Udp], vec![Link, Ip, Filter, Store, Syscall]],
            &[1, 0],
        ),
    ];
    for (processes, expected) in cases {
        let layout = Layout::new(processes);
        assert_eq!(layout.channels(), expected, "{layout:?}");
        let front: Places = expected.iter().copied().collect();
        assert_eq!(layout.front(), front, "{layout:?}");
        assert_eq!(layout.routes().channels(), expected.len(), "{layout:?}");
    }
}

/// Otherwise the filter would be gone before a connection's last segment is judged.
#[test]
fn whoever_a_packet_passes_later_stops_later() {
    use Part::{Filter, Ip, Link, Store, Syscall, Tcp, Udp};
    type Order = [&'static [usize]; 4];
    let cases: [(Vec<Vec<Part>>, Order); 3] = [
        (vec![Part::ALL.to_vec()], [&[0], &[], &[], &[]]),
        (
            Part::ALL.map(|part| vec![part]).to_vec(),
            [&[3, 4, 5], &[1], &[2, 6], &[0]],
        ),
        (
            vec![vec![Store, Filter], vec![Udp, Link, Syscall], vec![Ip, Tcp]],
            [&[2], &[], &[0], &[1]],
        ),
    ];
    for (processes, expected) in cases {
        let layout = Layout::new(processes);
        let order = layout.stopping_order();
        let order = order.map(|places| places.iter().collect::<Vec<_>>());
        assert_eq!(order, expected, "{layout:?}");
    }
}

#[test]
fn places_are_a_set() {
    let mut places: Places = [3, 0, 3, 40].into_iter().collect();
    assert_eq!(places.iter().collect::<Vec<_>>(), [0, 3]);
    assert!(places.remove(3) && !places.remove(3) && !places.remove(40));
    assert!(places.contains(0) && !places.contains(3) && !places.is_empty());
}
