use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

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
    /// Whether other cases would take the processor from it that it needs to make a load.
    pub alone: bool,
    /// Tries it.
    pub run: Box<dyn Fn() -> Outcome>,
}

impl Case {
    /// A case by name.
    pub fn new(name: impl fmt::Display, run: impl Fn() -> Outcome + 'static) -> Case {
        Case {
            name: name.to_string(),
            alone: false,
            run: Box::new(run),
        }
    }
}

impl Case {
    /// The same, with no other case beside it.
    pub fn alone(self) -> Case {
        Case {
            alone: true,
            ..self
        }
    }

    /// Tries it, also if it panics.
    pub fn outcome(&self) -> Outcome {
        catch_unwind(AssertUnwindSafe(&self.run))
            .unwrap_or_else(|_| Err(Failure::Wrong("it panicked".to_owned())))
    }
}
