//! The host's side, as loops that sleep when there is nothing to do.
//!
//! Limits: packets of one length; contents are not looked at.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ringway_device::{FromGuest, Queue, ToGuest};
use ringway_host::{Flush, Pace as HostPace};
use ringway_net::{NetHeader, PACKET_LEN_MAX, Packet, PacketSink, PacketSource, Put};
use ringway_testkit::TestMemory;
use ringway_virtq::{Arm, Broken, DeviceQueue, SharedSlice};

use super::sides::{BATCH, Common, broken};
use super::technique::Pace;
use super::wake::sleep;

/// The host, with a tap that is private memory.
#[derive(Debug)]
pub(super) struct Host<'a, V> {
    pub common: &'a Common<'a>,
    pub to_guest: &'a mut ToGuest<V>,
    pub from_guest: &'a mut FromGuest<V>,
    /// What the tap has, and the buffer it is read into.
    tap: SharedSlice,
    bounce: SharedSlice,
    _memory: TestMemory,
    /// What is written to the tap.
    written: Vec<u8>,
    /// The worker's own: when what is held back must be looked at again, and by whom.
    pace: HostPace,
    /// Packets taken from the transmitq.
    taken: u64,
    /// Whether packets are counted, and not round trips.
    streams: bool,
    /// Bytes that came from the guest or went to it.
    pub bytes: u64,
}

impl<'a, V: DeviceQueue> Host<'a, V> {
    pub fn new(
        common: &'a Common<'a>,
        to_guest: &'a mut ToGuest<V>,
        from_guest: &'a mut FromGuest<V>,
        streams: bool,
    ) -> std::io::Result<Self> {
        let room = u64::from(PACKET_LEN_MAX).next_multiple_of(4096);
        let memory = TestMemory::new(&[(0, room), (1 << 32, room)])?;
        let part = |at: usize| memory.region(at).split_at(common.packet_len).0;
        let mut pace = HostPace::new(common.policy());
        for queue in [Queue::ToGuest, Queue::FromGuest] {
            pace.start(queue, common.technique.queue_size);
        }
        Ok(Self {
            common,
            to_guest,
            from_guest,
            tap: part(0),
            bounce: part(1),
            _memory: memory,
            written: vec![0; PACKET_LEN_MAX as usize],
            pace,
            taken: 0,
            streams,
            bytes: 0,
        })
    }

    /// Reads the tap into the guest, as long as there is room; returns how many packets.
    fn put(&mut self, packets: u32) -> u32 {
        let Common { technique, packet_len, .. } = *self.common;
        let len = u32::try_from(packet_len).unwrap_or(0);
        let mut put = 0;
        while put < packets {
            let done = self.common.locked(|| {
                let from = if technique.bounce { self.bounce } else { self.tap };
                if technique.bounce {
                    self.tap.copy_to(self.bounce);
                }
                let payload = [from];
                let packet = Packet { header: &NetHeader::ZERO, payload: &payload, len };
                self.to_guest.put(&packet) == Put::Done
            });
            if !done {
                break;
            }
            put += 1;
        }
        if self.streams && self.common.count(Instant::now(), put) {
            self.bytes += u64::from(put) * u64::from(len);
        }
        put
    }

    /// Publishes what was put, and calls if it is time.
    fn flush(&mut self, more: bool, short: bool) {
        let moved = self.to_guest.publish();
        let flush = Flush { now: self.common.now(), more, short };
        let is_time = self.pace.gave(moved, self.to_guest.requests.take(), flush);
        if is_time && self.to_guest.must_call() {
            self.pace.called(flush.now);
            self.common.bells.call_receiveq.notify();
        }
    }

    /// Takes what the guest has sent; returns how many packets.
    fn take(&mut self) -> u32 {
        let (mut taken, mut bytes) = (0, 0);
        while taken < BATCH
            && let Some(packet) = self.from_guest.peek()
        {
            bytes += packet.copy_out(&mut self.written) as u64;
            self.from_guest.pop();
            taken += 1;
        }
        self.taken += u64::from(taken);
        if self.streams && self.common.count(Instant::now(), taken) {
            self.bytes += bytes;
        }
        self.give_back(taken == BATCH);
        taken
    }

    /// Publishes what was taken, and calls if it is time.
    fn give_back(&mut self, more: bool) {
        let moved = self.from_guest.publish();
        let flush = Flush { now: self.common.now(), more, short: false };
        if self.pace.took(moved, flush) && self.from_guest.must_call() {
            self.common.bells.call_transmitq.notify();
        }
    }

    /// Sends all it can until told to stop.
    ///
    /// # Errors
    /// The guest breaks the ring.
    pub fn stream(&mut self) -> anyhow::Result<()> {
        let Common { bells, technique, .. } = *self.common;
        let quiet = technique.quiet_refill;
        while self.common.goes_on() {
            let put = self.put(BATCH);
            self.flush(put == BATCH, put < BATCH);
            if put == BATCH {
                if !quiet {
                    // Kicks that were asked for and tell nothing.
                    let _ = self.to_guest.arm_kicks(Arm::Next);
                    bells.kick_receiveq.drain();
                }
                continue;
            }
            self.check()?;
            if !self.to_guest.arm_kicks(Arm::Next) {
                sleep(&[&bells.kick_receiveq], self.common.instant(self.pace.wake_at()));
            }
            if quiet {
                let _ = self.to_guest.arm_kicks(Arm::Never);
            }
        }
        Ok(())
    }

    /// Takes packets until told to stop; sends every packet back if `echo`.
    ///
    /// # Errors
    /// The guest breaks the ring.
    pub fn sink(&mut self, echo: bool) -> anyhow::Result<()> {
        while self.common.goes_on() {
            let taken = self.take();
            self.check()?;
            if echo && taken > 0 {
                let put = self.put(taken);
                self.flush(false, put < taken);
            }
            if taken < BATCH {
                self.wait_for_packets(taken);
            }
        }
        Ok(())
    }

    /// Until the guest has sent something, or a timer says to look.
    fn wait_for_packets(&mut self, taken: u32) {
        let bell = [&self.common.bells.kick_transmitq];
        if let Pace::Timer(usecs) = self.common.technique.pace {
            if taken == 0 {
                if self.from_guest.arm_kicks(Arm::Next) || !sleep(&bell, None) {
                    return;
                }
                let _ = self.from_guest.arm_kicks(Arm::Never);
            }
            // From the first packet on, and again for as long as there were some.
            self.wait_for_timer(Duration::from_micros(u64::from(usecs)));
            return;
        }
        let arm = self.pace.idle(self.common.now());
        self.to_guest.requests.watch(self.pace.wants_requests());
        if !self.from_guest.arm_kicks(arm) {
            sleep(&bell, self.common.instant(self.pace.wake_at()));
        }
        let _ = self.from_guest.arm_kicks(Arm::Never);
        // What waited for the end of a timer.
        self.flush(false, false);
    }

    /// Until the timer ends, or the ring is full where that ends it. The kick of a guest that has found
    /// it full may have come with the first one, before anybody woke up: the ring itself is looked at.
    fn wait_for_timer(&self, timer: Duration) {
        let ends = Instant::now() + timer;
        while self.common.goes_on() && Instant::now() < ends {
            if self.common.technique.when_full && self.is_full() {
                return;
            }
            sleep(&[&self.common.bells.kick_transmitq], Some(ends));
        }
    }

    /// Whether the guest has no room: each packet that it sends takes one entry.
    fn is_full(&self) -> bool {
        let waiting = self.common.sent.load(Ordering::Acquire).saturating_sub(self.taken);
        waiting >= u64::from(self.common.technique.queue_size)
    }

    /// Sends one packet at a time and waits until it is back; the times in ms.
    ///
    /// # Errors
    /// The guest breaks the ring.
    pub fn ping(&mut self) -> anyhow::Result<Vec<f64>> {
        let mut times = Vec::new();
        while self.common.goes_on() {
            let began = Instant::now();
            while self.put(1) == 0 && self.common.goes_on() {
                let _ = self.to_guest.arm_kicks(Arm::Next);
                sleep(&[&self.common.bells.kick_receiveq], None);
            }
            self.flush(false, false);
            while self.take() == 0 && self.common.goes_on() {
                self.check()?;
                self.wait_for_packets(0);
            }
            if self.common.goes_on() && self.common.count(began, 1) {
                times.push(began.elapsed().as_secs_f64() * 1e3);
            }
        }
        Ok(times)
    }

    fn check(&self) -> anyhow::Result<()> {
        let why = self.to_guest.broken().or(self.from_guest.broken());
        why.map_or(Ok(()), |why| Err(broken(Broken(why))))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicU64};

    use ringway_virtq::{SplitDevice, SplitDriver};

    use super::super::run::mirror_options;
    use super::super::technique::{ROWS, Technique};
    use super::super::wake::Bells;
    use super::*;
    use crate::mirror::Mirror;

    /// How long the host waits for the end of a timer while so many packets are in the ring.
    fn waits(technique: &Technique, sent: u64, timer: Duration) -> Duration {
        let mut mirror =
            Mirror::<SplitDriver, SplitDevice>::new(&mirror_options(technique)).expect("memory");
        let bells = Bells::new().expect("eventfds");
        let common = Common {
            technique,
            bells: &bells,
            stop: &AtomicBool::new(false),
            lock: &Mutex::new(()),
            packet_len: technique.packet_len,
            started: Instant::now(),
            warm_up: Duration::ZERO,
            sent: &AtomicU64::new(sent),
            counted: &AtomicU64::new(0),
        };
        let host = Host::new(&common, &mut mirror.to_guest, &mut mirror.from_guest, true);
        let host = host.expect("memory");
        let began = Instant::now();
        host.wait_for_timer(timer);
        began.elapsed()
    }

    #[test]
    fn a_full_ring_ends_the_timer_where_it_shall() {
        let (short, long) = (Duration::from_millis(2), Duration::from_secs(30));
        let [ends, goes_on] = [&ROWS[1].technique, &ROWS[4].technique];
        assert!(ends.when_full && !goes_on.when_full);
        let full = u64::from(ends.queue_size);
        assert!(waits(ends, full, long) < long);
        assert!(waits(ends, full - 1, short) >= short);
        assert!(waits(goes_on, full, short) >= short);
    }
}
