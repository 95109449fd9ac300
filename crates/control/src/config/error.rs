//! A complaint about something that was typed, in one line: what it was, what is wrong, what to do;
//! and the nearest word that is right.

use std::fmt;

/// Characters of a typed text that are shown of it.
pub(super) const TYPED_CHARS_MAX: usize = 400;

/// Names of ports in one error.
const NAMES_SHOWN_MAX: usize = 16;

/// One mistake: what was typed, what is wrong with it, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecError {
    typed: String,
    wrong: String,
    advice: String,
}

/// How options are written where a mistake was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// `key=value`, in an option of a command line.
    Flag,
    /// `--key value`, as an option of a command line.
    LongFlag,
    /// `key = "value"`, in a file.
    Toml,
    /// `"key": "value"`, in a request.
    Json,
}

/// Where something comes from: what an error about it begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The text that was typed; in a file, with its name and line in front.
    pub typed: String,
    /// How advice is to be written.
    pub syntax: Syntax,
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

impl Origin {
    /// Something typed on a command line.
    pub fn flag(typed: impl Into<String>) -> Self {
        Self { typed: typed.into(), syntax: Syntax::Flag }
    }

    /// A mistake made here.
    pub fn wrong(&self, wrong: impl Into<String>, advice: impl Into<String>) -> SpecError {
        SpecError::new(&self.typed, wrong, advice)
    }

    /// How an option is set in this syntax; `value` as on the command line.
    pub fn assign(&self, key: &str, value: &str) -> String {
        let is_number = value.parse::<u64>().is_ok_and(|number| number.to_string() == value);
        let literal = match value {
            "on" => "true".to_string(),
            "off" => "false".to_string(),
            number if is_number => number.to_string(),
            text => format!("{text:?}"),
        };
        match self.syntax {
            Syntax::Flag => format!("{key}={value}"),
            Syntax::LongFlag => format!("--{} {value}", key.replace('_', "-")),
            Syntax::Toml => format!("{key} = {literal}"),
            Syntax::Json => format!("\"{key}\": {literal}"),
        }
    }

    /// The mistake of a key that does not exist, with the nearest one that does.
    pub fn unknown_key(&self, what: &str, key: &str, keys: &[&str]) -> SpecError {
        let begun = format!("{key}_");
        let longer = keys.iter().copied().filter(|it| it.starts_with(&begun));
        let longer: Vec<&str> = longer.collect();
        let advice = match nearest(key, keys.iter().copied()) {
            _ if !longer.is_empty() => format!("did you mean {}?", longer.join(" or ")),
            Some(word) => format!("did you mean {word}?"),
            None => format!("use one of {}", keys.join(" ")),
        };
        self.wrong(format!("there is no {what} called {key:?}"), advice)
    }
}

/// Control characters become visible, so that one mistake is one line.
fn one_line(text: &str) -> String {
    let mut line = String::new();
    for character in text.chars().take(TYPED_CHARS_MAX) {
        match character.is_control() {
            true => line.extend(character.escape_default()),
            false => line.push(character),
        }
    }
    if text.chars().nth(TYPED_CHARS_MAX).is_some() {
        line.push('…');
    }
    line
}

/// The complaint about the name of a port that is none of these.
pub fn no_port<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let advice = match nearest(typed, names.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None if names.is_empty() => "there are none".to_string(),
        None => format!("use one of {}", names[..names.len().min(NAMES_SHOWN_MAX)].join(" ")),
    };
    format!("there is no port called {typed:?}: {advice}")
}

/// The word that `typed` was probably meant to be, if one is near enough to be worth a hint.
pub fn nearest<'a>(typed: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A hint for a text that long is of no use.
    if typed.len() > TYPED_CHARS_MAX {
        return None;
    }
    let measured = words.into_iter().map(|word| (strsim::levenshtein(typed, word), word));
    let (distance, word) = measured.min_by_key(|&(distance, _)| distance)?;
    (distance * 2 <= word.chars().count()).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_word_is_a_hint_and_a_far_one_is_not() {
        let words = ["packed", "mtu", "mrg_rxbuf"];
        assert_eq!(nearest("paked", words), Some("packed"));
        assert_eq!(nearest("mrg-rxbuf", words), Some("mrg_rxbuf"));
        assert_eq!(nearest("speed_of_light", words), None);
        assert_eq!(nearest(&"packed".repeat(100), words), None);
        assert_eq!(nearest("anything", []), None);
    }

    #[test]
    fn what_begins_several_words_means_one_of_them() {
        let keys = ["range", "rate_to_guest", "rate_from_guest"];
        let origin = Origin { typed: "rate=5".to_owned(), syntax: Syntax::Flag };
        let error = origin.unknown_key("option", "rate", &keys).to_string();
        assert!(error.ends_with("did you mean rate_to_guest or rate_from_guest?"), "{error}");
    }

    #[test]
    fn an_error_is_one_line_of_bounded_length() {
        let error = SpecError::new("a\nb", "bad\tthing", "do this");
        assert_eq!(error.to_string(), "a\\nb: bad\\tthing: do this");
        let long = SpecError::new(&"x".repeat(10_000), "bad", "do this").to_string();
        assert!(long.chars().count() < TYPED_CHARS_MAX + 30, "{long}");
    }

    #[test]
    fn advice_is_written_as_the_place_wants_it() {
        let assigned = |syntax| {
            let origin = Origin { typed: String::new(), syntax };
            [("packed", "off"), ("mtu", "9000"), ("mac", "a:b")].map(|(k, v)| origin.assign(k, v))
        };
        assert_eq!(assigned(Syntax::Flag), ["packed=off", "mtu=9000", "mac=a:b"]);
        assert_eq!(assigned(Syntax::Toml), ["packed = false", "mtu = 9000", "mac = \"a:b\""]);
        assert_eq!(
            assigned(Syntax::Json),
            ["\"packed\": false", "\"mtu\": 9000", "\"mac\": \"a:b\""]
        );
    }
}
