//! Every constant and every offset against the C headers of the Linux kernel.

use std::mem::{offset_of, size_of};

use ringway_net::{
    Ack, CONFIG_LEN, ControlState, DATA_VALID, Features, GSO_ECN, GsoType, HEADER_LEN,
    HEADER_LEN_HASH, HEADER_LEN_LEGACY, HeaderHash, MacAddress, NEEDS_CSUM, Negotiated, NetConfig,
    NetHeader, answer,
};
use virtio_bindings::{virtio_config as config, virtio_net as net, virtio_ring as ring};

/// Bits that the headers of this version of the bindings do not name, from the specifications.
const VIRTIO_NET_F_HASH_TUNNEL: u32 = 51;
const VHOST_F_LOG_ALL: u32 = 26;
const VHOST_USER_F_PROTOCOL_FEATURES: u32 = 30;

const BITS: [(Features, u32); 53] = [
    (Features::CSUM, net::VIRTIO_NET_F_CSUM),
    (Features::GUEST_CSUM, net::VIRTIO_NET_F_GUEST_CSUM),
    (Features::CTRL_GUEST_OFFLOADS, net::VIRTIO_NET_F_CTRL_GUEST_OFFLOADS),
    (Features::MTU, net::VIRTIO_NET_F_MTU),
    (Features::MAC, net::VIRTIO_NET_F_MAC),
    (Features::GSO, net::VIRTIO_NET_F_GSO),
    (Features::GUEST_TSO4, net::VIRTIO_NET_F_GUEST_TSO4),
    (Features::GUEST_TSO6, net::VIRTIO_NET_F_GUEST_TSO6),
    (Features::GUEST_ECN, net::VIRTIO_NET_F_GUEST_ECN),
    (Features::GUEST_UFO, net::VIRTIO_NET_F_GUEST_UFO),
    (Features::HOST_TSO4, net::VIRTIO_NET_F_HOST_TSO4),
    (Features::HOST_TSO6, net::VIRTIO_NET_F_HOST_TSO6),
    (Features::HOST_ECN, net::VIRTIO_NET_F_HOST_ECN),
    (Features::HOST_UFO, net::VIRTIO_NET_F_HOST_UFO),
    (Features::MRG_RXBUF, net::VIRTIO_NET_F_MRG_RXBUF),
    (Features::STATUS, net::VIRTIO_NET_F_STATUS),
    (Features::CTRL_VQ, net::VIRTIO_NET_F_CTRL_VQ),
    (Features::CTRL_RX, net::VIRTIO_NET_F_CTRL_RX),
    (Features::CTRL_VLAN, net::VIRTIO_NET_F_CTRL_VLAN),
    (Features::CTRL_RX_EXTRA, net::VIRTIO_NET_F_CTRL_RX_EXTRA),
    (Features::GUEST_ANNOUNCE, net::VIRTIO_NET_F_GUEST_ANNOUNCE),
    (Features::MQ, net::VIRTIO_NET_F_MQ),
    (Features::CTRL_MAC_ADDR, net::VIRTIO_NET_F_CTRL_MAC_ADDR),
    (Features::NOTIFY_ON_EMPTY, config::VIRTIO_F_NOTIFY_ON_EMPTY),
    (Features::LOG_ALL, VHOST_F_LOG_ALL),
    (Features::ANY_LAYOUT, config::VIRTIO_F_ANY_LAYOUT),
    (Features::INDIRECT_DESC, ring::VIRTIO_RING_F_INDIRECT_DESC),
    (Features::EVENT_IDX, ring::VIRTIO_RING_F_EVENT_IDX),
    (Features::PROTOCOL_FEATURES, VHOST_USER_F_PROTOCOL_FEATURES),
    (Features::VERSION_1, config::VIRTIO_F_VERSION_1),
    (Features::ACCESS_PLATFORM, config::VIRTIO_F_ACCESS_PLATFORM),
    (Features::RING_PACKED, config::VIRTIO_F_RING_PACKED),
    (Features::IN_ORDER, config::VIRTIO_F_IN_ORDER),
    (Features::ORDER_PLATFORM, config::VIRTIO_F_ORDER_PLATFORM),
    (Features::SR_IOV, config::VIRTIO_F_SR_IOV),
    (Features::NOTIFICATION_DATA, config::VIRTIO_F_NOTIFICATION_DATA),
    (Features::NOTIF_CONFIG_DATA, config::VIRTIO_F_NOTIF_CONFIG_DATA),
    (Features::RING_RESET, config::VIRTIO_F_RING_RESET),
    (Features::ADMIN_VQ, config::VIRTIO_F_ADMIN_VQ),
    (Features::DEVICE_STATS, net::VIRTIO_NET_F_DEVICE_STATS),
    (Features::HASH_TUNNEL, VIRTIO_NET_F_HASH_TUNNEL),
    (Features::VQ_NOTF_COAL, net::VIRTIO_NET_F_VQ_NOTF_COAL),
    (Features::NOTF_COAL, net::VIRTIO_NET_F_NOTF_COAL),
    (Features::GUEST_USO4, net::VIRTIO_NET_F_GUEST_USO4),
    (Features::GUEST_USO6, net::VIRTIO_NET_F_GUEST_USO6),
    (Features::HOST_USO, net::VIRTIO_NET_F_HOST_USO),
    (Features::HASH_REPORT, net::VIRTIO_NET_F_HASH_REPORT),
    (Features::GUEST_HDRLEN, net::VIRTIO_NET_F_GUEST_HDRLEN),
    (Features::RSS, net::VIRTIO_NET_F_RSS),
    (Features::RSC_EXT, net::VIRTIO_NET_F_RSC_EXT),
    (Features::STANDBY, net::VIRTIO_NET_F_STANDBY),
    (Features::SPEED_DUPLEX, net::VIRTIO_NET_F_SPEED_DUPLEX),
    // The same bit under its old name.
    (Features::ACCESS_PLATFORM, config::VIRTIO_F_IOMMU_PLATFORM),
];

#[test]
fn every_feature_has_the_bit_of_the_headers() {
    for (feature, bit) in BITS {
        assert_eq!(feature.bits(), 1 << bit, "{feature}");
    }
    let checked = BITS.iter().fold(Features::empty(), |set, (feature, _)| set | *feature);
    assert_eq!(checked, Features::all(), "every feature is in the table");
}

#[test]
fn header_constants() {
    assert_eq!(u32::from(NEEDS_CSUM), net::VIRTIO_NET_HDR_F_NEEDS_CSUM);
    assert_eq!(u32::from(DATA_VALID), net::VIRTIO_NET_HDR_F_DATA_VALID);
    assert_eq!(u32::from(GSO_ECN), net::VIRTIO_NET_HDR_GSO_ECN);
    let raw = GsoType::ALL.map(|gso| u32::from(gso.raw()));
    let expected = [
        net::VIRTIO_NET_HDR_GSO_NONE,
        net::VIRTIO_NET_HDR_GSO_TCPV4,
        net::VIRTIO_NET_HDR_GSO_UDP,
        net::VIRTIO_NET_HDR_GSO_TCPV6,
        net::VIRTIO_NET_HDR_GSO_UDP_L4,
    ];
    assert_eq!(raw, expected);
}

#[test]
fn header_lengths_and_offsets() {
    assert_eq!(HEADER_LEN_LEGACY, size_of::<net::virtio_net_hdr>());
    assert_eq!(HEADER_LEN, size_of::<net::virtio_net_hdr_mrg_rxbuf>());
    assert_eq!(HEADER_LEN, size_of::<net::virtio_net_hdr_v1>());
    assert_eq!(HEADER_LEN_HASH, size_of::<net::virtio_net_hdr_v1_hash>());
    let offsets = [
        offset_of!(net::virtio_net_hdr, flags),
        offset_of!(net::virtio_net_hdr, gso_type),
        offset_of!(net::virtio_net_hdr, hdr_len),
        offset_of!(net::virtio_net_hdr, gso_size),
        offset_of!(net::virtio_net_hdr, csum_start),
        offset_of!(net::virtio_net_hdr, csum_offset),
        offset_of!(net::virtio_net_hdr_v1, num_buffers),
        offset_of!(net::virtio_net_hdr_v1_hash, hash_value),
        offset_of!(net::virtio_net_hdr_v1_hash, hash_report),
    ];
    let header = NetHeader {
        flags: 1,
        gso_type: 2,
        hdr_len: 3,
        gso_size: 4,
        csum_start: 5,
        csum_offset: 6,
        num_buffers: 7,
    };
    let bytes = header.encode_hash(HeaderHash { value: 8, report: 9 });
    assert_eq!(offsets.map(|at| bytes[at]), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn config_length_and_offsets() {
    assert_eq!(CONFIG_LEN, size_of::<net::virtio_net_config>());
    let mac = MacAddress([1, 2, 3, 4, 5, 6]);
    let bytes =
        NetConfig { mac, link_up: true, announce: true, max_queue_pairs: 7, mtu: 8 }.encode();
    let at = offset_of!(net::virtio_net_config, mac);
    assert_eq!(bytes[at..at + 6], mac.0);
    let at = offset_of!(net::virtio_net_config, status);
    let status = net::VIRTIO_NET_S_LINK_UP | net::VIRTIO_NET_S_ANNOUNCE;
    assert_eq!(u32::from(bytes[at]), status);
    assert_eq!(bytes[offset_of!(net::virtio_net_config, max_virtqueue_pairs)], 7);
    assert_eq!(bytes[offset_of!(net::virtio_net_config, mtu)], 8);
    let at = offset_of!(net::virtio_net_config, speed);
    assert_eq!(bytes[at..at + 4], u32::MAX.to_le_bytes(), "speed is not known");
    assert_eq!(bytes[offset_of!(net::virtio_net_config, duplex)], 0xff, "duplex is not known");
    let at = offset_of!(net::virtio_net_config, rss_max_key_size);
    assert_eq!(bytes[at], 40, "bytes of a key");
    let at = offset_of!(net::virtio_net_config, rss_max_indirection_table_length);
    assert_eq!(bytes[at..at + 2], 128u16.to_le_bytes());
    let at = offset_of!(net::virtio_net_config, supported_hash_types);
    let types = (1 << net::VIRTIO_NET_HASH_REPORT_UDPv6) - 1;
    assert_eq!(bytes[at..], u32::to_le_bytes(types), "IPv4, TCPv4, UDPv4, IPv6, TCPv6, UDPv6");
}

#[test]
fn control_constants() {
    let negotiated = Negotiated::new(Features::OFFERED).unwrap();
    let mut state = ControlState::new(MacAddress::local(1), &negotiated);
    let [class, command] = [net::VIRTIO_NET_CTRL_MAC, net::VIRTIO_NET_CTRL_MAC_ADDR_SET]
        .map(|n| u8::try_from(n).unwrap());
    let ack = answer(&[class, command, 2, 0, 0, 0, 0, 9], &mut state, &negotiated).ack;
    assert_eq!(u32::from(ack.raw()), net::VIRTIO_NET_OK);
    assert_eq!(state.mac, MacAddress([2, 0, 0, 0, 0, 9]));
    assert_eq!(u32::from(Ack::Err.raw()), net::VIRTIO_NET_ERR);
}
