//! Rules about networks, found by the length of their prefix.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use super::rule::{Service, ServiceKind};
use super::{FlowService, RuleId};
use crate::networks::Network;

#[derive(Debug)]
struct AddressRule {
    service: Option<Service>,
    id: RuleId,
}

/// The rules of one length, by the first address of their network.
type OfLength = HashMap<IpAddr, Vec<AddressRule>>;

/// The rules, by family and length; so each address is looked for once for each length in use.
#[derive(Debug, Default)]
pub(super) struct AddressRules(BTreeMap<u8, OfLength>);

impl AddressRules {
    pub(super) fn add(&mut self, network: Network, service: Option<Service>, id: RuleId) {
        let rules = self.0.entry(network.len).or_default();
        rules.entry(network.first()).or_default().push(AddressRule { service, id });
    }

    /// The rule of the longest network that decides about that service; of equals one that denies.
    pub(super) fn most_specific(&self, address: IpAddr, service: FlowService) -> Option<RuleId> {
        self.0.iter().rev().find_map(|(len, networks)| {
            let network = Network::around(address, *len)?;
            let rules = networks.get(&network.first())?.iter();
            let meant = rules.filter(|rule| rule.means(service));
            meant.map(|rule| rule.id).min_by_key(|id| (id.is_allowing, id.index))
        })
    }
}

impl AddressRule {
    fn means(&self, FlowService { is_tcp, port }: FlowService) -> bool {
        self.service.as_ref().is_none_or(|service| {
            let is_carried = match service.kind {
                ServiceKind::Tcp => is_tcp,
                ServiceKind::Udp => !is_tcp,
                ServiceKind::Tls => false,
            };
            is_carried && service.ports.contains(&port)
        })
    }
}
