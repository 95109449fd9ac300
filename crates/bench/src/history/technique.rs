//! The techniques, row by row: each row is the one above with one thing changed.

use ringway_driver::RxScheme;
use ringway_virtq::Format;

/// Longest packet without segmentation offload, in bytes.
pub(super) const SHORT_LEN: usize = 1514;

/// With it.
const LONG_LEN: usize = 65_536;

/// Ring entries that a packet of the longest kind takes where buffers are not merged.
const ELEMENTS: u16 = 18;

/// When the host takes what the guest has sent, and tells it what it got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// At once, and every time.
    Every,
    /// When so many microseconds have passed since the first packet; again for as long as that
    /// finds something.
    Timer(u32),
    /// As ringway does unless told otherwise.
    Adaptive,
}

/// How both sides work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Technique {
    pub pace: Pace,
    /// A ring that is full is taken at once, whatever the timer says.
    pub when_full: bool,
    /// The guest does not ask for calls about what it has sent; it gets one when the ring has run
    /// empty.
    pub notify_on_empty: bool,
    /// The host asks for kicks about new receive buffers only when it has none left.
    pub quiet_refill: bool,
    /// Longest packet, in bytes.
    pub packet_len: usize,
    pub queue_size: u16,
    /// One lock, held while the tap is read and while the guest kicks.
    pub lock: bool,
    /// The tap is read into memory of the host's, and copied to the guest from there.
    pub bounce: bool,
    /// Receive buffers: their lengths, and how many ring entries each takes.
    pub scheme: RxScheme,
    pub elements: u16,
    /// A descriptor of a packet is allocated for each buffer when it is posted.
    pub early: bool,
    pub event_idx: bool,
    pub format: Format,
}

/// One row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub name: &'static str,
    /// What it switches on, for readers.
    pub about: &'static str,
    pub technique: Technique,
}

const BASELINE: Technique = Technique {
    pace: Pace::Every,
    when_full: true,
    notify_on_empty: false,
    quiet_refill: false,
    packet_len: SHORT_LEN,
    queue_size: 128,
    lock: true,
    bounce: true,
    scheme: RxScheme::Big,
    elements: 1,
    early: true,
    event_idx: false,
    format: Format::Split,
};

const fn timer(usecs: u32) -> Technique {
    Technique { pace: Pace::Timer(usecs), ..BASELINE }
}

const NOT_WHEN_FULL: Technique = Technique { when_full: false, ..timer(150) };
const ON_EMPTY: Technique = Technique { notify_on_empty: true, ..NOT_WHEN_FULL };
const QUIET: Technique = Technique { quiet_refill: true, ..ON_EMPTY };
const GSO: Technique = Technique { packet_len: LONG_LEN, elements: ELEMENTS, ..QUIET };
const RING_256: Technique = Technique { queue_size: 256, ..GSO };
const RING_512: Technique = Technique { queue_size: 512, ..GSO };
const UNLOCKED: Technique = Technique { lock: false, ..RING_512 };
const ZERO_COPY: Technique = Technique { bounce: false, ..UNLOCKED };
const MERGEABLE: Technique = Technique { scheme: RxScheme::Page, elements: 1, ..ZERO_COPY };
const DEFERRED: Technique = Technique { early: false, ..MERGEABLE };
const EVENT_IDX: Technique = Technique { event_idx: true, ..DEFERRED };
const EWMA: Technique = Technique { scheme: RxScheme::ALL[3], ..EVENT_IDX };
const PACKED: Technique = Technique { format: Format::Packed, ..EWMA };
const ADAPTIVE: Technique = Technique { pace: Pace::Adaptive, ..PACKED };
const BUFFERS: Technique = Technique { scheme: RxScheme::Adaptive, ..ADAPTIVE };

const fn row(name: &'static str, about: &'static str, technique: Technique) -> Row {
    Row { name, about, technique }
}

/// All rows, in the order of history.
pub(super) const ROWS: [Row; 19] = [
    row(
        "baseline",
        "packets of 1514 bytes; rings of 128 entries; every kick is followed at once; calls about \
         everything; one lock; the tap is read into a buffer of the host's first; a descriptor of \
         a packet is allocated with each receive buffer",
        BASELINE,
    ),
    row(
        "50 µs timer, again while it finds packets",
        "the host takes what the guest sends when 50 µs have passed since the kick, without \
         further kicks meanwhile; a guest that finds the ring full kicks nevertheless, and that ends the \
         timer. In 2008 a ring took about 1 ms to fill (128 packets of 1514 bytes at 1.6 Gb/s), so that \
         the timer mostly ended first and its length decided. Where a ring is full before any of the three \
         timers ends (at 31 Gb/s in 50 µs), all three move as much, and their lengths are seen in the \
         round trips and in \"full rings wait, too\" only",
        timer(50),
    ),
    row("250 µs timer", "the same with 250 µs", timer(250)),
    row("150 µs timer", "the same with 150 µs", timer(150)),
    row("full rings wait, too", "a full ring does not end the timer", NOT_WHEN_FULL),
    row(
        "NOTIFY_ON_EMPTY",
        "no calls about sent packets but one when the ring has run empty",
        ON_EMPTY,
    ),
    row(
        "no kicks about receive buffers",
        "new receive buffers are kicked about only when the host waits for some",
        QUIET,
    ),
    row(
        "GSO",
        "packets of up to 65536 bytes; receive buffers that hold one, 18 ring entries each",
        GSO,
    ),
    row("ring of 256", "256 entries", RING_256),
    row("ring of 512", "512 entries", RING_512),
    row("no lock", "no lock around the tap and the kicks", UNLOCKED),
    row("no copy to the guest", "the tap is read into the guest's buffers", ZERO_COPY),
    row("mergeable buffers", "receive buffers of one page, several for a long packet", MERGEABLE),
    row("deferred packets", "a descriptor is allocated when a packet arrives", DEFERRED),
    row("EVENT_IDX", "notifications by index instead of flags", EVENT_IDX),
    row("auto-tuned buffers", "lengths follow a moving average, as in Linux", EWMA),
    row("packed ring", "packed instead of split", PACKED),
    row(
        "adaptive pacing",
        "windows that follow the traffic instead of the timer: the host's calls and its wish to be \
         kicked as in a worker of ringway's, the guest's kicks as in its driver",
        ADAPTIVE,
    ),
    row("adaptive buffers", "the length that costs least for the packets seen lately", BUFFERS),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_changes_something() {
        for pair in ROWS.windows(2) {
            assert_ne!(pair[0].technique, pair[1].technique, "{}", pair[1].name);
        }
    }
}
