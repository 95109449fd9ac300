//! One stream, or none, and pings, or none, under all policies in turn: a slice of each, and again.
//!
//! How: a stream of the guest's iperf3 and pings from this machine go on all the while. The port is
//! told a policy; what was under way before passes, then bytes are counted where they pass the tap,
//! and pings by when they were sent. Slices of two policies that are compared are two and a half
//! seconds apart at most, so that what changes slowly on a machine is in both.
//!
//! Limits: bytes are those of the tap, headers and what is sent again included. A policy that learns
//! begins anew with each slice, and has [`SETTLE`] to do so. Visits of one stream are not independent
//! of each other, so that an interval over them is a little too narrow.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use ringway_guests::traffic::Side;

use super::super::rig::Rig;
use super::super::sides::Sides;
use super::POLICIES;
use super::entrants::Entrants;
use super::pings::{Pings, round_trips};
use crate::machine::{keeping_to, processors};

/// How long one policy is measured at a time.
pub(super) const SLICE: Duration = Duration::from_millis(200);

/// How long it holds before that. A stream from User Mode Linux was at 0.94 of `timer:150us` when measured
/// from 50 ms on, at 0.90 from 250: what a policy does at first is not what it does. With a longer time slices
/// that are compared would be further apart.
pub(super) const SETTLE: Duration = Duration::from_millis(100);

/// How often every policy has a slice of one stream, as long as all take part.
pub(super) const VISITS: usize = 5;

/// Until iperf3's server listens again, in seconds.
const SERVER_RESTS: &str = "0.2";

/// How long a stream or pings go on before anything is measured.
const STARTS: Duration = Duration::from_millis(300);

/// Longest wait for a stream: an emulated guest takes a second to start iperf3.
const STREAM_LIMIT: Duration = Duration::from_secs(5);

/// What a stream moves within [`STARTS`] at least, in bytes, and nothing else does.
const STREAM_BYTES: u64 = 1 << 20;

/// Longest time for all slices, with what is between them: telling a policy takes some milliseconds, and 100 while
/// a busy guest keeps the processor; then the stream is left out.
const SLICES_LIMIT: Duration = Duration::from_millis(14_300);

/// How long a stream and pings are told to go on, in seconds.
const SECONDS: u32 = 15;

/// What goes on while policies change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Load {
    /// A stream, and what iperf3 is told about its direction.
    pub stream: Option<&'static str>,
    /// Pings, and when they are sent.
    pub pings: Option<Pings>,
}

/// What was seen under one policy, once.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Slice {
    /// From the guest and to it, in Gb/s.
    pub gigabits: [f64; 2],
    /// Round trips of the pings, in milliseconds.
    pub times_ms: Vec<f64>,
}

/// The slices of one visit, by policy, of those that take part.
pub(super) type Visit = [Option<Slice>; POLICIES.len()];

/// A slice by the clock that pings are printed with, in seconds since 1970.
type Span = (f64, f64);

/// All visits under one stream; `number`: how many streams were before.
///
/// # Errors
/// The stream fails, pings are lost, or ringway does not answer.
pub(super) fn visits(
    rig: &mut Rig,
    load: Load,
    number: usize,
    entrants: &Entrants,
) -> anyhow::Result<Vec<Visit>> {
    let (server, guest) = (rig.address(), rig.guest_address());
    rig.side().must(&format!("ping -c 1 -W 10 {server}"))?;
    if let Some(way) = load.stream {
        let stream = format!("iperf3 -c {server} -t {SECONDS} {way} >/dev/null 2>&1");
        rig.side().must(&format!("{{ sleep {SERVER_RESTS}; {stream}; }} & echo started"))?;
        if let Err(why) = wait_for_stream(rig) {
            // It must not go on beside what is measured next.
            rig.side().run("wait $!")?;
            return Err(why);
        }
    }
    let line = load.pings.map(|pings| pings.command(&guest, SECONDS));
    let sides = Sides::of(rig.plan.pairing, &processors());
    let (seen, printed) = thread::scope(|scope| {
        // Whatever this thread starts keeps off the guest's processor, as all that is beside it.
        keeping_to(&sides.rest, || {
            let pings = line.as_ref().map(|line| scope.spawn(|| Side::Here.must(line)));
            thread::sleep(STARTS);
            let seen = measure(rig, number, entrants);
            let printed = pings.map_or(Ok(String::new()), |pings| {
                pings.join().unwrap_or_else(|_| bail!("the thread of the pings ended"))
            });
            (seen, printed)
        })
    })?;
    if load.stream.is_some() {
        rig.side().must("wait $!").context("the stream")?;
    }
    rig.rest()?;
    let mut seen = seen?;
    if load.pings.is_some() {
        let times = round_trips(&printed?)?;
        seen.iter_mut().for_each(|(visit, spans)| share(&times, visit, spans));
    }
    Ok(seen.into_iter().map(|(visit, _)| visit).collect())
}

/// Waits until a stream passes the tap.
fn wait_for_stream(rig: &Rig) -> anyhow::Result<()> {
    let start = Instant::now();
    while start.elapsed() < STREAM_LIMIT {
        let before = rig.tap_bytes()?;
        thread::sleep(STARTS);
        let after = rig.tap_bytes()?;
        if before.iter().zip(after).any(|(before, after)| after - before > STREAM_BYTES) {
            return Ok(());
        }
    }
    bail!("no stream within {STREAM_LIMIT:?}")
}

/// The bytes of each slice, and when it was.
fn measure(
    rig: &Rig,
    number: usize,
    entrants: &Entrants,
) -> anyhow::Result<Vec<(Visit, [Span; POLICIES.len()])>> {
    let mut seen = Vec::new();
    let orders = entrants.orders(number, entrants.visits());
    let start = Instant::now();
    for order in orders {
        let mut slices = Visit::default();
        let mut spans = [(0.0, 0.0); POLICIES.len()];
        for policy in order {
            rig.set_policy(POLICIES[policy])?;
            thread::sleep(SETTLE);
            let (begin, before, since) = (now()?, rig.tap_bytes()?, Instant::now());
            thread::sleep(SLICE);
            let (after, took) = (rig.tap_bytes()?, since.elapsed());
            spans[policy] = (begin, now()?);
            let gigabits = [0, 1].map(|way| gigabits(before[way], after[way], took));
            slices[policy] = Some(Slice { gigabits, times_ms: Vec::new() });
        }
        seen.push((slices, spans));
    }
    let took = start.elapsed();
    ensure!(took < SLICES_LIMIT, "slices took longer, {took:?}, than the stream");
    Ok(seen)
}

fn now() -> anyhow::Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH).context("the clock")?.as_secs_f64())
}

#[allow(clippy::cast_precision_loss, reason = "some hundred megabytes")]
fn gigabits(before: u64, after: u64, took: Duration) -> f64 {
    after.saturating_sub(before) as f64 * 8e-9 / took.as_secs_f64()
}

/// Gives each slice the round trips of what was sent in it.
fn share(times: &[(f64, f64)], visit: &mut Visit, spans: &[Span; POLICIES.len()]) {
    for (slice, &(begin, end)) in visit.iter_mut().zip(spans) {
        let Some(slice) = slice else { continue };
        let within = times.iter().filter(|&&(sent, _)| (begin..end).contains(&sent));
        slice.times_ms = within.map(|&(_, time_ms)| time_ms).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_belong_to_the_slice_in_which_they_were_sent() {
        let times = [(1_700_000_000.5, 0.5), (1_700_000_000.501, 250.0)];
        let mut visit =
            [const { Some(Slice { gigabits: [0.0; 2], times_ms: Vec::new() }) }; POLICIES.len()];
        visit[7] = None;
        let mut spans = [(0.0, 0.0); POLICIES.len()];
        spans[1] = (1_700_000_000.4, 1_700_000_000.6);
        spans[2] = (1_700_000_000.7, 1_700_000_000.9);
        share(&times, &mut visit, &spans);
        // What came back in the third slice was sent in the second one, as the other was.
        let times = |slice: &Option<Slice>| Some(slice.as_ref()?.times_ms.clone());
        let seen = visit.each_ref().map(|slice| times(slice).map(|times| times.len()));
        assert_eq!(seen[..3], [Some(0), Some(2), Some(0)]);
        assert_eq!((times(&visit[1]), times(&visit[7])), (Some(vec![0.5, 250.0]), None));
    }

    #[test]
    fn rates_are_of_the_time_that_a_slice_took() {
        assert!((gigabits(1000, 126_000, Duration::from_millis(1)) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_stream_is_longer_than_all_of_its_slices() {
        let slices = u32::try_from(VISITS * POLICIES.len()).expect("some");
        let telling = Duration::from_millis(50);
        assert!((telling + SETTLE + SLICE) * slices < SLICES_LIMIT);
        assert!(2 * STARTS + SLICES_LIMIT < Duration::from_secs(SECONDS.into()));
    }
}
