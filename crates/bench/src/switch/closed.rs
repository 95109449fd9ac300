//! A closed loop through every switch that one may have: two guests, of which one sends to the
//! other, with a number of packets on the way at all times ([`METHOD`]). What counts is what
//! arrives.
//!
//! Limits: needs namespaces for what has taps.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use ringway_guests::vde::Vde;
use ringway_guests::{Ovs, net, vde};
use ringway_host::{Tap, TapOptions};
use ringway_testkit::RingwayProcess;
use ringway_virtq::{Format, PackedDriver, SplitDriver};

use super::ends::{CallEnd, HostPort};
use super::guests::{Arrived, PacketLayout, Pair};
use super::ovs::{self, BRIDGE as OVS_BRIDGE, PORTS};
use super::{peer, sockets};
use crate::machine::keeping_to;
use crate::options::Options;
use crate::programs::{self, NO_DAEMON};
use crate::progress::in_turns;
use crate::report::{Cell, Column, Grid, Report};
use crate::ring::driver::DriverEnd;
use crate::ring::end::End;

type Split = Pair<DriverEnd<SplitDriver>>;
type Packed = Pair<DriverEnd<PackedDriver>>;

/// Packets on the way, by their bytes: as many as a ring of 256 entries takes; or what a raw socket
/// has room for.
const ON_RINGS: [(usize, usize); 3] = [(64, 256), (1518, 256), (9000, 64)];
const BY_CALLS: [(usize, usize); 3] = [(64, 64), (1518, 32), (9000, 8)];

/// Longest of them.
const PACKET_LEN_MAX: u32 = 9000;

/// Names of a bridge and of the ports at it.
const BRIDGE: &str = "rwb";
const TAPS: [&str; 3] = ["rwa0", "rwa1", "rwa2"];

/// Frames of that length have this MTU.
const MTU: u16 = 9000;

const COLUMNS: [Column; 4] = [("on the way", 0), ("Mpps", 3), ("Gb/s", 2), ("lost, %", 2)];

pub(super) const METHOD: &str = "\
    Closed loop: a switch with three ports (testpmd: two), one of them idle, on the worker's \
    processor; so many packets are on the way at all times. Guests of ringway, testpmd and Open \
    vSwitch with DPDK have rings, split if not said; the others' are programs that write to a tap \
    or a socket. A bridge works on the guests' processor. vde_switch carries no long packets.";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Switch {
    Ringway(Format),
    Testpmd(Format),
    OvsDpdk,
    OvsTaps,
    Bridge,
    Vde,
}

const RINGWAY: &str = "ringway";
const PACKED: &str = "ringway, packed";

const SWITCHES: [(&str, Switch); 8] = [
    (RINGWAY, Switch::Ringway(Format::Split)),
    ("DPDK testpmd, two ports", Switch::Testpmd(Format::Split)),
    (PACKED, Switch::Ringway(Format::Packed)),
    ("DPDK testpmd, packed", Switch::Testpmd(Format::Packed)),
    ("Open vSwitch with DPDK", Switch::OvsDpdk),
    ("Open vSwitch in user space, taps", Switch::OvsTaps),
    ("Linux bridge, taps", Switch::Bridge),
    ("vde_switch", Switch::Vde),
];

/// Measures all of them; `has_taps`: this process has a network of its own.
pub(super) fn measure(
    options: &Options,
    processors: [usize; 2],
    has_taps: bool,
    report: &mut Report,
) -> anyhow::Result<()> {
    let title = "Closed loop, three ports";
    let mut grid = Grid::new(title, &["bytes", "switch"], &COLUMNS).plotted("Mpps", &[1]);
    let rows = SWITCHES.map(|(name, switch)| (vec![name.to_string()], switch));
    let [of_guests, of_switch] = processors;
    in_turns(options.repeats, &rows, |round, name, &switch, _| {
        let of_taps = matches!(switch, Switch::OvsTaps | Switch::Bridge);
        if of_taps && !has_taps {
            report.leave_out(&format!("{}: no namespaces with taps here", name[0]));
            return Ok(());
        }
        let mut found = |(packet_len, count): (usize, usize), arrived: Arrived| {
            let name = [packet_len.to_string(), name[0].clone()];
            grid.add(&name, round, &values(packet_len, count, arrived).map(Some));
        };
        let to = Loop { duration: options.duration, found: &mut found };
        match keeping_to(&[of_guests], || measure_one(switch, of_switch, to))? {
            Err(why) if !matches!(switch, Switch::Ringway(_)) => {
                report.leave_out(&format!("missing: {}: {why:#}", name[0]));
                Ok(())
            }
            other => other,
        }
    })?;
    let base_of = |switch: &str| if switch.ends_with("packed") { PACKED } else { RINGWAY };
    let base = |row: &[String]| Some(vec![row[0].clone(), base_of(&row[1]).to_string()]);
    let mut table = grid.table_with(&[("÷ ringway", 1)], base);
    // Switches took turns; readers compare them length by length.
    let is_of = |row: &[Cell], len: usize| row[0].show() == len.to_string();
    table.rows.sort_by_key(|row| ON_RINGS.iter().position(|of| is_of(row, of.0)));
    report.tables.push(table);
    Ok(())
}

// A packet's length, and how many there are, are far below 2^53.
#[allow(clippy::cast_precision_loss)]
fn values(packet_len: usize, count: usize, arrived: Arrived) -> [f64; COLUMNS.len()] {
    let rate = arrived.packets / arrived.seconds;
    let lost = arrived.lost / (arrived.lost + arrived.packets);
    [count as f64, rate / 1e6, rate * packet_len as f64 * 8.0 / 1e9, lost * 100.0]
}

/// For how long each length is measured, and what is told of so many packets of it.
struct Loop<'a> {
    duration: Duration,
    found: &'a mut dyn FnMut((usize, usize), Arrived),
}

fn measure_one(switch: Switch, processor: usize, mut to: Loop<'_>) -> anyhow::Result<()> {
    let directory = tempfile::Builder::new().prefix("rw-").tempdir()?;
    let (directory, packet_len_max) = (directory.path(), PACKET_LEN_MAX as usize);
    let stage = programs::stage(directory, "ringway".into(), None);
    match switch {
        Switch::Ringway(format) => {
            let ports = PORTS.map(|port| (port, ""));
            let start = || RingwayProcess::start_with(&ports, &["--workers", "1"]);
            let daemon = keeping_to(&[processor], start)?.context(NO_DAEMON)?;
            to.on_rings(format, || sockets(&daemon))
        }
        Switch::Testpmd(format) => {
            let mut testpmd = peer::start(directory, processor, PACKET_LEN_MAX)?;
            testpmd.forward(true)?;
            to.on_rings(format, || peer::sockets(directory))
        }
        Switch::OvsDpdk => {
            let _ovs = ovs::start(directory, processor, PACKET_LEN_MAX)?;
            to.on_rings(Format::Split, || peer::sockets(directory))
        }
        Switch::OvsTaps => {
            let [first, second, _third] = taps()?;
            let _ovs = keeping_to(&[processor], || Ovs::start(&stage, OVS_BRIDGE, &TAPS))??;
            to.by_calls([first, second].map(HostPort::Tap), packet_len_max)
        }
        Switch::Bridge => {
            let [first, second, _third] = taps()?;
            let _bridge = Bridge::new()?;
            to.by_calls([first, second].map(HostPort::Tap), packet_len_max)
        }
        Switch::Vde => {
            let program = programs::peer("vde_switch")?;
            let vde = keeping_to(&[processor], || Vde::start(&stage, &program))??;
            let port = |name: &str| vde.port(&directory.join(name));
            let [first, second, _third] = [port("a")?, port("b")?, port("c")?];
            to.by_calls([first, second].map(HostPort::Vde), vde::PACKET_LEN_MAX)
        }
    }
}

impl Loop<'_> {
    /// Guests with rings, new ones for each length.
    fn on_rings(&mut self, of: Format, sockets: impl Fn() -> [PathBuf; 2]) -> anyhow::Result<()> {
        ON_RINGS.into_iter().try_for_each(|row| match of {
            Format::Split => {
                self.through(&mut Split::attach(sockets(), &PacketLayout::of(row.0))?, row)
            }
            Format::Packed => {
                self.through(&mut Packed::attach(sockets(), &PacketLayout::of(row.0))?, row)
            }
        })
    }

    fn by_calls(&mut self, ports: [HostPort; 2], packet_len_max: usize) -> anyhow::Result<()> {
        let mut ends = ports.map(CallEnd::new);
        for row in BY_CALLS.into_iter().filter(|row| row.0 <= packet_len_max) {
            let mut pair = Pair::new(ends, row.0)?;
            self.through(&mut pair, row)?;
            ends = pair.into_ends();
        }
        Ok(())
    }

    fn through<E: End>(&mut self, pair: &mut Pair<E>, row: (usize, usize)) -> anyhow::Result<()> {
        pair.keep_on_the_way(row.1, self.duration / 4)?;
        let arrived = pair.keep_on_the_way(row.1, self.duration)?;
        ensure!(arrived.packets > 0.0, "nothing arrived");
        (self.found)(row, arrived);
        Ok(())
    }
}

/// Taps that vanish with what is returned.
fn taps() -> anyhow::Result<[Box<Tap>; 3]> {
    let tap = |name: &str| {
        let tap = Tap::open(&TapOptions { name: name.into(), mtu: Some(MTU) })?;
        anyhow::Ok(Box::new(tap))
    };
    Ok([tap(TAPS[0])?, tap(TAPS[1])?, tap(TAPS[2])?])
}

struct Bridge;

impl Bridge {
    fn new() -> anyhow::Result<Self> {
        net::ip(&format!("link add {BRIDGE} type bridge"))?;
        let bridge = Self;
        net::ip(&format!("link set {BRIDGE} up"))?;
        TAPS.iter().try_for_each(|tap| net::ip(&format!("link set {tap} master {BRIDGE} up")))?;
        Ok(bridge)
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = net::ip(&format!("link delete {BRIDGE}"));
    }
}
