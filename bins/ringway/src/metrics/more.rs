//! Of the daemon as a whole, and of its routers.

use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use ringway_switch::PORTS_MAX;

use super::families::{Labels, counters, gauges};
use crate::control::{PortStats, StatsReply};
use crate::units;

type Seconds = Gauge<f64, std::sync::atomic::AtomicU64>;

fn one(value: u64) -> impl Iterator<Item = (Labels, u64)> {
    std::iter::once((Labels::new(), value))
}

/// Its version, what it uses, and how often something went wrong.
pub fn daemon(registry: &mut Registry, report: &StatsReply) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let started: Seconds = Gauge::default();
    started.set(now.as_secs_f64() - units::approximate(report.uptime_ms) / 1000.0);
    let help = "When ringway has started, in seconds since 1970";
    registry.register_with_unit("start_time", help, Unit::Seconds, started);
    gauges(registry, "ports", "Ports", one(report.ports.len() as u64));
    gauges(registry, "ports_max", "Most ports that a switch may have", one(PORTS_MAX as u64));
    let plane = report.data_plane.clone().unwrap_or_default();
    counters(registry, "data_plane_deaths", "Data planes that have died", one(plane.deaths));
    counters(registry, "data_plane_upgrades", "Programs that have taken over", one(plane.upgrades));
    let help = "1: the data plane ends again and again";
    gauges(registry, "data_plane_failing", help, one(u64::from(plane.failing)));
    let Some(daemon) = &report.daemon else { return };
    let release = vec![("version", daemon.release.clone())];
    let release = std::iter::once((release, 1));
    gauges(registry, "build_info", "The version of ringway; always 1", release);
    let failed = one(daemon.failed_reloads);
    counters(registry, "failed_reloads", "Files that could not be carried out", failed);
    let processes =
        || daemon.processes.iter().map(|(name, it)| (vec![("process", name.clone())], it));
    let resident = processes().map(|(labels, it)| (labels, it.resident_bytes));
    let help = "Memory in use, with that of guests";
    gauges(registry, "process_resident_memory_bytes", help, resident);
    let fds = processes().filter_map(|(labels, it)| Some((labels, it.open_fds?)));
    gauges(registry, "process_open_fds", "Open file descriptors", fds);
}

/// Metrics of routers: leases and flows of the guests behind them.
pub fn routers(registry: &mut Registry, ports: &[PortStats]) {
    let routers = || ports.iter().filter_map(|port| Some((port, port.nat.as_ref()?)));
    let labels = |port: &PortStats, guest: &str| {
        vec![("port", port.name.clone()), ("guest", guest.to_owned())]
    };
    let flows = routers().flat_map(|(port, nat)| {
        nat.flows.iter().map(move |(guest, count)| (labels(port, guest), *count))
    });
    gauges(registry, "router_flows", "Flows of guests, by their port", flows);
    let leases = routers().flat_map(|(port, nat)| {
        nat.leases.iter().map(move |(guest, ips)| (labels(port, guest), ips.len() as u64))
    });
    gauges(registry, "router_leases", "Leased addresses, by the port of their guest", leases);
    let sockets = routers().map(|(port, nat)| (vec![("port", port.name.clone())], nat.sockets));
    gauges(registry, "router_sockets", "Open sockets", sockets);
}
