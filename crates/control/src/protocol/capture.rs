//! `capture`: what is asked, and the answer, with which two file descriptors come.

use ringway_switch::Filter;
use serde::{Deserialize, Serialize};

/// The question that starts a capture.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureQuestion {
    /// The name of the port.
    #[serde(default)]
    pub name: String,
    /// Instead: of all these ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// `to_guest` or `from_guest`; both without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// Most bytes of a packet; all of them without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snap: Option<u32>,
    /// One packet in so many, on average; all without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<u32>,
    /// The filter that packets have to pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
}

/// The direction of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// To the guest, or into the tap.
    ToGuest,
    /// From the guest, or out of the tap.
    FromGuest,
}

impl CaptureQuestion {
    /// The names of all ports.
    pub fn ports(&self) -> &[String] {
        if self.names.is_empty() { std::slice::from_ref(&self.name) } else { &self.names }
    }

    /// The filter as a value.
    ///
    /// # Errors
    /// The mistake in its text, and where it is.
    pub fn parsed_filter(&self) -> Result<Option<Filter>, String> {
        let parsed = self.filter.as_deref().map(Filter::parse).transpose();
        parsed.map_err(|why| format!("the filter: {why}"))
    }
}

/// The answer: the file of records, and a socket that is closed when the capture is to end, come
/// with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureReply {
    /// [`PROTOCOL_VERSION`](super::PROTOCOL_VERSION) of the daemon.
    pub version: u32,
    /// Always `true`.
    pub ok: bool,
    /// Kind and place of the port, for people.
    pub description: String,
}
