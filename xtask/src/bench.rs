//! `./x bench`: measurements on this machine; and the count of instructions that `./x test` holds.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use ringway_guests::shell;

use crate::check::build_ringway;
use crate::downloads::Download::{self, Dpdk, Gvproxy, Ovs, Passt, Vde};
use crate::downloads::KERNEL_VARIABLE;
use crate::page;
use crate::paths::Paths;
use crate::setup::{self, For};
use crate::tally::Tally;

pub const INSTRUCTIONS: &str = "instructions";

/// Names the `ringway` that is measured instead of the release build.
const BINARY_VARIABLE: &str = "RINGWAY_BIN";

/// Names the commit that it was built from to the benchmark.
const COMMIT_VARIABLE: &str = "RINGWAY_COMMIT";

const GOLDEN: &str = "crates/bench/tests/golden/instructions.txt";

/// Where the tables of `./x bench docs` are.
const DOCUMENTS: &str = "docs/measurements";

/// How the directories of a run begin; six letters follow.
const RUN_DIRECTORY: &str = "/tmp/rw-";

/// The pages of `./x bench docs`: the name, the arguments of the benchmark, to which a quick look
/// adds `--quick`, and the title. All of it takes two hours, a quick look a quarter of an hour.
const KINDS: [(&str, &str, &str); 10] = [
    ("ring", "ring --seconds 0.5 --repeats 3", "Drivers and devices on one ring"),
    ("guest", "guest", "Linux guests"),
    ("switch", "switch", "From guest to guest through a worker"),
    ("pacing", "pacing", "Policies of notification, with real guests"),
    ("nat", "nat --seconds 1 --repeats 3", "Routers for guests"),
    ("history-uml", "history --guest uml", "Techniques since 2008: User Mode Linux"),
    ("history-qemu", "history --guest qemu", "Techniques since 2008: an emulated guest"),
    ("history", "history", "Techniques since 2008: without a guest"),
    ("rxbuf", "rxbuf", "Schemes of receive buffers"),
    ("scale", "scale", "Many ports and queue pairs"),
];

/// `./x bench [ARGS]`: as `ringway bench ARGS`, with DPDK where it is unpacked; without arguments
/// a quick look at rings and guests. `./x bench docs [KIND…] [--quick]` writes the tables of these
/// kinds, or of all, to [`DOCUMENTS`].
pub fn command(paths: &Paths, options: &[String]) -> anyhow::Result<()> {
    let words: Vec<&str> = options.iter().map(String::as_str).collect();
    let wanted = match words[..] {
        ["docs", ref words @ ..] => Some(wanted(words)?),
        _ => None,
    };
    setup::prepare(paths, For::Test)?;
    build_ringway(paths)?;
    if let Some(wanted) = wanted {
        return write_documents(paths, &wanted);
    }
    if !options.is_empty() {
        return shell::run(ringway_bench(paths).args(options));
    }
    shell::run(ringway_bench(paths).args(["ring", "--quick"]))?;
    shell::run(ringway_bench(paths).args(["guest", "--quick"]))
}

/// Pages, what the benchmark is told for each, and titles.
fn wanted(words: &[&str]) -> anyhow::Result<Vec<(&'static str, String, &'static str)>> {
    let (quick, names): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| **word == "--quick");
    if let Some(unknown) = names.iter().find(|name| !KINDS.iter().any(|kind| kind.0 == **name)) {
        let kinds = KINDS.map(|(kind, ..)| kind).join(", ");
        bail!("{unknown}: not measured for {DOCUMENTS}; kinds: {kinds}");
    }
    let wanted = KINDS.iter().filter(|kind| names.is_empty() || names.contains(&kind.0));
    let with = |&(page, told, title)| (page, [&[told][..], &quick].concat().join(" "), title);
    Ok(wanted.map(with).collect())
}

/// Measures, and writes each kind as soon as it is there. What fails leaves its file as it was.
fn write_documents(paths: &Paths, wanted: &[(&str, String, &str)]) -> anyhow::Result<()> {
    let mut failed = Vec::new();
    for (kind, told, title) in wanted {
        println!("ringway bench {told}");
        let mut bench = ringway_bench(paths);
        bench.args(told.split_whitespace()).arg("--markdown");
        match shell::output_beside(&mut bench) {
            Ok(text) => {
                let file = format!("{DOCUMENTS}/{kind}.md");
                let tables = without_places(&text, &paths.root);
                let text = headed(title, told, kind) + &tables;
                std::fs::write(paths.root.join(&file), text).with_context(|| file.clone())?;
                println!("{file} is written");
            }
            Err(why) => failed.push(format!("{kind}: not measured: {why:#}")),
        }
    }
    page::write(&paths.root, false)?;
    println!("{} has the verdict anew", page::PAGE);
    if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("\n")) }
}

/// The head of a page, above its tables.
fn headed(title: &str, told: &str, kind: &str) -> String {
    format!(
        "# {title}\n\nOne run of `ringway bench {told}`; what follows from it is in\n\
         [performance.md](../performance.md). `./x bench docs {kind}` measures it anew.\n\n"
    )
}

/// The same text without where this tree is, and without the names of directories that were gone
/// when the run ended.
fn without_places(text: &str, root: &Path) -> String {
    let text = text.replace(&format!("{}/", root.display()), "");
    let mut parts = text.split(RUN_DIRECTORY);
    let first = parts.next().unwrap_or_default().to_string();
    let behind = |part: &str| part.trim_start_matches(|at: char| at.is_ascii_alphanumeric()).into();
    std::iter::once(first).chain(parts.map(behind)).collect::<Vec<String>>().join("RUN")
}

pub fn instructions(paths: &Paths) -> Tally {
    if shell::find_program("valgrind").is_none() {
        return Tally::skipped(INSTRUCTIONS, "no valgrind: run ./x setup");
    }
    let golden = paths.root.join(GOLDEN);
    let mut bench = ringway_bench(paths);
    let result = shell::run(bench.args(["instructions", "--check"]).arg(golden));
    Tally::told(INSTRUCTIONS, &result)
}

/// The benchmark, with what it needs to find its peers.
pub fn ringway_bench(paths: &Paths) -> Command {
    let mut command = Command::new(paths.target.join("release/ringway-bench"));
    if std::env::var_os(BINARY_VARIABLE).is_none() {
        command.envs(commit(paths).map(|commit| (COMMIT_VARIABLE, commit)));
    }
    command.env(BINARY_VARIABLE, paths.ringway());
    command.env(KERNEL_VARIABLE, Download::Kernel.directory(paths));
    for peer in [Dpdk, Ovs, Vde, Passt, Gvproxy] {
        peer.name_to(&mut command, paths);
    }
    command
}

/// The commit of this tree, and whether its code has changed since. None: there is no git here.
fn commit(paths: &Paths) -> Option<String> {
    let git = |words: &[&str]| {
        Command::new("git").args(words).current_dir(&paths.root).stderr(Stdio::null()).output().ok()
    };
    let head = git(&["rev-parse", "--short=12", "HEAD"]).filter(|head| head.status.success())?;
    let head = String::from_utf8(head.stdout).ok()?;
    let is_same = git(&["diff", "--quiet", "HEAD", "--", ".", ":!docs"])?.status.success();
    Some(format!("{}{}", head.trim(), if is_same { "" } else { ", changed" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_measured_in_their_order_and_unknown_ones_are_refused() {
        let wanted = |words: &[&str]| match super::wanted(words) {
            Ok(all) => all.into_iter().map(|(_, told, _)| told).collect::<Vec<_>>().join(", "),
            Err(why) => why.to_string(),
        };
        assert_eq!(wanted(&[]).split(", ").count(), KINDS.len());
        assert_eq!(wanted(&["scale", "guest"]), "guest, scale");
        let quick = ["--quick", "history-uml", "scale"];
        assert_eq!(wanted(&quick), "history --guest uml --quick, scale --quick");
        let refused = wanted(&["swich"]);
        assert!(refused.starts_with("swich: not measured") && refused.ends_with("rxbuf, scale"));
    }

    #[test]
    fn a_report_does_not_say_where_it_was_made() {
        let text = "/a/tree/target/x run /tmp/rw-8e18Fl/1/vm.sock,mac=1 /tmp/rw-8e18Fl/2\n";
        let without = without_places(text, Path::new("/a/tree"));
        assert_eq!(without, "target/x run RUN/1/vm.sock,mac=1 RUN/2\n");
    }

    #[test]
    fn every_kind_has_its_tables_and_the_page_links_them() {
        let root = Paths::new().root;
        let page = std::fs::read_to_string(root.join("docs/performance.md")).expect("the page");
        assert!(page.lines().count() <= 150, "docs/performance.md is a page to read");
        for (kind, ..) in KINDS {
            assert!(root.join(format!("{DOCUMENTS}/{kind}.md")).is_file(), "{kind}");
            assert!(page.contains(&format!("(measurements/{kind}.md)")), "{kind}: no link");
        }
    }
}
