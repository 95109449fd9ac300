//! Why a policy does what it does, for statistics.

/// Why a window is what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cause {
    /// The policy has no window that changes.
    Fixed,
    /// The guest has said how seldom it wants to be called, for all queues of this kind.
    Guest,
    /// The same for this queue.
    GuestQueue,
    /// Nothing has happened yet.
    #[default]
    Started,
    /// Windows fill in time: it grew.
    Filled,
    /// Fewer buffers fit into the patience than before.
    Slower,
    /// A stream the other way keeps the owner awake: it finds the buffers by itself.
    AwakeAnyway,
    /// The side that takes is the slower one.
    Behind,
    /// Long packets came: more will.
    Long,
    /// The timer ended with the window half full.
    HalfFull,
    /// The timer ended with next to nothing: request and response, or the end of a burst.
    Ended,
    /// Used buffers are told of at once: who waited with that was asked for a call all the same.
    InVain,
    /// The last packets only acknowledge what the peer sends in a stream.
    Acknowledges,
    /// Somebody asks the peer, again and again: packets that may be answered do not wait, and used buffers are
    /// told of with those.
    Asked,
}

impl Cause {
    /// A few words for statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Guest => "set by the guest",
            Self::GuestQueue => "set by the guest for this queue",
            Self::Started => "nothing yet",
            Self::Filled => "windows fill",
            Self::Slower => "slower",
            Self::AwakeAnyway => "awake anyway",
            Self::Behind => "taker is behind",
            Self::Long => "long packets",
            Self::HalfFull => "half full at timer",
            Self::Ended => "empty at timer",
            Self::InVain => "waiting is in vain",
            Self::Acknowledges => "acknowledgements",
            Self::Asked => "somebody asks",
        }
    }
}
