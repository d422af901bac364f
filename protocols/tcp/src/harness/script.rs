use super::Sent;
use skink_wire::SeqNum;
use skink_wire::tcp::{Flags, Options, Timestamps};

/// A segment as text: `FLAGS SEQ[:END] [ack N] [win N] [mss N] [ws N] [sackok] [ts V E] [nots]
/// [sack A-B]... [cut N] [isn N]`.
///
/// Flags are `S`, `F`, `R`, `P` and `.` for ACK, `-` for none. Numbers are relative to the sender's
/// (after `ack` and `sack`: the receiver's) initial number; `END` is one past the last payload byte;
/// windows are as in the header, not scaled. `ts V *` echoes our latest timestamp. `isn N` puts the
/// peer's initial number elsewhere.
pub(super) struct Pattern {
    pub flags: Flags,
    pub from: u32,
    pub length: u32,
    pub ack: Option<u32>,
    pub window: Option<u32>,
    pub options: Options,
    no_timestamps: bool,
    cut: Option<u16>,
    pub isn_offset: u32,
}

impl Pattern {
    pub fn parse(text: &str) -> Pattern {
        let mut words = text.split_whitespace();
        let mut flags = Flags::EMPTY;
        for letter in words.next().expect("flags").chars() {
            flags |= match letter {
                'S' => Flags::SYN,
                'F' => Flags::FIN,
                'R' => Flags::RST,
                'P' => Flags::PSH,
                '.' => Flags::ACK,
                '-' => Flags::EMPTY,
                _ => panic!("unknown flag in {text}"),
            };
        }
        let range = words.next().expect("a sequence number");
        let (from, end) = range.split_once(':').unwrap_or((range, range));
        let (from, end) = (number(from), number(end));
        let mut pattern = Pattern {
            flags,
            from,
            length: end.wrapping_sub(from),
            ack: None,
            window: None,
            options: Options::default(),
            no_timestamps: false,
            cut: None,
            isn_offset: 0,
        };
        while let Some(word) = words.next() {
            pattern.take(word, &mut words);
        }
        pattern
    }

    fn take<'a>(&mut self, word: &str, words: &mut impl Iterator<Item = &'a str>) {
        let mut next = || words.next().expect("a value");
        match word {
            "ack" => self.ack = Some(number(next())),
            "win" => self.window = Some(number(next())),
            "mss" => self.options.mss = Some(number(next()) as u16),
            "ws" => self.options.window_scale = Some(number(next()) as u8),
            "sackok" => self.options.sack_permitted = true,
            "ts" => {
                let (value, echo) = (number(next()), next());
                let echo = if echo == "*" { u32::MAX } else { number(echo) };
                self.options.timestamps = Some(Timestamps { value, echo });
            }
            "nots" => self.no_timestamps = true,
            "sack" => {
                let (start, end) = next().split_once('-').expect("a range");
                let block = (SeqNum(number(start)), SeqNum(number(end)));
                self.options.sack.push(block.0, block.1);
            }
            "cut" => self.cut = Some(number(next()) as u16),
            "isn" => self.isn_offset = number(next()),
            other => panic!("unknown word {other}"),
        }
    }

    /// Compares with what was sent; says what differs.
    pub fn matches(&self, sent: &Sent) -> Result<(), String> {
        let flags = sent.header.flags.without(Flags::PSH);
        check("flags", self.flags.without(Flags::PSH), flags)?;
        check("seq", self.from, sent.seq())?;
        check("length", self.length, sent.payload.len() as u32)?;
        if let Some(ack) = self.ack {
            check("ack", ack, sent.ack())?;
        }
        if let Some(window) = self.window {
            check("window", window, u32::from(sent.header.window))?;
        }
        let options = &sent.options;
        if self.options.mss.is_some() {
            check("mss", self.options.mss, options.mss)?;
        }
        if self.options.window_scale.is_some() {
            check("scale", self.options.window_scale, options.window_scale)?;
        }
        if self.flags.contains(Flags::SYN) && self.options != Options::default() {
            let (expected, found) = (self.options.sack_permitted, options.sack_permitted);
            check("sackok", expected, found)?;
        }
        if let Some(stamp) = self.options.timestamps {
            let found = options.timestamps.map(|stamp| stamp.echo);
            check("timestamp echo", Some(stamp.echo), found)?;
        }
        if self.no_timestamps {
            check("timestamps", None, options.timestamps)?;
        }
        if let Some(cut) = self.cut {
            check("cut", cut, sent.segment_bytes)?;
        }
        let expected: Vec<_> = self.options.sack.iter().map(|(a, b)| (a.0, b.0)).collect();
        let distance = |at: SeqNum| sent.irs.distance_to(at);
        let blocks = options.sack.iter();
        let found: Vec<_> = blocks.map(|(a, b)| (distance(a), distance(b))).collect();
        check("sack", expected, found)
    }
}

fn check<T: PartialEq + core::fmt::Debug>(what: &str, want: T, got: T) -> Result<(), String> {
    if want == got {
        Ok(())
    } else {
        Err(format!("{what}: {want:?} wanted, {got:?} found"))
    }
}

/// A number, possibly negative.
fn number(text: &str) -> u32 {
    match text.strip_prefix('-') {
        Some(digits) => digits.parse::<u32>().expect("a number").wrapping_neg(),
        None => text.parse().expect("a number"),
    }
}
