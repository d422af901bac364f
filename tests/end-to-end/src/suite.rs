//! The suite as a whole: cases are handed out to workers, each a process in namespaces of its own.

use crate::site::PATIENCE;
use crate::{Case, Failure};
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::Instant;

/// The argument that makes a program of this suite a worker.
pub const WORKER: &str = "--worker";

/// So many lines of why a case failed are repeated at the end.
const LAST_LINES: usize = 30;

/// Runs the cases whose names hold all of `filters` in `workers` processes, and then in one those that are to be
/// [alone](Case::alone); answers whether none failed. To be called outside of private namespaces, by a program that
/// calls [`work`] when its argument is [`WORKER`].
///
/// # Errors
/// If a worker can't be started, or ends before its work does.
pub fn run(cases: &[Case], filters: &[String], workers: usize) -> io::Result<bool> {
    let wanted = |case: &Case| filters.iter().all(|filter| case.name.contains(filter));
    let numbered = (0..).zip(cases).filter(|(_, case)| wanted(case));
    let (alone, others): (Vec<_>, Vec<_>) = numbered.partition(|(_, case)| case.alone);
    let mut tally = Tally::default();
    for (cases, workers) in [(others, workers), (alone, 1)] {
        let numbers: Vec<u16> = cases.into_iter().map(|(number, _)| number).collect();
        if numbers.is_empty() {
            continue;
        }
        let before = tally.count();
        let (outcomes, mut started) = start(&numbers, workers)?;
        outcomes.iter().for_each(|report| tally.take(&report));
        tally.lost += numbers.len() - (tally.count() - before);
        for worker in &mut started {
            worker.wait()?;
        }
    }
    let Tally {
        passed,
        failed,
        skipped,
        lost,
    } = tally;
    if !failed.is_empty() {
        println!("\nfailed:");
        failed.iter().for_each(|it| println!("  {it}"));
    }
    let count = failed.len() + lost;
    println!("{passed} passed, {count} failed, {skipped} skipped");
    match lost {
        0 => Ok(failed.is_empty()),
        _ => Err(io::Error::other(format!(
            "{lost} cases were not run: a worker ended"
        ))),
    }
}

/// What became of cases.
#[derive(Default)]
struct Tally {
    passed: usize,
    /// The name of each, how long it took, and the end of the reason: the log is long, and may be cut where it is kept.
    failed: Vec<String>,
    skipped: usize,
    /// Those that no worker told of.
    lost: usize,
}

impl Tally {
    /// Cases that workers told of.
    fn count(&self) -> usize {
        self.passed + self.failed.len() + self.skipped
    }

    /// Counts and prints what a worker told.
    fn take(&mut self, report: &Value) {
        let text = |key: &str| report[key].as_str().unwrap_or_default().to_owned();
        let (name, why) = (text("name"), text("why"));
        let seconds = report["seconds"].as_f64().unwrap_or_default();
        match &*text("outcome") {
            "passed" => {
                self.passed += 1;
                println!("ok      {name} ({seconds:.1} s)");
            }
            "skipped" => {
                self.skipped += 1;
                println!("SKIP    {name}: {why}");
            }
            _ => {
                println!("FAILED  {name} ({seconds:.1} s)\n{why}\n");
                let lines: Vec<&str> = why.lines().collect();
                let end = lines.split_at(lines.len().saturating_sub(LAST_LINES)).1;
                let end = end.join("\n    ");
                self.failed
                    .push(format!("{name} ({seconds:.1} s)\n    {end}"));
            }
        }
    }
}

/// Starts the workers, with the numbers of their cases. What each reports of its cases comes out of the channel, which ends with the last of them.
fn start(numbers: &[u16], workers: usize) -> io::Result<(mpsc::Receiver<Value>, Vec<Child>)> {
    let (queue, mut feed) = io::pipe()?;
    let (sender, outcomes) = mpsc::channel();
    let mut started = Vec::new();
    for _ in 0..workers {
        let mut command = skink_testbed::privately([WORKER])?;
        command.stdin(queue.try_clone()?).stdout(Stdio::piped());
        let mut worker = command.spawn()?;
        let reports = worker.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        started.push(worker);
        let sender = sender.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(reports).lines().map_while(Result::ok) {
                match serde_json::from_str(&line) {
                    Ok(report @ Value::Object(_)) => drop(sender.send(report)),
                    // What a case has to say besides.
                    Ok(_) | Err(_) => println!("{line}"),
                }
            }
        });
    }
    drop(queue);
    for number in numbers {
        feed.write_all(&number.to_ne_bytes())?;
    }
    Ok((outcomes, started))
}

/// Takes cases from standard input, which all workers share, and says on standard output what became of each.
///
/// # Errors
/// If either can't be used.
pub fn work(cases: &[Case]) -> io::Result<()> {
    let mut number = [0; 2];
    loop {
        // Whole numbers are read: a pipe hands out what one read asks for without a gap.
        match rustix::io::read(io::stdin(), &mut number)? {
            2 => {}
            _ => return Ok(()),
        }
        let Some(case) = cases.get(usize::from(u16::from_ne_bytes(number))) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let start = Instant::now();
        let (outcome, why) = match case.outcome() {
            Ok(()) => ("passed", String::new()),
            Err(Failure::Skip(why)) => ("skipped", why),
            Err(Failure::Wrong(what)) => ("failed", what),
        };
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{}",
            json!({ "name": case.name, "outcome": outcome, "why": why, "seconds": seconds })
        );
        if outcome == "failed" {
            // The next case has the same names and addresses.
            skink_testbed::end_all_others(PATIENCE)?;
        }
    }
}
