//! Statistics as OpenMetrics text: a pure function of one report.
//!
//! Source: OpenMetrics 1.0. Names end in their unit; counters end in `_total`.

use std::fmt;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::families::{Labels, bytes, counters, gauges};
use super::{histograms, more};
use crate::control::{DirectionStats, EffortStats, PortStats, QueueStats, StatsReply, WorkerStats};
use crate::units;

/// The states that a port may be in.
const STATES: [&str; 7] =
    ["waiting", "connected", "running", "migrating", "broken", "failed", "quarantined"];

/// The report as text; ends with `# EOF`.
///
/// # Errors
/// None that can be caused from outside: the text is written to memory.
pub fn open_metrics(report: &StatsReply) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("ringway");
    let uptime: Gauge<f64, std::sync::atomic::AtomicU64> = Gauge::default();
    uptime.set(units::approximate(report.uptime_ms) / 1000.0);
    registry.register_with_unit("uptime", "Time since ringway has started", Unit::Seconds, uptime);
    more::daemon(&mut registry, report);
    ports(&mut registry, &report.ports);
    more::routers(&mut registry, &report.ports);
    noted(&mut registry, &report.ports);
    queues(&mut registry, &report.ports);
    histograms::waits(&mut registry, &report.ports);
    workers(&mut registry, &report.workers);
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// The same in the older text format, for readers that do not ask for OpenMetrics: there a counter
/// is called what its lines are called, and units and the end are not told.
///
/// Source: Prometheus, exposition formats, text format 0.0.4.
pub fn prometheus(open_metrics: &str) -> String {
    let mut text = String::new();
    let mut help = "";
    for line in open_metrics.lines() {
        match line.strip_prefix("# ").and_then(|comment| comment.split_once(' ')) {
            Some(("HELP", rest)) => help = rest,
            Some(("TYPE", rest)) => {
                let (name, kind) = rest.split_once(' ').unwrap_or((rest, "untyped"));
                let ending = if kind == "counter" { "_total" } else { "" };
                let about = help.split_once(' ').map_or("", |(_, about)| about);
                text += &format!("# HELP {name}{ending} {about}\n# TYPE {name}{ending} {kind}\n");
            }
            Some(_) => {}
            None if line == "# EOF" => {}
            None => text += &format!("{line}\n"),
        }
    }
    text
}

fn ports(registry: &mut Registry, ports: &[PortStats]) {
    let states = ports.iter().flat_map(|port| {
        let of = |state: &&str| (with(port, "state", state), u64::from(*state == port.state));
        STATES.iter().map(of).collect::<Vec<_>>()
    });
    gauges(registry, "port_state", "1 for the state that a port is in", states);
    let of_ports = |of: fn(&PortStats) -> u64| ports.iter().map(move |it| (label(it), of(it)));
    let refused = of_ports(|port| port.refused_front_ends);
    let help = "Front-ends that came while one was connected and another one waited";
    counters(registry, "port_refused_front_ends", help, refused);
    let waiting = of_ports(|port| u64::from(port.waiting_front_end.is_some()));
    let help = "Whether a front-end waits until the one that is connected has gone";
    gauges(registry, "port_waiting_front_end", help, waiting);
    let came = of_ports(|port| port.migrations_in);
    let help = "Guests that came to this port by migration";
    counters(registry, "port_migrations_in", help, came);
    let went = of_ports(|port| port.migrations_out);
    let help = "Guests that left this port by migration";
    counters(registry, "port_migrations_out", help, went);
    let refused = of_ports(|port| port.refused_commands);
    counters(registry, "port_refused_commands", "Commands of guests that were refused", refused);
    let moved = of_ports(|port| port.moved_addresses);
    let help = "Addresses that have moved to this port from another one";
    counters(registry, "port_moved_addresses", help, moved);
    let up = of_ports(|port| u64::from(port.link_up != Some(false)));
    gauges(registry, "port_link_up", "Whether the link of a port is up (link=)", up);
    let broken = of_ports(|port| port.broken.len() as u64);
    gauges(registry, "port_broken_queues", "Queues stopped because a guest broke them", broken);
    let directions = ports.iter().flat_map(directions).collect::<Vec<_>>();
    let of = |of: fn(&DirectionStats) -> u64| {
        directions.iter().map(move |(labels, stats)| (labels.clone(), of(stats)))
    };
    counters(registry, "port_packets", "Packets carried", of(|stats| stats.packets));
    bytes(registry, "port", "Bytes carried, with Ethernet headers", of(|stats| stats.bytes));
    let drops = directions.iter().flat_map(|(labels, stats)| {
        stats.drops.iter().map(|(reason, &count)| {
            let reason = ("reason", reason.clone());
            (labels.iter().cloned().chain([reason]).collect(), count)
        })
    });
    counters(registry, "port_dropped_packets", "Packets dropped, by reason", drops);
}

/// One line for each port that has labels, to be joined with others by the name of the port. Of
/// keys that have the same name here the first one is there: with both, Prometheus takes nothing.
fn noted(registry: &mut Registry, ports: &[PortStats]) {
    let family = Family::<Vec<(String, String)>, Gauge>::default();
    for port in ports.iter().filter(|port| !port.labels.is_empty()) {
        let mut labels = vec![("port".to_string(), port.name.clone())];
        for (key, value) in &port.labels {
            let name =
                format!("label_{}", key.replace(|it: char| !it.is_ascii_alphanumeric(), "_"));
            if labels.iter().all(|(other, _)| *other != name) {
                labels.push((name, value.clone()));
            }
        }
        family.get_or_create(&labels).set(1);
    }
    registry.register("port_labels", "What is noted at a port; always 1", family);
}

fn directions(port: &PortStats) -> [(Labels, &DirectionStats); 2] {
    let of = |name, stats| (with(port, "direction", name), stats);
    [of("to_guest", &port.to_guest), of("from_guest", &port.from_guest)]
}

fn queues(registry: &mut Registry, ports: &[PortStats]) {
    let of = |of: fn(&QueueStats) -> u64| {
        ports.iter().flat_map(move |port| {
            port.queues.iter().map(move |queue| (with(port, "queue", &queue.queue), of(queue)))
        })
    };
    let kicks = of(|queue| queue.kicks);
    counters(registry, "queue_kicks", "Notifications from the guest", kicks);
    let calls = of(|queue| queue.calls);
    counters(registry, "queue_calls", "Notifications to the guest", calls);
}

fn workers(registry: &mut Registry, workers: &[WorkerStats]) {
    let label = |worker: &WorkerStats| vec![("worker", worker.worker.to_string())];
    let of = |of: fn(&EffortStats) -> u64| {
        workers.iter().map(move |worker| (label(worker), of(&worker.total)))
    };
    let packets = of(|total| total.packets);
    counters(registry, "worker_packets", "Packets taken from guests and taps", packets);
    let calls = of(|total| total.system_calls);
    counters(registry, "worker_system_calls", "System calls on the data path", calls);
    let wakeups = of(|total| total.wakeups);
    counters(registry, "worker_wakeups", "Sleeps that ended", wakeups);
    let mut seconds = |name: &str, help: &str, of: fn(&WorkerStats) -> u64| {
        let family = Family::<Labels, Counter<f64, std::sync::atomic::AtomicU64>>::default();
        for worker in workers {
            let seconds = units::approximate(of(worker)) / 1e9;
            family.get_or_create(&label(worker)).inc_by(seconds);
        }
        registry.register_with_unit(name, help, Unit::Seconds, family);
    };
    seconds("worker_polled", "Time spent looking for work", |worker| worker.total.polled_ns);
    let help = "Time without anything to do; what is left of a second is work";
    seconds("worker_slept", help, |worker| worker.slept_ns.unwrap_or(0));
    seconds("worker_cpu", "Processor time", |worker| worker.cpu_ns);
}

fn label(port: &PortStats) -> Labels {
    vec![("port", port.name.clone())]
}

fn with(port: &PortStats, key: &'static str, value: &str) -> Labels {
    vec![("port", port.name.clone()), (key, value.to_string())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::examples::{example, largest};
    use crate::control::{HistogramStats, WaitStats};

    #[test]
    fn names_end_in_their_units_and_every_count_has_its_labels() {
        let text = open_metrics(&example()).expect("text");
        let wanted = [
            "# UNIT ringway_uptime_seconds seconds\nringway_uptime_seconds 5.0",
            "ringway_port_state{port=\"vm0\",state=\"running\"} 1\n",
            "ringway_port_state{port=\"vm0\",state=\"broken\"} 0\n",
            "ringway_port_packets_total{port=\"vm0\",direction=\"to_guest\"} 1000000\n",
            "ringway_port_bytes_total{port=\"vm0\",direction=\"from_guest\"} 20000\n",
            "{port=\"vm0\",direction=\"to_guest\",reason=\"no_room\"} 7\n",
            "ringway_queue_kicks_total{port=\"vm0\",queue=\"receiveq1\"} 2000\n",
            "ringway_worker_polled_seconds_total{worker=\"0\"} 0.0\n",
            "ringway_worker_slept_seconds_total{worker=\"0\"} 0.0\n",
            "ringway_port_link_up{port=\"vm0\"} 1\n",
            "ringway_ports 1\n",
            "ringway_ports_max 256\n",
            "ringway_data_plane_deaths_total 0\n",
        ];
        for line in wanted {
            assert!(text.contains(line), "{line} in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn numbers_that_cannot_be_are_told_all_the_same() {
        let text = open_metrics(&largest()).expect("text");
        assert!(text.contains("18446744073709551615"), "{text}");
    }

    #[test]
    fn each_port_is_in_one_state() {
        for state in STATES {
            let mut report = example();
            report.ports[0].state = state.to_string();
            let text = open_metrics(&report).expect("text");
            let lines = text.lines().filter(|it| it.starts_with("ringway_port_state{port=\"vm0\""));
            assert_eq!(lines.filter(|line| line.ends_with(" 1")).count(), 1, "{state}");
        }
    }

    #[test]
    fn the_older_format_has_the_same_values() {
        let text = prometheus(&open_metrics(&example()).expect("text"));
        let counter = "# HELP ringway_port_packets_total Packets carried.\n\
                       # TYPE ringway_port_packets_total counter\n\
                       ringway_port_packets_total{";
        assert!(text.contains(counter), "{text}");
        assert!(text.contains("# TYPE ringway_uptime_seconds gauge\nringway_uptime_seconds 5.0\n"));
        assert!(!text.contains("EOF") && !text.contains("UNIT"), "{text}");
    }

    #[test]
    fn what_is_noted_at_a_port_is_on_a_line_of_its_own() {
        let mut report = example();
        let labels = [("a.b/c", "x:1"), ("a/b.c", "the same name here"), ("tenant", "")];
        let labels = labels.map(|(key, value)| (key.into(), value.into()));
        report.ports[0].labels = labels.into_iter().collect();
        let text = open_metrics(&report).expect("text");
        let line = "ringway_port_labels{port=\"vm0\",label_a_b_c=\"x:1\",label_tenant=\"\"} 1\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn waits_are_histograms_of_the_ports_that_count_them() {
        let mut report = example();
        assert!(!open_metrics(&report).expect("text").contains("ringway_call_delay"));
        let call_delay = HistogramStats {
            bounds_ns: vec![1_000, 20_000],
            counts: vec![4, 0, 2],
            sum_ns: 50_000,
        };
        report.ports[0].waits = Some(WaitStats { call_delay, ..WaitStats::default() });
        let text = open_metrics(&report).expect("text");
        let lines = "# TYPE ringway_call_delay_seconds histogram\n\
                     # UNIT ringway_call_delay_seconds seconds\n\
                     ringway_call_delay_seconds_sum{port=\"vm0\"} 0.00005\n\
                     ringway_call_delay_seconds_count{port=\"vm0\"} 6\n\
                     ringway_call_delay_seconds_bucket{le=\"0.000001\",port=\"vm0\"} 4\n\
                     ringway_call_delay_seconds_bucket{le=\"0.00002\",port=\"vm0\"} 4\n\
                     ringway_call_delay_seconds_bucket{le=\"+Inf\",port=\"vm0\"} 6\n";
        assert!(text.contains(lines), "{text}");
        assert!(prometheus(&text).contains("# TYPE ringway_call_delay_seconds histogram\n"));
    }

    #[test]
    fn a_name_with_quotes_stays_one_label() {
        let mut report = example();
        report.ports[0].name = "a\"b\\c\nd".to_string();
        let text = open_metrics(&report).expect("text");
        assert!(text.contains(r#"port="a\"b\\c\nd""#), "{text}");
    }
}
