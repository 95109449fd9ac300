//! `./x bench`: measurements on this machine; and the count of instructions that `./x test` holds.

use std::process::Command;

use anyhow::Context;

use crate::check::build_ringway;
use crate::counts::Counts;
use crate::paths::Paths;
use crate::setup::{self, For};
use crate::{dpdk_files, kernel_files, shell};

/// The name of the test that counts instructions.
pub const INSTRUCTIONS: &str = "instructions";

/// Names DPDK's directory to `ringway bench`.
const DPDK_VARIABLE: &str = "RINGWAY_DPDK";

/// Names the directory of the guests' kernel to it.
const KERNEL_VARIABLE: &str = "RINGWAY_GUEST_KERNEL";

/// The committed counts.
const GOLDEN: &str = "crates/bench/tests/golden/instructions.txt";

/// `./x bench [ARGS]`: as `ringway bench ARGS`, with DPDK where it is unpacked; without arguments
/// a quick look at everything. `./x bench docs` writes `docs/performance.md` anew.
///
/// # Errors
/// It does not build, or a measurement fails.
pub fn command(paths: &Paths, options: &[String]) -> anyhow::Result<()> {
    setup::prepare(paths, For::Test)?;
    build_ringway(paths)?;
    if options == ["docs"] {
        return write_document(paths);
    }
    if !options.is_empty() {
        return shell::run(ringway_bench(paths).args(options));
    }
    shell::run(ringway_bench(paths).args(["ring", "--quick"]))?;
    shell::run(ringway_bench(paths).args(["guest", "--quick"]))
}

/// Measures everything and writes `docs/performance.md` from it.
fn write_document(paths: &Paths) -> anyhow::Result<()> {
    let mut text = "# Performance\n\nWritten by `./x bench docs`: every number is from that run.\n"
        .to_string();
    for what in ["ring", "rxbuf"] {
        text.push('\n');
        text.push_str(&shell::output(ringway_bench(paths).args([what, "--markdown"]))?);
    }
    let file = paths.root.join("docs/performance.md");
    std::fs::write(&file, text).with_context(|| file.display().to_string())
}

/// Counts instructions and compares them with the committed counts.
pub fn instructions(paths: &Paths) -> Counts {
    if shell::find_program("valgrind").is_none() {
        println!("test {INSTRUCTIONS} ... skipped: no valgrind: run ./x setup");
        return Counts { skipped: 1, ..Counts::default() };
    }
    let golden = paths.root.join(GOLDEN);
    let mut bench = ringway_bench(paths);
    let result = shell::run(bench.args(["instructions", "--check"]).arg(golden));
    match &result {
        Ok(()) => println!("test {INSTRUCTIONS} ... ok"),
        Err(error) => println!("{error:#}\ntest {INSTRUCTIONS} ... FAILED"),
    }
    Counts::one(result.is_ok())
}

fn ringway_bench(paths: &Paths) -> Command {
    let mut command = Command::new(paths.ringway());
    command.arg("bench").env(KERNEL_VARIABLE, kernel_files::directory(paths));
    if dpdk_files::find(paths).is_some() {
        command.env(DPDK_VARIABLE, dpdk_files::directory(paths));
    }
    command
}
