//! The header codec and its check, over all bytes there are.

use proptest::prelude::*;
use ringway_net::{
    DATA_VALID, GSO_ECN, GsoType, HeaderError, HeaderHash, NEEDS_CSUM, NetHeader, PACKET_LEN_MAX,
};

/// Any header; the fields that decide are drawn from values that matter more often than chance.
fn header() -> impl Strategy<Value = NetHeader> {
    let flags = prop_oneof![0_u8..4, any::<u8>()];
    let gso_type = prop_oneof![0_u8..6, 0x80_u8..0x86, any::<u8>()];
    let offset = || prop_oneof![0_u16..100, any::<u16>()];
    let size = prop_oneof![Just(0_u16), any::<u16>()];
    (flags, gso_type, any::<u16>(), size, offset(), offset(), any::<u16>()).prop_map(
        |(flags, gso_type, hdr_len, gso_size, csum_start, csum_offset, num_buffers)| NetHeader {
            flags,
            gso_type,
            hdr_len,
            gso_size,
            csum_start,
            csum_offset,
            num_buffers,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_survive_the_round_trip(bytes: [u8; 12]) {
        prop_assert_eq!(NetHeader::decode(&bytes).encode(), bytes);
    }

    #[test]
    fn legacy_bytes_survive_the_round_trip(bytes: [u8; 10]) {
        let header = NetHeader::decode_legacy(&bytes);
        prop_assert_eq!(&header.encode_any()[..10], &bytes);
        prop_assert_eq!(header.num_buffers, 1);
    }

    #[test]
    fn hash_survives_the_round_trip(header in header(), value: u32, report: u16) {
        let hash = HeaderHash { value, report };
        let bytes = header.encode_hash(hash);
        prop_assert_eq!(NetHeader::decode_hash(&bytes), (header, hash));
        prop_assert_eq!(&bytes[18..], &[0, 0], "no uninitialised bytes reach the guest");
    }

    #[test]
    fn the_usual_header_is_the_start_of_the_longest(header in header()) {
        let longest = header.encode_any();
        prop_assert_eq!(&longest[..12], &header.encode()[..]);
    }

    /// Properties that a receiver relies on behind the check.
    #[test]
    fn a_checked_header_fits_its_packet(header in header(), len in 0..=PACKET_LEN_MAX) {
        if header.check(len).is_err() {
            return Ok(());
        }
        if header.needs_csum() {
            let at = usize::from(header.csum_start) + usize::from(header.csum_offset);
            prop_assert!(at + 2 <= len as usize);
        }
        let gso = header.gso();
        prop_assert!(gso.is_some());
        if gso != Some(GsoType::None) {
            prop_assert!(header.needs_csum() && header.gso_size > 0);
        }
        if header.ecn() {
            prop_assert!(matches!(gso, Some(GsoType::TcpV4 | GsoType::TcpV6)));
        }
    }

    /// Fields without meaning may hold anything: drivers leave rubbish in them.
    #[test]
    fn a_plain_packet_passes_whatever_else_the_header_says(header in header(), len: u32) {
        let plain = NetHeader { flags: header.flags & !NEEDS_CSUM, gso_type: 0, ..header };
        prop_assert_eq!(plain.check(len), Ok(()));
    }
}

/// The header that Linux sends for TCP over IPv4 with a checksum to complete.
const TCP4: NetHeader = NetHeader {
    flags: NEEDS_CSUM,
    gso_type: 1,
    hdr_len: 66,
    gso_size: 1448,
    csum_start: 34,
    csum_offset: 16,
    num_buffers: 0,
};
const TCP4_LEN: u32 = 66 + 3 * 1448;

#[test]
fn headers_of_real_drivers_pass() {
    let csum_only = NetHeader { gso_type: 0, gso_size: 0, hdr_len: 0, ..TCP4 };
    let tcp6 = NetHeader { gso_type: 4, csum_start: 54, ..TCP4 };
    let passing = [
        (NetHeader::default(), 0),
        (NetHeader { flags: DATA_VALID, ..NetHeader::default() }, 60),
        (TCP4, TCP4_LEN),
        (NetHeader { gso_type: 1 | GSO_ECN, ..TCP4 }, TCP4_LEN),
        (tcp6, TCP4_LEN),
        (csum_only, 60),
        // A hint that is wrong in both directions.
        (NetHeader { hdr_len: 0, ..TCP4 }, TCP4_LEN),
        (NetHeader { hdr_len: u16::MAX, ..TCP4 }, TCP4_LEN),
        // Less payload than one segment; flags from the future.
        (NetHeader { gso_size: u16::MAX, ..TCP4 }, TCP4_LEN),
        (NetHeader { flags: NEEDS_CSUM | 0xf0, ..TCP4 }, TCP4_LEN),
    ];
    for (header, len) in passing {
        assert_eq!(header.check(len), Ok(()), "{header:?} in {len} bytes");
    }
}

#[test]
fn each_lie_has_its_error() {
    let lies = [
        (NetHeader { gso_type: 2, ..TCP4 }, HeaderError::GsoType),
        (NetHeader { gso_type: 6, ..TCP4 }, HeaderError::GsoType),
        (NetHeader { gso_type: 0x7f, ..TCP4 }, HeaderError::GsoType),
        (NetHeader { gso_type: GSO_ECN, ..TCP4 }, HeaderError::Ecn),
        (NetHeader { gso_type: 5 | GSO_ECN, ..TCP4 }, HeaderError::Ecn),
        (NetHeader { flags: DATA_VALID, ..TCP4 }, HeaderError::GsoWithoutCsum),
        (NetHeader { gso_size: 0, ..TCP4 }, HeaderError::GsoSizeZero),
        (NetHeader { flags: 0, gso_size: 0, ..TCP4 }, HeaderError::GsoSizeZero),
        (NetHeader { csum_start: u16::MAX, ..TCP4 }, HeaderError::CsumOutside),
        (NetHeader { csum_offset: u16::MAX, ..TCP4 }, HeaderError::CsumOutside),
        // In 16 bits these would add up to 0.
        (NetHeader { csum_start: 0xffff, csum_offset: 1, ..TCP4 }, HeaderError::CsumOutside),
    ];
    for (header, error) in lies {
        assert_eq!(header.check(TCP4_LEN), Err(error), "{header:?}");
    }
}

#[test]
fn the_checksum_may_be_the_last_two_bytes() {
    let header = NetHeader { gso_type: 0, csum_start: 34, csum_offset: 16, ..TCP4 };
    assert_eq!(header.check(52), Ok(()));
    assert_eq!(header.check(51), Err(HeaderError::CsumOutside));
}
