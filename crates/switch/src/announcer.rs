//! When a guest is announced to the networks behind uplinks, in its own name.
//!
//! Switches there learn where the guest is from what it sends, and forget it after minutes. A guest
//! that has moved and is silent, or that talks only to guests of the same ringway, would be unknown
//! to them: packets for it would go to its old place, or to all.

/// Between two announcements of a silent guest, in milliseconds. Bridges forget a station after
/// 300 s, so that two of them may be lost.
pub const ANNOUNCE_EVERY_MS: u64 = 100_000;

/// From each of the first announcements to the next, in milliseconds. A guest that arrived before
/// it had left its old place may be known at neither; and the link of an uplink that came up just
/// now may have carried nothing yet: Linux takes up to a second to notice a carrier.
const AGAIN_AFTER_MS: [u64; 2] = [300, 1_200];

/// The most in a row, as when a guest moves to and fro; and then one in that time, in milliseconds.
const BURST: u64 = 30;
const EVERY_MS: u64 = 1_500;

/// The announcements of one port. Times are milliseconds of one clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Announcer {
    /// `None`: the guest has no link, or no queue that runs.
    due_ms: Option<u64>,
    /// When the next one would be without a burst.
    rate_ms: u64,
    /// Packets from it that all uplinks have seen, at the last look.
    heard: u64,
    /// Announcements since it came up, as far as that matters.
    count: usize,
}

impl Announcer {
    /// The guest can receive from now on, or an uplink has come up. `heard`: see
    /// [`Shared::heard`](crate::Shared::heard).
    pub fn comes_up(&mut self, now_ms: u64, heard: u64) {
        // A front-end that starts and stops its queues all the time floods no network.
        let earliest_ms = self.rate_ms.saturating_sub((BURST - 1) * EVERY_MS);
        (self.due_ms, self.heard, self.count) = (Some(now_ms.max(earliest_ms)), heard, 0);
    }

    /// The guest receives nothing any more.
    pub fn goes_down(&mut self) {
        self.due_ms = None;
    }

    /// When to [`look`](Self::look) next.
    pub fn due_ms(&self) -> Option<u64> {
        self.due_ms
    }

    /// Whether the guest is to be announced now. One that has been heard since the last look is
    /// not: all uplinks know where it is.
    pub fn look(&mut self, now_ms: u64, heard: u64) -> bool {
        if self.due_ms.is_none_or(|due_ms| due_ms > now_ms) {
            return false;
        }
        let is_first = self.count == 0;
        let is_silent = core::mem::replace(&mut self.heard, heard) == heard;
        let pause_ms = AGAIN_AFTER_MS.get(self.count).copied().unwrap_or(ANNOUNCE_EVERY_MS);
        self.count = AGAIN_AFTER_MS.len().min(self.count + 1);
        self.due_ms = Some(now_ms.saturating_add(pause_ms));
        if is_first || is_silent {
            self.rate_ms = self.rate_ms.max(now_ms).saturating_add(EVERY_MS);
        }
        is_first || is_silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_announced_at_once_again_and_while_it_is_silent() {
        let mut announcer = Announcer::default();
        assert_eq!(announcer.due_ms(), None);
        assert!(!announcer.look(5, 0), "it is not up");
        announcer.comes_up(10, 7);
        assert_eq!(announcer.due_ms(), Some(10));
        assert!(announcer.look(10, 7) && !announcer.look(10, 7));
        let mut now_ms = 10;
        for pause_ms in AGAIN_AFTER_MS {
            now_ms += pause_ms;
            assert!(!announcer.look(now_ms - 1, 7));
            assert!(announcer.look(now_ms, 7));
        }
        for (heard, is_announced) in [(7, true), (8, false), (8, true), (9, false)] {
            now_ms += ANNOUNCE_EVERY_MS;
            assert!(!announcer.look(now_ms - 1, heard));
            assert_eq!(announcer.look(now_ms, heard), is_announced, "{heard}");
        }
        announcer.goes_down();
        assert!(!announcer.look(now_ms + ANNOUNCE_EVERY_MS, 9));
    }

    #[test]
    fn one_that_comes_up_again_and_again_is_announced_at_once_and_then_now_and_then() {
        let mut announcer = Announcer::default();
        let mut count = 0;
        for now_ms in 0..10_000 {
            announcer.goes_down();
            announcer.comes_up(now_ms, 0);
            count += u64::from(announcer.look(now_ms, 0));
        }
        assert_eq!(count, BURST - 1 + 10_000_u64.div_ceil(EVERY_MS));
    }

    #[test]
    fn the_first_is_sent_whatever_the_guest_has_said_before() {
        let mut announcer = Announcer::default();
        announcer.comes_up(0, 1);
        assert!(announcer.look(0, 2));
        assert!(!announcer.look(AGAIN_AFTER_MS[0], 3), "it speaks itself");
    }
}
