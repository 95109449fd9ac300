//! More packets than the guest takes, at a fixed load: how many are lost where a descriptor of a
//! packet is allocated early and where it is allocated on arrival, and what happens when that
//! fails.

use std::collections::VecDeque;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use ringway_device::ToGuest;
use ringway_driver::rx_buffer::PAGE_LEN;
use ringway_net::{NetHeader, PACKET_LEN_MAX, Packet, PacketSink, Put};
use ringway_testkit::TestMemory;
use ringway_virtq::SplitDevice;

use super::{BATCH, Device, Driver, PACKET_LEN, RINGS, broken, on_two};
use crate::report::Column;

/// Of so many allocations one fails, where they fail.
const FAILS_EVERY: u64 = 100;

/// Load ÷ what is taken without a limit.
const OVERLOAD: f64 = 1.5;

pub(super) const METHOD: &str = "Overload: in each round one and a half times the packets that the \
     guest takes with descriptors allocated early, at a fixed rate, into 512 mergeable buffers of \
     a page; both ends poll. Each packet is received, or found no buffer, or no memory for its \
     descriptor: that the sum is right is checked.";

pub(super) const COLUMNS: [Column; 4] = [
    ("offered, kpps", 0),
    ("received, kpps", 0),
    ("no buffer, % of these", 1),
    ("no descriptor, % of the others", 2),
];

/// Whether a descriptor is allocated with each receive buffer, and how often that fails.
pub(super) const ROWS: [(&str, bool, Option<u64>); 3] = [
    ("allocated with each receive buffer", true, None),
    ("allocated on arrival", false, None),
    ("allocated on arrival, 1 % fail", false, Some(FAILS_EVERY)),
];

pub(super) fn measure(
    processors: [usize; 2],
    duration: Duration,
) -> anyhow::Result<[[f64; COLUMNS.len()]; ROWS.len()]> {
    let run = |(_, early, fails_every), rate| {
        let guest = |driver: &mut Driver, stop: &AtomicBool| {
            OverloadGuest::new(early, fails_every).receive(driver, stop)
        };
        let host = |(to_guest, _): Device<'_>| offer(to_guest, rate, duration);
        let ([received, failed], (offered, put, seconds)) =
            on_two(&RINGS, processors, guest, host)?;
        // Every packet is somewhere.
        ensure!(put == received + failed, "{put} were put in: {received} and {failed} came out");
        // Far below 2^53.
        #[allow(clippy::cast_precision_loss)]
        let [offered, put, received, failed] =
            [offered, put, received, failed].map(|count| count as f64);
        let [offered_kpps, received_kpps] = [offered, received].map(|it| it / seconds / 1e3);
        let missed = [(offered - put) / offered, failed / put].map(|part| part * 1e2);
        Ok([offered_kpps, received_kpps, missed[0], missed[1]])
    };
    let [_, taken_kpps, ..] = run(ROWS[0], f64::INFINITY)?;
    let mut found = [[0.0; COLUMNS.len()]; ROWS.len()];
    for (values, row) in found.iter_mut().zip(ROWS) {
        *values = run(row, OVERLOAD * taken_kpps * 1e3)?;
    }
    Ok(found)
}

/// About what Linux keeps about a packet.
type Descriptor = Box<[u8; 256]>;

struct OverloadGuest {
    /// Of buffers that wait, where they are allocated early.
    early: Option<VecDeque<Descriptor>>,
    fails_every: Option<u64>,
}

impl OverloadGuest {
    fn new(is_early: bool, fails_every: Option<u64>) -> Self {
        let all = || (0..RINGS.queue_size).map(|_| Descriptor::new([0; 256])).collect();
        Self { early: is_early.then(all), fails_every }
    }

    /// How many packets it got, and how many were dropped because there was no descriptor.
    fn receive(mut self, driver: &mut Driver, stop: &AtomicBool) -> anyhow::Result<[u64; 2]> {
        let (mut into, mut received, mut failed) = ([0; PACKET_LEN], 0, 0);
        loop {
            // Looked at before the ring: what was put in before is received.
            let is_over = stop.load(Ordering::Acquire);
            let before = received + failed;
            while received + failed < before + BATCH
                && let Some(packet) = driver.rx.receive().map_err(broken)?
            {
                if self.fails_every.is_some_and(|every| (received + failed + 1) % every == 0) {
                    // Its buffers are posted again as those of any other packet.
                    failed += 1;
                    continue;
                }
                received += 1;
                packet.copy_to(&mut into);
                black_box(&into);
                self.allocate(packet.len.div_ceil(PAGE_LEN));
            }
            let _ = driver.rx.flush();
            if received + failed == before {
                if is_over {
                    return Ok([received, failed]);
                }
                thread::yield_now();
            }
        }
    }

    fn allocate(&mut self, buffers: u32) {
        let Some(early) = &mut self.early else {
            black_box(Descriptor::new([0; 256]));
            return;
        };
        for _ in 0..buffers {
            early.pop_front();
            early.push_back(Descriptor::new([0; 256]));
        }
    }
}

/// Offers so many packets per second, some at once, or as many as there is room for: packets that
/// were offered, those of them that found room, and the seconds that it took.
fn offer(
    to_guest: &mut ToGuest<SplitDevice>,
    rate: f64,
    duration: Duration,
) -> anyhow::Result<(u64, u64, f64)> {
    let memory = TestMemory::new(&[(0, u64::from(PACKET_LEN_MAX).next_multiple_of(4096))])?;
    let payload = [memory.region(0).split_at(PACKET_LEN).0];
    let packet =
        Packet { header: &NetHeader::ZERO, payload: &payload, len: u32::try_from(PACKET_LEN)? };
    let (mut offered, mut put, began) = (0, 0, Instant::now());
    loop {
        let elapsed = began.elapsed();
        if elapsed >= duration {
            return Ok((offered, put, elapsed.as_secs_f64()));
        }
        // Packets that are due while this thread did not run are offered at once.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let due = (rate * elapsed.as_secs_f64()).min(1e15) as u64;
        let due = if rate.is_infinite() { BATCH } else { due.saturating_sub(offered) };
        if due < BATCH {
            spin_loop();
            continue;
        }
        let room = (0..due).take_while(|_| to_guest.put(&packet) == Put::Done).count();
        let _ = to_guest.flush();
        offered += due;
        put += u64::try_from(room)?;
    }
}

#[cfg(test)]
mod tests {
    use super::super::two_processors;
    use super::*;

    #[test]
    fn every_packet_is_counted_once_and_nothing_stalls() {
        let found = measure(two_processors(), Duration::from_millis(30)).expect("it goes on");
        assert!(found.iter().all(|row| row[1] > 0.0), "{found:?}");
        assert_eq!(found.map(|row| row[3] > 0.0), [false, false, true], "{found:?}");
    }

    #[test]
    fn descriptors_are_replaced_one_by_one() {
        let mut guest = OverloadGuest::new(true, None);
        guest.allocate(2);
        assert_eq!(guest.early.map(|early| early.len()), Some(RINGS.queue_size.into()));
        assert!(OverloadGuest::new(false, None).early.is_none());
    }
}
