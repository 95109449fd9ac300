//! How many tests passed, failed and were skipped, added up from what test programs print.

use std::fmt;
use std::ops::AddAssign;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub passed: u64,
    /// They did not, or could not be built.
    pub failed: u64,
    pub skipped: u64,
}

impl Counts {
    /// Reads `test result: ok. 3 passed; 0 failed; 1 ignored; …`; other lines count nothing.
    pub fn from_line(line: &str) -> Self {
        let Some(result) = line.trim().strip_prefix("test result: ") else {
            return Self::default();
        };
        let number = |word: &str| {
            let mut parts = result.split([';', '.']).map(str::trim);
            let number = parts.find_map(|part| part.strip_suffix(word)?.trim().parse().ok());
            number.unwrap_or(0)
        };
        Self { passed: number("passed"), failed: number("failed"), skipped: number("ignored") }
    }

    /// The counts where nothing may be skipped.
    pub fn strict(self) -> Self {
        Self { passed: self.passed, failed: self.failed + self.skipped, skipped: 0 }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_counted() {
        let line =
            "test result: FAILED. 12 passed; 3 failed; 4 ignored; 0 measured; 9 filtered out";
        assert_eq!(Counts::from_line(line), Counts { passed: 12, failed: 3, skipped: 4 });
        assert_eq!(Counts::from_line("test foo ... ok"), Counts::default());
    }

    #[test]
    fn the_last_line_has_a_fixed_form() {
        let mut sum = Counts { passed: 1, failed: 0, skipped: 2 };
        sum += Counts { passed: 1, failed: 1, skipped: 0 };
        assert_eq!(sum.to_string(), "2 passed, 1 failed, 2 skipped");
        assert_eq!(sum.strict().to_string(), "2 passed, 3 failed, 0 skipped");
    }
}
