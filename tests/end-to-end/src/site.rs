use crate::cases::children;
use crate::network::bracketed;
use crate::{Failure, Network, Topology};
use skink_testbed::{Process, Scratch};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Duration;

/// A directory of files whose every byte depends on its position.
pub struct Site {
    scratch: Scratch,
}

impl Site {
    /// Sizes of the files that every site has, by name.
    pub const FILES: [(&str, u64); 5] = [
        ("empty", 0),
        ("tiny", 20),
        ("page", 22_000),
        ("large", 1 << 20),
        ("larger", 16_777_213),
    ];

    /// Writes the files.
    pub fn new() -> Result<Site, Failure> {
        let site = Site {
            scratch: Scratch::new("site")?,
        };
        for (name, bytes) in Self::FILES {
            site.add(name, bytes)?;
        }
        Ok(site)
    }

    /// Writes one more file.
    pub fn add(&self, name: &str, bytes: u64) -> Result<PathBuf, Failure> {
        let path = self.path(name);
        let mut file = BufWriter::with_capacity(1 << 20, File::create(&path)?);
        let mut state = bytes.wrapping_add(0x9e37_79b9_7f4a_7c15) | 1;
        let mut left = bytes;
        while left > 0 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let word = state.to_le_bytes();
            let count = left.min(8);
            file.write_all(&word[..count as usize])?;
            left -= count;
        }
        file.flush()?;
        Ok(path)
    }

    /// Where a file is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// A shell command that fetches a file and compares it byte by byte.
    pub fn fetch_and_compare(&self, address: &str, port: u16, name: &str) -> String {
        format!(
            "set -o pipefail; curl -sS --fail --max-time 170 http://{}:{port}/{name} | cmp - {}",
            bracketed(address),
            self.path(name).display()
        )
    }
}

/// A running nginx, on Skink or on the kernel.
pub struct Nginx {
    /// `skink run`, or nginx itself.
    pub process: Process,
    /// `skink run` stays as nginx's parent.
    has_parent: bool,
    _files: Scratch,
}

impl Nginx {
    /// Port it listens on.
    pub const PORT: u16 = 80;

    /// Starts nginx with two workers on Skink, on all addresses of both families.
    pub fn on_skink(network: &Network, site: &Site) -> Result<Nginx, Failure> {
        Self::with_workers(network, site, 2, "")
    }

    /// The same with so many workers, and `options` of its listening sockets.
    pub fn with_workers(
        network: &Network,
        site: &Site,
        workers: usize,
        options: &str,
    ) -> Result<Nginx, Failure> {
        let (files, arguments) = Self::configure(site, workers, options, "off")?;
        let command = network.skink_run("nginx", &arguments)?;
        let process = Process::spawn(command, "nginx on Skink")?;
        for address in Network::SKINK {
            network.wait_for(&process, address, Self::PORT)?;
        }
        let nginx = Nginx {
            process,
            has_parent: network.plan.topology == Topology::Library,
            _files: files,
        };
        // It listens before they begin.
        nginx.process.wait_until("it has its workers", || {
            nginx.workers().is_ok_and(|(_, all)| all.len() == workers)
        })?;
        Ok(nginx)
    }

    /// nginx's master process and its workers.
    pub fn workers(&self) -> Result<(u32, Vec<u32>), Failure> {
        let mut master = self.process.id();
        if self.has_parent {
            // Beside it there may be a process that ends a killed worker's connections (decision 0029).
            let mut masters = children(master)?;
            masters.retain(|pid| {
                std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|it| it == "nginx\n")
            });
            let [only] = masters[..] else {
                return Err(Failure::Wrong(format!("masters of nginx: {masters:?}")));
            };
            master = only;
        }
        Ok((master, children(master)?))
    }

    /// Starts the same nginx on the kernel's host.
    pub fn on_kernel(network: &Network, site: &Site) -> Result<Nginx, Failure> {
        let (files, arguments) = Self::configure(site, 2, "", "off")?;
        let mut command = network.kernel.command("nginx");
        command.args(&arguments);
        let process = Process::spawn(command, "nginx on the kernel")?;
        network.wait_for(&process, Network::KERNEL[0], Self::PORT)?;
        Ok(Nginx {
            process,
            has_parent: false,
            _files: files,
        })
    }

    /// Writes what nginx is to do; answers where, and the arguments that say so. `daemon` says whether it goes into the
    /// background (`on` or `off`).
    pub fn configure(
        site: &Site,
        workers: usize,
        options: &str,
        daemon: &str,
    ) -> Result<(Scratch, Vec<String>), Failure> {
        let files = Scratch::new("nginx")?;
        let user = if skink_testbed::is_root() {
            "www-data"
        } else {
            "root"
        };
        let directory = files.path().display();
        let configuration = format!(
            "user {user};
             worker_processes {workers};
             daemon {daemon};
             pid {directory}/pid;
             error_log stderr;
             events {{ worker_connections 4096; }}
             http {{
                 access_log off;
                 sendfile on;
                 tcp_nopush on;
                 keepalive_requests 1000000;
                 client_body_temp_path {directory}/body;
                 proxy_temp_path {directory}/proxy;
                 fastcgi_temp_path {directory}/fastcgi;
                 uwsgi_temp_path {directory}/uwsgi;
                 scgi_temp_path {directory}/scgi;
                 server {{
                     listen 80 backlog=4096 {options};
                     listen [::]:80 ipv6only=on backlog=4096 {options};
                     root {};
                 }}
             }}",
            site.scratch.path().display()
        );
        let path = files.path().join("nginx.conf");
        std::fs::write(&path, configuration)?;
        let arguments = vec!["-c".to_owned(), path.display().to_string()];
        Ok((files, arguments))
    }

    /// Ends nginx in order, and holds that it (and Skink) had nothing to complain about.
    pub fn stop(self) -> Result<(), Failure> {
        let (status, said) = self.process.stop()?;
        let complaints = ["panicked", "[alert]", "[crit]", "[emerg]"];
        if !status.success() || complaints.iter().any(|word| said.contains(word)) {
            let text = format!("nginx on Skink ended with {status}; it printed:\n{said}");
            return Err(Failure::Wrong(text));
        }
        Ok(())
    }
}

/// Long enough for anything that isn't stuck.
pub const PATIENCE: Duration = Duration::from_secs(180);
