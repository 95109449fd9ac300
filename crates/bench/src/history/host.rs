//! The host's end, with a tap that is private memory.
//!
//! Limits: packets of one length; contents are not looked at.

use std::sync::atomic::Ordering;

use ringway_device::{FromGuest, Queue, ToGuest};
use ringway_host::{Flush, Pace};
use ringway_net::{NetHeader, PACKET_LEN_MAX, Packet, PacketSink, PacketSource, Put};
use ringway_testkit::TestMemory;
use ringway_virtq::{Arm, Broken, DeviceQueue, SharedSlice};

use super::ends::{BATCH, Common, End, broken};

#[derive(Debug)]
pub(super) struct Host<'a, V> {
    pub common: &'a Common<'a>,
    pub to_guest: &'a mut ToGuest<V>,
    pub from_guest: &'a mut FromGuest<V>,
    /// What the tap has, and the buffer it is read into.
    tap: SharedSlice,
    bounce: SharedSlice,
    _memory: TestMemory,
    written: Vec<u8>,
    /// The worker's own: when what is held back must be looked at again, and by which end.
    pace: Pace,
    taken: u64,
}

impl<'a, V: DeviceQueue> Host<'a, V> {
    pub fn new(
        common: &'a Common<'a>,
        to_guest: &'a mut ToGuest<V>,
        from_guest: &'a mut FromGuest<V>,
    ) -> std::io::Result<Self> {
        let room = u64::from(PACKET_LEN_MAX).next_multiple_of(4096);
        let memory = TestMemory::new(&[(0, room), (1 << 32, room)])?;
        let [tap, bounce] = [0, 1].map(|at| memory.region(at).split_at(common.packet_len).0);
        tap.write(0, &vec![0x5a; common.packet_len]);
        let mut pace = Pace::new(common.technique.policy);
        for queue in [Queue::ToGuest, Queue::FromGuest] {
            pace.start(queue, common.technique.rings.queue_size);
        }
        let written = vec![0; PACKET_LEN_MAX as usize];
        let _memory = memory;
        Ok(Self { common, to_guest, from_guest, tap, bounce, _memory, written, pace, taken: 0 })
    }

    fn check(&self) -> anyhow::Result<()> {
        let why = self.to_guest.broken().or(self.from_guest.broken());
        why.map_or(Ok(()), |why| Err(broken(Broken(why))))
    }

    /// As a host with a timer waits for packets: from the first one on it sleeps until the timer
    /// ends, and again for as long as there were some.
    fn wait_with_timer(&mut self, timer_us: u32, taken: u32) {
        let kick = &self.common.kick_transmitq;
        if taken == 0 {
            if self.from_guest.arm_kicks(Arm::Next) || !self.common.sleep(kick, None) {
                return;
            }
            let _ = self.from_guest.arm_kicks(Arm::Never);
        }
        let ends = self.common.now().plus(u64::from(timer_us) * 1000);
        // The kick of a guest that has found the ring full may have come with the first one,
        // before the host woke up: the ring itself is looked at.
        while self.common.goes_on()
            && self.common.now() < ends
            && !(self.common.technique.when_full && self.is_full())
        {
            self.common.sleep(kick, Some(ends));
        }
    }

    /// Whether the guest has no room: each packet that it sends takes one entry.
    fn is_full(&self) -> bool {
        let waiting = self.common.sent.load(Ordering::Acquire).saturating_sub(self.taken);
        waiting >= u64::from(self.common.technique.rings.queue_size)
    }
}

impl<V: DeviceQueue> End for Host<'_, V> {
    fn take(&mut self) -> anyhow::Result<u32> {
        let mut taken = 0;
        while taken < BATCH
            && let Some(packet) = self.from_guest.peek()
        {
            packet.copy_out(&mut self.written);
            self.from_guest.pop();
            taken += 1;
        }
        self.taken += u64::from(taken);
        let moved = self.from_guest.publish();
        let flush = Flush { now: self.common.now(), more: taken == BATCH, short: false };
        if self.pace.took(moved, flush) && self.from_guest.must_call() {
            self.common.call_transmitq.notify();
        }
        Ok(taken)
    }

    fn put(&mut self, packets: u32) -> anyhow::Result<u32> {
        let bounce = self.common.technique.bounce;
        let payload = [if bounce { self.bounce } else { self.tap }];
        let len = u32::try_from(self.common.packet_len)?;
        let packet = Packet { header: &NetHeader::ZERO, payload: &payload, len };
        let mut put = 0;
        while put < packets {
            let done = self.common.locked(|| {
                if bounce {
                    self.tap.copy_to(self.bounce);
                }
                self.to_guest.put(&packet)
            });
            if done != Put::Done {
                break;
            }
            put += 1;
        }
        Ok(put)
    }

    fn flush(&mut self, more: bool, short: bool) {
        let moved = self.to_guest.publish();
        let flush = Flush { now: self.common.now(), more, short };
        let is_time = self.pace.gave(moved, self.to_guest.requests.take(), flush);
        if is_time && self.to_guest.must_call() {
            self.pace.called(flush.now);
            self.common.call_receiveq.notify();
        }
        if more && !self.common.technique.quiet_refill {
            // Kicks that were asked for and tell nothing.
            let _ = self.to_guest.arm_kicks(Arm::Next);
            self.common.kick_receiveq.drain();
        }
    }

    fn wait_for_room(&mut self, _put: u32) -> anyhow::Result<()> {
        self.check()?;
        if !self.to_guest.arm_kicks(Arm::Next) {
            self.common.sleep(&self.common.kick_receiveq, self.pace.wake_at());
        }
        if self.common.technique.quiet_refill {
            let _ = self.to_guest.arm_kicks(Arm::Never);
        }
        Ok(())
    }

    fn wait_for_packets(&mut self, taken: u32) -> anyhow::Result<()> {
        self.check()?;
        if let Some(timer_us) = self.common.technique.timer_us {
            self.wait_with_timer(timer_us, taken);
            return Ok(());
        }
        let arm = self.pace.idle(self.common.now());
        self.to_guest.requests.watch(self.pace.wants_requests());
        if !self.from_guest.arm_kicks(arm) {
            self.common.sleep(&self.common.kick_transmitq, self.pace.wake_at());
        }
        let _ = self.from_guest.arm_kicks(Arm::Never);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::run::tests::with_ends;
    use super::*;

    #[test]
    fn a_full_ring_ends_the_timer_where_it_shall() {
        let (short, long) = (Duration::from_millis(2), Duration::from_secs(30));
        let waits = |row, sent: u64, timer: Duration| {
            with_ends(row, |_, host| {
                host.common.sent.store(sent, Ordering::Relaxed);
                let began = Instant::now();
                host.wait_with_timer(u32::try_from(timer.as_micros()).expect("short"), 1);
                began.elapsed()
            })
        };
        assert!(waits("150 µs timer", 128, long) < long);
        assert!(waits("150 µs timer", 127, short) >= short);
        assert!(waits("full rings wait, too", 128, short) >= short);
    }

    #[test]
    fn packets_fill_the_ring_as_the_row_says() {
        for (row, fit) in [
            ("no kicks about receive buffers", 128),
            ("GSO", 128 / 18),
            ("ring of 512", 512 / 18),
            // With a cache line more in each page, the header does not take one of its own.
            ("mergeable buffers", 512 / 16),
        ] {
            let put = with_ends(row, |_, host| host.put(1000).expect("a right driver"));
            assert_eq!(put, fit, "{row}");
        }
    }

    #[test]
    fn the_tap_is_read_through_a_buffer_until_it_is_not() {
        for (row, is_used) in [("no lock", true), ("no copy to the guest", false)] {
            with_ends(row, |guest, host| {
                assert_eq!(host.put(1).expect("a right driver"), 1);
                host.flush(false, false);
                assert_eq!(guest.take().expect("a right device"), 1, "{row}");
                let mut first = [0];
                host.bounce.read(0, &mut first);
                assert_eq!(first[0] == 0x5a, is_used, "{row}");
            });
        }
    }

    #[test]
    fn calls_about_sent_packets_come_each_time_or_when_the_ring_is_empty() {
        for (row, early) in [("full rings wait, too", true), ("NOTIFY_ON_EMPTY", false)] {
            with_ends(row, |guest, host| {
                assert_eq!(guest.put(BATCH + 1).expect("a right device"), BATCH + 1);
                guest.flush(false, false);
                assert_eq!(host.take().expect("a right driver"), BATCH);
                assert_eq!(host.common.call_transmitq.drain(), early, "{row}");
                assert_eq!(host.take().expect("a right driver"), 1);
                assert!(host.common.call_transmitq.drain(), "{row}");
            });
        }
    }

    #[test]
    fn kicks_about_receive_buffers_end() {
        for (row, kicks) in [("NOTIFY_ON_EMPTY", true), ("no kicks about receive buffers", false)] {
            with_ends(row, |guest, host| {
                assert_eq!(host.put(BATCH).expect("a right driver"), BATCH);
                host.flush(true, false);
                assert_eq!(guest.take().expect("a right device"), BATCH);
                assert_eq!(host.common.kick_receiveq.drain(), kicks, "{row}");
            });
        }
    }
}
