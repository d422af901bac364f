use super::{Freezer, LOCAL, REMOTE};
use core::fmt;
use core::net::{IpAddr, Ipv4Addr};
use skink_messages::{Full, Network, Outbound, Path, Ports, SocketEvent, SocketEvents, TxPacket};
use skink_time::Instant;
use skink_wire::tcp::{self, CHECKSUM_OFFSET, Flags, Header, Options};
use skink_wire::{FourTuple, SeqNum, Sum, protocol};
use std::collections::{HashMap, HashSet, VecDeque};

/// A segment that was sent, parsed back.
pub(crate) struct Sent {
    pub header: Header,
    pub options: Options,
    pub payload: Vec<u8>,
    /// Payload of each segment that this is to be cut into, or 0.
    pub segment_bytes: u16,
    /// Both initial numbers, for the eye.
    pub iss: SeqNum,
    pub irs: SeqNum,
}

impl Sent {
    pub fn seq(&self) -> u32 {
        self.iss.distance_to(self.header.seq)
    }

    pub fn ack(&self) -> u32 {
        self.irs.distance_to(self.header.ack)
    }
}

/// As a script would have it.
impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = [
            (Flags::SYN, "S"),
            (Flags::FIN, "F"),
            (Flags::RST, "R"),
            (Flags::PSH, "P"),
            (Flags::ACK, "."),
        ];
        for (flag, letter) in letters {
            if self.header.flags.contains(flag) {
                f.write_str(letter)?;
            }
        }
        let seq = self.seq();
        write!(f, " {seq}")?;
        if !self.payload.is_empty() {
            write!(f, ":{}", seq.wrapping_add(self.payload.len() as u32))?;
        }
        write!(f, " ack {} win {}", self.ack(), self.header.window)?;
        if self.segment_bytes > 0 {
            write!(f, " cut {}", self.segment_bytes)?;
        }
        for (start, end) in self.options.sack.iter() {
            let (start, end) = (self.irs.distance_to(start), self.irs.distance_to(end));
            write!(f, " sack {start}-{end}")?;
        }
        Ok(())
    }
}

/// The network, the program and the port table, as far as TCP sees them.
pub(crate) struct Out {
    pub sent: VecDeque<Sent>,
    /// How many of `sent` were looked at already.
    pub noted: usize,
    pub events: Vec<SocketEvent>,
    /// Every so-manieth packet with data and every so-manieth event is refused; 0 for none.
    pub refuse_every: u32,
    /// Nothing at all is taken.
    pub shut: bool,
    attempts: u32,
    pub path: Path,
    pub raises: u32,
    pub uses: HashMap<u16, i32>,
    pub listened: HashMap<u16, i32>,
    pub flows: HashMap<FourTuple, i32>,
    /// Ports where others wait.
    pub wait: Vec<u16>,
    /// Whether a program is said to wait, by port.
    pub waiting: HashMap<u16, (bool, bool)>,
    pub reserved: HashSet<u16>,
    /// Ports that another owner has.
    pub foreign: Vec<u16>,
    /// Ports that others use, too.
    pub users: Vec<u16>,
    /// Ports that others listen on.
    pub moved: Vec<u16>,
    /// Our addresses.
    pub ours: Vec<IpAddr>,
    /// Ports that others listen on, too.
    pub others: Vec<u16>,
    /// Segments may go to anybody.
    pub strangers: bool,
    /// Keeps what a successor would find, whenever the instance asks for something.
    pub freezer: Option<Freezer>,
}

impl Out {
    pub fn new() -> Out {
        Out {
            sent: VecDeque::new(),
            noted: 0,
            events: Vec::new(),
            refuse_every: 0,
            shut: false,
            attempts: 0,
            path: Path {
                source: LOCAL,
                mtu: 1_500,
                cut_bytes: 1_500,
            },
            raises: 0,
            uses: HashMap::new(),
            listened: HashMap::new(),
            flows: HashMap::new(),
            wait: Vec::new(),
            waiting: HashMap::new(),
            reserved: HashSet::new(),
            foreign: Vec::new(),
            users: Vec::new(),
            moved: Vec::new(),
            ours: vec![LOCAL],
            others: Vec::new(),
            strangers: false,
            freezer: None,
        }
    }

    fn freeze(&mut self) {
        if let Some(freezer) = &mut self.freezer {
            freezer.freeze(self.sent.back());
        }
    }

    fn refuses(&mut self) -> bool {
        self.attempts += 1;
        self.shut || self.refuse_every > 0 && self.attempts.is_multiple_of(self.refuse_every)
    }
}

impl Network for Out {
    fn send(&mut self, _: Instant, to: &Outbound, packet: &mut TxPacket<'_>) -> Result<(), Full> {
        self.freeze();
        if self.refuses() {
            return Err(Full);
        }
        if !self.strangers {
            assert_eq!((to.source, to.destination), (LOCAL, REMOTE));
        }
        assert_eq!(to.protocol, protocol::TCP);
        assert_eq!(packet.checksum_offset, Some(CHECKSUM_OFFSET as u8));
        let total = packet.len();
        let mut bytes = vec![0; total];
        packet.copy_to(&mut bytes).expect("enough room");
        // The field holds the pseudo-header's sum; the link would add the rest.
        let partial = Sum::pseudo_header(to.source, to.destination, protocol::TCP, total as u32);
        let field = u16::from_be_bytes([bytes[CHECKSUM_OFFSET], bytes[CHECKSUM_OFFSET + 1]]);
        assert_eq!(field, partial.fold(), "partial checksum");
        tcp::set_checksum(to.source, to.destination, &mut bytes);
        assert!(tcp::checksum_is_valid(to.source, to.destination, &bytes));
        let (header, options, payload) = tcp::parse(&bytes).expect("well-formed");
        assert_eq!(
            usize::from(header.header_len),
            usize::from(packet.transport_bytes)
        );
        self.check_size(packet);
        self.sent.push_back(Sent {
            header,
            options,
            payload: payload.to_vec(),
            segment_bytes: packet.segment_bytes,
            iss: SeqNum(0),
            irs: SeqNum(0),
        });
        self.freeze();
        Ok(())
    }

    fn path(&self, source: Option<IpAddr>, _: IpAddr) -> Option<Path> {
        source
            .is_none_or(|source| source == LOCAL)
            .then_some(self.path)
    }

    fn raises(&self) -> u32 {
        self.raises
    }

    fn is_local(&self, address: IpAddr) -> bool {
        self.ours.contains(&address)
    }

    fn is_broadcast(&self, _: Ipv4Addr) -> bool {
        unreachable!("TCP has no broadcasts")
    }
}

impl Out {
    fn check_size(&self, packet: &TxPacket<'_>) {
        let header = packet.headers().len() + 20;
        let payload = packet.payload_bytes();
        if packet.segment_bytes == 0 {
            assert!(
                header + payload <= self.path.mtu as usize,
                "larger than the path"
            );
        } else {
            let each = usize::from(packet.segment_bytes);
            assert!(
                each + header <= self.path.mtu as usize,
                "cut to more than the path"
            );
            assert!(each < payload, "nothing to cut");
            assert!(
                header + payload <= self.path.cut_bytes as usize,
                "too large to cut"
            );
        }
    }
}

impl SocketEvents for Out {
    fn tcp_event(&mut self, event: SocketEvent) -> Result<(), Full> {
        self.freeze();
        if self.refuses() {
            return Err(Full);
        }
        self.events.push(event);
        Ok(())
    }

    fn udp_event(&mut self, _: SocketEvent) -> Result<(), Full> {
        unreachable!("TCP has no datagrams")
    }
}

impl Ports for Out {
    fn use_port(&mut self, _: u8, port: u16, exclusive: bool) -> bool {
        self.freeze();
        if exclusive && self.foreign.contains(&port) {
            return false;
        }
        *self.uses.entry(port).or_default() += 1;
        true
    }

    fn release_port(&mut self, _: u8, port: u16) {
        self.freeze();
        *self.uses.entry(port).or_default() -= 1;
    }

    fn listen(&mut self, _: u8, port: u16) {
        self.freeze();
        *self.listened.entry(port).or_default() += 1;
    }

    fn unlisten(&mut self, _: u8, port: u16) {
        self.freeze();
        *self.listened.entry(port).or_default() -= 1;
    }

    fn set_waiting(&mut self, _: u8, port: u16, waits: bool, only_then: bool) {
        self.reserved.remove(&port);
        self.waiting.insert(port, (waits, only_then));
    }

    fn keep_in_reserve(&mut self, _: u8, port: u16) {
        self.reserved.insert(port);
        self.waiting.remove(&port);
    }

    fn others_wait(&mut self, _: u8, port: u16) -> bool {
        self.wait.contains(&port)
    }

    fn flow_begins(&mut self, flow: &FourTuple) {
        *self.flows.entry(*flow).or_default() += 1;
    }

    fn flow_ends(&mut self, flow: &FourTuple) {
        *self.flows.entry(*flow).or_default() -= 1;
    }

    fn moved(&mut self, _: u8, port: u16) -> bool {
        self.moved.contains(&port)
    }

    fn others_use(&mut self, _: u8, port: u16) -> bool {
        self.users.contains(&port)
    }

    fn others_listen(&mut self, _: u8, port: u16) -> bool {
        self.others.contains(&port)
    }
}
