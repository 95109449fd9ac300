//! A port for a virtual machine: what its guest is offered, and the link while there is one.

use std::sync::Arc;
use std::time::Instant;

use ringway_host::EventFd;
use ringway_net::{Features, MacAddress, NetConfig};
use ringway_switch::{Announcer, PortId};
use ringway_vhost_user::Offer;

use super::super::links::Link;
use super::super::links::kicks::KickWatch;
use super::super::wake::{Wake, Wakes};
use crate::closing::Closing;
use crate::config::PortSpec;

/// The largest MTU that may be configured and the one assumed without configuration.
const MTU_DEFAULT: u16 = 1500;

/// A virtual machine's port.
pub struct VmPort {
    pub mac: MacAddress,
    pub mtu: Option<u16>,
    pub is_link_up: bool,
    pub features: Features,
    /// Queue pairs, at least 1.
    pub pairs: u16,
    pub has_device_state: bool,
    pub link: Option<Link>,
    pub closing: Closing,
    /// When it is taken for granted that its guest believes that its link has come up.
    pub believes: Option<Instant>,
    /// When uplinks are told where its guest is.
    pub announcer: Announcer,
}

impl VmPort {
    pub fn open(spec: &PortSpec) -> std::io::Result<Self> {
        let mut vm = Self {
            mac: MacAddress::ZERO,
            mtu: None,
            is_link_up: true,
            features: Features::empty(),
            pairs: 1,
            has_device_state: true,
            link: None,
            closing: Closing::start()?,
            believes: None,
            announcer: Announcer::default(),
        };
        vm.configure(spec);
        Ok(vm)
    }

    /// Takes over what the next guest is offered, and what holds at once.
    pub fn configure(&mut self, spec: &PortSpec) {
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
        self.has_device_state = spec.has_device_state;
    }

    /// Tells the guest what its configuration is now; `true`: it was told.
    pub fn tell_config(&mut self) -> bool {
        let config = self.config(self.is_link_up);
        self.link.as_mut().is_some_and(|link| link.change_config(config))
    }

    pub fn is_linked(&self) -> bool {
        self.link.is_some()
    }

    /// The device configuration space with the link up or down.
    pub fn config(&self, link_up: bool) -> Vec<u8> {
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
    pub fn mtu_told(&self) -> Option<u16> {
        self.mtu.or_else(|| self.link.as_ref()?.mtu)
    }

    /// The guest sees its link go down; `true`: it was told.
    pub fn tell_link_down(&mut self) -> bool {
        self.is_link_up = false;
        self.tell_config()
    }

    pub fn offer(&self) -> Offer {
        Offer {
            features: (self.features | Features::LOG_ALL).bits(),
            queue_pairs_max: self.pairs,
            has_control_queue: self.features.contains(Features::CTRL_VQ),
            config: self.config(self.is_link_up),
            memory_slots_max: ringway_virtq::REGIONS_MAX as u64,
            has_device_state: self.has_device_state,
        }
    }

    /// Whether something that its front-end sent is still being closed; `bell` is rung when that is
    /// over.
    pub fn waits_for_closing(&mut self, bell: &Arc<EventFd>, wakes: &Wakes) -> bool {
        let waits = self.closing.begin(bell);
        if waits && let Some(watch) = self.watch() {
            wakes.forget(watch);
        }
        waits
    }

    /// `true`: everything is closed now, and it is served again.
    pub fn ends_closing(&mut self, bell: &Arc<EventFd>, wakes: &Wakes, id: PortId) -> bool {
        let ends = self.closing.ends(bell);
        if ends && let Some(watch) = self.watch() {
            let _ = wakes.watch(watch, Wake::Kicks(id));
        }
        ends
    }

    /// The kicks of stopped queues.
    fn watch(&self) -> Option<&KickWatch> {
        self.link.as_ref()?.kicks.watch.as_ref()
    }
}
