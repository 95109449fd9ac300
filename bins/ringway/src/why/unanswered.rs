//! Stations that never answer: what a port sends to one is flooded, as nothing has come from there.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread::sleep;

use ringway_net::MacAddress;
use ringway_switch::PEEK_LEN;

use super::PERIOD;
use super::look::Finding;
use super::rules::{ALL, NEARLY_ALL};
use crate::capture::target::CaptureTarget;
use crate::control::client::ask;
use crate::control::{CaptureQuestion, Direction, Request, TraceQuestion, TraceReply};
use crate::units;

/// Most stations that are asked about: those that get most.
const STATIONS_MAX: usize = 8;

/// Packets to one station, and one of them.
type Sent = (u64, Vec<u8>);

/// Looks at what the port sends for a while. A ringway that captures nothing now finds nothing.
pub fn finding(control: &Path, port: &str) -> Option<Finding> {
    let mut sent: Vec<(MacAddress, Sent)> = sent(control, port).ok()?.into_iter().collect();
    let all = units::total(sent.iter().map(|(_, (count, _))| count));
    sent.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    sent.truncate(STATIONS_MAX);
    sent.retain(|(_, (_, packet))| is_flooded(control, port, packet));
    of_flooded(&sent, all)
}

fn of_flooded(flooded: &[(MacAddress, Sent)], all: u64) -> Option<Finding> {
    let (station, _) = flooded.first()?;
    let count = units::total(flooded.iter().map(|(_, (count, _))| count));
    let weight = (count.saturating_mul(100) / all.max(1)).min(ALL);
    let others = match flooded.len() - 1 {
        0 => String::new(),
        others => format!(" and to {others} more"),
    };
    (weight >= NEARLY_ALL).then(|| Finding {
        weight,
        what: "no station answers",
        figure: format!(
            "all that it sends to {station}{others} is flooded: no packet has come from there"
        ),
        advice: format!(
            "see whether that station is up and in the same VLAN: ringway fdb; ringway trace PORT \
             dst={station}"
        ),
    })
}

/// To single stations; what the switch has refused has findings of its own.
fn sent(control: &Path, port: &str) -> anyhow::Result<BTreeMap<MacAddress, Sent>> {
    let question = CaptureQuestion {
        name: port.to_owned(),
        direction: Some(Direction::FromGuest),
        snap: u32::try_from(PEEK_LEN).ok(),
        ..CaptureQuestion::default()
    };
    let target = CaptureTarget { control: control.to_path_buf(), question };
    let (_, mut reader, _plane) = target.begin()?;
    sleep(PERIOD);
    let mut sent = BTreeMap::<_, Sent>::new();
    reader.read(|record, bytes| {
        let to = bytes.first_chunk().map(|to| MacAddress(*to));
        if let Some(to) = to.filter(|to| !to.is_multicast() && record.dropped.is_none()) {
            sent.entry(to).or_insert((0, bytes)).0 += 1;
        }
        true
    })?;
    Ok(sent)
}

fn is_flooded(control: &Path, port: &str, packet: &[u8]) -> bool {
    let question = TraceQuestion::new(port, packet);
    let reply: Result<TraceReply, _> = ask(control, &Request::Trace(question));
    reply.is_ok_and(|reply| reply.verdict.starts_with("flooded"))
}
