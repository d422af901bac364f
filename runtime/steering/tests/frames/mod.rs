//! Frames for the tests: headers only, without checksums, which steering doesn't look at.
#![allow(dead_code, reason = "each test program uses a part of it")]

pub const REMOTE4: [u8; 4] = [10, 1, 0, 2];
pub const LOCAL4: [u8; 4] = [10, 1, 0, 1];
pub const OTHER4: [u8; 4] = [10, 1, 0, 77];
/// `fd00::1`.
pub const LOCAL6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
pub const REMOTE6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

/// A frame, assembled from its parts after each change.
#[derive(Clone)]
pub struct Frame {
    protocol: u8,
    transport: Vec<u8>,
    v6: bool,
    to: [u8; 4],
    to6: u8,
    options: usize,
    extensions: bool,
    fragment: Option<(u32, u16, bool)>,
    vlan: bool,
    version: Option<u8>,
    cut: usize,
    whole: Vec<u8>,
}

/// A TCP segment without payload.
pub fn tcp(source: u16, destination: u16, flags: u8) -> Frame {
    let mut header = vec![0; 20];
    header[..2].copy_from_slice(&source.to_be_bytes());
    header[2..4].copy_from_slice(&destination.to_be_bytes());
    header[12] = 5 << 4;
    header[13] = flags;
    Frame::new(6, header)
}

/// A UDP datagram of 8 bytes.
pub fn udp(source: u16, destination: u16) -> Frame {
    let mut datagram = vec![0; 16];
    datagram[..2].copy_from_slice(&source.to_be_bytes());
    datagram[2..4].copy_from_slice(&destination.to_be_bytes());
    datagram[5] = 16;
    Frame::new(17, datagram)
}

impl Frame {
    fn new(protocol: u8, transport: Vec<u8>) -> Frame {
        let frame = Frame {
            protocol,
            transport,
            v6: false,
            to: LOCAL4,
            to6: 1,
            options: 0,
            extensions: false,
            fragment: None,
            vlan: false,
            version: None,
            cut: usize::MAX,
            whole: Vec::new(),
        };
        frame.with(|_| ())
    }

    pub fn icmp(kind: u8) -> Frame {
        Frame::new(1, vec![kind, 0, 0, 0, 0, 0, 0, 0])
    }

    pub fn icmp6(kind: u8) -> Frame {
        Frame::new(58, vec![kind, 0, 0, 0, 0, 0, 0, 0]).v6()
    }

    pub fn arp() -> Frame {
        let mut frame = Frame::new(0, Vec::new());
        frame.whole.truncate(12);
        frame.whole.extend([0x08, 0x06]);
        frame.whole.extend([0; 28]);
        frame
    }

    pub fn v6(self) -> Frame {
        self.with(|frame| frame.v6 = true)
    }
    pub fn to(self, to: [u8; 4]) -> Frame {
        self.with(|frame| frame.to = to)
    }
    /// To `fd00::` with this last byte.
    pub fn to6(self, last: u8) -> Frame {
        self.with(|frame| frame.to6 = last)
    }
    /// With so many words of IPv4 options.
    pub fn options(self, words: usize) -> Frame {
        self.with(|frame| frame.options = words)
    }
    pub fn extensions(self) -> Frame {
        self.with(|frame| frame.extensions = true)
    }
    /// Later fragments have no transport header.
    pub fn fragment(self, id: u32, offset: u16, more: bool) -> Frame {
        self.with(|frame| {
            frame.fragment = Some((id, offset, more));
            if offset > 0 {
                frame.transport = vec![0xee; 16];
            }
        })
    }
    /// A segment with this sequence number.
    pub fn numbered(self, sequence: u32) -> Frame {
        self.with(|frame| frame.transport[4..8].copy_from_slice(&sequence.to_be_bytes()))
    }
    pub fn vlan(self) -> Frame {
        self.with(|frame| frame.vlan = true)
    }
    pub fn protocol(self, protocol: u8) -> Frame {
        self.with(|frame| frame.protocol = protocol)
    }
    pub fn version(self, version: u8) -> Frame {
        self.with(|frame| frame.version = Some(version))
    }
    /// To so many bytes in all.
    pub fn cut(self, bytes: usize) -> Frame {
        self.with(|frame| frame.cut = bytes)
    }

    pub fn bytes(&self) -> &[u8] {
        &self.whole
    }

    fn with(mut self, change: impl FnOnce(&mut Frame)) -> Frame {
        change(&mut self);
        let mut whole = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        if self.vlan {
            whole.extend([0x81, 0x00, 0x00, 0x05]);
        }
        if self.v6 {
            whole.extend([0x86, 0xdd]);
            self.append_ipv6(&mut whole);
        } else {
            whole.extend([0x08, 0x00]);
            self.append_ipv4(&mut whole);
        }
        whole.extend(&self.transport);
        whole.truncate(self.cut);
        self.whole = whole;
        self
    }

    fn append_ipv4(&self, whole: &mut Vec<u8>) {
        let words = 5 + self.options;
        let (id, offset, more) = self.fragment.unwrap_or((0, 0, false));
        let fragment = offset / 8 + if more { 0x2000 } else { 0 };
        let version = self.version.unwrap_or(4);
        let total = (words * 4 + self.transport.len()) as u16;
        whole.extend([(version << 4) | words as u8, 0]);
        whole.extend(total.to_be_bytes());
        whole.extend((id as u16).to_be_bytes());
        whole.extend(fragment.to_be_bytes());
        whole.extend([64, self.protocol, 0, 0]);
        whole.extend(REMOTE4);
        whole.extend(self.to);
        whole.extend(vec![1; self.options * 4]);
    }

    fn append_ipv6(&self, whole: &mut Vec<u8>) {
        let mut headers = Vec::new();
        let mut next = self.protocol;
        if let Some((id, offset, more)) = self.fragment {
            headers.extend([next, 0]);
            headers.extend((offset | u16::from(more)).to_be_bytes());
            headers.extend(id.to_be_bytes());
            next = 44;
        }
        if self.extensions {
            // Hop-by-hop options of 8 bytes, destination options of 16.
            let mut both = vec![60, 0, 1, 4, 0, 0, 0, 0, next, 1, 1, 12];
            both.resize(24, 0);
            both.extend(headers);
            headers = both;
            next = 0;
        }
        let length = (headers.len() + self.transport.len()) as u16;
        let mut local = LOCAL6;
        local[15] = self.to6;
        whole.extend([self.version.unwrap_or(6) << 4, 0, 0, 0]);
        whole.extend(length.to_be_bytes());
        whole.extend([next, 64]);
        whole.extend(REMOTE6);
        whole.extend(local);
        whole.extend(headers);
    }
}
