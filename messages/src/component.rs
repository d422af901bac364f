use skink_time::Instant;

/// A message was not taken, since the way it must go has no room now. The sender keeps what it
/// stood for and tries again when it is next polled: emit, then commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// How a poll ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Nothing more to do until a message comes or the next deadline.
    Idle,
    /// The budget ran out or the output was full: poll again after others had their turn.
    More,
}

/// One component of the stack: a sans-IO state machine. `Out` is where its messages go.
///
/// `link`, `ip`, `tcp` and `udp` all are components, so that any placement can host each of them with
/// what suits it behind `Out`: a channel, a test's list, or the next component itself. Where all are in
/// one thread, messages on the way up can't be handed to an `Out` that holds the next component,
/// since that one is handed the way down, in which the sender is. So `link` and `ip` also have the
/// methods of which their `handle` is made: `receive` *answers* what goes up, a slice of the
/// frame, and the placement hands it on (docs/decisions/0002).
pub trait Component<Out: ?Sized> {
    /// What it can be told.
    type Input<'a>;

    /// Takes one message. It is either taken whole or, with [`Full`], not at all.
    fn handle(&mut self, now: Instant, input: Self::Input<'_>, out: &mut Out) -> Result<(), Full>;

    /// Does what has become due: timers, queued output, postponed acknowledgements and events.
    fn poll(&mut self, now: Instant, out: &mut Out) -> Progress;

    /// When [`Component::poll`] must be called at the latest, if nothing else happens.
    fn next_deadline(&self) -> Option<Instant>;
}
