//! Statistics: what the data plane says, with what only the supervisor knows.

use std::collections::BTreeMap;

use crate::closing::SLOW;
use crate::config::nat::Dns;
use crate::control::{DaemonStats, DataPlaneStats, NatStats, PortStats, ProcessStats, StatsReply};
use crate::guests_needs::{self, Need};
use crate::supervisor::front_ends::peer::Peer;
use crate::supervisor::planes::Planes;
use crate::supervisor::ports::Ports;
use crate::supervisor::ports::port::SupervisedPort;
use crate::supervisor::ports::vm_port::VmPort;
use crate::supervisor::processes::system_calls;
use crate::supervisor::setup::Setup;

/// `told`: by the data plane.
pub fn stats(
    told: StatsReply,
    ports: &Ports,
    planes: &Planes,
    setup: &Setup,
    failed_reloads: u64,
) -> StatsReply {
    let told_plane = told.data_plane.clone().unwrap_or_default();
    let mut by_name: BTreeMap<String, PortStats> =
        told.ports.into_iter().map(|port| (port.name.clone(), port)).collect();
    let ports = ports.iter().filter(|(_, port)| !port.is_leaving());
    let ports = ports.map(|(id, port)| {
        let told = by_name.remove(&port.spec.name);
        PortStats { number: Some(id.0), ..port_stats(port, told) }
    });
    let plane = planes.current();
    StatsReply {
        uptime_ms: u64::try_from(setup.uptime().as_millis()).unwrap_or(u64::MAX),
        sandbox: Some(setup.sandbox.stats()),
        data_plane: Some(DataPlaneStats {
            pid: plane.map(crate::supervisor::planes::plane::Plane::pid),
            deaths: planes.counts.deaths,
            upgrades: planes.counts.upgrades,
            failing: planes.is_failing(),
            forbidden_call: planes.counts.forbidden_call.map(system_calls::shown),
            ..told_plane
        }),
        daemon: Some(DaemonStats {
            release: env!("RINGWAY_VERSION").to_owned(),
            failed_reloads,
            processes: processes(planes),
        }),
        ports: ports.collect(),
        ..StatsReply { ports: Vec::new(), ..told }
    }
}

fn processes(planes: &Planes) -> BTreeMap<String, ProcessStats> {
    let plane = planes.current().map(|plane| ("data_plane", plane.pid()));
    let all = [("supervisor", std::process::id())].into_iter().chain(plane);
    all.map(|(name, pid)| (name.to_owned(), process(pid))).collect()
}

fn port_stats(port: &SupervisedPort, told: Option<PortStats>) -> PortStats {
    let told = told.unwrap_or_default();
    let vm = port.vm.as_ref();
    let link = port.link();
    let offence = vm.and_then(|vm| vm.admission.is_slow().then(|| SLOW.to_owned()));
    let offence = offence.or_else(|| vm.and_then(|vm| vm.admission.history().last_offence.clone()));
    let is_guest = port.spec.kind.is_guest();
    let state = match (&port.failure, link) {
        (Some(_), _) => "failed".to_owned(),
        (None, _) if vm.is_some_and(|vm| vm.admission.is_quarantined()) => "quarantined".to_owned(),
        (None, _) if !told.state.is_empty() => told.state,
        (None, Some(_)) => "connected".to_owned(),
        (None, None) => if is_guest { "waiting" } else { "running" }.to_owned(),
    };
    PortStats {
        name: port.spec.name.clone(),
        kind: port.spec.kind.name().to_owned(),
        address: port.spec.kind.address(),
        labels: port.spec.labels.clone(),
        mac: told.mac.or_else(|| vm.map(|vm| vm.mac.to_string())),
        mtu: port.spec.mtu.or(told.mtu),
        connected: link.is_some() || !is_guest && port.failure.is_none(),
        link_up: Some(port.spec.is_link_up),
        notice: port.tap.notice.clone(),
        state,
        error: port.failure.clone().or(offence),
        front_end: link.and_then(|link| link.peer.as_ref()).map(Peer::stats),
        waiting_front_end: vm
            .and_then(VmPort::next)
            .and_then(|next| Some(next.peer.as_ref()?.stats())),
        replayed: port.replayed,
        refused_front_ends: vm.map_or(0, |vm| vm.admission.history().refused),
        migrations_in: vm.map_or(0, |vm| vm.moves.came),
        migrations_out: vm.map_or(0, |vm| vm.moves.went),
        nat: told.nat.map(|nat| NatStats {
            overlap: port.overlap.clone(),
            lacks: lacks(&port.spec.nat.dns),
            ..nat
        }),
        ..told
    }
}

/// Needs of a router's guests that this machine lacks, if the router asks these resolvers.
fn lacks(dns: &Dns) -> Vec<String> {
    let needs = guests_needs::lacking().into_iter();
    let needs = needs.filter(|need| *need != Need::Resolver || *dns == Dns::Host);
    needs.map(|need| format!("{}: {}", need.name(), need.lack())).collect()
}

/// The kernel's figures of a process.
fn process(pid: u32) -> ProcessStats {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    let resident_bytes = pages.saturating_mul(rustix::param::page_size() as u64);
    let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).ok();
    ProcessStats { resident_bytes, open_fds: fds.map(|fds| fds.count() as u64) }
}
