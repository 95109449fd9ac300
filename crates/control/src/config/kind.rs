//! The kinds of values that options have: each is read from text, and written.
//!
//! Limits: a value is text as on the command line; files and requests are brought into that form.

use std::fmt::Display;

use super::error::{Origin, SpecError};
use super::literal::Literal;
use super::values::{parse_amount, parse_choice};

/// Between the items of a list on a command line.
pub const SEPARATOR: char = '+';

/// The text of a value.
#[derive(Debug, Clone, Copy)]
pub struct OptionText<'a> {
    /// Where it is written down.
    pub origin: &'a Origin,
    /// The key of the option.
    pub key: &'a str,
    /// The value that holds without it, for people.
    pub default: &'a str,
    /// `None`: the default.
    pub text: Option<&'a str>,
}

/// How values are read and written.
pub trait Kind<T> {
    /// The value of a text.
    fn read(&self, text: &OptionText<'_>) -> Result<T, SpecError>;

    /// A value as it is written; `None`: the default.
    fn write(&self, value: &T, default: &str) -> Option<Literal>;
}

/// One of two values, each with its word.
#[derive(Debug)]
pub struct Choice<T>(pub [(&'static str, T); 2]);

/// On or off.
pub const SWITCH: Choice<bool> = Choice([("on", true), ("off", false)]);

/// An amount, or a time in microseconds; 0 is the default.
#[derive(Debug)]
pub struct Number;

/// A value that may be missing, and what reads it.
#[derive(Debug)]
pub struct Text<F>(pub F);

/// Several values, and what reads them.
#[derive(Debug)]
pub struct List<F>(pub F);

/// Anything else: what reads it, and what writes it.
#[derive(Debug)]
pub struct Other<R, W>(pub R, pub W);

impl<T: Copy + PartialEq> Kind<T> for Choice<T> {
    fn read(&self, text: &OptionText<'_>) -> Result<T, SpecError> {
        parse_choice(text.origin, text.key, text.text.unwrap_or(text.default), self.0)
    }

    fn write(&self, value: &T, default: &str) -> Option<Literal> {
        let (word, _) = *self.0.iter().find(|(_, of_word)| of_word == value)?;
        (word != default).then(|| match word {
            "on" => Literal::Switch(true),
            "off" => Literal::Switch(false),
            word => Literal::Text(word.to_owned()),
        })
    }
}

impl<N: Copy + Into<u64> + TryFrom<u64>> Kind<N> for Number {
    fn read(&self, text: &OptionText<'_>) -> Result<N, SpecError> {
        let amount = text.parse(|origin, typed| parse_amount(origin, text.key, typed))?;
        N::try_from(amount.unwrap_or(0)).map_err(|_| {
            let wrong = format!("{} is longer than an hour", text.key);
            text.origin.wrong(wrong, format!("write at most {}", u32::MAX))
        })
    }

    fn write(&self, number: &N, _: &str) -> Option<Literal> {
        Some((*number).into()).filter(|number| *number > 0).map(Literal::Number)
    }
}

impl<T, F> Kind<Option<T>> for Text<F>
where
    T: Display,
    F: Fn(&Origin, &str) -> Result<T, SpecError>,
{
    fn read(&self, text: &OptionText<'_>) -> Result<Option<T>, SpecError> {
        text.parse(&self.0)
    }

    fn write(&self, value: &Option<T>, _: &str) -> Option<Literal> {
        value.as_ref().map(|value| Literal::Text(value.to_string()))
    }
}

impl<T, F> Kind<Vec<T>> for List<F>
where
    T: Display,
    F: Fn(&OptionText<'_>) -> Result<Vec<T>, SpecError>,
{
    fn read(&self, text: &OptionText<'_>) -> Result<Vec<T>, SpecError> {
        (self.0)(text)
    }

    fn write(&self, list: &Vec<T>, _: &str) -> Option<Literal> {
        written_list(list)
    }
}

impl<T, R, W> Kind<T> for Other<R, W>
where
    R: Fn(&OptionText<'_>) -> Result<T, SpecError>,
    W: Fn(&T) -> Option<Literal>,
{
    fn read(&self, text: &OptionText<'_>) -> Result<T, SpecError> {
        (self.0)(text)
    }

    fn write(&self, value: &T, _: &str) -> Option<Literal> {
        (self.1)(value)
    }
}

/// A list as it is written; `None`: it is empty.
pub fn written_list(list: &[impl Display]) -> Option<Literal> {
    let texts = list.iter().map(ToString::to_string).collect();
    (!list.is_empty()).then_some(Literal::List(texts))
}

impl<'a> OptionText<'a> {
    /// The value; `None`: the default.
    pub fn parse<T>(
        &self,
        parse: impl FnOnce(&Origin, &str) -> Result<T, SpecError>,
    ) -> Result<Option<T>, SpecError> {
        self.text.map(|text| parse(self.origin, text)).transpose()
    }

    /// The items of a list.
    pub fn items(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.text.into_iter().flat_map(|text| text.split(SEPARATOR))
    }

    /// Their values.
    pub fn list<T>(
        &self,
        parse: impl Fn(&Origin, &str) -> Result<T, SpecError>,
    ) -> Result<Vec<T>, SpecError> {
        self.items().map(|item| parse(self.origin, item)).collect()
    }

    /// There are not more of something than that.
    pub fn check_count(&self, what: &str, count: usize, max: usize) -> Result<(), SpecError> {
        if count <= max {
            return Ok(());
        }
        let wrong = format!("{count} {what} are too many");
        Err(self.origin.wrong(wrong, format!("write {max} at most")))
    }
}
