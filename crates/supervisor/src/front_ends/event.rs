//! Events at a port, and the effects that follow from them.

use std::time::Duration;

use crate::wire::Offence;

/// Something that has happened at the port.
#[allow(missing_docs)] // the fields are named for what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A front-end has connected: at the listener, or because of [`Effect::Connect`].
    Connected,
    /// The operating system has refused to accept one.
    NotAccepted { why: String },
    /// The one that was to be linked could not be.
    NotLinked,
    /// Another supervisor has linked one.
    Linked,
    /// The front-end of that number was disconnected. `is_closing_here`: as in [`Event::Closing`];
    /// `is_plane_closing`: the data plane is told, and closes what it has.
    Gone {
        link: u32,
        offence: Option<(Offence, String)>,
        is_closing_here: bool,
        is_plane_closing: bool,
    },
    /// The last one had gone before, and its offence is noticed only now.
    Offence { offence: Offence, why: String },
    /// The third one was disconnected, as [`Effect::Refuse`] says.
    Refused,
    /// It was not, as the one in front of it has gone.
    NextHasGone,
    /// Whether more of its requests can be read: the one before is done.
    Room(bool),
    /// Whether the port's thread closes something: asked in front of each reading, and in each turn
    /// while [`is_closing`](super::Admission::is_closing).
    Closing { is_here: bool },
    /// Whether the data plane closes something.
    PlaneCloses(bool),
    /// Nothing is read, or all is again.
    Hold(bool),
    /// The data plane has ended again and again while it served this port.
    Quarantine { why: String },
    /// It is tried again.
    Release,
    /// The port is being removed: no front-end may connect any more, one that is linked stays.
    Close,
    /// The time of [`wake_at`](super::Admission::wake_at) has come.
    Due,
}

/// Something to be done, in the order in which it is given.
#[allow(missing_docs)] // the fields are named for what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Watch the listener, or do not.
    Listen(bool),
    /// Connect to the front-end, which says [`Event::Connected`] if it is there.
    Connect,
    /// Link the connection that waits; the one behind it waits then.
    Link,
    /// The front-end that came second waits until the one that is linked has gone: to be said.
    SayItWaits,
    /// Disconnect the one that came third, and say [`Event::Refused`]; or say that the second one
    /// [has gone](Event::NextHasGone); or neither now: it comes again.
    Refuse,
    /// Forget all that are not linked.
    Drop,
    /// Watch the connection that is linked, or do not.
    Read(bool),
    /// Disconnect it, and say [`Event::Gone`].
    Disconnect,
    /// The port that is being removed has no front-end any more.
    Free,
    /// It is tried again every [`RETRY_AFTER`](super::RETRY_AFTER). Said once until one comes.
    CannotAccept { why: String },
    /// No front-end may connect for so long.
    HoldOff { pause: Duration, why: String },
    /// It takes long to close what the front-end has sent.
    IsSlow,
    /// That is over, and took so long.
    IsOver { took: Duration },
}
