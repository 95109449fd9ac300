//! The load shapes: which flows there are and how they send.

/// Flows that all send alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flows {
    /// How many.
    pub count: usize,
    /// The remote end sends and the guest answers, or the other way round.
    pub remote_sends: bool,
    /// Packets that may be unanswered.
    pub window: u32,
    /// Packets per answer.
    pub answer_every: u32,
    /// Nanoseconds from one packet to the next, or from an answer to the next request.
    pub gap_ns: u64,
    /// The gap is random between nothing and twice `gap_ns`.
    pub is_random: bool,
    /// After so many packets, 0 for never, the flow is silent for `off_ns`.
    pub burst: u32,
    /// See `burst`.
    pub off_ns: u64,
}

/// One load shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// As in the golden table.
    pub name: &'static str,
    /// What flows.
    pub flows: &'static [Flows],
    /// The guest takes this much longer for each packet, in nanoseconds.
    pub slow_guest_ns: u64,
    /// Packets until the simulation ends.
    pub packets: u64,
}

/// One at a time, the next as soon as the answer is there.
const REQUEST: Flows = Flows {
    count: 1,
    remote_sends: false,
    window: 1,
    answer_every: 1,
    gap_ns: 0,
    is_random: false,
    burst: 0,
    off_ns: 0,
};

/// As TCP sends: a window of 128 packets, an answer for every 16 (receive offload), and a sender
/// that needs 3 µs for each, so that the device is the faster side and would like to sleep.
const STREAM: Flows = Flows { window: 128, answer_every: 16, gap_ns: 3_000, ..REQUEST };

/// 64 packets at a time, then a millisecond of silence.
const BURSTS: Flows =
    Flows { window: 64, answer_every: 64, gap_ns: 1_000, burst: 64, off_ns: 1_000_000, ..REQUEST };

const fn received(flows: Flows) -> Flows {
    Flows { remote_sends: true, ..flows }
}

const fn load(name: &'static str, flows: &'static [Flows]) -> Load {
    Load { name, flows, slow_guest_ns: 0, packets: 20_000 }
}

/// All load shapes of the golden table.
pub const LOADS: [Load; 11] = [
    load("one ping at a time", &[Flows { gap_ns: 1_000_000, ..REQUEST }]),
    load("flood ping", &[REQUEST]),
    load("flood ping, received", &[received(REQUEST)]),
    load("one bulk stream", &[STREAM]),
    load("one bulk stream, received", &[received(STREAM)]),
    load("100 request/response flows", &[HUNDRED]),
    load(
        "bulk + request/response",
        &[STREAM, Flows { gap_ns: 100_000, is_random: true, ..REQUEST }],
    ),
    load(
        "bulk + request/response, received",
        &[received(STREAM), Flows { gap_ns: 100_000, is_random: true, ..REQUEST }],
    ),
    load("on/off bursts", &[BURSTS]),
    load("on/off bursts, received", &[received(BURSTS)]),
    Load { slow_guest_ns: 20_000, ..load("slow consumer", &[received(STREAM)]) },
];

/// About one request every 10 µs.
const HUNDRED: Flows = Flows { count: 100, gap_ns: 1_000_000, is_random: true, ..REQUEST };
