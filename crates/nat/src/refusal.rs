//! Why packets are dropped.

use crate::socket::Problem;

/// Why a packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Its headers do not fit together, or are of no protocol that is carried.
    Malformed,
    /// It is for another station.
    NotForUs,
    /// Its source address is not the guest's.
    SpoofedSource,
    /// A part of a datagram that contradicts other parts, or of a protocol whose parts are not
    /// carried.
    Fragment,
    /// Guests must not go there.
    Denied,
    /// Its TTL or hop limit is used up.
    Hops,
    /// The guest opens flows too fast.
    FlowRate,
    /// The guest, or all of them, have as many flows as they may.
    FlowLimit,
    /// It belongs to no flow.
    NoFlow,
    /// The host has no port left for a new flow.
    NoPort,
}

impl Refusal {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::Malformed,
        Self::NotForUs,
        Self::SpoofedSource,
        Self::Fragment,
        Self::Denied,
        Self::Hops,
        Self::FlowRate,
        Self::FlowLimit,
        Self::NoFlow,
        Self::NoPort,
    ];

    /// The name used in statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::NotForUs => "not_for_us",
            Self::SpoofedSource => "spoofed_source",
            Self::Fragment => "fragment",
            Self::Denied => "denied",
            Self::Hops => "hops",
            Self::FlowRate => "flow_rate",
            Self::FlowLimit => "flow_limit",
            Self::NoFlow => "no_flow",
            Self::NoPort => "no_port",
        }
    }
}

/// A packet is dropped for that reason, and its guest gets this notice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refused {
    pub why: Refusal,
    pub notice: Notice,
}

/// The news for a guest of its packet that is dropped, unless it has had too many.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Notice {
    Nothing,
    /// An ICMP error.
    Problem(Problem),
    /// A TCP reset.
    Reset,
}

impl Refused {
    pub fn with(why: Refusal, problem: Problem) -> Self {
        Self { why, notice: Notice::Problem(problem) }
    }

    pub fn with_reset(why: Refusal) -> Self {
        Self { why, notice: Notice::Reset }
    }
}

impl From<Refusal> for Refused {
    fn from(why: Refusal) -> Self {
        Self { why, notice: Notice::Nothing }
    }
}
