//! A bridge, a VXLAN device and a tap for each network, and EVPN routes by FRR (RFC 8365).
//!
//! The bridge learns from the tap. FRR tells the other hosts what it has learned, and puts what
//! they have learned into the VXLAN device, which learns nothing itself.

use super::{FrrArgs, Given, Network};
use crate::places::WIDE_SERVICE;

/// Bytes that VXLAN over IPv4 puts in front of a packet.
const VXLAN_LEN: u16 = 50;

pub(super) fn given(args: &FrrArgs) -> Given {
    let of_networks = args.networks.iter().flat_map(|network| commands(args, *network));
    let port = |Network { vlan, .. }: &Network| {
        format!("up{vlan}=tap:up{vlan},vlan={vlan},uplink=on,fdb=sync,neighbours=sync")
    };
    Given {
        commands: own_address(args).into_iter().chain(of_networks).collect(),
        rights: WIDE_SERVICE.to_owned(),
        bgpd: bgpd(args),
        ports: args.networks.iter().map(port).collect(),
        mtu: args.underlay_mtu - VXLAN_LEN,
    }
}

/// The other hosts know this one by its loopback address, and BGP takes no default route to them.
fn own_address(FrrArgs { address, peers, via, underlay, .. }: &FrrArgs) -> Vec<String> {
    let via = via.map(|via| format!("via {via} ")).unwrap_or_default();
    let route = |peer| format!("ip route replace {peer}/32 {via}dev {underlay} src {address}");
    let own = format!("ip address replace {address}/32 dev lo");
    std::iter::once(own).chain(peers.iter().map(route)).collect()
}

/// The tap is made here, so that it stays in its bridge when ringway is started again; it belongs
/// to the user as whom that runs.
fn commands(args: &FrrArgs, Network { vlan, vni }: Network) -> Vec<String> {
    let FrrArgs { address, underlay, user, .. } = args;
    let lines = [
        format!("ip link add br{vlan} type bridge stp_state 0 forward_delay 0 mcast_snooping 0"),
        format!(
            "ip link add vxlan{vlan} type vxlan id {vni} dstport 4789 local {address} \
             dev {underlay} nolearning"
        ),
        format!("ip link set vxlan{vlan} master br{vlan}"),
        format!("bridge link set dev vxlan{vlan} learning off neigh_suppress on"),
        format!("ip tuntap add dev up{vlan} mode tap vnet_hdr user {user}"),
        format!("ip link set up{vlan} master br{vlan}"),
        format!("ip link set br{vlan} up"),
        format!("ip link set vxlan{vlan} up"),
        format!("ip link set up{vlan} up"),
    ];
    lines.to_vec()
}

fn bgpd(args: &FrrArgs) -> String {
    let FrrArgs { address, peers, system, .. } = args;
    let each = |line: &str| -> String {
        peers.iter().map(|peer| line.replace("PEER", &peer.to_string())).collect()
    };
    let session = each(&format!(
        " neighbor PEER remote-as {system}\n neighbor PEER update-source {address}\n \
         neighbor PEER advertisement-interval 0\n"
    ));
    let family = each("  neighbor PEER activate\n");
    format!(
        "router bgp {system}\n bgp router-id {address}\n no bgp default ipv4-unicast\n{session} \
         address-family l2vpn evpn\n{family}  advertise-all-vni\n exit-address-family\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_switch::VlanId;

    #[test]
    fn each_network_and_each_peer_is_there() {
        let network = |vlan, vni| Network { vlan: VlanId::new(vlan).expect("a VLAN"), vni };
        let args = FrrArgs {
            address: [10, 0, 0, 1].into(),
            peers: vec![[10, 0, 0, 8].into(), [10, 0, 0, 9].into()],
            networks: vec![network(10, 10_010), network(4094, 7)],
            via: Some([192, 0, 2, 1].into()),
            underlay: "eth1".to_string(),
            underlay_mtu: 9000,
            system: 65_001,
            user: "ringway".to_string(),
            json: false,
        };
        let given = given(&args);
        assert_eq!(given.mtu, 8950);
        assert_eq!(
            given.ports[1],
            "up4094=tap:up4094,vlan=4094,uplink=on,fdb=sync,neighbours=sync"
        );
        let [own, way, ..] = &given.commands[..] else { panic!("{:?}", given.commands) };
        assert_eq!(own, "ip address replace 10.0.0.1/32 dev lo");
        assert_eq!(way, "ip route replace 10.0.0.8/32 via 192.0.2.1 dev eth1 src 10.0.0.1");
        let tap = "ip tuntap add dev up10 mode tap vnet_hdr user ringway";
        assert!(given.commands.iter().any(|it| it == tap), "{:?}", given.commands);
        let vxlan = "ip link add vxlan10 type vxlan id 10010 dstport 4789 local 10.0.0.1 \
                     dev eth1 nolearning";
        assert!(given.commands.contains(&vxlan.to_string()), "{:?}", given.commands);
        for line in [
            "router bgp 65001\n bgp router-id 10.0.0.1\n",
            " neighbor 10.0.0.8 remote-as 65001\n neighbor 10.0.0.8 update-source 10.0.0.1\n",
            " address-family l2vpn evpn\n  neighbor 10.0.0.8 activate\n  neighbor 10.0.0.9 act",
        ] {
            assert!(given.bgpd.contains(line), "{line} in\n{}", given.bgpd);
        }
        let text = given.text().expect("ports");
        for line in given.bgpd.lines().chain(given.commands.iter().map(String::as_str)) {
            assert!(text.contains(line), "{line}");
        }
        for part in [
            "/usr/share/ringway/wide.conf",
            "[port.up10]\ntap = \"up10\"\n",
            "neighbours = \"sync\"\n",
            "\nringway port add up4094=tap:up4094,vlan=4094,",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }

    #[test]
    fn networks_are_numbers_that_there_are() {
        assert_eq!("10=10010".parse::<Network>().map(|it| it.vni), Ok(10_010));
        for text in ["10", "0=1", "4095=1", "1=0", "1=16777216", "a=b"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
