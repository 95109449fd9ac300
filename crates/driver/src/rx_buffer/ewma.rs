//! `ewma`: buffers as long as packets are on average, as Linux has done since 2014.
//!
//! How: an integer moving average of whole packets (without header); buffers are header plus
//! average, kept between a lower bound and a page, rounded up to a cache line. The first packet is
//! taken as it is. Every later one moves the average by 1/weight of the difference, **rounded
//! down**: towards smaller packets the average arrives exactly, towards larger ones it stops up to
//! `weight - 1` units short. A unit is `2^-fraction_bits` bytes. Linux has no fraction bits, so its
//! average stays up to 63 bytes low; with six of them it is less than a byte.
//!
//! Limits: never beyond a page; right for one kind of packet at a time.

use super::{ETHERNET_LEN, MTU_MIN, PAGE_LEN, aligned, need_per_entry};

/// How the average is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EwmaOptions {
    /// A new packet counts `2^-weight_bits`.
    pub weight_bits: u8,
    /// Bits behind the binary point.
    pub fraction_bits: u8,
}

impl EwmaOptions {
    /// As in Linux: 1/64, whole bytes.
    pub const LINUX: Self = Self { weight_bits: 6, fraction_bits: 0 };
    /// The same weight with fractions, so that the average is not low.
    pub const EXACT: Self = Self { weight_bits: 6, fraction_bits: 6 };
}

/// The state of `ewma` on one receiveq.
#[derive(Debug, Clone)]
pub struct Ewma {
    options: EwmaOptions,
    header_len: u32,
    lower: u32,
    upper: u32,
    /// In units of `2^-fraction_bits` bytes; 0: no packet yet.
    average: u64,
}

impl Ewma {
    /// For a receiveq with `ring_size` entries and headers of `header_len` bytes.
    pub fn new(options: EwmaOptions, header_len: u32, ring_size: u16) -> Self {
        assert!(options.weight_bits <= 16 && options.fraction_bits <= 16, "{options:?}");
        let upper = PAGE_LEN - header_len;
        let need = need_per_entry(header_len, ring_size).max(header_len) - header_len;
        // As Linux's clamp: a small ring's need is cut off at a page.
        let lower = need.max(ETHERNET_LEN + MTU_MIN).min(upper);
        Self { options, header_len, lower, upper, average: 0 }
    }

    /// Bytes of the next buffer, header included.
    #[inline]
    pub fn next_len(&self) -> u32 {
        aligned(self.header_len + self.average().clamp(self.lower, self.upper))
    }

    /// Learns that a packet of `len` bytes has arrived whole.
    #[inline]
    pub fn on_packet(&mut self, len: u32) {
        let sample = u64::from(len) << self.options.fraction_bits;
        self.average = match self.average {
            0 => sample,
            average => {
                let weighted = (average << self.options.weight_bits) - average + sample;
                weighted >> self.options.weight_bits
            }
        };
    }

    /// The average packet in whole bytes.
    #[inline]
    pub fn average(&self) -> u32 {
        u32::try_from(self.average >> self.options.fraction_bits).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(options: EwmaOptions, packets: impl IntoIterator<Item = u32>) -> Ewma {
        let mut ewma = Ewma::new(options, 12, 256);
        packets.into_iter().for_each(|len| ewma.on_packet(len));
        ewma
    }

    fn times(len: u32, count: usize) -> impl Iterator<Item = u32> {
        std::iter::repeat_n(len, count)
    }

    #[test]
    fn the_first_packet_is_taken_whole() {
        assert_eq!(fed(EwmaOptions::LINUX, [3000]).average(), 3000);
        assert_eq!(fed(EwmaOptions::LINUX, []).next_len(), 1536);
    }

    #[test]
    fn without_fractions_it_stops_short_when_rising_and_arrives_when_falling() {
        let rising = [66].into_iter().chain(times(65_550, 2000));
        assert_eq!(fed(EwmaOptions::LINUX, rising).average(), 65_487);
        let falling = [65_550].into_iter().chain(times(66, 2000));
        assert_eq!(fed(EwmaOptions::LINUX, falling).average(), 66);
    }

    #[test]
    fn with_fractions_it_arrives_both_ways() {
        let rising = [66].into_iter().chain(times(65_550, 2000));
        assert_eq!(fed(EwmaOptions::EXACT, rising).average(), 65_549);
        let falling = [65_550].into_iter().chain(times(66, 2000));
        assert_eq!(fed(EwmaOptions::EXACT, falling).average(), 66);
    }

    #[test]
    fn three_large_packets_lift_it_to_a_page_and_many_small_ones_bring_it_back() {
        let mut ewma = fed(EwmaOptions::LINUX, [1518]);
        times(65_550, 3).for_each(|len| ewma.on_packet(len));
        assert_eq!(ewma.next_len(), 4096);
        let mut ewma = fed(EwmaOptions::LINUX, times(65_550, 2000));
        let mut settles = |to: u32| {
            (1..).find(|_| {
                ewma.on_packet(66);
                ewma.average() < to
            })
        };
        assert_eq!(settles(4084 + 1), Some(177));
        assert_eq!(settles(1518 + 1).map(|more| 177 + more), Some(241));
    }

    #[test]
    fn small_rings_need_longer_buffers() {
        for (ring_size, len) in [(256, 1536), (43, 1536), (32, 2112), (16, 4096), (1, 4096)] {
            let ewma = Ewma::new(EwmaOptions::LINUX, 12, ring_size);
            assert_eq!(ewma.next_len(), len, "ring of {ring_size}");
        }
    }
}
