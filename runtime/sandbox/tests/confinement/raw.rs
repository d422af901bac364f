//! System calls without a library in between.

/// What a system call answers: a result, or an error number.
pub type Answer = Result<i64, i32>;

/// Makes a system call.
pub fn call(number: i64, arguments: &[i64]) -> Answer {
    let at = |index: usize| arguments.get(index).copied().unwrap_or(0);
    // SAFETY: the callers hand over numbers and pointers that live; what the kernel writes there is theirs.
    let result = unsafe { libc::syscall(number, at(0), at(1), at(2), at(3), at(4), at(5)) };
    if result < 0 {
        return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0));
    }
    Ok(result)
}

/// The address of something, as an argument.
pub fn at<T: ?Sized>(value: &T) -> i64 {
    std::ptr::from_ref(value).cast::<u8>().expose_provenance() as i64
}

/// An IPv4 socket address on the loopback interface, as the kernel has it.
pub fn loopback(port: u16) -> [u8; 16] {
    let mut address = [0; 16];
    address[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    address[2..4].copy_from_slice(&port.to_be_bytes());
    address[4..8].copy_from_slice(&[127, 0, 0, 1]);
    address
}

/// A Unix socket address with its length. Abstract if the name begins with a zero byte.
pub fn unix(name: &str) -> ([u8; 110], i64) {
    let mut address = [0; 110];
    address[..2].copy_from_slice(&(libc::AF_UNIX as u16).to_ne_bytes());
    address[2..2 + name.len()].copy_from_slice(name.as_bytes());
    (address, 2 + name.len() as i64)
}
