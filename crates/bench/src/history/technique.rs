//! The techniques, row by row: each row is the one above with something changed.

use ringway_driver::{RxOptions, RxScheme};
use ringway_net::moderation::Policy;
use ringway_net::{Features, PACKET_LEN_MAX};
use ringway_testkit::MirrorOptions;
use ringway_virtq::Format;

/// Longest packet without segmentation offload, and with it, in bytes.
pub(super) const SHORT_LEN: usize = 1514;
const LONG_LEN: usize = 65_536;

/// Ring entries that a receive buffer for the longest packet takes where buffers are not merged.
const ELEMENTS: u16 = 18;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Technique {
    pub rings: MirrorOptions,
    pub format: Format,
    pub packet_len: usize,
    /// After the first packet the host waits so many microseconds before it takes what the guest
    /// has sent, and again for as long as that finds something.
    pub timer_us: Option<u32>,
    /// A ring that is full is taken at once, whatever the timer says.
    pub when_full: bool,
    /// The host asks for kicks about new receive buffers only when it has none left.
    pub quiet_refill: bool,
    /// One lock, held while the tap is read and while the guest kicks.
    pub lock: bool,
    /// The tap is read into memory of the host's, and copied to the guest from there.
    pub bounce: bool,
    /// A descriptor of a packet is allocated for each buffer when it is posted.
    pub early: bool,
    pub policy: Policy,
}

const BASELINE: Technique = Technique {
    rings: MirrorOptions {
        rx: RxOptions::BIG,
        tx_len_max: PACKET_LEN_MAX,
        queue_size: 128,
        buffers_len: 160 << 20,
        without: Features::IN_ORDER
            .union(Features::EVENT_IDX)
            .union(Features::NOTIFY_ON_EMPTY)
            .union(Features::INDIRECT_DESC),
    },
    format: Format::Split,
    packet_len: SHORT_LEN,
    timer_us: None,
    when_full: true,
    quiet_refill: false,
    lock: true,
    bounce: true,
    early: true,
    policy: Policy::Every,
};

/// What a row is called, what it switches on for readers, and what it changes.
pub(crate) type Step<T> = (&'static str, &'static str, fn(&mut T));

/// Each step behind all above it.
pub(crate) fn steps<T: Copy>(mut technique: T, steps: &[Step<T>]) -> Vec<(&'static str, T)> {
    let row = |(name, _, change): &Step<T>| {
        change(&mut technique);
        (*name, technique)
    };
    steps.iter().map(row).collect()
}

pub(super) const STEPS: [Step<Technique>; 19] = [
    (
        "baseline",
        "packets of 1514 bytes; rings of 128 entries; every kick is followed at once; calls about \
         everything; one lock; the tap is read into a buffer of the host's first; a descriptor of \
         a packet is allocated with each receive buffer",
        |_| {},
    ),
    (
        "50 µs timer, again while it finds packets",
        "the host takes what the guest sends when 50 µs have passed since the kick, without \
         further kicks meanwhile; a guest that finds the ring full kicks nevertheless, and that \
         ends the timer. In 2008 a ring took about 1 ms to fill (128 packets of 1514 bytes at 1.6 \
         Gb/s), so that the timer mostly ended first and its length decided. Where a ring is full \
         before any of the three timers ends (at 31 Gb/s in 50 µs), all three move as much, and \
         their lengths are seen in the round trips and in \"full rings wait, too\" only",
        |to| to.timer_us = Some(50),
    ),
    ("250 µs timer", "the same with 250 µs", |to| to.timer_us = Some(250)),
    ("150 µs timer", "the same with 150 µs", |to| to.timer_us = Some(150)),
    ("full rings wait, too", "a full ring does not end the timer", |to| to.when_full = false),
    ("NOTIFY_ON_EMPTY", "no calls about sent packets but one when the ring has run empty", |to| {
        to.rings.without -= Features::NOTIFY_ON_EMPTY
    }),
    (
        "no kicks about receive buffers",
        "new receive buffers are kicked about only when the host waits for some",
        |to| to.quiet_refill = true,
    ),
    (
        "GSO",
        "packets of up to 65536 bytes; receive buffers that hold one, 18 ring entries each",
        |to| (to.packet_len, to.rings.rx.elements) = (LONG_LEN, ELEMENTS),
    ),
    ("ring of 256", "256 entries", |to| to.rings.queue_size = 256),
    ("ring of 512", "512 entries", |to| to.rings.queue_size = 512),
    ("no lock", "no lock around the tap and the kicks", |to| to.lock = false),
    ("no copy to the guest", "the tap is read into the guest's buffers", |to| to.bounce = false),
    ("mergeable buffers", "receive buffers of one page, several for a long packet", |to| {
        to.rings.rx = RxOptions::MERGEABLE;
        to.rings.without -= Features::INDIRECT_DESC;
    }),
    ("deferred packets", "a descriptor is allocated when a packet arrives", |to| to.early = false),
    ("EVENT_IDX", "notifications by index instead of flags", |to| {
        to.rings.without -= Features::EVENT_IDX
    }),
    ("auto-tuned buffers", "lengths follow a moving average, as in Linux", |to| {
        to.rings.rx.scheme = RxScheme::ALL[3]
    }),
    ("packed ring", "packed instead of split", |to| to.format = Format::Packed),
    (
        "adaptive pacing",
        "holds that follow the traffic instead of the timer: the host's calls and its wish to be \
         kicked as in a worker of ringway's, the guest's kicks as in its driver",
        |to| (to.timer_us, to.policy) = (None, Policy::Adaptive),
    ),
    ("adaptive buffers", "the length that costs least for the packets seen lately", |to| {
        to.rings.rx.scheme = RxScheme::Adaptive
    }),
];

pub(super) fn rows() -> Vec<(Vec<String>, Technique)> {
    let rows = steps(BASELINE, &STEPS).into_iter();
    rows.map(|(name, technique)| (vec![name.to_string()], technique)).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The technique of a row.
    pub(crate) fn named(name: &str) -> Technique {
        let row = rows().into_iter().find(|(row, _)| row[0] == name);
        row.unwrap_or_else(|| panic!("no row {name}")).1
    }

    #[test]
    fn every_row_changes_something() {
        for pair in rows().windows(2) {
            assert_ne!(pair[0].1, pair[1].1, "{:?}", pair[1].0);
        }
    }

    #[test]
    fn rings_have_the_features_that_a_row_names() {
        for (feature, before, with) in [
            (Features::NOTIFY_ON_EMPTY, "full rings wait, too", "NOTIFY_ON_EMPTY"),
            (Features::EVENT_IDX, "deferred packets", "EVENT_IDX"),
        ] {
            let lacks = |row| named(row).rings.without.contains(feature);
            assert!(lacks("baseline") && lacks(before) && !lacks(with), "{with}");
            assert!(!lacks("adaptive buffers"), "{with}");
        }
        let merges = |row| named(row).rings.rx.mergeable;
        assert!(!merges("no copy to the guest") && merges("mergeable buffers"));
        let last = named("adaptive buffers");
        assert_eq!((last.format, last.policy), (Format::Packed, Policy::Adaptive));
    }
}
