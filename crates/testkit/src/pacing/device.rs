//! The device's processor: visits, what they tell the guest, and when it looks again or sleeps.

use ringway_device::Published;
use ringway_host::Flush;
use ringway_net::{LONG_LEN, Nanos, Next};
use ringway_virtq::Arm;

use super::parts::Done;
use super::sim::{BUDGET_PACKETS, Sim};

impl Sim {
    /// A visit begins: packets are taken, and what comes of them shows when it ends.
    pub(super) fn device_turn(&mut self, now: u64) {
        if let Some(done) = self.visit.take() {
            return self.device_finishes(now, done);
        }
        let mut end = now + self.costs.device_visit_ns;
        let mut done = Done::default();
        while done.from < BUDGET_PACKETS {
            let Some(packet) = self.from_guest.take() else { break };
            end += self.costs.device_packet_ns + self.costs.copy_ns(packet.len);
            self.waits.kicks_ns = self.waits.kicks_ns.max(now.saturating_sub(packet.given_at));
            self.long.from += u64::from(packet.len >= LONG_LEN);
            done.long_from += u32::from(packet.len >= LONG_LEN);
            self.delivered(packet, end, true);
            done.from += 1;
        }
        done.to = self.inbox.len().min(BUDGET_PACKETS);
        for packet in self.inbox.iter().take(done.to) {
            end += self.costs.device_packet_ns + self.costs.copy_ns(packet.len);
        }
        // Another visit may come first, and a wake-up that is under way already is not put forward.
        let woken_ns = self.costs.kick_ns + self.guest_sends_ns_max + self.costs.wake_ns;
        self.waits.slack_ns = self.waits.slack_ns.max(2 * (end - now) + woken_ns);
        // A guest that notifies every time is not stopped from it during the visit either.
        self.from_guest.arm(if self.is_every { Arm::Next } else { Arm::Never });
        self.visit = Some(done);
        self.device.turn_at = end;
    }

    /// A visit ends: publish, notify, arm, look once more, sleep.
    fn device_finishes(&mut self, now: u64, done: Done) {
        let mut has_request = false;
        let mut given = Published::default();
        for packet in self.inbox.drain(..done.to) {
            self.long.to += u64::from(packet.len >= LONG_LEN);
            given.packets += 1;
            given.long += u32::from(packet.len >= LONG_LEN);
            has_request |= self.flows[packet.flow].is_request(&packet);
            self.to_guest.give(packet);
        }
        for _ in 0..done.from {
            self.returns.give(());
        }
        let mut end = now;
        // The second look finds the packets that came during the visit.
        let more = done.from >= BUDGET_PACKETS && !self.from_guest.is_empty();
        self.gave_back(now, &done, more, &mut end);
        let requests = self.is_watching.then_some(has_request);
        self.gave_packets(now, given, requests, &mut end);
        if done.from + done.to > 0 {
            self.polling.found(Nanos(now));
        }
        if more {
            self.device.turn_at = end;
        } else if self.inbox.is_empty() && self.device_looks(now, &done) {
            self.device.turn_at = end + self.costs.device_visit_ns;
        } else {
            self.device_rests(now, end, &done);
        }
    }

    /// Tells of used buffers.
    fn gave_back(&mut self, now: u64, done: &Done, more: bool, end: &mut u64) {
        let flush = Flush { now: Nanos(now), more, short: false };
        let taken = Published { packets: count(done.from), long: done.long_from };
        let is_time = self.pace.took(taken, flush);
        let waited_ns = waited_ns(&mut self.held_since[1], now, done.from, is_time);
        self.waits.returns_ns = self.waits.returns_ns.max(waited_ns);
        if is_time {
            self.ask_about_returns(end);
        }
    }

    /// Tells of packets.
    fn gave_packets(&mut self, now: u64, moved: Published, requests: Option<bool>, end: &mut u64) {
        let flush = Flush { now: Nanos(now), more: !self.inbox.is_empty(), short: false };
        let is_time = self.pace.gave(moved, requests, flush);
        let waited_ns = waited_ns(&mut self.held_since[0], now, moved.packets as usize, is_time);
        self.waits.calls_ns = self.waits.calls_ns.max(waited_ns);
        if !is_time {
            return;
        }
        let is_called = self.to_guest.must_notify();
        if is_called {
            *end += self.costs.call_ns;
            self.is_called = true;
            self.guest.wake(*end + self.costs.wake_ns);
            self.pace.called(Nanos(now));
        }
    }

    /// Calls about used buffers if the guest wants it.
    fn ask_about_returns(&mut self, end: &mut u64) {
        let is_wanted = self.returns.must_notify();
        if is_wanted {
            *end += self.costs.call_ns;
            self.guest.wake(*end + self.costs.wake_ns);
        }
    }

    /// Whether the device looks again instead of sleeping; then its guest need not kick.
    fn device_looks(&mut self, now: u64, done: &Done) -> bool {
        let looks = self.polling.may_look() && self.polling.idle(Nanos(now)) == Next::Look;
        if looks && done.from > 0 {
            self.pace.polls(Nanos(now));
            self.is_watching = self.pace.wants_requests();
        }
        self.is_looking |= looks;
        looks
    }

    /// Arms, looks once more, sleeps if nothing is to be done.
    fn device_rests(&mut self, now: u64, end: u64, done: &Done) {
        let has_looked = std::mem::take(&mut self.is_looking);
        if self.pace.end_kick_timer(Nanos(now)) || done.from > 0 || has_looked {
            self.armed = self.pace.idle(Nanos(now));
            self.is_watching = self.pace.wants_requests();
        }
        if self.from_guest.arm(self.armed) || !self.inbox.is_empty() {
            self.device.turn_at = end;
            return;
        }
        self.device.sleep(self.pace.wake_at().map(|Nanos(at)| at));
    }
}

/// How long the first of what is held has waited.
fn waited_ns(held_since: &mut Option<u64>, now: u64, moved: usize, is_time: bool) -> u64 {
    if moved > 0 {
        held_since.get_or_insert(now);
    }
    let since = if is_time { held_since.take() } else { *held_since };
    since.map_or(0, |since| now - since)
}

fn count(moved: usize) -> u32 {
    u32::try_from(moved).unwrap_or(u32::MAX)
}
