//! A host that takes what the guest sends when a timer ends: whether a full ring ends it, and
//! whether calls about sent packets come only when the ring has run empty. A Linux guest of today
//! does not kick a host that has asked for no kicks, ring full or not, and does not accept
//! NOTIFY_ON_EMPTY.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use ringway_device::FromGuest;
use ringway_driver::{RxOptions, Sent};
use ringway_host::EventFd;
use ringway_net::{Features, NetHeader, PACKET_LEN_MAX, PacketSource};
use ringway_testkit::MirrorOptions;
use ringway_virtq::{Arm, Broken, SplitDevice};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{BATCH, Driver, PACKET_LEN, broken, on_two};
use crate::report::Column;

const QUEUE_SIZE: u16 = 128;

/// The features that a host of 2008 did not have.
const WITHOUT: Features =
    Features::IN_ORDER.union(Features::EVENT_IDX).union(Features::INDIRECT_DESC);

/// Longest sleep: the guest looks that often whether it shall stop.
const SLEEP_MAX: Duration = Duration::from_millis(5);

/// Longest wait for the first packet that counts.
const FIRST_LIMIT: Duration = Duration::from_secs(10);

pub(super) const COLUMNS: [Column; 1] = [("guest → host, Gb/s", 2)];

pub(super) const METHOD: &str = "A timer: from the guest's first kick on the host sleeps for \
     150 µs before it takes packets, and again as long as it finds some; rings have 128 entries. A \
     guest that finds no room kicks, asked to or not, where that ends the timer. In 2008 a ring \
     took about 1 ms to fill, so that the timer ended first. NOTIFY_ON_EMPTY: the guest asks for \
     no calls about sent packets unless it has no room, and gets one when the ring has run empty. \
     Both ends sleep on eventfds. A ratio is to the row before.";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Technique {
    timer: Duration,
    /// A ring that is full is taken at once, whatever the timer says.
    ends_when_full: bool,
    is_called_on_empty: bool,
}

const BASELINE: Technique = Technique {
    timer: Duration::from_micros(150),
    ends_when_full: true,
    is_called_on_empty: false,
};

pub(super) const ROWS: [(&str, Technique); 3] = [
    ("a full ring ends the timer", BASELINE),
    ("full rings wait, too", Technique { ends_when_full: false, ..BASELINE }),
    (
        "full rings wait, NOTIFY_ON_EMPTY",
        Technique { ends_when_full: false, is_called_on_empty: true, ..BASELINE },
    ),
];

/// The state that both ends share beside the ring.
struct SharedState {
    technique: Technique,
    kick: EventFd,
    call: EventFd,
    /// Packets that the guest has published: with what the host has taken, how full the ring is.
    sent: AtomicU64,
}

impl Technique {
    fn rings(self) -> MirrorOptions {
        MirrorOptions {
            rx: RxOptions::BIG,
            tx_len_max: PACKET_LEN_MAX,
            queue_size: QUEUE_SIZE,
            buffers_len: 32 << 20,
            without: match self.is_called_on_empty {
                true => WITHOUT,
                false => WITHOUT.union(Features::NOTIFY_ON_EMPTY),
            },
        }
    }

    fn shared_state(self) -> anyhow::Result<SharedState> {
        let (kick, call, sent) = (EventFd::new()?, EventFd::new()?, AtomicU64::new(0));
        Ok(SharedState { technique: self, kick, call, sent })
    }
}

/// The Gb/s that arrive.
pub(super) fn measure(
    technique: Technique,
    processors: [usize; 2],
    duration: Duration,
) -> anyhow::Result<f64> {
    let state = technique.shared_state()?;
    let guest = |driver: &mut Driver, stop: &AtomicBool| state.send(driver, stop);
    let (_, packets) = on_two(&technique.rings(), processors, guest, |(_, from_guest)| {
        state.receive(from_guest, duration)
    })?;
    Ok(packets * PACKET_LEN as f64 * 8e-9)
}

impl SharedState {
    fn send(&self, driver: &mut Driver, stop: &AtomicBool) -> anyhow::Result<()> {
        let (header, packet) = (NetHeader::default(), [0x5a; PACKET_LEN]);
        let usual = if self.technique.is_called_on_empty { Arm::Never } else { Arm::Next };
        let _ = driver.tx.arm_calls(usual);
        let mut sent = 0;
        while !stop.load(Ordering::Relaxed) {
            let before = sent;
            while sent < before + BATCH
                && driver.tx.send(&header, &packet).map_err(broken)? == Sent::Done
            {
                sent += 1;
            }
            // Before the kick, so that the host knows when it hears it.
            self.sent.store(sent, Ordering::Release);
            if driver.tx.flush() {
                self.kick.notify();
            }
            if sent == before {
                self.wait_for_room(driver, usual);
            } else if usual == Arm::Next {
                // The calls that were asked for are interrupts: each is handled.
                self.call.drain();
            }
        }
        Ok(())
    }

    fn wait_for_room(&self, driver: &mut Driver, usual: Arm) {
        // Wanted or not, as virtio's driver of 2008 did when it found no room.
        if self.technique.ends_when_full {
            self.kick.notify();
        }
        if !driver.tx.arm_calls(Arm::Next) {
            sleep(&self.call, SLEEP_MAX);
        }
        let _ = driver.tx.arm_calls(usual);
    }

    /// Packets per second.
    fn receive(
        &self,
        from: &mut FromGuest<SplitDevice>,
        duration: Duration,
    ) -> anyhow::Result<f64> {
        let (began, warm_up) = (Instant::now(), duration / 4);
        let (mut all, mut counted) = (0, 0);
        loop {
            let elapsed = began.elapsed();
            // On a busy machine nothing may have had its turn yet.
            if elapsed >= warm_up + duration && (counted > 0 || elapsed >= FIRST_LIMIT) {
                ensure!(counted > 0, "nothing moved");
                // Far below 2^53.
                #[allow(clippy::cast_precision_loss)]
                return Ok(counted as f64 / (elapsed - warm_up).as_secs_f64());
            }
            let taken = self.take(from);
            all += taken;
            counted += if elapsed >= warm_up { taken } else { 0 };
            from.broken().map_or(Ok(()), |why| Err(broken(Broken(why))))?;
            if taken < BATCH {
                self.wait(from, taken > 0, all);
            }
        }
    }

    /// Takes up to a batch, and calls; how many those were.
    fn take(&self, from: &mut FromGuest<SplitDevice>) -> u64 {
        let (mut taken, mut into) = (0, [0; PACKET_LEN]);
        while taken < BATCH
            && let Some(packet) = from.peek()
        {
            packet.copy_out(&mut into);
            std::hint::black_box(&into);
            from.pop();
            taken += 1;
        }
        if from.flush() {
            self.call.notify();
        }
        taken
    }

    /// From the first packet on it sleeps until the timer ends, and again for as long as there were
    /// some. `all`: packets that were taken so far.
    fn wait(&self, from: &mut FromGuest<SplitDevice>, has_taken: bool, all: u64) {
        if !has_taken {
            if from.arm_kicks(Arm::Next) || !sleep(&self.kick, SLEEP_MAX) {
                return;
            }
            let _ = from.arm_kicks(Arm::Never);
        }
        let ends = Instant::now() + self.technique.timer;
        // The kick of a guest that has found the ring full may have come with the first one, before
        // the host woke up: the ring itself is looked at.
        let waiting = || self.sent.load(Ordering::Acquire).saturating_sub(all);
        let is_taken = || self.technique.ends_when_full && waiting() >= QUEUE_SIZE.into();
        while Instant::now() < ends && !is_taken() {
            sleep(&self.kick, ends.saturating_duration_since(Instant::now()));
        }
    }
}

/// Sleeps until the eventfd is notified, which it then no longer is, or so long; whether it was.
fn sleep(bell: &EventFd, longest: Duration) -> bool {
    let timeout = Timespec { tv_sec: 0, tv_nsec: longest.min(SLEEP_MAX).subsec_nanos().into() };
    let mut fds = [PollFd::from_borrowed_fd(bell.as_fd(), PollFlags::IN)];
    // An interrupted sleep is a short one.
    poll(&mut fds, Some(&timeout)).unwrap_or(0) > 0 && bell.drain()
}

#[cfg(test)]
mod tests {
    use ringway_testkit::Mirror;
    use ringway_virtq::SplitDriver;

    use super::super::two_processors;
    use super::*;

    type Both = Mirror<SplitDriver, SplitDevice>;

    fn both(row: usize) -> (Both, SharedState) {
        let technique = ROWS[row].1;
        (
            Both::new(&technique.rings()).expect("memory"),
            technique.shared_state().expect("eventfds"),
        )
    }

    #[test]
    fn a_full_ring_ends_the_timer_where_it_shall() {
        let (short, long) = (Duration::from_millis(2), Duration::from_secs(30));
        let waits = |row, sent: u64, timer: Duration| {
            let (mut both, mut state) = both(row);
            state.technique.timer = timer;
            state.sent.store(sent, Ordering::Relaxed);
            let began = Instant::now();
            state.wait(&mut both.from_guest, true, 0);
            began.elapsed()
        };
        assert!(waits(0, 128, long) < long);
        assert!(waits(0, 127, short) >= short);
        assert!(waits(1, 128, short) >= short);
    }

    #[test]
    fn a_guest_without_room_kicks_where_that_ends_the_timer() {
        for (row, kicks) in [(0, true), (1, false)] {
            let (mut both, state) = both(row);
            state.wait_for_room(&mut both.driver, Arm::Next);
            assert_eq!(state.kick.drain(), kicks, "{row}");
        }
    }

    #[test]
    fn calls_about_sent_packets_come_each_time_or_when_the_ring_is_empty() {
        for (row, early) in [(1, true), (2, false)] {
            let (mut both, state) = both(row);
            let usual = if early { Arm::Next } else { Arm::Never };
            let _ = both.driver.tx.arm_calls(usual);
            for _ in 0..=BATCH {
                let sent = both.driver.tx.send(&NetHeader::default(), &[0x5a; PACKET_LEN]);
                assert_eq!(sent, Ok(Sent::Done));
            }
            let _ = both.driver.tx.flush();
            assert_eq!(state.take(&mut both.from_guest), BATCH);
            assert_eq!(state.call.drain(), early, "{row}");
            assert_eq!(state.take(&mut both.from_guest), 1);
            assert!(state.call.drain(), "{row}");
        }
    }

    #[test]
    fn full_rings_go_on_long_before_the_timer_ends() {
        // Far longer than a measurement waits for the first packet that counts.
        let technique = Technique { timer: Duration::from_secs(600), ..BASELINE };
        let found = measure(technique, two_processors(), Duration::from_millis(50));
        assert!(found.as_ref().is_ok_and(|rate| *rate > 0.0), "{found:?}");
    }
}
