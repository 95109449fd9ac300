//! Reading a packet that lies in pieces.

use proptest::prelude::*;
use ringway_net::{ETHERNET_HEADER_LEN, MacAddress, NetHeader, Packet, destination, source};
use ringway_virtq::SharedSlice;

/// Shares each piece; lent to `test` only, which must not keep any.
fn with_packet(pieces: &mut [Vec<u8>], test: impl FnOnce(&Packet<'_>)) {
    let payload: Vec<SharedSlice> = pieces
        .iter_mut()
        .filter(|piece| !piece.is_empty())
        // SAFETY: the pieces outlive this function, in which alone the slices are used, and are
        // borrowed mutably for that long.
        .map(|piece| unsafe { SharedSlice::new(piece.as_mut_ptr(), piece.len()) })
        .collect();
    let len = payload.iter().map(|piece| piece.len()).sum::<usize>();
    let len = u32::try_from(len).unwrap();
    test(&Packet { header: &NetHeader::ZERO, payload: &payload, len });
}

#[test]
fn addresses_are_where_ethernet_puts_them() {
    let mut pieces = vec![(0..14).collect::<Vec<u8>>(), vec![0xaa; 50]];
    with_packet(&mut pieces, |packet| {
        let header = packet.ethernet_header().unwrap();
        assert_eq!(destination(&header), MacAddress([0, 1, 2, 3, 4, 5]));
        assert_eq!(source(&header), MacAddress([6, 7, 8, 9, 10, 11]));
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn copies_across_pieces(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..6),
        wanted in 0_usize..60,
        changed in 0..ETHERNET_HEADER_LEN,
    ) {
        let flat = pieces.concat();
        let mut pieces = pieces;
        with_packet(&mut pieces, |packet| {
            let mut into = vec![0x55; wanted];
            let copied = packet.copy_out(&mut into);
            assert_eq!(copied, wanted.min(flat.len()));
            assert_eq!(into[..copied], flat[..copied]);
            assert!(into[copied..].iter().all(|byte| *byte == 0x55), "the rest is untouched");
            let header = packet.ethernet_header();
            let expected = flat.first_chunk::<ETHERNET_HEADER_LEN>();
            assert_eq!(header.as_ref(), expected);
            let mut header = expected.copied().unwrap_or_default();
            assert_eq!(packet.begins_with(&header), expected.is_some());
            header[changed] ^= 1;
            assert!(!packet.begins_with(&header));
        });
    }
}
