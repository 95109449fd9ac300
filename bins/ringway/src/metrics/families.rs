//! Lines of one metric, which its labels tell apart.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// Labels that tell the lines of one metric apart.
pub(super) type Labels = Vec<(&'static str, String)>;

fn counted(values: impl Iterator<Item = (Labels, u64)>) -> Family<Labels, Counter> {
    let family = Family::<Labels, Counter>::default();
    for (labels, value) in values {
        family.get_or_create(&labels).inc_by(value);
    }
    family
}

pub(super) fn counters(
    registry: &mut Registry,
    name: &str,
    help: &str,
    values: impl Iterator<Item = (Labels, u64)>,
) {
    registry.register(name, help, counted(values));
}

pub(super) fn bytes(
    registry: &mut Registry,
    name: &str,
    help: &str,
    values: impl Iterator<Item = (Labels, u64)>,
) {
    registry.register_with_unit(name, help, Unit::Bytes, counted(values));
}

pub(super) fn gauges(
    registry: &mut Registry,
    name: &str,
    help: &str,
    values: impl Iterator<Item = (Labels, u64)>,
) {
    let family = Family::<Labels, Gauge>::default();
    for (labels, value) in values {
        family.get_or_create(&labels).set(i64::try_from(value).unwrap_or(i64::MAX));
    }
    registry.register(name, help, family);
}
