//! A router for guests: what it is told, where it listens, and whether there is a way to IPv6.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use ringway_device::QueueId;
use ringway_host::{Carrier, Listener, NatOptions, NatPort, now, tell_of_datagrams};
use ringway_nat::{Forward, ListenAddress, Prefix6, Protocol, Rings};
use ringway_switch::PortId;
use rustix::io::Errno;
use rustix::net::sockopt::{set_ipv6_v6only, set_socket_reuseaddr};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, getsockname, socket_with,
};
use rustix::process::{Resource, getrlimit};
use tracing::{error, info};

use super::super::workers::Workers;
use super::{Port, Ports};
use crate::config::forward::ForwardSpec;
use crate::config::nat::Dns;
use crate::config::resolver::Resolver;
use crate::config::{PortKind, PortSpec};

/// How often this is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Connections that wait to be taken.
const BACKLOG: i32 = 256;

/// File descriptors that routers leave to everything else.
const FDS_KEPT: u64 = 512;

/// The state of a router in the control thread.
#[derive(Debug)]
pub struct NatState {
    port: PortId,
    /// The options that it was told.
    told: Option<NatOptions>,
    /// When this machine is looked at again.
    look_at: Option<Instant>,
    /// Where it listens for guests.
    forwards: Vec<Forward>,
    /// Where it cannot yet, and why; tried again whenever this machine is looked at.
    failed: Vec<(Forward, String)>,
    /// Unix sockets that the supervisor has made, as long as they may still be needed.
    passed: Vec<OwnedFd>,
}

/// The options that a router is to be told.
fn options(spec: &PortSpec) -> NatOptions {
    // The supervisor has said which.
    let mut plan = spec.nat.plan(Prefix6::local(0), spec.mtu);
    plan.routes6 = has_route6();
    let resolvers = match &spec.nat.dns {
        Dns::Host | Dns::Off => Vec::new(),
        Dns::Servers(servers) => servers.iter().map(Resolver::socket_address).collect(),
    };
    NatOptions { plan, resolvers, sockets_max: sockets_max() }
}

impl NatState {
    pub fn new(port: PortId) -> Self {
        let (forwards, failed, passed) = (Vec::new(), Vec::new(), Vec::new());
        Self { port, told: None, look_at: None, forwards, failed, passed }
    }

    /// Where it listens.
    pub fn bound(&self) -> impl Iterator<Item = &Forward> {
        self.forwards.iter()
    }

    /// Where it is to listen and cannot, and why.
    pub fn failed(&self) -> impl Iterator<Item = (&Forward, &str)> {
        self.failed.iter().map(|(forward, why)| (forward, why.as_str()))
    }

    /// When this machine is looked at again.
    pub fn look_at(&self) -> Option<Instant> {
        self.look_at
    }

    /// Takes the sockets that the supervisor has made.
    pub fn take_sockets(&mut self, passed: Vec<OwnedFd>) {
        self.passed = passed;
    }

    /// Opens the router, which the first worker has; `follows`: another data plane had guests
    /// before.
    ///
    /// # Errors
    /// The operating system refuses something.
    pub fn open(
        &mut self,
        spec: &PortSpec,
        follows: bool,
        workers: &Workers,
    ) -> anyhow::Result<()> {
        let port = self.port;
        let passed = std::mem::take(&mut self.passed);
        let options = options(spec);
        let mut nat = Box::new(NatPort::new(options.clone()).context("a router")?);
        if follows {
            nat.succeeds();
        }
        if !nat.peeks_at_offsets() {
            let port = &spec.name;
            info!(port, "no SO_PEEK_OFF for TCP (Linux 6.11 has it): guests receive slower");
        }
        workers.attach_nat(port, nat).context("watching the router")?;
        if !spec.is_link_up {
            workers.set_link(port, Carrier::Down);
        }
        let look_at = Some(Instant::now() + LOOK_EVERY);
        *self = Self { told: Some(options), look_at, ..Self::new(port) };
        // One that fails hinders nothing else, and is tried again.
        let (added, failed) = listen_where_possible(&spec.nat.forwards, &[], passed);
        for (forward, why) in &failed {
            let (name, again) = (&spec.name, LOOK_EVERY.as_secs());
            error!(port = name, "listening at {}: {why}: tried again every {again} s", forward.at);
        }
        self.failed = failed;
        self.listen_also(added, workers);
        Ok(())
    }

    /// It does not listen any more: another process will.
    pub fn stop_listening(&mut self, workers: &Workers) {
        self.failed.clear();
        if !std::mem::take(&mut self.forwards).is_empty() {
            self.listen(Vec::new(), Vec::new(), workers);
        }
    }

    /// Listens where it was not possible before.
    fn listen_again(&mut self, spec: &PortSpec, workers: &Workers) {
        if self.failed.is_empty() {
            return;
        }
        let passed = std::mem::take(&mut self.passed);
        let (added, failed) = listen_where_possible(&spec.nat.forwards, &self.forwards, passed);
        for listener in &added {
            info!(port = spec.name, "listening at {} at last", listener.forward.at);
        }
        self.failed = failed;
        self.listen_also(added, workers);
    }

    fn listen_also(&mut self, added: Vec<Listener>, workers: &Workers) {
        if !added.is_empty() {
            let known = std::mem::take(&mut self.forwards);
            self.listen(known, added, workers);
        }
    }

    /// It listens at these places from now on, and no others.
    fn listen(&mut self, kept: Vec<Forward>, added: Vec<Listener>, workers: &Workers) {
        self.forwards.clone_from(&kept);
        self.forwards.extend(added.iter().map(|listener| listener.forward.clone()));
        let port = self.port;
        workers.first().send(move |worker| {
            if let Some(nat) = worker.nat(port) {
                nat.listen(&kept, added);
            }
        });
    }

    /// Listens where the router is to listen from now on.
    ///
    /// # Errors
    /// One place is taken, or not allowed; then nothing has changed.
    pub fn follow_forwards(&mut self, spec: &PortSpec, workers: &Workers) -> anyhow::Result<()> {
        let passed = std::mem::take(&mut self.passed);
        let known = &self.forwards;
        let (added, failed) = listen_where_possible(&spec.nat.forwards, known, passed);
        // A place that could not be had before is no reason to refuse anything else.
        let is_old = |new: &Forward| self.failed.iter().any(|(it, _)| it.is_at_place_of(new));
        if let Some((forward, why)) = failed.iter().find(|(forward, _)| !is_old(forward)) {
            return Err(anyhow!("{why}")).with_context(|| format!("listening at {}", forward.at));
        }
        let wanted = spec.nat.forwards.iter().flat_map(ForwardSpec::forwards);
        let is_known =
            |wanted: &Forward| known.iter().any(|forward| forward.is_at_place_of(wanted));
        let kept = wanted.filter(is_known).collect();
        self.failed = failed;
        self.listen(kept, added, workers);
        // Places that are not listened at any more are free for another router from now on.
        workers.catch_up();
        Ok(())
    }

    /// Tells the router what has changed.
    pub fn follow(&mut self, spec: &PortSpec, workers: &Workers) {
        let Some(told) = &mut self.told else { return };
        let options = options(spec);
        self.look_at = Some(Instant::now() + LOOK_EVERY);
        if *told != options {
            *told = options.clone();
            let port = self.port;
            workers.first().send(move |worker| worker.set_nat(port, options));
        }
    }

    /// Looks whether there is a way to IPv6 now, and whether places to listen at are free, if its
    /// time has come.
    pub fn look_around(&mut self, now: Instant, spec: &PortSpec, workers: &Workers) {
        if self.look_at.is_some_and(|at| at <= now) {
            self.follow(spec, workers);
            self.listen_again(spec, workers);
        }
    }
}

impl Ports {
    /// A queue runs, or is about to stop: workers and routers learn of it.
    pub fn note_running(&mut self, id: PortId, queue: QueueId, runs: bool, workers: &Workers) {
        let Some(link) = self.link(id) else { return };
        let before = link.running.is_any();
        link.note_running(queue, runs, workers);
        let (now, mac) = (link.running.is_any(), link.mac);
        if now != before {
            let rings = if now { Rings::Start(mac) } else { Rings::Stop };
            self.tell_routers(id, rings, workers);
        }
    }

    /// Routers learn what the rings of a port do: what its guest had follows it to another port
    /// only when they have all stopped.
    pub fn tell_routers(&self, id: PortId, rings: Rings, workers: &Workers) {
        let routers = self.iter().filter(|port| port.spec.kind == PortKind::Nat);
        for router in routers.map(|port| port.id) {
            workers.first().send(move |worker| {
                if let Some(nat) = worker.nat(router) {
                    nat.note_rings(id, rings, now());
                }
            });
        }
    }

    /// A router that was just opened learns the same of all ports that have rings.
    pub fn tell_router(&self, router: PortId, workers: &Workers) {
        let has_rings = |port: &&Port| port.spec.kind.is_guest();
        let all = self.iter().filter(has_rings).map(|port| {
            let runs = port.link().is_some_and(|link| link.running.is_any());
            (port.id, if runs { Rings::Run } else { Rings::Stop })
        });
        let all: Vec<(PortId, Rings)> = all.collect();
        workers.first().send(move |worker| {
            if let Some(nat) = worker.nat(router) {
                all.into_iter().for_each(|(id, rings)| nat.note_rings(id, rings, now()));
            }
        });
    }
}

/// Listens where it has not been listened yet; where that fails, and why. `passed`: Unix sockets.
fn listen_where_possible(
    specs: &[ForwardSpec],
    known: &[Forward],
    mut passed: Vec<OwnedFd>,
) -> (Vec<Listener>, Vec<(Forward, String)>) {
    let (mut listeners, mut failed) = (Vec::new(), Vec::new());
    for spec in specs {
        for forward in spec.forwards() {
            if known.iter().any(|known| known.is_at_place_of(&forward)) {
                continue;
            }
            let bound = match &forward.at {
                ListenAddress::Address(at) => bind(*at, forward.protocol).map_err(Some),
                ListenAddress::Unix(path) => take_bound_to(path, &mut passed).ok_or(None),
            };
            match bound {
                Ok(fd) => listeners.push(Listener { forward, fd }),
                // Not every machine has a loopback of IPv6.
                Err(Some(Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT)) if spec.is_by_default() => {}
                Err(Some(why)) => failed.push((forward, with_advice(why))),
                Err(None) => failed.push((forward, "not made yet: the log says why".to_owned())),
            }
        }
    }
    (listeners, failed)
}

/// Why it cannot be listened at a place, and what to do. One that is in use becomes free.
fn with_advice(why: Errno) -> String {
    match why {
        Errno::ACCESS => format!(
            "{why}: use 1024 or more, or lower it: sysctl net.ipv4.ip_unprivileged_port_start"
        ),
        Errno::ADDRNOTAVAIL => format!("{why}: use an address of this machine, or *"),
        _ => why.to_string(),
    }
}

/// The socket that the supervisor has made at that path.
fn take_bound_to(path: &Path, passed: &mut Vec<OwnedFd>) -> Option<OwnedFd> {
    let is_it = |fd: &OwnedFd| {
        let name = getsockname(fd).ok().and_then(|name| SocketAddrUnix::try_from(name).ok());
        name.is_some_and(|name| name.path_bytes() == Some(path.as_os_str().as_bytes()))
    };
    let at = passed.iter().position(is_it)?;
    Some(passed.swap_remove(at))
}

fn bind(at: SocketAddr, protocol: Protocol) -> rustix::io::Result<OwnedFd> {
    let is_stream = protocol == Protocol::Tcp;
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let kind = if is_stream { SocketType::STREAM } else { SocketType::DGRAM };
    let fd = socket_with(family, kind, flags, None)?;
    // Of datagrams another process could have a share then.
    set_socket_reuseaddr(&fd, is_stream)?;
    if at.is_ipv6() {
        set_ipv6_v6only(&fd, true)?;
    }
    rustix::net::bind(&fd, &at)?;
    if is_stream {
        rustix::net::listen(&fd, BACKLOG)?;
    } else {
        tell_of_datagrams(&fd, at.is_ipv4()).map_err(|_| Errno::IO)?;
    }
    Ok(fd)
}

/// Whether this machine has a way to global addresses of IPv6. Nothing is sent.
fn has_route6() -> bool {
    let socket = UdpSocket::bind("[::]:0");
    socket.is_ok_and(|socket| socket.connect("[2000::1]:9").is_ok())
}

/// As many as may be open, without those that others need. The supervisor has raised the limit.
fn sockets_max() -> u32 {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    u32::try_from(most.saturating_sub(FDS_KEPT).max(most / 2)).unwrap_or(u32::MAX)
}
