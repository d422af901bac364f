use skink_messages::ConnectionOption;
use skink_time::Duration;

/// What a program set on a socket; a listener's settings are those of the connections it accepts.
#[derive(Clone, Copy, Debug)]
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
}

/// `R2` of RFC 9293 3.8.3 as a number of timeouts in a row: about 15 minutes, as in Linux.
pub const RETRIES: u32 = 15;
/// The same for a connection request: about two minutes.
pub const SYN_RETRIES: u32 = 6;
/// The same for an answer to a connection request: about one minute.
pub const SYN_ACK_RETRIES: u32 = 5;

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
            // Permission to share was given, or not, when the socket was bound.
            ConnectionOption::ReusePort(_) => {}
        }
    }
}
