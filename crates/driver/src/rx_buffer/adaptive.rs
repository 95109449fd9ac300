//! `adaptive`: the length that costs least for the packets seen lately.
//!
//! How: a histogram of recent packets and the cost of [`packet_cost`](super::packet_cost) give the
//! expected cost of any length. Every so often the candidates are compared: eight lengths per
//! doubling, and for each length that really comes, buffers that hold it whole or in two, three or
//! four parts. Unlike an average this is right for mixed packets, because it never asks for a
//! length that no packet has.
//!
//! A steady mix and a change are told apart by surprise: a packet that was rare until now carries
//! many bits. What exceeds the usual adds up; beyond [`CHANGE_AT`] the past is forgotten except
//! for the last few packets, and the choice is made anew, again and again at doubled distances.
//!
//! Most packets are as long as the one before: these are only counted, and looked at together when
//! another length comes, or when it is time to compare. That is after 64 packets where something
//! changes, and after up to 1024 where nothing does.
//!
//! Limits: a multiple of 64 bytes, from what a ring needs to hold one packet of 64 KiB up to what
//! holds any; per packet constant time, all numbers integers.

use super::histogram::{Bin, Histogram};
use super::{ADAPTIVE_LEN_MAX, BUFFER_ALIGN, ENTRY_COST_BYTES, aligned, buffers_for};
use super::{ETHERNET_LEN, MTU_MIN, need_per_entry};

/// Longer packets than this count as this long, in bytes.
const LEN_MAX: u32 = 1 << 16;
/// Packets between two comparisons when something changes.
const COMPARE_EVERY: u16 = 64;
/// The same when nothing does: as many as the histogram remembers.
const COMPARE_SELDOM: u16 = 1024;
/// Packets until the first comparison after a change.
const COMPARE_FIRST: u16 = 4;
/// Surprise in sixteenths of a bit that every packet may bring beyond the usual.
const SURPRISE_SLACK: u32 = 16;
/// Sum of further surprise, in sixteenths of a bit, that shows a change.
const CHANGE_AT: u32 = 16 * 16;
/// The usual surprise is an average over `2^USUAL_BITS` packets.
const USUAL_BITS: u32 = 6;
/// Most packets that are kept over a change.
const LAST_PACKETS: usize = 8;
/// Parts into which candidates divide the lengths that come.
const PARTS_MAX: u32 = 4;
/// Parts of a buffer that are told apart in averages.
const SHARES: u32 = 64;
/// A new length must save more than one part in so many.
const WORTHWHILE: u64 = 256;

/// The state of `adaptive` on one receiveq.
#[derive(Debug, Clone)]
pub struct Adaptive {
    header_len: u32,
    lower: u32,
    len: u32,
    histogram: Histogram,
    /// Average surprise in units of `2^-USUAL_BITS` sixteenths.
    usual: u32,
    /// Surprise beyond the usual.
    beyond: u32,
    /// The last packets, newest at the end, and how many of them came since nothing was unusual.
    last: [u32; LAST_PACKETS],
    unusual: usize,
    /// Packets until the next comparison, and between it and the one after.
    left: u16,
    distance: u16,
    /// As long as the last packet, header included, the next ones are only counted: so many at
    /// most, so many of them are still to come.
    repeated: u32,
    repeats_max: u16,
    repeats_left: u16,
}

impl Adaptive {
    /// For a receiveq with `ring_size` entries and headers of `header_len` bytes.
    pub fn new(header_len: u32, ring_size: u16) -> Self {
        let lower = need_per_entry(header_len, ring_size).max(header_len + 1);
        let lower = aligned(lower).min(ADAPTIVE_LEN_MAX);
        Self {
            header_len,
            lower,
            len: aligned(header_len + ETHERNET_LEN + MTU_MIN).max(lower),
            histogram: Histogram::EMPTY,
            usual: 0,
            beyond: 0,
            last: [0; LAST_PACKETS],
            unusual: 0,
            left: COMPARE_FIRST,
            distance: COMPARE_FIRST,
            repeated: 0,
            repeats_max: 0,
            repeats_left: 0,
        }
    }

    /// Bytes of the next buffer, header included.
    #[inline]
    pub fn next_len(&self) -> u32 {
        self.len
    }

    /// Shortest buffer it will ask for, in bytes.
    pub fn len_min(&self) -> u32 {
        self.lower
    }

    /// Learns that a packet of `len` bytes (without header) has arrived whole.
    #[inline]
    pub fn on_packet(&mut self, len: u32) {
        let len = self.header_len + len.min(LEN_MAX);
        if len == self.repeated && self.repeats_left > 0 {
            self.repeats_left -= 1;
        } else {
            self.learn(len);
        }
    }

    /// The same for a packet that is not as long as the one before, or when it is time to compare.
    #[inline(never)]
    fn learn(&mut self, len: u32) {
        self.learn_repeats();
        let surprise = self.histogram.surprise(len);
        self.histogram.add(len, 1);
        self.last.rotate_left(1);
        self.last[LAST_PACKETS - 1] = len;
        let expected = (self.usual >> USUAL_BITS) + SURPRISE_SLACK;
        self.beyond = (self.beyond + surprise).saturating_sub(expected);
        self.grow_used_to(surprise);
        self.unusual = if self.beyond == 0 { 0 } else { (self.unusual + 1).min(LAST_PACKETS) };
        if self.beyond > CHANGE_AT {
            self.start_over();
        }
        self.left -= 1;
        if self.left == 0 {
            let distance_max = if self.choose() { COMPARE_EVERY } else { COMPARE_SELDOM };
            self.distance = (2 * self.distance).min(distance_max);
            self.left = self.distance;
        }
        // A packet that was as usual is no less so when it comes again.
        self.repeats_max = if self.beyond == 0 { self.left - 1 } else { 0 };
        self.repeats_left = self.repeats_max;
        self.repeated = len;
    }

    /// The same for packets that were only counted.
    fn learn_repeats(&mut self) {
        let repeats = self.repeats_max - self.repeats_left;
        if repeats > 0 {
            let surprise = self.histogram.surprise(self.repeated);
            self.histogram.add(self.repeated, repeats);
            (0..repeats).for_each(|_| self.grow_used_to(surprise));
            self.left -= repeats;
        }
    }

    fn grow_used_to(&mut self, surprise: u32) {
        self.usual = self.usual - (self.usual >> USUAL_BITS) + surprise;
    }

    /// Forgets everything but the packets that showed the change.
    #[cold]
    fn start_over(&mut self) {
        self.histogram = Histogram::EMPTY;
        for &len in &self.last[LAST_PACKETS - self.unusual..] {
            self.histogram.add(len, 1);
        }
        self.beyond = 0;
        self.unusual = 0;
        self.distance = COMPARE_FIRST / 2;
        self.left = 1;
    }

    /// Takes the candidate that costs least; whether that or any length that comes has changed.
    #[inline(never)]
    fn choose(&mut self) -> bool {
        let now = self.cost_of(self.len);
        let mut best = (now - now / WORTHWHILE, self.len);
        let mut consider = |len: u32| {
            let len = aligned(len).clamp(self.lower, ADAPTIVE_LEN_MAX);
            best = best.min((self.cost_of(len), len));
        };
        for bin in self.histogram.filled() {
            (1..=PARTS_MAX).for_each(|parts| consider(outlook(&bin).div_ceil(parts)));
        }
        let mut len = self.lower;
        while len < ADAPTIVE_LEN_MAX {
            consider(len);
            // Eight steps from one power of two to the next.
            len += (1 << len.ilog2() >> 3).max(BUFFER_ALIGN);
        }
        let is_new = self.len != best.1 || self.histogram.filled().any(|bin| bin.growth() > 0);
        self.len = best.1;
        self.histogram.mark_compared();
        is_new
    }

    /// The cost of the packets in the histogram in buffers of `len` bytes, times [`SHARES`].
    fn cost_of(&self, len: u32) -> u64 {
        let sum: u64 = self
            .histogram
            .filled()
            .map(|bin| u64::from(bin.count) * buffers_of(bin.shortest, outlook(&bin), len))
            .sum();
        sum * u64::from(len + ENTRY_COST_BYTES)
    }
}

/// The longest packet of a bin until the next comparison: a growing one goes on growing.
fn outlook(bin: &Bin) -> u32 {
    bin.longest + 2 * bin.growth()
}

/// Buffers of `len` bytes that packets take on average, times [`SHARES`], when they lie evenly
/// between `shortest` and `longest`.
fn buffers_of(shortest: u32, longest: u32, len: u32) -> u64 {
    let (few, many) = (buffers_for(shortest, len), buffers_for(longest, len));
    match many - few {
        0 => u64::from(SHARES * few),
        1 => {
            let longer = longest - few * len;
            u64::from(SHARES * few + (SHARES * longer).div_ceil(longest - shortest))
        }
        _ => u64::from(SHARES / 2 * (few + many)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet_cost;
    use super::*;

    fn fed(packets: impl IntoIterator<Item = u32>) -> Adaptive {
        let mut adaptive = Adaptive::new(12, 256);
        packets.into_iter().for_each(|len| adaptive.on_packet(len));
        adaptive
    }

    #[test]
    fn one_kind_of_packet_gets_buffers_that_fit() {
        let fitting = [(64, 320), (1514, 1536), (9014, 9088), (65_226, 65_280), (65_536, 65_600)];
        for (packet, len) in fitting {
            assert_eq!(fed([packet; 200]).next_len(), len, "{packet}");
        }
    }

    #[test]
    fn a_change_is_noticed_within_a_few_packets() {
        let mut adaptive = fed([64; 1000]);
        (0..8).for_each(|_| adaptive.on_packet(65_226));
        assert_eq!(adaptive.next_len(), 65_280);
    }

    #[test]
    fn counting_what_comes_again_costs_no_memory() {
        let mut random = 1u64;
        let mut below = |limit: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            u32::try_from((random >> 33) % limit).unwrap_or(0)
        };
        let (mut counting, mut looking) = (Adaptive::new(12, 256), Adaptive::new(12, 256));
        let mut costs = [0; 2];
        for _ in 0..2000 {
            let len = [64, 66, 1514, 4000, 65_226][below(5) as usize] + below(2);
            for _ in 0..1 << below(9) {
                counting.on_packet(len);
                looking.on_packet(len);
                (looking.repeats_max, looking.repeats_left) = (0, 0);
                costs[0] += packet_cost(12 + len, counting.next_len());
                costs[1] += packet_cost(12 + len, looking.next_len());
            }
        }
        assert!(costs[0] * 100 <= costs[1] * 101, "{costs:?}");
    }

    #[test]
    fn a_steady_stream_is_compared_seldom_until_it_changes() {
        let mut adaptive = fed([1514; 5000]);
        assert_eq!(adaptive.distance, COMPARE_SELDOM);
        (0..64).for_each(|at| adaptive.on_packet([64, 65_226][at % 2]));
        assert!(adaptive.distance <= COMPARE_EVERY);
    }

    #[test]
    fn small_rings_need_longer_buffers() {
        assert_eq!(Adaptive::new(12, 256).len_min(), 320);
        assert_eq!(Adaptive::new(12, 1).len_min(), ADAPTIVE_LEN_MAX);
    }
}
