//! The rules that one file can break by itself.

use super::source::{Source, word_positions};

const FILE_LINES_MAX: usize = 400;

const COLUMNS_MAX: usize = 100;

/// Kinds of files whose lines can be broken anywhere.
const BREAKABLE: [&str; 3] = [".rs", ".toml", ".sh"];

/// Code that has to be explained in a comment beside it or above it: a word, what follows it, the
/// mark of the comment, and how many lines it may be away. (Of tests, clippy looks after unsafe
/// blocks.)
const EXPLAINED: [(&str, &[&str], &str, usize); 2] =
    [("fence", &["("], "PAIRS WITH:", 5), ("unsafe", &["{", "impl"], "SAFETY:", 8)];

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
const HOST_BANNED: [&str; 2] = ["rxq", "txq"];

pub fn any_file(name: &str, text: &str) -> Vec<String> {
    each_line(name, text.lines(), |line| {
        let is_there = |mark: &&&str| !word_positions(line, mark).is_empty();
        let marks = UNFINISHED.iter().filter(is_there);
        marks.map(|mark| format!("{mark}: finish it or write an ADR")).collect()
    })
}

/// Lines that do not fit beside each other on a screen.
pub fn columns(name: &str, text: &str) -> Vec<String> {
    if !BREAKABLE.iter().any(|kind| name.ends_with(kind)) {
        return Vec::new();
    }
    each_line(name, text.lines(), |line| {
        let columns = line.chars().count();
        let what = || format!("{columns} columns, at most {COLUMNS_MAX}");
        (columns > COLUMNS_MAX).then(what).into_iter().collect()
    })
}

/// Rules for Rust; clippy has others: how long a function may be, reasons of unsafe blocks.
pub fn rust_file(source: &Source) -> Vec<String> {
    let mut complaints: Vec<String> = Vec::new();
    let lines = source.production_lines;
    if lines > FILE_LINES_MAX {
        let what = format!("{lines} lines before the tests, at most {FILE_LINES_MAX}");
        complaints.push(at(&source.name, lines, &what));
    }
    if !source.raw.first().is_some_and(|line| line.starts_with("//!")) {
        complaints.push(at(&source.name, 0, "a file opens with //! and what it is for"));
    }
    complaints.extend(explanations(source));
    let has_unsafe = UNSAFE_PLACES.iter().any(|place| source.name.starts_with(place));
    let on_host = HOST_FOLDERS.iter().any(|folder| source.name.starts_with(folder));
    let code = source.production().iter().map(String::as_str);
    complaints.extend(each_line(&source.name, code, |line| {
        let host = if on_host { &HOST_BANNED[..] } else { &[] };
        let parts = BANNED.iter().chain(host).filter(|word| has_part(line, word));
        let words = parts.copied().chain(line.contains("fn get_").then_some("get_"));
        let banned = words.map(|word| format!("{word}: not a word of this tree"));
        let is_unsafe = !has_unsafe && !word_positions(line, "unsafe").is_empty();
        let misplaced = is_unsafe.then(|| "unsafe code has no place here".to_string());
        banned.chain(misplaced).collect()
    }));
    complaints
}

fn explanations(source: &Source) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in source.production().iter().enumerate() {
        for (word, next, mark, lines_max) in EXPLAINED {
            let needs_one = word_positions(line, word).into_iter().any(|position| {
                let (before, rest) = line.split_at(position);
                let rest = rest.trim_start_matches(word).trim_start();
                !before.ends_with("fn ") && next.iter().any(|next| rest.starts_with(next))
            });
            let near = source.raw.get(number.saturating_sub(lines_max)..=number);
            let has_mark = |line: &String| {
                line.split_once("//").is_some_and(|(_, comment)| comment.contains(mark))
            };
            if needs_one && !near.unwrap_or_default().iter().any(has_mark) {
                let what = format!("{word} without // {mark} above it");
                complaints.push(at(&source.name, number, &what));
            }
        }
    }
    complaints
}

/// The complaints of a rule about each line, with its place.
fn each_line<'a>(
    name: &str,
    lines: impl Iterator<Item = &'a str>,
    rule: impl Fn(&'a str) -> Vec<String>,
) -> Vec<String> {
    let told = lines
        .enumerate()
        .flat_map(|(number, line)| rule(line).into_iter().map(move |what| (number, what)));
    told.map(|(number, what)| at(name, number, &what)).collect()
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
    fn long_files_are_found() {
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
