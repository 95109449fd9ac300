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

    /// How many bytes this is after `other`; negative: before it.
    pub const fn offset_from(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0).cast_signed()
    }

    /// The bytes from `other` to this; 0 if this is not after it.
    pub const fn bytes_after(self, other: Self) -> u32 {
        let distance = self.offset_from(other);
        if distance > 0 { distance.cast_unsigned() } else { 0 }
    }

    pub const fn is_after(self, other: Self) -> bool {
        self.offset_from(other) > 0
    }

    /// The later of the two.
    pub const fn later(self, other: Self) -> Self {
        if self.is_after(other) { self } else { other }
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
        assert!(after.is_after(before) && !before.is_after(after) && !after.is_after(after));
        assert_eq!((after.offset_from(before), before.offset_from(after)), (3, -3));
        assert_eq!((after.bytes_after(before), before.bytes_after(after)), (3, 0));
        assert_eq!((after.later(before), before.later(after)), (after, after));
    }
}
