//! The device's configuration as the driver believes it: read once, checked once, and from then on
//! only what may change changes.
//!
//! How: [`DeviceState::new`] takes what is plausible of the first configuration and replaces the
//! rest; [`DeviceState::on_config`] compares a later one, and says what to do. Limits: address, MTU
//! and number of queue pairs are those of the start, whatever the device says later.

use ringway_net::{Features, MacAddress, Negotiated, NetConfig};

/// Smallest MTU in bytes a device may advise (virtio 1.2 §5.1.4.1).
const MTU_MIN: u16 = 68;
/// The MTU when nothing plausible is advised.
const MTU_DEFAULT: u16 = 1500;
/// Most queue pairs a device may have (virtio 1.2 §5.1.4.1).
const QUEUE_PAIRS_MAX: u16 = 0x8000;

/// The device, as the driver sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceState {
    /// Its address for us, if it gave one that a station can have.
    pub mac: Option<MacAddress>,
    /// Whether packets go anywhere.
    pub link_up: bool,
    /// Largest packet in bytes, without Ethernet header.
    pub mtu: u16,
    /// Queue pairs it has, at least 1.
    pub queue_pairs_max: u16,
    has_status: bool,
}

/// The steps that a change of the configuration asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConfigChange {
    /// The link went up (`true`) or down.
    pub link: Option<bool>,
    /// Send gratuitous packets, then
    /// [`AcknowledgeAnnouncement`](crate::ControlCommand::AcknowledgeAnnouncement).
    pub announce: bool,
}

impl DeviceState {
    /// From the first configuration after negotiation.
    pub fn new(config: &NetConfig, negotiated: &Negotiated) -> Self {
        let has = |feature| negotiated.features.contains(feature);
        let is_plausible = has(Features::MTU) && config.mtu >= MTU_MIN;
        let pairs = if has(Features::MQ) { config.max_queue_pairs } else { 1 };
        Self {
            mac: Some(config.mac).filter(|mac| has(Features::MAC) && mac.is_station()),
            link_up: !has(Features::STATUS) || config.link_up,
            mtu: if is_plausible { config.mtu } else { MTU_DEFAULT },
            queue_pairs_max: pairs.clamp(1, QUEUE_PAIRS_MAX),
            has_status: has(Features::STATUS),
        }
    }

    /// Takes notice of a configuration read after a change notification (virtio 1.2 §5.1.4.2).
    pub fn on_config(&mut self, config: &NetConfig) -> ConfigChange {
        if !self.has_status {
            return ConfigChange::default();
        }
        let changed = config.link_up != self.link_up;
        self.link_up = config.link_up;
        ConfigChange {
            link: changed.then_some(config.link_up),
            announce: config.announce && config.link_up,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: NetConfig = NetConfig {
        mac: MacAddress::local(1),
        link_up: true,
        announce: false,
        max_queue_pairs: 4,
        mtu: 9000,
    };

    fn negotiated() -> Negotiated {
        let features = Features::VERSION_1 | Features::MAC | Features::MTU | Features::STATUS;
        Negotiated::new(features | Features::MQ | Features::CTRL_VQ).expect("they fit together")
    }

    #[test]
    fn what_cannot_be_is_replaced() {
        let hostile =
            NetConfig { max_queue_pairs: 0, mtu: 67, mac: MacAddress::BROADCAST, ..CONFIG };
        let state = DeviceState::new(&hostile, &negotiated());
        assert_eq!((state.queue_pairs_max, state.mtu, state.mac), (1, 1500, None));
        let many = NetConfig { max_queue_pairs: u16::MAX, ..CONFIG };
        assert_eq!(DeviceState::new(&many, &negotiated()).queue_pairs_max, 0x8000);
    }

    #[test]
    fn what_was_not_negotiated_does_not_count() {
        let nothing = Negotiated::new(Features::VERSION_1).expect("alone");
        let down = NetConfig { link_up: false, announce: true, ..CONFIG };
        let mut state = DeviceState::new(&down, &nothing);
        assert_eq!((state.queue_pairs_max, state.mtu, state.mac), (1, 1500, None));
        assert!(state.link_up);
        assert_eq!(state.on_config(&down), ConfigChange::default());
    }

    #[test]
    fn only_the_status_changes_later() {
        let mut state = DeviceState::new(&CONFIG, &negotiated());
        let before = state;
        let other = NetConfig { mtu: 68, max_queue_pairs: 0, mac: MacAddress::ZERO, ..CONFIG };
        assert_eq!(state.on_config(&other), ConfigChange::default());
        assert_eq!(state, before);
        let down = NetConfig { link_up: false, ..CONFIG };
        assert_eq!(state.on_config(&down).link, Some(false));
        assert_eq!(state.on_config(&down).link, None);
        let up = NetConfig { announce: true, ..CONFIG };
        assert_eq!(state.on_config(&up), ConfigChange { link: Some(true), announce: true });
    }
}
