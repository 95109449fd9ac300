//! The counters of a port of ringway.

use std::fmt;

use anyhow::{Context, ensure};
use ringway_control::protocol::{Direction, DirectionStats, PortStats, reply_line};

/// The statistics of one port.
#[derive(Debug)]
pub struct PortStatistics(pub(crate) PortStats);

impl fmt::Display for PortStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&reply_line(&self.0))
    }
}

/// How one direction of a queue is paced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pacing {
    /// Packets that may pass before the other side is told.
    pub window: u64,
    /// How long one waits for that, in microseconds.
    pub timer_us: u64,
    /// Why.
    pub cause: String,
}

impl fmt::Display for Pacing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} packets, {} µs: {}", self.window, self.timer_us, self.cause)
    }
}

/// Packets and bytes of one direction, for differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Packets that went through.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Notifications from the guest.
    pub kicks: u64,
    /// Notifications to the guest.
    pub calls: u64,
}

impl PortStatistics {
    /// The packets and bytes up to now.
    pub fn moved(&self, direction: Direction) -> Moved {
        let &DirectionStats { packets, bytes, kicks, calls, .. } = self.direction(direction);
        Moved { packets, bytes, kicks, calls }
    }

    /// Packets so far through each queue pair.
    pub fn pairs(&self, direction: Direction) -> Vec<u64> {
        let pairs = self.0.pairs.iter().map(|pair| match direction {
            Direction::ToGuest => pair.to_guest,
            Direction::FromGuest => pair.from_guest,
        });
        pairs.collect()
    }

    /// Packets dropped so far for one reason.
    pub fn dropped(&self, direction: Direction, reason: &str) -> u64 {
        self.direction(direction).dropped(reason)
    }

    /// How one direction of its first queue pair is paced: `calls`, `returns` or `kicks`.
    ///
    /// # Errors
    /// No queue runs.
    pub fn pacing(&self, direction: &str) -> anyhow::Result<Pacing> {
        let one = self.0.pacing.iter().find(|one| one.direction == direction);
        let one = one.with_context(|| format!("no {direction}: {self}"))?;
        let (window, timer_us) = (one.window.into(), one.timer_ns / 1000);
        Ok(Pacing { window, timer_us, cause: one.cause.clone() })
    }

    /// Commands of the guest that were answered with an error.
    pub fn refused_commands(&self) -> u64 {
        self.0.refused_commands
    }

    /// The word for what it is at, such as `running`.
    pub fn state(&self) -> &str {
        &self.0.state
    }

    /// Whether a front-end is connected, or the tap open.
    pub fn is_connected(&self) -> bool {
        self.0.connected
    }

    /// Checks the ring format, and which features were negotiated and which not.
    ///
    /// # Errors
    /// Something is otherwise.
    pub fn check_negotiated(&self, format: &str, features: &[(&str, bool)]) -> anyhow::Result<()> {
        ensure!(self.0.format.as_deref() == Some(format), "not {format}: {self}");
        for (name, wanted) in features {
            let is_there = self.0.features.iter().any(|feature| feature == name);
            ensure!(is_there == *wanted, "{name}: negotiated {is_there}: {self}");
        }
        Ok(())
    }

    /// Checks that no queue was stopped, and nothing dropped for a reason other than these and
    /// what the guest itself filtered.
    ///
    /// # Errors
    /// Something is broken, or was dropped.
    pub fn check_healthy(&self, allowed_drops: &[&str]) -> anyhow::Result<()> {
        ensure!(self.0.broken.is_empty(), "broken: {self}");
        for direction in [Direction::ToGuest, Direction::FromGuest] {
            for (reason, count) in
                self.direction(direction).drops.iter().filter(|(_, count)| **count > 0)
            {
                let is_allowed = reason == "filtered" || allowed_drops.contains(&&**reason);
                ensure!(is_allowed, "{count} packets dropped ({reason}): {self}");
            }
        }
        Ok(())
    }

    fn direction(&self, direction: Direction) -> &DirectionStats {
        match direction {
            Direction::ToGuest => &self.0.to_guest,
            Direction::FromGuest => &self.0.from_guest,
        }
    }
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { packets, kicks, calls, .. } = self;
        write!(f, "{packets} packets of {} bytes, {kicks} kicks, {calls} calls", self.mean_len())
    }
}

impl Moved {
    /// The packets and bytes since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(before.packets),
            bytes: self.bytes.saturating_sub(before.bytes),
            kicks: self.kicks.saturating_sub(before.kicks),
            calls: self.calls.saturating_sub(before.calls),
        }
    }

    /// Mean length of a packet in bytes.
    pub fn mean_len(self) -> u64 {
        self.bytes.checked_div(self.packets).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port() -> PortStatistics {
        let drops = [("no_room", 2), ("offload", 0)].map(|(reason, count)| (reason.into(), count));
        let to_guest = DirectionStats { packets: 4, bytes: 40, ..DirectionStats::default() };
        let to_guest = DirectionStats { drops: drops.into(), ..to_guest };
        let (format, features) = (Some("packed".into()), vec!["MRG_RXBUF".into()]);
        PortStatistics(PortStats { format, features, to_guest, ..PortStats::default() })
    }

    #[test]
    fn negotiation_is_compared_both_ways() {
        let wanted = [("MRG_RXBUF", true), ("EVENT_IDX", false)];
        assert!(port().check_negotiated("packed", &wanted).is_ok());
        assert!(port().check_negotiated("split", &wanted).is_err());
        assert!(port().check_negotiated("packed", &[("MRG_RXBUF", false)]).is_err());
        assert!(port().check_negotiated("packed", &[("EVENT_IDX", true)]).is_err());
    }

    #[test]
    fn drops_and_broken_queues_are_found() {
        assert!(port().check_healthy(&["no_room"]).is_ok());
        assert!(port().check_healthy(&[]).is_err());
        let mut broken = port();
        broken.0.broken.push("transmitq1: loop".into());
        assert!(broken.check_healthy(&["no_room"]).is_err());
    }

    #[test]
    fn differences_have_a_mean() {
        let now = port().moved(Direction::ToGuest);
        assert_eq!(now.since(Moved { packets: 2, bytes: 10, kicks: 0, calls: 0 }).mean_len(), 15);
        assert_eq!(now.since(now).mean_len(), 0);
    }
}
