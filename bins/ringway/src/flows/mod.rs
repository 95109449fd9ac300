//! `ringway flows`: who talks how much through a port, from samples of its packets.
//!
//! Limits: [`FLOWS_MAX`] flows are told apart; what comes beside them is counted together.

mod talk;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ringway_host::{CaptureDirection, CaptureRecord};
use serde::Serialize;

use crate::args::FlowsArgs;
use crate::capture::target::{CaptureTarget, first_ready};
use crate::control::{CaptureQuestion, PROTOCOL_VERSION};
use crate::signals::catch_signals;
use crate::{layout, outcome, units};
use talk::{HEAD_LEN_MAX, Talk};

/// Time between two readings.
const PERIOD: Duration = Duration::from_millis(50);

/// A guest may invent addresses.
const FLOWS_MAX: usize = 16_384;

/// Packets and bytes, as many as samples stand for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct Amount {
    packets: u64,
    bytes: u64,
}

impl Amount {
    fn add(&mut self, record: &CaptureRecord) {
        let packets = u64::from(record.stands_for);
        self.packets = self.packets.saturating_add(packets);
        let bytes = packets.saturating_mul(u64::from(record.packet_len));
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// One flow.
#[derive(Debug, Serialize)]
struct Flow {
    #[serde(flatten)]
    talk: Talk,
    /// `to_guest` or `from_guest`.
    direction: &'static str,
    #[serde(flatten)]
    amount: Amount,
}

/// The flows that were seen.
#[derive(Debug, Serialize)]
struct FlowsReply {
    version: u32,
    ok: bool,
    port: String,
    /// For how long it was looked, in milliseconds.
    time_ms: u64,
    /// Packets that were looked at, and those that came faster than that.
    sampled: u64,
    lost: u64,
    /// Of all flows together.
    total: Amount,
    /// The largest first.
    flows: Vec<Flow>,
}

/// Looks for a while, and prints the largest flows.
///
/// # Errors
/// No ringway answers, or it refuses.
pub fn flows(args: &FlowsArgs) -> anyhow::Result<()> {
    let question = CaptureQuestion {
        name: args.port.clone(),
        snap: u32::try_from(HEAD_LEN_MAX).ok(),
        sample: Some(args.sample),
        ..CaptureQuestion::default()
    };
    let target = CaptureTarget { control: args.ask.control_or_default(), question };
    let signals = catch_signals()?;
    let (_, mut reader, plane) = target.begin()?;
    let begun = Instant::now();
    let mut totals = FlowTotals::default();
    // Ends early where the port, or the process that carries packets, is gone.
    while begun.elapsed() < args.time
        && first_ready(&[signals.as_fd(), plane.as_fd()], PERIOD)?.is_none()
    {
        reader.read(|record, head| totals.add(&record, &head))?;
    }
    reader.read(|record, head| totals.add(&record, &head))?;
    let time_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
    let reply = totals.reply(&args.port, time_ms, reader.lost(), args.most);
    let text = match args.ask.json {
        true => serde_json::to_string(&reply)? + "\n",
        false => text(&reply, args.sample),
    };
    outcome::print(&text)
}

#[derive(Debug, Default)]
struct FlowTotals {
    sampled: u64,
    total: Amount,
    flows: BTreeMap<(Talk, bool), Amount>,
}

impl FlowTotals {
    /// Always `true`: there may be more.
    fn add(&mut self, record: &CaptureRecord, head: &[u8]) -> bool {
        self.sampled += 1;
        self.total.add(record);
        let is_to_guest = record.direction == CaptureDirection::ToGuest;
        if let Some(talk) = Talk::of(head) {
            let key = (talk, is_to_guest);
            if self.flows.len() < FLOWS_MAX || self.flows.contains_key(&key) {
                self.flows.entry(key).or_default().add(record);
            }
        }
        true
    }

    fn reply(self, port: &str, time_ms: u64, lost: u64, most: usize) -> FlowsReply {
        let flow = |((talk, is_to_guest), amount)| {
            let direction = if is_to_guest { "to_guest" } else { "from_guest" };
            Flow { talk, direction, amount }
        };
        let mut flows: Vec<Flow> = self.flows.into_iter().map(flow).collect();
        flows.sort_by_key(|flow| std::cmp::Reverse((flow.amount.bytes, flow.amount.packets)));
        flows.truncate(most);
        let (sampled, total) = (self.sampled, self.total);
        let (version, port) = (PROTOCOL_VERSION, port.to_owned());
        FlowsReply { version, ok: true, port, time_ms, sampled, lost, total, flows }
    }
}

fn text(reply: &FlowsReply, sample: u32) -> String {
    let seconds = units::approximate(reply.time_ms) / 1000.0;
    let of = match sample {
        1 => String::new(),
        sample => format!(", one packet in {} on average", units::count(sample.into())),
    };
    let mut text = format!(
        "{}: {} looked at in {seconds:.1} s{of}\n",
        reply.port,
        units::counted(reply.sampled, "packet")
    );
    if reply.lost > 0 {
        let lost = units::count(reply.lost);
        text += &format!("{lost} came faster than they were looked at: raise --sample\n");
    }
    let row = |flow: &Flow| {
        let Flow { talk, direction, amount } = flow;
        let share = amount.bytes.saturating_mul(100) / reply.total.bytes.max(1);
        [
            talk.from.clone(),
            talk.to.clone(),
            talk.protocol.clone(),
            direction.replace('_', " "),
            units::packets_per_second(units::approximate(amount.packets) / seconds),
            units::bits_per_second(units::approximate(amount.bytes) * 8.0 / seconds),
            format!("{share} %"),
        ]
    };
    let rows: Vec<_> = reply.flows.iter().map(row).collect();
    if !rows.is_empty() {
        let header = ["from", "to", "protocol", "way", "packets", "bits", "share"];
        text += &layout::rows(header, &rows, &[4, 5, 6], layout::width());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_host::CaptureOutput;
    use ringway_net::NetHeader;

    fn record(stands_for: u32, packet_len: u32) -> CaptureRecord {
        CaptureRecord {
            direction: CaptureDirection::FromGuest,
            port: 0,
            pair: 0,
            output: CaptureOutput::Unknown,
            time_ns: 0,
            header: NetHeader::default(),
            dropped: None,
            stands_for,
            packet_len,
        }
    }

    #[test]
    fn samples_count_as_many_packets_as_they_stand_for_and_invented_stations_have_an_end() {
        let mut totals = FlowTotals::default();
        let head = |number: u32| {
            let mut head = [0; 60];
            head[6..10].copy_from_slice(&number.to_be_bytes());
            head
        };
        for number in 0..u32::try_from(FLOWS_MAX + 10).expect("few") {
            totals.add(&record(100, 60), &head(number));
        }
        totals.add(&record(7, 1000), &head(3));
        totals.add(&record(u32::MAX, u32::MAX), &[]);
        assert_eq!(totals.flows.len(), FLOWS_MAX);
        let reply = totals.reply("a", 1000, 0, 2);
        assert_eq!(reply.flows.len(), 2);
        assert_eq!(reply.flows[0].amount, Amount { packets: 107, bytes: 13_000 });
        assert_eq!(reply.flows[0].talk.from, "00:00:00:03:00:00");
        assert!(text(&reply, 100).starts_with("a: 16,396 packets looked at in 1.0 s, one packet"));
    }
}
