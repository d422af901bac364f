//! A download at a steady rate, watched.

use skink_end_to_end::{Failure, Network};
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What is taken in a second, in bytes.
pub const RATE: u64 = 14 << 20;
/// How long a sample is.
pub const SAMPLE: Duration = Duration::from_millis(100);
/// What may be caught up at once after a standstill, in bytes.
const MOST_AT_ONCE: f64 = RATE as f64 / 8.0;

/// A curl that is read from as fast as [`RATE`] allows.
pub struct Download {
    curl: Child,
    reader: JoinHandle<Result<Watched, std::io::Error>>,
}

/// How it went.
pub struct Watched {
    /// Bytes that came in each span of [`SAMPLE`].
    pub samples: Vec<u64>,
    /// All of them.
    pub bytes: u64,
    /// The first of them that isn't as in the file, or where either ended early.
    pub differs_at: Option<u64>,
}

impl Download {
    /// Begins to fetch what must be the same as the file `original`.
    pub fn start(network: &Network, url: &str, original: &Path) -> Result<Download, Failure> {
        let mut command = network.kernel.command("curl");
        command.args(["-sS", "--fail", "--max-time", "60", url]);
        let mut curl = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let pipe = curl.stdout.take();
        let pipe = pipe.ok_or_else(|| Failure::Wrong("curl has no output".to_owned()))?;
        let original: PathBuf = original.to_owned();
        let reader = std::thread::spawn(move || watch(pipe, &original));
        Ok(Download { curl, reader })
    }

    /// Waits for its end.
    pub fn finish(mut self) -> Result<Watched, Failure> {
        let watched = self.reader.join();
        let watched =
            watched.map_err(|_| Failure::Wrong("the reader of curl panicked".to_owned()))??;
        let status = self.curl.wait()?;
        match status.success() {
            true => Ok(watched),
            false => Err(Failure::Wrong(format!(
                "curl ended with {status} after {} bytes",
                watched.bytes
            ))),
        }
    }
}

fn watch(mut pipe: ChildStdout, original: &Path) -> std::io::Result<Watched> {
    let mut file = BufReader::with_capacity(1 << 20, File::open(original)?);
    let mut watched = Watched {
        samples: Vec::new(),
        bytes: 0,
        differs_at: None,
    };
    let (mut buffer, mut expected) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    let start = Instant::now();
    let (mut allowed, mut counted) = (0.0, start);
    loop {
        while allowed < 1.0 {
            std::thread::sleep(Duration::from_millis(2));
            let now = Instant::now();
            allowed += now.duration_since(counted).as_secs_f64() * RATE as f64;
            allowed = allowed.min(MOST_AT_ONCE);
            counted = now;
        }
        let count = pipe.read(&mut buffer)?;
        allowed -= count as f64;
        let sample = start.elapsed().as_millis() / SAMPLE.as_millis();
        let sample = usize::try_from(sample).unwrap_or(usize::MAX);
        while watched.samples.len() <= sample {
            watched.samples.push(0);
        }
        watched.samples[sample] += count as u64;
        let same = match file.read_exact(&mut expected[..count]) {
            Ok(()) if count == 0 => file.read(&mut expected)? == 0,
            Ok(()) => expected[..count] == buffer[..count],
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => false,
            Err(error) => return Err(error),
        };
        if !same {
            watched.differs_at.get_or_insert(watched.bytes);
        }
        watched.bytes += count as u64;
        if count == 0 {
            return Ok(watched);
        }
    }
}
