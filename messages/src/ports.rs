use skink_wire::FourTuple;

/// Which local ports this instance of the stack uses, shared with the other owners of the NIC
/// through the port table that steers inbound packets (LibrettOS's portmap).
///
/// A port is *used* by an owner while it has a socket on it (bound, listening or connected); it is
/// *listened on* while new flows to it may be given to this owner. Calls nest: an implementation
/// counts them.
pub trait Ports {
    /// Begins to use `port` for `protocol`. If `exclusive`, fails (`false`) when another owner uses
    /// it: an ephemeral port leads to one owner only.
    fn use_port(&mut self, protocol: u8, port: u16, exclusive: bool) -> bool;
    /// Ends one use.
    fn release_port(&mut self, protocol: u8, port: u16);
    /// New flows to `port` may come here.
    fn listen(&mut self, protocol: u8, port: u16);
    /// No new flows to `port` for one listener less.
    fn unlisten(&mut self, protocol: u8, port: u16);
    /// Whether a program of this owner, which listens on `port`, sleeps until it has a connection. If it accepts `only_then`, it is given
    /// one of those that come while it does, and for the next that is to be said again; while it doesn't it is given none, as long as
    /// others do, or accept at other times, too. Who accepts at other times, too, has its share.
    fn set_waiting(&mut self, _protocol: u8, _port: u16, _waits: bool, _only_then: bool) {}
    /// A program of this owner listens on `port`, but doesn't mean to accept: it is given new flows only if there are no others, until
    /// [`Ports::set_waiting`] says otherwise.
    fn keep_in_reserve(&mut self, _protocol: u8, _port: u16) {}
    /// Whether a program of another owner, which listens on `port`, sleeps until it has a connection.
    fn others_wait(&mut self, _protocol: u8, _port: u16) -> bool {
        false
    }
    /// This owner has a TCP connection `flow`: segments of it come here, even those that would open it anew.
    fn flow_begins(&mut self, _flow: &FourTuple) {}
    /// That connection is over, or rests only where its segments are told from a later one's by timestamps: a new one between its
    /// ends may be given to somebody else.
    fn flow_ends(&mut self, _flow: &FourTuple) {}
    /// Whether other owners listen on `port` and this one doesn't: a new flow that still comes here
    /// was on its way when that changed.
    fn moved(&mut self, _protocol: u8, _port: u16) -> bool {
        false
    }
    /// Whether other owners have sockets on `port`, and can be asked: a flow that nobody knows here may be one of theirs.
    fn others_use(&mut self, _protocol: u8, _port: u16) -> bool {
        false
    }
    /// Whether this owner, which listens on `port` in reserve for others, needn't: one of them does that isn't in reserve.
    fn is_relieved(&mut self, _protocol: u8, _port: u16) -> bool {
        false
    }
    /// Whether other owners listen on `port`, whatever this one does: new flows come here as long as it listens there with any
    /// address, though it has closed the listener that they are for.
    fn others_listen(&mut self, _protocol: u8, _port: u16) -> bool {
        false
    }
}

/// How a program waits for connections to a listening socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waits {
    /// So many threads sleep until one comes.
    pub threads: usize,
    /// It accepts only then, as far as can be told: whoever serves one connection after the other. Of others it means nothing that
    /// they don't sleep.
    pub only_then: bool,
}

impl Waits {
    /// Of whom nothing was heard.
    pub const UNKNOWN: Waits = Waits {
        threads: 0,
        only_then: true,
    };
}

/// The port table of a stack that has its NIC for itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoleOwner;

impl Ports for SoleOwner {
    fn use_port(&mut self, _protocol: u8, _port: u16, _exclusive: bool) -> bool {
        true
    }
    fn release_port(&mut self, _protocol: u8, _port: u16) {}
    fn listen(&mut self, _protocol: u8, _port: u16) {}
    fn unlisten(&mut self, _protocol: u8, _port: u16) {}
}
