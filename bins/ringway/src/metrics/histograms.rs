//! How long packets wait, as histograms: of ports that have `histograms=on`.

use std::fmt;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::control::{HistogramStats, PortStats, WaitStats};
use crate::units;

/// Name, what is counted, and where that is.
type Wait = (&'static str, &'static str, fn(&WaitStats) -> &HistogramStats);

const WAITS: [Wait; 3] = [
    (
        "call_delay",
        "Time from when a packet was visible to the guest until the guest was called about it",
        |waits| &waits.call_delay,
    ),
    (
        "visit_delay",
        "Time from when the worker woke up for packets of the guest until it took them",
        |waits| &waits.visit_delay,
    ),
    (
        "packet_hold",
        "Time for which a packet of the guest was held, for room at its receiver or for its rate",
        |waits| &waits.packet_hold,
    ),
];

pub fn waits(registry: &mut Registry, ports: &[PortStats]) {
    for (name, help, of) in WAITS {
        let of_port =
            |port: &PortStats| Some((port.name.clone(), of(port.waits.as_ref()?).clone()));
        let histograms = Histograms(ports.iter().filter_map(of_port).collect());
        registry.register_with_unit(name, help, Unit::Seconds, histograms);
    }
}

/// By the name of the port.
#[derive(Debug)]
struct Histograms(Vec<(String, HistogramStats)>);

impl EncodeMetric for Histograms {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (port, HistogramStats { bounds_ns, counts, sum_ns }) in &self.0 {
            let bounds = bounds_ns.iter().map(|bound_ns| seconds(*bound_ns));
            let bounds = bounds.chain(std::iter::once(f64::INFINITY));
            let buckets: Vec<(f64, u64)> = bounds.zip(possible(counts)).collect();
            let labels = [("port", port.as_str())];
            let (sum, count) = (seconds(*sum_ns), units::total(counts));
            encoder
                .encode_family(&labels)?
                .encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Counts that can be added up: what is too much of numbers that cannot be is left out.
fn possible(counts: &[u64]) -> impl Iterator<Item = u64> {
    counts.iter().scan(u64::MAX, |left, count| {
        let count = (*count).min(*left);
        *left -= count;
        Some(count)
    })
}

fn seconds(time_ns: u64) -> f64 {
    units::approximate(time_ns) / 1e9
}
