//! A process dies between any two of its steps, and a successor goes on with the queue.

use super::*;
use crate::opener::Past;
use crate::xdp::ring::Offsets;
use crate::xdp::tests::{
    NEAR, Queue, datagram, frames, kernel_socket, on_a_link, open_queue, pattern,
};
use crate::{Receiver, Sender};
use skink_messages::NicOutput;
use std::os::fd::{AsFd, OwnedFd};

/// The dead process's view of its rings.
struct Rings {
    fill: Producer<u64>,
    rx: Consumer<libc::xdp_desc>,
    tx: Producer<libc::xdp_desc>,
    completion: Consumer<u64>,
}

fn rings(queue: &Queue) -> Rings {
    let socket = queue.descriptors[0].as_fd();
    let offsets = Offsets::of(socket).expect("offsets");
    let entries = Geometry::QUEUE.chunks;
    let completion = libc::XDP_UMEM_PGOFF_COMPLETION_RING;
    let fill = libc::XDP_UMEM_PGOFF_FILL_RING;
    Rings {
        fill: Producer::map(socket, &offsets.fill, fill, entries).expect("mapped"),
        rx: Consumer::map(socket, &offsets.rx, libc::XDP_PGOFF_RX_RING as u64, entries)
            .expect("mapped"),
        tx: Producer::map(socket, &offsets.tx, libc::XDP_PGOFF_TX_RING as u64, entries)
            .expect("mapped"),
        completion: Consumer::map(socket, &offsets.completion, completion, entries)
            .expect("mapped"),
    }
}

/// What a successor makes of the queue.
fn succeed(queue: &mut Queue) -> io::Result<()> {
    let [socket, memory] = queue
        .descriptors
        .each_ref()
        .map(|fd: &OwnedFd| fd.try_clone().expect("a duplicate"));
    let attached = queue
        .description
        .attach(socket.into(), &[], memory.as_fd(), Past::Own);
    (queue.receiver, queue.sender) = attached?;
    Ok(())
}

fn send_numbers(numbers: std::ops::Range<u32>) {
    let kernel = kernel_socket(5000);
    for number in numbers {
        let sent = kernel.send_to(&number.to_be_bytes(), (NEAR, 6000));
        assert_eq!(sent.expect("sent"), 4);
    }
}

fn receive_numbers(queue: &mut Queue, count: usize) -> Vec<u32> {
    let came = frames(&mut queue.receiver, count);
    let number = |frame: &[u8]| u32::from_be_bytes(frame[42..46].try_into().expect("four bytes"));
    came.iter().map(|(frame, _)| number(frame)).collect()
}

/// All chunks to receive into are with the kernel, and each is used again and again.
fn all_are_used(queue: &mut Queue) {
    let rings = rings(queue);
    let end = rings.rx.next().wrapping_add(Geometry::QUEUE.chunks);
    assert_eq!(rings.fill.next(), end, "none is missing");
    for round in 0..Geometry::QUEUE.chunks / 64 * 2 {
        send_numbers(round * 64..(round + 1) * 64);
        let came = receive_numbers(queue, 64);
        assert_eq!(came, (round * 64..(round + 1) * 64).collect::<Vec<u32>>());
    }
    assert_eq!(queue.receiver.take_dropped(), 0);
}

#[test]
fn no_frame_and_no_chunk_is_lost_whenever_the_receiver_dies() {
    on_a_link(1500, 1, || {
        let Some(mut queue) = open_queue() else {
            return;
        };
        for step in 0..3 {
            send_numbers(0..50);
            let mut dead = rings(&queue);
            // Waits for all, so that the successor finds them in the ring.
            while dead.rx.waiting() < 50 {}
            for _ in 0..10 {
                let frame = dead.rx.take();
                let chunk = frame.addr & !(u64::from(Geometry::QUEUE.chunk_bytes) - 1);
                dead.fill.write(chunk);
            }
            if step >= 1 {
                dead.rx.release();
            }
            if step >= 2 {
                dead.fill.publish();
            }
            succeed(&mut queue).expect("sound rings");
            // Before the release it gave nothing back, and its successor sees those frames again. Among
            // the ten may be some that the kernel sent of its own accord.
            let came = receive_numbers(&mut queue, if step == 0 { 50 } else { 40 });
            assert!(step == 0 || came.len() < 50, "step {step}: seen twice");
            let first = 50 - came.len() as u32;
            assert_eq!(came, (first..50).collect::<Vec<u32>>(), "step {step}");
            all_are_used(&mut queue);
        }
    });
}

/// A card that receives into this memory by itself (zero copy): frames that were passed to the kernel have left chunks with the
/// driver, which took others for those that it handed over.
#[test]
fn what_the_kernel_has_taken_comes_back_in_any_order() {
    on_a_link(1500, 1, || {
        let Some(mut queue) = open_queue() else {
            return;
        };
        send_numbers(0..2);
        let mut dead = rings(&queue);
        while dead.rx.waiting() < 2 {}
        let socket = queue.descriptors[0].as_fd();
        let offsets = Offsets::of(socket).expect("offsets");
        let page = libc::XDP_UMEM_PGOFF_FILL_RING;
        let entries = Geometry::QUEUE.chunks;
        let mut kernel =
            Consumer::<u64>::map(socket, &offsets.fill, page, entries).expect("mapped");
        while kernel.next() != 2 {
            kernel.take();
        }
        for _ in 0..2 {
            dead.rx.take();
            // As if this one had been handed over, and the other one kept.
            dead.fill.write(kernel.take());
        }
        kernel.release();
        dead.rx.release();
        dead.fill.publish();
        succeed(&mut queue).expect("sound rings");
    });
}

#[test]
fn chains_wait_for_a_successor() {
    on_a_link(9000, 1, || {
        let Some(mut queue) = open_queue() else {
            return;
        };
        let kernel = kernel_socket(5000);
        for number in 0..4u8 {
            kernel
                .send_to(&vec![number; 8900], (NEAR, 6000))
                .expect("sent");
        }
        let came = frames(&mut queue.receiver, 0);
        assert!(came.is_empty());
        succeed(&mut queue).expect("sound rings");
        let came = frames(&mut queue.receiver, 4);
        for (number, (frame, _)) in came.iter().enumerate() {
            assert_eq!(frame[42..], vec![number as u8; 8900]);
        }
        assert_eq!(came.len(), 4);
    });
}

#[test]
fn all_chunks_to_send_from_are_found_whenever_the_sender_dies() {
    on_a_link(1500, 1, || {
        let Some(mut queue) = open_queue() else {
            return;
        };
        for step in 0..4u8 {
            let kernel = kernel_socket(5000);
            let payload = [step; 8];
            for _ in 0..3 {
                let sent = queue.sender.send(&datagram(&payload, &[]));
                assert!(sent.is_ok());
            }
            let mut dead = rings(&queue);
            match step {
                // Written, but the kernel doesn't know.
                0 => {}
                // It knows, but wasn't woken.
                1 => {
                    dead.tx.adopt(3);
                    dead.tx.publish();
                }
                // They have left.
                2 => queue.sender.flush(),
                // And one of them was taken back.
                _ => {
                    queue.sender.flush();
                    while dead.completion.waiting() < 3 {}
                    dead.completion.take();
                    dead.completion.release();
                }
            }
            succeed(&mut queue).expect("sound rings");
            let mut answer = [0; 100];
            for _ in 0..if step == 0 { 0 } else { 3 } {
                let (len, _) = kernel.recv_from(&mut answer).expect("a datagram");
                assert_eq!(answer[..len], payload, "step {step}");
            }
            // Nobody has the port any more: what comes is dropped.
            drop(kernel);
            all_can_be_sent_from(&mut queue);
        }
    });
}

/// Each chunk, and each once.
fn all_can_be_sent_from(queue: &mut Queue) {
    let payload = pattern(100);
    for sent in 0..Geometry::QUEUE.chunks {
        // Those under way take their time.
        let mut attempts = 0;
        while queue.sender.send(&datagram(&payload, &[])).is_err() {
            attempts += 1;
            assert!(attempts < 1_000_000, "only {sent} chunks are there");
        }
    }
    assert!(queue.sender.send(&datagram(&payload, &[])).is_err());
    queue.sender.flush();
    assert_eq!(queue.sender.take_dropped(), 0);
}

#[test]
fn rings_that_make_no_sense_are_refused() {
    type Spoil = fn(&mut Rings);
    let spoilings: [Spoil; 5] = [
        // More was taken out than there was.
        |rings| {
            for _ in 0..3 {
                rings.rx.take();
            }
            rings.rx.release();
        },
        // A chunk is there twice.
        |rings| {
            let chunk = rings.fill.written(rings.fill.next().wrapping_sub(1));
            rings.fill.adopt(0u32.wrapping_sub(2));
            rings.fill.write(chunk);
            rings.fill.write(chunk);
        },
        // One that isn't ours.
        |rings| {
            rings.fill.adopt(0u32.wrapping_sub(1));
            rings.fill.write(Geometry::QUEUE.bytes() as u64);
        },
        // A frame to be sent from what is to be received into.
        |rings| {
            let frame = libc::xdp_desc {
                addr: 0,
                len: 100,
                options: 0,
            };
            rings.tx.write(frame);
            rings.tx.publish();
        },
        // More have left than there were.
        |rings| {
            rings.completion.take();
            rings.completion.release();
        },
    ];
    for (number, spoil) in spoilings.into_iter().enumerate() {
        on_a_link(1500, 1, || {
            let Some(mut queue) = open_queue() else {
                return;
            };
            spoil(&mut rings(&queue));
            let error = succeed(&mut queue).expect_err("spoilt");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{number}");
        });
    }
}
