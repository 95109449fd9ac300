//! Values of options as they are written, whatever the syntax.

/// A value in the form it takes in files and requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Literal {
    /// `on` and `off`; `true` and `false` in files.
    Switch(bool),
    /// A number without a unit.
    Number(u64),
    /// Several; an array in files.
    List(Vec<String>),
    /// Anything else.
    Text(String),
}

impl Literal {
    /// As on a command line.
    pub fn to_text(&self) -> String {
        match self {
            Self::Switch(true) => "on".into(),
            Self::Switch(false) => "off".into(),
            Self::Number(number) => number.to_string(),
            Self::List(texts) => texts.join("+"),
            Self::Text(text) => text.clone(),
        }
    }
}
