//! Changes between two reports: the rates of each port, and how they were before.
//!
//! Limits: [`HISTORY_LEN`] reports are kept for each port.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;
use serde_json::json;

use crate::control::{DirectionStats, PortStats, StatsReply};
use crate::units;

/// Reports of which the rates are kept, for the curves.
pub const HISTORY_LEN: usize = 120;

/// One direction of a port, for each second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Rate {
    pub bits: f64,
    pub packets: f64,
    pub drops: f64,
}

/// A port as the last report has it, and what it did since the one before.
#[derive(Debug, Clone, PartialEq)]
pub struct PortRates {
    pub port: PortStats,
    pub to: Rate,
    pub from: Rate,
    /// Kicks of all its queues in the last second.
    pub wakeups: u64,
}

/// The rates of all ports, report by report.
#[derive(Debug, Default)]
pub struct Rates {
    last: Option<StatsReply>,
    /// In the order of the report.
    pub rows: Vec<PortRates>,
    /// Bits per second to and from each port, the newest last.
    pub history: BTreeMap<String, [VecDeque<u64>; 2]>,
}

impl Rates {
    /// Another report has come.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn follow(&mut self, now: StatsReply) {
        let before = self.last.take().filter(|before| before.uptime_ms < now.uptime_ms);
        self.rows = now.ports.iter().map(|port| row(port, &now, before.as_ref())).collect();
        self.history.retain(|name, _| now.ports.iter().any(|port| port.name == *name));
        if before.is_some() {
            for row in &self.rows {
                let curves = self.history.entry(row.port.name.clone()).or_default();
                for (curve, rate) in curves.iter_mut().zip([row.to, row.from]) {
                    curve.push_back(rate.bits as u64);
                    if curve.len() > HISTORY_LEN {
                        curve.pop_front();
                    }
                }
            }
        }
        self.last = Some(now);
    }

    /// The last report.
    pub fn report(&self) -> Option<&StatsReply> {
        self.last.as_ref()
    }
}

fn row(port: &PortStats, now: &StatsReply, before: Option<&StatsReply>) -> PortRates {
    let earlier = before.and_then(|before| {
        let port = before.ports.iter().find(|earlier| earlier.name == port.name)?;
        Some((port, now.uptime_ms - before.uptime_ms))
    });
    let rate = |of: fn(&PortStats) -> &DirectionStats| match earlier {
        Some((earlier, passed_ms)) => rate(of(port), of(earlier), passed_ms),
        None => Rate::default(),
    };
    PortRates {
        to: rate(|port| &port.to_guest),
        from: rate(|port| &port.from_guest),
        wakeups: units::total(port.queues.iter().map(|queue| &queue.wakeups_last_second)),
        port: port.clone(),
    }
}

fn rate(now: &DirectionStats, before: &DirectionStats, passed_ms: u64) -> Rate {
    let per_second = |now: u64, before: u64| {
        units::approximate(now.saturating_sub(before)) * 1000.0 / units::approximate(passed_ms)
    };
    let drops = |direction: &DirectionStats| units::total(direction.drops.values());
    Rate {
        bits: per_second(now.bytes, before.bytes) * 8.0,
        packets: per_second(now.packets, before.packets),
        drops: per_second(drops(now), drops(before)),
    }
}

/// The rows for programs: one line.
pub fn json(rows: &[PortRates]) -> String {
    let row = |row: &PortRates| {
        json!({
            "port": row.port.name, "state": row.port.state, "to": row.to, "from": row.from,
            "wakeups": row.wakeups,
        })
    };
    json!({ "ports": rows.iter().map(row).collect::<Vec<_>>() }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::examples::{example, largest};

    fn after(ms: u64, bytes: u64) -> StatsReply {
        let mut reply = example();
        reply.uptime_ms += ms;
        reply.ports[0].to_guest.bytes += bytes;
        reply.ports[0].to_guest.packets += 10;
        reply.ports[0].to_guest.drops.insert("no_room".to_string(), 9);
        reply
    }

    #[test]
    fn numbers_that_cannot_be_have_rates_all_the_same() {
        let mut rates = Rates::default();
        rates.follow(example());
        rates.follow(largest());
        assert!(rates.rows[0].to.drops > 1e18 && rates.rows[0].wakeups > 1 << 60);
    }

    #[test]
    fn the_first_report_has_no_rates_and_the_next_ones_do() {
        let mut rates = Rates::default();
        rates.follow(example());
        assert_eq!((rates.rows[0].to, rates.history.len()), (Rate::default(), 0));
        rates.follow(after(2000, 500));
        let wanted = Rate { bits: 2000.0, packets: 5.0, drops: 1.0 };
        assert_eq!((rates.rows[0].to, rates.rows[0].wakeups), (wanted, 1034));
        assert_eq!(rates.history["vm0"][0], [2000]);
    }

    #[test]
    fn a_ringway_that_was_started_anew_is_not_compared_with_the_one_before() {
        let mut rates = Rates::default();
        rates.follow(after(2000, 500));
        rates.follow(example());
        assert_eq!(rates.rows[0].to, Rate::default());
    }

    #[test]
    fn curves_are_bounded_and_go_with_their_port() {
        let mut rates = Rates::default();
        for at in 0..2 * HISTORY_LEN as u64 {
            rates.follow(after(at, at));
        }
        assert_eq!(rates.history["vm0"][1].len(), HISTORY_LEN);
        let mut without = after(10_000, 0);
        without.ports.clear();
        rates.follow(without);
        assert!(rates.history.is_empty());
    }
}
