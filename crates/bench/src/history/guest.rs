//! The guest's end.
//!
//! Limits: packets of one length; contents are not looked at.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use ringway_driver::rx_buffer::PAGE_LEN;
use ringway_driver::{NetDriver, Sent};
use ringway_net::{Features, Nanos, NetHeader, PACKET_LEN_MAX};
use ringway_virtq::{Arm, DriverQueue};

use super::ends::{BATCH, Common, End, broken};

#[derive(Debug)]
pub(super) struct Guest<'a, D> {
    pub common: &'a Common<'a>,
    pub driver: &'a mut NetDriver<D>,
    packet: Vec<u8>,
    received: Vec<u8>,
    /// About what Linux keeps about a packet, of buffers that wait, where that is allocated early.
    early: VecDeque<Box<[u8; 256]>>,
    /// Of so many packets one finds no memory for its descriptor; `None`: none does.
    pub fails_every: Option<u32>,
    /// Packets since the last that found none.
    until_failure: u32,
    /// Packets that were dropped for that.
    pub not_allocated: u64,
    /// Calls about sent packets are asked for, and not only one when the ring has run empty.
    is_called: bool,
    sent: u64,
    /// When to flush again, with or without packets.
    wake_at: Option<Nanos>,
}

impl<'a, D: DriverQueue> Guest<'a, D> {
    pub fn new(common: &'a Common<'a>, driver: &'a mut NetDriver<D>) -> Self {
        let technique = common.technique;
        let early = if technique.early { technique.rings.queue_size } else { 0 };
        let early = (0..early).map(|_| Box::new([0; 256])).collect();
        driver.tx.set_policy(technique.policy);
        let (packet, received) = (vec![0x5a; common.packet_len], vec![0; PACKET_LEN_MAX as usize]);
        let is_called = technique.rings.without.contains(Features::NOTIFY_ON_EMPTY);
        let (sent, wake_at) = (0, None);
        let mut guest = Self {
            common,
            driver,
            packet,
            received,
            early,
            fails_every: None,
            until_failure: 0,
            not_allocated: 0,
            is_called,
            sent,
            wake_at,
        };
        let _ = guest.arm(false);
        guest
    }

    /// Asks for calls about sent packets as the technique has it. `true`: some are due already.
    fn arm(&mut self, waits_for_room: bool) -> bool {
        let asks = waits_for_room || self.is_called;
        self.driver.tx.arm_calls(if asks { Arm::Next } else { Arm::Never })
    }
}

impl<D: DriverQueue> End for Guest<'_, D> {
    fn take(&mut self) -> anyhow::Result<u32> {
        let mut received = 0;
        while received < BATCH {
            let Some(packet) = self.driver.rx.receive().map_err(broken)? else { break };
            received += 1;
            self.until_failure += 1;
            if self.fails_every == Some(self.until_failure) {
                (self.until_failure, self.not_allocated) = (0, self.not_allocated + 1);
                // Dropped: its buffers are posted again as those of any other packet.
                continue;
            }
            packet.copy_to(&mut self.received);
            // As if each had a page.
            let buffers = packet.len.div_ceil(PAGE_LEN).max(1) as usize;
            if self.common.technique.early {
                self.early.drain(..buffers.min(self.early.len()));
                self.early.extend((0..buffers).map(|_| Box::new([0; 256])));
            } else {
                std::hint::black_box(Box::new([0_u8; 256]));
            }
        }
        if self.driver.rx.flush() {
            self.common.locked(|| self.common.kick_receiveq.notify());
        }
        Ok(received)
    }

    fn put(&mut self, packets: u32) -> anyhow::Result<u32> {
        let mut put = 0;
        while put < packets {
            let sent = self.driver.tx.send(&NetHeader::default(), &self.packet);
            if sent.map_err(broken)? != Sent::Done {
                break;
            }
            put += 1;
        }
        self.sent += u64::from(put);
        Ok(put)
    }

    fn flush(&mut self, more: bool, _short: bool) {
        let common = self.common;
        // Before the kick, so that the host knows when it hears it.
        common.sent.store(self.sent, Ordering::Release);
        let flushed = self.driver.tx.flush_at(common.now(), more);
        self.wake_at = flushed.wake_at;
        if flushed.kick {
            common.locked(|| common.kick_transmitq.notify());
        }
        if more && self.is_called {
            // The calls that were asked for are interrupts: each is handled.
            common.call_transmitq.drain();
        }
    }

    fn wait_for_room(&mut self, put: u32) -> anyhow::Result<()> {
        if put > 0 {
            return Ok(());
        }
        let technique = self.common.technique;
        // Wanted or not, as virtio's driver of 2008 did when it found no room.
        if technique.when_full && technique.timer_us.is_some() {
            self.common.kick_transmitq.notify();
        }
        if !self.arm(true) {
            self.common.sleep(&self.common.call_transmitq, self.wake_at);
        }
        let _ = self.arm(false);
        Ok(())
    }

    fn wait_for_packets(&mut self, taken: u32) -> anyhow::Result<()> {
        if taken == 0 && !self.driver.rx.arm_calls(Arm::Next) {
            self.common.sleep(&self.common.call_receiveq, self.wake_at);
            let _ = self.driver.rx.arm_calls(Arm::Never);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::run::tests::with_ends;
    use super::*;

    #[test]
    fn descriptors_are_allocated_early_until_they_are_not() {
        for (row, early) in [("mergeable buffers", 512), ("deferred packets", 0)] {
            with_ends(row, |guest, _| assert_eq!(guest.early.len(), early, "{row}"));
        }
    }

    #[test]
    fn a_guest_without_room_kicks_where_that_ends_the_timer() {
        for (row, kicks) in [("baseline", false), ("150 µs timer", true)] {
            with_ends(row, |guest, _| {
                guest.wait_for_room(0).expect("a right device");
                assert_eq!(guest.common.kick_transmitq.drain(), kicks, "{row}");
            });
        }
    }

    #[test]
    fn kicks_follow_the_policy_of_the_row() {
        use ringway_net::moderation::Cause;
        for (row, is_fixed) in [("EVENT_IDX", true), ("adaptive buffers", false)] {
            with_ends(row, |guest, _| {
                assert_eq!(guest.driver.tx.pacing().cause == Cause::Fixed, is_fixed, "{row}");
            });
        }
    }
}
