use super::*;

#[test]
fn numbers_in_records_are_errnos_to_programs() {
    let table = [
        (0, 0),
        (SocketError::Refused as u32, libc::ECONNREFUSED),
        (SocketError::Reset as u32, libc::ECONNRESET),
        (SocketError::TimedOut as u32, libc::ETIMEDOUT),
        (SocketError::AddressInUse as u32, libc::EADDRINUSE),
        (4711, libc::EIO),
    ];
    for (number, errno) in table {
        assert_eq!(of_number(number), errno, "{number}");
    }
}
