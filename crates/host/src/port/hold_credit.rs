//! How long senders wait for one receiver: a credit of time that it spends by keeping others
//! waiting and earns by taking packets.
//!
//! A bounded wait for each packet is not enough: a guest that posts one buffer shortly before every
//! wait would end could slow down every port that sends to it for as long as it likes. What a guest
//! earns for a packet is what a slow but honest one needs for it.
//!
//! Limits: at most [`HOLD_MAX_NS`] at a time. A receiver that takes less than it spends has packets
//! dropped instead, which it brought on itself.

use ringway_net::Nanos;

/// The longest wait for room, and the most that is saved up, in nanoseconds.
pub(crate) const HOLD_MAX_NS: u64 = 10_000_000;

/// Earned by each packet taken, in nanoseconds.
const PER_PACKET_NS: u64 = 250_000;
/// Earned by each KiB taken, so that few long packets count like many short ones, in nanoseconds.
const PER_KIB_NS: u64 = 25_000;
/// Of the time that passes, every receiver earns this part.
const IDLE_SHARE: u64 = 100;

/// The credit of one receiver.
#[derive(Debug)]
pub(crate) struct HoldCredit {
    /// In nanoseconds.
    left_ns: u64,
    /// When that was right, and what the receiver had taken then.
    earned: Option<(Nanos, Taken)>,
    /// A wait since the first of these two, until the other.
    wait: Option<(Nanos, Nanos)>,
}

/// The packets and bytes that a receiver has taken since its port exists.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Taken {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl HoldCredit {
    pub(crate) fn new() -> Self {
        Self { left_ns: HOLD_MAX_NS, earned: None, wait: None }
    }

    /// A packet waits from now on, perhaps with others: until when.
    pub(crate) fn wait(&mut self, now: Nanos, taken: Taken) -> Nanos {
        if let Some((_, until)) = self.wait.filter(|(_, until)| *until > now) {
            return until;
        }
        self.end(now);
        if let Some((at, before)) = self.earned.replace((now, taken)) {
            let packets = taken.packets.saturating_sub(before.packets);
            let kib = taken.bytes.saturating_sub(before.bytes) / 1024;
            let earned_ns = (now.since(at) / IDLE_SHARE)
                .saturating_add(packets.saturating_mul(PER_PACKET_NS))
                .saturating_add(kib.saturating_mul(PER_KIB_NS));
            self.left_ns = HOLD_MAX_NS.min(self.left_ns.saturating_add(earned_ns));
        }
        let until = now.plus(self.left_ns);
        self.wait = Some((now, until));
        until
    }

    /// Whether the receiver is charged for a wait.
    pub(crate) fn is_waiting(&self) -> bool {
        self.wait.is_some()
    }

    /// There is room, or no packet waits any longer.
    pub(crate) fn end(&mut self, now: Nanos) {
        if let Some((since, until)) = self.wait.take() {
            self.left_ns = self.left_ns.saturating_sub(until.min(now).since(since));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A receiver that takes `packets` of `len` bytes for each `pause` that it makes others wait,
    /// for a second: how long they have waited in all, and how often for nothing.
    fn waited(pause: u64, packets: u64, len: u64) -> (u64, u32) {
        let (mut credit, mut taken) = (HoldCredit::new(), Taken::default());
        let start = Nanos(1);
        let (mut now, mut waited, mut vain) = (start, 0, 0);
        while now.since(start) < 1000 * MS {
            let until = credit.wait(now, taken);
            let ends = until.min(now.plus(pause));
            vain += u32::from(until < now.plus(pause));
            waited += ends.since(now);
            credit.end(ends);
            now = now.plus(pause);
            taken.packets += packets;
            taken.bytes += packets * len;
        }
        (waited, vain)
    }

    #[test]
    fn a_receiver_that_takes_what_it_gets_is_waited_for() {
        for (pause, packets, len) in
            [(MS, 4, 60), (9 * MS, 40, 60), (MS, 1, 65_000), (9 * MS, 32, 1500)]
        {
            assert_eq!(waited(pause, packets, len).1, 0, "{packets} of {len} bytes in {pause} ns");
        }
    }

    #[test]
    fn a_receiver_that_takes_nothing_or_little_is_not_waited_for_long() {
        assert!(waited(MS, 0, 0).0 <= 21 * MS, "{:?}", waited(MS, 0, 0));
        // One buffer just before the end of each wait.
        let (all, vain) = waited(9 * MS, 1, 1500);
        assert!(all < 60 * MS && vain > 100, "{all:?}, {vain} for nothing");
    }

    #[test]
    fn several_packets_wait_together() {
        let (mut credit, now) = (HoldCredit::new(), Nanos(1));
        let until = credit.wait(now, Taken::default());
        assert_eq!(until, now.plus(HOLD_MAX_NS));
        assert_eq!(credit.wait(now.plus(3 * MS), Taken::default()), until);
        credit.end(now.plus(4 * MS));
        let left = credit.wait(now.plus(4 * MS), Taken::default()).since(now.plus(4 * MS));
        assert!((6 * MS..7 * MS).contains(&left), "{left}");
    }
}
