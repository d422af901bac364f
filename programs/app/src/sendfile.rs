//! `sendfile` and `splice` with a socket of Skink's at one end: read into the send ring if that takes no wait; otherwise
//! read, then write.
use crate::buffers::Buffers;
use crate::errno::{Answer, WOULD_BLOCK, fail};
use crate::fd_table::{self, Entry};
use crate::raw;
use crate::transfer::{self, Control, Sending};
use core::ffi::c_int;
use libc::{c_uint, iovec, loff_t};
use std::time::Duration;

/// Bytes that are moved at a time.
const CHUNK: usize = 64 * 1024;

fn pread(fd: c_int, buffer: &mut [u8], offset: i64) -> Answer {
    let at = buffer.as_mut_ptr() as usize;
    let arguments = [fd as usize, at, buffer.len(), offset as usize, 0, 0];
    // SAFETY: the buffer is borrowed.
    unsafe { raw::call(libc::SYS_pread64, arguments) }
}

fn seek(fd: c_int, offset: i64, whence: c_int) -> Answer<i64> {
    let arguments = [fd as usize, offset as usize, whence as usize, 0, 0, 0];
    // SAFETY: only numbers.
    unsafe { raw::call(libc::SYS_lseek, arguments) }.map(|at| at as i64)
}

fn send(fd: c_int, bytes: &mut [u8], flags: c_int) -> Answer {
    let list = [iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    }];
    // SAFETY: the bytes are borrowed.
    let buffers = unsafe { Buffers::new(&list) }?;
    transfer::send(
        fd,
        Sending {
            buffers,
            flags,
            to: Ok(None),
            control: Ok(Control::default()),
        },
    )
}

/// # Safety
/// `offset` must be null or point to an offset that may be changed.
pub unsafe fn send_file(to: c_int, from: c_int, offset: *mut i64, count: usize) -> Answer {
    if fd_table::is_ours(from) {
        return fail(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    let start = match unsafe { offset.as_ref() } {
        Some(offset) => *offset,
        None => seek(from, 0, libc::SEEK_CUR).or(fail(libc::EINVAL))?,
    };
    if start < 0 {
        return fail(libc::EINVAL);
    }
    let mut chunk = Vec::new();
    let mut done = 0;
    let mut answer = Ok(0);
    while done < count {
        match transfer::send_file(to, from, start + done as i64, count - done) {
            Ok(Some(0)) => break,
            Ok(Some(sent)) => {
                done += sent;
                continue;
            }
            Ok(None) => chunk.resize(CHUNK.min(count), 0),
            Err(stop) => {
                answer = Err(stop);
                break;
            }
        }
        let room = chunk.len().min(count - done);
        let got = match pread(from, &mut chunk[..room], start + done as i64) {
            Ok(0) => break,
            Ok(got) => got,
            Err(stop) => {
                answer = Err(stop);
                break;
            }
        };
        match send(to, &mut chunk[..got], 0) {
            Ok(sent) => {
                done += sent;
                if sent < got {
                    break;
                }
            }
            Err(stop) => {
                answer = Err(stop);
                break;
            }
        }
    }
    if done == 0 {
        return answer;
    }
    // SAFETY: the caller's promise.
    match unsafe { offset.as_mut() } {
        Some(offset) => *offset = start + done as i64,
        None => drop(seek(from, start + done as i64, libc::SEEK_SET)),
    }
    Ok(done)
}

/// # Safety
/// The offsets must be null or readable.
pub unsafe fn splice(
    from: c_int,
    from_offset: *mut loff_t,
    to: c_int,
    to_offset: *mut loff_t,
    count: usize,
    flags: c_uint,
) -> Answer {
    if count == 0 {
        return Ok(0);
    }
    // That is about the pipe; the socket has a mode of its own.
    let waits = flags & libc::SPLICE_F_NONBLOCK == 0;
    let mut chunk = vec![0u8; CHUNK.min(count)];
    if matches!(fd_table::get(from), Entry::Socket(_)) {
        if !from_offset.is_null() {
            return fail(libc::ESPIPE);
        }
        let room = pipe_room(to)?;
        if !waits && !is_ready(to, libc::POLLOUT)? {
            return Err(WOULD_BLOCK);
        }
        let list = [iovec {
            iov_base: chunk.as_mut_ptr().cast(),
            iov_len: room.min(chunk.len()),
        }];
        // SAFETY: the chunk is ours.
        let buffers = unsafe { Buffers::new(&list) }?;
        let got = transfer::receive(from, buffers, libc::MSG_PEEK)?.bytes;
        let arguments = [to as usize, chunk.as_ptr() as usize, got, 0, 0, 0];
        // SAFETY: the chunk is ours.
        let written = unsafe { raw::call(libc::SYS_write, arguments) }?;
        let list = [iovec {
            iov_base: chunk.as_mut_ptr().cast(),
            iov_len: written,
        }];
        // SAFETY: as above.
        let buffers = unsafe { Buffers::new(&list) }?;
        return transfer::receive(from, buffers, libc::MSG_DONTWAIT).map(|received| received.bytes);
    }
    if !to_offset.is_null() {
        return fail(libc::ESPIPE);
    }
    if !waits && !is_ready(from, libc::POLLIN)? {
        return Err(WOULD_BLOCK);
    }
    // What is taken from a pipe can't be put back: no more than there is room for at once.
    let room = transfer::room(to, 0)?.min(chunk.len());
    let arguments = [from as usize, chunk.as_mut_ptr() as usize, room, 0, 0, 0];
    // SAFETY: the chunk is ours.
    let got = unsafe { raw::call(libc::SYS_read, arguments) }?;
    let more = if flags & libc::SPLICE_F_MORE != 0 {
        libc::MSG_MORE
    } else {
        0
    };
    if got == 0 {
        Ok(0)
    } else {
        send(to, &mut chunk[..got], more)
    }
}

/// Whether a pipe can be read from or written to without waiting.
fn is_ready(pipe: c_int, events: i16) -> Answer<bool> {
    let mut list = [raw::to_poll(pipe, events)];
    raw::ppoll(&mut list, Some(Duration::ZERO), core::ptr::null())?;
    Ok(list[0].revents != 0)
}

/// Bytes that a pipe takes now.
fn pipe_room(pipe: c_int) -> Answer {
    let capacity = raw::fcntl(pipe, libc::F_GETPIPE_SZ, 0).or(fail(libc::EINVAL))?;
    let mut filled: c_int = 0;
    let at = &raw mut filled as usize;
    let arguments = [pipe as usize, libc::FIONREAD as usize, at, 0, 0, 0];
    // SAFETY: the number is ours.
    unsafe { raw::call(libc::SYS_ioctl, arguments) }?;
    if filled == 0 {
        return Ok(capacity);
    }
    // A page may be filled in part.
    let page = rustix::param::page_size();
    let room = (capacity / page).saturating_sub((filled as usize).div_ceil(page) + 1) * page;
    Ok(room.max(1))
}
