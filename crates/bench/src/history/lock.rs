//! One lock around a device, as QEMU has: held while the tap is read, or not. A Linux guest's
//! kicks do not wait for a device in another process.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ringway_net::{NetHeader, Packet, PacketSink, PacketSource, Put};
use ringway_testkit::TestMemory;
use ringway_virtq::{Arm, Broken};
use rustix::fs::{MemfdFlags, memfd_create};

use super::{BATCH, Device, Driver, RINGS, broken, on_two};
use crate::report::Column;

/// Bytes of a packet from the tap, and of what acknowledges it.
const LONG_LEN: usize = 65_226;
const SHORT_LEN: usize = 60;

pub(super) const METHOD: &str = "A lock: a stream of packets of 65226 bytes to a guest that sends \
     a short one back for each. In place of a tap there is a file in memory, which the kernel \
     copies from. The device works under one lock, and each kick takes that lock, as in QEMU, \
     where the guest waits for it; both ends poll. A ratio is to the row before.";

pub(super) const COLUMNS: [Column; 2] = [("host → guest, Gb/s", 2), ("a kick takes, µs", 2)];

/// Whether the lock is held while the tap is read.
pub(super) const ROWS: [(&str, bool); 2] =
    [("held while the tap is read", true), ("not held while the tap is read", false)];

/// The state that both ends share beside the rings.
struct SharedState {
    is_held: bool,
    /// Locked by the device for as long as it works; whether it was kicked.
    is_kicked: Mutex<bool>,
}

/// The rate that arrives, and how long a kick takes.
pub(super) fn measure(
    is_held: bool,
    processors: [usize; 2],
    duration: Duration,
) -> anyhow::Result<[f64; COLUMNS.len()]> {
    let state = SharedState { is_held, is_kicked: Mutex::new(false) };
    let tap = File::from(memfd_create("tap", MemfdFlags::CLOEXEC)?);
    tap.write_all_at(&[0x5a; LONG_LEN], 0)?;
    let guest = |driver: &mut Driver, stop: &AtomicBool| state.receive(driver, stop);
    let host = |device: Device<'_>| state.offer(device, &tap, duration);
    let (kick_us, packets_per_second) = on_two(&RINGS, processors, guest, host)?;
    Ok([packets_per_second * LONG_LEN as f64 * 8e-9, kick_us])
}

impl SharedState {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_kicked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a kick took, on average, in µs.
    fn receive(&self, driver: &mut Driver, stop: &AtomicBool) -> anyhow::Result<f64> {
        let (mut into, header) = (vec![0; LONG_LEN], NetHeader::default());
        let (mut kicks, mut waited) = (0_u32, Duration::ZERO);
        while !stop.load(Ordering::Relaxed) {
            let Some(packet) = driver.rx.receive().map_err(broken)? else {
                thread::yield_now();
                continue;
            };
            packet.copy_to(&mut into);
            let _ = driver.rx.flush();
            // Without room it is not sent; the next one acknowledges this packet, too.
            let _ = driver.tx.send(&header, &into[..SHORT_LEN]).map_err(broken)?;
            if driver.tx.flush() {
                let began = Instant::now();
                *self.lock() = true;
                waited += began.elapsed();
                kicks += 1;
            }
        }
        Ok(waited.as_secs_f64() * 1e6 / f64::from(kicks.max(1)))
    }

    /// Packets per second that the guest had room for.
    fn offer(&self, device: Device<'_>, tap: &File, duration: Duration) -> anyhow::Result<f64> {
        let (to_guest, from_guest) = device;
        let memory = TestMemory::new(&[(0, LONG_LEN.next_multiple_of(4096) as u64)])?;
        let payload = [memory.region(0).split_at(LONG_LEN).0];
        let len = u32::try_from(LONG_LEN)?;
        let packet = Packet { header: &NetHeader::ZERO, payload: &payload, len };
        let (mut buffer, mut put, mut is_read) = (vec![0; LONG_LEN], 0_u32, false);
        let _ = from_guest.arm_kicks(Arm::Next);
        let began = Instant::now();
        while began.elapsed() < duration {
            let mut held = Some(self.lock());
            if held.as_deref_mut().is_some_and(std::mem::take) {
                while from_guest.peek().is_some() {
                    from_guest.pop();
                }
                let _ = from_guest.flush();
                let _ = from_guest.arm_kicks(Arm::Next);
            }
            for _ in 0..BATCH {
                if !is_read {
                    held = held.filter(|_| self.is_held);
                    tap.read_exact_at(&mut buffer, 0)?;
                }
                held = held.or_else(|| Some(self.lock()));
                is_read = to_guest.put(&packet) != Put::Done;
                if is_read {
                    break;
                }
                put += 1;
            }
            let _ = to_guest.flush();
            from_guest.broken().map_or(Ok(()), |why| Err(broken(Broken(why))))?;
        }
        Ok(f64::from(put) / began.elapsed().as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::super::two_processors;
    use super::*;

    #[test]
    fn packets_move_both_ways_with_and_without_the_lock() {
        for (row, is_held) in ROWS {
            let found = measure(is_held, two_processors(), Duration::from_millis(50));
            let [rate, kick_us] = found.expect("it goes on");
            assert!(rate > 0.0 && kick_us > 0.0, "{row}: {rate} {kick_us}");
        }
    }
}
