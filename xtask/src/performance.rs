//! `docs/performance.md`: one section for each part that is measured, the verdicts, and the notes.
//!
//! How: the document is a pure function of its sections and the notes. A section says itself when
//! it was measured, and how; so some may be from a newer run than others, and what is measured
//! anew takes the place of what was there.
//!
//! Limits: a section is known by its first line, and ends where the next line of that kind begins.

use std::path::Path;

use crate::verdicts::verdicts;

/// What is measured.
pub const PARTS: [&str; 7] = ["ring", "guest", "switch", "pacing", "history", "rxbuf", "scale"];

/// Why the numbers are as they are, and what was tried: written, not measured.
pub const NOTES: &str = include_str!("performance_notes.md");

/// How the document begins.
const HEAD: &str = "# Performance

Written by `./x bench docs`. Every number in a table is from the run that its part names in its
first line; parts may be from different runs (`./x bench docs PART`), and only ratios within
one run mean anything on another machine. What was aimed at, whether it is reached, and what
limits it is at the end.
";

/// How the directories of a run begin; six letters follow.
const RUN_DIRECTORY: &str = "/tmp/rw-";

/// The measured sections of the document, in the order of [`PARTS`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sections([Option<String>; PARTS.len()]);

impl Sections {
    /// Those of a document; what is there beside them is left.
    pub fn of(document: &str) -> Sections {
        let mut sections = Sections::default();
        let mut part = None;
        for line in document.split_inclusive('\n') {
            if line.starts_with("## ") {
                part = PARTS.iter().position(|part| line.trim_end() == heading(part));
            }
            if let Some(part) = part {
                sections.0[part].get_or_insert_default().push_str(line);
            }
        }
        sections
    }

    /// What was measured of a part takes the place of what was there.
    pub fn replace(&mut self, part: &str, section: &str) {
        self.0[place(part).expect("one of PARTS")] = Some(section.to_string());
    }

    /// The whole document; a part that was never measured says so.
    pub fn document(&self) -> String {
        let mut text = HEAD.to_string();
        for (part, section) in PARTS.iter().zip(&self.0) {
            let never = || format!("{}\n\nnot measured\n", heading(part));
            let section = section.clone().unwrap_or_else(never);
            text.push_str(&format!("\n{}\n", section.trim_end()));
        }
        let section = |part: &str| self.0[place(part)?].as_deref();
        format!("{text}\n{}\n{NOTES}", verdicts(section))
    }
}

fn place(part: &str) -> Option<usize> {
    PARTS.iter().position(|known| *known == part)
}

/// The first line of a part's section, as `ringway bench PART --markdown` writes it.
fn heading(part: &str) -> String {
    format!("## ringway bench {part}")
}

/// The same text without where this tree is, and without the names of directories that were gone
/// when the run ended.
pub fn without_places(text: &str, root: &Path) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    const COMMITTED: &str = include_str!("../../docs/performance.md");

    fn section(part: &str, day: &str) -> String {
        format!(
            "## ringway bench {part}\n\n{day}: measured\n\n### A table\n\n| a |\n|---|\n| 1 |\n"
        )
    }

    #[test]
    fn a_part_that_is_measured_anew_leaves_the_others_as_they_are() {
        let mut before = Sections::default();
        for part in PARTS {
            before.replace(part, &section(part, "monday"));
        }
        let mut after = Sections::of(&before.document());
        assert_eq!(after.document(), before.document());
        after.replace("switch", &section("switch", "tuesday"));
        let expected =
            before.document().replace(&section("switch", "monday"), &section("switch", "tuesday"));
        assert_eq!(after.document(), expected);
        assert_eq!(expected.matches("monday").count(), PARTS.len() - 1);
    }

    #[test]
    fn a_part_that_was_never_measured_says_so() {
        let text = Sections::default().document();
        assert!(text.contains("## ringway bench ring\n\nnot measured\n\n## ringway bench guest"));
        assert!(text.starts_with(HEAD) && text.ends_with(NOTES));
    }

    #[test]
    fn the_committed_document_is_what_its_sections_and_the_notes_make() {
        let anew = Sections::of(COMMITTED).document();
        assert!(anew == COMMITTED, "docs/performance.md: run ./x bench docs --text");
    }

    #[test]
    fn each_aim_is_in_the_committed_tables() {
        let missing: Vec<&str> =
            COMMITTED.lines().filter(|line| line.ends_with("| not measured |")).collect();
        assert!(missing.is_empty(), "{}", missing.join("\n"));
        assert!(COMMITTED.contains("\n## What was aimed at, and what the tables say\n"));
    }

    /// Who says "above" beside a figure means the tables of one run, and is wrong with the next.
    #[test]
    fn the_notes_do_not_quote_the_tables() {
        for paragraph in NOTES.split("\n\n") {
            let words: Vec<&str> =
                paragraph.split(|letter: char| !letter.is_alphanumeric()).collect();
            let quotes = words.windows(2).any(|two| matches!(two, ["run" | "runs", "before"]));
            let quotes = quotes || words.contains(&"above");
            assert!(!quotes, "say of which run: {paragraph}");
        }
    }

    #[test]
    fn a_report_does_not_say_where_it_was_made() {
        let text = "/a/tree/target/x run /tmp/rw-8e18Fl/1/vm.sock,mac=1 /tmp/rw-8e18Fl/2\n";
        let without = without_places(text, Path::new("/a/tree"));
        assert_eq!(without, "target/x run RUN/1/vm.sock,mac=1 RUN/2\n");
    }
}
