//! Exchanges between sides that sleep.

use super::{Line, WAKE_UPS, WARM_UP, check, on_both, queue, sleeper, time_round_trips};
use rustix::event::EventfdFlags;
use skink_channel::{Consumer, Doorbell, Producer, QueueError, Sleeper, SpinBudget};
use std::io;
use std::os::fd::OwnedFd;

/// One side's ends for exchanges between sleeping sides.
struct Side {
    producer: Producer<Line>,
    consumer: Consumer<Line>,
    sleeper: Sleeper,
    doorbell: Doorbell,
}

impl Side {
    fn send(&mut self, message: &Line) -> io::Result<()> {
        self.producer.push(message).map_err(io::Error::other)?;
        self.doorbell.ring();
        Ok(())
    }

    fn receive(&mut self) -> io::Result<Line> {
        loop {
            let message = self.consumer.pop();
            if let Some(message) = message.map_err(|error: QueueError| io::Error::other(error))? {
                return Ok(message);
            }
            let consumer = &self.consumer;
            self.sleeper
                .wait(None, Some(consumer.watch()), || consumer.is_ready())?;
        }
    }
}

pub fn doorbells(cpus: [usize; 2], spin: SpinBudget) -> io::Result<Vec<u64>> {
    let (there, back) = (queue()?, queue()?);
    let (first_sleeper, to_first) = sleeper(spin)?;
    let (second_sleeper, to_second) = sleeper(spin)?;
    let mut first = Side {
        producer: there.0,
        consumer: back.1,
        sleeper: first_sleeper,
        doorbell: to_second,
    };
    let mut second = Side {
        producer: back.0,
        consumer: there.1,
        sleeper: second_sleeper,
        doorbell: to_first,
    };
    let ask = move || {
        time_round_trips(WAKE_UPS, 1, |number| {
            first.send(&[number; 7])?;
            check(first.receive()?, number)
        })
    };
    let answer = move || {
        for _ in 0..WAKE_UPS + WARM_UP {
            let message = second.receive()?;
            second.send(&message)?;
        }
        Ok(())
    };
    on_both(cpus, ask, answer)
}

/// Eight bytes into one descriptor, and eight out of another.
fn by_descriptors(cpus: [usize; 2], [there, back]: [[OwnedFd; 2]; 2]) -> io::Result<Vec<u64>> {
    let [read_there, write_there] = there;
    let [read_back, write_back] = back;
    let pass = |from: &OwnedFd| -> io::Result<()> {
        rustix::io::read(from, &mut [0; 8])?;
        Ok(())
    };
    let send = |to: &OwnedFd| -> io::Result<()> {
        rustix::io::write(to, &1_u64.to_ne_bytes())?;
        Ok(())
    };
    let ask = move || {
        time_round_trips(WAKE_UPS, 1, |_| {
            send(&write_there)?;
            pass(&read_back)
        })
    };
    let answer = move || {
        for _ in 0..WAKE_UPS + WARM_UP {
            pass(&read_there)?;
            send(&write_back)?;
        }
        Ok(())
    };
    on_both(cpus, ask, answer)
}

pub fn by_eventfd(cpus: [usize; 2]) -> io::Result<Vec<u64>> {
    let one = || -> io::Result<[OwnedFd; 2]> {
        let fd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok([fd.try_clone()?, fd])
    };
    by_descriptors(cpus, [one()?, one()?])
}

pub fn by_pipe(cpus: [usize; 2]) -> io::Result<Vec<u64>> {
    let one = || -> io::Result<[OwnedFd; 2]> {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        Ok([read, write])
    };
    by_descriptors(cpus, [one()?, one()?])
}
