//! What cargo prints of tests: which of them were skipped, and how many passed.
//!
//! A test whose real part is missing prints a line that begins with [`SKIPPED`], and returns: to
//! libtest it has passed. How: with `--show-output` libtest prints what tests have printed that
//! passed, between two lines [`SUCCESSES`], and then their names; none of that is shown, but each
//! test that was skipped is, and counts as such.

use crate::counts::Counts;

const SKIPPED: &str = "skipped: ";
const SUCCESSES: &str = "successes:";

/// Which part of what libtest prints is being read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Part {
    #[default]
    Results,
    Outputs,
    Names,
}

#[derive(Debug, Default)]
pub struct Results {
    pub counts: Counts,
    /// Programs that have said how many of their tests passed.
    pub programs: u64,
    part: Part,
    /// Whose output it is, until it says that it was skipped.
    test: Option<String>,
    /// Tests of this program that were skipped.
    skipped: u64,
}

impl Results {
    /// Reads a line; what is to be shown of it.
    pub fn read(&mut self, line: &str) -> Option<String> {
        match (self.part, line) {
            (Part::Results, SUCCESSES) => self.part = Part::Outputs,
            (Part::Outputs, SUCCESSES) => self.part = Part::Names,
            (Part::Outputs, _) => return self.output(line),
            (Part::Names, "") => {}
            (Part::Names, _) if line.starts_with("    ") => {}
            _ => {
                self.part = Part::Results;
                self.programs += u64::from(line.trim().starts_with("test result: "));
                self.count(Counts::from_line(line));
                return Some(line.to_string());
            }
        }
        None
    }

    fn output(&mut self, line: &str) -> Option<String> {
        if let Some(rest) = line.strip_prefix("---- ") {
            self.test = rest.strip_suffix(" stdout ----").map(str::to_string);
        }
        line.strip_prefix(SKIPPED)?;
        let test = self.test.take()?;
        self.skipped += 1;
        Some(format!("test {test} ... {line}"))
    }

    /// A program has ended if it says how many of its tests passed.
    fn count(&mut self, program: Counts) {
        self.counts += program;
        if program != Counts::default() {
            self.counts.passed = self.counts.passed.saturating_sub(self.skipped);
            self.counts.skipped += std::mem::take(&mut self.skipped);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_says_so_is_skipped_and_no_other_output_is_shown() {
        let text = "test a ... ok\ntest b ... FAILED\n\nsuccesses:\n\n---- a stdout ----\n\
                    3 rounds\nskipped: no root\nskipped: no root\n\n---- c stdout ----\n\
                    test result: ok. 9 passed; 0 failed\n\n\nsuccesses:\n    a\n    c\n\n\
                    failures:\n\n---- b stdout ----\nskipped: the rest\n\nfailures:\n    b\n\n\
                    test result: FAILED. 2 passed; 1 failed; 1 ignored\n";
        let mut results = Results::default();
        let shown: Vec<String> = text.lines().filter_map(|line| results.read(line)).collect();
        let shown = shown.join("\n");
        assert_eq!(results.counts, Counts { passed: 1, failed: 1, skipped: 2 });
        assert_eq!(shown.matches("test a ... skipped: no root").count(), 1);
        assert!(!shown.contains("rounds") && !shown.contains("9 passed"), "{shown}");
        assert!(shown.contains("failures:\n\n---- b stdout ----\nskipped: the rest"), "{shown}");
    }
}
