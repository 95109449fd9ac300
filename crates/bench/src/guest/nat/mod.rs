//! `ringway bench nat`: ringway's router beside those that users would have instead, and beside
//! ringway with a tap and the kernel's routing, which needs root.
//!
//! How: [`method`]. The provider is this namespace, the machine another one ([`nat_lab`]); each
//! router has a guest of its own ([`rig`]). What asks in it is this program again ([`client`]).
//!
//! Limits: as of `ringway bench guest`; IPv4.

mod client;
mod figures;
mod four;
mod rig;
mod router;

use std::path::Path;

use anyhow::ensure;
use ringway_guests::{Process, iperf, nat_lab};

use super::pairing::{GuestOptions, Pairing};
use super::turns::Turns;
use super::{begin, sides};
use crate::programs;
use crate::progress::Progress;
use crate::report::{Grid, Report};
use figures::{COSTS, RATES};
use four::Four;
use rig::Rig;
use router::Router;

pub use client::ClientArgs;

/// Routers whose versions the report has, and their packages.
const ROUTERS: [(&str, &str); 2] = [("passt", "passt"), ("gvproxy", "gvproxy")];

pub fn measure_nat(options: &GuestOptions) -> anyhow::Result<Report> {
    let with_machine = |pairing: &Pairing| *pairing != Pairing::UmlPair;
    ensure!(options.pairs.iter().all(with_machine), "routers are not between guests");
    let (mut report, directory) = begin("nat", options, &method(options))?;
    report.machine.versions.extend(programs::peer_versions(&ROUTERS));
    let stage = programs::stage(directory.path(), programs::ringway()?, None);
    let machine = nat_lab::start_machine(&stage)?;
    let has_qemu = options.pairs.contains(&Pairing::QemuHost);
    let client = client::copy(&stage)?;
    let _server = iperf::start_server_at(&stage, nat_lab::SERVER)?;
    let _servers = four::start_servers(&stage)?;
    let with_four = usize::from(has_qemu);
    let rows = options.pairs.len() * Router::ALL.len() + with_four * four::ROUTERS.len();
    let steps = rows * options.amount.repeats;
    let mut progress = Progress::start(steps);
    for &pairing in &options.pairs {
        let bench = RouterBench {
            pairing,
            machine: &machine,
            directory: directory.path(),
            client: &client,
        };
        match pairing.why_not() {
            Some(why) => report.leave_out(&format!("{}: {why}", pairing.name())),
            None => {
                measure_one(&bench, options, &mut report, &mut progress);
                if pairing == Pairing::QemuHost {
                    measure_four(&bench, options, &mut report, &mut progress);
                }
            }
        }
    }
    progress.end();
    Ok(report)
}

/// The bench at which the routers for one kind of guest are measured.
struct RouterBench<'a> {
    pairing: Pairing,
    machine: &'a Process,
    directory: &'a Path,
    /// The program that asks in a guest.
    client: &'a Path,
}

fn measure_one(
    bench: &RouterBench<'_>,
    options: &GuestOptions,
    report: &mut Report,
    progress: &mut Progress,
) {
    let name = bench.pairing.name();
    let rates = Grid::new(name, &["router"], &RATES).plotted("Gb/s", &[0, 1]);
    let costs = Grid::new(format!("{name}: what it costs"), &["router"], &COSTS);
    let mut turns = Turns { name, options, report, progress };
    let routers = Router::ALL.map(|router| (router.name(), router));
    let rigs = turns.boot(routers, |router| Rig::boot(router, bench, 1));
    turns.compare(rigs, [rates, costs], &[0, 1, 2, 3, 4, 5, 7]);
}

/// The same of four guests together, whose routers are started when the others have ended.
fn measure_four(
    bench: &RouterBench<'_>,
    options: &GuestOptions,
    report: &mut Report,
    progress: &mut Progress,
) {
    let name = format!("{}: four guests together", bench.pairing.name());
    let rates = Grid::new(name.as_str(), &["router"], &four::RATES);
    let costs = Grid::new(format!("{name}: what it costs"), &["router"], &four::COSTS);
    let mut turns = Turns { name: &name, options, report, progress };
    let routers = four::ROUTERS.map(|router| (router.name(), router));
    let rigs = turns.boot(routers, |router| Four::boot(router, bench));
    turns.compare(rigs, [rates, costs], &[0, 1]);
}

fn method(options: &GuestOptions) -> [String; 6] {
    [
        format!("{} A flood has {} pings.", options.amount.rounds(), options.pings()),
        sides::METHOD.into(),
        "A provider with servers, a machine behind one link, and on it a router for each guest, \
         none of which needs a right there but the tap. Every guest has the MTU that its router \
         gives it (passt: 65,520). Out is from the guest, in is to it, on connections that the \
         guest has opened. TCP and UDP (1,400 bytes): iperf3; UDP is sent as fast as the sender \
         can, and counted where it arrives. gvproxy answers pings itself."
            .into(),
        "Connections: one at a time, each with one byte there and back. Ringway lets a guest open \
         10,000 at once and 5,000 a second from then on. Round trips: one byte on one connection."
            .into(),
        "Four guests together ask at the same time, and what they move is added up: one ringway \
         has all four, and each passt one."
            .into(),
        format!(
            "What a router takes per GB (10⁹ bytes) of TCP payload: the processor time of what \
             runs beside the guest, and of the first thread of QEMU, which has its network; the \
             guest's is all other time of QEMU, or all of User Mode Linux. Memory per idle flow: \
             what the router has of its own (RssAnon) with {} TCP connections more; the kernel's \
             sockets are not in it.",
            figures::FLOWS
        ),
    ]
}
