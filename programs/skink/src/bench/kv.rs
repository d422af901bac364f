//! Programs that keep values: how they are started, and filled.

use super::lab::ADDRESS;
use super::peer::Talk;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

/// What is asked of which program.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// A value of 64 bytes from redis
    RedisGet,
    /// A value of 64 bytes to redis
    RedisSet,
    /// A value of 100 bytes from memcached
    MemcachedGet,
    /// The same from four threads, each with an epoll set of its own; only if it is asked for
    MemcachedThreads,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Value::RedisGet => "redis-get",
            Value::RedisSet => "redis-set",
            Value::MemcachedGet => "memcached-get",
            Value::MemcachedThreads => "memcached-threads",
        })
    }
}

impl Value {
    /// What is measured if nothing is chosen.
    pub const ALL: [Value; 3] = [Value::RedisGet, Value::RedisSet, Value::MemcachedGet];

    pub fn programs(self) -> &'static [&'static str] {
        match self {
            Value::RedisGet | Value::RedisSet => &["redis-server"],
            Value::MemcachedGet | Value::MemcachedThreads => &["memcached"],
        }
    }

    /// Where the program listens.
    pub fn port(self) -> u16 {
        match self {
            Value::RedisGet | Value::RedisSet => 6379,
            Value::MemcachedGet | Value::MemcachedThreads => 11_211,
        }
    }

    pub fn talk(self) -> Talk {
        match self {
            Value::RedisGet => Talk::RedisGet,
            Value::RedisSet => Talk::RedisSet,
            Value::MemcachedGet | Value::MemcachedThreads => Talk::MemcachedGet,
        }
    }

    /// How the client calls that talk: whom it asks doesn't matter to it.
    pub fn asked_as(self) -> String {
        let asked = match self {
            Value::MemcachedThreads => Value::MemcachedGet,
            asked => asked,
        };
        asked.to_string()
    }

    /// The program's command line: one thread that serves, if it isn't to be more, and nothing written to disk.
    pub fn line(self, directory: &Path) -> Vec<OsString> {
        let port = self.port();
        let memcached = |threads: u32| {
            format!("memcached -u root -p {port} -l {ADDRESS} -t {threads} -m 64 -c 4096")
        };
        let words = match self {
            Value::RedisGet | Value::RedisSet => format!(
                "redis-server --port {port} --bind {ADDRESS} --protected-mode no --appendonly no \
                 --daemonize no --loglevel warning --save"
            ),
            Value::MemcachedGet => memcached(1),
            Value::MemcachedThreads => memcached(4),
        };
        let words = words.split_whitespace().map(OsString::from);
        let rest: &[OsString] = match self {
            Value::RedisGet | Value::RedisSet => {
                &["".into(), "--dir".into(), directory.as_os_str().to_owned()]
            }
            Value::MemcachedGet | Value::MemcachedThreads => &[],
        };
        words.chain(rest.iter().cloned()).collect()
    }

    /// Gives all keys their values.
    pub fn fill(self, target: SocketAddr) -> io::Result<()> {
        let (text, answer_bytes) = self.talk().fill();
        let mut stream = TcpStream::connect_timeout(&target, Duration::from_secs(5))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut sender = stream.try_clone()?;
        // Both ways at a time: the server needn't take more while its answers aren't taken.
        let sent = std::thread::spawn(move || sender.write_all(text.as_bytes()));
        let mut answer = vec![0; answer_bytes];
        stream.read_exact(&mut answer)?;
        let sent = sent.join();
        sent.map_err(|_| io::Error::other("the client panicked"))??;
        let stored = answer.starts_with(b"+OK\r\n") || answer.starts_with(b"STORED\r\n");
        match stored && !answer.windows(3).any(|three| three == b"ERR") {
            true => Ok(()),
            false => Err(io::Error::other("values weren't taken")),
        }
    }
}
