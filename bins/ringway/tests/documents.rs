//! Commands that README and the documentation print work: every line that starts with `ringway` is
//! run as it stands, one document after the other, against the ringway that the document starts.
//!
//! Limits: that the demonstration works is tested in `xtask/tests/demo.rs`. Lines for QEMU, User
//! Mode Linux and DPDK are run by the scenarios of `./x test guest::attach`.

mod common;
mod shell;

use std::fs;
use std::path::{Path, PathBuf};

use common::Ringway;
use serde_json::Value;
use shell::{User, must};

const SKIPPED: &str = "skipped: no user, mount and network namespaces, or no taps here";

/// The start of a line of a script that must not fail.
const STRICT: &str = "set -e; mkdir work; cd work; pid=; trap 'cat log >&2 || :' EXIT\n";

/// Documents with commands, and how many of each there are at least. What a document has in blocks
/// with a language (`sh`) needs more than ringway, and is not run.
const DOCUMENTS: [(&str, usize); 10] = [
    ("README.md", 12),
    ("docs/configuration.md", 1),
    ("docs/guide/laptop.md", 7),
    ("docs/guide/libvirt.md", 5),
    ("docs/guide/service.md", 7),
    ("docs/guide/wireshark.md", 4),
    ("docs/guide/limits.md", 10),
    ("docs/guide/upgrade.md", 5),
    ("docs/guide/migration.md", 5),
    ("docs/guide/troubleshooting.md", 7),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(document: &str) -> String {
    fs::read_to_string(root().join(document)).unwrap_or_else(|why| panic!("{document}: {why}"))
}

/// The code blocks of a document: the language, and the text.
fn blocks(text: &str) -> Vec<(String, String)> {
    let parts: Vec<&str> = text.split("\n```").collect();
    let inside = parts.iter().skip(1).step_by(2);
    let block = |part: &&str| part.split_once('\n').map(|(name, text)| (name.into(), text.into()));
    inside.filter_map(block).collect()
}

/// The commands of a document without what is said about them, two blanks further right. In lists
/// they are indented.
fn commands(text: &str) -> Vec<String> {
    let lines: Vec<&str> =
        text.lines().map(|line| line.strip_prefix("   ").unwrap_or(line)).collect();
    let all = blocks(&lines.join("\n"))
        .into_iter()
        .filter(|(language, _)| language.is_empty())
        .flat_map(|(_, block)| block.lines().map(str::to_owned).collect::<Vec<_>>());
    let commands = all.filter(|line| line.starts_with("ringway "));
    commands.map(|line| line.split("  ").next().unwrap_or_default().trim().to_owned()).collect()
}

/// A script that runs these commands as they stand; `run` goes on beside the others.
fn script(commands: &[String], file: &str) -> String {
    let mut script = format!("{STRICT}cat > ringway.toml <<'END'\n{file}\nEND\n");
    for command in commands {
        // Only hosts with libvirt have that group.
        let command = command.replace("socket_group=kvm", "socket_group=root");
        let control = command.split(" --control ").nth(1).and_then(|it| it.split(' ').next());
        let control = control.map_or(String::new(), |path| format!(" --control {path}"));
        script.push_str(&match command.split(' ').nth(1) {
            Some("run") => format!(
                "[ -z \"$pid\" ] || end $pid; {command} 2>log & pid=$!; ready $pid{control}\n\
                 if grep -E 'ERROR|WARN' log; then exit 1; fi\n"
            ),
            // A program of its own, which `cargo test -p ringway` does not build.
            Some("bench") if !has_bench() => String::new(),
            _ if command.ends_with("--watch") => {
                format!("timeout 1.5 {command} >/dev/null || [ $? = 124 ]\n")
            }
            _ => format!("{command} >/dev/null\n"),
        });
    }
    script + "end $pid\n"
}

fn has_bench() -> bool {
    let is_there =
        Path::new(env!("CARGO_BIN_EXE_ringway")).with_file_name("ringway-bench").exists();
    if !is_there {
        println!("skipped: ringway bench: ringway-bench is not built");
    }
    is_there
}

#[test]
fn every_command_of_the_documentation_works_as_it_stands() {
    let file = blocks(&read("docs/configuration.md")).into_iter().find(|(name, _)| name == "toml");
    let (_, file) = file.expect("an example of a file");
    for (document, least) in DOCUMENTS {
        let commands = commands(&read(document));
        assert!(commands.len() >= least, "{document}: {commands:?}");
        if !Path::new("/dev/net/tun").exists() {
            return println!("{SKIPPED}");
        }
        let Some(_) = must(User::Root, &script(&commands, &file)) else {
            return println!("{SKIPPED}");
        };
    }
}

#[test]
fn the_first_command_of_the_readme_needs_no_root() {
    let first = commands(&read("README.md")).remove(0);
    assert!(first.starts_with("ringway run "), "{first}");
    let Some(_) = must(User::Plain, &script(&[first], "")) else { return println!("{SKIPPED}") };
}

/// But for the address, which is each machine's own.
#[test]
fn the_readme_shows_what_attach_prints() {
    let text = read("README.md");
    let is_it = |(_, block): &(String, String)| block.starts_with("-m 512M");
    let (_, shown) = blocks(&text).into_iter().find(is_it).expect("an example");
    let first = commands(&text).remove(0);
    let script = format!(
        "{STRICT}mkdir -p /run/user/1000; export XDG_RUNTIME_DIR=/run/user/1000\n\
         {first} 2>log & pid=$!; ready $pid\n\
         ringway attach vm0 --for qemu --qemu-version 10.0; end $pid\n"
    );
    let Some(printed) = must(User::Root, &script) else { return println!("{SKIPPED}") };
    let without_address = |text: &str| {
        let (before, rest) = text.split_once("mac=").expect("an address");
        let (address, after) = rest.split_once(',').expect("more behind it");
        assert!(address.starts_with("52:") && address.len() == 17, "{address}");
        format!("{before}mac=…,{}", after.trim_end())
    };
    assert_eq!(without_address(&shown), without_address(&printed));
}

/// With a script in place of QEMU, which prints what it is given: the scenarios have the real one.
#[test]
fn the_lines_that_the_demonstration_ends_with_work() {
    let text = read("xtask/src/demo/next.txt").replace("PROGRAM", "/mnt/ringway");
    let (first, second) = text.trim_end().split_once('\n').expect("two lines");
    let script = format!(
        "{STRICT}printf '#!/bin/sh\\necho \"$@\"\\n' > qemu-system-x86_64\n\
         chmod +x qemu-system-x86_64\n\
         PATH=$PWD:$PATH\n{first} 2>log & pid=$!; ready $pid\n{second}; end $pid\n"
    );
    let Some(printed) = must(User::Plain, &script) else { return println!("{SKIPPED}") };
    assert!(printed.starts_with("DISK-IMAGE -m 512M -object "), "{printed}");
    assert!(
        printed.contains("ringway-1234/ringway/vm0.sock") && printed.contains("mac=52:"),
        "{printed}"
    );
}

#[test]
fn requests_of_the_documentation_are_answered_as_it_says() {
    let text = read("docs/control-protocol.md");
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &["--port", "vm0=vm:vm0.sock"]);
    let mut client = ringway.connect();
    let mut asked = 0;
    let lines: Vec<&str> = text.lines().collect();
    for pair in lines.windows(2).filter(|pair| pair[0].starts_with("→ ")) {
        let request: Value = serde_json::from_str(&pair[0]["→ ".len()..]).expect("JSON");
        let reply = client.ask(&request);
        // The answers in the document are cut where lists begin.
        let shown = pair[1].strip_prefix("← ").expect("an answer").replace('…', "");
        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        assert_eq!((&reply["ok"], &reply["error"]), (&shown["ok"], &shown["error"]));
        asked += 1;
    }
    assert!(asked >= 2, "{asked}");
}
