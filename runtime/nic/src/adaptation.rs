use crate::interrupts::Interrupts;
use crate::load::Load;
use crate::segmentation::Segmentation;
use std::io;

/// What of an interface is adapted to how it is used, as far as it can be: interrupts are put off while who uses it is
/// busy, and segmentation while packets are small. Dropping it leaves all as it was before.
#[derive(Debug, Default)]
pub struct Adaptation {
    interrupts: Option<Interrupts>,
    segmentation: Option<Segmentation>,
}

impl Adaptation {
    /// Of the interface called `name`. What a process that was killed left behind is undone.
    pub(crate) fn of(name: &str) -> Adaptation {
        Adaptation {
            interrupts: adaptable(name, "interrupts", Interrupts::of),
            segmentation: adaptable(name, "segmentation", Segmentation::of),
        }
    }

    /// Adapts it to this load, unless it is so. Takes system calls only for a change.
    pub fn adapt(&mut self, load: Load) {
        let interrupts = self.interrupts.as_mut().map(|it| it.put_off(load.busy));
        let segmentation = self.segmentation.as_mut().map(|it| it.put_off(load.small));
        self.hear(interrupts, segmentation);
    }

    /// Undoes whatever is put off, also by another process with a copy of this, which has died.
    pub fn undo(&mut self) {
        let interrupts = self.interrupts.as_mut().map(Interrupts::undo);
        let segmentation = self.segmentation.as_mut().map(Segmentation::undo);
        self.hear(interrupts, segmentation);
    }

    /// What can't be changed isn't tried again.
    fn hear(&mut self, interrupts: Option<io::Result<()>>, segmentation: Option<io::Result<()>>) {
        if let Some(Err(error)) = interrupts {
            tracing::warn!(%error, "can't put interrupts off");
            self.interrupts = None;
        }
        if let Some(Err(error)) = segmentation {
            tracing::warn!(%error, "can't put segmentation off");
            self.segmentation = None;
        }
    }
}

fn adaptable<T>(name: &str, what: &str, of: fn(&str) -> io::Result<T>) -> Option<T> {
    let found = of(name);
    found
        .inspect_err(|error| tracing::info!(name, what, %error, "can't be put off"))
        .ok()
}
