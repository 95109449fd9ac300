//! A policy: the services that a guest may reach, by name and by network.
//!
//! How: the most specific name that a rule means decides, then the longest network; of equals the
//! rule that denies. A guest with a policy reaches nothing else. Each decision names its rule.
//!
//! A name is judged three times: when the guest asks for its address ([`Policy::question`]), when
//! the guest goes to an address that was an answer ([`Policy::flow`]), and when the first bytes of
//! TLS name the host ([`Policy::hello`]).
//!
//! Limits: several allowed names at one address cannot be told apart, but by TLS. A rule that
//! allows TCP or UDP to a name allows it to all that is at its addresses.

pub mod answer;
pub mod bindings;
pub mod hello;
pub mod name;
pub mod question;
pub mod rule;

pub(crate) mod guest;

mod addresses;
mod names;

use std::net::SocketAddr;

use self::addresses::AddressRules;
use self::name::HostName;
use self::names::NameRules;
use self::rule::{Rule, RulePlace, ServiceKind};

/// Most rules of one policy.
pub const RULES_MAX: usize = 100_000;

/// A rule of a policy: of those that allow, or of those that deny, and its place among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId {
    /// It is one of those that allow.
    pub is_allowing: bool,
    /// Its place among them, from 0.
    pub index: u32,
}

/// The outcome of a gate, with the rule that decided; without one no rule means it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The guest may.
    Allowed(RuleId),
    /// The flow may be opened; its first bytes decide.
    Hello(RuleId),
    /// The guest must not.
    Denied(Option<RuleId>),
}

impl Decision {
    /// Whether something of the guest may leave.
    pub fn is_open(self) -> bool {
        !matches!(self, Self::Denied(_))
    }

    fn by(rule: RuleId) -> Self {
        if rule.is_allowing { Self::Allowed(rule) } else { Self::Denied(Some(rule)) }
    }
}

/// The service of a flow: TCP or UDP, and its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowService {
    /// It is TCP, not UDP.
    pub is_tcp: bool,
    /// The port outside.
    pub port: u16,
}

/// The rules, ready to be asked.
#[derive(Debug, Default)]
pub struct Policy {
    names: NameRules,
    addresses: AddressRules,
}

impl Policy {
    /// A policy of these rules, [`RULES_MAX`] at most of each; `own`: the networks of this machine,
    /// which are private too.
    pub fn new(allow: &[Rule], deny: &[Rule], own: &[crate::Network]) -> Self {
        let mut policy = Self::default();
        for (rules, is_allowing) in [(allow, true), (deny, false)] {
            for (index, rule) in (0..).zip(rules.iter().take(RULES_MAX)) {
                policy.add(rule, RuleId { is_allowing, index }, own);
            }
        }
        policy
    }

    fn add(&mut self, rule: &Rule, id: RuleId, own: &[crate::Network]) {
        match &rule.place {
            RulePlace::Name(pattern) => self.names.add(pattern.clone(), rule.service.clone(), id),
            RulePlace::Network(network) => self.addresses.add(*network, rule.service.clone(), id),
            RulePlace::Private => {
                for network in rule::PRIVATE.iter().chain(own) {
                    self.addresses.add(*network, rule.service.clone(), id);
                }
            }
        }
    }

    /// Whether the guest may ask for the addresses of that name.
    pub fn question(&self, name: &HostName) -> Decision {
        self.names.any(name).map_or(Decision::Denied(None), Decision::by)
    }

    /// Whether the guest may open a flow to that address, which was an answer for these names.
    pub fn flow<'a>(
        &self,
        is_tcp: bool,
        to: SocketAddr,
        names: impl Iterator<Item = &'a HostName>,
    ) -> Decision {
        let service = FlowService { is_tcp, port: to.port() };
        let mut best = None;
        for name in names {
            let decision = self.by_name(name, service);
            if let Some(decision @ Decision::Allowed(_)) = decision {
                return decision;
            }
            let is_better = decision.is_some_and(Decision::is_open) || best.is_none();
            best = if is_better { decision.or(best) } else { best };
        }
        best.unwrap_or_else(|| {
            let rule = self.addresses.most_specific(to.ip(), service);
            rule.map_or(Decision::Denied(None), Decision::by)
        })
    }

    /// Plain TCP and TLS are both services of one port: the more specific rule decides, of equals
    /// one that denies, then one that asks for nothing more.
    fn by_name(&self, name: &HostName, service: FlowService) -> Option<Decision> {
        let plain = if service.is_tcp { ServiceKind::Tcp } else { ServiceKind::Udp };
        let kinds = [Some(plain), service.is_tcp.then_some(ServiceKind::Tls)];
        let found = kinds.into_iter().flatten().filter_map(|kind| {
            let found = self.names.most_specific(name, kind, service.port)?;
            Some((found.depth, found.rule.is_allowing, kind, found.rule))
        });
        let (_, is_allowing, kind, rule) = found.min()?;
        let needs_hello = is_allowing && kind == ServiceKind::Tls;
        Some(if needs_hello { Decision::Hello(rule) } else { Decision::by(rule) })
    }

    /// Whether a flow to that port of TCP may go on whose TLS names that host. `is_bound`: the
    /// address was an answer for that name to the same guest.
    pub fn hello(&self, name: &HostName, port: u16, is_bound: bool) -> Decision {
        match self.by_name(name, FlowService { is_tcp: true, port }) {
            Some(Decision::Hello(rule) | Decision::Allowed(rule)) if is_bound => {
                Decision::Allowed(rule)
            }
            Some(denied @ Decision::Denied(_)) => denied,
            _ => Decision::Denied(None),
        }
    }
}
