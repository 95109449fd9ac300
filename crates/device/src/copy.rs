//! The one copy of a packet: from piece to piece, whatever the pieces are on either side, or out of
//! private memory.

use ringway_virtq::SharedSlice;

/// The one copy of a packet: from the sender's memory into the receiver's, behind `skip` bytes.
/// `false`: it is longer.
#[inline]
pub(crate) fn copy(from: &[SharedSlice], to: &[SharedSlice], skip: usize) -> bool {
    if let (&[piece], Some(room)) = (from, to.first())
        && let Some(room) = room.slice(skip, piece.len())
    {
        piece.copy_to(room);
        return true;
    }
    copy_pieces(from, to, skip)
}

/// The same from several pieces, or into several.
fn copy_pieces(from: &[SharedSlice], to: &[SharedSlice], skip: usize) -> bool {
    let mut skip = skip;
    let mut rooms = to.iter().map(|room| {
        let (front, rest) = room.split_at(room.len().min(skip));
        skip -= front.len();
        rest
    });
    let mut room = SharedSlice::EMPTY;
    for &piece in from {
        let mut piece = piece;
        while !piece.is_empty() {
            if room.is_empty() {
                match rooms.next() {
                    Some(next) => room = next,
                    None => return false,
                }
            }
            let copied = piece.copy_to(room);
            piece = piece.split_at(copied).1;
            room = room.split_at(copied).1;
        }
    }
    true
}

/// Copies private bytes into the pieces. `false`: there are more.
pub(crate) fn write(bytes: &[u8], to: &[SharedSlice]) -> bool {
    let mut rest = bytes;
    for room in to {
        let (now, behind) = rest.split_at(room.len().min(rest.len()));
        room.write(0, now);
        rest = behind;
    }
    rest.is_empty()
}
