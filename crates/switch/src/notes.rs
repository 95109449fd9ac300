//! Findings on the way to a decision, rule by rule, for those who ask why. Packets are judged by
//! the same code, with nothing in the place of the notes.

use alloc::vec::Vec;

use ringway_net::DropReason;

use crate::{FalseClaim, Learned, PortId, TagChange, VlanId};

/// One thing that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The sender's rate lets it go now; or not before then, in nanoseconds.
    Rate(Result<(), u64>),
    /// It is in this VLAN, or in none; or its port may not send such packets.
    Vlan(Result<Option<VlanId>, DropReason>),
    /// Its source addresses are the port's, as far as that is asked; or this is not.
    Addresses(Result<(), FalseClaim>),
    /// Where its source address is, from now on.
    Source(Learned),
    /// It is meant for the next bridge, and goes no further.
    Reserved,
    /// It goes to everybody, or to members of a group and routers.
    Group {
        /// Only those that want it.
        is_snooped: bool,
    },
    /// Its destination was seen at a port; or is unknown, and it is flooded.
    Station(Option<PortId>),
    /// Its way out at a port: the change of its tag, or why it may not go.
    Way(PortId, Result<TagChange, DropReason>),
    /// A flood is within the sender's limit, or not.
    Storm(Result<(), DropReason>),
}

/// Where notes go.
pub trait Notes {
    /// One thing was found.
    fn note(&mut self, step: Step);
}

/// They go nowhere.
impl Notes for () {
    #[inline(always)]
    fn note(&mut self, _: Step) {}
}

impl Notes for Vec<Step> {
    fn note(&mut self, step: Step) {
        self.push(step);
    }
}
