//! Features that may be accepted together, and what follows from them.

use proptest::prelude::*;
use ringway_net::{DATA_VALID, Features, GSO_ECN, GsoType, NEEDS_CSUM, Negotiated, NetHeader};
use ringway_virtq::Format;

/// virtio 1.2 §5.1.3.1 and what later revisions add, written down a second time.
const TABLE: &str = "\
GUEST_TSO4 accepted without GUEST_CSUM
GUEST_TSO6 accepted without GUEST_CSUM
GUEST_ECN accepted without GUEST_TSO4 or GUEST_TSO6
GUEST_UFO accepted without GUEST_CSUM
GUEST_USO4 accepted without GUEST_CSUM
GUEST_USO6 accepted without GUEST_CSUM
HOST_TSO4 accepted without CSUM
HOST_TSO6 accepted without CSUM
HOST_ECN accepted without HOST_TSO4 or HOST_TSO6
HOST_UFO accepted without CSUM
HOST_USO accepted without CSUM
CTRL_GUEST_OFFLOADS accepted without CTRL_VQ
CTRL_RX accepted without CTRL_VQ
CTRL_VLAN accepted without CTRL_VQ
CTRL_RX_EXTRA accepted without CTRL_VQ
GUEST_ANNOUNCE accepted without CTRL_VQ
MQ accepted without CTRL_VQ
CTRL_MAC_ADDR accepted without CTRL_VQ
NOTF_COAL accepted without CTRL_VQ
VQ_NOTF_COAL accepted without CTRL_VQ
DEVICE_STATS accepted without CTRL_VQ
RSS accepted without CTRL_VQ
HASH_REPORT accepted without CTRL_VQ
HASH_TUNNEL accepted without HASH_REPORT or RSS
RSC_EXT accepted without HOST_TSO4 or HOST_TSO6
";

#[test]
fn spec_5_1_3_1_each_feature_alone() {
    let mut unmet: Vec<String> = Features::all()
        .iter()
        .filter_map(|feature| feature.check_dependencies().err())
        .map(|error| error.to_string())
        .collect();
    let mut expected: Vec<&str> = TABLE.lines().collect();
    unmet.sort();
    expected.sort_unstable();
    assert_eq!(unmet, expected);
}

#[test]
fn one_of_two_alternatives_is_enough() {
    for tso in [Features::HOST_TSO4, Features::HOST_TSO6] {
        let set = Features::CSUM | tso | Features::HOST_ECN | Features::RSC_EXT;
        assert_eq!(set.check_dependencies(), Ok(()));
    }
    for tso in [Features::GUEST_TSO4, Features::GUEST_TSO6] {
        let set = Features::GUEST_CSUM | tso | Features::GUEST_ECN;
        assert_eq!(set.check_dependencies(), Ok(()));
    }
}

#[test]
fn the_offer_is_this_list() {
    let golden = "CSUM GUEST_CSUM CTRL_GUEST_OFFLOADS MTU MAC GUEST_TSO4 GUEST_TSO6 GUEST_ECN \
                  HOST_TSO4 HOST_TSO6 HOST_ECN MRG_RXBUF STATUS CTRL_VQ CTRL_RX CTRL_VLAN \
                  CTRL_RX_EXTRA GUEST_ANNOUNCE CTRL_MAC_ADDR NOTIFY_ON_EMPTY INDIRECT_DESC \
                  EVENT_IDX VERSION_1 RING_PACKED IN_ORDER VQ_NOTF_COAL NOTF_COAL GUEST_USO4 \
                  GUEST_USO6 HOST_USO GUEST_HDRLEN";
    assert_eq!(Features::OFFERED.to_string(), golden);
    assert_eq!(Features::OFFERED.names().collect::<Vec<_>>().join(" "), golden);
    assert_eq!(Features::OFFERED.check_dependencies(), Ok(()));
}

#[test]
fn bits_without_a_name_are_shown_as_numbers() {
    let features = Features::MQ | Features::from_bits_retain(1 << 4);
    assert_eq!(features.to_string(), "MQ 0x10");
}

#[test]
fn without_checksums_no_segmentation_is_left() {
    let left = (Features::OFFERED - Features::CSUM - Features::GUEST_CSUM).drop_unmet();
    let gone = "CSUM GUEST_CSUM GUEST_TSO4 GUEST_TSO6 GUEST_ECN HOST_TSO4 HOST_TSO6 HOST_ECN \
                GUEST_USO4 GUEST_USO6 HOST_USO";
    assert_eq!((Features::OFFERED - left).to_string(), gone);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn dropping_leaves_a_set_that_holds_and_takes_no_more_than_needed(bits: u64) {
        let set = Features::from_bits_retain(bits);
        let left = set.drop_unmet();
        prop_assert_eq!(left.check_dependencies(), Ok(()));
        prop_assert!(set.contains(left));
        for feature in (set - left).iter() {
            prop_assert!((left | feature).check_dependencies().is_err(), "{} was fine", feature);
        }
    }

    #[test]
    fn negotiation_refuses_exactly_what_the_check_refuses(bits: u64) {
        let set = Features::from_bits_retain(bits);
        prop_assert_eq!(Negotiated::new(set).err(), set.check_dependencies().err());
    }
}

fn negotiated(features: Features) -> Negotiated {
    Negotiated::new(features).unwrap()
}

#[test]
fn spec_5_1_6_header_length_of_every_combination() {
    let (v1, merge) = (Features::VERSION_1, Features::MRG_RXBUF);
    let hash = Features::HASH_REPORT | Features::CTRL_VQ;
    let lengths = [
        (Features::empty(), 10),
        (merge, 12),
        (v1, 12),
        (v1 | merge, 12),
        (v1 | hash, 20),
        (v1 | merge | hash, 20),
    ];
    for (features, header_len) in lengths {
        assert_eq!(negotiated(features).header_len, header_len, "{features}");
    }
}

#[test]
fn ring_options_follow_the_features() {
    let none = negotiated(Features::VERSION_1);
    assert_eq!(none.format, Format::Split);
    assert_eq!(none.options, ringway_virtq::QueueOptions::default());
    assert!(!none.mergeable && !none.ctrl_vq && !none.ctrl_mac_addr && !none.link_status);

    let all = negotiated(Features::OFFERED);
    assert_eq!(all.format, Format::Packed);
    assert!(all.options.event_idx && all.options.indirect && all.options.in_order);
    assert!(!all.options.notify_on_empty, "means nothing to packed rings");
    assert!(all.mergeable && all.ctrl_vq && all.ctrl_mac_addr && all.link_status && all.mtu);

    let split = negotiated(Features::OFFERED - Features::RING_PACKED);
    assert_eq!(split.format, Format::Split);
    assert!(split.options.notify_on_empty);
}

const PLAIN: NetHeader = NetHeader {
    flags: 0,
    gso_type: 0,
    hdr_len: 0,
    gso_size: 0,
    csum_start: 34,
    csum_offset: 16,
    num_buffers: 1,
};
const CSUM: NetHeader = NetHeader { flags: NEEDS_CSUM, ..PLAIN };

fn segmented(gso_type: u8) -> NetHeader {
    NetHeader { gso_type, gso_size: 1448, ..CSUM }
}

/// Every header, the feature with which a guest receives it, and the one with which it sends it.
fn offload_features() -> [(NetHeader, Features, Features); 6] {
    let (tcp4, tcp6) = (GsoType::TcpV4.raw(), GsoType::TcpV6.raw());
    let (ecn, host_ecn) = (Features::GUEST_ECN, Features::HOST_ECN);
    let (tso4, host_tso4) = (Features::GUEST_TSO4, Features::HOST_TSO4);
    let (tso6, host_tso6) = (Features::GUEST_TSO6, Features::HOST_TSO6);
    let uso = Features::GUEST_USO4 | Features::GUEST_USO6;
    [
        (CSUM, Features::GUEST_CSUM, Features::CSUM),
        (segmented(tcp4), tso4, host_tso4),
        (segmented(tcp6), tso6, host_tso6),
        (segmented(tcp4 | GSO_ECN), tso4 | ecn, host_tso4 | host_ecn),
        (segmented(tcp6 | GSO_ECN), tso6 | ecn, host_tso6 | host_ecn),
        (segmented(GsoType::UdpL4.raw()), uso, Features::HOST_USO),
    ]
}

#[test]
fn a_guest_receives_only_offloads_it_accepted() {
    for (header, needed, _) in offload_features() {
        assert!(negotiated(Features::OFFERED).accepts(&header), "{header:?}");
        for missing in needed.iter() {
            let without = (Features::OFFERED - missing).drop_unmet();
            assert!(!negotiated(without).accepts(&header), "{header:?} without {missing}");
        }
        let sending_only = Features::OFFERED - Features::GUEST_CSUM;
        assert!(!negotiated(sending_only.drop_unmet()).accepts(&header), "{header:?}");
    }
}

/// The header does not tell the version of IP: one version negotiated is enough for the driver to
/// expect such a packet, and too little for a device that does not look into it.
#[test]
fn unsegmented_udp_of_one_version_is_expected_and_not_accepted_blindly() {
    let header = segmented(GsoType::UdpL4.raw());
    for missing in [Features::GUEST_USO4, Features::GUEST_USO6] {
        let negotiated = negotiated(Features::OFFERED - missing);
        assert!(negotiated.expects(&header) && !negotiated.accepts(&header), "{missing}");
    }
    let neither = Features::OFFERED - Features::GUEST_USO4 - Features::GUEST_USO6;
    assert!(!negotiated(neither).expects(&header));
    for (header, needed, _) in offload_features() {
        let negotiated = negotiated((Features::OFFERED - needed).drop_unmet());
        assert!(!negotiated.expects(&header), "{header:?}");
    }
}

#[test]
fn a_guest_sends_only_offloads_it_negotiated() {
    for (header, _, needed) in offload_features() {
        assert!(negotiated(Features::OFFERED).may_send(&header), "{header:?}");
        for missing in needed.iter() {
            let without = (Features::OFFERED - missing).drop_unmet();
            assert!(!negotiated(without).may_send(&header), "{header:?} without {missing}");
        }
        let receiving_only = Features::OFFERED - Features::CSUM;
        assert!(!negotiated(receiving_only.drop_unmet()).may_send(&header), "{header:?}");
    }
}

#[test]
fn plain_packets_always_pass_and_unknown_offloads_never() {
    for features in [Features::empty(), Features::OFFERED] {
        let negotiated = negotiated(features);
        let valid = NetHeader { flags: DATA_VALID, ..PLAIN };
        for header in [PLAIN, valid] {
            assert!(negotiated.accepts(&header) && negotiated.may_send(&header));
        }
        for gso_type in [GsoType::Ufo.raw(), 2, 6, 0x7f] {
            let header = segmented(gso_type);
            assert!(!negotiated.accepts(&header) && !negotiated.may_send(&header), "{gso_type}");
        }
    }
}

#[test]
fn the_legacy_gso_bit_stands_for_all_three() {
    let legacy = negotiated(Features::CSUM | Features::GSO);
    let legacy_ones = offload_features();
    for (header, _, _) in &legacy_ones[..5] {
        assert!(legacy.may_send(header), "{header:?}");
        assert!(!legacy.accepts(header), "{header:?}");
    }
}

#[test]
fn spec_5_1_6_4_1_flags_only_for_guests_that_know_them() {
    let all = NetHeader { flags: 0xff, ..PLAIN };
    let with = negotiated(Features::VERSION_1 | Features::GUEST_CSUM);
    assert_eq!(with.to_guest(all).flags, NEEDS_CSUM | DATA_VALID);
    assert_eq!(negotiated(Features::VERSION_1).to_guest(all).flags, 0);
    assert_eq!(with.to_guest(CSUM), CSUM);
}

#[test]
fn spec_5_1_6_2_2_a_guest_vouches_for_no_checksum() {
    let all = NetHeader { flags: 0xff, num_buffers: 9, ..PLAIN };
    let header = negotiated(Features::OFFERED).from_guest(all);
    assert_eq!((header.flags, header.num_buffers), (NEEDS_CSUM, 0));
}

/// QEMU and DPDK's virtio-user keep the control queue to themselves.
#[test]
fn a_front_end_may_keep_the_control_queue_to_itself() {
    let base = Features::VERSION_1 | Features::MRG_RXBUF;
    for kept in [Features::MQ, Features::RSS, Features::HASH_REPORT] {
        let negotiated = Negotiated::of_front_end(base | kept);
        assert_eq!((negotiated.features, negotiated.ctrl_vq), (base | kept, false), "{kept}");
        let has_several = kept != Features::HASH_REPORT;
        assert_eq!(negotiated.queue_pairs(4), if has_several { 4 } else { 1 }, "{kept}");
        assert_eq!(negotiated.header_len, if has_several { 12 } else { 20 }, "{kept}");
    }
    // The device would never hear the answer, or do what no one tells it.
    let unheard = Features::GUEST_ANNOUNCE | Features::CTRL_RX | Features::HOST_TSO4;
    assert_eq!(Negotiated::of_front_end(base | unheard).features, base);
    assert_eq!(Negotiated::of_front_end(Features::all()).features, Features::all());
}
