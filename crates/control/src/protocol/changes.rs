//! Answers to `log` and `reload`: what is otherwise now.

use serde::{Deserialize, Serialize};

/// What is to be logged.
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
    /// What is logged.
    pub level: String,
    /// What was logged before.
    pub before: String,
}

/// The answer to `reload`: the file was read again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadReply {
    /// [`PROTOCOL_VERSION`](super::PROTOCOL_VERSION) of the daemon.
    pub version: u32,
    /// Always `true`.
    pub ok: bool,
    /// What the file says otherwise than before.
    pub changes: Vec<ConfigChange>,
    /// What is probably not meant, or comes later.
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
    /// What it was; `null`: the default, or no such port.
    pub from: Option<String>,
    /// What it is; `null`: the default, or no such port.
    pub to: Option<String>,
}
