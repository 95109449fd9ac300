//! Text in memory of a fixed size.

use core::fmt;

/// Text of at most `N` bytes; what does not fit is cut off.
#[derive(Debug)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    /// No text yet.
    pub const fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    /// The bytes that were written.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Forgets the first `len` bytes, or all.
    pub fn drop_front(&mut self, len: usize) {
        let len = len.min(self.len);
        self.bytes.copy_within(len..self.len, 0);
        self.len -= len;
    }

    /// Appends bytes; returns how many fitted.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let fits = bytes.len().min(N - self.len);
        self.bytes[self.len..][..fits].copy_from_slice(&bytes[..fits]);
        self.len += fits;
        fits
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> fmt::Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.append(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::fmt::Write;

    #[test]
    fn too_much_is_cut_off() {
        let mut text = Text::<4>::new();
        assert_eq!(text.append(b"ab"), 2);
        let _ = write!(text, "{}", 1234);
        assert_eq!(text.bytes(), b"ab12");
        assert_eq!(text.append(b"x"), 0);
        text.drop_front(3);
        assert_eq!(text.bytes(), b"2");
        text.drop_front(9);
        assert_eq!(text.bytes(), b"");
    }
}
