//! Open vSwitch with DPDK in the daemon's place: three ports, one of them idle.
//!
//! Limits: split rings; it always polls; its time is what it counts itself for rounds with packets.

use std::path::Path;

use anyhow::Context;
use ringway_guests::ovs::DpdkSetting;
use ringway_guests::testpmd::number_after;
use ringway_guests::{Ovs, Stage};
use ringway_virtq::SplitDriver;

use super::{At, Row, Values, peer};
use crate::programs;

pub(super) const BRIDGE: &str = "rwo";
pub(super) const PORTS: [&str; 3] = ["a", "b", "c"];

/// Starts it on a processor, with ports for packets of up to so many bytes; their sockets are where
/// [`peer::sockets`] says.
pub(super) fn start(
    directory: &Path,
    processor: usize,
    packet_len_max: u32,
) -> anyhow::Result<(Ovs, Stage)> {
    let stage = programs::stage(directory, "ringway".into(), Some(programs::dpdk()?));
    let packet_len_max = packet_len_max as usize;
    let setting = DpdkSetting { ports: &PORTS, processor, packet_len_max };
    let ovs = Ovs::start_dpdk(&stage, BRIDGE, &setting)?;
    Ok((ovs, stage))
}

pub(super) fn measure(row: Row, at: At) -> anyhow::Result<Values> {
    let directory = tempfile::Builder::new().prefix("rw-").tempdir()?;
    let (ovs, stage) = start(directory.path(), at.of_worker, peer::PACKET_LEN_MAX)?;
    peer::exchange::<SplitDriver>(row, at, directory.path(), |exchange| {
        ovs.ask(&stage, "dpif-netdev/pmd-stats-clear")?;
        exchange()?;
        let shown = ovs.ask(&stage, "dpif-netdev/pmd-perf-show")?;
        cost_ns(&shown).with_context(|| format!("no cost in:\n{shown}"))
    })
}

fn cost_ns(shown: &str) -> Option<f64> {
    let seconds: f64 = number_after(shown, "Measurement duration:")?;
    let share_of = |of: &str| {
        let (before, _) = shown.split_once(of)?;
        before.rsplit('(').next()?.trim().parse::<f64>().ok().map(|percent| percent / 100.0)
    };
    let used = share_of("% of total cycles")?;
    let (_, busy) = shown.split_once("busy iterations:")?;
    let busy: f64 = number_after(busy, "(")?;
    let packets: f64 = number_after(shown, "Rx packets:")?;
    (packets > 0.0).then(|| seconds * used * busy / 100.0 * 1e9 / packets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_packet_is_what_busy_rounds_took() {
        let shown = "Measurement duration: 2.000 s\n\
                     - Used TSC cycles:    2683155410  ( 50.0 % of total cycles)\n\
                     - idle iterations:      11933864  ( 80.0 % of used cycles)\n\
                     - busy iterations:             7  ( 20.0 % of used cycles)\n\
                     Rx packets:                    1000000  (958 Kpps, 231 cycles/pkt)\n";
        assert_eq!(cost_ns(shown), Some(200.0));
        assert_eq!(cost_ns("Rx packets: 0"), None);
    }
}
