//! The needs of scenarios: what has to be installed, where it is, and what is built for them.

use std::path::PathBuf;

use ringway_guests::stage::Programs;
use ringway_guests::{namespaces, qemu, shell, uml};

use super::{scenarios_captures, scenarios_driver};
use crate::cargo_tests;
use crate::downloads::{self, Download, KERNEL_VARIABLE};
use crate::paths::Paths;
use crate::unikernel;

/// Names a directory with an unpacked QEMU, to try another one.
const QEMU_VARIABLE: &str = "RINGWAY_GUEST_QEMU";

/// Names a directory with an unpacked User Mode Linux, to try another one.
const UML_VARIABLE: &str = "RINGWAY_GUEST_UML";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// User Mode Linux, and what its guests run.
    Uml,
    /// The same, and a client of DHCP.
    UmlAndDhcp,
    /// User Mode Linux of the distribution's newest release.
    NewestUml,
    /// QEMU, the guests' kernel, and what goes into their initramfs.
    Qemu,
    /// The same with the QEMU of the distribution's newest release.
    NewestQemu,
    /// The same again, and ringway with debug assertions.
    CheckedRingway,
    /// QEMU, and the kernel of the distribution's newest release.
    NewestKernel,
    /// Both of these, taps, and the comparison of captures.
    UmlAndQemu,
    /// User Mode Linux, taps and bridges, and routing daemons.
    UmlAndFrr,
    /// The same, and DPDK.
    UmlFrrAndDpdk,
    /// User Mode Linux, taps, and Open vSwitch.
    UmlAndOvs,
    /// The same, and OVN.
    UmlAndOvn,
    Dpdk,
    /// The same, and other switches.
    Switches,
    /// DPDK, and the driver's test; no tap.
    DpdkDevice,
    /// QEMU and the bare-metal example.
    Unikernel,
}

impl Needs {
    pub fn programs(self, paths: &Paths) -> Programs {
        let of = |variable, download: Option<Download>| {
            let named = std::env::var_os(variable).map(PathBuf::from);
            let unpacked = download.map(|download| download.directory(paths));
            named.or(unpacked).unwrap_or("/".into())
        };
        let newest = |needs: &[Self], download| needs.contains(&self).then_some(download);
        let kernel = newest(&[Self::NewestKernel], Download::NewestKernel);
        let qemu = newest(&[Self::NewestQemu, Self::CheckedRingway], Download::NewestQemu);
        let uml = newest(&[Self::NewestUml], Download::NewestUml);
        Programs {
            ringway: match self {
                Self::CheckedRingway => paths.checked_ringway(),
                _ => paths.ringway(),
            },
            qemu: of(QEMU_VARIABLE, qemu),
            kernel: of(KERNEL_VARIABLE, kernel.or(Some(Download::Kernel))),
            uml: of(UML_VARIABLE, uml),
            dpdk: downloads::dpdk(paths),
            frr: downloads::frr(paths),
            ovs: downloads::ovs(paths),
        }
    }

    /// The reason why this machine cannot run it, the most general first.
    pub fn why_not(self, paths: &Paths) -> Option<String> {
        let Programs { qemu, kernel, uml, dpdk, frr, ovs, .. } = self.programs(paths);
        let taps = namespaces::missing_taps;
        let advise = |missing: String| format!("{missing}: see ./x setup");
        let dpdk = || dpdk.is_none().then(|| advise("testpmd is not unpacked".to_string()));
        let qemu = || qemu::missing(&qemu, &kernel).map(advise);
        let unikernel = || shell::missing(&[unikernel::PROGRAM, "ping", "ip"]).map(advise);
        namespaces::missing().or_else(|| match self {
            Self::Uml | Self::NewestUml => uml::missing(&uml).map(advise),
            Self::UmlAndDhcp => {
                let client = shell::missing(&["dhclient"]).map(advise);
                client.or_else(|| uml::missing(&uml).map(advise))
            }
            Self::Qemu | Self::CheckedRingway | Self::NewestQemu | Self::NewestKernel => {
                taps().or_else(qemu)
            }
            Self::UmlAndQemu => taps().or_else(qemu).or_else(|| uml::missing(&uml).map(advise)),
            Self::UmlAndFrr | Self::UmlFrrAndDpdk => {
                let no_frr = || frr.is_none().then(|| advise("FRR is not unpacked".to_string()));
                let bridges = namespaces::missing_bridges().or_else(no_frr);
                let no_dpdk = if self == Self::UmlFrrAndDpdk { dpdk() } else { None };
                let uml = || uml::missing(&uml).map(advise);
                taps().or(bridges).or_else(uml).or(no_dpdk)
            }
            Self::UmlAndOvs | Self::UmlAndOvn => {
                let ovs = ovs.filter(|files| self == Self::UmlAndOvs || files.has_ovn());
                let no_ovs = || {
                    let what = "Open vSwitch, or OVN, is not unpacked";
                    ovs.is_none().then(|| advise(what.to_string()))
                };
                taps().or_else(no_ovs).or_else(|| uml::missing(&uml).map(advise))
            }
            Self::Dpdk => taps().or_else(dpdk),
            Self::Switches => {
                let all = ovs.is_some_and(|ovs| ovs.has_dpdk()) && Download::Vde.is_there(paths);
                let missing = || advise("no Open vSwitch with DPDK, or no vde_switch".to_string());
                taps().or_else(dpdk).or_else(|| (!all).then(missing))
            }
            Self::DpdkDevice => dpdk(),
            Self::Unikernel => taps().or_else(unikernel),
        })
    }

    pub fn build(self, paths: &Paths) -> anyhow::Result<()> {
        match self {
            Self::Unikernel => unikernel::build(paths).map(drop),
            Self::DpdkDevice => scenarios_driver::PROGRAM.build(paths),
            Self::UmlAndQemu => scenarios_captures::PROGRAM.build(paths),
            // Cargo builds the program with the tests that start it, and nothing once more.
            Self::CheckedRingway => {
                cargo_tests::build(paths, &["--workspace", "--test", "command_line"]).map(drop)
            }
            _ => Ok(()),
        }
    }
}
