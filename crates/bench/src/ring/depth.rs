//! How deep the limit's ring is: as deep as makes it fastest, here and now.
//!
//! How: what a core has written and the other one reads comes quicker from the cache that both share
//! than from the writer's own. So a ring that does not fit into the writer's own can be several times as
//! fast as one that does; for short packets, or on another machine, it is the other way round. Nobody
//! can know: each depth is tried, in turns, right before the rows that are compared with the limit.
//!
//! Limits: three depths; a machine that changes between the trial and the row may have liked another one.

use super::run::{Direction, Row, Setup};

/// Bytes in flight that are tried: what fits a core's second-level cache beside everything else, and
/// what does not.
const BYTES: [u64; 2] = [512 * 1024, 4 * 1024 * 1024];

/// How often each depth is tried.
const ROUNDS: usize = 2;

/// Slots begin at lines, so that two packets never share one.
const SLOT_ALIGN: u64 = 64;

/// Bytes from one slot to the next.
pub(super) fn slot_len(packet_len: usize) -> u64 {
    (packet_len as u64).next_multiple_of(SLOT_ALIGN)
}

/// The depths to try, in packets, all powers of two: that of the rows' queues, and what [`BYTES`] hold.
pub(super) fn depths(packet_len: usize, queue_size: u16) -> Vec<u64> {
    let holding = BYTES.map(|bytes| 1 << (bytes / slot_len(packet_len)).max(2).ilog2());
    let mut depths = [&[u64::from(queue_size)][..], &holding].concat();
    depths.sort_unstable();
    depths.dedup();
    depths
}

/// The depth at which the limit is fastest now.
///
/// # Errors
/// As [`Setup::throughput`].
pub(super) fn fastest(setup: &Setup<'_>, direction: Direction) -> anyhow::Result<u64> {
    let depths = depths(setup.packet_len, setup.queue_size);
    if let [only] = depths[..] {
        return Ok(only);
    }
    let mut packets = vec![0.0; depths.len()];
    for _ in 0..ROUNDS {
        for (packets, &limit_depth) in packets.iter_mut().zip(&depths) {
            let limit = Setup { row: Row::Limit, limit_depth, ..*setup };
            *packets += limit.throughput(direction)?.packets_per_second;
        }
    }
    let all = packets.iter().zip(&depths);
    let best = all.max_by(|one, other| one.0.total_cmp(other.0));
    Ok(best.map_or(u64::from(setup.queue_size), |(_, &depth)| depth))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_beyond_a_core_s_cache_are_tried() {
        assert_eq!(depths(64, 256), [256, 8192, 65_536]);
        assert_eq!(depths(1518, 256), [256, 2048]);
        assert_eq!(depths(65_536, 256), [8, 64, 256]);
    }
}
