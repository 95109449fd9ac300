//! `./x bench`: measurements on this machine; and the count of instructions that `./x test` holds.

use std::path::Path;
use std::process::Command;

use anyhow::Context;

use crate::check::build_ringway;
use crate::counts::Counts;
use crate::paths::Paths;
use crate::setup::{self, For};
use crate::{dpdk_files, kernel_files, shell};

/// The name of the test that counts instructions.
pub const INSTRUCTIONS: &str = "instructions";

/// Names a binary that is measured instead of the release build.
const BINARY_VARIABLE: &str = "RINGWAY_BIN";

/// Names DPDK's directory to `ringway bench`.
const DPDK_VARIABLE: &str = "RINGWAY_DPDK";

/// Names the directory of the guests' kernel to it.
const KERNEL_VARIABLE: &str = "RINGWAY_GUEST_KERNEL";

/// What is written from a run.
const DOCUMENT: &str = "docs/performance.md";

/// What its numbers say beside what was aimed at, why, and what was tried: written, not measured.
const NOTES: &str = include_str!("performance_notes.md");

/// Its parts, and how much of each is measured: together in an hour; and in a quick look, which
/// takes 15 minutes.
const PARTS: [(&str, &str, &str); 7] = [
    ("ring", "--seconds 0.5 --repeats 3", "--seconds 0.2 --repeats 3 --sizes 64,1518 --no-latency"),
    ("guest", "", "--seconds 1 --repeats 3"),
    ("switch", "--seconds 0.2 --repeats 5", "--seconds 0.2 --repeats 3"),
    ("pacing", "--seconds 1 --repeats 6", "--quick"),
    ("history", "", "--quick"),
    ("rxbuf", "", "--quick"),
    ("scale", "", "--quick"),
];

/// How the directories of a run begin; six letters follow.
const RUN_DIRECTORY: &str = "/tmp/rw-";

/// The committed counts.
const GOLDEN: &str = "crates/bench/tests/golden/instructions.txt";

/// `./x bench [ARGS]`: as `ringway bench ARGS`, with DPDK where it is unpacked; without arguments
/// a quick look at everything. `./x bench docs` writes `docs/performance.md` anew, in an hour or
/// with `--quick` in 15 minutes.
///
/// # Errors
/// It does not build, or a measurement fails.
pub fn command(paths: &Paths, options: &[String]) -> anyhow::Result<()> {
    setup::prepare(paths, For::Test)?;
    if std::env::var_os(BINARY_VARIABLE).is_none() {
        build_ringway(paths)?;
    }
    let words: Vec<&str> = options.iter().map(String::as_str).collect();
    match words[..] {
        ["docs"] => return write_document(paths, false),
        ["docs", "--quick"] => return write_document(paths, true),
        _ => {}
    }
    if !options.is_empty() {
        return shell::run(ringway_bench(paths).args(options));
    }
    shell::run(ringway_bench(paths).args(["ring", "--quick"]))?;
    shell::run(ringway_bench(paths).args(["guest", "--quick"]))
}

/// Measures everything and writes `docs/performance.md` from it. What cannot be measured is left
/// out and named; what is measured first is what matters most.
fn write_document(paths: &Paths, quick: bool) -> anyhow::Result<()> {
    let form = if quick { "a quick look, many numbers measured once" } else { "the whole" };
    let mut text = format!(
        "# Performance\n\nWritten by `./x bench docs{}` ({form}): every number is from that run, and \
         only ratios\nwithin one run mean anything on another machine. What limits them is at the \
         end.\n",
        if quick { " --quick" } else { "" }
    );
    for (what, whole, look) in PARTS {
        let options = if quick { look } else { whole };
        println!("ringway bench {what} {options}");
        let mut part = ringway_bench(paths);
        part.arg(what).args(options.split_whitespace()).arg("--markdown");
        let section = match shell::output_beside(&mut part) {
            Ok(section) => section,
            Err(why) => {
                println!("left out: {what}: {why:#}");
                format!("## ringway bench {what}\n\nleft out: {why:#}\n")
            }
        };
        text.push('\n');
        text.push_str(&without_places(&section, &paths.root));
        // Whatever happens to the rest, this part is there.
        let file = paths.root.join(DOCUMENT);
        std::fs::write(&file, format!("{text}\n{NOTES}"))
            .with_context(|| file.display().to_string())?;
    }
    println!("{DOCUMENT} is written");
    Ok(())
}

/// The same text without where this tree is, and without the names of directories that were gone
/// when the run ended.
fn without_places(text: &str, root: &Path) -> String {
    let text = text.replace(&format!("{}/", root.display()), "");
    let mut kept = String::new();
    let mut rest = text.as_str();
    while let Some((before, behind)) = rest.split_once(RUN_DIRECTORY) {
        kept.push_str(before);
        kept.push_str("RUN");
        rest = behind.trim_start_matches(|letter: char| letter.is_ascii_alphanumeric());
    }
    kept + rest
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_does_not_say_where_it_was_made() {
        let text = "/a/tree/target/x run /tmp/rw-8e18Fl/1/vm.sock,mac=1 /tmp/rw-8e18Fl/2\n";
        let without = without_places(text, Path::new("/a/tree"));
        assert_eq!(without, "target/x run RUN/1/vm.sock,mac=1 RUN/2\n");
    }
}
