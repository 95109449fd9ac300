//! The stage of a scenario or measurement: places, and a way to say what it does.

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::dpdk_files::DpdkFiles;
use crate::frr_files::FrrFiles;
use crate::ovs_files::OvsFiles;

/// In front of lines that are shown even when the scenario passes.
pub const NOTE: &str = "note: ";

/// Where programs are that are not simply installed.
#[derive(Debug, Clone)]
pub struct Programs {
    /// `ringway` itself.
    pub ringway: PathBuf,
    /// Below which QEMU is: see [`qemu_files`](crate::qemu_files).
    pub qemu: PathBuf,
    /// Below which the kernel of QEMU guests is: see [`kernel_files`](crate::kernel_files).
    pub kernel: PathBuf,
    /// Below which User Mode Linux is: see [`uml_files`](crate::uml_files).
    pub uml: PathBuf,
    /// DPDK, if it is there.
    pub dpdk: Option<DpdkFiles>,
    /// FRR, if it is there.
    pub frr: Option<FrrFiles>,
    /// Open vSwitch, if it is there.
    pub ovs: Option<OvsFiles>,
}

/// The surroundings of one scenario.
#[derive(Debug)]
pub struct Stage {
    /// The programs that are started.
    pub programs: Programs,
    /// Programs of this machine that QEMU guests have beside the usual ones.
    pub guest_programs: Vec<PathBuf>,
    /// For sockets and scripts; short, empty, and removed afterwards.
    pub directory: PathBuf,
    /// For what the processes print.
    pub logs: PathBuf,
    started: Instant,
}

impl Stage {
    /// Surroundings with these places, which exist.
    pub fn new(programs: Programs, logs: PathBuf, directory: &Path) -> Self {
        let (directory, guest_programs) = (directory.to_path_buf(), Vec::new());
        Self { programs, guest_programs, directory, logs, started: Instant::now() }
    }

    /// Surroundings without programs.
    #[cfg(test)]
    pub fn for_test(directory: &Path) -> Self {
        let [qemu, kernel, uml] = ["/nowhere"; 3].map(PathBuf::from);
        let programs = Programs {
            ringway: "false".into(),
            qemu,
            kernel,
            uml,
            dpdk: None,
            frr: None,
            ovs: None,
        };
        Self::new(programs, directory.to_path_buf(), directory)
    }

    /// Says what comes next, for the log.
    pub fn step(&self, text: &str) {
        println!("{:6.2} s: {text}", self.started.elapsed().as_secs_f64());
    }

    /// Says something that is shown even when the scenario passes.
    pub fn note(&self, text: &str) {
        println!("{NOTE}{text}");
    }

    /// Where the guest of a port connects.
    pub fn socket(&self, port: &str) -> PathBuf {
        self.file(&format!("{port}.sock"))
    }

    /// A path for a socket or a file of this scenario.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}
