//! `ringway bench scale`: what one more port costs, and one more queue pair.
//!
//! How: a real daemon, and guests in user space, half of which send to the other half and the
//! reverse. All guests are driven by this one thread, which polls; what is counted is the daemon's
//! own processor time, whatever it was for.
//!
//! Limits: one worker, which all queue pairs of a guest share.

mod guests;
mod results;

use std::time::Duration;

use anyhow::{Context, ensure};
use ringway_testkit::{BINARY_VARIABLE, RingwayProcess};

use crate::Options;
use crate::daemon::Usage;
use crate::machine::{Machine, date};
use crate::progress::Progress;
use crate::report::Report;
use guests::Guests;
use results::Results;

/// Ports with one queue pair each.
const PORTS: [usize; 6] = [2, 4, 8, 16, 32, 64];

/// Queue pairs of each of two ports.
const QUEUE_PAIRS: [usize; 4] = [1, 2, 4, 8];

/// One row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    ports: usize,
    queue_pairs: usize,
}

/// What a row costs.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Found {
    /// Processor time of the daemon for each packet, in ns.
    packet_ns: f64,
    packets_per_second: f64,
    /// Private memory of the daemon for each port, in KiB.
    port_kib: f64,
    /// From the connection until the device is live, the mean, in ms.
    attach_ms: f64,
    /// Of one processor while nobody sends, in percent.
    idle_percent: f64,
    /// How often the daemon was woken meanwhile, per second.
    idle_wakeups: f64,
}

/// Measures.
///
/// # Errors
/// The options make no sense, the daemon does not come up, or nothing arrives.
pub fn measure(options: &Options) -> anyhow::Result<Report> {
    options.ensure_measurable()?;
    let mut results = Results::new(Machine::look(), date()?);
    let sizes = sizes();
    let mut progress = Progress::start(sizes.len() * options.repeats);
    for _ in 0..options.repeats {
        for &size in &sizes {
            progress.step(&size.name());
            let found = measure_one(size, options.duration).with_context(|| size.name())?;
            results.add(size, found);
        }
    }
    progress.end();
    Ok(results.report(options, &sizes))
}

impl Size {
    fn name(self) -> String {
        format!("{} ports, {} queue pairs each", self.ports, self.queue_pairs)
    }
}

fn sizes() -> Vec<Size> {
    let ports = PORTS.map(|ports| Size { ports, queue_pairs: 1 });
    let pairs = QUEUE_PAIRS.map(|queue_pairs| Size { ports: 2, queue_pairs });
    let pairs = pairs.into_iter().filter(|size| !ports.contains(size));
    ports.into_iter().chain(pairs).collect()
}

fn measure_one(size: Size, duration: Duration) -> anyhow::Result<Found> {
    let names: Vec<String> = (0..size.ports).map(|at| format!("g{at}")).collect();
    let port_options = format!("queues={}", size.queue_pairs);
    let ports: Vec<(&str, &str)> = names.iter().map(|name| (&**name, &*port_options)).collect();
    let advice = || format!("no daemon: {BINARY_VARIABLE} can name the program");
    let daemon = RingwayProcess::start(&ports).with_context(advice)?;
    let pid = daemon.pid();
    let alone = Usage::look(pid)?;
    let mut guests = Guests::attach(&daemon, &names, size.queue_pairs)?;
    let attached = Usage::look(pid)?;
    guests.introduce()?;
    guests.quiet()?;
    let idle = Usage::look(pid)?;
    std::thread::sleep(duration);
    let idle = Usage::look(pid)?.since(&idle);
    // The first packets fill the rings and warm everything up.
    guests.exchange(duration / 4)?;
    let before = Usage::look(pid)?;
    let moved = guests.exchange(duration)?;
    let busy = Usage::look(pid)?.since(&before);
    ensure!(moved > 0.0, "nothing arrived");
    let ports = f64::from(u32::try_from(size.ports)?);
    Ok(Found {
        packet_ns: busy.processor_ns / moved,
        packets_per_second: moved / busy.seconds,
        port_kib: (attached.memory_kib - alone.memory_kib) / ports,
        attach_ms: guests.attach_ms(),
        idle_percent: idle.processor_ns / idle.seconds / 1e7,
        idle_wakeups: idle.wakeups / idle.seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_size_is_measured_twice() {
        let sizes = sizes();
        assert_eq!(sizes.len(), PORTS.len() + QUEUE_PAIRS.len() - 1);
        for (at, size) in sizes.iter().enumerate() {
            assert!(!sizes[..at].contains(size), "{size:?}");
        }
    }
}
