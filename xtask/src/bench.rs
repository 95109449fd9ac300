//! `./x bench`: measurements on this machine.

use std::process::Command;

use crate::check::build_ringway;
use crate::paths::Paths;
use crate::setup::{self, For};
use crate::{dpdk_files, guest, shell};

/// Names DPDK's directory to `ringway bench`.
const DPDK_VARIABLE: &str = "RINGWAY_DPDK";

/// `./x bench [ARGS]`: as `ringway bench ARGS`, with DPDK where it is unpacked; without arguments
/// a quick look at everything.
///
/// # Errors
/// It does not build, or a measurement fails.
pub fn command(paths: &Paths, options: &[String]) -> anyhow::Result<()> {
    setup::prepare(paths, For::Test)?;
    build_ringway(paths)?;
    if !options.is_empty() {
        return shell::run(ringway_bench(paths).args(options));
    }
    shell::run(ringway_bench(paths).args(["ring", "--quick"]))?;
    guest::bench(paths)
}

fn ringway_bench(paths: &Paths) -> Command {
    let mut command = Command::new(paths.ringway());
    command.arg("bench");
    if dpdk_files::find(paths).is_some() {
        command.env(DPDK_VARIABLE, paths.guest().join("dpdk"));
    }
    command
}
