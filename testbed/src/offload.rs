use crate::host::Host;
use std::io;
use std::os::fd::AsRawFd;

/// A thing that the kernel or the NIC does for the sender or receiver, to be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// TCP segmentation by the NIC (TSO).
    TcpSegmentation,
    /// Segmentation late in the kernel (GSO).
    Segmentation,
    /// Transport checksums of outbound frames.
    TransmitChecksum,
    /// Joining of inbound segments (GRO).
    Joining,
}

impl Offload {
    /// All of them: frames on the cable are as on a wire between plain cards.
    pub const ALL: [Offload; 4] = [
        Offload::TcpSegmentation,
        Offload::Segmentation,
        Offload::TransmitChecksum,
        Offload::Joining,
    ];

    /// `ETHTOOL_S*` of linux/ethtool.h.
    fn command(self) -> u32 {
        match self {
            Offload::TcpSegmentation => 0x1f,
            Offload::Segmentation => 0x24,
            Offload::TransmitChecksum => 0x17,
            Offload::Joining => 0x2c,
        }
    }
}

impl Host {
    /// Switches an offload of interface `name` on or off (what `ethtool -K` does).
    pub fn offload(&self, name: &str, offload: Offload, on: bool) -> io::Result<()> {
        self.ethtool(name, offload.command(), u32::from(on))?;
        Ok(())
    }

    /// Whether interface `name` has an offload switched on (what `ethtool -k` shows).
    pub fn has_offload(&self, name: &str, offload: Offload) -> io::Result<bool> {
        // `ETHTOOL_G*` goes before each `ETHTOOL_S*`.
        Ok(self.ethtool(name, offload.command() - 1, 0)? != 0)
    }

    /// Answers the command's data.
    fn ethtool(&self, name: &str, command: u32, data: u32) -> io::Result<u32> {
        let name = name.to_owned();
        let thread = self.thread(move || ethtool(&name, Value { command, data }))?;
        thread
            .join()
            .map_err(|_| io::Error::other("the thread panicked"))??
    }
}

#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

fn ethtool(name: &str, mut value: Value) -> io::Result<u32> {
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the request is complete, and `value` lives until the call returns.
    if unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(value.data)
}
