//! Where a device continues in a packed ring that another one has used before.
//!
//! A front-end tells the position. Where the process that had the ring was killed it cannot know
//! it: QEMU tells what it was told at the last stop, or a fresh position. Started there, the device
//! would see no buffers for ever. But the ring itself shows where it stands. A device sets an
//! entry's USED flag to its wrap counter when it uses the entry, so in front of its place the flag
//! is equal to the counter, and from there on it differs; in a fresh ring none is set.
//!
//! Limits: behind the first descriptor of a used chain nothing is written, so a ring with chains
//! looks as if it changed several times, and does not show its place: then what is told is
//! believed, unless it is a fresh position. Rings whose buffers are single or indirect descriptors
//! always show it.

use crate::areas::Bound;
use crate::desc::{Descriptors, PACKED_FLAGS, USED};
use crate::table::Table;
use crate::{Broken, Format, Position, QueueSetup, Regions, SIZE_MAX, Why};

/// Where to start in a packed ring whose position in `setup` is what a front-end has told.
///
/// # Errors
/// [`Why::PositionLost`]: it was used, does not show how far, and nothing is known. Or the ring is
/// not what it must be.
pub fn position_by_ring(setup: &QueueSetup, regions: &Regions) -> Result<Position, Broken> {
    let (size, told) = (setup.size, setup.position);
    if size == 0 || size > SIZE_MAX {
        return Err(Broken(Why::BadIndex));
    }
    let parts = Bound::translate(Format::Packed, size, &setup.areas, regions)?;
    let ring = Table::new(parts.descriptor, 0, size);
    match shown(&ring, size) {
        // It may hold buffers that the device before has taken and not given back.
        Some((at, wrap)) if (at, wrap) == (told.used, told.used_wrap) => Ok(told),
        Some((at, wrap)) => {
            Ok(Position { available: at, available_wrap: wrap, used: at, used_wrap: wrap })
        }
        None if told == Position::FRESH => Err(Broken(Why::PositionLost)),
        None => Ok(told),
    }
}

/// The one place where the USED flag changes, and the wrap counter there.
fn shown(ring: &Descriptors, size: u16) -> Option<(u16, bool)> {
    let first = is_used_flag_set(ring, 0);
    let (at, wrap) = match (1..size).find(|&entry| is_used_flag_set(ring, entry) != first) {
        Some(at) => (at, first),
        // All entries were used on the lap before, or none ever.
        None => (0, !first),
    };
    (at..size).all(|entry| is_used_flag_set(ring, entry) != wrap).then_some((at, wrap))
}

fn is_used_flag_set(ring: &Descriptors, entry: u16) -> bool {
    ring.at(usize::from(entry)).load_u16(PACKED_FLAGS) & USED != 0
}
