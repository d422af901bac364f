//! What can be said of a measurement in which nothing was answered: where frames stood still.

use super::lab::Lab;
use super::outside::{NAPI, Outside};
use super::variant::Stack;
use skink_testbed::{Host, Traffic};
use std::io;

/// How both ends of the cable were when the measurement began.
pub struct Witness(Vec<Traffic>);

impl Witness {
    pub fn new(lab: &Lab) -> io::Result<Witness> {
        let ends = lab.ends().into_iter();
        let carried = ends.map(|(host, end)| host.traffic(end));
        Ok(Witness(carried.collect::<io::Result<_>>()?))
    }

    /// What each end has carried and dropped since, what the kernel threads that bring its frames did, and what Skink counted.
    /// What can't be told is told as such: this is asked for when something else has failed.
    pub fn report(&self, lab: &Lab, outside: &Outside) -> String {
        let ends = lab
            .ends()
            .into_iter()
            .zip(&self.0)
            .zip(["server", "client"]);
        let ends = ends.map(|(((host, end), before), side)| {
            let carried = carried(host, end, before);
            let put_off = match host.interrupts_put_off(end) {
                Ok(0) => "aren't put off".to_owned(),
                Ok(polls) => format!("are put off by {polls} polls"),
                Err(error) => format!("can't be asked for ({error})"),
            };
            let threads = threads(outside, end);
            format!("the {side}'s end {carried}, its interrupts {put_off}, {threads}; ")
        });
        let ends: String = ends.collect();
        match lab.variant.stack {
            Stack::Skink(..) => format!("{ends}Skink counted:\n{}", counters(&lab.server)),
            Stack::Kernel | Stack::Raw(_) => ends,
        }
    }
}

fn carried(host: &Host, end: &str, before: &Traffic) -> String {
    match host.traffic(end) {
        Ok(now) => {
            let carried = now.since(before);
            format!(
                "got {} frames and dropped {}, sent {} and dropped {}",
                carried.frames_in, carried.dropped_in, carried.frames_out, carried.dropped_out
            )
        }
        Err(error) => format!("can't be looked at ({error})"),
    }
}

fn threads(outside: &Outside, end: &str) -> String {
    let threads = match outside.threads(&format!("{NAPI}{end}-")) {
        Ok(threads) => threads,
        Err(failure) => return format!("its threads can't be looked at ({})", failure.message),
    };
    if threads.is_empty() {
        return "no thread brings its frames".to_owned();
    }
    let threads = threads.into_iter().map(|(name, turns)| {
        format!(
            "{name} had the processor {} times for {:.1} ms and waited for it for {:.1} ms",
            turns.count,
            turns.ran_ns as f64 / 1e6,
            turns.waited_ns as f64 / 1e6
        )
    });
    threads.collect::<Vec<_>>().join(", ")
}

fn counters(server: &Host) -> String {
    let told = std::env::current_exe().and_then(|tool| {
        let mut command = server.command(&tool.to_string_lossy());
        command.arg("stat");
        command.output()
    });
    match told {
        Ok(told) => [told.stdout, told.stderr]
            .map(|text| String::from_utf8_lossy(&text).into_owned())
            .concat(),
        Err(error) => format!("nothing that could be asked for ({error})"),
    }
}
