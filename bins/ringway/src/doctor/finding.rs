//! One thing that was looked at.

use serde::Serialize;

/// How it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It works.
    Fine,
    /// It is not there; what needs it does not work, the rest does.
    Absent,
    /// `ringway run` with this configuration would fail.
    Wrong,
}

/// A thing that was looked at, its state, and what mends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub what: String,
    pub verdict: Verdict,
    pub found: String,
    /// A command, or what to do.
    pub mend: Option<String>,
}

impl Finding {
    pub fn fine(what: impl Into<String>, found: impl Into<String>) -> Self {
        Self { what: what.into(), verdict: Verdict::Fine, found: found.into(), mend: None }
    }

    pub fn absent(
        what: impl Into<String>,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        let mend = Some(mend.into());
        Self { what: what.into(), verdict: Verdict::Absent, found: found.into(), mend }
    }

    pub fn wrong(
        what: impl Into<String>,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Wrong, ..Self::absent(what, found, mend) }
    }
}
