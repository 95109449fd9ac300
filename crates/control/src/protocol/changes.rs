//! Answers to `log` and `reload`: what is otherwise now.

use serde::{Deserialize, Serialize};

/// The level that is to be logged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogQuestion {
    /// As in `RINGWAY_LOG`.
    #[serde(default)]
    pub level: String,
}

/// The answer: both processes log so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogReply {
    /// [`PROTOCOL_VERSION`](super::PROTOCOL_VERSION) of the daemon.
    pub version: u32,
    /// Always `true`.
    pub ok: bool,
    /// The level that is logged.
    pub level: String,
    /// The level that was logged before.
    pub before: String,
}

/// The answer to `reload`: the file was read again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadReply {
    /// [`PROTOCOL_VERSION`](super::PROTOCOL_VERSION) of the daemon.
    pub version: u32,
    /// Always `true`.
    pub ok: bool,
    /// The differences between the file now and before.
    pub changes: Vec<ConfigChange>,
    /// Warnings of values that are probably not meant, or come later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// One thing that a file says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigChange {
    /// The port; `null`: a setting.
    pub port: Option<String>,
    /// The option or setting; of a port that comes or goes, its kind.
    pub key: String,
    /// The value before; `null`: the default, or no such port.
    pub from: Option<String>,
    /// The value now; `null`: the default, or no such port.
    pub to: Option<String>,
}
