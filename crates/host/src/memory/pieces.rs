//! Bytes of shared memory that lie in pieces: copied together, and apart again.

use ringway_virtq::SharedSlice;

/// Copies all of `bytes` into the pieces; `false`, and nothing copied, if they are too short.
pub(crate) fn copy_all(bytes: SharedSlice, pieces: &[SharedSlice]) -> bool {
    let room = pieces.iter().fold(0, |room: usize, piece| room.saturating_add(piece.len()));
    if room < bytes.len() {
        return false;
    }
    let mut rest = bytes;
    for &piece in pieces {
        let copied = rest.copy_to(piece);
        rest = rest.split_at(copied).1;
    }
    true
}

/// Copies the pieces one behind the other; returns how many bytes. What does not fit is left out.
pub(crate) fn gather(pieces: &[SharedSlice], into: SharedSlice) -> usize {
    let mut room = into;
    for &piece in pieces {
        let copied = piece.copy_to(room);
        room = room.split_at(copied).1;
    }
    into.len() - room.len()
}
