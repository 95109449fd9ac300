//! Output of cargo's tests: which were skipped, which failed and why, and how many passed.
//!
//! A test whose real part is missing prints a line that begins with [`SKIPPED`], and returns: to
//! libtest it has passed. How: with `--show-output` libtest prints what tests have printed that
//! passed, between two lines [`SUCCESSES`], and then their names; none of that is shown, but each
//! test that was skipped is, and counts as such. What tests have printed that failed stands between
//! two lines [`FAILURES`], and is kept beside being shown. A test of which the long tier does more
//! says so by a line that begins with [`SHORT`].

use ringway_extent::SHORT;

use crate::counts::Counts;
use crate::tally::{Remark, Tally};

const SKIPPED: &str = "skipped: ";
const SUCCESSES: &str = "successes:";
const FAILURES: &str = "failures:";

/// The part of libtest's output that is being read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum OutputSection {
    #[default]
    Results,
    Outputs,
    Names,
    Failures,
    FailedNames,
}

#[derive(Debug, Default)]
pub struct Results {
    pub tally: Tally,
    /// Programs that have said how many of their tests passed.
    pub programs: u64,
    section: OutputSection,
    /// The test whose output is read; of one that passed, until it says that it was skipped.
    test: Option<String>,
    /// Tests of this program that were skipped.
    skipped: u64,
}

impl Results {
    /// Reads a line; what is to be shown of it.
    pub fn read(&mut self, line: &str) -> Option<String> {
        match (self.section, line) {
            (OutputSection::Results, SUCCESSES) => self.section = OutputSection::Outputs,
            (OutputSection::Outputs, SUCCESSES) => self.section = OutputSection::Names,
            (OutputSection::Outputs, _) => return self.output(line),
            (OutputSection::Names, "") => {}
            (OutputSection::Names, _) if line.starts_with("    ") => {}
            _ => {
                self.section = self.failure(line);
                return Some(line.to_string());
            }
        }
        None
    }

    fn output(&mut self, line: &str) -> Option<String> {
        if let Some(test) = header(line) {
            self.test = Some(test.to_string());
        }
        if line.starts_with(SHORT) {
            self.tally.shortened.extend(self.test.clone());
        }
        let why = line.strip_prefix(SKIPPED)?;
        let test = self.test.take()?;
        self.skipped += 1;
        self.tally.skips.push(Remark::new(&test, why));
        Some(format!("test {test} ... {line}"))
    }

    /// A line that is shown as it is; what the next one belongs to.
    fn failure(&mut self, line: &str) -> OutputSection {
        match (self.section, line) {
            (OutputSection::Failures, FAILURES) => return OutputSection::FailedNames,
            (_, FAILURES) => return OutputSection::Failures,
            (OutputSection::Failures, _) => {
                self.failed(line);
                return OutputSection::Failures;
            }
            (OutputSection::FailedNames, _) if line.starts_with("    ") => {
                self.named(line.trim());
                return OutputSection::FailedNames;
            }
            _ => {}
        }
        if line.starts_with(SHORT) {
            // Of a program without libtest.
            self.tally.shortened.insert(line.to_string());
        }
        self.programs += u64::from(line.trim().starts_with("test result: "));
        self.count(Counts::from_line(line));
        OutputSection::Results
    }

    fn failed(&mut self, line: &str) {
        let failures = &mut self.tally.failures;
        match (header(line), failures.last_mut()) {
            (Some(test), _) => failures.push(Remark::new(test, "")),
            (None, Some(last)) => last.said += &format!("{line}\n"),
            (None, None) => {}
        }
    }

    /// One that failed may have said nothing.
    fn named(&mut self, test: &str) {
        if self.tally.failures.iter().all(|failure| failure.name != test) {
            self.tally.failures.push(Remark::new(test, ""));
        }
    }

    /// A program has ended if it says how many of its tests passed.
    fn count(&mut self, program: Counts) {
        let counts = &mut self.tally.counts;
        *counts += program;
        if program != Counts::default() {
            counts.passed = counts.passed.saturating_sub(self.skipped);
            counts.skipped += std::mem::take(&mut self.skipped);
        }
    }
}

/// The test that the lines behind this one are of.
fn header(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_that_failed_is_known_with_what_it_said() {
        let text = "test a ... FAILED\ntest b ... FAILED\n\nfailures:\n\n---- a stdout ----\n\
                    thread 'a' panicked\n\n\nfailures:\n    a\n    b\n\n\
                    test result: FAILED. 0 passed; 2 failed\n\nrunning 1 test\n    c\n";
        let mut results = Results::default();
        assert!(text.lines().all(|line| results.read(line).is_some()), "all is shown");
        let failures = [Remark::new("a", "thread 'a' panicked\n\n\n"), Remark::new("b", "")];
        assert_eq!(results.tally.failures, failures);
        assert_eq!(results.tally.counts.failed, 2);
    }

    #[test]
    fn a_test_that_says_so_is_skipped_and_no_other_output_is_shown() {
        let text = "test a ... ok\ntest b ... FAILED\n\nsuccesses:\n\n---- a stdout ----\n\
                    short of --long: 3 rounds\nskipped: no root\nskipped: no root\n\n\
                    ---- c stdout ----\n\
                    test result: ok. 9 passed; 0 failed\n\n\nsuccesses:\n    a\n    c\n\n\
                    failures:\n\n---- b stdout ----\nskipped: the rest\n\nfailures:\n    b\n\n\
                    test result: FAILED. 2 passed; 1 failed; 1 ignored\n";
        let mut results = Results::default();
        let shown: Vec<String> = text.lines().filter_map(|line| results.read(line)).collect();
        let shown = shown.join("\n");
        assert_eq!(results.tally.counts, Counts { passed: 1, failed: 1, skipped: 2 });
        assert_eq!(results.tally.failures, [Remark::new("b", "skipped: the rest\n\n")]);
        assert_eq!(results.tally.skips, [Remark::new("a", "no root")]);
        assert!(results.tally.shortened.iter().eq(["a"]));
        assert_eq!(shown.matches("test a ... skipped: no root").count(), 1);
        assert!(!shown.contains("rounds") && !shown.contains("9 passed"), "{shown}");
        assert!(shown.contains("failures:\n\n---- b stdout ----\nskipped: the rest"), "{shown}");
    }
}
