//! Words that readers stumble over, and what to say instead.
//!
//! How: `docs/banned-words.txt` has one word or phrase a line, and behind a tab or ` — ` what to
//! say. It is held against comments and literals of Rust, and against documents.
//!
//! Limits: whole words only, each form has its own line; a phrase across two lines is not seen.
//! Records of past decisions (`docs/adr`) stay as they were written.

use super::source::{Source, word_positions};

/// Where the list is, from the root of the tree.
pub const LIST: &str = "docs/banned-words.txt";

/// A list that is longer is not known by heart.
const WORDS_MAX: usize = 25;

/// Documents that keep the words of their time.
const RECORDS: &str = "docs/adr/";

#[derive(Debug, PartialEq, Eq)]
pub struct Banned {
    /// In lower case.
    word: String,
    instead: String,
}

/// Reads the list; an error is what is wrong with it.
pub fn read(text: &str) -> Result<Vec<Banned>, Vec<String>> {
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let (mut words, mut complaints) = (Vec::new(), Vec::new());
    for (number, line) in lines {
        let parts = line.split_once('\t').or_else(|| line.split_once(" — "));
        match parts.map(|(word, instead)| (word.trim(), instead.trim())) {
            Some((word, instead)) if !word.is_empty() && !instead.is_empty() => {
                words.push(Banned { word: word.to_lowercase(), instead: instead.to_string() });
            }
            _ => complaints.push(format!("{LIST}:{}: a word, a tab, a reason", number + 1)),
        }
    }
    if !(1..=WORDS_MAX).contains(&words.len()) {
        complaints.push(format!("{LIST}: {} words; 1 to {WORDS_MAX} can be kept", words.len()));
    }
    if complaints.is_empty() { Ok(words) } else { Err(complaints) }
}

/// The banned words in comments and literals of a Rust file.
pub fn rust_file(source: &Source, banned: &[Banned]) -> Vec<String> {
    in_lines(&source.name, &source.prose, banned)
}

pub fn document(name: &str, text: &str, banned: &[Banned]) -> Vec<String> {
    if name.starts_with(RECORDS) {
        return Vec::new();
    }
    in_lines(name, text.lines(), banned)
}

fn in_lines(
    name: &str,
    lines: impl IntoIterator<Item = impl AsRef<str>>,
    banned: &[Banned],
) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in lines.into_iter().enumerate() {
        let line = line.as_ref().to_lowercase();
        let found = banned.iter().filter(|banned| !word_positions(&line, &banned.word).is_empty());
        complaints.extend(found.map(|Banned { word, instead }| {
            format!("{name}:{}: {word}: say {instead}", number + 1)
        }));
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> Vec<Banned> {
        read("# why\n\ngizmo\tthe part\nGoes Off — starts\n").expect("a list")
    }

    #[test]
    fn the_list_has_a_reason_for_each_word() {
        assert_eq!(list()[1], Banned { word: "goes off".into(), instead: "starts".into() });
        assert_eq!(
            read("gizmo\n"),
            Err(vec![
                format!("{LIST}:1: a word, a tab, a reason"),
                format!("{LIST}: 0 words; 1 to 25 can be kept"),
            ])
        );
        assert!(read("").is_err());
        let long: String = (0..=WORDS_MAX).map(|number| format!("w{number}\twhy\n")).collect();
        assert!(read(&long).is_err());
    }

    #[test]
    fn comments_and_literals_are_read_and_names_are_not() {
        let text = "//! A Gizmo\nfn gizmo() {} // and it goes off\nconst A: &str = \"a gizmo\";\n\
                    // gizmos\nlet gizmo = 'ü'; // ü\n";
        let found = rust_file(&Source::new("a.rs", text), &list());
        let expected = [
            "a.rs:1: gizmo: say the part",
            "a.rs:2: goes off: say starts",
            "a.rs:3: gizmo: say the part",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn documents_are_read_and_records_are_not() {
        assert_eq!(document("docs/a.md", "a gizmo\n", &list()).len(), 1);
        assert!(document("docs/adr/0001-a.md", "a gizmo\n", &list()).is_empty());
    }
}
