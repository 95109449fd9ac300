//! No wake-up is lost: every interleaving of a producer and a consumer, in small.
//!
//! Each side does its steps one at a time: publish, ask, notify; take, arm, look once more, sleep.
//! All orders of these steps are tried. When neither side can move any more, everything must have
//! been taken. Timers end only when nothing else can happen: what a policy does not ask a timer for
//! must get there without.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use ringway_net::Nanos;
use ringway_net::moderation::{Cause, Moderator, OutsideEvent, Policy, Role, Visit, VisitPlan};
use ringway_testkit::pacing::RingModel;
use ringway_virtq::Arm;

const PACKETS: u32 = 3;
/// Taken before: what the moderators know of these packets counts.
const PACKETS_BEFORE: u64 = 64;
const POLICIES: [&str; 5] = ["every", "on-empty", "timer:50us", "coalesce:2/50us", "adaptive"];
/// Long packets that go the other way meanwhile.
const REVERSE_PACKETS: u32 = 1;
/// Requests that go to the consumer's peer meanwhile.
const REQUESTS: u32 = 1;
/// Calls about another queue.
const CALLS: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Producer {
    Publish,
    Ask,
    Notify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Consumer {
    Take,
    Arm,
    LookAgain,
    Asleep,
}

/// The kind of the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Short,
    Long,
    /// Short ones; long ones go the other way, and the consumer looks when its owner gives one.
    BesideLong,
    UsedBuffers,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Short, Self::Long, Self::BesideLong, Self::UsedBuffers];

    /// Why an adaptive producer and an adaptive consumer of a stream of them do what they do.
    fn causes(self) -> [Cause; 2] {
        match self {
            Self::Short => [Cause::Batch; 2],
            Self::Long => [Cause::Bulk; 2],
            Self::BesideLong => [Cause::Batch, Cause::Bulk],
            Self::UsedBuffers => [Cause::Batch; 2],
        }
    }
}

#[derive(Debug, Clone)]
struct World {
    producer: Producer,
    consumer: Consumer,
    ring: RingModel<()>,
    produces: Moderator,
    consumes: Moderator,
    given: u32,
    taken: u32,
    moved: u32,
    is_notified: bool,
    timers: [Option<Nanos>; 2],
    now: u64,
    has_timers: bool,
    kind: Kind,
    /// Events that may still happen elsewhere.
    reverse_left: u32,
    requests_left: u32,
    calls_left: u32,
    /// The defect that the test must find.
    forgets_second_look: bool,
}

impl World {
    fn new(policies: [&str; 2], has_timers: bool, kind: Kind) -> Self {
        let moderator =
            |text: &str, role| Moderator::new(text.parse::<Policy>().unwrap(), role, 16);
        let produces = if kind == Kind::UsedBuffers { Role::UsedBuffers } else { Role::Producer };
        Self {
            producer: Producer::Publish,
            consumer: Consumer::Take,
            ring: RingModel::default(),
            produces: moderator(policies[0], produces),
            consumes: moderator(policies[1], Role::Consumer),
            given: 0,
            taken: 0,
            moved: 0,
            is_notified: false,
            timers: [None; 2],
            now: 0,
            has_timers,
            kind,
            reverse_left: if kind == Kind::BesideLong { REVERSE_PACKETS } else { 0 },
            requests_left: REQUESTS,
            calls_left: CALLS,
            forgets_second_look: false,
        }
    }

    /// A world in the middle of a stream of such packets.
    fn streaming(policies: [&str; 2], has_timers: bool, kind: Kind) -> Self {
        let mut world = Self::new(policies, has_timers, kind);
        for _ in 0..PACKETS_BEFORE {
            world.now += 10_000;
            if kind == Kind::BesideLong {
                world.gave_reverse();
            }
            world.produced(1);
            world.consumed(1);
        }
        // The consumer is awake, and arms before it sleeps.
        world.timers = [None; 2];
        world
    }

    fn visit(&self, moved: u32) -> Visit {
        let bulk = if self.kind == Kind::Long { moved } else { 0 };
        Visit { now: Nanos(self.now), moved, bulk, more: false, short: false }
    }

    /// A side without timers does at once what a policy would wait for.
    fn without_timers(&self, plan: VisitPlan) -> VisitPlan {
        let must_wait = plan.wake_at.is_some() && !self.has_timers;
        if must_wait { VisitPlan { notify: true, arm: Arm::Next, wake_at: None } } else { plan }
    }

    fn produced(&mut self, moved: u32) -> Producer {
        let visit = self.visit(moved);
        let plan = self.produces.after(visit);
        let VisitPlan { notify, wake_at, .. } = self.without_timers(plan);
        self.timers[0] = wake_at;
        if notify { Producer::Ask } else { Producer::Publish }
    }

    fn consumed(&mut self, moved: u32) -> Arm {
        let visit = self.visit(moved);
        let plan = self.consumes.after(visit);
        let VisitPlan { arm, wake_at, .. } = self.without_timers(plan);
        self.timers[1] = wake_at;
        arm
    }

    /// One step of the producer; `false`: it has none.
    fn produce(&mut self) -> bool {
        self.producer = match self.producer {
            Producer::Publish if self.given < PACKETS => {
                self.ring.give(());
                self.given += 1;
                self.produced(1)
            }
            Producer::Publish => return false,
            Producer::Ask if self.ring.must_notify() => Producer::Notify,
            Producer::Ask => Producer::Publish,
            Producer::Notify => {
                self.is_notified = true;
                Producer::Publish
            }
        };
        self.passes()
    }

    /// One step of the consumer; `false`: it has none.
    fn consume(&mut self) -> bool {
        self.consumer = match self.consumer {
            Consumer::Take if self.ring.take().is_some() => {
                self.taken += 1;
                self.moved += 1;
                Consumer::Take
            }
            Consumer::Take => Consumer::Arm,
            Consumer::Arm => {
                let moved = std::mem::take(&mut self.moved);
                let arm = self.consumed(moved);
                self.ring.arm(arm);
                Consumer::LookAgain
            }
            Consumer::LookAgain if self.ring.is_empty() || self.forgets_second_look => {
                Consumer::Asleep
            }
            Consumer::LookAgain => Consumer::Take,
            Consumer::Asleep if std::mem::take(&mut self.is_notified) => Consumer::Take,
            Consumer::Asleep => return false,
        };
        self.passes()
    }

    fn passes(&mut self) -> bool {
        self.now += 700;
        true
    }

    fn gave_reverse(&mut self) {
        self.consumes.on(Nanos(self.now), OutsideEvent::Reverse { packets: 1, long: 1 });
    }

    /// The consumer's owner wakes up to give a long packet the other way, and looks here; `false`:
    /// there are no more of them.
    fn reverse(&mut self) -> bool {
        if self.reverse_left == 0 || self.consumer != Consumer::Asleep {
            return false;
        }
        self.reverse_left -= 1;
        self.gave_reverse();
        self.consumer = Consumer::Take;
        self.passes()
    }

    /// A request goes to the peer, where that matters; `false`: it does not, or was there.
    fn request(&mut self) -> bool {
        let is_bulk = [&self.produces, &self.consumes].map(|it| it.state().cause == Cause::Bulk);
        if self.requests_left == 0 || is_bulk == [false; 2] {
            return false;
        }
        self.requests_left -= 1;
        let now = Nanos(self.now);
        self.produces.on(now, OutsideEvent::Request);
        let visit_at = self.consumes.on(now, OutsideEvent::Request);
        self.timers[1] = visit_at.filter(|_| self.has_timers).or(self.timers[1]);
        self.passes()
    }

    /// The consumer's peer is called about another queue; `false`: that makes no difference.
    fn call(&mut self) -> bool {
        if self.calls_left == 0 || self.kind != Kind::UsedBuffers {
            return false;
        }
        self.calls_left -= 1;
        let visit_at = self.produces.on(Nanos(self.now), OutsideEvent::Called);
        self.timers[0] = visit_at.filter(|_| self.has_timers).or(self.timers[0]);
        self.passes()
    }

    /// The sooner timer ends; `false`: none runs.
    fn timer(&mut self) -> bool {
        let Some(at) = self.timers.into_iter().flatten().min() else { return false };
        self.now = self.now.max(at.0);
        if self.timers[0] == Some(at) {
            self.producer = self.produced(0);
        } else {
            self.timers[1] = None;
            self.consumer = Consumer::Take;
        }
        true
    }
}

/// Of everything in it. Among millions of worlds, two with the same hash are as good as impossible.
fn hash(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{world:?}").hash(&mut hasher);
    hasher.finish()
}

/// Tries every order from here on; one that loses a packet, if any does.
///
/// A list of worlds still to be tried, not calls within calls: some orders are longer than the
/// stack is deep.
fn explore(world: World, seen: &mut HashSet<u64>) -> Result<(), String> {
    let mut untried = vec![world];
    while let Some(world) = untried.pop() {
        if !seen.insert(hash(&world)) {
            continue;
        }
        let next = |step: fn(&mut World) -> bool| {
            let mut next = world.clone();
            step(&mut next).then_some(next)
        };
        let before = untried.len();
        let steps = [World::produce, World::consume, World::reverse, World::request, World::call];
        untried.extend(steps.into_iter().filter_map(next));
        if untried.len() > before {
            continue;
        }
        match next(World::timer) {
            Some(next) => untried.push(next),
            None if world.taken == PACKETS => {}
            None => return Err(format!("only {} taken: {world:?}", world.taken)),
        }
    }
    Ok(())
}

#[test]
fn no_order_of_steps_loses_a_wake_up() {
    let pairs = POLICIES.into_iter().flat_map(|one| POLICIES.map(|other| [one, other]));
    for (policies, kind) in pairs.flat_map(|pair| Kind::ALL.map(|kind| (pair, kind))) {
        for has_timers in [true, false] {
            let world = World::streaming(policies, has_timers, kind);
            let moderators = [world.produces, world.consumes];
            for ((policy, moderator), cause) in
                policies.into_iter().zip(moderators).zip(kind.causes())
            {
                if policy == "adaptive" {
                    assert_eq!(moderator.state().cause, cause, "{kind:?} {moderator:?}");
                }
            }
            let mut seen = HashSet::new();
            if let Err(why) = explore(world, &mut seen) {
                panic!("{policies:?}, timers {has_timers}, {kind:?}: {why}");
            }
            assert!(seen.len() > 100, "{} states are too few", seen.len());
        }
    }
}

#[test]
fn a_missing_second_look_is_found() {
    let world = World::new(["every", "on-empty"], false, Kind::Short);
    let world = World { forgets_second_look: true, ..world };
    assert!(explore(world, &mut HashSet::new()).is_err());
}
