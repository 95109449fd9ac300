//! Events of data planes, and the effects that follow from them.

use std::time::{Duration, Instant};

use super::PlaneNumber;

/// Something that has happened; `plane` is the one that it happened to.
#[allow(missing_docs)] // the fields are named for what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<C> {
    /// The first one is wanted.
    Begin,
    /// That client wants one of another program, or, `None`, another one of the same program is
    /// needed. Only if [`may_hand_over`](super::Succession::may_hand_over) says so.
    HandOver { by: Option<C> },
    /// The operating system has refused.
    NotStarted { plane: PlaneNumber, why: String },
    /// It speaks our version. `needs_bare`: it cannot be told what it was started with.
    Hello { plane: PlaneNumber, needs_bare: bool },
    /// It has everything.
    Ready { plane: PlaneNumber },
    /// It serves.
    Running { plane: PlaneNumber },
    /// It has stopped, and has said where each ring stands.
    Positions { plane: PlaneNumber, bytes: Vec<u8> },
    /// It cannot serve.
    Refuses { plane: PlaneNumber, why: String },
    /// It has closed its end of the socket, or must not go on: `is_condemned`.
    Lost { plane: PlaneNumber, is_condemned: bool },
    /// Its workers have ended, and so it will. `may_start`: it is known already how, and when the
    /// next one may start: now.
    WorkersEnded { plane: PlaneNumber, may_start: bool },
    /// Its process has ended so; the next one may be started from then on.
    Ended { plane: PlaneNumber, how: String, start_at: Instant },
    /// Nothing of front-ends and clients is outstanding.
    AtRest,
    /// A front-end has gone, or rings went on by themselves: the next one was given something
    /// else.
    Overtaken,
    /// Whether the new program can take the supervisor's place.
    Checked(Result<(), String>),
    /// It could not.
    NotReplaced { why: String },
    /// The time of [`wake_at`](super::Succession::wake_at) has come.
    Due,
}

/// The program that a data plane is started from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// The one that data planes are started from.
    Own,
    /// The one that a client has named.
    Other,
}

/// Something to be done, in the order in which it is given.
#[allow(missing_docs)] // the fields are named for what they are
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect<C> {
    /// Start a process, with all file descriptors that there are, or with none: `is_bare`.
    Start {
        plane: PlaneNumber,
        program: Program,
        is_bare: bool,
    },
    /// Give it all that there is.
    Load {
        plane: PlaneNumber,
    },
    /// Rings may start, where those positions say. `is_alone`: no other one is left.
    Go {
        plane: PlaneNumber,
        positions: Vec<u8>,
        is_alone: bool,
    },
    /// It is to stop, and to say where.
    Quiesce {
        plane: PlaneNumber,
    },
    Kill {
        plane: PlaneNumber,
        is_condemned: bool,
    },
    /// It will end soon, and counts as dead from now on: what its workers did is noted.
    NoteDeath {
        plane: PlaneNumber,
    },
    /// Orders that it has not carried out are settled without it.
    Settle {
        plane: PlaneNumber,
    },
    /// It serves from now on, alone.
    Serves {
        plane: PlaneNumber,
    },
    /// The same, after another one; packets waited for so long.
    Succeeds {
        plane: PlaneNumber,
        by: Option<C>,
        stall: Duration,
    },
    /// The program that a client has named becomes the own one, and the other way round.
    SwapPrograms,
    /// The old one goes on, or is started again.
    Fails {
        by: Option<C>,
        why: String,
    },
    /// Front-ends and clients are not read, or are again.
    Hold(bool),
    /// Ask the new program whether it can take the supervisor's place.
    Check {
        by: C,
        stall: Duration,
    },
    /// It is not to answer any more.
    StopCheck,
    /// This supervisor goes on; `None`: because something was outstanding for too long.
    Stays {
        by: C,
        why: Option<String>,
    },
}
