//! Control messages of `sendmsg` and `recvmsg`: where the descriptors are in them (`SCM_RIGHTS`, unix(7)).
use core::ffi::c_int;
use libc::cmsghdr;

const HEADER: usize = size_of::<cmsghdr>();
/// Bytes of a descriptor's number.
const NUMBER: usize = size_of::<c_int>();

/// Where the descriptors' numbers are in this buffer of control messages. It ends at the first message
/// that can't be one, as for the kernel.
pub fn places(control: &[u8]) -> Vec<usize> {
    let mut places = Vec::new();
    let mut at = 0usize;
    while let Some((length, level, kind)) = header(control, at) {
        let end = match at.checked_add(length) {
            Some(end) if length >= HEADER && end <= control.len() => end,
            _ => break,
        };
        if (level, kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            let all = (at + HEADER..end).step_by(NUMBER);
            places.extend(all.filter(|place| place + NUMBER <= end));
        }
        // Headers are aligned to the size of their first field, the length.
        at = match end.checked_next_multiple_of(size_of::<usize>()) {
            Some(next) => next,
            None => break,
        };
    }
    places
}

/// Length, level and type of the message at this place.
fn header(control: &[u8], at: usize) -> Option<(usize, c_int, c_int)> {
    let header = control.get(at..at.checked_add(HEADER)?)?;
    let (length, rest) = header.split_first_chunk()?;
    let (level, rest) = rest.split_first_chunk()?;
    let (kind, _) = rest.split_first_chunk()?;
    Some((
        usize::from_ne_bytes(*length),
        c_int::from_ne_bytes(*level),
        c_int::from_ne_bytes(*kind),
    ))
}

/// The descriptor at one of the [`places`].
pub fn descriptor(control: &[u8], place: usize) -> Option<c_int> {
    let bytes = control.get(place..)?.first_chunk()?;
    Some(c_int::from_ne_bytes(*bytes))
}

/// Puts another descriptor there.
pub fn replace(control: &mut [u8], place: usize, fd: c_int) {
    let rest = control.get_mut(place..);
    if let Some(bytes) = rest.and_then(|rest| rest.first_chunk_mut()) {
        *bytes = fd.to_ne_bytes();
    }
}

#[cfg(test)]
mod tests;
