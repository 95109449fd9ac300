//! Time since start, in microseconds, from the processor's time stamp counter.
//!
//! How: the counter's rate is measured once against the interval timer, whose rate is known.
//!
//! Limits: a counter of constant rate; that of the first processor.

use core::arch::x86_64::_rdtsc;

use super::ports::{in_u8, out_u8};

/// The interval timer's ticks per second.
const TIMER_HZ: u64 = 1_193_182;
/// Its ports: counter 0, and the control word.
const COUNTER: u16 = 0x40;
const CONTROL: u16 = 0x43;
/// Counter 0, both bytes, count down once.
const COUNT_ONCE: u8 = 0x30;
/// Hold counter 0 for reading.
const LATCH: u8 = 0x00;
/// Ticks that are measured: 5 milliseconds.
const MEASURED_TICKS: u16 = 5_966;
/// How often the timer is looked at before it counts as missing.
const LOOKS_MAX: u32 = 10_000_000;

/// A running clock.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: u64,
    per_millisecond: u64,
}

impl Clock {
    /// Measures, which takes 5 ms, and starts at 0.
    pub fn start() -> Self {
        out_u8(CONTROL, COUNT_ONCE);
        out_u8(COUNTER, 0xff);
        out_u8(COUNTER, 0xff);
        let (first, start) = (Self::timer(), counter());
        let mut ticks = 0;
        for _ in 0..LOOKS_MAX {
            ticks = first.wrapping_sub(Self::timer());
            if ticks >= MEASURED_TICKS {
                break;
            }
        }
        assert!(ticks >= MEASURED_TICKS, "there is no interval timer");
        let elapsed = counter() - start;
        let per_millisecond = elapsed * TIMER_HZ / (u64::from(ticks) * 1000);
        Self { start, per_millisecond: per_millisecond.max(1) }
    }

    /// Microseconds since the start.
    pub fn now_us(self) -> u64 {
        (counter() - self.start).saturating_mul(1000) / self.per_millisecond
    }

    /// A number that differs from start to start: the counter when the clock started.
    pub fn seed(self) -> u64 {
        self.start
    }

    fn timer() -> u16 {
        out_u8(CONTROL, LATCH);
        let low = in_u8(COUNTER);
        u16::from_le_bytes([low, in_u8(COUNTER)])
    }
}

fn counter() -> u64 {
    // SAFETY: every x86-64 processor has it.
    unsafe { _rdtsc() }
}
