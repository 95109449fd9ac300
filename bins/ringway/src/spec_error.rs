//! What is wrong with something that was typed, in one line, and the nearest word that is right.

use std::fmt;

/// One mistake: what was typed, what is wrong with it, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecError {
    typed: String,
    wrong: String,
    advice: String,
}

impl SpecError {
    /// `typed` is shown on one line whatever it contains.
    pub fn new(typed: &str, wrong: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { typed: one_line(typed), wrong: one_line(&wrong.into()), advice: advice.into() }
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.typed, self.wrong, self.advice)
    }
}

impl std::error::Error for SpecError {}

/// Control characters become visible, so that one mistake is one line.
fn one_line(text: &str) -> String {
    let visible = |character: char| match character.is_control() {
        true => character.escape_default().to_string(),
        false => character.to_string(),
    };
    text.chars().map(visible).collect()
}

/// The word that `typed` was probably meant to be, if one is near enough to be worth a hint.
pub fn nearest<'a>(typed: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let measured = words.into_iter().map(|word| (distance(typed, word), word));
    let (distance, word) = measured.min_by_key(|&(distance, _)| distance)?;
    (distance * 2 <= word.chars().count()).then_some(word)
}

/// Characters to insert, remove or replace to come from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    // The distances from what was read of `from` to every beginning of `to`.
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (read, character) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], read + 1);
        for (at, &other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(character != other);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_counts_single_changes() {
        assert_eq!(distance("packed", "packed"), 0);
        assert_eq!(distance("paked", "packed"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "mtu"), 3);
        assert_eq!(distance("mtu", ""), 3);
    }

    #[test]
    fn a_near_word_is_a_hint_and_a_far_one_is_not() {
        let words = ["packed", "mtu", "mrg_rxbuf"];
        assert_eq!(nearest("paked", words), Some("packed"));
        assert_eq!(nearest("mrg-rxbuf", words), Some("mrg_rxbuf"));
        assert_eq!(nearest("speed_of_light", words), None);
        assert_eq!(nearest("anything", []), None);
    }

    #[test]
    fn an_error_is_one_line() {
        let error = SpecError::new("a\nb", "bad\tthing", "do this");
        assert_eq!(error.to_string(), "a\\nb: bad\\tthing: do this");
    }
}
