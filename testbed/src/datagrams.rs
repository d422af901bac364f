use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

/// Datagrams of one size, sent and counted as fast as this machine can: a call sends many (UDP segmentation
/// offload, which the kernel does in software where the link hasn't got it), and a call takes many.
pub struct Datagrams {
    socket: UdpSocket,
    bytes: usize,
    payload: Vec<u8>,
    starts: Vec<[u8; HELD]>,
}

/// Bytes kept of each that is received.
const HELD: usize = 8;
/// Datagrams of one call, in each direction (`UDP_MAX_SEGMENTS` was 64 until Linux 6.9).
const AT_ONCE: usize = 64;
/// Bytes of one call: the most that a datagram could have.
const MOST: usize = 65_507;
/// Room for what arrives while this program is busy.
const RECEIVE_BUFFER: libc::c_int = 16 << 20;
/// Of linux/udp.h.
const UDP_SEGMENT: libc::c_int = 103;

impl Datagrams {
    /// To `server`, with `bytes` of payload each. Needs `CAP_NET_ADMIN` for the receive buffer.
    pub fn new(server: SocketAddr, bytes: u16) -> io::Result<Datagrams> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(server)?;
        socket.set_nonblocking(true)?;
        set(&socket, libc::SOL_UDP, UDP_SEGMENT, bytes.into())?;
        set(
            &socket,
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            RECEIVE_BUFFER,
        )?;
        let bytes = usize::from(bytes).max(1);
        Ok(Datagrams {
            socket,
            bytes,
            payload: vec![0x5a; bytes * AT_ONCE.min(MOST / bytes)],
            starts: vec![[0; HELD]; AT_ONCE],
        })
    }

    /// Sends up to `count`; answers how many were.
    pub fn send(&mut self, count: usize) -> io::Result<usize> {
        let length = count.saturating_mul(self.bytes).min(self.payload.len());
        match self
            .socket
            .send(self.payload.get(..length).unwrap_or_default())
        {
            Ok(sent) => Ok(sent / self.bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Takes up to 64 that have arrived, and answers how many there were. Their contents aren't looked at.
    pub fn receive(&mut self) -> io::Result<usize> {
        let mut parts: Vec<libc::iovec> = self.starts.iter_mut().map(part).collect();
        let headers = parts.iter_mut().map(|part| {
            // SAFETY: an all-zero header is valid: no name, no parts, no control data.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
            header
        });
        let mut headers: Vec<libc::mmsghdr> = headers.collect();
        // SAFETY: each header refers to a part of its own, and each part to bytes of its own in
        // `starts`; all of them outlive the call, and nobody else uses them meanwhile.
        let count = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                headers.as_mut_ptr(),
                headers.len() as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        match usize::try_from(count) {
            Ok(count) => Ok(count),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
                error => Err(error),
            },
        }
    }

    /// The socket, to wait for.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }
}

fn part(bytes: &mut [u8; HELD]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: HELD,
    }
}

fn set(
    socket: &UdpSocket,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the value lives until the call returns, and its length is right.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_are_sent_and_counted() {
        let far = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let address = far.local_addr().expect("an address");
        // Where this process mayn't have a large buffer there is nothing to test.
        let Ok(mut near) = Datagrams::new(address, 22) else {
            println!("SKIP: needs CAP_NET_ADMIN");
            return;
        };
        assert_eq!(near.receive().expect("nothing"), 0);
        assert_eq!(near.send(7).expect("sent"), 7);
        let mut bytes = [0; 100];
        for _ in 0..7 {
            let (length, from) = far.recv_from(&mut bytes).expect("a datagram");
            assert_eq!(length, 22);
            far.send_to(&bytes[..length], from).expect("sent");
        }
        assert_eq!(near.receive().expect("answers"), 7);
        assert_eq!(near.send(1000).expect("sent"), 64);
    }
}
