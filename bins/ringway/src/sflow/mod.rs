//! `ringway sflow`: one packet in so many, and the counters of ports, for a collector of sFlow.
//!
//! A process of its own, as `ringway metrics` is: packets come from a capture of all ports,
//! counters from the statistics. Interfaces have the numbers of their ports, from 1 on, so they
//! stay when this process is started again; a collector gets their names with the counters.
//!
//! Limits: the other port of a packet is known only if it is sampled as well, and only of what
//! ports send. What passes while one data plane follows another is not sampled.

mod datagram;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ringway_host::{CaptureDirection, CaptureOutput, CaptureReader, CaptureRecord, DroppedBy};
use ringway_net::DropReason;

use crate::args::SflowArgs;
use crate::capture::target::{CaptureTarget, first_ready};
use crate::config::error::no_port;
use crate::control::client::ControlError;
use crate::control::{
    CaptureQuestion, Direction, DirectionStats, PortStats, StatsReply, request_stats,
};
use crate::signals::catch_signals;
use crate::{outcome, units};
use datagram::{Counted, CounterSample, Datagrams, FlowSample, HEAD_LEN_MAX, Interface};

/// Time between two readings of samples, which wait no longer.
const PERIOD: Duration = Duration::from_millis(100);
/// Time until the ports are looked for again after no sampling could begin.
const RETRY: Duration = Duration::from_secs(1);

/// Samples until a signal comes, or the ringway ends.
///
/// # Errors
/// No ringway answers, a port is unknown, or the collector's address cannot be sent to.
pub fn sflow(args: &SflowArgs) -> anyhow::Result<()> {
    let collector = args.collector;
    let any = match collector.ip() {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).context("a socket")?;
    socket.connect(collector).with_context(|| format!("{collector} cannot be reached"))?;
    let address = args.agent.map_or_else(|| socket.local_addr().map(|it| it.ip()), Ok)?;
    let until = args.time.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut agent = Agent {
        args,
        socket,
        signals: catch_signals()?,
        started: Instant::now(),
        until,
        count_at: Instant::now(),
        names: Vec::new(),
        numbers: BTreeMap::new(),
        sampling: None,
        datagrams: Datagrams::new(address),
        samples: 0,
        lost: 0,
    };
    agent.look_for_ports()?;
    agent.run()?;
    let told = units::counted(agent.samples, "packet");
    outcome::say(&format!("{told} sampled; {} were lost", units::count(agent.lost_in_all())));
    Ok(())
}

struct Agent<'a> {
    args: &'a SflowArgs,
    socket: UdpSocket,
    signals: UnixStream,
    started: Instant,
    until: Option<Instant>,
    /// When counters are sent next.
    count_at: Instant,
    /// Ports to be sampled.
    names: Vec<String>,
    /// Numbers of interfaces.
    numbers: BTreeMap<String, u32>,
    sampling: Option<Sampling>,
    datagrams: Datagrams,
    /// Packets sampled, and samples lost in captures that have ended.
    samples: u64,
    lost: u64,
}

/// A capture that runs.
struct Sampling {
    /// Of these ports.
    names: Vec<String>,
    reader: CaptureReader,
    /// Closed at the other end when it ends there.
    plane: OwnedFd,
}

impl Agent<'_> {
    fn run(&mut self) -> anyhow::Result<()> {
        let is_over = |until: Option<Instant>| until.is_some_and(|until| Instant::now() >= until);
        while !is_over(self.until) {
            if self.count_at <= Instant::now() {
                self.count()?;
            }
            if self.sampling.as_ref().is_none_or(|it| it.names != self.names) {
                self.begin();
            }
            self.read()?;
            self.send();
            let plane = self.sampling.as_ref().map(|it| it.plane.as_fd());
            let fds: Vec<_> = std::iter::once(self.signals.as_fd()).chain(plane).collect();
            match first_ready(&fds, PERIOD)? {
                Some(0) => break,
                // Another data plane follows, or a port is gone.
                Some(_) => {
                    self.read()?;
                    self.end_sampling();
                    self.count_at = Instant::now();
                }
                None => {}
            }
        }
        self.read()?;
        self.send();
        Ok(())
    }

    /// The ports at the start, of which none that was named may be missing.
    fn look_for_ports(&mut self) -> anyhow::Result<()> {
        let stats = request_stats(&self.args.control_or_default())?;
        let is_there = |name: &&String| stats.ports.iter().any(|port| port.name == **name);
        if let Some(missing) = self.args.ports.iter().find(|name| !is_there(name)) {
            bail!(no_port(missing, stats.names()));
        }
        self.names = self.wanted(&stats);
        self.sampling = self.try_begin()?;
        Ok(())
    }

    /// Of ports that have failed, the data plane knows nothing.
    fn wanted(&self, stats: &StatsReply) -> Vec<String> {
        let wanted = &self.args.ports;
        let ports = stats.ports.iter().filter(|port| port.state != "failed");
        let names = ports.map(|port| &port.name);
        names.filter(|name| wanted.is_empty() || wanted.contains(name)).cloned().collect()
    }

    /// Adds the counters of all ports, and sees which there are. A data plane that is being started
    /// has none.
    fn count(&mut self) -> anyhow::Result<()> {
        let stats = match request_stats(&self.args.control_or_default()) {
            Ok(stats) => stats,
            Err(why @ ControlError::NotRunning(_)) => return Err(why.into()),
            Err(_) => return Ok(()),
        };
        self.count_at = Instant::now() + Duration::from_secs(self.args.every);
        self.names = self.wanted(&stats);
        let uptime_ms = self.uptime_ms();
        for port in stats.ports.iter().filter(|port| self.names.contains(&port.name)) {
            if let Some(number) = port.number {
                self.numbers.insert(port.name.clone(), u32::from(number) + 1);
            }
            let at = number_of(&mut self.numbers, &port.name);
            self.datagrams.counters(uptime_ms, &counters(at, port));
        }
        Ok(())
    }

    /// Samples the ports that are there now, if that is possible already.
    fn begin(&mut self) {
        self.end_sampling();
        match self.try_begin() {
            Ok(sampling) => self.sampling = sampling,
            Err(_) => self.count_at = self.count_at.min(Instant::now() + RETRY),
        }
    }

    /// `None`: there are no ports.
    fn try_begin(&self) -> anyhow::Result<Option<Sampling>> {
        if self.names.is_empty() {
            return Ok(None);
        }
        let question = CaptureQuestion {
            names: self.names.clone(),
            // Of all ports each packet is sampled where it comes in.
            direction: self.args.ports.is_empty().then_some(Direction::FromGuest),
            snap: u32::try_from(HEAD_LEN_MAX).ok(),
            sample: Some(self.args.rate),
            ..CaptureQuestion::default()
        };
        let target = CaptureTarget { control: self.args.control_or_default(), question };
        let (_, reader, plane) = target.begin()?;
        Ok(Some(Sampling { names: self.names.clone(), reader, plane }))
    }

    fn end_sampling(&mut self) {
        self.lost = self.lost_in_all();
        self.sampling = None;
    }

    fn lost_in_all(&self) -> u64 {
        self.lost.saturating_add(self.sampling.as_ref().map_or(0, |it| it.reader.lost()))
    }

    /// Adds the packets that were sampled.
    fn read(&mut self) -> anyhow::Result<()> {
        let (uptime_ms, lost) = (self.uptime_ms(), self.lost_in_all());
        let Some(Sampling { names, reader, .. }) = &mut self.sampling else { return Ok(()) };
        let Self { datagrams, numbers, samples, args, .. } = self;
        let add = |record: CaptureRecord, head: Vec<u8>| {
            // The data plane may say anything.
            if let Some(name) = names.get(usize::from(record.port)) {
                let at = number_of(numbers, name);
                let to = match record.output {
                    CaptureOutput::One(place) => names.get(usize::from(place)),
                    CaptureOutput::Unknown | CaptureOutput::Several(_) => None,
                };
                let to = to.map(|name| number_of(numbers, name));
                let (input, output) = way(at, to, &record);
                let sample = FlowSample {
                    at,
                    rate: args.rate,
                    stands_for: record.stands_for,
                    lost: u32::try_from(lost).unwrap_or(u32::MAX),
                    input,
                    output,
                    packet_len: record.packet_len,
                    head: &head,
                };
                datagrams.flow(uptime_ms, &sample);
                *samples += 1;
            }
            true
        };
        Ok(reader.read(add)?)
    }

    /// A collector that is not there yet may come; what is lost on the way, it sees by the numbers.
    fn send(&mut self) {
        for datagram in self.datagrams.take(self.uptime_ms()) {
            let _ = self.socket.send(&datagram);
        }
    }

    fn uptime_ms(&self) -> u32 {
        // In 32 bits, it begins anew after 49 days.
        u32::try_from(self.started.elapsed().as_millis() % (1 << 32)).unwrap_or(0)
    }
}

fn number_of(numbers: &mut BTreeMap<String, u32>, name: &str) -> u32 {
    if let Some(number) = numbers.get(name) {
        return *number;
    }
    let number = u32::try_from(numbers.len()).unwrap_or(u32::MAX).saturating_add(1);
    numbers.insert(name.to_owned(), number);
    number
}

/// Where a packet came from and went, as far as that is known at the port where it was seen.
fn way(at: u32, to: Option<u32>, record: &CaptureRecord) -> (Interface, Interface) {
    let discarded = record.dropped.map(|dropped| {
        let (DroppedBy::Port(why) | DroppedBy::Receiver(why)) = dropped;
        Interface::Discarded(code_of(why))
    });
    match record.direction {
        CaptureDirection::FromGuest => {
            let output = match record.output {
                CaptureOutput::Several(count) => Interface::Several(count.into()),
                CaptureOutput::One(_) | CaptureOutput::Unknown => {
                    to.map_or(Interface::Unknown, Interface::One)
                }
            };
            (Interface::One(at), discarded.unwrap_or(output))
        }
        CaptureDirection::ToGuest => (Interface::Unknown, discarded.unwrap_or(Interface::One(at))),
    }
}

/// The number of a reason in the specification.
fn code_of(reason: DropReason) -> u32 {
    const UNKNOWN: u32 = 256;
    const ACCESS_LIST: u32 = 258;
    const NO_BUFFER: u32 = 259;
    const TRAFFIC_SHAPING: u32 = 261;
    const TOO_BIG: u32 = 262;
    match reason {
        DropReason::NoRoom => NO_BUFFER,
        DropReason::TooLong => TOO_BIG,
        DropReason::Storm | DropReason::RateLimit => TRAFFIC_SHAPING,
        DropReason::Filtered
        | DropReason::SpoofedMac
        | DropReason::SpoofedIp
        | DropReason::Vlan
        | DropReason::Isolated => ACCESS_LIST,
        DropReason::Malformed
        | DropReason::Offload
        | DropReason::LinkDown
        | DropReason::NoRoute
        | DropReason::Os => UNKNOWN,
    }
}

fn counters(at: u32, port: &PortStats) -> CounterSample<'_> {
    let counted = |stats: &DirectionStats| Counted {
        bytes: stats.bytes,
        packets: stats.packets,
        discards: units::total(stats.drops.values()),
    };
    CounterSample {
        at,
        name: &port.name,
        is_up: matches!(port.state.as_str(), "running" | "migrating"),
        input: counted(&port.from_guest),
        output: counted(&port.to_guest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::examples::largest;

    #[test]
    fn counts_that_cannot_be_are_told_all_the_same() {
        assert_eq!(counters(1, &largest().ports[0]).output.discards, u64::MAX);
    }
}
