//! Bindings of addresses to names, against a list that says the rules as they are written.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use proptest::collection::vec;
use proptest::prelude::*;
use ringway_nat::policy::bindings::{BindingLimits, Bindings};
use ringway_nat::policy::name::HostName;
use ringway_net::Nanos;

const LIMITS: BindingLimits = BindingLimits { unused_per_name: 4, all: 10 };

fn name(text: &str) -> HostName {
    HostName::parse(text).expect("a name")
}

fn address(last: u16) -> IpAddr {
    let [high, low] = last.to_be_bytes();
    Ipv4Addr::new(192, 0, high, low).into()
}

const fn at(seconds: u64) -> Nanos {
    Nanos(seconds * 1_000_000_000)
}

fn bound(bindings: &Bindings, to: IpAddr, now: Nanos) -> Vec<String> {
    bindings.names(to, now).map(HostName::to_string).collect()
}

#[test]
fn an_answer_binds_for_its_time_but_a_minute_at_least_and_a_day_at_most() {
    for (ttl_s, seconds) in [(0, 60), (59, 60), (300, 300), (u32::MAX, 86_400)] {
        let mut bindings = Bindings::default();
        assert_eq!(bindings.bind(&name("a.org"), &[(address(1), ttl_s)], at(5)), 0);
        let (last, end) = (Nanos(at(5 + seconds).0 - 1), at(5 + seconds));
        assert_eq!(bound(&bindings, address(1), last), ["a.org"], "{ttl_s}");
        assert!(bindings.is_bound(&name("a.org"), address(1), last));
        assert!(!bindings.is_bound(&name("b.org"), address(1), last));
        assert_eq!(bindings.all(last).collect::<Vec<_>>(), [(address(1), &name("a.org"), Some(1))]);
        assert!(bound(&bindings, address(1), end).is_empty());
        assert_eq!((bindings.len(), bindings.deadline()), (1, Some(end)));
        bindings.remove_ended(end);
        assert_eq!((bindings.is_empty(), bindings.deadline()), (true, None));
    }
}

#[test]
fn a_flow_keeps_an_address_and_a_minute_more() {
    let mut bindings = Bindings::default();
    bindings.bind(&name("a.org"), &[(address(1), 60)], at(0));
    assert!(bindings.hold(address(1), at(59)));
    assert!(bindings.hold(address(1), at(59)));
    assert!(!bindings.hold(address(2), at(59)), "not bound");
    bindings.remove_ended(at(1000));
    assert_eq!((bindings.deadline(), bindings.len()), (None, 1));
    bindings.release(address(1), at(1000));
    assert_eq!(bound(&bindings, address(1), at(100_000)), ["a.org"]);
    bindings.release(address(1), at(200_000));
    assert_eq!(bindings.deadline(), Some(at(200_060)));
    assert_eq!(bound(&bindings, address(1), at(200_059)), ["a.org"]);
    assert!(!bindings.hold(address(1), at(200_060)), "over, and not woken");
    assert!(bindings.is_empty());
}

#[test]
fn addresses_in_use_do_not_count_against_others_of_the_name() {
    let mut bindings = Bindings::new(LIMITS);
    let answer = |from: u16| [from, from + 1].map(|last| (address(last), 300));
    for from in [0, 2, 4, 6] {
        assert_eq!(bindings.bind(&name("s3.org"), &answer(from), at(u64::from(from))), 0);
        assert!(bindings.hold(address(from), at(u64::from(from))));
    }
    assert_eq!(bindings.len(), 7, "four used ones, and three beside them");
    for from in (8..1000).step_by(2) {
        assert_eq!(bindings.bind(&name("s3.org"), &answer(from), at(8)), 0);
    }
    for used in [0, 2, 4, 6] {
        assert!(bindings.is_bound(&name("s3.org"), address(used), at(9)), "{used}");
    }
    assert_eq!(bindings.len(), 8);
    assert!(bindings.is_bound(&name("s3.org"), address(999), at(9)), "told last");
}

#[test]
fn a_guest_that_uses_all_is_not_told_of_more() {
    let mut bindings = Bindings::new(LIMITS);
    for last in 0..10 {
        let own = name(&format!("n{last}.org"));
        assert_eq!(bindings.bind(&own, &[(address(last), 60)], at(0)), 0);
        assert!(bindings.hold(address(last), at(0)));
    }
    let answer = [address(0), address(77), address(1)].map(|it| (it, 60));
    assert_eq!(bindings.bind(&name("n0.org"), &answer, at(1)), 2);
    assert!(!bindings.is_bound(&name("n0.org"), address(77), at(1)));
    let long: Vec<_> = (100..200).map(|last| (address(last), 60)).collect();
    assert_eq!(Bindings::default().bind(&name("a.org"), &long, at(0)), 100 - 64);
}

#[test]
fn a_changed_policy_removes_names_and_leaves_flows_what_they_hold() {
    let mut bindings = Bindings::default();
    for text in ["a.org", "b.org"] {
        bindings.bind(&name(text), &[(address(1), 60)], at(0));
    }
    assert!(bindings.hold(address(1), at(0)));
    bindings.retain(|it| *it == name("b.org"));
    assert_eq!(bound(&bindings, address(1), at(1)), ["b.org"]);
    bindings.retain(|_| false);
    assert!(bindings.is_empty());
    bindings.bind(&name("c.org"), &[(address(1), 60)], at(2));
    bindings.remove_ended(at(500));
    assert_eq!(bound(&bindings, address(1), at(500)), ["c.org"], "the same flow uses it");
    bindings.release(address(1), at(500));
    assert!(bound(&bindings, address(1), at(560)).is_empty());
}

#[derive(Debug, Clone)]
enum Step {
    Bind(u8, Vec<(u16, u32)>),
    Hold(u16),
    Release(usize),
    Remove,
    Keep(u8),
    Wait(u64),
}

/// The rules as they are written, on a list.
#[derive(Debug, Default)]
struct Model {
    bindings: Vec<(IpAddr, HostName, Nanos)>,
    /// Each flow's address.
    flows: Vec<IpAddr>,
    kept: Vec<(IpAddr, Nanos)>,
}

impl Model {
    fn is_used(&self, address: IpAddr) -> bool {
        self.flows.contains(&address)
    }

    /// The end of a binding that no flow uses.
    fn end(&self, (address, _, answer_end): &(IpAddr, HostName, Nanos)) -> Nanos {
        let kept = self.kept.iter().filter(|(kept, _)| kept == address).map(|(_, until)| *until);
        kept.chain([*answer_end]).max().expect("one at least")
    }

    fn pass(&mut self, now: Nanos) {
        let mut all = std::mem::take(&mut self.bindings);
        all.retain(|it| self.is_used(it.0) || now < self.end(it));
        self.bindings = all;
        // An address that was forgotten begins anew.
        self.kept.retain(|(_, until)| now < *until);
    }

    fn bind(&mut self, name: &HostName, answer: &[(IpAddr, u32)], now: Nanos) -> usize {
        let most = answer.len().min(LIMITS.unused_per_name);
        let told: BTreeSet<IpAddr> = answer[..most].iter().map(|it| it.0).collect();
        let known: BTreeSet<IpAddr> =
            self.bindings.iter().filter(|it| it.1 == *name).map(|it| it.0).collect();
        let new: Vec<&IpAddr> = told.difference(&known).collect();
        let new_unused = new.iter().filter(|it| !self.is_used(***it)).count();
        let is_own = |it: &&(IpAddr, HostName, Nanos)| it.1 == *name;
        let unused = |it: &&(IpAddr, HostName, Nanos)| !self.flows.contains(&it.0);
        let own = self.bindings.iter().filter(is_own).filter(unused).count() + new_unused;
        for _ in LIMITS.unused_per_name..own {
            self.remove_first(|it| it.1 == *name && !told.contains(&it.0));
        }
        for _ in LIMITS.all..self.bindings.len() + new.len() {
            self.remove_first(|it| it.1 != *name || !told.contains(&it.0));
        }
        for (at, (address, ttl_s)) in answer[..most].iter().enumerate() {
            let end = now.plus(u64::from(*ttl_s.clamp(&60, &86_400)) * 1_000_000_000);
            let count = self.bindings.len();
            let known = self.bindings.iter_mut().find(|it| it.0 == *address && it.1 == *name);
            match known {
                Some(known) => known.2 = known.2.max(end),
                None if count < LIMITS.all => {
                    self.bindings.push((*address, name.clone(), end));
                }
                None => return answer.len() - at,
            }
        }
        answer.len() - most
    }

    fn remove_first(&mut self, may_go: impl Fn(&(IpAddr, HostName, Nanos)) -> bool) {
        let places = 0..self.bindings.len();
        let may = places.filter(|at| {
            let binding = &self.bindings[*at];
            !self.is_used(binding.0) && may_go(binding)
        });
        let first = may.min_by_key(|at| {
            let binding = &self.bindings[*at];
            (self.end(binding), binding.0, binding.1.clone())
        });
        if let Some(at) = first {
            self.bindings.remove(at);
        }
        // An address without names is forgotten, unless flows use it.
        let (bindings, flows) = (&self.bindings, &self.flows);
        self.kept
            .retain(|(kept, _)| flows.contains(kept) || bindings.iter().any(|it| it.0 == *kept));
    }
}

fn step() -> impl Strategy<Value = Step> {
    let answer = vec((0..14u16, prop::sample::select(vec![0, 61, 100, 200_000])), 0..6);
    prop_oneof![
        4 => (0..5u8, answer).prop_map(|(name, answer)| Step::Bind(name, answer)),
        3 => (0..14u16).prop_map(Step::Hold),
        2 => (0..8usize).prop_map(Step::Release),
        1 => Just(Step::Remove),
        1 => (0..5u8).prop_map(Step::Keep),
        3 => (0..50_000_000_000u64).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn bindings_are_those_of_the_written_rules(steps in vec(step(), 0..80)) {
        let (mut bindings, mut model, mut now) = (Bindings::new(LIMITS), Model::default(), at(9));
        for step in steps {
            model.pass(now);
            match step {
                Step::Bind(which, answer) => {
                    let own = name(&format!("n{which}.org"));
                    let answer: Vec<_> =
                        answer.into_iter().map(|(last, ttl)| (address(last), ttl)).collect();
                    let refused = bindings.bind(&own, &answer, now);
                    prop_assert_eq!(refused, model.bind(&own, &answer, now));
                }
                Step::Hold(last) => {
                    let is_bound = model.bindings.iter().any(|it| it.0 == address(last));
                    prop_assert_eq!(bindings.hold(address(last), now), is_bound);
                    model.flows.extend(is_bound.then(|| address(last)));
                }
                Step::Release(which) if which < model.flows.len() => {
                    let address = model.flows.remove(which);
                    bindings.release(address, now);
                    let has_names = model.bindings.iter().any(|it| it.0 == address);
                    if !model.is_used(address) && has_names {
                        model.kept.push((address, now.plus(60_000_000_000)));
                    }
                }
                Step::Release(_) => {}
                Step::Remove => bindings.remove_ended(now),
                Step::Keep(which) => {
                    let gone = name(&format!("n{which}.org"));
                    bindings.retain(|it| *it != gone);
                    model.bindings.retain(|it| it.1 != gone);
                    let Model { bindings, flows, kept } = &mut model;
                    kept.retain(|(kept, _)| {
                        flows.contains(kept) || bindings.iter().any(|it| it.0 == *kept)
                    });
                }
                Step::Wait(ns) => now = now.plus(ns),
            }
            model.pass(now);
            let mut expected: Vec<_> = model.bindings.iter().map(|it| {
                let left = (!model.is_used(it.0)).then(|| model.end(it).since(now));
                (it.0, &it.1, left)
            }).collect();
            expected.sort();
            prop_assert_eq!(bindings.all(now).collect::<Vec<_>>(), expected);
            let first = model.bindings.iter().filter(|it| !model.is_used(it.0));
            let first = first.map(|it| model.end(it)).min();
            if let Some(first) = first {
                let deadline = bindings.deadline().expect("something ends");
                prop_assert!(deadline < first.plus(1_000_000_000));
            }
            prop_assert!(bindings.len() <= LIMITS.all);
            prop_assert!(bindings.len() >= model.bindings.len());
        }
    }
}
