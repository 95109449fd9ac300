//! One stream, and pings or none, under all policies in turn: a slice of each, and again.
//!
//! How: a stream of the guest's iperf3 and pings from this machine go on all the while. The port is
//! told a policy; what was under way before passes, then bytes are counted where they pass the tap,
//! and pings by when they were sent.
//!
//! Limits: bytes are those of the tap, headers and what is sent again included. fping's clock
//! counts in ten microseconds, its round trips in one.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use ringway_guests::Side;

use super::rig::Rig;
use super::sides::Sides;
use crate::machine::{keeping_to, processors};

/// How long one policy is measured at a time.
pub(super) const SLICE: Duration = Duration::from_millis(200);

/// How long it holds before that: what a policy does at first is not what it does.
pub(super) const SETTLE: Duration = Duration::from_millis(100);

/// Sends pings with a period. ping itself spins for short ones, and takes a part of a processor
/// that is missing from what is measured.
pub(super) const FPING: &str = "fping";

/// Milliseconds from ping to ping, and how long an answer may take.
const PERIOD_MS: u64 = 1;
const TIMEOUT_MS: u64 = 4_000;

/// One ping of so many may stay without an answer; with more, the rest says nothing of them all.
const ANSWERED_NOT: usize = 50;

/// How long a stream or pings go on before anything is measured: an emulated guest takes a second
/// to start iperf3.
const STARTS: Duration = Duration::from_millis(1500);

/// Telling a policy takes some milliseconds, and 100 while a busy guest keeps the processor.
const TELLING: Duration = Duration::from_millis(60);

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Slice {
    /// From the guest and to it, in Gb/s.
    pub gigabits: [f64; 2],
    /// Round trips of the pings, in milliseconds.
    times_ms: Vec<f64>,
    /// From when to when, in seconds since 1970: the clock that pings are printed with.
    span: (f64, f64),
}

impl Slice {
    #[allow(clippy::cast_precision_loss, reason = "some hundred")]
    pub fn mean_ms(&self) -> Option<f64> {
        let times = &self.times_ms;
        (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
    }

    /// The round trip that 99 of 100 do not exceed.
    pub fn percentile_ms(&self) -> Option<f64> {
        let mut times = self.times_ms.clone();
        times.sort_by(f64::total_cmp);
        times.get((times.len() * 99).div_ceil(100).checked_sub(1)?).copied()
    }
}

/// The slices of each policy under one load, a stream and pings or none; `orders` says who comes
/// when.
pub(super) fn take(
    rig: &mut Rig,
    stream: &str,
    has_pings: bool,
    policies: &[&str],
    orders: &[Vec<usize>],
) -> anyhow::Result<Vec<Vec<Slice>>> {
    let turns = u32::try_from(orders.concat().len())?;
    let seconds = ((SETTLE + SLICE + TELLING) * turns + 2 * STARTS).as_secs() + 1;
    let (server, guest) = (rig.address(), rig.guest_address());
    rig.side().must(&format!("ping -c 1 -W 10 {server}"))?;
    // iperf3's server takes a moment until it listens again.
    let stream = format!("sleep 0.2; iperf3 -c {server} -t {seconds} {stream} >/dev/null 2>&1");
    rig.side().must(&format!("{{ {stream}; }} & echo started"))?;
    let pings = seconds * 1000 / PERIOD_MS;
    let line = format!("{FPING} -D -i 1 -p {PERIOD_MS} -t {TIMEOUT_MS} -c {pings} {guest}");
    // Lines are written all at once at the end: no program is woken for each of them.
    let line = format!("lines=$(mktemp) && {line} >$lines; cat $lines; rm $lines");
    let sides = Sides::of(rig.plan.pairing, &processors());
    let (seen, printed) = thread::scope(|scope| {
        // Programs that this thread starts keep off the guest's processor, as all that is beside
        // it.
        keeping_to(&sides.rest, || {
            let pings = has_pings.then(|| scope.spawn(|| Side::Here.must(&line)));
            thread::sleep(STARTS);
            let seen = measure(rig, policies, orders);
            let ended = || bail!("the thread of the pings ended");
            let printed = pings.map(|pings| pings.join().unwrap_or_else(|_| ended()));
            (seen, printed)
        })
    })?;
    rig.side().must("wait $!").context("the stream")?;
    rig.rest()?;
    let mut seen = seen?;
    if let Some(printed) = printed {
        let times = round_trips(&printed?)?;
        seen.iter_mut().flatten().for_each(|slice| share(&times, slice));
    }
    Ok(seen)
}

fn measure(rig: &Rig, all: &[&str], orders: &[Vec<usize>]) -> anyhow::Result<Vec<Vec<Slice>>> {
    let mut seen = vec![Vec::new(); all.len()];
    let limit = (SETTLE + SLICE + TELLING) * u32::try_from(orders.concat().len())?;
    let start = Instant::now();
    for &policy in orders.iter().flatten() {
        rig.set_policy(all[policy])?;
        thread::sleep(SETTLE);
        let (begin, before, since) = (now()?, rig.tap_bytes()?, Instant::now());
        thread::sleep(SLICE);
        let (after, took) = (rig.tap_bytes()?, since.elapsed());
        let gigabits = [0, 1].map(|way| gigabits(before[way], after[way], took));
        seen[policy].push(Slice { gigabits, times_ms: Vec::new(), span: (begin, now()?) });
    }
    let took = start.elapsed();
    ensure!(took < limit + STARTS, "slices took longer, {took:?}, than the stream");
    Ok(seen)
}

fn now() -> anyhow::Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH).context("the clock")?.as_secs_f64())
}

#[allow(clippy::cast_precision_loss, reason = "some hundred megabytes")]
fn gigabits(before: u64, after: u64, took: Duration) -> f64 {
    after.saturating_sub(before) as f64 * 8e-9 / took.as_secs_f64()
}

fn share(times: &[(f64, f64)], slice: &mut Slice) {
    let (begin, end) = slice.span;
    let within = times.iter().filter(|(sent, _)| (begin..end).contains(sent));
    slice.times_ms = within.map(|&(_, time_ms)| time_ms).collect();
}

/// When each ping was sent, in seconds since 1970, and its round trip in milliseconds.
fn round_trips(printed: &str) -> anyhow::Result<Vec<(f64, f64)>> {
    let times: Vec<(f64, f64)> = printed.lines().filter_map(round_trip).collect();
    let Some(sent) = printed.lines().find_map(sent) else {
        bail!("no pings were sent: {}", printed.lines().last().unwrap_or_default());
    };
    let enough = sent - sent / ANSWERED_NOT;
    ensure!(times.len() >= enough, "{} of {sent} pings were answered", times.len());
    Ok(times)
}

/// One of them: `[1700000000.12345] 10.0.0.2 : [0], 64 bytes, 0.321 ms (0.321 avg, 0% loss)`.
fn round_trip(line: &str) -> Option<(f64, f64)> {
    let (stamp, rest) = line.strip_prefix('[')?.split_once(']')?;
    let (before, _) = rest.split_once(" ms")?;
    let (arrived, time_ms): (f64, f64) =
        (stamp.parse().ok()?, before.rsplit(' ').next()?.parse().ok()?);
    Some((arrived - time_ms / 1e3, time_ms))
}

/// How many were sent: `10.0.0.2 : xmt/rcv/%loss = 2/2/0%, min/avg/max = 0.500/125/250`.
fn sent(line: &str) -> Option<usize> {
    line.split_once("xmt/rcv/%loss = ")?.1.split_once('/')?.0.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
         [1700000000.50050] 10.90.1.2 : [0], 64 bytes, 0.500 ms (0.5 avg, 0% loss)\n\
         [1700000000.75025] 10.90.1.2 : [1], 64 bytes, 250 ms (125 avg, 0% loss)\n\
         \n10.90.1.2 : xmt/rcv/%loss = 2/2/0%, min/avg/max = 0.500/125/250\n";

    #[test]
    fn pings_belong_to_the_slice_in_which_they_were_sent() {
        let times = round_trips(PRINTED).expect("two of two");
        let slice = |span| {
            let mut slice = Slice { gigabits: [0.0; 2], times_ms: Vec::new(), span };
            share(&times, &mut slice);
            slice
        };
        // The second came back a quarter of a second after the first, and was sent with it.
        let both = slice((1_700_000_000.4, 1_700_000_000.6));
        assert_eq!((both.mean_ms(), both.percentile_ms()), (Some(125.25), Some(250.0)));
        let none = slice((1_700_000_000.7, 1_700_000_000.9));
        assert_eq!((none.mean_ms(), none.percentile_ms()), (None, None));
    }

    #[test]
    fn lost_pings_are_a_failure() {
        let lost = PRINTED.replace("64 bytes, 250 ms", "timed out");
        let why = round_trips(&lost).expect_err("half of them").to_string();
        assert!(why.contains("1 of 2 pings"), "{why}");
        let why = round_trips("fping: Network is unreachable\n").expect_err("none");
        assert!(why.to_string().ends_with("Network is unreachable"), "{why}");
    }

    #[test]
    fn rates_are_of_the_time_that_a_slice_took() {
        assert!((gigabits(1000, 126_000, Duration::from_millis(1)) - 1.0).abs() < 1e-9);
    }
}
