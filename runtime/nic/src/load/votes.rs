//! A yes or no that follows what most of the last periods say: one that others disturb is no proof.

pub(super) struct Votes {
    /// Periods that speak for a change, less those that don't.
    count: u32,
    is: bool,
}

impl Votes {
    /// No.
    pub(super) const fn new() -> Votes {
        Votes {
            count: 0,
            is: false,
        }
    }

    /// What it is.
    pub(super) fn is(&self) -> bool {
        self.is
    }

    /// A period that speaks for a change, or against; `enough` of the former in excess make one. Answers whether that
    /// was so.
    pub(super) fn cast(&mut self, changes: bool, enough: u32) -> bool {
        self.count = match changes {
            true => self.count + 1,
            false => self.count.saturating_sub(1),
        };
        let changed = self.count >= enough;
        if changed {
            self.count = 0;
            self.is = !self.is;
        }
        changed
    }

    /// It is no until more is known. Answers whether that is a change.
    pub(super) fn end(&mut self) -> bool {
        self.count = 0;
        core::mem::take(&mut self.is)
    }
}
