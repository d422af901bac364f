use super::*;
use crate::sysfs::DIRECTORY;
use rustix::fs::{Mode, openat};
use std::path::PathBuf;

/// A directory with the two files, which is gone afterwards.
struct Directory(PathBuf);

impl Directory {
    fn new(polls: &str, timer: &str) -> Directory {
        let unique = format!("skink-interrupts-{}-{polls}-{timer}", std::process::id());
        let path = std::env::temp_dir().join(unique);
        std::fs::create_dir(&path).unwrap();
        // (sysfs replaces what a file had, and so does a value of the same length.)
        std::fs::write(path.join("napi_defer_hard_irqs"), polls).unwrap();
        std::fs::write(path.join("gro_flush_timeout"), timer).unwrap();
        Directory(path)
    }

    fn interrupts(&self) -> Interrupts {
        let directory = openat(rustix::fs::CWD, &self.0, DIRECTORY, Mode::empty()).unwrap();
        Interrupts::in_directory(directory.as_fd()).unwrap()
    }

    fn read(&self) -> [String; 2] {
        ["napi_defer_hard_irqs", "gro_flush_timeout"]
            .map(|name| std::fs::read_to_string(self.0.join(name)).unwrap())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn interrupts_are_put_off_and_come_back_as_they_were() {
    let directory = Directory::new("3", "100007");
    let mut interrupts = directory.interrupts();
    assert_eq!(directory.read(), ["3", "100007"], "nothing changes yet");
    interrupts.put_off(true).unwrap();
    assert_eq!(directory.read(), [POLLS, TIMER]);
    interrupts.put_off(false).unwrap();
    assert_eq!(directory.read(), ["3", "100007"]);
    interrupts.put_off(true).unwrap();
    drop(interrupts);
    assert_eq!(directory.read(), ["3", "100007"], "also when it is dropped");
}

#[test]
fn what_a_killed_process_left_behind_is_undone() {
    let directory = Directory::new(POLLS, TIMER);
    drop(directory.interrupts());
    // (A shorter value leaves the rest of an ordinary file as it was.)
    assert!(directory.read().iter().all(|value| value.starts_with('0')));
}

#[test]
fn what_another_process_with_a_copy_has_put_off_is_undone() {
    let directory = Directory::new("3", "100009");
    let (mut killed, mut copy) = (directory.interrupts(), directory.interrupts());
    killed.put_off(true).unwrap();
    std::mem::forget(killed);
    copy.put_off(false).unwrap();
    assert_eq!(directory.read(), [POLLS, TIMER], "it doesn't know");
    copy.undo().unwrap();
    assert_eq!(directory.read(), ["3", "100009"]);
}

#[test]
fn an_interface_that_isnt_there_is_an_error() {
    let error = Interrupts::of("skinknone").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}
