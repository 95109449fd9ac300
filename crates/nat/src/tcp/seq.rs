//! Sequence numbers, which wrap around.

/// A sequence number (RFC 9293 §3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Seq(pub u32);

impl Seq {
    pub const fn plus(self, len: u32) -> Self {
        Self(self.0.wrapping_add(len))
    }

    pub const fn minus(self, len: u32) -> Self {
        Self(self.0.wrapping_sub(len))
    }

    /// How far this is behind `other`; negative: in front of it.
    pub const fn from(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0).cast_signed()
    }

    /// How far this is behind `other`; 0 if it is in front of it.
    pub const fn since(self, other: Self) -> u32 {
        let distance = self.from(other);
        if distance > 0 { distance.cast_unsigned() } else { 0 }
    }

    pub const fn is_behind(self, other: Self) -> bool {
        self.from(other) > 0
    }

    /// The later of the two.
    pub const fn later(self, other: Self) -> Self {
        if self.is_behind(other) { self } else { other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap() {
        let before = Seq(u32::MAX - 1);
        let after = before.plus(3);
        assert_eq!((after, after.minus(3)), (Seq(1), before));
        assert!(after.is_behind(before) && !before.is_behind(after) && !after.is_behind(after));
        assert_eq!((after.from(before), before.from(after)), (3, -3));
        assert_eq!((after.since(before), before.since(after)), (3, 0));
        assert_eq!((after.later(before), before.later(after)), (after, after));
    }
}
