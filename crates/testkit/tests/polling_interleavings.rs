//! A worker that polls loses no wake-up: every interleaving of a driver that sends and a worker
//! that looks, arms, looks once more and sleeps.
//!
//! How: the worker does what `host::polling` does, one step at a time, and asks the real
//! [`Polling`]. Between any two of its steps the driver may publish, ask, or kick. When neither can
//! move any more, everything must have been taken. There is no timer at all.

use std::collections::HashSet;

use ringway_net::Nanos;
use ringway_net::{Next, PollMode, PollOptions, Polling};
use ringway_testkit::pacing::RingModel;
use ringway_virtq::Arm;

const PACKETS: u32 = 3;

/// The time of a step, in nanoseconds: a look is over after a few of them.
const STEP_NS: u64 = 9_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Driver {
    Publish,
    Ask,
    Kick,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Worker {
    /// Kicks off; takes what is there.
    Visit,
    /// Nothing more was there.
    Decide,
    Arm,
    LookAgain,
    Asleep,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Defect {
    None,
    SleepsUnarmed,
    ForgetsSecondLook,
}

#[derive(Debug, Clone)]
struct World {
    driver: Driver,
    worker: Worker,
    ring: RingModel<()>,
    polling: Polling,
    given: u32,
    taken: u32,
    is_kicked: bool,
    now: u64,
    defect: Defect,
}

impl World {
    /// With `short_pauses` behind it, the worker has learned to poll.
    fn new(mode: PollMode, short_pauses: u32, defect: Defect) -> Self {
        let options = PollOptions { mode, budget_percent: 100 };
        let mut polling = Polling::new(options, Nanos(0));
        let mut now = 100_000_000;
        for _ in 0..short_pauses {
            polling.idle(Nanos(now));
            now += 20_000;
            polling.found(Nanos(now));
        }
        Self {
            driver: Driver::Publish,
            worker: Worker::Visit,
            ring: RingModel::default(),
            polling,
            given: 0,
            taken: 0,
            is_kicked: false,
            now,
            defect,
        }
    }

    /// One step of the driver; `false`: it has none.
    fn send(&mut self) -> bool {
        self.driver = match self.driver {
            Driver::Publish if self.given < PACKETS => {
                self.ring.give(());
                self.given += 1;
                Driver::Ask
            }
            Driver::Publish => return false,
            Driver::Ask if self.ring.must_notify() => Driver::Kick,
            Driver::Ask => Driver::Publish,
            Driver::Kick => {
                self.is_kicked = true;
                Driver::Publish
            }
        };
        true
    }

    /// One step of the worker; `false`: it sleeps.
    fn work(&mut self) -> bool {
        self.now += STEP_NS;
        self.worker = match self.worker {
            Worker::Visit => {
                self.ring.arm(Arm::Never);
                let before = self.taken;
                while self.ring.take().is_some() {
                    self.taken += 1;
                }
                if self.taken > before {
                    self.polling.found(Nanos(self.now));
                }
                Worker::Decide
            }
            Worker::Decide => match self.polling.idle(Nanos(self.now)) {
                Next::Look => Worker::Visit,
                Next::Sleep if self.defect == Defect::SleepsUnarmed => Worker::Asleep,
                Next::Sleep => Worker::Arm,
            },
            Worker::Arm => {
                self.ring.arm(Arm::Next);
                Worker::LookAgain
            }
            Worker::LookAgain if self.defect == Defect::ForgetsSecondLook => Worker::Asleep,
            Worker::LookAgain if self.ring.is_empty() => Worker::Asleep,
            Worker::LookAgain => Worker::Visit,
            Worker::Asleep if std::mem::take(&mut self.is_kicked) => Worker::Visit,
            Worker::Asleep => return false,
        };
        true
    }
}

/// Tries every order from here on; the first one that loses a packet, if any does.
fn explore(world: World, seen: &mut HashSet<String>) -> Result<(), String> {
    if !seen.insert(format!("{world:?}")) {
        return Ok(());
    }
    let mut has_moved = false;
    for step in [World::send, World::work] {
        let mut next = world.clone();
        if step(&mut next) {
            has_moved = true;
            explore(next, seen)?;
        }
    }
    match has_moved || world.taken == PACKETS {
        true => Ok(()),
        false => Err(format!("{} of {PACKETS} taken: {world:?}", world.taken)),
    }
}

#[test]
fn no_order_of_steps_loses_a_wake_up() {
    for (mode, short_pauses) in [(PollMode::Never, 0), (PollMode::Auto, 0), (PollMode::Auto, 20)] {
        let world = World::new(mode, short_pauses, Defect::None);
        assert_eq!(world.polling.is_wanted(), short_pauses > 0);
        let mut seen = HashSet::new();
        if let Err(why) = explore(world, &mut seen) {
            panic!("{mode}, {short_pauses} short pauses before: {why}");
        }
        println!("{mode}: {} states", seen.len());
        assert!(seen.len() > 100, "{} states are too few", seen.len());
    }
}

#[test]
fn a_worker_that_sleeps_in_the_wrong_order_is_found() {
    for defect in [Defect::SleepsUnarmed, Defect::ForgetsSecondLook] {
        for short_pauses in [0, 20] {
            let world = World::new(PollMode::Auto, short_pauses, defect);
            let found = explore(world, &mut HashSet::new());
            assert!(found.is_err(), "{defect:?}, {short_pauses} short pauses before");
        }
    }
}
