//! A port for a virtual machine: what its guest is offered, and the link while there is one.

use std::time::Instant;

use ringway_net::{Features, MacAddress, NetConfig};
use ringway_supervisor::wire::Offence;
use ringway_switch::{Announcer, PortId};
use ringway_vhost_user::Offer;

use super::closing::Closing;
use super::link::Link;
use super::{DataPlane, Wake};
use crate::config::PortSpec;

const TORN: &str = "the front-end took away memory that it had shared";
const BLOCKED: &str = "the front-end blocked a notification fd and filled it";
const STALLED: &str = "the front-end's memory made page faults sleep (a cold file, or holes that \
    it punched), or it sent what was never written";

/// The largest MTU that may be configured and the one assumed without configuration.
const MTU_DEFAULT: u16 = 1500;

/// A virtual machine's port.
pub(super) struct VmPort {
    pub(super) mac: MacAddress,
    pub(super) mtu: Option<u16>,
    pub(super) is_link_up: bool,
    pub(super) features: Features,
    /// Queue pairs, at least 1.
    pub(super) pairs: u16,
    pub(super) link: Option<Link>,
    pub(super) closing: Closing,
    /// When it is taken for granted that its guest believes that its link has come up.
    pub(super) believes: Option<Instant>,
    /// When uplinks are told where its guest is.
    pub(super) announcer: Announcer,
}

impl VmPort {
    pub(super) fn open(spec: &PortSpec) -> std::io::Result<Self> {
        let mut vm = Self {
            mac: MacAddress::ZERO,
            mtu: None,
            is_link_up: true,
            features: Features::empty(),
            pairs: 1,
            link: None,
            closing: Closing::start()?,
            believes: None,
            announcer: Announcer::default(),
        };
        vm.configure(spec);
        Ok(vm)
    }

    /// Takes over what the next guest is offered, and what holds at once.
    pub(super) fn configure(&mut self, spec: &PortSpec) {
        let mut features = spec.features_offered();
        if spec.mtu.is_none() {
            // A guest takes an offered MTU for the largest it may ever set.
            features -= Features::MTU;
        }
        // The supervisor tells the address of each guest.
        self.mac = spec.mac.unwrap_or(MacAddress::ZERO);
        self.mtu = spec.mtu;
        self.is_link_up = spec.is_link_up;
        self.features = features.drop_unmet();
        self.pairs = spec.queues;
    }

    /// Tells the guest what its configuration is now; `true`: it was told.
    pub(super) fn tell_config(&mut self) -> bool {
        let config = self.config(self.is_link_up);
        self.link.as_mut().is_some_and(|link| link.change_config(config))
    }

    pub(super) fn is_linked(&self) -> bool {
        self.link.is_some()
    }

    /// The device configuration space with the link up or down.
    pub(super) fn config(&self, link_up: bool) -> Vec<u8> {
        let config = NetConfig {
            mac: self.link.as_ref().map_or(self.mac, |link| link.mac),
            link_up,
            announce: self.link.as_ref().is_some_and(|link| link.announcement.is_asked),
            max_queue_pairs: self.pairs,
            mtu: self.mtu_told().unwrap_or(MTU_DEFAULT),
        };
        config.encode().to_vec()
    }

    /// The MTU that is configured, or the one that this guest was offered.
    pub(super) fn mtu_told(&self) -> Option<u16> {
        self.mtu.or_else(|| self.link.as_ref()?.mtu)
    }

    fn offer(&self) -> Offer {
        Offer {
            features: self.features.bits(),
            queue_pairs_max: self.pairs,
            has_control_queue: self.features.contains(Features::CTRL_VQ),
            config: self.config(self.is_link_up),
            memory_slots_max: ringway_virtq::REGIONS_MAX as u64,
        }
    }
}

impl DataPlane {
    /// A front-end has come, for which these options hold: those of the moment at which it came.
    pub(super) fn link(&mut self, id: PortId, number: u32, spec: &PortSpec) -> anyhow::Result<()> {
        let callee = self.worker.new_callee();
        let Some(port) = self.ports.get_mut(&id) else { anyhow::bail!("there is no such port") };
        let (now, vm) = (port.spec.clone(), port.vm.as_mut());
        let Some(vm) = vm.filter(|vm| !vm.is_linked()) else {
            anyhow::bail!("a front-end is linked already")
        };
        vm.configure(spec);
        vm.link = Some(Link::new(number, vm.mac, vm.offer(), callee));
        vm.configure(&now);
        if let Some(link) = &mut vm.link {
            link.mtu = spec.mtu;
        }
        let config = vm.config(vm.is_link_up);
        if let Some(link) = &mut vm.link {
            // It is told nothing: it has read it, or will.
            let _ = link.session.set_config(config);
        }
        self.links.insert(number, id);
        self.worker.send_all(move |worker| worker.note_rings(id, Some(number)));
        Ok(())
    }

    /// The front-end has gone. `true`: what it sent is still being closed.
    pub(super) fn unlink(&mut self, number: u32) -> bool {
        let Some(id) = self.links.remove(&number) else { return false };
        if self.link_of(id).is_some_and(|link| link.number == number) {
            self.drop_link(id);
        }
        if self.ports.get(&id).is_some_and(super::Port::is_leaving) {
            self.finish_leaving(id);
        }
        self.waits_for_closing(id)
    }

    /// Disconnects front-ends that took away memory which a worker then touched.
    pub(super) fn drop_torn_links(&mut self) {
        self.wakes.drain_torn();
        for id in self.ids() {
            let link = self.ports.get(&id).and_then(super::Port::link);
            if link.is_some_and(|link| link.memory.torn()) {
                self.let_go(id, None, TORN);
            }
        }
    }

    /// Disconnects front-ends for which a call would have waited.
    pub(super) fn drop_blocking_links(&mut self) {
        for id in self.ids() {
            let link = self.ports.get(&id).and_then(super::Port::link);
            if link.is_some_and(|link| link.callee.has_blocked()) {
                self.drop_link(id);
            }
        }
    }

    /// Disconnects the front-end in whose memory a worker slept.
    pub(super) fn drop_stalled_link(&mut self, id: PortId) {
        self.let_go(id, Some(Offence::Stalled), STALLED);
    }

    pub(super) fn let_go(&mut self, id: PortId, offence: Option<Offence>, why: &str) {
        let link = self.ports.get(&id).and_then(super::Port::link);
        let Some(link) = link.map(|link| link.number) else { return };
        self.supervisor.let_go(link, offence, why);
        self.drop_link(id);
    }

    /// Stops using anything of a front-end; the supervisor disconnects it.
    pub(super) fn drop_link(&mut self, id: PortId) {
        let Some(vm) = self.vm(id) else { return };
        let Some(link) = vm.link.take() else { return };
        vm.announcer.goes_down();
        if let Some(watch) = &link.kicks.watch {
            self.wakes.forget(watch);
        }
        if let Some(replay) = &mut self.replay {
            replay.forget(id);
        }
        let leaving = self.leaving(id);
        self.worker.ask_all(move |worker| worker.detach(id));
        self.have_left(leaving);
        // Asked only now: it may have gone before it was disconnected, and no worker calls it any
        // more.
        if link.callee.has_blocked() {
            self.supervisor.let_go(link.number, Some(Offence::Blocked), BLOCKED);
        }
    }

    /// Every guest that can be told sees its link go down; returns how many.
    pub(super) fn tell_link_down(&mut self) -> usize {
        let mut told = 0;
        for vm in self.ports.values_mut().filter_map(|port| port.vm.as_mut()) {
            vm.is_link_up = false;
            told += usize::from(vm.tell_config());
        }
        told
    }

    /// Watches the kicks of stopped queues again.
    pub(super) fn watch_kicks_again(&mut self, id: PortId) {
        let link = self.ports.get(&id).and_then(super::Port::link);
        let watch = link.and_then(|link| link.kicks.watch.as_ref());
        if let Some(watch) = watch {
            let _ = self.wakes.watch(watch, Wake::Kicks(id));
        }
    }
}
