//! The knowledge about one address, in one word: a value is read and written whole.
//!
//! ```text
//! 63        40 39    36 35      34 33   26 25             0
//! [   tag    ] [ flaps ] [ fixed ] [ port ] [ seen, ticks ]
//! ```

use crate::{PORTS_MAX, PortId};

/// An address that was not seen for so long is forgotten, in milliseconds, if nothing else is said:
/// five minutes, as usual for bridges. It may happen up to 1.1 seconds later, never earlier.
pub const AGE_MAX_MS: u64 = 300_000;

/// Moves of one address within about a second that are followed; further ones are not.
pub const FLAPS_MAX: u8 = 7;

/// Ages are kept in ticks of 1024 ms: a shift instead of a division for each packet.
const TICK_SHIFT: u32 = 10;
const SEEN_BITS: u32 = 26;
const PORT_SHIFT: u32 = SEEN_BITS;
const FIXED: u64 = 1 << 34;
const FLAPS_SHIFT: u32 = 36;
const FLAPS_MASK: u64 = 0xf;
/// The tag is made of the lowest bits of the hash: its highest bits choose the bucket.
const TAG_SHIFT: u32 = 40;

const _: () = assert!(PORTS_MAX <= 1 << 8);

/// A time in units of 1024 ms, modulo 2^26 (two years).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Tick(u32);

impl Tick {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "times are kept modulo 2^26")]
    pub fn of_ms(now_ms: u64) -> Self {
        Self((now_ms >> TICK_SHIFT) as u32 & ((1 << SEEN_BITS) - 1))
    }

    /// The first age in ticks that is too old: both ends of an age are rounded down, so a
    /// difference of one tick more than the maximum may still be young enough.
    pub fn count_of_age(age_max_ms: u64) -> u32 {
        // Half of all times is ahead.
        Self::of_ms(age_max_ms.min(1 << (SEEN_BITS + TICK_SHIFT - 2))).0 + 2
    }
}

/// Port, age and so on of one address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Value(u64);

impl Value {
    pub fn learned(port: PortId, now: Tick, tag: u64) -> Self {
        Self(tag << TAG_SHIFT | u64::from(port.0) << PORT_SHIFT | u64::from(now.0))
    }

    /// Configured: it neither ages nor moves.
    pub fn fixed(port: PortId, tag: u64) -> Self {
        Self(Self::learned(port, Tick(0), tag).0 | FIXED)
    }

    #[inline]
    pub fn from_word(word: u64) -> Self {
        Self(word)
    }

    #[inline]
    pub fn word(self) -> u64 {
        self.0
    }

    #[inline]
    pub fn has_tag(self, tag: u64) -> bool {
        self.0 >> TAG_SHIFT == tag << TAG_SHIFT >> TAG_SHIFT
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the port is eight bits of the word")]
    pub fn port(self) -> PortId {
        PortId((self.0 >> PORT_SHIFT) as u16 & 0xff)
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the stamp is 26 bits of the word")]
    pub fn seen(self) -> Tick {
        Tick(self.0 as u32 & ((1 << SEEN_BITS) - 1))
    }

    #[inline]
    pub fn is_fixed(self) -> bool {
        self.0 & FIXED != 0
    }

    /// The same, seen again. Moves count for one tick only.
    pub fn seen_at(self, now: Tick) -> Self {
        let kept = !(FLAPS_MASK << FLAPS_SHIFT) & !((1 << SEEN_BITS) - 1);
        Self(self.0 & kept | u64::from(now.0))
    }

    /// This new value counts the moves of the old one too, if they were in the same tick.
    pub fn moved_from(self, old: Self) -> Self {
        let flaps = if old.seen() == self.seen() { old.flaps() } else { 0 };
        Self(self.0 | (flaps + 1).min(FLAPS_MASK) << FLAPS_SHIFT)
    }

    #[inline]
    pub fn is_flapping(self, now: Tick) -> bool {
        self.seen() == now && self.flaps() >= u64::from(FLAPS_MAX)
    }

    /// Younger than so many ticks. Another worker's clock may have been read a little later.
    #[inline]
    pub fn is_fresh(self, now: Tick, age_max: u32) -> bool {
        let age = self.age(now);
        let is_ahead = age > 1 << (SEEN_BITS - 1);
        age < age_max || is_ahead || self.is_fixed()
    }

    /// For how long it was not seen, in milliseconds.
    pub fn age_ms(self, now: Tick) -> u64 {
        let age = self.age(now);
        let is_ahead = age > 1 << (SEEN_BITS - 1);
        if is_ahead { 0 } else { u64::from(age) << TICK_SHIFT }
    }

    #[inline]
    fn age(self, now: Tick) -> u32 {
        now.0.wrapping_sub(self.seen().0) & ((1 << SEEN_BITS) - 1)
    }

    #[inline]
    fn flaps(self) -> u64 {
        self.0 >> FLAPS_SHIFT & FLAPS_MASK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: PortId = PortId(255);

    #[test]
    fn the_parts_of_a_value_do_not_touch_each_other() {
        let now = Tick::of_ms(u64::MAX);
        let value = Value::learned(PORT, now, u64::MAX);
        assert_eq!((value.port(), value.seen(), value.is_fixed()), (PORT, now, false));
        assert!(value.has_tag(u64::MAX) && !value.has_tag(u64::MAX - 1));
        assert!(!value.is_flapping(now));
        assert!(Value::fixed(PORT, 0).is_fixed() && !Value::fixed(PORT, 0).is_flapping(Tick(0)));
    }

    #[test]
    fn ages_survive_the_wrap_and_a_clock_a_little_behind() {
        let ms = |ticks: u64| Tick::of_ms(ticks << TICK_SHIFT);
        let (value, max) =
            (Value::learned(PORT, ms((1 << SEEN_BITS) - 1), 0), Tick::count_of_age(AGE_MAX_MS));
        assert_eq!((max, Tick::count_of_age(u64::MAX)), (294, (1 << (SEEN_BITS - 2)) + 2));
        assert!(value.is_fresh(ms((1 << SEEN_BITS) + 200), max));
        assert!(value.is_fresh(ms((1 << SEEN_BITS) - 3), max));
        assert!(!value.is_fresh(ms((1 << SEEN_BITS) + 400), max));
    }

    #[test]
    fn moves_count_within_a_tick() {
        let mut value = Value::learned(PORT, Tick(5), 0);
        for _ in 0..FLAPS_MAX {
            assert!(!value.is_flapping(Tick(5)));
            value = Value::learned(PORT, Tick(5), 0).moved_from(value);
        }
        assert!(value.is_flapping(Tick(5)) && !value.is_flapping(Tick(6)));
        assert!(!value.seen_at(Tick(6)).is_flapping(Tick(6)));
    }
}
