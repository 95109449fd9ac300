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
    /// Bytes of a packet.
    pub len: u32,
    /// Bytes of an answer.
    pub answer_len: u32,
}

/// One load shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// As in the golden table.
    pub name: &'static str,
    /// The flows.
    pub flows: &'static [Flows],
    /// The guest takes this much longer for each packet, in nanoseconds.
    pub slow_guest_ns: u64,
    /// Packets until the simulation ends.
    pub packets: u64,
}

/// Of a packet that carries little or nothing, in bytes.
const SHORT_LEN: u32 = 100;
/// The longest that a stream cuts its data into, in bytes.
const LONG_LEN: u32 = 65_536;

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
    len: SHORT_LEN,
    answer_len: SHORT_LEN,
};

/// As TCP sends: a window of 128 packets, an answer for every 16 (receive offload), and a sender
/// that needs 3 µs for each, so that the device is the faster side and would like to sleep.
const STREAM: Flows = Flows { window: 128, answer_every: 16, gap_ns: 3_000, ..REQUEST };

/// As TCP sends with segmentation offload at 15 Gb/s, as User Mode Linux does: an answer for every
/// two.
const LONG_STREAM: Flows =
    Flows { window: 32, answer_every: 2, gap_ns: 35_000, len: LONG_LEN, ..REQUEST };

/// The same at 2.6 Gb/s, as under emulation.
const SLOW_LONG_STREAM: Flows = Flows { gap_ns: 200_000, ..LONG_STREAM };

/// Requests beside a stream.
const REQUESTS: Flows = Flows { gap_ns: 100_000, is_random: true, ..REQUEST };

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
pub const LOADS: [Load; 17] = [
    load("one ping at a time", &[Flows { gap_ns: 1_000_000, ..REQUEST }]),
    load("flood ping", &[REQUEST]),
    load("flood ping, received", &[received(REQUEST)]),
    load("one bulk stream", &[STREAM]),
    load("one bulk stream, received", &[received(STREAM)]),
    load("100 request/response flows", &[HUNDRED]),
    load("bulk + request/response", &[STREAM, REQUESTS]),
    load("bulk + request/response, received", &[received(STREAM), REQUESTS]),
    load("on/off bursts", &[BURSTS]),
    load("on/off bursts, received", &[received(BURSTS)]),
    Load { slow_guest_ns: 20_000, ..load("slow consumer", &[received(STREAM)]) },
    load("long packets", &[LONG_STREAM]),
    load("long packets, received", &[received(LONG_STREAM)]),
    load("long packets, slower", &[SLOW_LONG_STREAM]),
    load("long packets, slower, received", &[received(SLOW_LONG_STREAM)]),
    load("long packets + request/response, received", &[LONG_STREAM, received(REQUESTS)]),
    load("long packets received + request/response", &[received(LONG_STREAM), REQUESTS]),
];

/// About one request every 10 µs.
const HUNDRED: Flows = Flows { count: 100, gap_ns: 1_000_000, is_random: true, ..REQUEST };
