//! The plugin's answers when something does not work.

use serde_json::json;

/// The first and the last version of CNI that are spoken.
pub const VERSIONS: [&str; 2] = ["1.0.0", "1.1.0"];

/// CNI's numbers of errors; 100 and above are our own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    Version = 1,
    Environment = 4,
    Io = 5,
    Parse = 6,
    Configuration = 7,
    TryAgain = 11,
    NotAvailable = 50,
    Ringway = 100,
    Tap = 101,
    Ipam = 102,
    Missing = 103,
}

/// Why something was not done.
#[derive(Debug)]
pub struct Failure {
    code: Code,
    text: String,
}

impl Failure {
    pub fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// The same, as another kind.
    pub fn with_code(self, code: Code) -> Self {
        Self { code, ..self }
    }

    /// As a runtime wants it that speaks that version.
    pub fn text(&self, version: &str) -> String {
        let Self { code, text } = self;
        format!("{}\n", json!({ "cniVersion": version, "code": *code as u32, "msg": text }))
    }
}
