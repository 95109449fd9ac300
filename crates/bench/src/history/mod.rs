//! `ringway bench history`: what made virtio-net fast, one technique after the other, on this
//! machine.
//!
//! How: each row switches one technique on ([`technique`]) and keeps all above it. A driver and a
//! device work on one pair of rings in real memory, on two threads that sleep and are woken through
//! eventfds ([`guest`], [`host`], [`wake`]); what only the past did, such as a lock around
//! everything, is done here around them. Rows are measured one after the other, and all of it again
//! for each repeat.
//!
//! Limits: one queue pair, two processors; the tap is a copy to or from private memory; no guest
//! kernel, so that a notification costs a wake-up but no exit.

mod guest;
mod host;
mod results;
mod run;
mod sides;
mod technique;
mod wake;

use anyhow::Context;

use crate::Options;
use crate::machine::{Machine, date, processors};
use crate::progress::Progress;
use crate::report::Report;
use results::Results;
use technique::ROWS;

/// What is measured of each row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// A stream from the guest, and one to it, of the longest packets that the row allows.
    Out,
    Back,
    /// A stream to the guest of packets that fit an ordinary MTU, whatever the row allows.
    BackShort,
    /// One small packet at a time, there and back, from the guest and from the host.
    PingOut,
    PingBack,
}

impl What {
    fn is_stream(self) -> bool {
        matches!(self, Self::Out | Self::Back | Self::BackShort)
    }
}

const WHATS: [What; 5] = [What::Out, What::Back, What::BackShort, What::PingOut, What::PingBack];

/// Measures.
///
/// # Errors
/// The options make no sense, or nothing moves.
pub fn measure(options: &Options) -> anyhow::Result<Report> {
    options.ensure_measurable()?;
    let mut results = Results::new(Machine::look(), date()?, options.repeats);
    let processors = match processors()[..] {
        [one, other, ..] => [one, other],
        [one] => {
            results.leave_out("two processors: there is one, so both sides take turns on it");
            [one, one]
        }
        [] => [0, 0],
    };
    let mut progress = Progress::start(ROWS.len() * options.repeats);
    for repeat in 0..options.repeats {
        for (at, row) in ROWS.iter().enumerate() {
            progress.step(row.name);
            for what in WHATS {
                let found = run::measure(&row.technique, what, processors, options.duration);
                let found = found.with_context(|| format!("{}, {what:?}", row.name))?;
                results.add(at, what, repeat, found);
            }
        }
    }
    progress.end();
    Ok(results.report(options))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_row_moves_packets_both_ways() {
        let duration = Duration::from_millis(15);
        let here = processors();
        let processors = [here[0], *here.last().expect("one at least")];
        for row in ROWS {
            for what in WHATS {
                let found = run::measure(&row.technique, what, processors, duration);
                let found = found.unwrap_or_else(|why| panic!("{}, {what:?}: {why:#}", row.name));
                assert!(found.values().next() > Some(0.0), "{}, {what:?}", row.name);
            }
        }
    }

    #[test]
    fn full_rings_go_on_long_before_the_timer_ends() {
        let here = processors();
        let processors = [here[0], *here.last().expect("one at least")];
        // Far longer than anybody waits for the first packet that counts.
        let pace = technique::Pace::Timer(600_000_000);
        let technique = technique::Technique { pace, ..ROWS[1].technique };
        let found = run::measure(&technique, What::Out, processors, Duration::from_millis(50));
        assert!(matches!(found, Ok(run::Found::Rate(rate)) if rate > 0.0), "{found:?}");
    }
}
