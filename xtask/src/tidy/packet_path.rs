//! `docs/packet-path.md` against the code: every function it names exists where it says.
//!
//! How: after a path in backquotes come the functions of that file, each in backquotes, joined by
//! blanks, commas or `and`: `` `crates/device/src/port.rs` `Port::peek` and `Port::pop` ``.

use std::fs;
use std::path::Path;

use super::source::{Source, word_positions};

const DOCUMENT: &str = "docs/packet-path.md";

/// Fewer steps than this cannot be a packet's way.
const STEPS_MIN: usize = 10;

pub fn complaints(root: &Path) -> Vec<String> {
    match fs::read_to_string(root.join(DOCUMENT)) {
        Ok(text) => {
            let steps = steps(&text);
            let mut complaints: Vec<String> =
                steps.iter().filter_map(|step| check(root, step)).collect();
            if steps.len() < STEPS_MIN {
                complaints.push(format!("{DOCUMENT}: names {} functions only", steps.len()));
            }
            complaints
        }
        Err(error) => vec![format!("{DOCUMENT}: {error}")],
    }
}

#[derive(Debug, PartialEq, Eq)]
struct PathStep<'a> {
    line: usize,
    path: &'a str,
    function: &'a str,
}

fn steps(text: &str) -> Vec<PathStep<'_>> {
    let mut steps = Vec::new();
    for (number, line) in text.lines().enumerate() {
        // Odd pieces are in backquotes.
        let pieces: Vec<&str> = line.split('`').collect();
        let mut path = None;
        for pair in pieces.chunks(2) {
            let [between, quoted] = pair else { continue };
            if quoted.ends_with(".rs") {
                path = Some(*quoted);
            } else if ["", "and", ","].contains(&between.trim()) {
                let step = path.map(|path| PathStep { line: number + 1, path, function: quoted });
                steps.extend(step);
            } else {
                path = None;
            }
        }
    }
    steps
}

fn check(root: &Path, step: &PathStep<'_>) -> Option<String> {
    let PathStep { line, path, function } = step;
    let complaint = |what: String| Some(format!("{DOCUMENT}:{line}: {what}"));
    let Ok(text) = fs::read_to_string(root.join(path)) else {
        return complaint(format!("{path}: no such file"));
    };
    match has_function(&Source::new(path, &text), function) {
        true => None,
        false => complaint(format!("{path}: no function {function}")),
    }
}

/// Whether the file has the function, and mentions the type it belongs to.
fn has_function(source: &Source, function: &str) -> bool {
    let (owner, name) = match function.rsplit_once("::") {
        Some((owner, name)) => (Some(owner), name),
        None => (None, function),
    };
    let code = source.production();
    let is_owner_there =
        |owner: &str| code.iter().any(|line| !word_positions(line, owner).is_empty());
    let declaration = format!("fn {name}");
    let is_there = code.iter().any(|line| !word_positions(line, &declaration).is_empty());
    is_there && owner.is_none_or(is_owner_there)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_from_the_text() {
        let text = "1. `a/b.rs` `T::f` and `T::g`: why `not_this`\n   (or: `c.rs` `h`, one `w`)\n";
        let expected = [(1, "a/b.rs", "T::f"), (1, "a/b.rs", "T::g"), (2, "c.rs", "h")];
        let steps = steps(text);
        let found: Vec<_> =
            steps.iter().map(|step| (step.line, step.path, step.function)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn functions_are_looked_for_in_code_only() {
        let source = Source::new("a.rs", "impl Tap {\n    pub fn put(&self) {}\n}\n// fn gone\n");
        assert!(has_function(&source, "Tap::put") && has_function(&source, "put"));
        assert!(!has_function(&source, "Port::put"));
        assert!(!has_function(&source, "gone") && !has_function(&source, "pu"));
    }

    #[test]
    fn what_is_missing_is_told_with_its_place() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        assert_eq!(complaints(directory.path()).len(), 1);
        let step = PathStep { line: 3, path: "none.rs", function: "f" };
        let complaint = check(directory.path(), &step).unwrap_or_default();
        assert!(complaint.starts_with("docs/packet-path.md:3: none.rs"), "{complaint}");
    }
}
