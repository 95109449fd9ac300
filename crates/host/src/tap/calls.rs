//! How taps are read and written: one system call for each packet, or one for several (io_uring),
//! and from how many packets on that is faster.
//!
//! How many depends on what a system call costs here, so it is measured when it is first asked for,
//! in a few milliseconds: a process that gives up system calls has to ask before that, or be told.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ringway_net::{HEADER_LEN, NetHeader, Packet, TapCalls};
use ringway_virtq::SharedSlice;
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::tap::ahead::ReadAhead;
use crate::tap::batch::TapBatch;
use crate::tap::ioctl::Vectors;

/// Tried when measuring, from the smallest on.
const SIZES: [usize; 4] = [2, 4, 8, 16];
/// How often each is tried; the shortest time counts.
const ROUNDS: usize = 30;
/// Length in bytes of a packet that is read: as long as nearly all short ones are at most.
const MEASURED_LEN: usize = 1514;

static WRITES: OnceLock<Option<usize>> = OnceLock::new();
static READS: OnceLock<Option<usize>> = OnceLock::new();

/// From how many packets on they are written at once, where the kernel has rings; `None`: never.
pub fn writes_from(calls: TapCalls) -> Option<usize> {
    fixed_or(calls, || *WRITES.get_or_init(|| measure_writes().unwrap_or(None)))
}

/// From how many packets on they are read at once, where the kernel has rings; `None`: never.
pub fn reads_from(calls: TapCalls) -> Option<usize> {
    fixed_or(calls, || *READS.get_or_init(|| measure_reads().unwrap_or(None)))
}

/// The measured numbers, for another process on this machine: `4 16`; 0: never.
pub fn calls_measured() -> String {
    let all = [writes_from(TapCalls::Auto), reads_from(TapCalls::Auto)];
    all.map(|from| from.unwrap_or(0).to_string()).join(" ")
}

/// Takes that for its own, as far as it is right and nothing was measured before.
pub fn believe_calls(measured: &str) {
    let numbers = measured.split(' ').map(|number| number.parse().ok());
    for (known, number) in [&WRITES, &READS].into_iter().zip(numbers) {
        let from = match number {
            Some(0) => Some(None),
            Some(from) if SIZES.contains(&from) => Some(Some(from)),
            _ => None,
        };
        from.into_iter().for_each(|from| _ = known.set(from));
    }
}

fn fixed_or(calls: TapCalls, measured: impl FnOnce() -> Option<usize>) -> Option<usize> {
    match calls {
        TapCalls::Plain => None,
        TapCalls::IoUring => Some(2),
        TapCalls::Auto => measured(),
    }
}

/// The smallest number that takes less time at once than one by one; told both are how many there
/// are and from how many on they go at once, it gives a time.
fn smallest_faster(
    mut time: impl FnMut(usize, usize) -> io::Result<Duration>,
) -> io::Result<Option<usize>> {
    for size in SIZES {
        let mut shortest = [Duration::MAX; 2];
        for _ in 0..ROUNDS {
            for (shortest, from) in shortest.iter_mut().zip([0, usize::MAX]) {
                *shortest = time(size, from)?.min(*shortest);
            }
        }
        if shortest[0] < shortest[1] {
            return Ok(Some(size));
        }
    }
    Ok(None)
}

/// On a file that takes everything.
fn measure_writes() -> io::Result<Option<usize>> {
    let null: OwnedFd = rustix::fs::open("/dev/null", OFlags::WRONLY, Mode::empty())?;
    let mut bytes = [0; 64];
    let mut batch = TapBatch::new(usize::MAX)?;
    // SAFETY: `bytes` live until the end of this function and are only read.
    let piece = unsafe { SharedSlice::new(bytes.as_mut_ptr(), bytes.len()) };
    let payload = [piece];
    let packet = Packet { header: &NetHeader::ZERO, payload: &payload, len: 64 };
    smallest_faster(|size, from| {
        batch.set_from(from);
        (0..size).for_each(|_| batch.note([0; HEADER_LEN], &packet));
        let start = Instant::now();
        batch.write(null.as_fd(), |_, _| {});
        Ok(start.elapsed())
    })
}

/// On a socket that keeps packets apart, as a tap does, with the copy that comes behind reading at
/// once.
fn measure_reads() -> io::Result<Option<usize>> {
    let kind = SocketType::SEQPACKET;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, flags, None)?;
    let sent = [0; HEADER_LEN + MEASURED_LEN];
    let mut bytes = [0; MEASURED_LEN];
    // SAFETY: `bytes` live until the end of this function, and nothing else refers to them.
    let piece = unsafe { SharedSlice::new(bytes.as_mut_ptr(), bytes.len()) };
    let (mut vectors, mut ahead) = (Vectors::new(), ReadAhead::new(SIZES[0])?);
    smallest_faster(|size, from| {
        for _ in 0..size {
            rustix::io::write(&theirs, &sent)?;
        }
        let start = Instant::now();
        if size >= from {
            if ahead.read(ours.as_fd(), size) < size {
                // A socket of this kernel cannot say at once that it is empty.
                return Err(io::ErrorKind::Unsupported.into());
            }
            while let Some(packet) = ahead.pop() {
                packet.split_at(HEADER_LEN).1.copy_to(piece);
            }
            return Ok(start.elapsed());
        }
        for _ in 0..size {
            let mut header = [0; HEADER_LEN];
            vectors.read(ours.as_fd(), &mut header, &[piece], SharedSlice::EMPTY)?;
        }
        Ok(start.elapsed())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_believed_as_far_as_it_can_be() {
        believe_calls("5");
        believe_calls("");
        believe_calls("x y z");
        let told = calls_measured();
        let numbers: Vec<usize> = told.split(' ').map(|it| it.parse().unwrap()).collect();
        assert!(numbers.len() == 2 && numbers.iter().all(|it| *it == 0 || SIZES.contains(it)));
        believe_calls("8 8");
        assert_eq!(calls_measured(), told, "it has measured before");
    }

    #[test]
    fn names_of_ways_are_read() {
        assert_eq!("auto".parse(), Ok(TapCalls::Auto));
        assert_eq!(writes_from("plain".parse().unwrap()), None);
        assert!("uring".parse::<TapCalls>().is_err());
        assert_eq!(reads_from(TapCalls::Plain), None);
        assert!(reads_from(TapCalls::Auto).is_none_or(|from| SIZES.contains(&from)));
        assert!(writes_from(TapCalls::Auto).is_none_or(|from| SIZES.contains(&from)));
    }
}
