//! The sum of all tests: numbers, the tests that failed with the last lines of their output, and
//! how many were left to the long tier.

use std::collections::BTreeSet;
use std::ops::AddAssign;

use ringway_guests::process::tail;

use crate::counts::Counts;

/// Lines that are shown once more of each test that failed, and of all of them.
const LINES_MAX: usize = 30;
const ALL_LINES_MAX: usize = 240;

/// A test that failed or was skipped, and the reason that it gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    pub name: String,
    pub said: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    pub counts: Counts,
    pub failures: Vec<Remark>,
    pub skips: Vec<Remark>,
    /// Tests of which the long tier does more.
    pub shortened: BTreeSet<String>,
    /// Tests that only the long tier has.
    pub left_out: BTreeSet<String>,
}

impl Tally {
    pub fn passed() -> Self {
        Self { counts: Counts { passed: 1, ..Counts::default() }, ..Self::default() }
    }

    pub fn failed(name: &str, said: &str) -> Self {
        let counts = Counts { failed: 1, ..Counts::default() };
        Self { counts, failures: vec![Remark::new(name, said)], ..Self::default() }
    }

    /// One test, as cargo would tell of it.
    pub fn told(name: &str, result: &anyhow::Result<()>) -> Self {
        match result {
            Ok(()) => {
                println!("test {name} ... ok");
                Self::passed()
            }
            Err(error) => {
                println!("{error:#}\ntest {name} ... FAILED");
                Self::failed(name, &format!("{error:#}"))
            }
        }
    }

    pub fn skipped(name: &str, why: &str) -> Self {
        println!("test {name} ... skipped: {why}");
        let counts = Counts { skipped: 1, ..Counts::default() };
        Self { counts, skips: vec![Remark::new(name, why)], ..Self::default() }
    }

    /// Names of tests begin with the program that they are in.
    pub fn of_program(mut self, program: &str) -> Self {
        for remark in self.failures.iter_mut().chain(&mut self.skips) {
            remark.name = format!("{program} {}", remark.name);
        }
        self.shortened = self.shortened.iter().map(|test| format!("{program} {test}")).collect();
        self
    }

    /// The same where nothing may be skipped.
    pub fn strict(mut self) -> Self {
        for skip in self.skips.drain(..) {
            self.failures.push(Remark { said: format!("skipped: {}", skip.said), ..skip });
        }
        Self { counts: self.counts.strict(), ..self }
    }

    /// The end of a run: each test that failed, and the numbers in the last line.
    pub fn end(&self) -> String {
        let lines_max = (ALL_LINES_MAX / self.failures.len().max(1)).clamp(1, LINES_MAX);
        let failures = self.failures.iter().map(|failure| failure.shown(lines_max));
        failures.chain([self.left(), self.counts.to_string()]).collect()
    }

    fn left(&self) -> String {
        let (shortened, left_out) = (self.shortened.len(), self.left_out.len());
        if shortened + left_out == 0 {
            return String::new();
        }
        format!("left to ./x test --long: {left_out} tests, and more of {shortened} others\n")
    }
}

impl Remark {
    pub fn new(name: &str, said: &str) -> Self {
        Self { name: name.to_string(), said: said.to_string() }
    }

    /// With so many of the last lines.
    fn shown(&self, lines_max: usize) -> String {
        let said = tail(self.said.trim_end(), lines_max);
        let said = said.lines().map(|line| format!("    {line}\n"));
        [format!("FAILED: {}\n", self.name)].into_iter().chain(said).collect()
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.counts += other.counts;
        self.failures.extend(other.failures);
        self.skips.extend(other.skips);
        self.shortened.extend(other.shortened);
        self.left_out.extend(other.left_out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_names_each_failure_with_its_last_lines_and_then_the_numbers() {
        let mut tally = Tally::passed();
        assert_eq!(tally.end(), "1 passed, 0 failed, 0 skipped");
        let said: String = (0..100).map(|line| format!("line {line}\n")).collect();
        tally += Tally::failed("a", &said).of_program("host::tap");
        tally += Tally::failed("guest::b", "");
        let end = tally.end();
        let lines: Vec<&str> = end.lines().collect();
        assert_eq!((lines[0], lines[1]), ("FAILED: host::tap a", "    line 70"));
        assert_eq!(
            lines[LINES_MAX..],
            ["    line 99", "FAILED: guest::b", &*tally.counts.to_string()]
        );
        for _ in 0..1000 {
            tally += Tally::failed("c", "why\nthat\n");
        }
        assert!(tally.end().contains("FAILED: c\n    that\nFAILED: c\n"));
    }

    #[test]
    fn the_line_before_the_numbers_says_how_many_are_left_to_the_long_tier() {
        let mut tally = Tally::passed();
        for test in ["deaths", "rounds", "rounds"] {
            tally.shortened.insert(test.to_string());
        }
        let mut tally = tally.of_program("ringway::handoff");
        tally += Tally { left_out: BTreeSet::from(["guest::a".to_string()]), ..Tally::default() };
        let numbers = tally.counts.to_string();
        let left = "left to ./x test --long: 1 tests, and more of 2 others\n";
        assert_eq!(tally.end(), left.to_owned() + &numbers);
    }

    #[test]
    fn where_nothing_may_be_skipped_each_skip_is_a_failure_with_its_reason() {
        let mut tally = Tally::skipped("guest::a", "no QEMU");
        assert_eq!(tally.end(), "0 passed, 0 failed, 1 skipped");
        tally = tally.strict();
        assert_eq!(
            tally.end(),
            "FAILED: guest::a\n    skipped: no QEMU\n0 passed, 1 failed, 0 skipped"
        );
    }
}
