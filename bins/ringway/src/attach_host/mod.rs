//! `ringway attach-host`: what a host has to be given so that its guests and those of other hosts
//! form common networks. Nothing is asked, and nothing changed: it is printed.

mod frr;

use std::net::Ipv4Addr;

use clap::{Args, Subcommand};
use ringway_switch::VlanId;
use serde::Serialize;

use crate::config::{PortSpec, file, flags};
use crate::outcome;

/// Ways to carry packets and addresses between hosts.
#[derive(Debug, Subcommand)]
pub enum AttachHostCommand {
    /// A Linux bridge and VXLAN for each network, and FRR's EVPN between the hosts
    Frr(FrrArgs),
}

/// `ringway attach-host frr`
#[derive(Debug, Args)]
pub struct FrrArgs {
    /// This host's own address towards the others, on its loopback interface
    #[arg(long)]
    pub address: Ipv4Addr,
    /// A route reflector, or another host; may be given many times
    #[arg(long = "peer", value_name = "ADDRESS", required = true)]
    pub peers: Vec<Ipv4Addr>,
    /// A network: ringway's VLAN and its number on the way; may be given many times
    #[arg(long = "network", value_name = "VLAN=VNI", required = true)]
    pub networks: Vec<Network>,
    /// The router on the way to the peers; without it they are in this host's own network
    #[arg(long, value_name = "ADDRESS")]
    pub via: Option<Ipv4Addr>,
    /// The interface that leads to the other hosts
    #[arg(long, value_name = "INTERFACE", default_value = "eth0")]
    pub underlay: String,
    /// The MTU of that interface, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500,
          value_parser = clap::value_parser!(u16).range(1280..))]
    pub underlay_mtu: u16,
    /// The number of the autonomous system that all hosts are in
    #[arg(long = "as", value_name = "NUMBER", default_value_t = 65_000)]
    pub system: u32,
    /// The user as whom ringway runs here: taps are that user's
    #[arg(long, value_name = "NAME", default_value = "ringway")]
    pub user: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A network of guests on many hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// Its number in this ringway.
    pub vlan: VlanId,
    /// Its VXLAN network identifier.
    pub vni: u32,
}

/// Most of a VXLAN network identifier.
const VNI_MAX: u32 = (1 << 24) - 1;

impl std::str::FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (vlan, vni) = text.split_once('=').ok_or("write VLAN=VNI, such as 10=10010")?;
        let vlan = vlan.parse().ok().and_then(VlanId::new);
        let vlan = vlan.ok_or_else(|| format!("a VLAN is a number from 1 to {}", VlanId::MAX))?;
        let vni = vni.parse().ok().filter(|vni| (1..=VNI_MAX).contains(vni));
        let vni = vni.ok_or_else(|| format!("a VNI is a number from 1 to {VNI_MAX}"))?;
        Ok(Self { vlan, vni })
    }
}

/// The commands, rights and configuration that one host needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Given {
    /// Lines of a shell, for root, before ringway is started.
    commands: Vec<String>,
    /// Lines of a shell, for root, that let the service tell bridges of guests.
    rights: String,
    /// The configuration of FRR's `bgpd`.
    bgpd: String,
    /// Ports, as after `ringway port add`, or `ringway run --port`.
    ports: Vec<String>,
    /// The longest packet that guests may send, in bytes.
    mtu: u16,
}

impl Given {
    fn text(&self) -> anyhow::Result<String> {
        let Self { commands, rights, bgpd, ports, mtu } = self;
        let commands = commands.join("\n");
        let typed: String = ports.iter().map(|port| format!("ringway port add {port}\n")).collect();
        Ok(format!(
            "# as root, once\n{commands}\n\n\
             # the service may tell bridges where guests are\n{rights}\n\n\
             # in /etc/frr/frr.conf, with bgpd=yes in /etc/frr/daemons\n{bgpd}\n\
             # guests: vlan=VLAN,mtu={mtu}\n\
             # in /etc/ringway/ringway.toml\n{}\n\
             # or while it runs\n{typed}",
            toml(ports)?
        ))
    }
}

/// The ports as a file has them.
fn toml(ports: &[String]) -> anyhow::Result<String> {
    let text = |port: &String| {
        let spec = flags::parse_port(port).map_err(|why| anyhow::anyhow!("{why}"))?;
        let spec = PortSpec::resolve(&spec);
        Ok(file::write_port(&spec.map_err(|all| anyhow::anyhow!("{}", all[0]))?))
    };
    let texts: anyhow::Result<Vec<String>> = ports.iter().map(text).collect();
    Ok(texts?.join("\n"))
}

impl AttachHostCommand {
    /// Whether it was given `--json`.
    pub fn is_json(&self) -> bool {
        let Self::Frr(args) = self;
        args.json
    }
}

/// Prints what a host needs.
///
/// # Errors
/// Standard output cannot be written.
pub fn attach_host(AttachHostCommand::Frr(args): &AttachHostCommand) -> anyhow::Result<()> {
    let given = frr::given(args);
    let text = match args.json {
        true => serde_json::to_string(&given)? + "\n",
        false => given.text()?,
    };
    outcome::print(&text)
}
