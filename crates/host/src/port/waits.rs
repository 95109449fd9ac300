//! How long packets of a guest wait here, counted only where it was asked for.
//!
//! How: times that the worker reads anyway, once for each visit, are compared. So a wait is counted
//! once for each visit or call, and not for each packet: it is that of the first one.
//!
//! Limits: when a guest has made a packet available is not known, only when the worker was told, or
//! looked. Counts begin anew when a guest connects, and with each data plane.

use ringway_device::Queue;
use ringway_net::{Histogram, Nanos};

use crate::pace::Flush;

/// The waits that were counted of one queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WaitCounts {
    /// From when a packet was visible in the receiveq until the guest was called about it.
    pub call_delay: Histogram,
    /// From when the worker woke up for the transmitq, or had left packets in it, until it took
    /// them.
    pub visit_delay: Histogram,
    /// How long the next packet of the transmitq was held: for room at its receiver, or until a
    /// rate allowed it.
    pub packet_hold: Histogram,
}

/// The packets that a visit has left in a transmitq.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Left {
    #[default]
    Nothing,
    /// The budget was used up.
    More,
    /// Its next packet is held.
    Held,
}

/// The waits of one queue pair.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    pub(crate) counts: WaitCounts,
    /// Since when there are packets in the receiveq that the guest was not told of.
    untold_since: Option<Nanos>,
    /// The packets that are left in the transmitq, and since when.
    left: Left,
    left_since: Option<Nanos>,
}

impl Waits {
    /// A visit of the transmitq began at `now`, in a turn of the worker that began at `turn_at`,
    /// and took so many packets.
    pub(crate) fn visited(&mut self, now: Nanos, turn_at: Nanos, packets: u64, left: Left) {
        // A packet that was held, and still is, goes on waiting.
        if packets == 0 && self.left != Left::Nothing && left != Left::Nothing {
            return;
        }
        let (left_before, since) = (self.left, self.left_since.take().unwrap_or(turn_at));
        self.left = left;
        let counts = &mut self.counts;
        if packets > 0 {
            let histogram = match left_before {
                Left::Held => &mut counts.packet_hold,
                Left::Nothing | Left::More => &mut counts.visit_delay,
            };
            histogram.count(now.since(since));
        }
    }

    /// A flush has published so many packets. With `is_time` the guest was called if it wants to
    /// be: with `is_called` it was.
    pub(crate) fn flushed(
        &mut self,
        queue: Queue,
        packets: u32,
        (is_time, is_called): (bool, bool),
        flush: Flush,
    ) {
        match queue {
            Queue::ToGuest => {
                let since = self.untold_since.or((packets > 0).then_some(flush.now));
                // A guest that wants no call looks by itself.
                self.untold_since = since.filter(|_| !is_time);
                if let (Some(since), true) = (since, is_called) {
                    self.counts.call_delay.count(flush.now.since(since));
                }
            }
            Queue::FromGuest if self.left != Left::Nothing => {
                self.left_since.get_or_insert(flush.now);
            }
            Queue::FromGuest | Queue::Control => {}
        }
    }

    /// A queue stops, or the guest was told of everything for another reason: nothing waits.
    pub(crate) fn forget(&mut self) {
        *self = Self { counts: self.counts, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flush(now: u64) -> Flush {
        Flush { now: Nanos(now), more: false, short: false }
    }

    /// How many, and how long in all.
    fn told(histogram: &Histogram) -> (u64, u64) {
        (histogram.counts.iter().sum(), histogram.sum_ns)
    }

    #[test]
    fn a_call_is_late_by_the_first_packet_that_it_is_about() {
        let mut waits = Waits::default();
        let mut flushed = |packets, is_time, is_called, now| {
            waits.flushed(Queue::ToGuest, packets, (is_time, is_called), flush(now));
            told(&waits.counts.call_delay)
        };
        assert_eq!(flushed(1, true, true, 1_000), (1, 0));
        assert_eq!(flushed(1, false, false, 2_000), (1, 0), "held back");
        assert_eq!(flushed(3, false, false, 5_000), (1, 0));
        assert_eq!(flushed(0, true, true, 9_000), (2, 7_000));
        assert_eq!(flushed(0, true, true, 10_000), (2, 7_000), "about nothing new");
        assert_eq!(flushed(1, false, false, 11_000), (2, 7_000));
        assert_eq!(flushed(0, true, false, 12_000), (2, 7_000), "it wants no call");
        assert_eq!(flushed(1, true, true, 20_000), (3, 7_000), "so it has looked");
    }

    #[test]
    fn packets_wait_for_their_visit_or_are_held() {
        let mut waits = Waits::default();
        let mut visited = |turn_at, now, packets, left| {
            waits.visited(Nanos(now), Nanos(turn_at), packets, left);
            waits.flushed(Queue::FromGuest, 0, (false, false), flush(now + 100));
            [waits.counts.visit_delay, waits.counts.packet_hold].map(|it| told(&it))
        };
        assert_eq!(visited(10, 15, 0, Left::Nothing), [(0, 0), (0, 0)], "there was nothing");
        assert_eq!(visited(20, 25, 3, Left::More), [(1, 5), (0, 0)]);
        assert_eq!(visited(140, 145, 2, Left::Held), [(2, 25), (0, 0)], "since 125");
        assert_eq!(visited(300, 305, 0, Left::Held), [(2, 25), (0, 0)], "still held");
        assert_eq!(visited(400, 405, 2, Left::Nothing), [(2, 25), (1, 160)], "since 245");
        assert_eq!(visited(600, 601, 1, Left::Nothing), [(3, 26), (1, 160)]);
    }
}
