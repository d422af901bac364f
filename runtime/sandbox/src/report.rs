use std::fmt;

/// Whether the process runs as another user than before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum User {
    /// It does.
    Changed {
        /// The user it was started as.
        from: u32,
    },
    /// It was started without the privilege, or in a user namespace that has no other user.
    Kept,
}

/// What confines the process now. Its `Display` is one line for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Real, effective and saved user.
    pub uid: u32,
    /// Real, effective and saved group.
    pub gid: u32,
    /// How it came by them.
    pub user: User,
    /// The version of Landlock's interface that is in force, if any.
    pub landlock: Option<i32>,
    /// How many system calls are allowed.
    pub system_calls: usize,
    /// What this system couldn't do: sentences for the log. Seccomp is never among them.
    pub missing: Vec<&'static str>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "confined as user {}, group {}", self.uid, self.gid)?;
        if self.user == User::Kept {
            f.write_str(" (not changed)")?;
        }
        match self.landlock {
            Some(version) => write!(f, ", Landlock {version}")?,
            None => f.write_str(", no Landlock")?,
        }
        write!(f, ", {} system calls", self.system_calls)?;
        for what in &self.missing {
            write!(f, "; {what}")?;
        }
        Ok(())
    }
}
