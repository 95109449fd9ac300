//! Labels that operators and their programs note at a port: ringway keeps them, shows them, and
//! makes nothing of them.

use std::collections::BTreeMap;

use super::error::{Origin, SpecError};
use super::kind::OptionText;
use super::literal::Literal;

/// Of one port.
const LABELS_MAX: usize = 16;

/// In bytes.
const KEY_LEN_MAX: usize = 64;
const VALUE_LEN_MAX: usize = 128;

/// Values by their keys.
pub type Labels = BTreeMap<String, String>;

/// `KEY:VALUE`, several with `+` between them.
///
/// # Errors
/// Starts with what was typed.
pub fn parse(origin: &Origin, text: &str) -> Result<Labels, SpecError> {
    let mut labels = Labels::new();
    for part in text.split('+') {
        let (key, value) = parse_one(part).ok_or_else(|| {
            let wrong = format!("{part:?} is not a label");
            let example = origin.assign("label", "tenant:blue");
            let limits = format!("{KEY_LEN_MAX} and {VALUE_LEN_MAX} of letters, digits and -_./@");
            origin.wrong(wrong, format!("write KEY:VALUE, such as {example}; at most {limits}"))
        })?;
        if labels.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(origin.wrong(format!("label {key} is given twice"), "keep one"));
        }
    }
    if labels.len() > LABELS_MAX {
        let wrong = format!("{} labels: a port has at most {LABELS_MAX}", labels.len());
        return Err(origin.wrong(wrong, "leave some out"));
    }
    Ok(labels)
}

/// The value of the option.
pub(super) fn read(text: &OptionText<'_>) -> Result<Labels, SpecError> {
    text.parse(parse).map(Option::unwrap_or_default)
}

/// Key and value of one; the value may have colons.
pub fn parse_one(text: &str) -> Option<(&str, &str)> {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./@".contains(&byte);
    let (key, value) = text.split_once(':')?;
    let key_ok = (1..=KEY_LEN_MAX).contains(&key.len()) && key.bytes().all(is_fine);
    let mut bytes = value.bytes();
    let value_ok = value.len() <= VALUE_LEN_MAX && bytes.all(|byte| is_fine(byte) || byte == b':');
    (key_ok && value_ok).then_some((key, value))
}

/// As they are written; `None`: there are none.
pub fn written(labels: &Labels) -> Option<Literal> {
    let texts = labels.iter().map(|(key, value)| format!("{key}:{value}")).collect();
    (!labels.is_empty()).then_some(Literal::List(texts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_a_key_and_may_have_a_value() {
        assert_eq!(parse_one("a.b/c:x:y"), Some(("a.b/c", "x:y")));
        assert_eq!(parse_one("a:"), Some(("a", "")));
        let long = format!("a:{}", "x".repeat(VALUE_LEN_MAX + 1));
        for text in ["", "a", ":x", "a b:x", "a:x y", "a:ä", "a:x,y", "a:\"", &long] {
            assert_eq!(parse_one(text), None, "{text}");
        }
    }
}
