/// System calls by which programs use sockets and epoll sets, with their numbers.
const OF_SOCKETS: [(u32, &str); 13] = [
    (41, "socket"),
    (42, "connect"),
    (44, "sendto"),
    (45, "recvfrom"),
    (46, "sendmsg"),
    (47, "recvmsg"),
    (49, "bind"),
    (50, "listen"),
    (232, "epoll_wait"),
    (233, "epoll_ctl"),
    (281, "epoll_pwait"),
    (288, "accept4"),
    (441, "epoll_pwait2"),
];

/// `syscall`, and how far before it the number is put into `eax` at most, in bytes.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
const NEAR: usize = 32;

/// The system calls on sockets that `code` makes: `mov eax, NUMBER` and soon after that `syscall`. Compilers that know the number at
/// each place make that of it. Of all the programs of a Debian system none looks so that doesn't do it.
pub fn own_calls(code: &[u8]) -> Vec<&'static str> {
    let mut found = Vec::new();
    for at in memchr::memmem::find_iter(code, &SYSCALL) {
        let before = &code[at.saturating_sub(NEAR)..at];
        for window in before.windows(5) {
            let [0xb8, number @ ..] = window else {
                continue;
            };
            let number = number.try_into().map_or(0, u32::from_le_bytes);
            let name = OF_SOCKETS.iter().find(|(known, _)| *known == number);
            if let Some((_, name)) = name
                && !found.contains(name)
            {
                found.push(*name);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_calls_on_sockets_are_seen() {
        // mov edi, ebx; mov eax, 441; xor r9d, r9d; syscall
        let wait = b"\x89\xdf\xb8\xb9\x01\x00\x00\x45\x31\xc9\x0f\x05";
        let socket = b"\xb8\x29\x00\x00\x00\x0f\x05\xc3";
        let both = [&wait[..], &socket[..], &wait[..]].concat();
        assert_eq!(own_calls(&both), ["epoll_pwait2", "socket"]);
        // getpid; far apart; no call; cut off.
        assert!(own_calls(b"\xb8\x27\x00\x00\x00\x0f\x05").is_empty());
        assert!(own_calls(&[&socket[..5], &[0x90; 64], &socket[5..]].concat()).is_empty());
        for end in [&socket[..6], b"", b"\x0f", b"\x0f\x05"] {
            assert!(own_calls(end).is_empty());
        }
    }
}
