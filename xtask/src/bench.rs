//! `./x bench`: measurements on this machine; and the count of instructions that `./x test` holds.

use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::check::build_ringway;
use crate::counts::Counts;
use crate::paths::Paths;
use crate::performance::{self, PARTS, Sections};
use crate::setup::{self, For};
use crate::{dpdk_files, kernel_files, shell};

/// The name of the test that counts instructions.
pub const INSTRUCTIONS: &str = "instructions";

/// Names a binary that is measured instead of the release build.
const BINARY_VARIABLE: &str = "RINGWAY_BIN";

/// Names the commit that it was built from to `ringway bench`.
const COMMIT_VARIABLE: &str = "RINGWAY_COMMIT";

/// What is written from a run.
const DOCUMENT: &str = "docs/performance.md";

/// How much of each of [`PARTS`] is measured: together in an hour and a half; and in a quick look,
/// which takes 15 minutes.
const AMOUNTS: [(&str, &str); PARTS.len()] = [
    ("--seconds 0.5 --repeats 3", "--seconds 0.2 --repeats 3 --sizes 64,1518 --no-latency"),
    ("", "--seconds 1 --repeats 3"),
    ("--seconds 0.2 --repeats 5", "--seconds 0.2 --repeats 3"),
    ("--seconds 1 --repeats 15", "--quick"),
    ("", "--quick"),
    ("", "--quick"),
    ("", "--quick"),
];

/// The committed counts.
const GOLDEN: &str = "crates/bench/tests/golden/instructions.txt";

/// `./x bench [ARGS]`: as `ringway bench ARGS`, with DPDK where it is unpacked; without arguments
/// a quick look at everything. `./x bench docs [PART…]` writes `docs/performance.md` anew: all of
/// it in an hour and a half, or these parts only; with `--quick` in 15 minutes; with `--repeats N` everything is
/// measured so often; with `--text` nothing is, and what is written around the tables is as it is now.
///
/// # Errors
/// It does not build, or a measurement fails.
pub fn command(paths: &Paths, options: &[String]) -> anyhow::Result<()> {
    let words: Vec<&str> = options.iter().map(String::as_str).collect();
    if let ["docs", "--text"] = words[..] {
        return write(paths, &committed(paths)?);
    }
    let wanted = match words[..] {
        ["docs", ref words @ ..] => Some(measurements(words)?),
        _ => None,
    };
    setup::prepare(paths, For::Test)?;
    let bench = Bench::build(paths)?;
    if let Some(wanted) = wanted {
        return bench.measure(&wanted);
    }
    if !options.is_empty() {
        return shell::run(bench.command().args(options));
    }
    shell::run(bench.command().args(["ring", "--quick"]))?;
    shell::run(bench.command().args(["guest", "--quick"]))
}

/// What is to be measured for the document, with which options, in the order of [`PARTS`]: what
/// matters most first.
fn measurements(words: &[&str]) -> anyhow::Result<Vec<(&'static str, String)>> {
    let (mut names, mut is_quick, mut repeats) = (Vec::new(), false, None);
    let mut words = words.iter().copied();
    while let Some(word) = words.next() {
        match word {
            "--quick" => is_quick = true,
            "--repeats" => repeats = Some(count(words.next())?),
            part if PARTS.contains(&part) => names.push(part),
            unknown => {
                bail!("{unknown}: no part of {DOCUMENT}; its parts: {}", PARTS.join(", "))
            }
        }
    }
    if is_quick && repeats.is_some() {
        bail!("--quick measures once or a few times: leave it out, or --repeats");
    }
    let wanted = |part: &str| names.is_empty() || names.contains(&part);
    let amount = |(whole, look)| match repeats {
        Some(repeats) => repeated(whole, repeats),
        None if is_quick => String::from(look),
        None => String::from(whole),
    };
    let all = PARTS.into_iter().zip(AMOUNTS.map(amount));
    Ok(all.filter(|(part, _)| wanted(part)).collect())
}

/// How often everything is measured, as it was typed.
fn count(word: Option<&str>) -> anyhow::Result<u32> {
    let word = word.context("--repeats: how often? Say --repeats 5")?;
    let count = word.parse().ok().filter(|count| *count > 0);
    count.with_context(|| format!("--repeats {word}: not a number from 1 on"))
}

/// The same options, each with its value, and another number of repeats.
fn repeated(options: &str, repeats: u32) -> String {
    let words: Vec<&str> = options.split_whitespace().collect();
    let kept = words.chunks(2).filter(|option| option[0] != "--repeats").flatten();
    let repeats = repeats.to_string();
    let all: Vec<&str> = kept.copied().chain(["--repeats", &repeats]).collect();
    all.join(" ")
}

/// What was measured before.
fn committed(paths: &Paths) -> anyhow::Result<Sections> {
    let file = paths.root.join(DOCUMENT);
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    Ok(Sections::of(&text))
}

fn write(paths: &Paths, sections: &Sections) -> anyhow::Result<()> {
    let file = paths.root.join(DOCUMENT);
    std::fs::write(&file, sections.document()).with_context(|| file.display().to_string())?;
    println!("{DOCUMENT} is written");
    Ok(())
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

/// `ringway bench`, as it was built.
struct Bench<'a> {
    paths: &'a Paths,
    /// If this tree knows it.
    commit: Option<String>,
}

impl<'a> Bench<'a> {
    /// Builds it.
    fn build(paths: &'a Paths) -> anyhow::Result<Self> {
        build_ringway(paths)?;
        let is_other = std::env::var_os(BINARY_VARIABLE).is_some();
        Ok(Self { paths, commit: if is_other { None } else { commit(paths) } })
    }

    fn command(&self) -> Command {
        let mut command = ringway_bench(self.paths);
        command.envs(self.commit.iter().map(|commit| (COMMIT_VARIABLE, commit)));
        command
    }

    /// Measures parts of the document, and writes it after each: whatever happens to the rest, this
    /// one is there. What cannot be measured stays as it was.
    fn measure(&self, wanted: &[(&str, String)]) -> anyhow::Result<()> {
        let mut sections = committed(self.paths)?;
        let mut failed = Vec::new();
        for (part, options) in wanted {
            println!("ringway bench {part} {options}");
            let mut bench = self.command();
            bench.arg(part).args(options.split_whitespace()).arg("--markdown");
            match shell::output_beside(&mut bench) {
                Ok(section) => {
                    let section = performance::without_places(&section, &self.paths.root);
                    sections.replace(part, &section);
                    write(self.paths, &sections)?;
                }
                Err(why) => failed.push(format!("{part}: not measured: {why:#}")),
            }
        }
        if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("\n")) }
    }
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

fn ringway_bench(paths: &Paths) -> Command {
    let mut command = Command::new(paths.ringway_bench());
    command.env(BINARY_VARIABLE, paths.ringway());
    command.env(kernel_files::VARIABLE, kernel_files::directory(paths));
    dpdk_files::name_to(&mut command, paths);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(words: &[&str]) -> Result<Vec<(&'static str, String)>, String> {
        measurements(words).map_err(|error| error.to_string())
    }

    #[test]
    fn parts_are_measured_in_their_order_and_unknown_ones_are_refused() {
        assert_eq!(parts(&[]).map(|all| all.len()), Ok(PARTS.len()));
        assert_eq!(parts(&["history", "ring"]).map(|all| all[1].0), Ok("history"));
        assert_eq!(parts(&["--quick", "scale"]), Ok(vec![("scale", "--quick".into())]));
        let refused = parts(&["swich"]).expect_err("no such part");
        assert!(refused.starts_with("swich: no part") && refused.ends_with("rxbuf, scale"));
    }

    #[test]
    fn all_is_measured_as_often_as_is_said() {
        let pacing = parts(&["pacing", "--repeats", "5"]);
        assert_eq!(pacing, Ok(vec![("pacing", "--seconds 1 --repeats 5".into())]));
        assert_eq!(
            parts(&["--repeats", "2"]).map(|all| all[5].1.clone()),
            Ok("--repeats 2".into())
        );
        for words in [&["--repeats"][..], &["--repeats", "0"], &["--repeats", "2", "--quick"]] {
            let refused = parts(words).expect_err("nonsense");
            assert!(refused.contains("--repeats"), "{refused}");
        }
    }
}
