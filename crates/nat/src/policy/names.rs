//! Rules about names, found by each name's own and its parents.

use std::collections::HashMap;

use super::RuleId;
use super::name::{HostName, NamePattern};
use super::rule::{Service, ServiceKind};

/// The port of a service that a rule allows by a name alone.
const HTTPS_PORT: u16 = 443;

#[derive(Debug)]
struct NameRule {
    pattern: NamePattern,
    service: Option<Service>,
    id: RuleId,
}

/// A rule that means a name.
#[derive(Debug, Clone, Copy)]
pub(super) struct FoundRule {
    /// By how many labels the name is longer than the rule's.
    pub(super) depth: usize,
    pub(super) rule: RuleId,
}

/// The rules, by the name in their pattern.
#[derive(Debug, Default)]
pub(super) struct NameRules(HashMap<Box<str>, Vec<NameRule>>);

impl NameRules {
    pub(super) fn add(&mut self, pattern: NamePattern, service: Option<Service>, id: RuleId) {
        let rules = self.0.entry(pattern.name.as_str().into()).or_default();
        rules.push(NameRule { pattern, service, id });
    }

    /// The rule that decides about a service of that name.
    pub(super) fn most_specific(
        &self,
        name: &HostName,
        kind: ServiceKind,
        port: u16,
    ) -> Option<FoundRule> {
        self.first(name, |rule| rule.means(kind, port))
    }

    /// The rule that decides whether anything of that name may be reached.
    pub(super) fn any(&self, name: &HostName) -> Option<RuleId> {
        self.first(name, |rule| rule.id.is_allowing || rule.service.is_none()).map(|it| it.rule)
    }

    /// Of the rules that count, one of the most specific name; of equals one that denies.
    fn first(&self, name: &HostName, counts: impl Fn(&NameRule) -> bool) -> Option<FoundRule> {
        name.with_parents().enumerate().find_map(|(depth, parent)| {
            let rules = self.0.get(parent)?.iter();
            let meant = rules.filter(|rule| rule.pattern.means(depth == 0) && counts(rule));
            let rule = meant.map(|rule| rule.id).min_by_key(|id| (id.is_allowing, id.index))?;
            Some(FoundRule { depth, rule })
        })
    }
}

impl NameRule {
    fn means(&self, kind: ServiceKind, port: u16) -> bool {
        match &self.service {
            Some(service) => service.kind == kind && service.ports.contains(&port),
            None if self.id.is_allowing => kind == ServiceKind::Tls && port == HTTPS_PORT,
            None => true,
        }
    }
}
