//! Commands that ask a running ringway what it sees and knows.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use ringway_net::DropReason;

use super::AskArgs;
use crate::control::Direction;
use crate::front_end::FrontEnd;
use crate::metrics::listen_address::ListenAddress;
use crate::places;
use crate::qemu_version::QemuVersion;

/// `ringway stats`
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Only this port
    #[arg(value_name = "PORT")]
    pub port: Option<String>,
    /// Report every second, with rates, until Ctrl-C
    #[arg(long)]
    pub watch: bool,
    /// The ringway to ask, and how to print: with --json, one line per report.
    #[command(flatten)]
    pub ask: AskArgs,
}

impl StatsArgs {
    /// Of one port, once.
    pub fn of(port: &str, ask: &AskArgs) -> Self {
        Self { port: Some(port.to_owned()), watch: false, ask: ask.clone() }
    }
}

/// `ringway top`
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Print one table and end, as without a terminal
    #[arg(long)]
    pub once: bool,
    /// The ringway that is asked, and how to print.
    #[command(flatten)]
    pub ask: AskArgs,
}

/// `ringway metrics`
#[derive(Debug, Args)]
pub struct MetricsArgs {
    /// Answer scrapers here until a signal comes: ADDRESS:PORT, or the path of a socket
    #[arg(long, value_name = "PLACE")]
    pub listen: Option<ListenAddress>,
    /// The control socket of the ringway to ask [default: as for `ringway run`]
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
}

impl MetricsArgs {
    /// The control socket that was asked for, or the usual one.
    pub fn control_or_default(&self) -> PathBuf {
        self.control.clone().unwrap_or_else(places::control_socket_to_ask)
    }
}

/// A name is looked up once.
fn place(typed: &str) -> Result<SocketAddr, &'static str> {
    let found = typed.to_socket_addrs().ok().and_then(|mut all| all.next());
    found.ok_or("write an address or a name, and a port, such as 192.0.2.1:6343")
}

/// `ringway sflow`
#[derive(Debug, Args)]
pub struct SflowArgs {
    /// Where samples are sent to, such as 192.0.2.1:6343 or localhost:6343
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = place)]
    pub collector: SocketAddr,
    /// The ports whose packets are sampled, both ways; without them: all, where packets come in
    #[arg(value_name = "PORT")]
    pub ports: Vec<String>,
    /// One packet in so many is sampled, on average
    #[arg(long, value_name = "N", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub rate: u32,
    /// Counters are sent every so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub every: u64,
    /// The address by which a collector knows this machine [default: the one that it is sent from]
    #[arg(long, value_name = "ADDRESS")]
    pub agent: Option<IpAddr>,
    /// End after so many seconds
    #[arg(long, value_name = "SECONDS")]
    pub time: Option<u64>,
    /// The control socket of the ringway to ask [default: as for `ringway run`]
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
}

impl SflowArgs {
    /// The control socket that was asked for, or the usual one.
    pub fn control_or_default(&self) -> PathBuf {
        self.control.clone().unwrap_or_else(places::control_socket_to_ask)
    }
}

/// `ringway flows`
#[derive(Debug, Args)]
pub struct FlowsArgs {
    /// The port's name
    pub port: String,
    /// Look for so many seconds, such as 0.5
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub time: Duration,
    /// One packet in so many is looked at, on average
    #[arg(long, value_name = "N", default_value_t = 100)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub sample: u32,
    /// Only so many flows, the largest
    #[arg(long, value_name = "FLOWS", default_value_t = 20)]
    pub most: usize,
    /// The ringway that is asked, and how to print.
    #[command(flatten)]
    pub ask: AskArgs,
}

/// `ringway fdb`
#[derive(Debug, Args)]
pub struct FdbArgs {
    /// Forget what was learned, in place of showing it: it is learned again from the next packets
    pub action: Option<FdbAction>,
    /// Only those behind this port
    #[arg(long, value_name = "NAME")]
    pub port: Option<String>,
    /// Only those in this VLAN
    #[arg(long, value_name = "VLAN", value_parser = clap::value_parser!(u16).range(1..4095))]
    pub vlan: Option<u16>,
    /// The ringway that is asked, and how to print.
    #[command(flatten)]
    pub ask: AskArgs,
}

/// An action on addresses, beside showing them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FdbAction {
    /// They are forgotten.
    Flush,
}

/// `ringway why`
#[derive(Debug, Args)]
pub struct WhyArgs {
    /// The port's name; of a flow, where it comes from: a port or an address
    #[arg(value_name = "PORT")]
    pub port: String,
    /// Where the flow goes: a port, a MAC address, or ADDRESS[:NUMBER] that a port is known to have
    pub to: Option<String>,
    /// More about its packets, as for `ringway trace`: vlan=7 proto=tcp dst_port=80
    #[arg(value_name = "FIELD=VALUE")]
    pub fields: Vec<String>,
    /// The ringway that is asked, and how to print.
    #[command(flatten)]
    pub ask: AskArgs,
}

/// `ringway reload`
#[derive(Debug, Args)]
pub struct ReloadArgs {
    /// The ringway that is asked, and how to print.
    #[command(flatten)]
    pub ask: AskArgs,
}

/// `ringway stop`
#[derive(Debug, Args)]
pub struct StopArgs {
    /// The ringway that is asked, and how to print.
    #[command(flatten)]
    pub ask: AskArgs,
}

/// `ringway log`
#[derive(Debug, Args)]
pub struct LogArgs {
    /// off, error, warn, info, debug or trace; or of single crates: info,ringway_host=debug
    pub level: String,
    /// The ringway that is asked, and how to print.
    #[command(flatten)]
    pub ask: AskArgs,
}

/// The help text about fields of a packet.
pub const FIELDS_HELP: &str = "\
Fields: src=MAC [default: the port's own]   dst=MAC|PORT|ADDRESS|all [default: all]
vlan=NUMBER (0: a priority only)   type=ip|ip6|arp|NUMBER   src_ip=ADDRESS   dst_ip=ADDRESS
proto=tcp|udp|icmp|icmp6|NUMBER   src_port=NUMBER   dst_port=NUMBER   tcp_flags=syn+ack
icmp_type=NUMBER|rs|ra|ns|na|redirect   nd_target=ADDRESS   nd_mac=MAC
arp_op=request|reply   arp_mac=MAC   length=BYTES
Without src_ip, a port's packet comes from its locked or leased address.

  ringway trace vm0 dst=vm1 vlan=7 src_ip=10.0.2.15 dst_ip=10.0.2.16 proto=tcp dst_port=80";

/// `ringway trace`
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// The port that it would come from, or an address behind it
    pub port: String,
    /// The fields of the packet
    #[arg(value_name = "FIELD=VALUE")]
    pub fields: Vec<String>,
    /// The whole packet, from its Ethernet header on
    #[arg(long, value_name = "HEX", conflicts_with = "pcap")]
    pub packet: Option<String>,
    /// A packet of a capture: its first, or the one of that number
    #[arg(long, value_name = "FILE[:NUMBER]")]
    pub pcap: Option<String>,
    /// The ringway that is asked, and how to print.
    #[command(flatten)]
    pub ask: AskArgs,
}

/// The help text about filters.
pub const FILTER_HELP: &str = "\
Filters are a part of those of tcpdump (pcap-filter(7)):
  [src|dst] host ADDRESS     [src|dst] net NETWORK/BITS     [tcp|udp] [src|dst] port NUMBER
  ether [src|dst] host MAC   ether proto TYPE               [tcp|udp] [src|dst] portrange 80-90
  proto PROTOCOL   vlan [NUMBER]   less BYTES   greater BYTES   tcp syn (fin rst psh ack urg)
  broadcast   multicast   ip multicast   ip  ip6  arp  rarp  tcp  udp  icmp  icmp6  igmp  sctp
with and, or, not and parentheses; dst port 80 or 443. Tests see through VLAN tags.

  ringway capture vm0 vm0.pcapng --filter 'host 10.0.2.15 and not tcp port 22'
  ringway capture vm0 | tcpdump -nr -
  ringway capture vm0 vm1 both.pcapng --dropped=no_room
  ringway capture --all ring.pcapng --files 10 --file-bytes 100M";

/// `ringway capture`
#[derive(Debug, Args)]
pub struct CaptureArgs {
    /// The ports, and behind them the file; without one, or with -: standard output
    #[arg(value_name = "PORT… [FILE.pcapng|-]", required_unless_present = "all")]
    pub places: Vec<String>,
    /// All ports that are there when it begins
    #[arg(long)]
    pub all: bool,
    /// Only what was dropped, for any reason or for this one
    #[arg(long, value_name = "REASON", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "any", value_parser = drop_reason)]
    pub dropped: Option<Dropped>,
    /// A ring of so many files, FILE.1.pcapng and so on: when all are full, the oldest goes
    #[arg(long, value_name = "N", requires = "file_bytes")]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=9999))]
    pub files: Option<u32>,
    /// Bytes of each file of a ring, such as 100M
    #[arg(long, value_name = "BYTES", requires = "files", value_parser = bytes_of_file)]
    pub file_bytes: Option<u64>,
    /// Only what goes that way
    #[arg(long, value_name = "to-guest|from-guest", value_parser = direction)]
    pub direction: Option<Direction>,
    /// Only packets that pass, such as 'tcp port 80 and host 10.0.2.15'
    #[arg(long, value_name = "FILTER")]
    pub filter: Option<String>,
    /// Only the first so many bytes of each packet
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(14..))]
    pub snap: Option<u32>,
    /// Only one packet in so many, on average
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub sample: Option<u32>,
    /// End after so many packets
    #[arg(long, value_name = "PACKETS")]
    pub count: Option<u64>,
    /// End before the file has more bytes
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub bytes: Option<u64>,
    /// End after so many seconds, such as 0.5
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub time: Option<Duration>,
    /// The control socket of the ringway to ask [default: as for `ringway run`]
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
}

/// The dropped packets that are meant; `None`: all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped(pub Option<DropReason>);

fn drop_reason(text: &str) -> Result<Dropped, String> {
    let found = DropReason::ALL.into_iter().find(|reason| reason.name() == text);
    match (text, found) {
        ("any", _) => Ok(Dropped(None)),
        (_, Some(reason)) => Ok(Dropped(Some(reason))),
        _ => {
            let names = DropReason::ALL.map(DropReason::name).join(" ");
            Err(format!("write one of {names}, or leave it out for all"))
        }
    }
}

/// `1500`, `100k`, `100M`, `1G`.
fn bytes(text: &str) -> Result<u64, &'static str> {
    let digits = text.trim_end_matches(['k', 'M', 'G']);
    let factor = match &text[digits.len()..] {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        _ => 0,
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    number.filter(|number| *number > 0).ok_or("write a number of bytes, such as 100k, 100M or 1G")
}

fn bytes_of_file(text: &str) -> Result<u64, &'static str> {
    let least = "a file of a ring has at least 100k bytes: the longest packet has 65,550";
    bytes(text).and_then(|bytes| if bytes < 100_000 { Err(least) } else { Ok(bytes) })
}

fn seconds(text: &str) -> Result<Duration, &'static str> {
    let time = text.parse().ok().and_then(|it| Duration::try_from_secs_f64(it).ok());
    time.filter(|time| !time.is_zero()).ok_or("write a number of seconds, such as 0.5")
}

fn direction(text: &str) -> Result<Direction, String> {
    match text {
        "to-guest" => Ok(Direction::ToGuest),
        "from-guest" => Ok(Direction::FromGuest),
        _ => Err("write to-guest or from-guest, or leave it out for both".into()),
    }
}

impl CaptureArgs {
    /// The control socket that was asked for, or the usual one.
    pub fn control_or_default(&self) -> PathBuf {
        self.control.clone().unwrap_or_else(places::control_socket_to_ask)
    }
}

/// Yes or no, as options of ports have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Switch {
    /// It is so.
    On,
    /// It is not.
    Off,
}

/// `ringway attach`
#[derive(Debug, Args)]
pub struct AttachArgs {
    /// The port's name
    pub port: String,
    /// Print only what this program needs
    #[arg(long = "for", value_name = "PROGRAM")]
    pub program: Option<FrontEnd>,
    /// Memory of the guest, in MiB [default: 512]; one with several ports needs what is printed
    /// about memory once
    #[arg(long, value_name = "MIB")]
    pub memory: Option<u32>,
    /// Whether the guest of QEMU runs on KVM: before version 8 it needs other options without it
    /// [default: whether /dev/kvm opens]
    #[arg(long, value_name = "ON|OFF", value_enum)]
    pub kvm: Option<Switch>,
    /// For this QEMU [default: the one that is installed]
    #[arg(long, value_name = "VERSION")]
    pub qemu_version: Option<QemuVersion>,
    /// The ringway that is asked, and how to print.
    #[command(flatten)]
    pub ask: AskArgs,
}
