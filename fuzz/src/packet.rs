//! What a guest writes in front of its packets and into its controlq.

use ringway_net::{
    ControlState, Features, HEADER_LEN, MacAddress, NEEDS_CSUM, Negotiated, NetHeader, answer,
};

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

/// Any command.
pub(crate) fn control(data: &[u8]) {
    let Ok(negotiated) = Negotiated::new(Features::OFFERED) else { return };
    let mut state = ControlState::new(MacAddress::ZERO, &negotiated);
    let _ = answer(data, &mut state, &negotiated);
    assert!(!state.mac.is_multicast(), "a multicast address was taken as the guest's own");
    assert!(Features::OFFERED.contains(state.guest_offloads), "an offload nobody negotiated");
}
