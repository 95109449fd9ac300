//! Packages that are unpacked below `target/guest` and never installed: guests' kernels, DPDK's
//! `testpmd`, Prometheus, FRR, Open vSwitch, OVN and VDE (which would be servers of this machine),
//! what the distribution's newest release has, other routers for guests among it, and a newer
//! systemd.
//!
//! How: packages come from the lists of this machine, or of the newest release ([`Apt`]). What is
//! of a newer release brings along the loader and the libraries that it was built for. `testpmd` is
//! in `dpdk-dev`, which depends on all of DPDK: that is unpacked, too, and what this machine does
//! not have of the rest (33 MB). passt becomes `passt.avx2` on a processor that has these
//! instructions.
//!
//! Limits: nothing of this is taken from what is installed, so that the tests are the same on all
//! machines. What was unpacked before stays, whatever the lists have now. Where there is no newer
//! release, the scenarios that need it are left out.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, ensure};
use ringway_guests::own_loader::use_own_loader;
use ringway_guests::{
    DpdkFiles, FrrFiles, OvsFiles, OwnLoader, kernel_files, qemu_files, shell, uml_files,
};

use crate::apt::Apt;
use crate::paths::Paths;

/// Names the directory of a kernel to programs that look for it.
pub const KERNEL_VARIABLE: &str = "RINGWAY_GUEST_KERNEL";

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
    /// Programs that route for guests elsewhere, to be measured beside ringway.
    Passt,
    Gvproxy,
    /// A newer systemd for this release: the service runs under it as well.
    Systemd,
}

use Download::{
    Dpdk, Frr, Gvproxy, Kernel, NewestKernel, NewestQemu, NewestUml, Ovn, Ovs, Passt, Prometheus,
    Systemd, Vde,
};

/// The downloads from the lists of this machine and from those of the newest release.
pub const OF_MACHINE: [Download; 7] = [Kernel, Dpdk, Prometheus, Frr, Ovs, Ovn, Vde];
const OF_NEWEST: [Download; 5] = [NewestKernel, NewestUml, NewestQemu, Passt, Gvproxy];

/// Packages, with a blank between them.
#[derive(Clone, Copy)]
enum Packages {
    /// These alone, with the libraries that few other programs need.
    These(&'static str),
    /// This one, and what it depends on and is not there.
    Whole(&'static str),
    /// The one that this one, of the current kernel, depends on.
    KernelOf(&'static str),
}

use Packages::{KernelOf, These, Whole};

/// A directory, what is in it for readers, its packages, and programs that get the loader that they
/// were built for.
type Row = (&'static str, &'static str, Packages, &'static [&'static str]);

const SYSTEMD_PACKAGES: &str = "systemd systemd-dev libsystemd0 libsystemd-shared";
const OVS_PACKAGES: &str =
    "openvswitch-switch openvswitch-switch-dpdk openvswitch-common libxdp1 libbpf1";
const OVN_PACKAGES: &str = "ovn-common ovn-central ovn-host libunbound8 libevent-2.1-7";
const KERNEL: Packages = KernelOf("linux-image-cloud-amd64");
/// The library that it is linked with is all that it needs.
const UML: Packages = These("user-mode-linux libc6");
const QEMU_NAME: &str = "the newest release's QEMU, its libraries and its firmware";
const PASST: &[&str] = &["passt", "passt.avx2"];

impl Download {
    fn row(self) -> Row {
        match self {
            Kernel => ("kernel", "the guests' kernel", KERNEL, &[]),
            Dpdk => ("dpdk", "DPDK's testpmd", Whole("dpdk-dev"), &[]),
            Prometheus => ("prometheus", "Prometheus", These("prometheus"), &[]),
            Frr => ("frr", "FRR", Whole("frr"), &[]),
            Ovs => ("ovs", "Open vSwitch", These(OVS_PACKAGES), &[]),
            Vde => ("vde", "vde_switch", These("vde-switch"), &[]),
            Ovn => ("ovn", "OVN", These(OVN_PACKAGES), &[]),
            NewestKernel => ("kernel-newest", "the newest release's kernel", KERNEL, &[]),
            NewestUml => {
                ("uml-newest", "the newest release's User Mode Linux", UML, &[uml_files::PROGRAM])
            }
            NewestQemu => {
                ("qemu-newest", QEMU_NAME, Whole("qemu-system-x86"), &[qemu_files::PROGRAM])
            }
            Systemd => ("systemd", "a newer systemd", These(SYSTEMD_PACKAGES), &[]),
            Passt => ("passt", "the newest release's passt", These("passt libc6"), PASST),
            Gvproxy => {
                ("gvproxy", "the newest release's gvproxy", These("gvproxy libc6"), &["gvproxy"])
            }
        }
    }

    pub fn directory(self, paths: &Paths) -> PathBuf {
        paths.guest().join(self.row().0)
    }

    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The names to look for if it cannot be had.
    pub fn wanted(self) -> &'static str {
        let (_, _, These(names) | Whole(names) | KernelOf(names), _) = self.row();
        names
    }

    pub fn is_there(self, paths: &Paths) -> bool {
        let directory = self.directory(paths);
        match self {
            Kernel | NewestKernel => kernel_files::find(&directory).is_some(),
            Dpdk => dpdk(paths).is_some_and(|files| files.has_tap()),
            Prometheus => directory.join("usr/bin/promtool").is_file(),
            Frr => frr(paths).is_some(),
            Ovs => ovs(paths).is_some_and(|files| files.has_dpdk()),
            Ovn => ovs(paths).is_some_and(|files| files.has_ovn()),
            NewestUml => uml_files::find(&directory).is_some(),
            NewestQemu => qemu_files::find(&directory).is_some(),
            Vde => OwnLoader::find(&directory, "vde_switch").is_some(),
            Systemd => directory.join("lib/systemd/systemd").is_file(),
            Passt => OwnLoader::find(&directory, "passt").is_some(),
            Gvproxy => OwnLoader::find(&directory, "gvproxy").is_some(),
        }
    }

    pub fn prepare(self, paths: &Paths, apt: &Apt) -> anyhow::Result<()> {
        if self.is_there(paths) {
            return Ok(());
        }
        println!("downloading {}", self.name());
        let (directory, (_, _, packages, programs)) = (self.directory(paths), self.row());
        let packages = match packages {
            These(names) => names.split(' ').map(String::from).collect(),
            Whole(name) => apt.with_dependencies(name)?,
            KernelOf(name) => vec![apt.kernel_of(name)?],
        };
        let unpacked = apt.unpacked(&packages, &directory)?;
        programs.iter().try_for_each(|program| use_own_loader(&unpacked.root, program))?;
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

    /// Tells a program where it is, if it is, by a variable that is called after its directory.
    pub fn name_to(self, command: &mut Command, paths: &Paths) {
        // Of DPDK the benchmark finds out itself what it can do.
        if self.is_there(paths) || (self == Dpdk && dpdk(paths).is_some()) {
            let variable = format!("RINGWAY_{}", self.row().0.to_uppercase());
            command.env(variable, self.directory(paths));
        }
    }
}

pub fn prepare_newest(paths: &Paths) -> anyhow::Result<()> {
    if OF_NEWEST.iter().all(|download| download.is_there(paths)) {
        return Ok(());
    }
    println!("fetching the package lists of the newest release");
    let apt = Apt::of_newest(&paths.guest().join("apt-newest"))?;
    OF_NEWEST.iter().try_for_each(|download| download.prepare(paths, &apt))
}

pub fn prepare_backports(paths: &Paths) -> anyhow::Result<()> {
    if Systemd.is_there(paths) {
        return Ok(());
    }
    let apt = Apt::of_backports(&paths.guest().join("apt-backports"))?;
    Systemd.prepare(paths, &apt)
}

/// DPDK's program, if it is complete.
pub fn dpdk(paths: &Paths) -> Option<DpdkFiles> {
    let directory = Dpdk.directory(paths);
    let is_complete = directory.join("complete").is_file();
    is_complete.then(|| DpdkFiles::unpacked(&directory).ok()).flatten()
}

/// FRR, if it is there.
pub fn frr(paths: &Paths) -> Option<FrrFiles> {
    FrrFiles::find(&Frr.directory(paths))
}

/// Open vSwitch, if it is there, and OVN.
pub fn ovs(paths: &Paths) -> Option<OvsFiles> {
    Some(OvsFiles::find(&Ovs.directory(paths))?.with_ovn(&Ovn.directory(paths)))
}
