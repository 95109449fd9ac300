//! How much of something a test does: a little in each run, much in the long tier.
//!
//! How: `./x test --long` sets [`LONG`] for all that it starts. A test that did less says so in a
//! line that begins with [`SHORT`], and `./x test` counts those lines.
//!
//! Limits: it is for tests; a variable that is no number ends them.

#![forbid(unsafe_code)]

use std::env;

/// Set in the long tier.
pub const LONG: &str = "RINGWAY_LONG";

/// In front of what a test says of which the long tier does more.
pub const SHORT: &str = "short of --long: ";

/// Rounds, bytes or minutes of a test.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// Asks for as much, in either tier.
    variable: &'static str,
    short: u64,
    long: u64,
}

impl Extent {
    /// An amount for each run, and one for the long tier; the variable asks for another one.
    pub const fn new(variable: &'static str, short: u64, long: u64) -> Self {
        Self { variable, short, long }
    }

    /// As much as this run asks for.
    ///
    /// # Panics
    /// The variable is set, and is no number.
    pub fn amount(self) -> u64 {
        self.of(env::var(self.variable).ok().as_deref(), is_long())
    }

    /// The same; says so where the long tier does more.
    ///
    /// # Panics
    /// As [`Self::amount`].
    pub fn announced(self) -> u64 {
        let amount = self.amount();
        if amount < self.long {
            announce(&format!("{} is {amount}, not {}", self.variable, self.long));
        }
        amount
    }

    fn of(self, asked: Option<&str>, is_long: bool) -> u64 {
        let Self { variable, short, long } = self;
        match asked {
            Some(text) => {
                text.parse().unwrap_or_else(|_| panic!("{variable}={text}: this is no number"))
            }
            None => {
                if is_long {
                    long
                } else {
                    short
                }
            }
        }
    }
}

/// Says that the long tier does this.
pub fn announce(what: &str) {
    println!("{SHORT}{what}");
}

/// Whether this is the long tier.
pub fn is_long() -> bool {
    env::var_os(LONG).is_some_and(|value| value == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_counts_in_both_tiers() {
        let rounds = Extent::new("RINGWAY_NEVER_SET", 3, 100);
        assert_eq!([false, true].map(|is_long| rounds.of(None, is_long)), [3, 100]);
        assert_eq!([false, true].map(|is_long| rounds.of(Some("7"), is_long)), [7, 7]);
    }

    #[test]
    #[should_panic(expected = "RINGWAY_NEVER_SET=many: this is no number")]
    fn a_variable_that_is_no_number_is_told() {
        Extent::new("RINGWAY_NEVER_SET", 3, 100).of(Some("many"), false);
    }
}
