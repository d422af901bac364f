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
