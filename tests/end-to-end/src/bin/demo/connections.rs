//! Connections that are opened before anything happens to the stack, and must be of use afterwards.

use skink_end_to_end::{Failure, Network, Nginx, Site, Sshd};
use skink_testbed::{Process, Scratch};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Connections besides curl's and ssh's.
pub const OPEN: usize = 20;

/// Ten lines a second go through ssh to `cat` and back.
pub struct Session {
    process: Process,
    // It serves until this is dropped.
    _sshd: Sshd,
}

impl Session {
    /// None where nobody can log in, which is said.
    pub fn start(network: &Network, scratch: &Scratch) -> Result<Option<Session>, Failure> {
        let sshd = match Sshd::on_skink(network) {
            Ok(sshd) => sshd,
            Err(Failure::Skip(why)) => {
                println!("   no ssh session: {why}");
                return Ok(None);
            }
            Err(wrong) => return Err(wrong),
        };
        let ssh = sshd.client(network, "ssh");
        let words = std::iter::once(ssh.get_program()).chain(ssh.get_args());
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        let at = |name| scratch.path().join(name).display().to_string();
        let script = format!(
            "set -o pipefail; for i in $(seq 120); do echo line $i; sleep 0.1; done | tee {sent} | \
             {ssh} root@{address} cat >{back} && cmp {sent} {back}",
            sent = at("sent"),
            ssh = words.join(" "),
            address = Network::SKINK[0],
            back = at("back"),
        );
        let mut shell = network.kernel.command("bash");
        shell.args(["-c", &script]);
        println!("   an ssh session sends ten lines a second to cat, and gets them back");
        Ok(Some(Session {
            process: Process::spawn(shell, "an ssh session")?,
            _sshd: sshd,
        }))
    }

    /// Whether all lines came back.
    pub fn finish(self) -> Result<bool, Failure> {
        let (status, said) = self.process.wait(Duration::from_secs(60))?;
        if !status.success() {
            println!("   the ssh session ended with {status}: {said}");
        }
        Ok(status.success())
    }
}

/// Connections that were opened before anything was killed.
pub struct Others {
    open: Vec<TcpStream>,
    expected: Vec<u8>,
    pub lost: usize,
}

impl Others {
    pub fn open(network: &Network, site: &Site) -> Result<Others, Failure> {
        let connect = || -> std::io::Result<Vec<TcpStream>> {
            let address = format!("{}:{}", Network::SKINK[0], Nginx::PORT);
            let connections = (0..OPEN).map(|_| {
                let connection = TcpStream::connect(&address)?;
                connection.set_read_timeout(Some(Duration::from_secs(5)))?;
                Ok(connection)
            });
            connections.collect()
        };
        let opened = network.kernel.thread(connect)?.join();
        let opened = opened.map_err(|_| Failure::Wrong("a thread panicked".to_owned()))?;
        let mut others = Others {
            open: opened??,
            expected: std::fs::read(site.path("tiny"))?,
            lost: 0,
        };
        others.ask_all();
        Ok(others)
    }

    /// Asks for a file on each of them; closes those that aren't answered with it.
    pub fn ask_all(&mut self) {
        let before = self.open.len();
        self.open.retain_mut(|it| ask(it, &self.expected).is_ok());
        self.lost += before - self.open.len();
    }
}

fn ask(connection: &mut TcpStream, expected: &[u8]) -> std::io::Result<()> {
    connection.write_all(b"GET /tiny HTTP/1.1\r\nHost: skink\r\n\r\n")?;
    let (mut said, mut buffer) = (Vec::new(), [0; 4096]);
    while !said.ends_with(expected) {
        let count = connection.read(&mut buffer)?;
        if count == 0 || said.len() > 4096 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        said.extend_from_slice(&buffer[..count]);
    }
    Ok(())
}
