//! Rate limits: one word per limit, right for any number of workers.
//!
//! Theory of operation (the generic cell rate algorithm, ITU-T I.371 appendix I): a packet takes
//! `size / rate` of time. The word is the time until which all packets so far have used the rate
//! up. A packet may go while that time is at most the burst ahead of the clock, and then moves it
//! on by what it takes. No timer fills anything up, and a limit that is not set costs no access.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::copy::Copied;
use crate::{BURST_DEFAULT_US, RateLimit};

/// Times are kept in sixteenths of a nanosecond: 37 years of clock, and at most 1 % of rounding
/// for the shortest packets at 100 Gbit/s.
const FRACTION_BITS: u32 = 4;
/// Times per byte have so many more fractional bits.
const BYTE_FRACTION_BITS: u32 = 16;
const NS_PER_S: u64 = 1_000_000_000;
const NS_PER_US: u64 = 1000;
const BITS_PER_BYTE: u64 = 8;
/// How far ahead of its limit a storm may get, in microseconds.
const STORM_BURST_US: u32 = 100_000;

/// The cost of one packet under a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Pace {
    /// 0: no limit.
    per_packet: u64,
    /// 0: no limit.
    per_byte: u64,
    burst: u64,
}

impl Pace {
    pub fn new(limit: &RateLimit) -> Self {
        let burst_us = if limit.burst_us == 0 { BURST_DEFAULT_US } else { limit.burst_us };
        let one_second = NS_PER_S << FRACTION_BITS;
        Self {
            per_packet: each(one_second, limit.packets_per_second),
            per_byte: each(
                (BITS_PER_BYTE * one_second) << BYTE_FRACTION_BITS,
                limit.bits_per_second,
            ),
            burst: (u64::from(burst_us) * NS_PER_US) << FRACTION_BITS,
        }
    }

    pub fn storm(packets_per_second: u64) -> Self {
        Self::new(&RateLimit { packets_per_second, burst_us: STORM_BURST_US, bits_per_second: 0 })
    }

    #[inline]
    pub fn is_none(&self) -> bool {
        self.per_packet == 0 && self.per_byte == 0
    }

    fn of_bytes(&self, len: u32) -> u64 {
        let product = u128::from(self.per_byte) * u128::from(len);
        u64::try_from(product >> BYTE_FRACTION_BITS).unwrap_or(u64::MAX)
    }
}

/// At least the smallest unit, so that a limit is never none by rounding.
fn each(one_second: u64, per_second: u64) -> u64 {
    one_second.checked_div(per_second).map_or(0, |each| each.max(1))
}

/// One limit of bits and packets.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    bytes_until: AtomicU64,
    packets_until: AtomicU64,
}

impl Meter {
    /// Whether a packet may go now; if not, the time in nanoseconds when it may.
    pub fn check(&self, pace: &Pace, now_ns: u64) -> Result<(), u64> {
        if pace.is_none() {
            return Ok(());
        }
        let mut until = 0;
        if pace.per_byte != 0 {
            until = self.bytes_until.load(Relaxed);
        }
        if pace.per_packet != 0 {
            until = until.max(self.packets_until.load(Relaxed));
        }
        let from = until.saturating_sub(pace.burst);
        if from <= now_ns << FRACTION_BITS { Ok(()) } else { Err((from >> FRACTION_BITS) + 1) }
    }

    /// Counts a packet of `len` bytes that has gone.
    pub fn charge(&self, pace: &Pace, len: u32, now_ns: u64) {
        if pace.per_byte != 0 {
            advance(&self.bytes_until, pace.of_bytes(len), now_ns);
        }
        if pace.per_packet != 0 {
            advance(&self.packets_until, pace.per_packet, now_ns);
        }
    }

    /// A new limit begins with a full burst.
    pub fn reset(&self) {
        self.bytes_until.store(0, Relaxed);
        self.packets_until.store(0, Relaxed);
    }
}

impl Copied for Meter {
    fn copied(&self) -> Self {
        let (bytes_until, packets_until) = (self.bytes_until.copied(), self.packets_until.copied());
        Self { bytes_until, packets_until }
    }
}

impl Copied for PortMeters {
    fn copied(&self) -> Self {
        Self {
            to_guest: self.to_guest.copied(),
            from_guest: self.from_guest.copied(),
            storm: self.storm.copied(),
        }
    }
}

fn advance(until: &AtomicU64, by: u64, now_ns: u64) {
    let now = now_ns << FRACTION_BITS;
    // No worker can fail for ever: each failure means that another one has succeeded.
    let _ = until.fetch_update(Relaxed, Relaxed, |until| Some(until.max(now).saturating_add(by)));
}

/// The limits of one port, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct PortMeters {
    pub to_guest: Meter,
    pub from_guest: Meter,
    pub storm: Meter,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PortPolicy, WhenFull};

    const MS: u64 = 1_000_000;

    /// Packets of `len` bytes that pass within a time when one is offered whenever it may go.
    fn passed(limit: RateLimit, len: u32, time_ns: u64) -> u64 {
        let (pace, meter) = (Pace::new(&limit), Meter::default());
        let start = 77 * NS_PER_S;
        let (mut now_ns, mut count) = (start, 0);
        while now_ns <= start + time_ns {
            match meter.check(&pace, now_ns) {
                Ok(()) => {
                    meter.charge(&pace, len, now_ns);
                    count += 1;
                }
                Err(at_ns) => {
                    assert!(at_ns > now_ns, "a wait that is over");
                    now_ns = at_ns;
                }
            }
        }
        count
    }

    #[test]
    fn rates_are_kept_within_the_burst_and_a_packet() {
        let packets = RateLimit { packets_per_second: 1000, ..RateLimit::default() };
        let count = passed(packets, 1500, NS_PER_S);
        assert!((1000..=1012).contains(&count), "{count}");
        let bits = RateLimit { bits_per_second: 12_000_000, ..RateLimit::default() };
        let count = passed(bits, 1500, NS_PER_S);
        assert!((1000..=1012).contains(&count), "{count}");
        let both = RateLimit { packets_per_second: 100, burst_us: 1, ..bits };
        let count = passed(both, 1500, NS_PER_S);
        assert!((100..=102).contains(&count), "{count}");
        let fast = RateLimit { bits_per_second: 100_000_000_000, ..RateLimit::default() };
        let count = passed(fast, 64, 10 * MS);
        let exact = 2 * 10 * MS * 100 / (64 * 8);
        assert!(count.abs_diff(exact) < exact / 50, "{count} of {exact}");
    }

    /// A sender that offers packets as fast as they go, and is silent for 200 ms when the last ones
    /// are lost, as TCP is.
    fn share_of_tcp(policy: &PortPolicy) -> u64 {
        const SILENCE_NS: u64 = 200 * MS;
        let (pace, meter) = (Pace::new(&policy.limit_to_guest()), Meter::default());
        let (start, time_ns, len) = (77 * NS_PER_S, 4 * NS_PER_S, 1514);
        // 4 Gbit/s.
        let (mut now_ns, mut bytes, step_ns) = (start, 0, 3000);
        while now_ns < start + time_ns {
            match meter.check(&pace, now_ns) {
                Ok(()) => {
                    meter.charge(&pace, len, now_ns);
                    (bytes, now_ns) = (bytes + u64::from(len), now_ns + step_ns);
                }
                Err(_) => now_ns += SILENCE_NS,
            }
        }
        let rate = policy.rate_to_guest.bits_per_second;
        bytes * 8 * 100 / (rate * time_ns / NS_PER_S)
    }

    #[test]
    fn a_connection_whose_packets_are_dropped_gets_most_of_its_rate() {
        for bits_per_second in [10_000_000, 50_000_000, 200_000_000] {
            let mut shares = [1000, 10_000, 50_000, 0, 500_000].map(|burst_us| {
                let rate_to_guest = RateLimit { bits_per_second, burst_us, packets_per_second: 0 };
                let when_full = WhenFull::Drop;
                share_of_tcp(&PortPolicy { rate_to_guest, when_full, ..PortPolicy::default() })
            });
            assert!(shares[3] >= 80, "{bits_per_second}: {shares:?} %");
            let given = shares;
            shares.sort_unstable();
            assert_eq!(given, shares, "a larger burst is never less");
        }
    }

    #[test]
    fn the_longest_packet_fits_the_lowest_limit_and_is_paid_for() {
        let limit = RateLimit { bits_per_second: 1, ..RateLimit::default() };
        let (pace, meter) = (Pace::new(&limit), Meter::default());
        assert_eq!(meter.check(&pace, 0), Ok(()));
        meter.charge(&pace, 65_558, 0);
        let at_ns = meter.check(&pace, 1).unwrap_err();
        assert!(at_ns > 65_000 * NS_PER_S, "{at_ns}");
        meter.charge(&pace, u32::MAX, u64::MAX >> FRACTION_BITS);
    }

    #[test]
    fn no_limit_is_never_touched() {
        let meter = Meter::default();
        meter.charge(&Pace::default(), 1500, 5);
        assert_eq!(meter.check(&Pace::default(), 0), Ok(()));
        assert_eq!(meter.bytes_until.load(Relaxed) + meter.packets_until.load(Relaxed), 0);
        let limit = RateLimit { packets_per_second: u64::MAX, ..RateLimit::default() };
        assert!(!Pace::new(&limit).is_none());
    }

    #[test]
    fn two_workers_share_one_rate() {
        let limit = RateLimit { packets_per_second: 1000, burst_us: 1, ..RateLimit::default() };
        let (pace, meter) = (Pace::new(&limit), Meter::default());
        let workers = 4;
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| (0..1000).for_each(|_| meter.charge(&pace, 60, 0)));
            }
        });
        let at_ns = meter.check(&pace, 0).unwrap_err();
        assert!(at_ns.abs_diff(workers * NS_PER_S) < 2 * MS, "{at_ns}");
    }
}
