//! What programs do besides talking: ordinary calls on descriptors that aren't sockets.

use skink_testbed::Epoll;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Operations between two looks at the clock.
const AT_ONCE: u64 = 64;
/// Bytes of one call on a file, and on a pipe.
const FILE_BYTES: usize = 4096;
const PIPE_BYTES: usize = 64;

/// One of them.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Write 4 KiB to /dev/null
    Null,
    /// Write 4 KiB to a file, and read them again
    File,
    /// Look at a file by its name, open it, and close it
    Open,
    /// Write 64 bytes to a pipe, and read them again
    Pipe,
    /// Write 64 bytes to a pipe, wait for them with epoll, and read them
    Epoll,
}

impl Operation {
    pub const ALL: [Operation; 5] = [
        Operation::Null,
        Operation::File,
        Operation::Open,
        Operation::Pipe,
        Operation::Epoll,
    ];

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Operation::Null => "null",
            Operation::File => "file",
            Operation::Open => "open",
            Operation::Pipe => "pipe",
            Operation::Epoll => "epoll",
        }
    }

    /// The byte that asks a server for it.
    pub fn byte(self) -> u8 {
        self.word()
            .as_bytes()
            .first()
            .copied()
            .unwrap_or(b'?')
            .to_ascii_uppercase()
    }
}

/// Does it again and again for so long; answers how often, and how long that took.
pub fn work(operation: Operation, time: Duration) -> io::Result<(u64, Duration)> {
    let path = std::env::temp_dir().join(format!("skink-bench-{}", std::process::id()));
    let (page, mut got) = ([0x5a_u8; FILE_BYTES], [0_u8; FILE_BYTES]);
    match operation {
        Operation::Null => {
            let mut null = File::create("/dev/null")?;
            repeat(time, || null.write_all(&page))
        }
        Operation::File => {
            let mut options = File::options();
            let file = options
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(&path)?;
            std::fs::remove_file(&path)?;
            repeat(time, || {
                file.write_all_at(&page, 0)?;
                file.read_exact_at(&mut got, 0)
            })
        }
        Operation::Open => repeat(time, || {
            std::fs::metadata("/dev/null")?;
            File::open("/dev/null").map(drop)
        }),
        Operation::Pipe => {
            let (mut reader, mut writer) = io::pipe()?;
            let mut few = [0_u8; PIPE_BYTES];
            repeat(time, || {
                writer.write_all(&few)?;
                reader.read_exact(&mut few)
            })
        }
        Operation::Epoll => {
            let (mut reader, mut writer) = io::pipe()?;
            let mut epoll = Epoll::new(8)?;
            epoll.add(&reader, 7)?;
            let mut few = [0_u8; PIPE_BYTES];
            repeat(time, || {
                writer.write_all(&few)?;
                match epoll.wait()?.next() {
                    Some(7) => reader.read_exact(&mut few),
                    _ => Err(io::Error::other("epoll told of something else")),
                }
            })
        }
    }
}

fn repeat(time: Duration, mut once: impl FnMut() -> io::Result<()>) -> io::Result<(u64, Duration)> {
    let (start, mut count) = (Instant::now(), 0);
    loop {
        let elapsed = start.elapsed();
        if elapsed >= time {
            return Ok((count, elapsed));
        }
        for _ in 0..AT_ONCE {
            once()?;
        }
        count += AT_ONCE;
    }
}
