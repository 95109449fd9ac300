//! Policies decide as their rules say, in every order in which the rules are written.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use proptest::prelude::*;
use ringway_nat::policy::name::{HostName, NameReach};
use ringway_nat::policy::rule::{Rule, RulePlace, ServiceKind};
use ringway_nat::policy::{Decision, Policy, RuleId};

fn rules(texts: &[&str]) -> Vec<Rule> {
    texts.iter().map(|text| text.parse().expect("a rule")).collect()
}

fn policy(allow: &[&str], deny: &[&str]) -> Policy {
    Policy::new(&rules(allow), &rules(deny), &[])
}

fn name(text: &str) -> HostName {
    HostName::parse(text).expect("a name")
}

const PLACE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

fn tcp(policy: &Policy, to: IpAddr, port: u16, names: &[&str]) -> Decision {
    let names: Vec<HostName> = names.iter().map(|it| name(it)).collect();
    policy.flow(true, SocketAddr::new(to, port), names.iter())
}

const fn allow(index: u32) -> RuleId {
    RuleId { is_allowing: true, index }
}

const fn deny(index: u32) -> RuleId {
    RuleId { is_allowing: false, index }
}

#[test]
fn nothing_is_allowed_that_no_rule_means() {
    let empty = policy(&[], &[]);
    assert_eq!(empty.question(&name("pypi.org")), Decision::Denied(None));
    assert_eq!(tcp(&empty, PLACE, 443, &["pypi.org"]), Decision::Denied(None));
    assert_eq!(empty.hello(&name("pypi.org"), 443, true), Decision::Denied(None));
}

#[test]
fn a_name_alone_is_tls_on_its_port() {
    let one = policy(&["pypi.org"], &[]);
    assert_eq!(one.question(&name("PyPI.org")), Decision::Allowed(allow(0)));
    assert_eq!(one.question(&name("a.pypi.org")), Decision::Denied(None));
    assert_eq!(tcp(&one, PLACE, 443, &["pypi.org"]), Decision::Hello(allow(0)));
    assert_eq!(tcp(&one, PLACE, 80, &["pypi.org"]), Decision::Denied(None));
    assert_eq!(tcp(&one, PLACE, 443, &[]), Decision::Denied(None), "never asked for");
    let quic = one.flow(false, SocketAddr::new(PLACE, 443), [name("pypi.org")].iter());
    assert_eq!(quic, Decision::Denied(None));
    assert_eq!(one.hello(&name("pypi.org"), 443, true), Decision::Allowed(allow(0)));
    assert_eq!(one.hello(&name("pypi.org"), 443, false), Decision::Denied(None), "another place");
    assert_eq!(one.hello(&name("evil.org"), 443, true), Decision::Denied(None));
}

#[test]
fn the_most_specific_name_decides_and_of_equals_the_one_that_denies() {
    let some = policy(&["*.x.org", "a.b.x.org", "same.org"], &[".b.x.org", "same.org"]);
    assert_eq!(some.question(&name("x.org")), Decision::Denied(None), "below it only");
    assert_eq!(some.question(&name("c.x.org")), Decision::Allowed(allow(0)));
    assert_eq!(some.question(&name("b.x.org")), Decision::Denied(Some(deny(0))));
    assert_eq!(some.question(&name("c.b.x.org")), Decision::Denied(Some(deny(0))));
    assert_eq!(some.question(&name("a.b.x.org")), Decision::Allowed(allow(1)));
    assert_eq!(some.question(&name("same.org")), Decision::Denied(Some(deny(1))));
}

#[test]
fn names_decide_before_networks_and_the_longest_network_first() {
    let some = policy(
        &["tcp:22 git.org", "tcp:5432 10.1.2.3", "udp:123 0.0.0.0/0"],
        &["private", "tcp:22 192.0.2.0/24"],
    );
    assert_eq!(tcp(&some, PLACE, 22, &["git.org"]), Decision::Allowed(allow(0)));
    assert_eq!(tcp(&some, PLACE, 22, &[]), Decision::Denied(Some(deny(1))));
    let own: IpAddr = [10, 1, 2, 3].into();
    assert_eq!(tcp(&some, own, 5432, &[]), Decision::Allowed(allow(1)));
    assert_eq!(tcp(&some, own, 5433, &[]), Decision::Denied(Some(deny(0))));
    let time = |to: [u8; 4]| some.flow(false, (to, 123).into(), [].into_iter());
    assert_eq!(time([192, 0, 2, 1]), Decision::Allowed(allow(2)));
    assert_eq!(time([10, 0, 0, 1]), Decision::Denied(Some(deny(0))));
}

#[test]
fn an_address_of_several_names_is_open_for_the_one_that_may() {
    let some = policy(&["tcp:443 plain.org", "tls.org"], &["bad.org"]);
    let both = ["bad.org", "tls.org", "plain.org"];
    assert_eq!(tcp(&some, PLACE, 443, &both), Decision::Allowed(allow(0)));
    assert_eq!(tcp(&some, PLACE, 443, &both[..2]), Decision::Hello(allow(1)));
    assert_eq!(tcp(&some, PLACE, 443, &both[..1]), Decision::Denied(Some(deny(0))));
}

#[test]
fn plain_tcp_and_tls_of_one_port_are_decided_by_the_more_specific_rule() {
    let some = policy(&["*.x.org", "tcp:443 *.y.org"], &["tcp:443 b.x.org", "tls:443 b.y.org"]);
    assert_eq!(tcp(&some, PLACE, 443, &["b.x.org"]), Decision::Denied(Some(deny(0))));
    assert_eq!(some.hello(&name("b.x.org"), 443, true), Decision::Denied(Some(deny(0))));
    assert_eq!(tcp(&some, PLACE, 443, &["b.y.org"]), Decision::Denied(Some(deny(1))));
    assert_eq!(tcp(&some, PLACE, 443, &["a.y.org"]), Decision::Allowed(allow(1)));
}

#[test]
fn networks_of_this_machine_are_private() {
    let own = ["203.0.113.0/24".parse().expect("a network")];
    let policy = Policy::new(&rules(&["tcp:80 0.0.0.0/0"]), &rules(&["private"]), &own);
    let decide = |to: [u8; 4]| tcp(&policy, to.into(), 80, &[]).is_open();
    assert_eq!([[203, 0, 113, 9], [10, 0, 0, 1], [8, 8, 8, 8]].map(decide), [false, false, true]);
}

/// The decision about a question, found by looking at all rules.
fn looked_up(allow: &[Rule], deny: &[Rule], asked: &HostName) -> Option<bool> {
    let rank = |rule: &Rule| {
        let RulePlace::Name(pattern) = &rule.place else { return None };
        let below = asked.as_str().strip_suffix(pattern.name.as_str());
        let fits = below.is_some_and(|below| match pattern.reach {
            NameReach::Only => below.is_empty(),
            NameReach::Below => below.ends_with('.'),
            NameReach::WithBelow => below.is_empty() || below.ends_with('.'),
        });
        fits.then(|| pattern.name.as_str().len())
    };
    let best = |rules: &[Rule], counts: fn(&Rule) -> bool| {
        rules.iter().filter(|rule| counts(rule)).filter_map(rank).max()
    };
    let (allowed, denied) = (best(allow, |_| true), best(deny, |rule| rule.service.is_none()));
    (allowed.is_some() || denied.is_some()).then(|| allowed > denied)
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let label = || prop::sample::select(vec!["a", "b", "c"]);
    let name = prop::collection::vec(label(), 1..4);
    let before = prop::sample::select(vec!["", "*.", "."]);
    let service = prop::sample::select(vec!["", "tcp:22 ", "tls:443 "]);
    (service, before, name).prop_map(|(service, before, name)| {
        format!("{service}{before}{}.z", name.join(".")).parse().expect("a rule")
    })
}

proptest! {
    #[test]
    fn a_question_is_decided_as_if_all_rules_were_looked_at(
        allow in prop::collection::vec(any_rule(), 0..6),
        deny in prop::collection::vec(any_rule(), 0..6),
        asked in prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..5),
    ) {
        let asked = name(&format!("{}.z", asked.join(".")));
        let policy = Policy::new(&allow, &deny, &[]);
        let expected = looked_up(&allow, &deny, &asked).unwrap_or(false);
        prop_assert_eq!(policy.question(&asked).is_open(), expected);
    }

    #[test]
    fn what_a_guest_may_reach_by_name_it_may_ask_for(
        allow in prop::collection::vec(any_rule(), 0..6),
        deny in prop::collection::vec(any_rule(), 0..6),
        asked in prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..5),
        port in prop::sample::select(vec![22u16, 443]),
    ) {
        let asked = name(&format!("{}.z", asked.join(".")));
        let policy = Policy::new(&allow, &deny, &[]);
        let flow = policy.flow(true, SocketAddr::new(PLACE, port), [asked.clone()].iter());
        if let Decision::Hello(_) = flow {
            prop_assert!(policy.hello(&asked, port, true).is_open());
        }
        let is_by_tls_alone = matches!(flow, Decision::Hello(_));
        let has_tls = allow.iter().any(|rule| {
            rule.service.as_ref().is_none_or(|it| it.kind == ServiceKind::Tls)
        });
        prop_assert!(!is_by_tls_alone || has_tls);
        prop_assert!(!flow.is_open() || policy.question(&asked).is_open());
    }
}
