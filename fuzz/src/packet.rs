//! A guest's writes in front of its packets, into them, and into its controlq.

use ringway_net::offload::{SEGMENTS_MAX, complete};
use ringway_net::{
    CONTROL_LEN_MAX, ControlState, Features, HEADER_LEN, MacAddress, NEEDS_CSUM, Negotiated,
    NetHeader, answer, copy_command,
};
use ringway_testkit::Rng;
use ringway_testkit::unsegmented::Unsegmented;

/// Most bytes that are changed in a good packet.
const CHANGES_MAX: usize = 16;

/// Any header against any packet length.
pub(crate) fn header(data: &[u8]) {
    let Some((bytes, rest)) = data.split_first_chunk::<HEADER_LEN>() else { return };
    let header = NetHeader::decode(bytes);
    assert_eq!(&header.encode(), bytes);
    let len = rest.first_chunk::<4>().map_or(0, |len| u32::from_le_bytes(*len));
    if header.check(len).is_ok() && header.flags & NEEDS_CSUM != 0 {
        let end = u32::from(header.csum_start) + u32::from(header.csum_offset) + 2;
        assert!(end <= len, "a checksum outside the packet was accepted");
    }
}

/// Any packet with any header, to be completed: as it is, and as changes of a good one.
pub(crate) fn completion(data: &[u8]) {
    let Some((&how, rest)) = data.split_first() else { return };
    let accepts_csum = how & 1 != 0;
    if how & 2 != 0 {
        let Some((header, packet)) = rest.split_first_chunk::<HEADER_LEN>() else { return };
        return complete_all(&NetHeader::decode(header), packet.to_vec(), accepts_csum);
    }
    let Some((seed, changes)) = rest.split_first_chunk::<2>() else { return };
    let mut rng = Rng::new(u64::from(u16::from_le_bytes(*seed)));
    let (header, packet) = Unsegmented::random(&mut rng, 8).build();
    let mut bytes = [&header.encode()[..], &packet].concat();
    for change in changes.chunks_exact(3).take(CHANGES_MAX) {
        let at = usize::from(change[0]) % bytes.len();
        bytes[at] = if change[1] & 1 != 0 { change[2] } else { bytes[at] ^ change[2] };
    }
    if let Some((header, packet)) = bytes.split_first_chunk::<HEADER_LEN>() {
        complete_all(&NetHeader::decode(header), packet.to_vec(), accepts_csum);
    }
}

fn complete_all(header: &NetHeader, mut packet: Vec<u8>, accepts_csum: bool) {
    let len = packet.len();
    let Ok(mut segments) = complete(header, &mut packet, accepts_csum) else { return };
    let count = segments.count();
    assert!((1..=SEGMENTS_MAX).contains(&count));
    let mut cut = 0;
    while let Some(segment) = segments.cut() {
        cut += 1;
        assert!(segment.bytes.len() <= len, "a segment is longer than the packet");
        assert!(segment.header.gso_type == 0 && (accepts_csum || !segment.header.needs_csum()));
    }
    assert_eq!(cut, count);
}

/// Any command; a copy of it means the same.
pub(crate) fn control(data: &[u8]) {
    let Ok(negotiated) = Negotiated::new(Features::OFFERED) else { return };
    let mut state = ControlState::new(MacAddress::ZERO, &negotiated);
    let read = |at: usize, into: &mut [u8]| into.copy_from_slice(&data[at..][..into.len()]);
    let mut copy = [0; CONTROL_LEN_MAX];
    if let Some(len) = copy_command(data.len(), read, &mut copy) {
        let answered = answer(data, &mut state.clone(), &negotiated);
        assert_eq!(answer(&copy[..len], &mut state, &negotiated), answered);
    }
    assert!(!state.mac.is_multicast(), "a multicast address was taken as the guest's own");
    assert!(Features::OFFERED.contains(state.guest_offloads), "an offload that was not negotiated");
}
