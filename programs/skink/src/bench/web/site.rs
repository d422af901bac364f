//! The files that are served, and how web servers are set up for it: one process, as fast as it gets.

use super::super::lab::ADDRESS;
use super::{PORT, Workload};
use skink_testbed::Scratch;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Which program serves.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum WebServer {
    Nginx,
    Lighttpd,
}

impl WebServer {
    const ALL: [WebServer; 2] = [WebServer::Nginx, WebServer::Lighttpd];

    /// It, and wrk if that is to ask.
    pub fn programs(self, wrk: bool) -> &'static [&'static str] {
        match (self, wrk) {
            (WebServer::Nginx, true) => &["nginx", "wrk"],
            (WebServer::Nginx, false) => &["nginx"],
            (WebServer::Lighttpd, true) => &["lighttpd", "wrk"],
            (WebServer::Lighttpd, false) => &["lighttpd"],
        }
    }

    /// Settings among which the best is to be found.
    pub fn tunings(self) -> &'static [Tuning] {
        match self {
            WebServer::Nginx => &[Tuning::Buffers, Tuning::Sendfile, Tuning::SendfileNopush],
            WebServer::Lighttpd => &[Tuning::Buffers, Tuning::Sendfile],
        }
    }
}

/// How a web server sends files. (nginx's `tcp_nopush` has an effect only together with `sendfile`.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tuning {
    Buffers,
    Sendfile,
    SendfileNopush,
    /// There is nothing to be set.
    Nothing,
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Tuning::Buffers => "sendfile off",
            Tuning::Sendfile => "sendfile",
            Tuning::SendfileNopush => "sendfile+nopush",
            Tuning::Nothing => "-",
        })
    }
}

/// Files to serve, and the servers' configurations.
pub struct Site {
    scratch: Scratch,
}

impl Site {
    /// Writes them.
    pub fn new() -> io::Result<Site> {
        let site = Site {
            scratch: Scratch::new("bench")?,
        };
        std::fs::create_dir_all(site.path("files"))?;
        for workload in Workload::ALL {
            let (name, bytes) = workload.file();
            std::fs::write(site.path("files").join(name), content(bytes))?;
        }
        let directory = site.directory().display().to_string();
        for server in WebServer::ALL {
            for tuning in server.tunings() {
                let text = match server {
                    WebServer::Nginx => nginx_configuration(&directory, *tuning),
                    WebServer::Lighttpd => lighttpd_configuration(&directory, *tuning),
                };
                std::fs::write(site.configuration(server, *tuning), text)?;
            }
        }
        Ok(site)
    }

    /// Where it is, and where a server may write.
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn configuration(&self, server: WebServer, tuning: Tuning) -> PathBuf {
        self.path(&format!("{server:?}-{tuning:?}.conf"))
    }

    /// The server's command line.
    pub fn server(&self, server: WebServer, tuning: Tuning, workers: u32) -> Vec<OsString> {
        let workers = format!("worker_processes {workers};");
        let words: &[&str] = match server {
            WebServer::Nginx => &["nginx", "-g", &workers, "-c"],
            WebServer::Lighttpd => &["lighttpd", "-D", "-f"],
        };
        let configuration = self.configuration(server, tuning).into();
        let words = words.iter().map(OsString::from);
        words.chain([configuration]).collect()
    }
}

/// Bytes that depend on their position.
pub fn content(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ bytes as u64;
    let byte = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..bytes).map(byte).collect()
}

/// As fast as nginx gets: files stay open, nothing is logged, connections last.
fn nginx_configuration(directory: &str, tuning: Tuning) -> String {
    let tuning = match tuning {
        Tuning::Buffers => "sendfile off; tcp_nopush off;",
        Tuning::Sendfile => "sendfile on; tcp_nopush off;",
        Tuning::SendfileNopush => "sendfile on; tcp_nopush on;",
        Tuning::Nothing => "",
    };
    format!(
        "user root;
daemon off;
pid {directory}/pid;
error_log stderr;
events {{ worker_connections 8192; multi_accept on; }}
http {{
    access_log off;
    {tuning}
    keepalive_requests 1000000000;
    open_file_cache max=1000 inactive=600s;
    open_file_cache_valid 600s;
    open_file_cache_min_uses 1;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    server {{
        listen {PORT} backlog=4096;
        root {directory}/files;
    }}
}}
"
    )
}

/// As fast as lighttpd gets with one process. (A connection lasts for as many requests as lighttpd can count.)
fn lighttpd_configuration(directory: &str, tuning: Tuning) -> String {
    let backend = match tuning {
        Tuning::Sendfile | Tuning::SendfileNopush => "sendfile",
        Tuning::Buffers | Tuning::Nothing => "writev",
    };
    format!(
        r#"server.document-root = "{directory}/files"
server.bind = "{ADDRESS}"
server.port = {PORT}
server.max-keep-alive-requests = 65535
server.max-keep-alive-idle = 600
server.max-connections = 4096
server.max-fds = 8192
server.listen-backlog = 4096
server.event-handler = "linux-sysepoll"
server.network-backend = "{backend}"
server.modules = ( "mod_staticfile" )
server.compat-module-load = "disable"
server.upload-dirs = ( "{directory}" )
mimetype.assign = ( "" => "application/octet-stream" )
"#
    )
}
