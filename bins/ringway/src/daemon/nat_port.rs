//! A router for guests: what it is told of this machine, and told again when that changes.

use std::cell::Cell;
use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::Context;
use ringway_host::{Command, NatCommand, NatOptions, NatPort};
use ringway_nat::Prefix6;
use ringway_switch::PortId;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::info;

use super::{Daemon, Port};
use crate::config::PortKind;
use crate::config::nat::Dns;

/// Where the host's resolvers are listed (resolv.conf(5)).
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// How often this is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// File descriptors that routers leave to everything else.
const FDS_KEPT: u64 = 512;

/// What the control thread knows of a router.
#[derive(Debug, Default)]
pub(super) struct NatState {
    /// What it was told.
    told: Option<NatOptions>,
    /// When this machine is looked at again.
    look_at: Option<Instant>,
}

impl Daemon {
    /// What a router is to be told.
    fn nat_options(&self, port: &Port) -> NatOptions {
        let spec = &port.spec;
        let local6 = Prefix6::local(self.identity.number_of(&spec.name));
        let mut plan = spec.nat.plan(local6, spec.mtu);
        plan.routes6 = has_route6();
        let resolvers = match &spec.nat.dns {
            Dns::Host => resolvers(&std::fs::read_to_string(RESOLV_CONF).unwrap_or_default()),
            Dns::Off => Vec::new(),
            Dns::Servers(servers) => servers.clone(),
        };
        NatOptions { plan, resolvers, sockets_max: sockets_max() }
    }

    /// Opens a router.
    ///
    /// # Errors
    /// The operating system refuses something.
    pub(super) fn attach_nat(&mut self, id: PortId, port: &mut Port) -> anyhow::Result<()> {
        let options = self.nat_options(port);
        self.start_nat(id, options.clone())?;
        port.nat = NatState { told: Some(options), look_at: Some(Instant::now() + LOOK_EVERY) };
        Ok(())
    }

    /// Tells a router what has changed.
    pub(super) fn tell_nat(&mut self, id: PortId) {
        let Some(port) = self.ports.get(&id).filter(|port| port.nat.told.is_some()) else { return };
        let options = self.nat_options(port);
        let Some(port) = self.ports.get_mut(&id) else { return };
        port.nat.look_at = Some(Instant::now() + LOOK_EVERY);
        let Some(told) = &mut port.nat.told else { return };
        if *told != options {
            if told.resolvers != options.resolvers {
                info!(port = port.spec.name, "resolvers: {:?}", options.resolvers);
            }
            *told = options.clone();
            let told = || Box::new(options.clone());
            self.worker.send_all(|| Command::Nat(NatCommand::Set { port: id, options: told() }));
        }
    }

    /// When this machine is looked at again.
    pub(super) fn next_look_around(&self) -> Option<Instant> {
        self.ports.values().filter_map(|port| port.nat.look_at).min()
    }

    /// Looks for what has changed: resolvers, and whether there is a way to IPv6.
    pub(super) fn look_around(&mut self) {
        let now = Instant::now();
        for id in self.ids() {
            let is_due = |port: &Port| port.nat.look_at.is_some_and(|at| at <= now);
            if self.ports.get(&id).is_some_and(is_due) {
                self.tell_nat(id);
            }
        }
    }
}

impl Daemon {
    /// The first worker has the router.
    fn start_nat(&self, port: PortId, options: NatOptions) -> anyhow::Result<()> {
        let nat = Cell::new(Some(Box::new(NatPort::new(options).context("a router")?)));
        let attach = |done| Command::Nat(NatCommand::Attach { port, nat: nat.take(), done });
        let attached: Result<Vec<()>, _> = self.worker.ask_all(attach).into_iter().collect();
        if attached.is_err() {
            self.worker.remove_port(port);
        }
        attached.map(drop).context("watching the router")
    }

    /// What a port is called, for the guests of routers.
    pub(super) fn name_port(&self, port: PortId, name: &str) {
        let name = || name.to_owned();
        self.worker.send_all(|| Command::Nat(NatCommand::Name { port, name: name() }));
    }
}

/// Whether guests may be behind such a port.
pub(super) fn has_guests(kind: &PortKind) -> bool {
    *kind != PortKind::Nat
}

/// Whether this machine has a way to global addresses of IPv6. Nothing is sent.
fn has_route6() -> bool {
    let socket = UdpSocket::bind("[::]:0");
    socket.is_ok_and(|socket| socket.connect("[2000::1]:9").is_ok())
}

/// The resolvers that a file names.
fn resolvers(text: &str) -> Vec<IpAddr> {
    let words = text.lines().map(str::split_whitespace);
    let servers = words.filter_map(|mut words| match (words.next(), words.next()) {
        (Some("nameserver"), Some(address)) => address.parse().ok(),
        _ => None,
    });
    servers.collect()
}

/// As many as may be open, without those that others need.
fn sockets_max() -> u32 {
    let limit = getrlimit(Resource::Nofile);
    // More than was said at the start is allowed: the process itself may raise it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    u32::try_from(most.saturating_sub(FDS_KEPT).max(most / 2)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolvers_are_read() {
        let text = "# nameserver 9.9.9.9\nsearch a b\nnameserver 10.0.0.1\n nameserver ::1 # x\n\
                    nameserver\nnameserver nowhere\n";
        let expected: [IpAddr; 2] = [[10, 0, 0, 1].into(), "::1".parse().unwrap()];
        assert_eq!(resolvers(text), expected);
    }
}
