//! Two statistics of a port, and what they say about it.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::control::{Direction, DirectionStats, PortStats, StatsReply};
use crate::units;

/// Something that holds a port back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How much of the port's traffic it concerns, in percent.
    pub weight: u64,
    /// The thing that was found, in words.
    pub what: &'static str,
    /// The figure of the statistics that says so.
    pub figure: String,
    /// The remedy.
    pub advice: String,
}

/// The statistics and options of a port.
pub struct Look<'a> {
    pub before: &'a StatsReply,
    pub now: &'a StatsReply,
    pub port: &'a PortStats,
    /// Its options that are no defaults, as in the file.
    pub options: &'a Map<String, Value>,
}

impl Look<'_> {
    /// Milliseconds between the looks; nothing is compared with another data plane's counts.
    pub fn passed_ms(&self) -> u64 {
        self.now.uptime_ms.saturating_sub(self.before.uptime_ms).max(1)
    }

    fn earlier(&self) -> Option<&PortStats> {
        self.before.ports.iter().find(|earlier| earlier.name == self.port.name)
    }

    fn of(port: &PortStats, direction: Direction) -> &DirectionStats {
        match direction {
            Direction::ToGuest => &port.to_guest,
            Direction::FromGuest => &port.from_guest,
        }
    }

    /// Packets that were dropped between the looks for that reason.
    pub fn dropped(&self, direction: Direction, reason: &str) -> u64 {
        let count = |port: &PortStats| Self::of(port, direction).dropped(reason);
        count(self.port).saturating_sub(self.earlier().map_or(0, count))
    }

    /// Addresses that have moved to the port between the looks.
    pub fn moved_addresses(&self) -> u64 {
        let before = self.earlier().map_or(0, |earlier| earlier.moved_addresses);
        self.port.moved_addresses.saturating_sub(before)
    }

    /// Packets and bytes that went in that direction between the looks.
    pub fn moved(&self, direction: Direction) -> (u64, u64) {
        let of =
            |port: &PortStats| (Self::of(port, direction).packets, Self::of(port, direction).bytes);
        let (now, before) = (of(self.port), self.earlier().map_or((0, 0), of));
        (now.0.saturating_sub(before.0), now.1.saturating_sub(before.1))
    }

    /// A number among the options.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.options.get(key).and_then(Value::as_u64)
    }

    /// How many were dropped, and which part of all that is; `None`: none.
    pub fn drops(&self, direction: Direction, reasons: &[&str]) -> Option<(u64, u64)> {
        let dropped = reasons.iter().map(|reason| self.dropped(direction, reason));
        let dropped = dropped.fold(0, u64::saturating_add);
        // Packets that came from the guest and went nowhere are counted as taken from it, too.
        let all = match direction {
            Direction::ToGuest => dropped.saturating_add(self.moved(direction).0),
            Direction::FromGuest => dropped.max(self.moved(direction).0),
        };
        (dropped > 0).then(|| (dropped, (dropped.saturating_mul(100) / all.max(1)).clamp(1, 100)))
    }

    /// Whether anything came from the guest between the looks.
    pub fn has_sent(&self) -> bool {
        self.moved(Direction::FromGuest).0 > 0
    }

    /// `12 packets were dropped in a second (no_room)`.
    pub fn drop_figure(&self, dropped: u64, reason: &str) -> String {
        let packets = units::counted(dropped, "packet");
        format!("{packets} dropped in {} ms ({reason})", self.passed_ms())
    }
}
