//! No wake-up is lost: every interleaving of a side that gives and a side that takes, in small.
//!
//! Each side does its steps one at a time: publish, ask, notify; take, arm, look once more, sleep.
//! All orders of these steps are tried. When nobody can move any more, everything must have been
//! taken. Timers end only when nobody else can move: what a policy does not ask a timer for must
//! get there without.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use ringway_net::notify::{Cause, Nanos, Notifier, Policy, Side, Visit};
use ringway_testkit::pacing::Direction;
use ringway_virtq::Arm;

const PACKETS: u32 = 3;
/// Fewer where long ones go the other way, too: their orders multiply.
const PACKETS_BESIDE_LONG: u32 = 2;
/// So many the taker has taken before, of the same length: what it knows of them may count.
const PACKETS_BEFORE: u64 = 64;
const POLICIES: [&str; 5] = ["every", "on-empty", "timer:50us", "coalesce:2/50us", "adaptive"];
/// What a giver of used buffers does under the last of these, beside a stream.
const RETURNS: &str = "returns";
/// Long packets that go the other way meanwhile.
const LONG_PACKETS: u32 = 2;
/// Questions that the taker's peer is asked meanwhile.
const QUESTIONS: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Giver {
    Publish,
    Ask,
    Notify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Taker {
    Take,
    Arm,
    LookAgain,
    Asleep,
}

/// What the packets are, which may be treated in another way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Short,
    Long,
    /// Short ones; long ones go the other way, and the taker looks when it gives one of those.
    BesideLong,
    /// Acknowledgements of a stream the other way; one of three is something else.
    Acknowledgements,
}

impl Kind {
    /// How many are given.
    fn packets(self) -> u32 {
        if self == Self::BesideLong { PACKETS_BESIDE_LONG } else { PACKETS }
    }

    /// Why an adaptive giver and an adaptive taker of a stream of them do what they do; `None`: for a reason
    /// that the traffic gives anyway.
    fn causes(self) -> [Option<Cause>; 2] {
        match self {
            Self::Short => [None; 2],
            Self::Long => [Some(Cause::Long); 2],
            Self::BesideLong => [None, Some(Cause::AwakeAnyway)],
            Self::Acknowledgements => [Some(Cause::Acknowledges), None],
        }
    }
}

#[derive(Debug, Clone)]
struct World {
    giver: Giver,
    taker: Taker,
    ring: Direction<()>,
    gives: Notifier,
    takes: Notifier,
    given: u32,
    taken: u32,
    moved: u32,
    is_notified: bool,
    timers: [Option<Nanos>; 2],
    now: u64,
    has_timers: bool,
    kind: Kind,
    /// Long packets still to go the other way.
    beside: u32,
    /// One of them went since the taker's owner last looked.
    has_passed: bool,
    /// Questions so far.
    asked: u32,
    /// The defect that the test must find.
    forgets_second_look: bool,
}

impl World {
    fn new(gives: &str, takes: &str, has_timers: bool) -> Self {
        let notifier = |text: &str| match text {
            RETURNS => Notifier::for_returns(Policy::Adaptive, 16),
            text => Notifier::new(text.parse::<Policy>().unwrap(), 16),
        };
        Self {
            giver: Giver::Publish,
            taker: Taker::Take,
            ring: Direction::default(),
            gives: notifier(gives),
            takes: notifier(takes),
            given: 0,
            taken: 0,
            moved: 0,
            is_notified: false,
            timers: [None; 2],
            now: 0,
            has_timers,
            kind: Kind::Short,
            beside: 0,
            has_passed: false,
            asked: QUESTIONS,
            forgets_second_look: false,
        }
    }

    /// A world in the middle of a stream of such packets.
    fn streaming(gives: &str, takes: &str, has_timers: bool, kind: Kind) -> Self {
        let beside = if kind == Kind::BesideLong { LONG_PACKETS } else { 0 };
        let mut world = Self { kind, beside, ..Self::new(gives, takes, has_timers) };
        for _ in 0..PACKETS_BEFORE {
            world.now += 10_000;
            world.has_passed = kind == Kind::BesideLong;
            world.decide(Side::Gives, 1);
            world.decide(Side::Takes, 1);
        }
        world.gives.beside_stream(Nanos(world.now - 1));
        world.gives.beside_stream(Nanos(world.now));
        // The taker is awake, and arms before it sleeps.
        world.timers = [None; 2];
        world
    }

    fn decide(&mut self, side: Side, moved: u32) -> (bool, Arm) {
        let visit = Visit { now: Nanos(self.now), side, moved, more: false, short: false };
        let notifier = if side == Side::Gives { &mut self.gives } else { &mut self.takes };
        notifier.carried(if self.kind == Kind::Long { moved.into() } else { 0 });
        if self.kind == Kind::Acknowledgements && self.given % 3 != 2 {
            notifier.only_acknowledges(150_000);
        }
        if side == Side::Takes && std::mem::take(&mut self.has_passed) {
            notifier.looked(1, 1);
        }
        let plan = match self.has_timers {
            true => notifier.after(visit),
            false => notifier.without_timer(visit),
        };
        self.timers[usize::from(side == Side::Takes)] = plan.wake_at;
        (plan.notify, plan.arm)
    }

    /// One step of the giver; `false`: it has none.
    fn give(&mut self) -> bool {
        self.giver = match self.giver {
            Giver::Publish if self.given < self.kind.packets() => {
                self.ring.give(());
                self.given += 1;
                self.moved_by_giver(1)
            }
            Giver::Publish => return false,
            Giver::Ask => match self.ring.must_notify() {
                true => Giver::Notify,
                false => Giver::Publish,
            },
            Giver::Notify => {
                self.is_notified = true;
                Giver::Publish
            }
        };
        self.now += 700;
        true
    }

    fn moved_by_giver(&mut self, moved: u32) -> Giver {
        match self.decide(Side::Gives, moved) {
            (true, _) => Giver::Ask,
            (false, _) => Giver::Publish,
        }
    }

    /// One step of the taker; `false`: it has none.
    fn take(&mut self) -> bool {
        self.taker = match self.taker {
            Taker::Take => match self.ring.take() {
                Some(()) => {
                    self.taken += 1;
                    self.moved += 1;
                    Taker::Take
                }
                None => Taker::Arm,
            },
            Taker::Arm => {
                let moved = std::mem::take(&mut self.moved);
                let (_, arm) = self.decide(Side::Takes, moved);
                self.ring.arm(arm);
                Taker::LookAgain
            }
            Taker::LookAgain if self.ring.is_empty() || self.forgets_second_look => Taker::Asleep,
            Taker::LookAgain => Taker::Take,
            Taker::Asleep if std::mem::take(&mut self.is_notified) => Taker::Take,
            Taker::Asleep => return false,
        };
        self.now += 700;
        true
    }

    /// The taker's owner wakes up to give a long packet the other way, and looks; `false`: no more of them.
    fn pass_beside(&mut self) -> bool {
        if self.beside == 0 || self.taker != Taker::Asleep {
            return false;
        }
        self.beside -= 1;
        self.has_passed = true;
        self.taker = Taker::Take;
        self.now += 700;
        true
    }

    /// Somebody asks the peer: both hear of it. As in the worker, a taker that lingers is then visited.
    fn ask(&mut self) -> bool {
        let lingers = self.gives.keeps_waiting() || self.takes.keeps_waiting();
        if self.asked == QUESTIONS || !lingers {
            return false;
        }
        self.asked += 1;
        let now = Nanos(self.now);
        self.gives.peer_was_asked(now);
        self.takes.peer_was_asked(now);
        if self.takes.keeps_waiting()
            && let Some(wake_at) = &mut self.timers[1]
        {
            *wake_at = now;
        }
        self.now += 700;
        true
    }

    /// The sooner timer ends; `false`: none runs.
    fn timer(&mut self) -> bool {
        let Some(at) = self.timers.into_iter().flatten().min() else { return false };
        self.now = self.now.max(at.0);
        if self.timers[0] == Some(at) {
            self.giver = self.moved_by_giver(0);
        } else {
            self.timers[1] = None;
            self.taker = Taker::Take;
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
/// A list of worlds still to be tried, not calls within calls: some orders are longer than the stack is deep.
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
        let before_timers = untried.len();
        let steps = [World::give, World::take, World::pass_beside, World::ask];
        untried.extend(steps.into_iter().filter_map(next));
        if untried.len() > before_timers {
            continue;
        }
        match next(World::timer) {
            Some(next) => untried.push(next),
            None if world.taken == world.kind.packets() => {}
            None => return Err(format!("only {} taken: {world:?}", world.taken)),
        }
    }
    Ok(())
}

#[test]
fn no_order_of_steps_loses_a_wake_up() {
    for (gives, takes) in
        POLICIES.into_iter().chain([RETURNS]).flat_map(|gives| POLICIES.map(|takes| (gives, takes)))
    {
        // Somebody asks: that needs one that keeps him waiting.
        let is_asked = |kind: Kind| {
            let keeps_waiting = |cause| matches!(cause, Some(Cause::Long | Cause::AwakeAnyway));
            [gives, takes]
                .into_iter()
                .zip(kind.causes())
                .any(|it| it.0 == "adaptive" && keeps_waiting(it.1))
        };
        let kinds = [Kind::Short, Kind::Long, Kind::BesideLong, Kind::Acknowledgements].into_iter();
        let kinds = kinds.flat_map(|kind| [(kind, false), (kind, true)]);
        for (kind, asks) in kinds.filter(|&(kind, asks)| !asks || is_asked(kind)) {
            for has_timers in [true, false] {
                let mut world = World::streaming(gives, takes, has_timers, kind);
                world.asked = if asks { 0 } else { QUESTIONS };
                let sides = [(gives, world.gives), (takes, world.takes)];
                for ((policy, notifier), cause) in sides.into_iter().zip(kind.causes()) {
                    let special = [Cause::Long, Cause::AwakeAnyway, Cause::Acknowledges];
                    let special = special.contains(&notifier.cause());
                    let seen = special.then(|| notifier.cause());
                    let expected = cause.filter(|_| policy == "adaptive");
                    assert_eq!(seen, expected, "{policy}, {kind:?}");
                }
                let mut seen = HashSet::new();
                if let Err(why) = explore(world, &mut seen) {
                    panic!("{gives} to {takes}, timers {has_timers}, {kind:?}: {why}");
                }
                assert!(seen.len() > 100, "{} states are too few", seen.len());
            }
        }
    }
}

#[test]
fn a_missing_second_look_is_found() {
    let world = World { forgets_second_look: true, ..World::new("every", "on-empty", false) };
    assert!(explore(world, &mut HashSet::new()).is_err());
}
