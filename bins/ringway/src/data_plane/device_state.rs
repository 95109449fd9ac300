//! The state of a guest's device, put together when the guest leaves and taken apart when it comes:
//! what it has set through its controlq, and its addresses behind routers.
//!
//! Leases go to the router that has their network. One that is another guest's there makes the
//! transfer fail, so that the guest stays where it is.

use std::time::Instant;

use anyhow::{Context, anyhow, bail};
use ringway_foreign::UntrustedFd;
use ringway_host::{NatPort, StateFile, Worker, now};
use ringway_nat::{ArrivalError, LeaseState, StationState};
use ringway_net::{ControlState, MacAddress, control_record};
use ringway_switch::PortId;
use ringway_vhost_user::device_state::{DeviceState, Lease};
use ringway_vhost_user::{Message, StateDirection};
use tracing::info;

use super::links::Link;
use super::links::state::{Ended, Work};
use super::ports::Ports;
use super::workers::{NO_ANSWER, Workers};
use crate::config::PortKind;

/// A front-end wants a transfer.
///
/// # Errors
/// It cannot begin.
pub(super) fn accept(
    id: PortId,
    direction: StateDirection,
    fd: UntrustedFd,
    ports: &mut Ports,
    workers: &Workers,
) -> anyhow::Result<()> {
    let file = StateFile::new(fd).context("SET_DEVICE_STATE_FD")?;
    let leases = match direction {
        StateDirection::Save => leases(id, ports, workers),
        StateDirection::Load => Vec::new(),
    };
    let (link, _) = ports.linked(id)?;
    let work = match direction {
        StateDirection::Load => Work::Load,
        StateDirection::Save => {
            note_control(link, workers);
            let control = link.state.left.clone();
            Work::Save(DeviceState { leases, control }.encode())
        }
    };
    link.state.accept(file, work)
}

/// The front-end has its answer: the transfer begins, if one was accepted.
pub(super) fn begin(id: PortId, ports: &mut Ports, workers: &Workers) {
    let Some(vm) = ports.vm(id) else { return };
    let (bell, closer) = (workers.bell(), &vm.closing.closer);
    let begun = vm.link.as_mut().map_or(Ok(()), |link| link.state.begin(closer, bell));
    if let Err(why) = begun {
        ports.complain(id, format_args!("transfer of its device's state: {why}"));
    }
}

/// Notes what the guest has set through its controlq: before a reset takes it away.
pub(super) fn note_control(link: &mut Link, workers: &Workers) {
    let Some(negotiated) = link.negotiated.filter(|it| it.ctrl_vq) else { return };
    let Some(state) = workers.share_control_state(link.port) else { return };
    let fresh = ControlState {
        running_pairs: state.running_pairs,
        ..ControlState::new(link.mac, &negotiated).with_queue_pairs_max(link.pairs)
    };
    // A front-end that keeps the controlq to itself tells the device nothing.
    if state != fresh {
        link.state.left = control_record::commands(&state);
    }
}

/// A transfer that has ended: the request of the front-end, with its number, that waited for that.
pub(super) fn end(id: PortId, ports: &mut Ports, workers: &Workers) -> Option<(u32, Message)> {
    let link = ports.link(id)?;
    let ended = link.state.take_ended(Instant::now())?;
    let runs = link.session.running().next().is_some();
    let outcome = match ended {
        Ok(Ended::Saved(len)) => Ok(format!("{len} bytes of its device's state have left")),
        Ok(Ended::Loaded(_)) if runs => Err(anyhow!("the device runs by then")),
        Ok(Ended::Loaded(Ok(state))) => check(id, state, ports, workers),
        Ok(Ended::Loaded(Err(why))) if why.is_of_another_version() => {
            let port = ports.port_mut(id)?;
            port.say(|port| info!(port, "its device's state is refused: {why}"));
            return port.vm.as_mut()?.link.as_mut()?.state.note(false);
        }
        Ok(Ended::Loaded(Err(why))) => Err(why.into()),
        Err(why) => Err(why.into()),
    };
    let port = ports.port_mut(id)?;
    let is_good = outcome.is_ok();
    match outcome {
        Ok(what) => port.say(|port| info!(port, "{what}")),
        Err(why) => port.complain(format_args!("transfer of its device's state: {why:#}")),
    }
    port.vm.as_mut()?.link.as_mut()?.state.note(is_good)
}

/// Whether the guest can go on here with that state, which then waits for its start.
fn check(
    id: PortId,
    state: DeviceState,
    ports: &mut Ports,
    workers: &Workers,
) -> anyhow::Result<String> {
    place_leases(id, &state.leases, true, ports, workers)?;
    let addresses: Vec<String> =
        state.leases.iter().filter_map(|lease| Some(lease.ip?.to_string())).collect();
    let (link, _) = ports.linked(id)?;
    link.state.arrived = Some(state);
    Ok(match addresses.as_slice() {
        [] => "its device's state has come".to_owned(),
        _ => format!("its device's state has come, with the leases {}", addresses.join(", ")),
    })
}

/// The device starts: it goes on with the state that has come for it.
pub(super) fn take_arrived(id: PortId, ports: &mut Ports, workers: &Workers) {
    let Some(link) = ports.link(id) else { return };
    link.state.left.clear();
    let Some(state) = link.state.arrived.take() else { return };
    if let Some(negotiated) = link.negotiated.filter(|it| it.ctrl_vq && !state.control.is_empty())
        && let Some(mut control) = workers.share_control_state(id)
    {
        control_record::follow(&mut control, &state.control, &negotiated);
        workers.send_all(move |worker| worker.set_control_state(id, &control));
    }
    if let Err(why) = place_leases(id, &state.leases, false, ports, workers) {
        ports.complain(id, format_args!("its leases do not hold here: {why:#}"));
    }
}

/// The stations behind the port, as routers know them.
fn leases(id: PortId, ports: &Ports, workers: &Workers) -> Vec<Lease> {
    let of_router = |router| {
        let look = move |worker: &mut Worker| Some(worker.nat(router)?.guest_state(id, now()));
        workers.first().ask(look).flatten().unwrap_or_default()
    };
    let lease = |station: StationState| Lease {
        mac: station.mac.0,
        ip: station.lease.map(|lease| lease.address),
        left_s: station.lease.map_or(0, |lease| lease.left_s),
        name: station.name,
        others: station.addresses,
    };
    routers(ports).into_iter().flat_map(of_router).map(lease).collect()
}

fn routers(ports: &Ports) -> Vec<PortId> {
    let routers = ports.iter().filter(|port| port.spec.kind == PortKind::Nat);
    routers.map(|port| port.id).collect()
}

/// Gives each station to the router that has its network; `only_asks`: whether that can be. Without
/// routers there is nothing to give.
fn place_leases(
    id: PortId,
    leases: &[Lease],
    only_asks: bool,
    ports: &Ports,
    workers: &Workers,
) -> anyhow::Result<()> {
    let routers = routers(ports);
    let mut left: Vec<StationState> = leases.iter().map(station).collect();
    let mut outside = None;
    for router in &routers {
        let (fits, others) = left.into_iter().partition(|station| {
            let asked = ask(*router, id, vec![station.clone()], true, workers);
            !matches!(asked, Ok(Err(ArrivalError::Outside(_))))
        });
        left = others;
        let fits: Vec<StationState> = fits;
        if fits.is_empty() {
            continue;
        }
        ask(*router, id, fits, only_asks, workers)??;
    }
    if let Some(station) = left.first().filter(|_| !routers.is_empty()) {
        outside = station.lease.map(|lease| lease.address.to_string());
    }
    match outside {
        Some(address) => bail!("{address} is in no router's network"),
        None => Ok(()),
    }
}

fn station(lease: &Lease) -> StationState {
    StationState {
        name: lease.name.clone(),
        mac: MacAddress(lease.mac),
        lease: lease.ip.map(|address| LeaseState { address, left_s: lease.left_s }),
        addresses: lease.others.clone(),
    }
}

fn ask(
    router: PortId,
    id: PortId,
    stations: Vec<StationState>,
    only_asks: bool,
    workers: &Workers,
) -> anyhow::Result<Result<(), ArrivalError>> {
    let accept = move |nat: &mut NatPort| nat.accept_guest(id, &stations, only_asks, now());
    let asked = workers.first().ask(move |worker| worker.nat(router).map(accept));
    // A router that is not open yet has no guests.
    Ok(asked.context(NO_ANSWER)?.unwrap_or(Ok(())))
}
