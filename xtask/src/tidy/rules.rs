//! The rules that one file can break by itself.

use super::source::{Source, word_positions};

/// Longest function, in lines.
const FUNCTION_LINES_MAX: usize = 70;

/// Longest file, in lines that are not tests.
const FILE_LINES_MAX: usize = 400;

/// Longest line, in characters.
const COLUMNS_MAX: usize = 100;

/// Kinds of files whose lines can be broken anywhere.
const BREAKABLE: [&str; 3] = [".rs", ".toml", ".sh"];

/// How many lines above a fence its partner must be named.
const FENCE_COMMENT_LINES: usize = 5;

/// How many lines above an unsafe block its reason must be given.
const SAFETY_COMMENT_LINES: usize = 8;

/// Where unsafe code may be: shared memory, the operating system, device registers, what is put in
/// front of another program, and the bare machine below the example. Tests elsewhere may have some,
/// with its reason.
const UNSAFE_PLACES: [&str; 6] = [
    "crates/virtq/",
    "crates/host/",
    "crates/driver/src/mmio.rs",
    "crates/driver/src/pci.rs",
    "crates/guests/preload/",
    "examples/unikernel/src/machine/",
];

/// Where the words of the guest's side have no place.
const HOST_FOLDERS: [&str; 3] = ["crates/host/src/", "crates/device/src/", "crates/switch/src/"];

/// Marks of unfinished work; put together here so that this file has none.
const UNFINISHED: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];

/// Words that say nothing, or that the specifications dropped.
const BANNED: [&str; 3] = ["Manager", "Helper", "slave"];

/// Rules for text of any kind.
pub fn any_file(name: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for mark in UNFINISHED.iter().filter(|mark| !word_positions(line, mark).is_empty()) {
            complaints.push(at(name, number, &format!("{mark}: finish it or write an ADR")));
        }
    }
    complaints
}

/// Lines that do not fit beside each other on a screen.
pub fn columns(name: &str, text: &str) -> Vec<String> {
    if !BREAKABLE.iter().any(|kind| name.ends_with(kind)) {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX {
            let what = format!("{columns} columns, at most {COLUMNS_MAX}");
            complaints.push(at(name, number, &what));
        }
    }
    complaints
}

/// Rules for Rust.
pub fn rust_file(source: &Source) -> Vec<String> {
    let mut complaints = sizes(source);
    complaints.extend(opening(source));
    complaints.extend(unsafe_code(source));
    complaints.extend(fences(source));
    complaints.extend(words(source));
    complaints
}

fn sizes(source: &Source) -> Vec<String> {
    let mut complaints = Vec::new();
    for function in source.functions() {
        let lines = function.last - function.first + 1;
        if lines > FUNCTION_LINES_MAX {
            let what = format!("{}: {lines} lines, at most {FUNCTION_LINES_MAX}", function.name);
            complaints.push(at(&source.name, function.first, &what));
        }
    }
    let lines = source.production_lines;
    if lines > FILE_LINES_MAX {
        let what = format!("{lines} lines before the tests, at most {FILE_LINES_MAX}");
        complaints.push(at(&source.name, lines, &what));
    }
    complaints
}

fn opening(source: &Source) -> Option<String> {
    let is_there = source.raw.first().is_some_and(|line| line.starts_with("//!"));
    let what = "a file opens with //! and what it is for";
    (!is_there).then(|| at(&source.name, 0, what))
}

fn unsafe_code(source: &Source) -> Vec<String> {
    let in_place = UNSAFE_PLACES.iter().any(|place| source.name.starts_with(place));
    let mut complaints = Vec::new();
    for (number, line) in source.code.iter().enumerate() {
        for position in word_positions(line, "unsafe") {
            let rest = line.get(position + "unsafe".len()..).unwrap_or_default().trim_start();
            let what = if !in_place && number < source.production_lines {
                "unsafe code has no place here"
            } else if (rest.starts_with('{') || rest.starts_with("impl"))
                && !is_explained(source, number, SAFETY_COMMENT_LINES, "SAFETY:")
            {
                "unsafe without // SAFETY: above it"
            } else {
                continue;
            };
            complaints.push(at(&source.name, number, what));
        }
    }
    complaints
}

fn fences(source: &Source) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in source.production().iter().enumerate() {
        let calls = word_positions(line, "fence").into_iter().filter(|&position| {
            let is_call = line.get(position + 5..).is_some_and(|rest| rest.starts_with('('));
            is_call && !line.get(..position).is_some_and(|before| before.ends_with("fn "))
        });
        let explained = is_explained(source, number, FENCE_COMMENT_LINES, "PAIRS WITH");
        if calls.count() > 0 && !explained {
            complaints.push(at(&source.name, number, "a fence without // PAIRS WITH: above it"));
        }
    }
    complaints
}

fn words(source: &Source) -> Vec<String> {
    let on_host = HOST_FOLDERS.iter().any(|folder| source.name.starts_with(folder));
    let mut complaints = Vec::new();
    for (number, line) in source.production().iter().enumerate() {
        let mut banned: Vec<&str> = Vec::new();
        banned.extend(BANNED.iter().filter(|word| has_part(line, word)));
        if line.contains("fn get_") {
            banned.push("get_");
        }
        if on_host {
            banned.extend(["rxq", "txq"].iter().filter(|word| has_part(line, word)));
        }
        for word in banned {
            complaints.push(at(&source.name, number, &format!("{word}: not a word of this tree")));
        }
    }
    complaints
}

/// Whether `word` is one of the words that names are made of.
fn has_part(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(position, _)| {
        let before = line.get(..position).and_then(|text| text.chars().next_back());
        let after = line.get(position + word.len()..).and_then(|text| text.chars().next());
        let starts = word.starts_with(char::is_uppercase)
            || !before.is_some_and(|character| character.is_alphabetic());
        starts && !after.is_some_and(|character| character.is_lowercase() && character != '_')
    })
}

/// Whether a comment on this line, or on one of a few above, contains `mark`.
fn is_explained(source: &Source, number: usize, lines: usize, mark: &str) -> bool {
    let first = number.saturating_sub(lines);
    let near = source.raw.get(first..=number).unwrap_or_default();
    near.iter().any(|line| line.split_once("//").is_some_and(|(_, text)| text.contains(mark)))
}

fn at(name: &str, number: usize, what: &str) -> String {
    format!("{name}:{}: {what}", number + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(name: &str, text: &str) -> Vec<String> {
        rust_file(&Source::new(name, &format!("//! What.\n{text}")))
    }

    fn assert_one(name: &str, text: &str, part: &str) {
        let found = complaints(name, text);
        assert!(found.len() == 1 && found[0].contains(part), "{part}: {found:?}");
    }

    #[test]
    fn long_functions_and_files_are_found() {
        let body = "    call();\n".repeat(FUNCTION_LINES_MAX - 2);
        assert!(complaints("a.rs", &format!("fn f() {{\n{body}}}\n")).is_empty());
        assert_one("a.rs", &format!("fn f() {{\n    call();\n{body}}}\n"), "71 lines");
        let lines = "const A: u8 = 0;\n".repeat(FILE_LINES_MAX);
        assert_one("a.rs", &lines, "401 lines");
        let tests = format!("#[cfg(test)]\nmod tests {{\n{lines}}}\n");
        assert!(complaints("a.rs", &tests).is_empty());
    }

    #[test]
    fn long_lines_are_found() {
        let line = "ü".repeat(COLUMNS_MAX);
        assert!(columns("a.rs", &line).is_empty());
        assert_eq!(columns("a.rs", &format!("\n{line}x\n")), ["a.rs:2: 101 columns, at most 100"]);
        assert_eq!(columns("a.toml", &format!("{line}x")).len(), 1);
        assert!(columns("a.md", &format!("{line}x")).is_empty());
    }

    #[test]
    fn a_file_says_what_it_is_for() {
        assert_eq!(rust_file(&Source::new("a.rs", "fn f() {}\n")).len(), 1);
    }

    #[test]
    fn unsafe_code_has_its_place_and_its_reason() {
        let with_reason = "fn f() {\n    // SAFETY: because\n    unsafe { g() }\n}\n";
        assert!(complaints("crates/virtq/src/a.rs", with_reason).is_empty());
        assert_one("crates/net/src/a.rs", with_reason, "no place here");
        let without = "fn f() {\n    unsafe { g() }\n}\nunsafe fn h() {}\n";
        assert_one("crates/host/src/a.rs", without, "SAFETY");
        let in_tests = format!("#[cfg(test)]\nmod tests {{\n{with_reason}}}\n");
        assert!(complaints("crates/net/src/a.rs", &in_tests).is_empty());
        let harmless = "#![forbid(unsafe_code)]\n// unsafe { }\nconst A: &str = \"unsafe {\";\n";
        assert!(complaints("crates/net/src/a.rs", harmless).is_empty());
    }

    #[test]
    fn fences_name_their_partner() {
        let name = "crates/virtq/src/a.rs";
        assert_one(name, "fn f() {\n    fence(Ordering::SeqCst);\n}\n", "PAIRS WITH");
        let named = "fn f() {\n    // PAIRS WITH: b::g, or a wake-up is lost\n    fence(x);\n}\n";
        assert!(complaints(name, named).is_empty());
        assert!(complaints(name, "pub fn fence(order: Ordering);\n").is_empty());
    }

    #[test]
    fn the_glossary_is_kept() {
        assert_one("crates/host/src/a.rs", "fn f(rxq: u8) {}\n", "rxq");
        assert!(complaints("crates/driver/src/a.rs", "fn f(rxq: u8) {}\n").is_empty());
        assert_one("crates/net/src/a.rs", "fn get_mac() {}\n", "get_");
        assert_one("crates/net/src/a.rs", "struct PortManager;\n", "Manager");
        assert_one("bins/ringway/src/a.rs", "fn slave_request() {}\n", "slave");
        let tests = "#[cfg(test)]\nmod tests {\n    fn get_it() {}\n}\n";
        assert!(complaints("crates/host/src/a.rs", tests).is_empty());
        assert!(complaints("crates/host/src/a.rs", "fn f(enslaved: u8) {}\n").is_empty());
    }

    #[test]
    fn unfinished_work_is_found_in_any_file() {
        let mark = UNFINISHED[0];
        assert_eq!(any_file("a.md", &format!("fine\n{mark}: later\n")).len(), 1);
        assert!(any_file("a.md", &format!("{mark}S is another word\n")).is_empty());
    }
}
