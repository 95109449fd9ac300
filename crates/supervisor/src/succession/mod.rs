//! The data plane that serves, and the one that follows it: started, loaded, told to go, replaced
//! by another one, killed.
//!
//! How: the program that has the processes says what happened ([`Succession::on`]) and carries out
//! the [`Effect`]s in their order; [`Succession::wake_at`] says when to come back. One data plane
//! has the rings at a time: the next one goes when the one before has said where it stands, or was
//! killed.
//!
//! Limits: it does not know how often a data plane may die ([`restart`](crate::restart)), nor
//! whether one hangs ([`watch`](crate::watch)).

mod event;
mod steps;

use std::time::{Duration, Instant};

pub use event::{Effect, Event, Program};

/// The number of a data plane; none is used twice.
pub type PlaneNumber = u32;

/// Until a data plane must have done its next step on the way to serve.
pub const LOADED_WITHIN: Duration = Duration::from_secs(10);
/// Until one that is to follow another must have everything.
pub const READY_WITHIN: Duration = Duration::from_secs(3);
/// From the stop of the old one until the next one serves.
pub const GOES_ON_WITHIN: Duration = Duration::from_secs(1);
/// A program that has served for so long works.
pub const PROVED_AFTER: Duration = Duration::from_secs(1);
/// Until the new program must have said whether it can take the supervisor's place.
pub const CHECKED_WITHIN: Duration = Duration::from_secs(2);
/// How long a moment without anything outstanding is waited for then.
pub const AT_REST_WITHIN: Duration = Duration::from_secs(1);
/// Until one is started again that could not be started.
pub const START_AGAIN: Duration = Duration::from_secs(1);

/// How far a data plane is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It was started.
    Starting,
    /// It gets all that there is.
    Loading,
    /// It has all of it, and waits.
    Ready,
    /// It was told to go.
    Going,
    /// It carries packets.
    Running,
    /// It was told to stop where it is.
    Quiescing,
    /// It has done so.
    Frozen,
    /// It was killed, and has not ended yet.
    Ending,
}

/// All data planes of a supervisor; `C` is a client that asks for another one.
#[derive(Debug, Clone)]
pub struct Succession<C> {
    state: State<C>,
    /// They were killed, and have not ended yet.
    ending: Vec<PlaneNumber>,
    /// The newest one.
    last: PlaneNumber,
    replacement: Option<Replacement<C>>,
}

#[derive(Debug, Clone)]
enum State<C> {
    /// There is none; the next one is started then.
    Down {
        start_at: Option<Instant>,
    },
    /// The one that served was killed; the next one waits for its end.
    Dying {
        plane: PlaneNumber,
    },
    /// None serves, and one is on its way to.
    Coming {
        plane: PlaneNumber,
        stage: Stage,
        since: Instant,
    },
    Serving {
        plane: PlaneNumber,
    },
    Handover(Handover<C>),
    /// It serves from another program than the one before, which has to prove itself.
    Proving {
        plane: PlaneNumber,
        by: C,
        since: Instant,
        stall: Duration,
    },
}

/// One follows another that serves.
#[derive(Debug, Clone)]
struct Handover<C> {
    from: PlaneNumber,
    to: PlaneNumber,
    /// The client that asked for it; `None`: the supervisor itself, for one of its own program.
    by: Option<C>,
    begun: Instant,
    step: HandoverStep,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HandoverStep {
    /// The next one was started.
    Start,
    /// Nothing more is read; all that is outstanding is to be done first.
    Rest,
    /// The next one gets everything.
    Load,
    /// The old one stops; packets wait since then.
    Stop { since: Instant },
    /// The next one goes on where the old one has stopped.
    Go { since: Instant },
}

/// The program of the data plane that has proved itself takes the supervisor's place.
#[derive(Debug, Clone)]
struct Replacement<C> {
    by: C,
    /// For how long packets waited.
    stall: Duration,
    since: Instant,
    /// It can, and nothing is read until nothing is outstanding.
    is_checked: bool,
}

impl<C: Copy> Succession<C> {
    /// Without any; numbers begin behind that one.
    #[must_use]
    pub fn new(last: PlaneNumber) -> Self {
        let state = State::Down { start_at: None };
        Self { state, ending: Vec::new(), last, replacement: None }
    }

    /// With one that another supervisor has left, which serves.
    #[must_use]
    pub fn resume(plane: PlaneNumber, last: PlaneNumber) -> Self {
        Self { state: State::Serving { plane }, ..Self::new(last.max(plane)) }
    }

    /// The newest number.
    #[must_use]
    pub fn last(&self) -> PlaneNumber {
        self.last
    }

    /// The one that serves, or is about to, or did last and has not ended.
    #[must_use]
    pub fn serving(&self) -> Option<PlaneNumber> {
        match &self.state {
            State::Down { .. } => None,
            State::Dying { plane }
            | State::Coming { plane, .. }
            | State::Serving { plane }
            | State::Proving { plane, .. } => Some(*plane),
            State::Handover(it) => Some(it.from),
        }
    }

    /// The one that is to follow it.
    #[must_use]
    pub fn next(&self) -> Option<PlaneNumber> {
        match &self.state {
            State::Handover(it) => Some(it.to),
            _ => None,
        }
    }

    /// How far that one is; `None`: it has ended.
    #[must_use]
    pub fn stage(&self, number: PlaneNumber) -> Option<Stage> {
        if self.ending.contains(&number) {
            return Some(Stage::Ending);
        }
        let (plane, stage) = match &self.state {
            State::Down { .. } => return None,
            State::Dying { plane } => (*plane, Stage::Ending),
            State::Coming { plane, stage, .. } => (*plane, *stage),
            State::Serving { plane } | State::Proving { plane, .. } => (*plane, Stage::Running),
            State::Handover(it) if it.to == number => (it.to, it.step.of_next()),
            State::Handover(it) => (it.from, it.step.of_old()),
        };
        (plane == number).then_some(stage)
    }

    /// How far the one that serves is.
    #[must_use]
    pub fn serving_stage(&self) -> Option<Stage> {
        self.stage(self.serving()?)
    }

    /// The one that serves carries packets.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.serving_stage() == Some(Stage::Running)
    }

    /// The one that serves may be told of ports and front-ends: it has those that there are.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        let is_it =
            |stage| matches!(stage, Stage::Loading | Stage::Ready | Stage::Going | Stage::Running);
        self.serving_stage().is_some_and(is_it)
    }

    /// The one that is to follow has all that there is, and is to be told of what changes.
    #[must_use]
    pub fn is_next_loaded(&self) -> bool {
        let has_all =
            |it: &Handover<C>| !matches!(it.step, HandoverStep::Start | HandoverStep::Rest);
        matches!(&self.state, State::Handover(it) if has_all(it))
    }

    /// There is none beside the one that serves, or is about to.
    #[must_use]
    pub fn others_are_gone(&self) -> bool {
        self.next().is_none() && self.ending.is_empty()
    }

    /// Whether front-ends and clients are read: what one that follows was given stays true until
    /// it serves, and what a supervisor was told when it takes the place of another one.
    #[must_use]
    pub fn may_read(&self) -> bool {
        let is_handed =
            matches!(&self.state, State::Handover(it) if it.step != HandoverStep::Start);
        !is_handed && !self.waits_to_give_place()
    }

    /// Whether [`Event::AtRest`] is waited for.
    #[must_use]
    pub fn waits_for_rest(&self) -> bool {
        matches!(&self.state, State::Handover(it) if it.step == HandoverStep::Rest)
    }

    /// Whether the supervisor is to be replaced as soon as nothing is outstanding.
    #[must_use]
    pub fn waits_to_give_place(&self) -> bool {
        self.replacement.as_ref().is_some_and(|it| it.is_checked)
    }

    /// The client that has asked for the supervisor's replacement, and for how long packets waited
    /// before.
    #[must_use]
    pub fn replacement(&self) -> Option<(C, Duration)> {
        self.replacement.as_ref().map(|it| (it.by, it.stall))
    }

    /// Another one of the same program is about to be given all that there is.
    #[must_use]
    pub fn is_renewing(&self) -> bool {
        let is_early =
            |it: &Handover<C>| matches!(it.step, HandoverStep::Start | HandoverStep::Rest);
        matches!(&self.state, State::Handover(it) if it.by.is_none() && is_early(it))
    }

    /// Something of it ends by itself soon, or is ended.
    #[must_use]
    pub fn is_changing(&self) -> bool {
        self.replacement.is_some() || !matches!(self.state, State::Serving { .. })
    }

    /// Whether another data plane can be started beside this one now.
    ///
    /// # Errors
    /// It says why not.
    pub fn may_hand_over(&self) -> Result<(), &'static str> {
        match &self.state {
            State::Serving { .. } if self.replacement.is_none() => Ok(()),
            State::Serving { .. } | State::Handover(_) | State::Proving { .. } => {
                Err("the data plane is being replaced: try again")
            }
            _ => Err("the data plane is being started anew: try again"),
        }
    }

    /// When [`Event::Due`] is due.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        let of_state = match &self.state {
            State::Down { start_at } => *start_at,
            State::Dying { .. } | State::Serving { .. } => None,
            State::Coming { since, .. } => Some(*since + LOADED_WITHIN),
            State::Handover(it) => Some(it.ends_at()),
            State::Proving { since, .. } => Some(*since + PROVED_AFTER),
        };
        let of_replacement = self.replacement.as_ref().map(Replacement::ends_at);
        of_state.into_iter().chain(of_replacement).min()
    }
}

impl HandoverStep {
    fn of_next(self) -> Stage {
        match self {
            Self::Start | Self::Rest => Stage::Starting,
            Self::Load => Stage::Loading,
            Self::Stop { .. } => Stage::Ready,
            Self::Go { .. } => Stage::Going,
        }
    }

    fn of_old(self) -> Stage {
        match self {
            Self::Start | Self::Rest | Self::Load => Stage::Running,
            Self::Stop { .. } => Stage::Quiescing,
            Self::Go { .. } => Stage::Frozen,
        }
    }
}

impl<C> Handover<C> {
    fn ends_at(&self) -> Instant {
        match self.step {
            HandoverStep::Start | HandoverStep::Rest | HandoverStep::Load => {
                self.begun + READY_WITHIN
            }
            HandoverStep::Stop { since } | HandoverStep::Go { since } => since + GOES_ON_WITHIN,
        }
    }
}

impl<C> Replacement<C> {
    fn ends_at(&self) -> Instant {
        self.since + if self.is_checked { AT_REST_WITHIN } else { CHECKED_WITHIN }
    }
}
