use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// Why a case didn't pass.
#[derive(Debug)]
pub enum Failure {
    /// It can't run here, and why.
    Skip(String),
    /// What is wrong.
    Wrong(String),
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Wrong(error.to_string())
    }
}

/// How a case ends.
pub type Outcome = Result<(), Failure>;

/// Something that must hold.
pub struct Case {
    /// Words that say what, joined by slashes: `packet/nginx/files`.
    pub name: String,
    /// Tries it.
    pub run: Box<dyn Fn() -> Outcome>,
}

impl Case {
    /// A case by name.
    pub fn new(name: impl fmt::Display, run: impl Fn() -> Outcome + 'static) -> Case {
        Case {
            name: name.to_string(),
            run: Box::new(run),
        }
    }
}

/// Runs the cases whose names hold all of `filters`; answers whether none failed.
pub fn run(cases: &[Case], filters: &[String]) -> bool {
    let (mut passed, mut failed, mut skipped) = (0, Vec::new(), 0);
    for case in cases {
        if !filters
            .iter()
            .all(|filter| case.name.contains(filter.as_str()))
        {
            continue;
        }
        let start = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(&case.run));
        let seconds = start.elapsed().as_secs_f64();
        match outcome {
            Ok(Ok(())) => {
                passed += 1;
                println!("ok      {} ({seconds:.1} s)", case.name);
            }
            Ok(Err(Failure::Skip(why))) => {
                skipped += 1;
                println!("SKIP    {}: {why}", case.name);
            }
            Ok(Err(Failure::Wrong(what))) => {
                println!("FAILED  {} ({seconds:.1} s)\n{what}\n", case.name);
                failed.push(&case.name);
            }
            Err(_) => {
                println!("FAILED  {} ({seconds:.1} s): it panicked", case.name);
                failed.push(&case.name);
            }
        }
    }
    if !failed.is_empty() {
        println!("\nfailed:");
        failed.iter().for_each(|name| println!("  {name}"));
    }
    println!(
        "{passed} passed, {} failed, {skipped} skipped",
        failed.len()
    );
    failed.is_empty()
}
