//! The techniques that a real guest lets one switch, row by row.

use ringway_net::Features;
use ringway_net::moderation::Policy;

/// The name of a row, what it switches on for readers, and what it changes.
type Step = (&'static str, &'static str, fn(&mut Technique));

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Technique {
    pub features: Features,
    /// Entries of each queue, where the guest lets one choose.
    pub queue_size: u16,
    /// After a kick the host waits so many microseconds before it takes what the guest has sent,
    /// and again for as long as that finds something.
    pub timer_us: Option<u32>,
    /// The host asks for kicks about new receive buffers only when it has none left.
    pub quiet_refill: bool,
    /// The tap is read into memory of the host's, and copied to the guest from there.
    pub bounce: bool,
    /// The host leaves TCP for the guest in long packets, if the guest takes them.
    pub host_gso: bool,
    pub policy: Policy,
    pub is_ringway: bool,
}

impl Technique {
    pub fn qemu_options(&self) -> String {
        let size = self.queue_size;
        let is_packed = self.is_ringway || self.features.contains(Features::RING_PACKED);
        let packed = if is_packed { ",packed=on" } else { "" };
        format!(",rx_queue_size={size},tx_queue_size={size}{packed}")
    }
}

const OFFLOADS: Features = Features::CSUM
    .union(Features::GUEST_CSUM)
    .union(Features::HOST_TSO4)
    .union(Features::HOST_TSO6)
    .union(Features::HOST_ECN)
    .union(Features::GUEST_TSO4)
    .union(Features::GUEST_TSO6)
    .union(Features::GUEST_ECN);

const BASELINE: Technique = Technique {
    features: Features::VERSION_1.union(Features::MAC).union(Features::STATUS),
    queue_size: 256,
    timer_us: None,
    quiet_refill: false,
    bounce: true,
    host_gso: true,
    policy: Policy::Every,
    is_ringway: false,
};

pub(super) const STEPS: [Step; 17] = [
    (
        "no offloads",
        "packets of 1514 bytes; 256 entries; every kick is followed at once; calls about \
         everything; the tap is read into a buffer of the device's first",
        |_| {},
    ),
    (
        "50 µs timer, again while it finds packets",
        "what the guest sends is taken when 50 µs have passed since its kick, without further \
         kicks meanwhile",
        |to| to.timer_us = Some(50),
    ),
    ("250 µs timer", "the same with 250 µs", |to| to.timer_us = Some(250)),
    ("150 µs timer", "the same with 150 µs", |to| to.timer_us = Some(150)),
    (
        "no kicks about receive buffers",
        "new receive buffers are kicked about only when the device waits for some",
        |to| to.quiet_refill = true,
    ),
    (
        "GSO, big packets",
        "checksums and segmentation are left undone, both ways; the guest posts receive buffers of \
         64 KiB, a chain of entries each",
        |to| to.features |= OFFLOADS,
    ),
    ("ring of 512", "512 entries", |to| to.queue_size = 512),
    ("ring of 1024", "1024 entries", |to| to.queue_size = 1024),
    ("no copy to the guest", "the tap is read into the guest's buffers", |to| to.bounce = false),
    ("indirect descriptors", "a chain takes one entry of the ring", |to| {
        to.features |= Features::INDIRECT_DESC;
    }),
    (
        "big packets, host's GSO off",
        "the host cuts TCP for the guest into packets of the MTU",
        |to| {
            to.host_gso = false;
        },
    ),
    ("mergeable buffers, host's GSO off", "several receive buffers for a long packet", |to| {
        to.features |= Features::MRG_RXBUF;
    }),
    ("mergeable buffers", "the same with the host's GSO on again", |to| to.host_gso = true),
    ("EVENT_IDX", "notifications by index instead of flags", |to| {
        to.features |= Features::EVENT_IDX;
    }),
    ("packed ring", "packed instead of split", |to| to.features |= Features::RING_PACKED),
    (
        "adaptive pacing",
        "holds that follow the traffic instead of the timer, as in a worker of ringway's",
        |to| (to.timer_us, to.policy) = (None, Policy::Adaptive),
    ),
    ("ringway", "the program itself, with all that it offers", |to| to.is_ringway = true),
];

/// Each step behind all above it.
pub(super) fn rows() -> Vec<(&'static str, Technique)> {
    let mut technique = BASELINE;
    let row = |(name, _, change): &Step| {
        change(&mut technique);
        (*name, technique)
    };
    STEPS.iter().map(row).collect()
}

/// Techniques that cannot be switched with a guest of today, and why.
pub(super) const NOT_SWITCHED: [&str; 6] = [
    "full rings end the timer: a guest of today does not kick a device that has asked for no \
     kicks, also when the ring is full; every row with a timer is one without; with ringway's own \
     driver: `ringway bench history`",
    "NOTIFY_ON_EMPTY: the guest's driver does not accept it; with ringway's own driver: `ringway \
     bench history`",
    "rings of 128: QEMU has 256 at least, User Mode Linux 256 always",
    "no lock while the tap is read: one thread owns a device and its rings here; with ringway's \
     own driver: `ringway bench history`",
    "deferred packets: the guest allocates them when they arrive, since 2010; with ringway's own \
     driver, under overload: `ringway bench history`",
    "auto-tuned buffers: the guest's own, always on with mergeable buffers, since 2014; schemes of \
     ringway's own driver: `ringway bench rxbuf`",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_changes_something() {
        for pair in rows().windows(2) {
            assert_ne!(pair[0].1, pair[1].1, "{}", pair[1].0);
        }
    }

    #[test]
    fn rings_have_the_features_that_a_row_names() {
        let named = |name| rows().into_iter().find(|row| row.0 == name).expect("a row").1;
        for (feature, before, with) in [
            (Features::HOST_TSO4, "150 µs timer", "GSO, big packets"),
            (Features::INDIRECT_DESC, "no copy to the guest", "indirect descriptors"),
            (Features::MRG_RXBUF, "big packets, host's GSO off", "mergeable buffers"),
            (Features::EVENT_IDX, "mergeable buffers", "EVENT_IDX"),
        ] {
            let has = |row| named(row).features.contains(feature);
            assert!(!has(before) && has(with), "{with}");
        }
        assert!(BASELINE.features.drop_unmet() == BASELINE.features);
    }
}
