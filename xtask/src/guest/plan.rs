//! The list of scenarios.

use std::time::Duration;

use super::scenarios_dpdk::DpdkCase;
use super::scenarios_qemu::QemuCase;
use super::scenarios_uml::UmlCase;
use super::scenarios_unikernel::{DeviceCase, UnikernelCase};
use crate::driver_test;
use crate::unikernel::MachineType;

/// The scenario that compares ringway with QEMU's own tap.
pub const SANITY: &str = "sanity_vs_qemu_tap";

/// One scenario.
#[derive(Debug)]
pub struct Scenario {
    /// Its name: letters, digits and underscores.
    pub name: String,
    /// What it needs beside ringway and namespaces.
    pub needs: Needs,
    /// It is killed after this.
    pub limit: Duration,
    /// What it does.
    pub case: Case,
}

/// What has to be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// User Mode Linux, and what its guests run.
    Uml,
    /// The same of the distribution's newest release.
    NewestUml,
    /// QEMU, the guests' kernel, and what goes into their initramfs.
    Qemu,
    /// The same with the QEMU of the distribution's newest release.
    NewestQemu,
    /// QEMU, and the kernel of the distribution's newest release.
    NewestKernel,
    /// Both of these, taps, and the comparison of captures.
    UmlAndQemu,
    /// DPDK's testpmd.
    Dpdk,
    /// The same, and the driver's test; no tap.
    DpdkDevice,
    /// QEMU and the bare-metal example.
    Unikernel,
}

/// What happens in a scenario.
#[derive(Debug)]
pub enum Case {
    /// Two User Mode Linux guests talk.
    UmlPair(UmlCase),
    /// Two User Mode Linux guests on taps, one of whose workers may poll.
    UmlPoll,
    /// Two User Mode Linux guests are measured.
    BenchGuest,
    /// Policies of notification are measured with User Mode Linux.
    BenchPacing,
    /// Rings are measured, DPDK's, too.
    BenchRing,
    /// Two User Mode Linux guests with two queue pairs each, and two workers.
    UmlPairs,
    /// A QEMU guest that changes how many of its queue pairs it uses, a tap, and two workers.
    QemuPairs {
        /// With packed rings.
        is_packed: bool,
    },
    /// Two User Mode Linux guests, and what one sets through its control queue.
    UmlControl,
    /// Two User Mode Linux guests, one of which says how seldom it wants to be called.
    UmlCoalesce {
        /// Its kernel knows everything that can be set.
        is_newest: bool,
    },
    /// User Mode Linux, given what `ringway attach` prints.
    AttachUml,
    /// QEMU, given what `ringway attach` prints.
    AttachQemu {
        /// Queue pairs of the port.
        queues: u16,
    },
    /// Two QEMU guests, started as README says.
    AttachReadme,
    /// DPDK, given what `ringway attach` prints.
    AttachDpdk,
    /// Guests with different offloads and a tap on one switch.
    UmlMixed,
    /// Guests that differ in everything, and their captures.
    Captures,
    /// A QEMU guest talks with this machine through a tap.
    QemuTap(QemuCase),
    /// The same, and it reboots.
    QemuReboot,
    /// The same, and ringway is killed and started again.
    QemuReconnect,
    /// A QEMU guest is paused, asked about its queues, and loses its link.
    QemuFrontEnd {
        /// Packed rings.
        packed: bool,
    },
    /// Ringway is killed and started again under a DPDK program that listens.
    DpdkServer {
        /// Packed rings.
        packed: bool,
    },
    /// One guest with two devices, measured against each other.
    Sanity,
    /// A DPDK program sends everything back.
    Dpdk(DpdkCase),
    /// The driver on a DPDK program's devices.
    DpdkDevice,
    /// The bare-metal example serves this machine.
    Unikernel(UnikernelCase),
}

/// All of them, in the order in which they run.
pub fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    all.extend(dpdk());
    all.push(dpdk_device());
    all.extend(unikernel());
    all.extend(uml());
    all.push(scenario("uml_poll", Needs::Uml, 180, Case::UmlPoll));
    all.push(scenario("uml_queue_pairs", Needs::Uml, 120, Case::UmlPairs));
    all.push(scenario("uml_control", Needs::Uml, 120, Case::UmlControl));
    all.extend(coalesce());
    all.push(scenario("attach_uml", Needs::Uml, 120, Case::AttachUml));
    let attach = |queues| Case::AttachQemu { queues };
    all.push(scenario("attach_qemu", Needs::Qemu, 120, attach(2)));
    all.push(scenario("attach_qemu_newest", Needs::NewestQemu, 120, attach(2)));
    all.push(scenario("attach_readme", Needs::Qemu, 180, Case::AttachReadme));
    all.push(scenario("attach_dpdk", Needs::Dpdk, 60, Case::AttachDpdk));
    all.push(scenario("uml_mixed_offloads", Needs::Uml, 120, Case::UmlMixed));
    all.push(scenario("captures", Needs::UmlAndQemu, 120, Case::Captures));
    all.extend(qemu());
    all.push(newest_kernel());
    all.push(newest_qemu());
    all.extend(qemu_pairs());
    let qemu = |name: &str, seconds, case| scenario(name, Needs::Qemu, seconds, case);
    all.push(qemu("qemu_reboot", 120, Case::QemuReboot));
    all.push(qemu("qemu_reconnect", 120, Case::QemuReconnect));
    all.extend(front_ends());
    all.push(scenario("bench_guest", Needs::Uml, 180, Case::BenchGuest));
    all.push(scenario("bench_pacing", Needs::Uml, 240, Case::BenchPacing));
    all.push(scenario("bench_ring", Needs::Dpdk, 180, Case::BenchRing));
    all.push(qemu(SANITY, 180, Case::Sanity));
    all
}

fn uml() -> impl Iterator<Item = Scenario> {
    let cases = [
        ("uml_pair_split", UmlCase { packed: false, mtu: None }),
        ("uml_pair_packed", UmlCase { packed: true, mtu: None }),
        ("uml_pair_jumbo", UmlCase { packed: false, mtu: Some(9000) }),
        ("uml_pair_packed_jumbo", UmlCase { packed: true, mtu: Some(9000) }),
    ];
    cases.into_iter().map(|(name, case)| scenario(name, Needs::Uml, 120, Case::UmlPair(case)))
}

fn qemu() -> impl Iterator<Item = Scenario> {
    combinations().map(|[packed, mergeable, event_idx]| {
        let case = QemuCase { packed, mergeable, event_idx };
        let name = format!("qemu_tap_{}", case.name());
        scenario(&name, Needs::Qemu, 150, Case::QemuTap(case))
    })
}

/// On each QEMU with the other ring format.
fn qemu_pairs() -> [Scenario; 2] {
    let case = |is_packed| Case::QemuPairs { is_packed };
    [
        scenario("qemu_queue_pairs", Needs::Qemu, 180, case(false)),
        scenario("qemu_queue_pairs_newest", Needs::NewestQemu, 180, case(true)),
    ]
}

/// What front-ends do beside carrying packets: QEMU's order of requests differs between releases.
fn front_ends() -> impl Iterator<Item = Scenario> {
    let formats = [("split", false), ("packed", true)];
    formats.into_iter().flat_map(|(format, packed)| {
        let qemu = |name: &str, needs| {
            let name = format!("front_end_{name}_{format}");
            scenario(&name, needs, 150, Case::QemuFrontEnd { packed })
        };
        let dpdk = format!("front_end_dpdk_server_{format}");
        [
            qemu("qemu", Needs::Qemu),
            qemu("qemu_newest", Needs::NewestQemu),
            scenario(&dpdk, Needs::Dpdk, 120, Case::DpdkServer { packed }),
        ]
    })
}

/// All that the newest kernel may have changed.
fn newest_kernel() -> Scenario {
    let case = QemuCase { packed: true, mergeable: true, event_idx: true };
    scenario("qemu_newest", Needs::NewestKernel, 150, Case::QemuTap(case))
}

/// All that the newest QEMU may have changed.
fn newest_qemu() -> Scenario {
    let case = QemuCase { packed: false, mergeable: true, event_idx: true };
    scenario("qemu_newest_program", Needs::NewestQemu, 150, Case::QemuTap(case))
}

fn coalesce() -> [Scenario; 2] {
    let case = |is_newest| Case::UmlCoalesce { is_newest };
    [
        scenario("uml_coalesce", Needs::Uml, 120, case(false)),
        scenario("uml_coalesce_newest", Needs::NewestUml, 120, case(true)),
    ]
}

fn dpdk() -> impl Iterator<Item = Scenario> {
    combinations().map(|[packed, in_order, mergeable]| {
        let case = DpdkCase { packed, in_order, mergeable };
        let name = format!("dpdk_{}", case.name());
        scenario(&name, Needs::Dpdk, 60, Case::Dpdk(case))
    })
}

/// As long as asked for with `RINGWAY_GIB`.
fn dpdk_device() -> Scenario {
    let start_limit = Duration::from_secs(90);
    let limit = start_limit + driver_test::limit();
    Scenario { limit, ..scenario("dpdk_vhost", Needs::DpdkDevice, 0, Case::DpdkDevice) }
}

/// Every receive scheme on every transport and in both formats, though not each with each.
fn unikernel() -> impl Iterator<Item = Scenario> {
    use DeviceCase::{Ringway, Tap, User};
    use MachineType::{Microvm, Q35};
    let schemes = (0..).zip(["big", "page", "mtu", "ewma", "adaptive"]);
    let on_taps = schemes.flat_map(|(at, scheme)| {
        let packed = at % 2 == 0;
        [(Q35, Tap, packed, scheme), (Microvm, Tap, !packed, scheme)]
    });
    let others = [
        (Q35, User, false, "page"),
        (Microvm, User, true, "adaptive"),
        (Q35, Ringway, true, "adaptive"),
        (Q35, Ringway, false, "big"),
    ];
    let cases = on_taps.chain(others).map(|(machine, device, packed, scheme)| UnikernelCase {
        machine,
        device,
        packed,
        scheme,
        iommu_platform: false,
    });
    let behind_iommus = [(Q35, true), (Microvm, false)].map(|(machine, packed)| UnikernelCase {
        machine,
        device: Tap,
        packed,
        scheme: "adaptive",
        iommu_platform: true,
    });
    cases.chain(behind_iommus).map(|case| {
        let name = format!("unikernel_{}", case.name());
        scenario(&name, Needs::Unikernel, 90, Case::Unikernel(case))
    })
}

fn scenario(name: &str, needs: Needs, seconds: u64, case: Case) -> Scenario {
    Scenario { name: name.to_string(), needs, limit: Duration::from_secs(seconds), case }
}

/// Every way to set three switches.
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
    }

    #[test]
    fn every_combination_is_there() {
        let all: BTreeSet<[bool; 3]> = combinations().collect();
        assert_eq!(all.len(), 8);
    }
}
