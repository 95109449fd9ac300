//! `trace`: a packet that is not sent, and what would become of it.

use serde::{Deserialize, Serialize};

/// The question about a packet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceQuestion {
    /// The port that it would come from.
    #[serde(default)]
    pub name: String,
    /// The packet from its Ethernet header on, in hexadecimal digits.
    #[serde(default)]
    pub packet: String,
}

/// The way that the packet would take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceReply {
    /// [`PROTOCOL_VERSION`](super::PROTOCOL_VERSION) of the daemon.
    pub version: u32,
    /// Always `true`.
    pub ok: bool,
    /// The rules that were looked at, in that order.
    pub steps: Vec<TraceStep>,
    /// `goes to vm1`, `flooded`, `waits` or `dropped: REASON`.
    pub verdict: String,
    /// Each port that it is for.
    pub receivers: Vec<TraceReceiver>,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceStep {
    /// The name of the rule.
    pub rule: String,
    /// The outcome of the rule.
    pub outcome: String,
}

/// A port that the packet is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceReceiver {
    /// Its name.
    pub port: String,
    /// Whether it gets it, how, and why not.
    pub outcome: String,
}

impl TraceQuestion {
    /// The packet as bytes.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        let digits = self.packet.as_bytes();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let is_even = digits.len().is_multiple_of(2);
        is_even.then(|| digits.chunks(2).map(byte).collect::<Option<Vec<u8>>>())?
    }

    /// That packet from that port.
    pub fn new(name: &str, packet: &[u8]) -> Self {
        let packet = packet.iter().map(|byte| format!("{byte:02x}")).collect();
        Self { name: name.to_owned(), packet }
    }
}
