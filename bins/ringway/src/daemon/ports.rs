//! Ports that come, change and go while others carry traffic.
//!
//! A port that goes with a guest connected is seen by that guest as a link that goes down: it stays
//! for [`LINK_DOWN_GRACE`], without packets, so that the guest can read what it was told.
//! Its name and its place are free at once.
//!
//! Limits: at most [`PORTS_MAX`] ports, those included that are about to go.

use std::fmt;
use std::os::fd::AsFd;
use std::time::Instant;

use anyhow::{Context, anyhow, bail};
use ringway_host::{Tap, TapOptions};
use ringway_switch::{PORTS_MAX, PortId, PortPolicy};
use tracing::{error, info, warn};

use super::chatter::Chatter;
use super::nat_port::{NatState, has_guests};
use super::tap_port::TapState;
use super::vm_port::VmPort;
use super::{Daemon, LINK_DOWN_GRACE, Wake};
use crate::config::options::{Effect, OPTIONS};
use crate::config::{PortKind, PortSpec};

/// One port as the control thread sees it.
pub(super) struct Port {
    pub(super) spec: PortSpec,
    /// As the file has it, if it comes from there.
    pub(super) from_file: Option<PortSpec>,
    /// Why the port does not work, if it does not.
    pub(super) failure: Option<String>,
    pub(super) vm: Option<VmPort>,
    pub(super) tap: TapState,
    pub(super) nat: NatState,
    /// Lines that its front-end is the reason for.
    pub(super) chatter: Chatter,
    /// It was removed, and goes for good then.
    leaves_at: Option<Instant>,
}

/// What a change came to.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// A guest was sent a notice.
    pub(super) guest_told: bool,
    /// Options that only the next guest will see.
    pub(super) at_next_connection: Vec<&'static str>,
    /// What is probably not meant.
    pub(super) warnings: Vec<String>,
}

impl Port {
    fn new(spec: PortSpec, from_file: Option<PortSpec>) -> Self {
        let chatter = Chatter::new();
        let (tap, nat) = (TapState::default(), NatState::default());
        Self { spec, from_file, failure: None, vm: None, tap, nat, chatter, leaves_at: None }
    }

    /// Logs something about its front-end or guest, unless that was done often enough.
    pub(super) fn complain(&mut self, why: impl fmt::Display) {
        let name = &self.spec.name;
        self.chatter.say(name, || warn!(port = name, "{why:#}"));
    }

    pub(super) fn is_linked(&self) -> bool {
        self.vm.as_ref().is_some_and(VmPort::is_linked)
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.leaves_at.is_some()
    }
}

impl Daemon {
    /// The ids of all ports, as they are now.
    pub(super) fn ids(&self) -> Vec<PortId> {
        self.ports.keys().copied().collect()
    }

    pub(super) fn name(&self, id: PortId) -> &str {
        self.ports.get(&id).map_or("", |port| &port.spec.name)
    }

    /// The port of that name, unless it is about to go.
    pub(super) fn find_port(&self, name: &str) -> Option<PortId> {
        let mut ports = self.ports.iter().filter(|(_, port)| !port.is_leaving());
        ports.find(|(_, port)| port.spec.name == name).map(|(&id, _)| id)
    }

    /// What is configured, without ports that are about to go.
    pub(super) fn specs(&self) -> impl Iterator<Item = &PortSpec> {
        self.ports.values().filter(|port| !port.is_leaving()).map(|port| &port.spec)
    }

    /// Opens a port of the configuration. If that fails it is kept, with the reason.
    pub(super) fn open_configured(&mut self, spec: PortSpec) {
        let from_file = self.file.is_some().then(|| spec.clone());
        let Some(id) = self.free_id() else {
            return error!(port = spec.name, "there are {PORTS_MAX} ports already");
        };
        let mut port = Port::new(spec, from_file);
        self.warn_of_shared_mac(&port.spec);
        if let Err(why) = self.try_open(id, &mut port) {
            error!(port = port.spec.name, "{why:#}");
            port.failure = Some(format!("{why:#}"));
        }
        self.ports.insert(id, port);
    }

    /// Opens a port that was asked for.
    ///
    /// # Errors
    /// It cannot be opened; nothing is left of it.
    pub(super) fn open_port(&mut self, spec: PortSpec) -> anyhow::Result<Changed> {
        let Some(id) = self.free_id() else { bail!("there are {PORTS_MAX} ports already") };
        let mut port = Port::new(spec, None);
        self.try_open(id, &mut port)?;
        let warnings = self.warn_of_shared_mac(&port.spec).into_iter().collect();
        self.ports.insert(id, port);
        Ok(Changed { warnings, ..Changed::default() })
    }

    /// Says that a port's guest has the address of another one's, if it has.
    fn warn_of_shared_mac(&self, spec: &PortSpec) -> Option<String> {
        let warning = self.identity.shared_mac(spec, self.specs())?;
        warn!("{warning}");
        Some(warning)
    }

    fn free_id(&self) -> Option<PortId> {
        let count = u16::try_from(PORTS_MAX).unwrap_or(u16::MAX);
        (0..count).map(PortId).find(|id| !self.ports.contains_key(id))
    }

    pub(super) fn try_open(&mut self, id: PortId, port: &mut Port) -> anyhow::Result<()> {
        // Its rules hold from the first packet on.
        let rules = self.worker.set_policy(id, port.spec.rules.policy());
        let opened = rules.and_then(|()| self.attach_end(id, port));
        if opened.is_err() {
            let _ = self.worker.set_policy(id, PortPolicy::default());
        }
        opened
    }

    fn attach_end(&mut self, id: PortId, port: &mut Port) -> anyhow::Result<()> {
        match &port.spec.kind {
            PortKind::Vm { .. } | PortKind::VmConnect { .. } => {
                let mut vm = VmPort::open(&self.identity, &port.spec)?;
                if let Some(listener) = vm.listener() {
                    self.poller.add(listener.as_fd(), Wake::Listener(id).token())?;
                    vm.is_watched = true;
                }
                self.worker.attach_empty_guest(id, vm.mac);
                port.vm = Some(vm);
            }
            PortKind::Tap { name } => {
                let options = TapOptions { name: name.clone(), mtu: port.spec.mtu };
                let queues = port.spec.queues.min(self.worker.count());
                let queues = Tap::open_queues(&options, queues).map_err(whole)?;
                port.tap.queues = queues.iter().map(Tap::watch).collect();
                self.worker.attach_tap(id, queues)?;
            }
            PortKind::TapFd { fd } => {
                let tap = Tap::from_raw_fd_number(*fd).map_err(whole)?;
                port.tap.queues = vec![tap.watch()];
                self.worker.attach_tap(id, vec![tap])?;
            }
            PortKind::Nat => self.attach_nat(id, port)?,
        }
        if has_guests(&port.spec.kind) {
            self.name_port(id, &port.spec.name);
        }
        if !port.spec.is_link_up {
            self.worker.set_link(id, false);
        }
        info!(port = port.spec.name, "open: {}", port.spec.kind);
        Ok(())
    }

    /// Removes a port; a connected guest is told first, and has a moment to see it.
    pub(super) fn remove_port(&mut self, id: PortId) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        info!(port = port.spec.name, "removed");
        port.leaves_at = Some(Instant::now());
        self.worker.set_link(id, false);
        if let Some(vm) = &mut port.vm {
            if let Some(listener) = vm.listener().filter(|_| vm.is_watched) {
                let _ = self.poller.remove(listener.as_fd());
            }
            vm.close();
            if vm.tell_config() {
                port.leaves_at = Some(Instant::now() + LINK_DOWN_GRACE);
            }
        }
        self.finish_leaving_ports();
    }

    /// When the next port goes for good.
    pub(super) fn next_leaving(&self) -> Option<Instant> {
        self.ports.values().filter_map(|port| port.leaves_at).min()
    }

    pub(super) fn finish_leaving_ports(&mut self) {
        let now = Instant::now();
        for id in self.ids() {
            let leaves_at = self.ports.get(&id).and_then(|port| port.leaves_at);
            if leaves_at.is_some_and(|at| at <= now) {
                self.finish_leaving(id);
            }
        }
    }

    /// The port is gone, its id free.
    pub(super) fn finish_leaving(&mut self, id: PortId) {
        let Some(port) = self.ports.remove(&id) else { return };
        if let Some(link) = port.vm.as_ref().and_then(|vm| vm.link.as_ref()) {
            let _ = self.poller.remove(link.connection.as_fd());
        }
        // Only then may the guest's memory and fds go with the port.
        self.worker.remove_port(id);
    }

    /// Gives a port other options; its kind stays.
    ///
    /// # Errors
    /// The operating system refuses; then nothing has changed.
    pub(super) fn change_port(&mut self, id: PortId, spec: PortSpec) -> anyhow::Result<Changed> {
        let port = self.ports.get_mut(&id).context("the port is gone")?;
        let before = std::mem::replace(&mut port.spec, spec);
        let now = &port.spec;
        let mut done = Ok(());
        if now.rules != before.rules {
            done = self.worker.set_policy(id, now.rules.policy());
        }
        if let Some(mtu) = now.mtu.filter(|_| port.vm.is_none() && now.mtu != before.mtu) {
            done = done.and_then(|()| self.worker.set_tap_mtu(id, mtu));
        }
        if let Some(vm) = &mut port.vm {
            // Its file may be gone, which hinders no other change.
            let is_other = now.socket_access() != before.socket_access();
            done = done.and_then(|()| if is_other { vm.permit(now) } else { Ok(()) });
        }
        let is_other_way = now.nat.forwards != before.nat.forwards;
        if done.is_ok() && is_other_way {
            done = self.follow_forwards(id);
        }
        let port = self.ports.get_mut(&id).context("the port is gone")?;
        let now = &port.spec;
        if let Err(why) = done {
            // Those hold already, so they are accepted.
            let _ = self.worker.set_policy(id, before.rules.policy());
            port.spec = before;
            return Err(why);
        }
        if now.notify != before.notify {
            self.worker.set_notify(id, now.notify);
        }
        if now.is_link_up != before.is_link_up {
            self.worker.set_link(id, now.is_link_up);
        }
        let is_other_router = now.nat != before.nat || now.mtu != before.mtu;
        let differs = |option: &&_| differs(option, &before, now);
        let late = OPTIONS.iter().filter(|option| option.effect == Effect::NextConnection);
        let mut changed = Changed {
            guest_told: false,
            warnings: Vec::new(),
            at_next_connection: late.filter(differs).map(|option| option.key).collect(),
        };
        if let Some(vm) = &mut port.vm {
            vm.configure(&self.identity, now);
            if now.is_link_up && !before.is_link_up {
                vm.plan_announcement();
            }
            let is_news = now.is_link_up != before.is_link_up || now.mtu != before.mtu;
            changed.guest_told = is_news && vm.tell_config();
        }
        info!(port = now.name, "changed");
        let spec = now.clone();
        if is_other_router {
            self.tell_nat(id);
        }
        if spec.mac != before.mac {
            changed.warnings.extend(self.warn_of_shared_mac(&spec));
        }
        Ok(changed)
    }
}

/// An error whose text has its causes in it already, so that `{:#}` does not add them once more.
pub(super) fn whole(why: impl fmt::Display) -> anyhow::Error {
    anyhow!("{why}")
}

fn differs(option: &crate::config::options::PortOption, one: &PortSpec, other: &PortSpec) -> bool {
    option.value_of(one) != option.value_of(other)
}
