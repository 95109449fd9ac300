//! The internet checksum (RFC 1071): a ones' complement sum of 16-bit words.
//!
//! How: the sum does not care about byte order, so memory is summed as it lies, four bytes at a
//! time into 64 bits, and folded once at the end. Limits: what is added piece by piece must have
//! an even length, except for the last piece.

/// A sum that is not folded yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum(u64);

impl Sum {
    /// Adds bytes; an odd last byte counts as if a zero followed.
    #[inline]
    #[must_use]
    pub fn add_bytes(self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<4>();
        let mut sum = self.0;
        for word in words {
            sum += u64::from(u32::from_ne_bytes(*word));
        }
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        Self(sum + u64::from(u32::from_ne_bytes(last)))
    }

    /// Adds one word in host byte order.
    #[inline]
    #[must_use]
    pub fn add_word(self, word: u16) -> Self {
        Self(self.0 + u64::from(u16::from_ne_bytes(word.to_be_bytes())))
    }

    /// The folded sum in host byte order.
    #[inline]
    pub fn fold(self) -> u16 {
        let mut sum = self.0;
        loop {
            match u16::try_from(sum) {
                Ok(folded) => return u16::from_be_bytes(folded.to_ne_bytes()),
                Err(_) => sum = (sum & 0xffff) + (sum >> 16),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Word by word, as the definition has it.
    fn defined(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        u16::try_from(sum).unwrap()
    }

    #[test]
    fn rfc_1071_example() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::default().add_bytes(&bytes).fold(), 0xddf2);
    }

    #[test]
    fn every_length_and_offset_sums_as_defined() {
        let bytes: std::vec::Vec<u8> = (0..300u32).map(|at| ((at * 37 + 11) % 251) as u8).collect();
        for from in 0..8 {
            for to in from..bytes.len() {
                let bytes = &bytes[from..to];
                assert_eq!(Sum::default().add_bytes(bytes).fold(), defined(bytes));
            }
        }
        assert_eq!(Sum::default().add_bytes(&[0xff; 65_536]).fold(), 0xffff);
    }

    #[test]
    fn words_and_pieces_add_up() {
        let sum = Sum::default().add_word(0x1234).add_bytes(&[0xab, 0xcd]).add_word(0xffff);
        assert_eq!(sum.fold(), defined(&[0x12, 0x34, 0xab, 0xcd, 0xff, 0xff]));
    }
}
