//! The list of scenarios.

use std::time::Duration;

use ringway_guests::Stage;

use super::needs::Needs::{
    self, CheckedRingway, Dpdk, DpdkDevice, NewestKernel, NewestQemu, NewestUml, Qemu, Switches,
    Uml, UmlAndDhcp, UmlAndFrr, UmlAndOvn, UmlAndOvs, UmlAndQemu, UmlFrrAndDpdk, Unikernel,
};
use super::scenarios_bench::measure;
use super::scenarios_migration_pages::Disturbance;
use super::scenarios_migration_saved::{self, BY_PROGRAM, BY_QEMU};
use super::scenarios_unikernel::{self, DeviceCase, UnikernelCase};
use super::{
    scenarios_arrivals, scenarios_attach, scenarios_bench, scenarios_captures, scenarios_coalesce,
    scenarios_control, scenarios_dpdk, scenarios_driver, scenarios_evpn, scenarios_front_ends,
    scenarios_migration, scenarios_migration_given_up, scenarios_migration_guide,
    scenarios_migration_pages, scenarios_nat, scenarios_nat_ends, scenarios_nat_forward,
    scenarios_offload, scenarios_ovs, scenarios_pairs, scenarios_poll, scenarios_qemu,
    scenarios_restart, scenarios_restart_dpdk, scenarios_uml, scenarios_why,
};
use crate::unikernel::MachineType;

pub struct Scenario {
    pub name: String,
    pub needs: Needs,
    pub limit: Duration,
    /// Only the long tier has it, or who asks for it by its whole name.
    pub is_long: bool,
    pub run: Run,
}

type Run = Box<dyn Fn(&Stage) -> anyhow::Result<()> + Send + Sync>;

/// Scenarios of the long tier: what others of the short one show, with another release of a guest.
const LONG: [&str; 3] =
    ["front_end_qemu_newest_split", "qemu_queue_pairs_newest", "attach_qemu_newest"];

/// Beginnings of the names of scenarios that judge times, or say how long a gap was; and of those
/// whose peers poll all the while. Of what others measure, it only matters that there are numbers.
const ALONE: [&str; 9] = [
    "bench_ring",
    "bench_switch",
    "evpn_arrivals",
    "evpn_moves",
    "migration_",
    "restart_",
    "uml_coalesce",
    "uml_link",
    "uml_poll",
];

impl Scenario {
    /// Whether others would change what it measures.
    pub fn runs_alone(&self) -> bool {
        ALONE.iter().any(|beginning| self.name.starts_with(beginning))
    }
}

/// More time for each scenario of the long tier.
const LONG_LIMIT: Duration = Duration::from_secs(600);

/// How much longer a scenario takes, where the environment asks for more of it.
fn longer(name: &str) -> Duration {
    let more = match name.split('_').next() {
        Some("nat") => scenarios_nat::minutes(),
        Some("restart") => scenarios_restart::limit(),
        _ if name == "dpdk_vhost" => scenarios_driver::limit(),
        _ => Duration::ZERO,
    };
    more + if ringway_extent::is_long() { LONG_LIMIT } else { Duration::ZERO }
}

/// A name, what it needs, the seconds after which it is killed, and what it does.
type Row = (&'static str, Needs, u64, fn(&Stage) -> anyhow::Result<()>);

const ROWS: [Row; 68] = [
    ("dpdk_vhost", DpdkDevice, 90, scenarios_driver::vhost),
    ("uml_pair_split", Uml, 120, |stage| scenarios_uml::pair(stage, false, None)),
    ("uml_pair_packed", Uml, 120, |stage| scenarios_uml::pair(stage, true, None)),
    ("uml_pair_jumbo", Uml, 120, |stage| scenarios_uml::pair(stage, false, Some(9000))),
    ("uml_pair_packed_jumbo", Uml, 120, |stage| scenarios_uml::pair(stage, true, Some(9000))),
    ("uml_queue_pairs", Uml, 120, scenarios_pairs::uml),
    ("uml_control", Uml, 120, scenarios_control::control),
    ("uml_link", Uml, 120, scenarios_control::link),
    ("uml_mixed_offloads", Uml, 120, scenarios_offload::mixed),
    ("uml_capture", Uml, 120, scenarios_captures::pair),
    ("uml_why", Uml, 120, scenarios_why::why),
    ("uml_poll", Uml, 180, scenarios_poll::poll),
    ("uml_coalesce", Uml, 120, |stage| scenarios_coalesce::coalesce(stage, false)),
    ("uml_coalesce_newest", NewestUml, 120, |stage| scenarios_coalesce::coalesce(stage, true)),
    ("attach_uml", Uml, 120, scenarios_attach::uml),
    ("attach_qemu", Qemu, 120, scenarios_attach::qemu),
    ("attach_qemu_newest", NewestQemu, 120, scenarios_attach::qemu),
    ("attach_readme", Qemu, 180, scenarios_attach::readme),
    ("attach_dpdk", Dpdk, 60, scenarios_attach::dpdk),
    ("captures", UmlAndQemu, 120, scenarios_captures::compare),
    // All that the newest kernel may have changed, and all that the newest QEMU may.
    ("qemu_newest", NewestKernel, 150, |stage| scenarios_qemu::tap(stage, [true; 3])),
    ("qemu_newest_program", NewestQemu, 150, |stage| {
        scenarios_qemu::tap(stage, [false, true, true])
    }),
    ("qemu_queue_pairs", Qemu, 180, |stage| scenarios_pairs::qemu(stage, false)),
    ("qemu_queue_pairs_newest", NewestQemu, 180, |stage| scenarios_pairs::qemu(stage, true)),
    ("migration_qemu", Qemu, 150, |stage| scenarios_migration::qemu(stage, "", 1)),
    ("migration_qemu_newest", NewestQemu, 150, |stage| {
        scenarios_migration::qemu(stage, ",packed=on", 1)
    }),
    ("migration_qemu_packed", Qemu, 150, |stage| {
        scenarios_migration::qemu(stage, ",packed=on,guest_announce=off", 1)
    }),
    ("migration_qemu_pairs", Qemu, 150, |stage| {
        scenarios_migration::qemu(stage, ",mq=on,mrg_rxbuf=off", 2)
    }),
    ("migration_qemu_pairs_newest", NewestQemu, 150, |stage| {
        scenarios_migration::qemu(stage, ",mq=on,guest_announce=off", 2)
    }),
    ("migration_ports", Qemu, 150, |stage| {
        scenarios_migration::ports(stage, ",packed=on,guest_announce=off")
    }),
    ("migration_ports_newest", NewestQemu, 150, |stage| scenarios_migration::ports(stage, "")),
    ("migration_given_up", Qemu, 150, |stage| scenarios_migration_given_up::given_up(stage, "")),
    ("migration_given_up_newest", NewestQemu, 150, |stage| {
        scenarios_migration_given_up::given_up(stage, ",packed=on")
    }),
    ("migration_refused_newest", NewestQemu, 150, |stage| {
        scenarios_migration_given_up::refused(stage, "")
    }),
    ("migration_guide", Qemu, 150, scenarios_migration_guide::guide),
    ("migration_saved", Qemu, 150, |stage| scenarios_migration_saved::saved(stage, "", BY_PROGRAM)),
    ("migration_saved_newest", NewestQemu, 150, |stage| {
        scenarios_migration_saved::saved(stage, ",packed=on", BY_QEMU)
    }),
    ("migration_pages", CheckedRingway, 150, |stage| {
        scenarios_migration_pages::marked(stage, "", Disturbance::Nothing)
    }),
    ("migration_pages_packed", CheckedRingway, 150, |stage| {
        scenarios_migration_pages::marked(stage, ",packed=on", Disturbance::Nothing)
    }),
    ("migration_pages_unmarked", CheckedRingway, 150, scenarios_migration_pages::unmarked),
    ("migration_pages_kills", CheckedRingway, 150, |stage| {
        scenarios_migration_pages::marked(stage, "", Disturbance::Kills)
    }),
    ("migration_pages_upgrades", CheckedRingway, 150, |stage| {
        scenarios_migration_pages::marked(stage, "", Disturbance::Upgrades)
    }),
    ("qemu_reboot", Qemu, 120, scenarios_qemu::reboot),
    ("qemu_reconnect", Qemu, 120, scenarios_qemu::reconnect),
    ("restart_uml", Uml, 140, scenarios_restart::uml),
    ("restart_dpdk", Dpdk, 140, scenarios_restart_dpdk::dpdk),
    ("restart_memory", Qemu, 180, scenarios_restart::memory),
    ("restart_qemu_split", Qemu, 140, |stage| scenarios_restart::qemu(stage, false)),
    ("restart_qemu_packed", Qemu, 140, |stage| scenarios_restart::qemu(stage, true)),
    ("bench_guest", Uml, 180, |stage| measure(stage, scenarios_bench::GUESTS)),
    ("bench_history", Uml, 180, |stage| measure(stage, scenarios_bench::HISTORY)),
    ("bench_nat", Uml, 180, |stage| measure(stage, scenarios_bench::ROUTERS)),
    ("bench_pacing", Uml, 240, |stage| measure(stage, scenarios_bench::PACING)),
    ("bench_ring", Dpdk, 180, |stage| measure(stage, scenarios_bench::RINGS)),
    ("bench_switch", Switches, 180, |stage| measure(stage, scenarios_bench::SWITCH)),
    ("sanity_vs_qemu_tap", Qemu, 180, |stage| measure(stage, scenarios_bench::QEMU)),
    // Where others switch, too.
    ("ovs_userspace", UmlAndOvs, 120, scenarios_ovs::userspace),
    ("ovn_children", UmlAndOvn, 120, scenarios_ovs::children),
    ("evpn_networks", UmlAndFrr, 120, scenarios_evpn::networks),
    ("evpn_moves", UmlAndFrr, 120, scenarios_evpn::moves),
    ("evpn_arrivals", UmlFrrAndDpdk, 150, scenarios_arrivals::arrivals),
    ("nat_stress", Uml, 240, scenarios_nat::stress),
    ("nat_uml", UmlAndDhcp, 240, scenarios_nat::uml),
    ("nat_qemu", Qemu, 240, scenarios_nat::qemu),
    ("nat_ends", UmlAndQemu, 120, scenarios_nat_ends::ends),
    ("nat_forward", Uml, 240, scenarios_nat_forward::forward),
    ("front_end_dpdk_server_split", Dpdk, 120, |stage| {
        scenarios_front_ends::dpdk_server(stage, false)
    }),
    ("front_end_dpdk_server_packed", Dpdk, 120, |stage| {
        scenarios_front_ends::dpdk_server(stage, true)
    }),
];

/// All of them, in the order in which they run.
pub fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    let mut add = |name: &str, needs, seconds, run: Run| {
        let limit = Duration::from_secs(seconds) + longer(name);
        let is_long = LONG.contains(&name);
        all.push(Scenario { name: name.to_string(), needs, limit, is_long, run });
    };
    for switches in combinations() {
        let name = format!("dpdk_{}", scenarios_dpdk::SWITCHES.name(switches));
        add(&name, Dpdk, 60, Box::new(move |stage| scenarios_dpdk::echo(stage, switches)));
        let name = format!("qemu_tap_{}", scenarios_qemu::SWITCHES.name(switches));
        add(&name, Qemu, 150, Box::new(move |stage| scenarios_qemu::tap(stage, switches)));
    }
    for case in unikernels() {
        let name = format!("unikernel_{}", case.name());
        let run = move |stage: &Stage| scenarios_unikernel::serve(stage, &case);
        add(&name, Unikernel, 90, Box::new(run));
    }
    // QEMU's order of requests differs between releases.
    for (format, packed) in [("split", false), ("packed", true)] {
        for (name, needs) in [("qemu", Qemu), ("qemu_newest", NewestQemu)] {
            let run = move |stage: &Stage| scenarios_front_ends::qemu(stage, packed);
            add(&format!("front_end_{name}_{format}"), needs, 150, Box::new(run));
        }
    }
    for (name, needs, seconds, run) in ROWS {
        add(name, needs, seconds, Box::new(run));
    }
    all
}

/// Every receive scheme on every transport and in both formats, though not each with each.
fn unikernels() -> impl Iterator<Item = UnikernelCase> {
    use DeviceCase::{Ringway, Tap, User};
    use MachineType::{Microvm, Q35};
    let schemes = (0..).zip(["big", "page", "mtu", "ewma", "adaptive"]);
    let on_taps = schemes.flat_map(|(at, scheme)| {
        let packed = at % 2 == 0;
        [(Q35, Tap, packed, scheme, false), (Microvm, Tap, !packed, scheme, false)]
    });
    let others = [
        (Q35, User, false, "page", false),
        (Microvm, User, true, "adaptive", false),
        (Q35, Ringway, true, "adaptive", false),
        (Q35, Ringway, false, "big", false),
        (Q35, Tap, true, "adaptive", true),
        (Microvm, Tap, false, "adaptive", true),
    ];
    on_taps.chain(others).map(|(machine, device, packed, scheme, iommu_platform)| UnikernelCase {
        machine,
        device,
        packed,
        scheme,
        iommu_platform,
    })
}

fn combinations() -> impl Iterator<Item = [bool; 3]> {
    (0..8_u8).map(|bits| [bits & 4 != 0, bits & 2 != 0, bits & 1 != 0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_fit_into_paths() {
        let all = scenarios();
        let names: BTreeSet<&str> = all.iter().map(|scenario| &*scenario.name).collect();
        assert_eq!(names.len(), all.len());
        let fits = |character: char| character.is_ascii_alphanumeric() || character == '_';
        assert!(names.iter().all(|name| name.chars().all(fits) && name.len() < 60), "{names:?}");
        assert!(ALONE.iter().all(|alone| names.iter().any(|name| name.starts_with(alone))));
        assert!(LONG.iter().all(|long| names.contains(long)));
    }

    #[test]
    fn every_combination_is_there() {
        let all: BTreeSet<[bool; 3]> = combinations().collect();
        assert_eq!(all.len(), 8);
    }
}
