//! Messages by lanes, by the very functions that components call: encoded and written one by one, shown to the neighbour at the
//! end of a batch, with one look whether it sleeps (it doesn't).

use super::{
    ROUND_TRIP_BLOCK, ROUND_TRIP_BLOCKS, ROUND_TRIPS, on_both, time_blocks, time_round_trips,
};
use skink_channel::SleeperDescriptors;
use skink_lanes::{CAPACITY, Coded, Exchange, Lane};
use skink_memory::SocketId;
use skink_messages::{CallBody, CallOutcome, Full, TransportCall};
use std::io;

type Syscall = Exchange<CallOutcome, TransportCall>;
type Tcp = Exchange<TransportCall, CallOutcome>;

const SOCKET: SocketId = SocketId {
    slot: 1,
    generation: 1,
};

fn ends() -> io::Result<(Syscall, Tcp)> {
    let lane = Lane::create::<TransportCall, CallOutcome>("skink-bench")?;
    let sleeper = || SleeperDescriptors::create("skink-bench");
    let upper = lane.upper(1, 1, sleeper()?.doorbell()?)?;
    let lower = lane.lower(1, 1, sleeper()?.doorbell()?)?;
    Ok((
        Exchange::attach(upper).map_err(io::Error::other)?,
        Exchange::attach(lower).map_err(io::Error::other)?,
    ))
}

fn call(number: u64) -> TransportCall {
    TransportCall {
        program: 1,
        serial: number as u32,
        body: CallBody::Close(SOCKET),
    }
}

fn no_room(_: Full) -> io::Error {
    io::Error::other("there is no room in the lane")
}

/// Messages in batches of `batch`.
pub fn enqueue(cpus: [usize; 2], batch: u64) -> io::Result<Vec<u64>> {
    let (syscall, mut tcp) = ends()?;
    let send = move |syscall: &mut Syscall, number| {
        syscall.send(&call(number))?;
        if number % batch == batch - 1 {
            syscall.flush();
        }
        Ok::<(), Full>(())
    };
    let is_empty = |syscall: &mut Syscall| Ok(syscall.reserve(CAPACITY).is_ok());
    let consume = move || {
        while let Some(call) = tcp.take() {
            std::hint::black_box(call);
        }
        tcp.flush();
        Ok(())
    };
    time_blocks(cpus, syscall, send, is_empty, consume)
}

/// Calls and their outcomes, one at a time.
pub fn round_trips(cpus: [usize; 2]) -> io::Result<Vec<u64>> {
    let (mut syscall, mut tcp) = ends()?;
    let ask = move || {
        time_round_trips(ROUND_TRIP_BLOCKS, ROUND_TRIP_BLOCK, |number| {
            syscall.send(&call(number)).map_err(no_room)?;
            syscall.flush();
            match next(&mut syscall).serial == number as u32 {
                true => Ok(()),
                false => Err(io::Error::other("another outcome came back")),
            }
        })
    };
    let answer = move || {
        for _ in 0..ROUND_TRIPS {
            let TransportCall {
                program, serial, ..
            } = next(&mut tcp);
            let outcome = CallOutcome {
                program,
                serial,
                result: Ok((SOCKET, None)),
            };
            tcp.send(&outcome).map_err(no_room)?;
            tcp.flush();
        }
        Ok(())
    };
    on_both(cpus, ask, answer)
}

fn next<In: Coded, Out: Coded>(end: &mut Exchange<In, Out>) -> In {
    loop {
        match end.take() {
            Some(message) => return message,
            None => std::hint::spin_loop(),
        }
    }
}
