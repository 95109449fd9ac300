//! How long senders wait for one receiver: a credit of time that it spends by keeping others
//! waiting and earns by taking packets.
//!
//! A bounded wait for each packet is not enough: a guest that posts one buffer shortly before every
//! wait would end could slow down everybody who sends to it, and whoever shares their port, for as
//! long as it likes. What a guest earns for a packet is what a slow but honest one needs for it.
//!
//! Limits: at most [`HOLD_MAX`] at a time. A receiver that takes less than it spends has packets
//! dropped instead, which it brought on itself.

use std::time::{Duration, Instant};

/// The longest wait for room, and the most that is saved up.
pub(crate) const HOLD_MAX: Duration = Duration::from_millis(10);

/// Earned by each packet taken.
const PER_PACKET: Duration = Duration::from_micros(250);
/// Earned by each KiB taken, so that few long packets count like many short ones.
const PER_KIB: Duration = Duration::from_micros(25);
/// Of the time that passes, this part is earned by everybody.
const IDLE_SHARE: u32 = 100;

/// The credit of one receiver.
#[derive(Debug)]
pub(crate) struct HoldCredit {
    left: Duration,
    /// When `left` was right, and what the receiver had taken then.
    earned: Option<(Instant, Taken)>,
    /// A wait since the first of these two, until the other.
    wait: Option<(Instant, Instant)>,
}

/// What a receiver has taken since its port exists.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Taken {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl HoldCredit {
    pub(crate) fn new() -> Self {
        Self { left: HOLD_MAX, earned: None, wait: None }
    }

    /// A packet waits from now on, perhaps beside others: until when.
    pub(crate) fn wait(&mut self, now: Instant, taken: Taken) -> Instant {
        if let Some((_, until)) = self.wait.filter(|(_, until)| *until > now) {
            return until;
        }
        self.end(now);
        if let Some((at, before)) = self.earned.replace((now, taken)) {
            let packets = taken.packets.saturating_sub(before.packets);
            let kib = taken.bytes.saturating_sub(before.bytes) / 1024;
            let idle = now.saturating_duration_since(at) / IDLE_SHARE;
            let earned = idle + times(PER_PACKET, packets) + times(PER_KIB, kib);
            self.left = HOLD_MAX.min(self.left + earned);
        }
        let until = now + self.left;
        self.wait = Some((now, until));
        until
    }

    /// Whether the receiver is charged for a wait.
    pub(crate) fn is_waiting(&self) -> bool {
        self.wait.is_some()
    }

    /// There is room, or nobody waits any longer.
    pub(crate) fn end(&mut self, now: Instant) {
        if let Some((since, until)) = self.wait.take() {
            self.left = self.left.saturating_sub(until.min(now).saturating_duration_since(since));
        }
    }
}

fn times(one: Duration, count: u64) -> Duration {
    // More would not be saved up anyway.
    one.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A receiver that takes `packets` of `len` bytes for each `pause` that it makes others wait,
    /// for a second: how long they have waited in all, and how often in vain.
    fn waited(pause: Duration, packets: u64, len: u64) -> (Duration, u32) {
        let (mut credit, mut taken) = (HoldCredit::new(), Taken::default());
        let start = Instant::now();
        let (mut now, mut waited, mut vain) = (start, Duration::ZERO, 0);
        while now - start < 1000 * MS {
            let until = credit.wait(now, taken);
            let ends = until.min(now + pause);
            vain += u32::from(until < now + pause);
            waited += ends - now;
            credit.end(ends);
            now += pause;
            taken.packets += packets;
            taken.bytes += packets * len;
        }
        (waited, vain)
    }

    #[test]
    fn who_takes_what_it_gets_is_waited_for() {
        for (pause, packets, len) in
            [(MS, 4, 60), (9 * MS, 40, 60), (MS, 1, 65_000), (9 * MS, 32, 1500)]
        {
            assert_eq!(waited(pause, packets, len).1, 0, "{packets} of {len} bytes in {pause:?}");
        }
    }

    #[test]
    fn who_takes_nothing_or_little_is_not_waited_for_long() {
        assert!(waited(MS, 0, 0).0 <= 21 * MS, "{:?}", waited(MS, 0, 0));
        // One buffer just before the end of each wait.
        let (all, vain) = waited(9 * MS, 1, 1500);
        assert!(all < 60 * MS && vain > 100, "{all:?}, {vain} in vain");
    }

    #[test]
    fn several_packets_wait_together() {
        let (mut credit, now) = (HoldCredit::new(), Instant::now());
        let until = credit.wait(now, Taken::default());
        assert_eq!(until, now + HOLD_MAX);
        assert_eq!(credit.wait(now + 3 * MS, Taken::default()), until);
        credit.end(now + 4 * MS);
        let left = credit.wait(now + 4 * MS, Taken::default()) - (now + 4 * MS);
        assert!(left >= 6 * MS && left < 7 * MS, "{left:?}");
    }
}
