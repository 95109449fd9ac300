//! From a socket to a guest: the kernel writes into the guest's own buffers, behind a head that is
//! written here.

use ringway_device::{AnyGuestPort, GuestPort};
use ringway_nat::{Accepts, Emit, Failure, Nat, Read};
use ringway_net::DropReason;
use ringway_virtq::{DeviceQueue, SharedSlice};

use crate::nat::calls::Vectors;
use crate::nat::socket::Socket;
use crate::port::guest_end::GuestEnd;

/// Most bytes of a frame: an Ethernet header and the longest IP packet.
pub(crate) const FRAME_LEN_MAX: u32 = 14 + 65_535;

/// The outcome of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Filled {
    /// This was read for it; so many bytes are in the guest's buffers.
    Read(Read, u32),
    /// A message was read, and put together ([`Vectors::gathered`]), that is no frame for the guest
    /// as it is: it is too long, or several.
    Long,
    /// The guest has too few buffers now.
    NoRoom,
    /// Its buffers are never enough.
    NeverFits,
    Failed(Failure),
}

/// The offloads and the frame length that a guest takes without help.
pub(crate) fn accepts(guest: &GuestEnd) -> Accepts {
    let negotiated = guest.queues.negotiated();
    Accepts {
        tso4: negotiated.guest_tso4,
        tso6: negotiated.guest_tso6,
        uso4: negotiated.guest_uso4,
        uso6: negotiated.guest_uso6,
        len_max: FRAME_LEN_MAX,
    }
}

/// A frame of a flow, straight into the guest's buffers.
pub(crate) fn fill(
    guest: &mut GuestEnd,
    emit: &mut Emit,
    socket: Option<(&mut Socket, &mut Vectors)>,
    nat: &Nat,
) -> Filled {
    match &mut guest.queues {
        AnyGuestPort::Split(queues) => fill_queue(queues, emit, socket, nat),
        AnyGuestPort::Packed(queues) => fill_queue(queues, emit, socket, nat),
    }
}

fn fill_queue<Q: DeviceQueue>(
    queues: &mut GuestPort<Q>,
    emit: &mut Emit,
    mut socket: Option<(&mut Socket, &mut Vectors)>,
    nat: &Nat,
) -> Filled {
    let GuestPort { to_guest: Some(to_guest), control_state, .. } = queues else {
        return Filled::NoRoom;
    };
    let head_len = u32::try_from(emit.head().len()).unwrap_or(u32::MAX);
    let (most, least) = lens(emit);
    // A guest with few buffers gets short frames.
    let has_room = to_guest.reserve(head_len + most).is_some();
    let room = if has_room { most } else { least };
    let Some(pieces) = to_guest.reserve(head_len + room) else {
        return if to_guest.never_fits() { Filled::NeverFits } else { Filled::NoRoom };
    };
    let read = match read(emit, pieces, &mut socket, nat) {
        Ok(Read::Bytes(read)) => read,
        Ok(Read::TooLong) => return Filled::Long,
        Ok(read) => return Filled::Read(read, 0),
        Err(why) => return Filled::Failed(why),
    };
    let Some(header) = emit.finish(read) else { return Filled::Read(Read::TooLong, 0) };
    write(pieces, emit.head());
    let len = head_len + read;
    if control_state.wants(&to_guest.reserved(&header, len)) {
        to_guest.commit(header, len);
    } else {
        to_guest.counters.count_drop(DropReason::Filtered);
    }
    Filled::Read(Read::Bytes(read), len)
}

/// Bytes behind the head: the most, and what has to fit.
fn lens(emit: &Emit) -> (u32, u32) {
    /// The longest segment of an ordinary MTU.
    const SEGMENT_LEN: u32 = 1460;
    let Some(source) = emit.source else { return (0, 0) };
    let most = source.len_max;
    // The rest of a datagram would be lost.
    let least = if source.peek_at.is_some() { SEGMENT_LEN } else { source.one_len_max };
    (most, most.min(least))
}

/// Puts the bytes that are read from the flow's socket behind the head.
pub(crate) fn read(
    emit: &mut Emit,
    pieces: &[SharedSlice],
    socket: &mut Option<(&mut Socket, &mut Vectors)>,
    nat: &Nat,
) -> Result<Read, Failure> {
    match socket {
        Some((socket, vectors)) => {
            let read = socket.read(emit, pieces, vectors)?;
            let is_there = matches!(read, Read::Bytes(_) | Read::TooLong);
            let is_known = socket.to.is_none() || !is_there || finds_flow(emit, vectors, nat);
            Ok(if is_known { read } else { Read::Stranger })
        }
        // Some frames come after the socket is closed: they have no data.
        None if emit.source.is_none() => Ok(Read::Bytes(0)),
        None => Ok(Read::Empty),
    }
}

/// A datagram at an unconnected socket may be another flow's; `false`: it is no flow's.
fn finds_flow(emit: &mut Emit, vectors: &Vectors, nat: &Nat) -> bool {
    let from = vectors.from;
    let flow = from.and_then(|from| nat.came_from(emit.flow, from));
    if let (Some(from), Some(flow)) = (from, flow) {
        emit.come_from(flow, from);
    }
    flow.is_some()
}

/// Writes the head into the first pieces.
pub(crate) fn write(pieces: &[SharedSlice], head: &[u8]) {
    let mut rest = head;
    for piece in pieces {
        let (now, later) = rest.split_at(rest.len().min(piece.len()));
        piece.write(0, now);
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
}
