//! What a client says on a connection, and what the answer must be.

use std::fmt::Write;
use std::io;
use std::str::FromStr;

/// Keys that are asked for, one after the other.
pub const KEYS: u64 = 1000;
/// Bytes of each value in redis, as asked for by redis-benchmark's users.
const REDIS_BYTES: usize = 64;
/// Bytes of each value in memcached.
const MEMCACHED_BYTES: usize = 100;

/// A way of asking. In words: `byte`, `block`, `http:FILE:BYTES`, `redis-get`, `redis-set`, `memcached-get`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Talk {
    /// One byte, which comes back, after a wish for that.
    Byte,
    /// 64 bytes, which come back.
    Block,
    /// A file of so many bytes over HTTP/1.1.
    Http { file: String, bytes: usize },
    /// A value from redis.
    RedisGet,
    /// A value to redis.
    RedisSet,
    /// A value from memcached.
    MemcachedGet,
}

impl FromStr for Talk {
    type Err = String;

    fn from_str(word: &str) -> Result<Talk, String> {
        let parts: Vec<&str> = word.split(':').collect();
        match parts.as_slice() {
            ["byte"] => Ok(Talk::Byte),
            ["block"] => Ok(Talk::Block),
            ["http", file, bytes] => Ok(Talk::Http {
                file: (*file).to_owned(),
                bytes: bytes.parse().map_err(|_| format!("{bytes} is no size"))?,
            }),
            ["redis-get"] => Ok(Talk::RedisGet),
            ["redis-set"] => Ok(Talk::RedisSet),
            ["memcached-get"] => Ok(Talk::MemcachedGet),
            _ => Err(format!("there is no talk of {word}")),
        }
    }
}

/// A key's value: as many bytes, the first of which depend on the key.
fn value(key: u64, bytes: usize) -> String {
    let mut value = format!("{key:08}");
    value.extend(std::iter::repeat_n('v', bytes.saturating_sub(value.len())));
    value
}

impl Talk {
    /// What is said once, before anything is asked, without an answer.
    pub fn greeting(&self) -> &'static [u8] {
        match self {
            Talk::Byte => b"e",
            Talk::Block
            | Talk::Http { .. }
            | Talk::RedisGet
            | Talk::RedisSet
            | Talk::MemcachedGet => b"",
        }
    }

    /// Makes `request` the one of this number, and `answer` the answer to it; of HTTP's, only the end of that.
    pub fn prepare(&self, number: u64, request: &mut String, answer: &mut String) {
        request.clear();
        answer.clear();
        let key = number % KEYS;
        let written = match self {
            Talk::Byte => {
                // One byte in UTF-8 too.
                let byte = char::from((number % 128) as u8);
                answer.push(byte);
                write!(request, "{byte}")
            }
            Talk::Block => {
                answer.push_str(&value(number % 100_000_000, 64));
                write!(request, "{answer}")
            }
            Talk::Http { file, .. } => {
                write!(request, "GET /{file} HTTP/1.1\r\nHost: skink\r\n\r\n")
            }
            Talk::RedisGet => {
                let _ = write!(answer, "${REDIS_BYTES}\r\n{}\r\n", value(key, REDIS_BYTES));
                write!(request, "*2\r\n$3\r\nGET\r\n$12\r\nkey:{key:08}\r\n")
            }
            Talk::RedisSet => {
                answer.push_str("+OK\r\n");
                let value = value(key, REDIS_BYTES);
                write!(
                    request,
                    "*3\r\n$3\r\nSET\r\n$12\r\nkey:{key:08}\r\n${REDIS_BYTES}\r\n{value}\r\n"
                )
            }
            Talk::MemcachedGet => {
                let value = value(key, MEMCACHED_BYTES);
                let _ = write!(
                    answer,
                    "VALUE key:{key:08} 0 {MEMCACHED_BYTES}\r\n{value}\r\nEND\r\n"
                );
                write!(request, "get key:{key:08}\r\n")
            }
        };
        // To a string there is always room to write.
        let _ = written;
    }

    /// Whether `got` is the whole answer, of which `answer` was prepared.
    pub fn is_complete(&self, got: &[u8], answer: &str) -> io::Result<bool> {
        let (got_length, right) = match self {
            Talk::Http { bytes, .. } => {
                let Some(end) = got.windows(4).position(|four| four == b"\r\n\r\n") else {
                    return Ok(false);
                };
                let right = got.starts_with(b"HTTP/1.1 200 ");
                let whole = end + 4 + bytes;
                (got.len().cmp(&whole), right)
            }
            Talk::Byte | Talk::Block | Talk::RedisGet | Talk::RedisSet | Talk::MemcachedGet => {
                let right = answer.as_bytes().starts_with(got);
                (got.len().cmp(&answer.len()), right)
            }
        };
        if !right || got_length.is_gt() {
            let start = got.get(..got.len().min(80)).unwrap_or_default();
            return Err(io::Error::other(format!(
                "another answer came than the one that was expected; it begins with {:?}",
                String::from_utf8_lossy(start)
            )));
        }
        Ok(got_length.is_eq())
    }

    /// What gives all keys their values, and how many bytes answer it.
    pub fn fill(&self) -> (String, usize) {
        let (mut all, mut answer_bytes) = (String::new(), 0);
        let (mut request, mut answer) = (String::new(), String::new());
        for key in 0..KEYS {
            match self {
                Talk::Byte | Talk::Block | Talk::Http { .. } => {}
                Talk::RedisGet | Talk::RedisSet => {
                    Talk::RedisSet.prepare(key, &mut request, &mut answer);
                    all.push_str(&request);
                    answer_bytes += answer.len();
                }
                Talk::MemcachedGet => {
                    let value = value(key, MEMCACHED_BYTES);
                    let _ = write!(all, "set key:{key:08} 0 0 {MEMCACHED_BYTES}\r\n{value}\r\n");
                    answer_bytes += "STORED\r\n".len();
                }
            }
        }
        (all, answer_bytes)
    }
}

#[cfg(test)]
mod tests;
