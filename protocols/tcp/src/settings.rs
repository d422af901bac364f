use crate::saved::UNRECORDED;
use core::sync::atomic::Ordering::Relaxed;
use skink_memory::Record;
use skink_messages::ConnectionOption;
use skink_time::Duration;

/// What a program set on a socket; a listener's settings are those of the connections it accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    pub no_delay: bool,
    pub cork: bool,
    pub quick_ack: bool,
    pub keep_alive: bool,
    pub keep_alive_idle: Duration,
    pub keep_alive_interval: Duration,
    pub keep_alive_probes: u32,
    /// Give up if nothing was acknowledged for so long; `None`: after [`RETRIES`] timeouts.
    pub user_timeout: Option<Duration>,
    pub maximum_segment: Option<u16>,
    pub reset_on_close: bool,
    pub receive_buffer: Option<u32>,
    pub traffic_class: u8,
    pub hop_limit: Option<u8>,
    /// Of a listener: see [`ConnectionOption::Reserve`].
    pub reserve: bool,
}

/// `R2` of RFC 9293 3.8.3 as a number of timeouts in a row: about 15 minutes, as in Linux.
pub const RETRIES: u32 = 15;
/// The same for a connection request: about two minutes.
pub const SYN_RETRIES: u32 = 6;
/// The same for an answer to a connection request: about one minute.
pub const SYN_ACK_RETRIES: u32 = 5;

/// Bits of [`Record::switches`].
const NO_DELAY: u8 = 1;
const CORK: u8 = 2;
const QUICK_ACK: u8 = 4;
const KEEP_ALIVE: u8 = 8;
const RESET_ON_CLOSE: u8 = 16;
const RESERVE: u8 = 32;

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            no_delay: false,
            cork: false,
            quick_ack: false,
            keep_alive: false,
            // RFC 9293 3.8.4: at least two hours by default. The other two are Linux's.
            keep_alive_idle: Duration::from_secs(7_200),
            keep_alive_interval: Duration::from_secs(75),
            keep_alive_probes: 9,
            user_timeout: None,
            maximum_segment: None,
            reset_on_close: false,
            receive_buffer: None,
            traffic_class: 0,
            hop_limit: None,
            reserve: false,
        }
    }
}

impl Settings {
    pub fn set(&mut self, option: ConnectionOption) {
        let seconds = |value: u32| Duration::from_secs(u64::from(value.max(1)));
        match option {
            ConnectionOption::NoDelay(on) => self.no_delay = on,
            ConnectionOption::Cork(on) => self.cork = on,
            ConnectionOption::QuickAck(on) => self.quick_ack = on,
            ConnectionOption::KeepAlive(on) => self.keep_alive = on,
            ConnectionOption::KeepAliveIdle(value) => self.keep_alive_idle = seconds(value),
            ConnectionOption::KeepAliveInterval(value) => self.keep_alive_interval = seconds(value),
            ConnectionOption::KeepAliveProbes(count) => self.keep_alive_probes = count,
            ConnectionOption::UserTimeout(ms) => {
                self.user_timeout = (ms > 0).then(|| Duration::from_millis(u64::from(ms)));
            }
            ConnectionOption::MaximumSegment(bytes) => self.maximum_segment = Some(bytes),
            ConnectionOption::ResetOnClose(on) => self.reset_on_close = on,
            // The program's side keeps within its send buffer by itself.
            ConnectionOption::SendBuffer(_) => {}
            ConnectionOption::ReceiveBuffer(bytes) => self.receive_buffer = Some(bytes),
            ConnectionOption::TrafficClass(value) => self.traffic_class = value,
            ConnectionOption::HopLimit(value) => self.hop_limit = Some(value),
            ConnectionOption::Reserve(on) => self.reserve = on,
        }
    }

    /// Stores them where a successor finds them; 0 stands for what wasn't set.
    pub fn save(&self, record: &Record) {
        if UNRECORDED {
            return;
        }
        let defaults = Settings::default();
        let seconds = |value: Duration, default: Duration| match value == default {
            true => 0,
            false => u32::try_from(value.as_secs()).unwrap_or(u32::MAX),
        };
        let one_more = |value: Option<u32>| value.map_or(0, |value| value.saturating_add(1));
        let switches = [
            (self.no_delay, NO_DELAY),
            (self.cork, CORK),
            (self.quick_ack, QUICK_ACK),
            (self.keep_alive, KEEP_ALIVE),
            (self.reset_on_close, RESET_ON_CLOSE),
            (self.reserve, RESERVE),
        ];
        let switches = switches
            .into_iter()
            .fold(0, |all, (on, bit)| all | (u8::from(on) * bit));
        let idle = seconds(self.keep_alive_idle, defaults.keep_alive_idle);
        let interval = seconds(self.keep_alive_interval, defaults.keep_alive_interval);
        let probes = Some(self.keep_alive_probes);
        let probes = one_more(probes.filter(|probes| *probes != defaults.keep_alive_probes));
        let user_timeout = self.user_timeout.map_or(0, |limit| limit.as_millis());
        let words = [
            (&record.keep_alive_idle, idle),
            (&record.keep_alive_interval, interval),
            (&record.keep_alive_probes, probes),
            (
                &record.user_timeout,
                u32::try_from(user_timeout).unwrap_or(u32::MAX),
            ),
            (&record.receive_buffer, one_more(self.receive_buffer)),
        ];
        for (word, value) in words {
            word.store(value, Relaxed);
        }
        let hop_limit = self.hop_limit.map_or(0, |hops| u16::from(hops) + 1);
        record.hop_limit.store(hop_limit, Relaxed);
        let segment = self.maximum_segment.map_or(0, |bytes| bytes.max(1));
        record.maximum_segment.store(segment, Relaxed);
        record.traffic_class.store(self.traffic_class, Relaxed);
        record.switches.store(switches, Relaxed);
    }

    /// What a predecessor stored. Any values make sense.
    pub fn load(record: &Record) -> Settings {
        let defaults = Settings::default();
        let switches = record.switches.load(Relaxed);
        let on = |bit: u8| switches & bit != 0;
        let seconds = |value: u32, default: Duration| match value {
            0 => default,
            seconds => Duration::from_secs(u64::from(seconds)),
        };
        let idle = record.keep_alive_idle.load(Relaxed);
        let interval = record.keep_alive_interval.load(Relaxed);
        let probes = record.keep_alive_probes.load(Relaxed);
        let milliseconds = record.user_timeout.load(Relaxed);
        let segment = record.maximum_segment.load(Relaxed);
        let hops = record.hop_limit.load(Relaxed).checked_sub(1);
        Settings {
            no_delay: on(NO_DELAY),
            cork: on(CORK),
            quick_ack: on(QUICK_ACK),
            keep_alive: on(KEEP_ALIVE),
            keep_alive_idle: seconds(idle, defaults.keep_alive_idle),
            keep_alive_interval: seconds(interval, defaults.keep_alive_interval),
            keep_alive_probes: probes.checked_sub(1).unwrap_or(defaults.keep_alive_probes),
            user_timeout: (milliseconds > 0)
                .then(|| Duration::from_millis(u64::from(milliseconds))),
            maximum_segment: (segment > 0).then_some(segment),
            reset_on_close: on(RESET_ON_CLOSE),
            receive_buffer: record.receive_buffer.load(Relaxed).checked_sub(1),
            traffic_class: record.traffic_class.load(Relaxed),
            hop_limit: hops.and_then(|hops| u8::try_from(hops).ok()),
            reserve: on(RESERVE),
        }
    }
}
