//! Kicks of a driver under each policy, on real rings: nothing is held longer than its timer, and
//! nothing is forgotten.

use ringway_driver::{NetTx, RxScheme, Sent};
use ringway_net::moderation::Policy;
use ringway_net::{Nanos, NetHeader, WAKE_NS};
use ringway_testkit::Rng;
use ringway_testkit::{DriverPair, PairShape};
use ringway_virtq::{
    Arm, DeviceQueue, DriverQueue, PackedDevice, PackedDriver, QueueOptions, SplitDevice,
    SplitDriver,
};

const SIZE: u16 = 64;
const PACKETS: u64 = 3_000;
const GAP_NS_MAX: u64 = 4_000;

/// Policies, and how long each may hold a packet back.
const POLICIES: [(&str, u64); 6] = [
    ("every", 0),
    ("on-empty", 0),
    ("timer:50us", 50_000),
    ("timer:250us", 250_000),
    ("coalesce:16/50us", 50_000),
    ("adaptive", WAKE_NS),
];

/// Sends one packet after the other to a device that sleeps until it is kicked; returns the kicks.
struct Sender<D, V> {
    pair: DriverPair<D, V>,
    now: u64,
    wake_at: Option<Nanos>,
    /// When the oldest packet was sent that the device has not seen.
    oldest: Option<u64>,
    longest_ns: u64,
    kicks: u64,
}

impl<D: DriverQueue, V: DeviceQueue> Sender<D, V> {
    fn new(policy: &str, event_idx: bool) -> Self {
        let options = QueueOptions { event_idx, ..QueueOptions::default() };
        let shape = PairShape { options, ..PairShape::plain(D::FORMAT, SIZE, RxScheme::Page) };
        let mut pair = DriverPair::<D, V>::new(shape);
        pair.driver.tx.set_policy(policy.parse::<Policy>().expect("a policy"));
        pair.transmitq.arm_kicks(Arm::Next);
        Self { pair, now: 0, wake_at: None, oldest: None, longest_ns: 0, kicks: 0 }
    }

    fn tx(&mut self) -> &mut NetTx<D> {
        &mut self.pair.driver.tx
    }

    fn flush(&mut self, more: bool) {
        let now = Nanos(self.now);
        let flushed = self.tx().flush_at(now, more);
        self.wake_at = flushed.wake_at;
        if flushed.kick {
            self.kicks += 1;
            let held_ns = self.oldest.take().map_or(0, |oldest| self.now - oldest);
            self.longest_ns = self.longest_ns.max(held_ns);
            self.pair.take_all();
            assert!(!self.pair.transmitq.arm_kicks(Arm::Next), "all was taken");
        }
    }

    /// Timers end until `now`.
    fn advance(&mut self, now: u64) {
        while let Some(Nanos(at)) = self.wake_at.filter(|at| at.0 <= now) {
            self.now = at;
            self.flush(false);
        }
        self.now = now;
    }

    fn send(&mut self, packets: u64, rng: &mut Rng) {
        for left in (0..packets).rev() {
            let gap = rng.below(GAP_NS_MAX);
            self.advance(self.now + gap);
            let sent = self.tx().send(&NetHeader::default(), &[0; 60]).expect("a right device");
            assert_eq!(sent, Sent::Done, "there is always room: the device takes all");
            self.oldest.get_or_insert(self.now);
            self.flush(left % 4 != 0);
        }
    }
}

fn kicks<D: DriverQueue, V: DeviceQueue>(policy: &str, held_ns_max: u64, event_idx: bool) -> u64 {
    let mut rng = Rng::from_environment("driver pacing", 4);
    let mut sender = Sender::<D, V>::new(policy, event_idx);
    sender.send(PACKETS, &mut rng);
    // Only timers end from here on.
    sender.advance(u64::MAX / 2);
    assert_eq!(sender.pair.in_device.len() as u64, PACKETS, "{policy}");
    // With more at hand, a policy that kicks at the end waits for up to three packets.
    let allowed = held_ns_max + if policy == "on-empty" { 3 * GAP_NS_MAX } else { 0 };
    assert!(sender.longest_ns <= allowed, "{policy}: held for {} ns", sender.longest_ns);
    let counted = sender.tx().counters().kicks;
    assert_eq!(sender.kicks, counted);
    sender.kicks
}

#[test]
fn every_policy_kicks_in_time_and_as_often_as_it_says() {
    for event_idx in [false, true] {
        let all = POLICIES.map(|(policy, held_ns_max)| {
            let split = kicks::<SplitDriver, SplitDevice>(policy, held_ns_max, event_idx);
            let packed = kicks::<PackedDriver, PackedDevice>(policy, held_ns_max, event_idx);
            assert_eq!(split, packed, "{policy}");
            split
        });
        let [every, on_empty, short, long, coalesce, adaptive] = all;
        assert_eq!((every, on_empty), (PACKETS, PACKETS / 4));
        assert!(long < short && short < every / 10, "{all:?}");
        assert!((PACKETS / 16..=PACKETS / 8).contains(&coalesce), "{all:?}");
        assert!(adaptive < every / 4, "{all:?}");
    }
}
