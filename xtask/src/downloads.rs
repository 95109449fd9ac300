//! What is unpacked below `target/guest` and never installed: guests' kernels, DPDK's `testpmd`,
//! Prometheus, FRR, Open vSwitch, OVN and VDE (which would be servers of this machine), and what
//! the distribution's newest release has, other routers for guests among it.
//!
//! How: packages come from the lists of this machine, or, for the newest release, from what is
//! called `stable` on the mirror that this machine's packages come from, with lists of their own:
//! neither the machine's lists nor its sources change. What is of a newer release brings along the
//! loader and the libraries that it was built for. `testpmd` is in `dpdk-dev`, which depends on all
//! of DPDK: what this machine does not have of that is unpacked, too (33 MB).
//!
//! Limits: what was unpacked before stays, whatever the lists have now. Where there is no newer
//! release, the scenarios that need it are left out.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use ringway_guests::dpdk_files::DpdkFiles;
use ringway_guests::frr_files::FrrFiles;
use ringway_guests::ovs_files::OvsFiles;
use ringway_guests::own_loader::{OwnLoader, use_own_loader};
use ringway_guests::{kernel_files, qemu_files, shell, uml_files};

use crate::apt::Apt;
use crate::paths::Paths;

/// Name the directories of a kernel and of DPDK to programs that look for them.
pub const KERNEL_VARIABLE: &str = "RINGWAY_GUEST_KERNEL";
const DPDK_VARIABLE: &str = "RINGWAY_DPDK";
const PROMETHEUS_VARIABLE: &str = "RINGWAY_PROMETHEUS";
const PASST_VARIABLE: &str = "RINGWAY_PASST";
const GVPROXY_VARIABLE: &str = "RINGWAY_GVPROXY";
const OVS_VARIABLE: &str = "RINGWAY_OVS";
const VDE_VARIABLE: &str = "RINGWAY_VDE";

/// The package that depends on the current cloud kernel, and the one with `testpmd`.
const KERNEL_PACKAGE: &str = "linux-image-cloud-amd64";
const DPDK_PACKAGE: &str = "dpdk-dev";
const PROMETHEUS_PACKAGE: &str = "prometheus";
const FRR_PACKAGE: &str = "frr";
/// With the libraries that few other programs need.
const OVS_PACKAGES: [&str; 5] =
    ["openvswitch-switch", "openvswitch-switch-dpdk", "openvswitch-common", "libxdp1", "libbpf1"];
/// The same of OVN, which is another source.
const OVN_PACKAGES: [&str; 5] =
    ["ovn-common", "ovn-central", "ovn-host", "libunbound8", "libevent-2.1-7"];
const VDE_PACKAGE: &str = "vde-switch";

/// What can be looked for if something of it cannot be had.
pub const PACKAGES: [&str; 4] = [KERNEL_PACKAGE, DPDK_PACKAGE, PROMETHEUS_PACKAGE, FRR_PACKAGE];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Download {
    Kernel,
    Dpdk,
    Prometheus,
    Frr,
    Ovs,
    /// A switch that is only measured.
    Vde,
    Ovn,
    NewestKernel,
    NewestUml,
    NewestQemu,
    /// What routes for guests elsewhere, to be measured beside ringway.
    Passt,
    Gvproxy,
}

use Download::{
    Dpdk, Frr, Gvproxy, Kernel, NewestKernel, NewestQemu, NewestUml, Ovn, Ovs, Passt, Prometheus,
    Vde,
};

const OF_NEWEST: [Download; 5] = [NewestKernel, NewestUml, NewestQemu, Passt, Gvproxy];

/// The names of these packages, of their programs and of the directories of both.
const PASST: &str = "passt";
const GVPROXY: &str = "gvproxy";
/// The program of that package.
const VDE: &str = "vde_switch";

impl Download {
    pub fn directory(self, paths: &Paths) -> PathBuf {
        paths.guest().join(match self {
            Kernel => "kernel",
            Dpdk => "dpdk",
            Prometheus => "prometheus",
            Frr => "frr",
            Ovs => "ovs",
            Vde => "vde",
            Ovn => "ovn",
            NewestKernel => "kernel-newest",
            NewestUml => "uml-newest",
            NewestQemu => "qemu-newest",
            Passt => PASST,
            Gvproxy => GVPROXY,
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Kernel => "the guests' kernel",
            Dpdk => "DPDK's testpmd",
            Prometheus => "Prometheus",
            Frr => "FRR",
            Ovs => "Open vSwitch",
            Vde => "vde_switch",
            Ovn => "OVN",
            NewestKernel => "the newest release's kernel",
            NewestUml => "the newest release's User Mode Linux",
            NewestQemu => "the newest release's QEMU, its libraries and its firmware",
            Passt => "the newest release's passt",
            Gvproxy => "the newest release's gvproxy",
        }
    }

    pub fn is_there(self, paths: &Paths) -> bool {
        let directory = self.directory(paths);
        match self {
            Kernel | NewestKernel => kernel_files::find(&directory).is_some(),
            Dpdk => dpdk(paths).is_some_and(|files| files.has_tap()),
            Prometheus => directory.join("usr/bin/promtool").is_file(),
            Frr => frr(paths).is_some(),
            Ovs => ovs(paths).is_some_and(|files| files.has_dpdk()),
            Vde => OwnLoader::find(&directory, VDE).is_some(),
            Ovn => ovs(paths).is_some_and(|files| files.has_ovn()),
            NewestUml => uml_files::find(&directory).is_some(),
            NewestQemu => qemu_files::find(&directory).is_some(),
            Passt => OwnLoader::find(&directory, PASST).is_some(),
            Gvproxy => OwnLoader::find(&directory, GVPROXY).is_some(),
        }
    }

    fn packages(self, apt: &Apt) -> anyhow::Result<Vec<String>> {
        match self {
            Kernel | NewestKernel => Ok(vec![apt.kernel_of(KERNEL_PACKAGE)?]),
            Dpdk => apt.with_dependencies(DPDK_PACKAGE),
            Prometheus => Ok(vec![PROMETHEUS_PACKAGE.to_string()]),
            Frr => apt.with_dependencies(FRR_PACKAGE),
            Ovs => Ok(OVS_PACKAGES.map(String::from).to_vec()),
            Vde => Ok(vec![VDE_PACKAGE.to_string()]),
            Ovn => Ok(OVN_PACKAGES.map(String::from).to_vec()),
            // What it is linked with is all that it needs.
            NewestUml => Ok(["user-mode-linux", "libc6"].map(String::from).to_vec()),
            NewestQemu => apt.with_dependencies("qemu-system-x86"),
            Passt => Ok([PASST, "libc6"].map(String::from).to_vec()),
            Gvproxy => Ok([GVPROXY, "libc6"].map(String::from).to_vec()),
        }
    }

    pub fn prepare(self, paths: &Paths, apt: &Apt) -> anyhow::Result<()> {
        if self.is_there(paths) {
            return Ok(());
        }
        println!("downloading {}", self.name());
        let (packages, directory) = (self.packages(apt)?, self.directory(paths));
        let unpacked = apt.unpacked(&packages, &directory)?;
        match self {
            NewestUml => use_own_loader(&unpacked.root, uml_files::PROGRAM)?,
            NewestQemu => use_own_loader(&unpacked.root, qemu_files::PROGRAM)?,
            Gvproxy => use_own_loader(&unpacked.root, GVPROXY)?,
            Passt => {
                use_own_loader(&unpacked.root, PASST)?;
                // What it becomes on a processor that has these instructions.
                use_own_loader(&unpacked.root, "passt.avx2")?;
            }
            Kernel | NewestKernel | Dpdk | Prometheus | Frr | Ovs | Ovn | Vde => {}
        }
        unpacked.move_to(&directory)?;
        if self == Dpdk {
            let mut help = DpdkFiles::unpacked(&directory)?.command(&[]);
            let help = shell::output(help.arg("--help"));
            let help = help.context("DPDK's testpmd does not start")?;
            ensure!(help.contains("EAL"), "DPDK's testpmd: {help}");
            fs::write(directory.join("complete"), packages.join("\n"))?;
        }
        ensure!(self.is_there(paths), "{}: not in {}", self.name(), packages.join(" "));
        Ok(())
    }
}

/// Downloads and unpacks what is not there of the newest release.
pub fn prepare_newest(paths: &Paths) -> anyhow::Result<()> {
    if OF_NEWEST.iter().all(|download| download.is_there(paths)) {
        return Ok(());
    }
    println!("fetching the package lists of the newest release");
    let apt = Apt::of_newest(&paths.guest().join("apt-newest"))?;
    OF_NEWEST.iter().try_for_each(|download| download.prepare(paths, &apt))
}

/// DPDK's program, if it is complete.
pub fn dpdk(paths: &Paths) -> Option<DpdkFiles> {
    let directory = Dpdk.directory(paths);
    let is_complete = directory.join("complete").is_file();
    is_complete.then(|| DpdkFiles::unpacked(&directory).ok()).flatten()
}

/// FRR, if it is there or installed.
pub fn frr(paths: &Paths) -> Option<FrrFiles> {
    FrrFiles::find(&Frr.directory(paths)).or_else(|| FrrFiles::find(Path::new("/")))
}

/// Open vSwitch, if it is there or installed, and OVN.
pub fn ovs(paths: &Paths) -> Option<OvsFiles> {
    let installed = Path::new("/");
    let found = OvsFiles::find(&Ovs.directory(paths)).or_else(|| OvsFiles::find(installed))?;
    let unpacked = found.clone().with_ovn(&Ovn.directory(paths));
    Some(if unpacked.has_ovn() { unpacked } else { found.with_ovn(installed) })
}

/// Tells tests where Prometheus is, if it is.
pub fn name_prometheus_to(command: &mut Command, paths: &Paths) {
    if Prometheus.is_there(paths) {
        command.env(PROMETHEUS_VARIABLE, Prometheus.directory(paths));
    }
}

/// Tells the benchmark where other routers and switches are, if they are.
pub fn name_peers_to(command: &mut Command, paths: &Paths) {
    let peers = [
        (PASST_VARIABLE, Passt),
        (GVPROXY_VARIABLE, Gvproxy),
        (OVS_VARIABLE, Ovs),
        (VDE_VARIABLE, Vde),
    ];
    for (variable, peer) in peers {
        if peer.is_there(paths) {
            command.env(variable, peer.directory(paths));
        }
    }
}

/// Tells a program where that is, if it is complete.
pub fn name_dpdk_to(command: &mut Command, paths: &Paths) {
    if dpdk(paths).is_some() {
        command.env(DPDK_VARIABLE, Dpdk.directory(paths));
    }
}
