//! `ringway bench scale --workers 1,2,…`: what one more worker brings, and costs the others.
//!
//! How: [`method`]. The two guests of each worker are driven by a thread of their own, so that each
//! worker needs two processors. Instructions are counted by valgrind, on a machine of any size.
//!
//! Limits: memory bandwidth and caches that processors share are only in the rate.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, ensure};
use ringway_testkit::Usage;

use super::guests::{Guests, start};
use crate::instructions;
use crate::machine::processors;
use crate::options::Options;
use crate::progress::in_turns;
use crate::report::{Column, Grid, Report};
use crate::spread::Spread;

/// As many are predicted: more than what fits most machines, and valgrind's patience.
const PREDICTED: usize = 16;

/// These are always counted: what one more costs is the difference.
const COUNTED: [usize; 2] = [1, 2];

/// Of a worker: its own, and that of the guests.
const PROCESSORS_EACH: usize = 2;

const COLUMNS: [Column; 3] =
    [("Mpps, all together", 3), ("daemon, ns/packet", 0), ("instructions/packet", 1)];

pub fn measure(options: &Options, workers: &[usize]) -> anyhow::Result<Report> {
    options.ensure_measurable()?;
    ensure!(!workers.contains(&0), "at least one worker");
    let mut report = Report::begin("scale --workers", &method(options))?;
    let mut numbers = [workers, &COUNTED].concat();
    numbers.sort_unstable();
    numbers.dedup();
    let mut grid = Grid::new("Workers", &["workers"], &COLUMNS);
    let rows: Vec<_> = numbers.iter().map(|&count| (vec![count.to_string()], count)).collect();
    let (mut rate_of_one, mut counted) = (Vec::new(), Vec::new());
    in_turns(options.repeats, &rows, |round, name, &workers, _| {
        let needed = PROCESSORS_EACH * workers;
        let rates = match processors().len() {
            few if few < needed => {
                report.leave_out(&format!(
                    "packets per second of {workers} workers: that takes {needed} processors, \
                     there are {few}"
                ));
                [None, None]
            }
            _ => measure_one(workers, options.duration)?.map(Some),
        };
        if workers == 1 {
            rate_of_one.extend(rates[0]);
        }
        // They hardly differ from round to round.
        let instructions = match round {
            0 => instructions::of_a_worker(workers),
            _ => Err(anyhow!("counted in the first round")),
        };
        match &instructions {
            Ok(instructions) => counted.push((workers, *instructions)),
            Err(why) if round == 0 => report.leave_out(&format!("instructions: {why:#}")),
            Err(_) => {}
        }
        grid.add(name, round, &[rates[0], rates[1], instructions.ok()]);
        Ok(())
    })?;
    report.tables.push(grid.table());
    let rate_of_one = Spread::of(rate_of_one).map(|spread| spread.median);
    if let [(1, one), .., (most, of_most)] = counted[..] {
        report.method.push(prediction(rate_of_one, one, most, of_most));
    }
    Ok(report)
}

/// The predicted rate of [`PREDICTED`] workers, and why: from the instructions of a packet with one
/// worker and with more.
fn prediction(rate_of_one: Option<f64>, one: f64, most: usize, of_most: f64) -> String {
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    let [predicted, most] = [PREDICTED, most].map(|count| count as f64);
    let each = ((of_most - one) / (most - 1.0)).max(0.0);
    let times = predicted * one / (one + each * (predicted - 1.0));
    let rate = rate_of_one.map(|rate| format!(": {:.0} Mpps", times * rate)).unwrap_or_default();
    format!(
        "Predicted for {PREDICTED} workers, and as many processors for guests: {times:.1} times as \
         many packets as one{rate}. Each further worker adds {each:.1} instructions to the \
         {one:.0} of a packet (repeats differ by more), and no two workers store to a common line \
         (`cargo test -p ringway-host --test workers`). It is less where guests have fewer queue \
         pairs than there are workers, so that packets cross and are copied twice, or \
         where the processors run out of memory bandwidth."
    )
}

fn measure_one(workers: usize, duration: Duration) -> anyhow::Result<[f64; 2]> {
    let (daemon, names) = start(2 * workers, workers, workers)?;
    let all_attached = Barrier::new(workers);
    let drive = |pair: usize| {
        let guests = Guests::attach(&daemon, &names[2 * pair..2 * pair + 2], workers);
        let mut guests = guests.and_then(|mut guests| {
            guests.use_only(pair);
            guests.introduce()?;
            Ok(guests)
        });
        // Whatever has become of it: the others wait.
        all_attached.wait();
        let guests = guests.as_mut().map_err(|why| anyhow!("{why:#}"))?;
        guests.exchange(duration / 4)?;
        guests.exchange(duration)
    };
    let before = Usage::look(daemon.pid())?;
    let moved = thread::scope(|scope| {
        let drive = &drive;
        let threads: Vec<_> = (0..workers).map(|pair| scope.spawn(move || drive(pair))).collect();
        let moved = threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow!("a thread of guests panicked"))?);
        moved.sum::<anyhow::Result<f64>>()
    })?;
    let busy = Usage::look(daemon.pid())?.since(&before);
    ensure!(moved > 0.0, "nothing arrived");
    // The packets that were exchanged to warm up count with the time that they took.
    Ok([moved / duration.as_secs_f64() / 1e6, busy.processor_ns / (moved * 1.25)])
}

fn method(options: &Options) -> [String; 2] {
    [
        options.rounds(),
        "Of each worker two guests, with as many queue pairs as there are workers, send packets of \
         64 bytes to each other on the pair that the worker owns. Instructions: of a worker that \
         never polls, split rings, everything included; the other workers have no packets."
            .into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prediction_says_what_it_is_made_of() {
        let text = prediction(Some(10.0), 400.0, 5, 420.0);
        assert!(text.contains("13.5 times") && text.contains("135 Mpps"), "{text}");
        let text = prediction(None, 400.0, 2, 399.0);
        assert!(text.contains("16.0 times") && !text.contains("Mpps"), "{text}");
    }
}
