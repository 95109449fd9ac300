//! The list of scenarios.

use std::time::Duration;

use ringway_guests::stage::Stage;

use super::needs::Needs::{
    self, Dpdk, DpdkDevice, NewestKernel, NewestQemu, NewestUml, Qemu, Switches, Uml, UmlAndFrr,
    UmlAndOvn, UmlAndOvs, UmlAndQemu, Unikernel,
};
use super::scenarios_bench::Case;
use super::scenarios_unikernel::{self, DeviceCase, UnikernelCase};
use super::{
    scenarios_attach, scenarios_bench, scenarios_capture_pair, scenarios_captures,
    scenarios_coalesce, scenarios_control, scenarios_dpdk, scenarios_driver, scenarios_evpn,
    scenarios_front_ends, scenarios_nat, scenarios_nat_forward, scenarios_offload, scenarios_ovs,
    scenarios_pairs, scenarios_pairs_qemu, scenarios_poll, scenarios_qemu, scenarios_restart,
    scenarios_restart_dpdk, scenarios_restart_memory, scenarios_uml, scenarios_why,
};
use crate::unikernel::MachineType;

/// The scenario that compares ringway with QEMU's own tap.
const SANITY: &str = "sanity_vs_qemu_tap";

pub struct Scenario {
    pub name: String,
    pub needs: Needs,
    /// It is killed after this.
    pub limit: Duration,
    pub run: Run,
}

type Run = Box<dyn Fn(&Stage) -> anyhow::Result<()> + Send + Sync>;

/// Beginnings of the names of scenarios that measure times, or say how long a gap was.
const ALONE: [&str; 6] = ["bench_", "evpn_", "restart_", SANITY, "uml_coalesce", "uml_poll"];

impl Scenario {
    /// Whether others would change what it measures.
    pub fn runs_alone(&self) -> bool {
        ALONE.iter().any(|beginning| self.name.starts_with(beginning))
    }
}

const MEASUREMENTS: [(&str, Needs, u64, Case); 7] = [
    ("bench_guest", Uml, 180, scenarios_bench::GUESTS),
    ("bench_history", Uml, 180, scenarios_bench::HISTORY),
    ("bench_nat", Uml, 180, scenarios_bench::ROUTERS),
    ("bench_pacing", Uml, 240, scenarios_bench::PACING),
    ("bench_ring", Dpdk, 180, scenarios_bench::RINGS),
    ("bench_switch", Switches, 180, scenarios_bench::SWITCH),
    (SANITY, Qemu, 180, scenarios_bench::QEMU),
];

/// A scenario without a choice.
type Simple = fn(&Stage) -> anyhow::Result<()>;

/// Scenarios with two User Mode Linux guests and nothing special.
const TWO_UML: [(&str, Simple); 5] = [
    ("uml_queue_pairs", scenarios_pairs::pairs),
    ("uml_control", scenarios_control::control),
    ("uml_mixed_offloads", scenarios_offload::mixed),
    ("uml_capture", scenarios_capture_pair::compare),
    ("uml_why", scenarios_why::why),
];

/// Scenarios in which others switch, too.
const MANY_HOSTS: [(&str, Needs, Simple); 4] = [
    ("ovs_userspace", UmlAndOvs, scenarios_ovs::userspace),
    ("ovn_children", UmlAndOvn, scenarios_ovs::children),
    ("evpn_networks", UmlAndFrr, scenarios_evpn::networks),
    ("evpn_moves", UmlAndFrr, scenarios_evpn::moves),
];

/// All of them, in the order in which they run.
pub fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    let mut add = |name: &str, needs, seconds, run: Run| {
        let limit = Duration::from_secs(seconds);
        all.push(Scenario { name: name.to_string(), needs, limit, run });
    };
    for switches in combinations() {
        let name = format!("dpdk_{}", scenarios_dpdk::SWITCHES.name(switches));
        add(&name, Dpdk, 60, Box::new(move |stage| scenarios_dpdk::echo(stage, switches)));
    }
    let limit = 90 + scenarios_driver::limit().as_secs();
    add("dpdk_vhost", DpdkDevice, limit, Box::new(scenarios_driver::vhost));
    for case in unikernels() {
        let name = format!("unikernel_{}", case.name());
        let run = move |stage: &Stage| scenarios_unikernel::serve(stage, &case);
        add(&name, Unikernel, 90, Box::new(run));
    }
    for (name, packed, mtu) in [
        ("uml_pair_split", false, None),
        ("uml_pair_packed", true, None),
        ("uml_pair_jumbo", false, Some(9000)),
        ("uml_pair_packed_jumbo", true, Some(9000)),
    ] {
        add(name, Uml, 120, Box::new(move |stage| scenarios_uml::pair(stage, packed, mtu)));
    }
    for (name, run) in TWO_UML {
        add(name, Uml, 120, Box::new(run));
    }
    add("uml_poll", Uml, 180, Box::new(scenarios_poll::poll));
    let coalesce = |newest| Box::new(move |stage: &_| scenarios_coalesce::coalesce(stage, newest));
    add("uml_coalesce", Uml, 120, coalesce(false));
    add("uml_coalesce_newest", NewestUml, 120, coalesce(true));
    add("attach_uml", Uml, 120, Box::new(scenarios_attach::uml));
    add("attach_qemu", Qemu, 120, Box::new(scenarios_attach::qemu));
    add("attach_qemu_newest", NewestQemu, 120, Box::new(scenarios_attach::qemu));
    add("attach_readme", Qemu, 180, Box::new(scenarios_attach::readme));
    add("attach_dpdk", Dpdk, 60, Box::new(scenarios_attach::dpdk));
    add("captures", UmlAndQemu, 120, Box::new(scenarios_captures::compare));
    let tap = |switches| Box::new(move |stage: &_| scenarios_qemu::tap(stage, switches));
    for switches in combinations() {
        let name = scenarios_qemu::SWITCHES.name(switches);
        add(&format!("qemu_tap_{name}"), Qemu, 150, tap(switches));
    }
    // All that the newest kernel may have changed, and all that the newest QEMU may.
    add("qemu_newest", NewestKernel, 150, tap([true; 3]));
    add("qemu_newest_program", NewestQemu, 150, tap([false, true, true]));
    let pairs = |packed| Box::new(move |stage: &_| scenarios_pairs_qemu::pairs(stage, packed));
    add("qemu_queue_pairs", Qemu, 180, pairs(false));
    add("qemu_queue_pairs_newest", NewestQemu, 180, pairs(true));
    add("qemu_reboot", Qemu, 120, Box::new(scenarios_qemu::reboot));
    add("qemu_reconnect", Qemu, 120, Box::new(scenarios_qemu::reconnect));
    let restart_seconds = scenarios_restart::limit().as_secs();
    add("restart_uml", Uml, restart_seconds, Box::new(scenarios_restart::uml));
    add("restart_dpdk", Dpdk, restart_seconds, Box::new(scenarios_restart_dpdk::dpdk));
    add("restart_memory", Qemu, 180, Box::new(scenarios_restart_memory::qemu));
    // QEMU's order of requests differs between releases.
    for (format, packed) in [("split", false), ("packed", true)] {
        add(&format!("restart_qemu_{format}"), Qemu, restart_seconds, restart(packed));
        for (name, needs) in [("qemu", Qemu), ("qemu_newest", NewestQemu)] {
            let run = move |stage: &Stage| scenarios_front_ends::qemu(stage, packed);
            add(&format!("front_end_{name}_{format}"), needs, 150, Box::new(run));
        }
        add(&format!("front_end_dpdk_server_{format}"), Dpdk, 120, dpdk_server(packed));
    }
    for (name, needs, seconds, case) in MEASUREMENTS {
        let run = move |stage: &Stage| scenarios_bench::measure(stage, &case);
        add(name, needs, seconds, Box::new(run));
    }
    for (name, needs, run) in MANY_HOSTS {
        add(name, needs, 120, Box::new(run));
    }
    all.extend(scenarios_nat::ALL.into_iter().chain([scenarios_nat_forward::FORWARD]).map(routed));
    all
}

fn routed((name, needs, run): scenarios_nat::Scenario) -> Scenario {
    let limit = Duration::from_secs(240) + scenarios_nat::minutes();
    Scenario { name: name.to_string(), needs, limit, run: Box::new(run) }
}

fn restart(packed: bool) -> Run {
    Box::new(move |stage| scenarios_restart::qemu(stage, packed))
}

fn dpdk_server(packed: bool) -> Run {
    Box::new(move |stage| scenarios_front_ends::dpdk_server(stage, packed))
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
        assert!(names.contains(SANITY));
        assert!(ALONE.iter().all(|alone| names.iter().any(|name| name.starts_with(alone))));
    }

    #[test]
    fn every_combination_is_there() {
        let all: BTreeSet<[bool; 3]> = combinations().collect();
        assert_eq!(all.len(), 8);
    }
}
