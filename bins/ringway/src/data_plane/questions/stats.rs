//! Statistics: what the workers counted and what the control thread knows, put together. The
//! supervisor adds what it knows.

use std::collections::BTreeMap;

use ringway_host::{
    Effort, NatSnapshot, PaceSnapshot, PortSnapshot, QueueSnapshot, WaitCounts, Worker,
    WorkerSnapshot,
};
use ringway_nat::Forward;
use ringway_net::{Counters, DropReason, Features, HISTOGRAM_BOUNDS_NS, Histogram, MacAddress};
use ringway_switch::{MACS_MAX, PortId, Shared};
use ringway_virtq::Format;

use super::super::links::Link;
use super::super::ports::uplinks::now_ms;
use super::super::ports::{Port, Ports};
use super::super::process::Process;
use super::super::sandbox::Sandbox;
use super::super::seen_ips::seen_ips;
use super::super::workers::Workers;
use super::router::kind_name;
use crate::control::{
    DataPlaneStats, DirectionStats, EffortStats, HistogramStats, NatStats, PROTOCOL_VERSION,
    PacingStats, PairStats, PortStats, QueueStats, StatsReply, WaitStats, WorkerStats,
};
use crate::units;

/// The statistics of this process.
pub fn report(ports: &Ports, workers: &Workers, process: &Process) -> StatsReply {
    let snapshots = workers.ask_all(Worker::snapshots).into_iter().flatten();
    let snapshots: Vec<PortSnapshot> = snapshots.collect();
    let shared = workers.shared();
    let (seen, used) = (seen_ips(ports, shared), other_addresses(ports, shared));
    let shown = ports.iter().filter(|port| !port.is_leaving).map(|port| {
        let of_port = snapshots.iter().filter(|snapshot| snapshot.port == port.id);
        let of_port: Vec<_> = of_port.collect();
        let nat = of_port.iter().find_map(|snapshot| snapshot.nat.as_deref());
        let nat = nat.map(|nat| nat_stats(port, nat, ports));
        let seen = seen.get(&port.id).into_iter().flatten();
        let seen_ips = seen.map(|seen| seen.ip.to_string()).collect();
        let used_mac = used.get(&port.id).map(MacAddress::to_string);
        PortStats { nat, used_mac, seen_ips, ..port_stats(port, &of_port) }
    });
    StatsReply {
        version: PROTOCOL_VERSION,
        ok: true,
        uptime_ms: u64::try_from(process.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        sandbox: None,
        data_plane: Some(DataPlaneStats {
            sandbox: process.sandbox.as_ref().map_or_else(|| "off".into(), Sandbox::text),
            replayed: process.replayed,
            ..DataPlaneStats::default()
        }),
        daemon: None,
        ports: shown.collect(),
        workers: workers.ask_all(Worker::effort).iter().map(worker_stats).collect(),
    }
}

/// Of guests that use an address, and not the one that their port has: one of those that they use.
fn other_addresses(ports: &Ports, shared: &Shared) -> BTreeMap<PortId, MacAddress> {
    let page = shared.addresses(0, MACS_MAX, now_ms(), |it| it.age_ms.is_some());
    let mut others = BTreeMap::new();
    for known in &page.addresses {
        others.entry(known.port).or_insert(known.address);
    }
    let own = |id| ports.port(id).and_then(Port::own_address).map(|(mac, _)| mac);
    for known in page.addresses.iter().filter(|known| own(known.port) == Some(known.address)) {
        others.remove(&known.port);
    }
    others.retain(|id, _| own(*id).is_some());
    others
}

fn nat_stats(port: &Port, nat: &NatSnapshot, ports: &Ports) -> NatStats {
    let flows = nat.flows.iter().filter(|(_, count)| *count > 0);
    let mut leases = BTreeMap::<_, Vec<String>>::new();
    for (port, address) in &nat.leases {
        leases.entry(port.clone()).or_default().push(address.to_string());
    }
    let forwards = nat.forwards.iter();
    let forwards = forwards.map(forward_text);
    let failed = port.nat.failed();
    let failed = failed.map(|(it, why)| format!("{}: {why}", forward_text(it)));
    let refused = nat.refused.iter().map(|(why, count)| ((*why).to_string(), *count));
    let spoofed = nat.spoofed.iter().map(|(id, ip)| (ports.name(*id).to_owned(), ip.to_string()));
    NatStats {
        networks: port.spec.nat.ranges().to_vec(),
        // The supervisor knows.
        overlap: None,
        flows: flows.map(|(id, count)| (ports.name(*id).to_owned(), *count as u64)).collect(),
        leases,
        forwards: forwards.collect(),
        failed_forwards: failed.collect(),
        sockets: nat.sockets as u64,
        refused: refused.collect(),
        spoofed: spoofed.collect(),
        // The supervisor knows.
        lacks: Vec::new(),
    }
}

fn forward_text(forward: &Forward) -> String {
    let kind = kind_name(forward);
    format!("{kind} {} to {}:{}", forward.at, forward.guest, forward.to)
}

fn worker_stats(worker: &WorkerSnapshot) -> WorkerStats {
    WorkerStats {
        worker: worker.worker,
        mode: if worker.is_polling { "polling" } else { "sleeping" }.to_string(),
        poll: worker.options.mode.to_string(),
        poll_budget_percent: worker.options.budget_percent,
        poll_hits: worker.polling.hits,
        poll_misses: worker.polling.misses,
        in_vain_ns: worker.polling.in_vain_ns,
        cpu_ns: worker.cpu_ns,
        slept_ns: Some(worker.slept_ns),
        total: effort(&worker.total),
        last_second: effort(&worker.last_second),
    }
}

fn effort(effort: &Effort) -> EffortStats {
    EffortStats {
        packets: effort.packets,
        system_calls: effort.system_calls,
        wakeups: effort.wakeups,
        polled_ns: effort.looked_ns,
    }
}

fn port_stats(port: &Port, snapshots: &[&PortSnapshot]) -> PortStats {
    let link = port.link();
    let negotiated = link.and_then(|link| link.negotiated);
    let broken = snapshots.iter().flat_map(|snapshot| &snapshot.broken);
    let broken: Vec<String> = broken.map(|(queue, why)| format!("{queue}: {why}")).collect();
    // The controlq, by which a guest sets it, belongs to the first pair.
    let first = snapshots.iter().find(|snapshot| snapshot.pair == 0);
    let mac = first.and_then(|snapshot| snapshot.mac).or(port.vm.as_ref().map(|vm| vm.mac));
    PortStats {
        name: port.spec.name.clone(),
        kind: port.spec.kind.name().to_string(),
        address: port.spec.kind.address(),
        labels: port.spec.labels.clone(),
        mac: mac.map(|mac| mac.to_string()),
        mtu: port
            .spec
            .mtu
            .or(port.vm.as_ref().and_then(super::super::ports::vm_port::VmPort::mtu_told)),
        connected: port.is_linked() || port.vm.is_none(),
        state: state(port, snapshots, &broken).to_string(),
        error: None,
        link_up: Some(port.spec.is_link_up),
        notice: None,
        number: None,
        front_end: None,
        refused_front_ends: 0,
        waiting_front_end: None,
        migrations_in: 0,
        migrations_out: 0,
        replayed: 0,
        features: negotiated.map_or(Vec::new(), |negotiated| feature_names(negotiated.features)),
        format: negotiated.map(|negotiated| format_name(negotiated.format).to_string()),
        to_guest: direction(&total(snapshots.iter().map(|snapshot| &snapshot.to_end))),
        from_guest: direction(&total(snapshots.iter().map(|snapshot| &snapshot.from_end))),
        pairs: pairs(snapshots),
        broken,
        queues: by_pair(snapshots).flat_map(|snapshot| &snapshot.queues).map(queue).collect(),
        pacing: by_pair(snapshots).flat_map(running).map(pacing).collect(),
        moved_addresses: first.map_or(0, |snapshot| snapshot.moved_addresses),
        waits: waits(snapshots),
        stopped_ms: link.and_then(stopped_ms),
        waits_for_log: link.is_some_and(|link| link.session.waits_for_log()),
        used_mac: None,
        seen_ips: Vec::new(),
        nat: None,
        refused_commands: units::total(snapshots.iter().map(|it| &it.refused_commands)),
    }
}

/// Of queues that run, and of those that never did, none.
fn stopped_ms(link: &Link) -> Option<u64> {
    u64::try_from(link.stopped?.elapsed().as_millis()).ok()
}

fn by_pair<'a>(snapshots: &[&'a PortSnapshot]) -> impl Iterator<Item = &'a PortSnapshot> {
    let mut by_pair = snapshots.to_vec();
    by_pair.sort_by_key(|snapshot| snapshot.pair);
    by_pair.into_iter()
}

/// The directions of the queues that run.
fn running(snapshot: &PortSnapshot) -> impl Iterator<Item = &PaceSnapshot> {
    let runs = |pace: &&PaceSnapshot| snapshot.queues.iter().any(|it| it.queue == pace.queue);
    snapshot.pacing.iter().filter(runs)
}

fn queue(queue: &QueueSnapshot) -> QueueStats {
    QueueStats {
        queue: queue.queue.to_string(),
        mode: queue.mode.name().to_string(),
        packets: queue.packets,
        kicks: queue.kicks,
        calls: queue.calls,
        wakeups_last_second: queue.kicks_last_second,
    }
}

fn pacing(pace: &PaceSnapshot) -> PacingStats {
    PacingStats {
        queue: pace.queue.to_string(),
        packets: pace.packets,
        notifications: pace.notifications,
        direction: pace.direction.to_string(),
        window: pace.window,
        timer_ns: pace.hold_ns,
        cause: pace.cause.to_string(),
    }
}

fn state(port: &Port, snapshots: &[&PortSnapshot], broken: &[String]) -> &'static str {
    if !broken.is_empty() {
        return "broken";
    }
    if port.link().is_some_and(|link| link.session.is_logging()) {
        return "migrating";
    }
    if port.vm.is_none() || snapshots.iter().any(|snapshot| !snapshot.queues.is_empty()) {
        return "running";
    }
    if port.is_linked() { "connected" } else { "waiting" }
}

fn feature_names(features: Features) -> Vec<String> {
    features.iter_names().map(|(name, _)| name.to_string()).collect()
}

fn format_name(format: Format) -> &'static str {
    match format {
        Format::Split => "split",
        Format::Packed => "packed",
    }
}

fn total<'a>(counters: impl Iterator<Item = &'a Counters>) -> Counters {
    counters.fold(Counters::default(), |sum, one| sum.plus(one))
}

/// Packets of each pair, where there are several.
fn pairs(snapshots: &[&PortSnapshot]) -> Vec<PairStats> {
    let has_packets = |snapshot: &&&PortSnapshot| {
        let packets = [snapshot.to_end.packets, snapshot.from_end.packets];
        !snapshot.queues.is_empty() || packets != [0, 0]
    };
    let stats = snapshots.iter().filter(has_packets).map(|snapshot| PairStats {
        pair: snapshot.pair,
        to_guest: snapshot.to_end.packets,
        from_guest: snapshot.from_end.packets,
    });
    let mut stats: Vec<PairStats> = stats.collect();
    stats.sort_by_key(|stats| stats.pair);
    if stats.len() > 1 { stats } else { Vec::new() }
}

/// Of all pairs together; `None`: they are not counted.
fn waits(snapshots: &[&PortSnapshot]) -> Option<WaitStats> {
    let all: Vec<&WaitCounts> = snapshots.iter().filter_map(|it| it.waits.as_deref()).collect();
    let sum = |of: fn(&WaitCounts) -> &Histogram| {
        histogram(all.iter().fold(Histogram::default(), |sum, one| sum.plus(of(one))))
    };
    (!all.is_empty()).then(|| WaitStats {
        call_delay: sum(|waits| &waits.call_delay),
        visit_delay: sum(|waits| &waits.visit_delay),
        packet_hold: sum(|waits| &waits.packet_hold),
    })
}

fn histogram(Histogram { counts, sum_ns }: Histogram) -> HistogramStats {
    HistogramStats { bounds_ns: HISTOGRAM_BOUNDS_NS.into(), counts: counts.into(), sum_ns }
}

fn direction(counters: &Counters) -> DirectionStats {
    let drops = DropReason::ALL
        .iter()
        .map(|&reason| (reason.name().to_string(), counters.drops[reason as usize]))
        .collect();
    DirectionStats {
        packets: counters.packets,
        bytes: counters.bytes,
        kicks: counters.kicks,
        calls: counters.calls,
        drops,
    }
}
