//! No notification is lost: random operations on real rings, with every safety timer disabled.
//!
//! A driver and a device work on one queue. Each is awake and does things in a random order, or
//! sleeps until it is notified; a notification is on its way for a random time, and is forgotten
//! if it finds its receiver awake, which is the worst that can happen to one. The policies decide
//! on both sides and in both directions; now and then a side runs out of budget, says so, and comes
//! back before it sleeps, with or without more. When neither side can do anything any more, every
//! buffer must have been there and back.
//!
//! `RINGWAY_SEED` replays a run.

use ringway_driver::Arena;
use ringway_net::Nanos;
use ringway_net::moderation::{Cause, Moderator, OutsideEvent, Policy, Role, Visit, VisitPlan};
use ringway_testkit::{Ring, Rng, TestMemory};
use ringway_virtq::{
    Arm, BufferId, DeviceQueue, DriverQueue, Elements, Head, PackedDevice, PackedDriver, Position,
    QueueOptions, QueueSetup, Regions, SplitDevice, SplitDriver,
};

/// Operations per ring format.
const OPERATIONS: u64 = 10_000_000;
/// Operations per ring format with timers that end when neither side can do anything else.
const TIMED_OPERATIONS: u64 = 2_000_000;
/// Buffers that go round in one world.
const BUFFERS_MAX: u64 = 3_000;
const MEMORY_AT: u64 = 0x10_0000;
const MEMORY_LEN: u64 = 1 << 20;
/// Where buffers are; their content is never read.
const BUFFER: (u64, u32) = (MEMORY_AT, 64);
/// Longest virtual time between two operations.
const STEP_NS_MAX: u64 = 4_000;

const POLICIES: [&str; 8] = [
    "every",
    "on-empty",
    "timer:50us",
    "timer:250us",
    "coalesce:2/50us",
    "coalesce:64/1000us",
    "coalesce:0/0us",
    "adaptive",
];

/// The plan of a side without timers where a policy would wait for one.
const AT_ONCE: VisitPlan = VisitPlan { notify: true, arm: Arm::Next, wake_at: None };

/// The state of a side, beside its half of the ring.
struct Part {
    is_awake: bool,
    /// Decides about what this side gives, and about what it takes.
    moderators: [Moderator; 2],
    /// Buffers staged, and taken since it last slept.
    staged: u32,
    taken: u32,
    /// It has said that it comes back.
    comes_back: bool,
    /// A notification is on its way to it.
    is_called: bool,
    timers: [Option<Nanos>; 2],
}

impl Part {
    /// Under policies chosen at random; what it gives are packets, or used buffers.
    fn new(rng: &mut Rng, size: u16, gives: Role) -> Self {
        let mut moderator = |role| {
            let at = usize::try_from(rng.below(POLICIES.len() as u64)).expect("a few");
            let policy = POLICIES[at].parse::<Policy>().expect("a policy");
            Moderator::new(policy, role, size)
        };
        Self {
            is_awake: true,
            moderators: [moderator(gives), moderator(Role::Consumer)],
            staged: 0,
            taken: 0,
            comes_back: false,
            is_called: false,
            timers: [None; 2],
        }
    }
}

/// How a visit ended: see [`Visit`].
#[derive(Clone, Copy, Default)]
struct Ends {
    more: bool,
    short: bool,
}

/// The switches of a test.
#[derive(Clone, Copy, Default)]
struct Rules {
    /// Timers end, once neither side can do anything else.
    has_timers: bool,
    /// The defect that the test must find.
    forgets_second_look: bool,
}

struct World<D, V> {
    driver: D,
    device: V,
    parts: [Part; 2],
    rules: Rules,
    options: QueueOptions,
    /// Elements of each buffer.
    elements: u16,
    free_ids: Vec<BufferId>,
    inside: Vec<Head>,
    added: u64,
    returned: u64,
    total: u64,
    now: u64,
    /// When a request goes to the peer; `None`: not any more, or not at all.
    request_at: Option<u64>,
    /// Whether bulk was held, by a producer and by a consumer; whether packets that go the other
    /// way, requests, and calls about another queue have made a difference.
    met: Met,
    regions: Regions,
    seen: Elements,
    _memory: TestMemory,
}

#[derive(Debug, Clone, Copy, Default)]
struct Met {
    bulk: [bool; 2],
    request: bool,
    call: bool,
}

/// A request comes within the first so many nanoseconds of a world, if it comes.
const REQUEST_NS_MAX: u64 = 10_000_000;

const DRIVER: usize = 0;
const DEVICE: usize = 1;
const GIVES: usize = 0;
const TAKES: usize = 1;

impl<D: DriverQueue, V: DeviceQueue> World<D, V> {
    fn new(rng: &mut Rng, event_idx: bool, rules: Rules) -> Self {
        let size = 1u16 << rng.between(0, 8);
        let options = QueueOptions {
            event_idx,
            indirect: rng.one_in(2),
            in_order: rng.one_in(4),
            notify_on_empty: rng.one_in(4),
        };
        let memory = TestMemory::new(&[(MEMORY_AT, MEMORY_LEN)]).expect("memory");
        let regions = memory.regions();
        let mut arena = Arena::new(memory.region(0), MEMORY_AT);
        let ring = Ring::carve(&mut arena, D::FORMAT, size, options).expect("room");
        let setup = QueueSetup { size, areas: ring.areas(), position: Position::FRESH, options };
        let driver = ring.start(options);
        let mut device = V::start(&setup, &regions).expect("a right setup");
        device.arm_kicks(Arm::Next);
        // A transmitq gives used buffers.
        let gives = if rng.one_in(2) { Role::UsedBuffers } else { Role::Producer };
        Self {
            driver,
            device,
            parts: [Part::new(rng, size, Role::Producer), Part::new(rng, size, gives)],
            rules,
            options,
            elements: 1 + u16::try_from(rng.below(2)).expect("small").min(size - 1),
            free_ids: (0..size).map(BufferId).collect(),
            inside: Vec::new(),
            added: 0,
            returned: 0,
            total: rng.between(1, BUFFERS_MAX),
            now: 0,
            request_at: rng.one_in(2).then(|| rng.below(REQUEST_NS_MAX)),
            met: Met::default(),
            regions,
            seen: Elements::new(),
            _memory: memory,
        }
    }

    /// Does one thing that can be done, chosen at random; `false`: there is none.
    fn step(&mut self, rng: &mut Rng) -> bool {
        const MOVES: u64 = 10;
        self.now += rng.below(STEP_NS_MAX);
        let first = rng.below(MOVES);
        (0..MOVES).any(|at| self.perform((first + at) % MOVES, rng))
    }

    fn perform(&mut self, what: u64, rng: &mut Rng) -> bool {
        let [driver, device] = [&self.parts[DRIVER], &self.parts[DEVICE]].map(|one| one.is_awake);
        match what {
            0 => driver && self.add(),
            1 => driver && self.publish_added(rng.one_in(4)),
            2 => driver && self.take_used(),
            3 => driver && self.driver_sleeps(),
            4 => device && self.take(),
            5 => device && self.put_back(rng),
            6 => device && self.publish_used(rng.one_in(4)),
            7 => device && self.device_sleeps(),
            8 => self.arrives(DRIVER) || self.arrives(DEVICE),
            // There is another packet for a driver that sleeps and has room.
            _ => !driver && self.can_add() && self.wakes(DRIVER),
        }
    }

    fn can_add(&self) -> bool {
        self.added < self.total && self.driver.free() >= self.elements
    }

    fn add(&mut self) -> bool {
        if !self.can_add() {
            return false;
        }
        let Some(id) = self.free_ids.pop() else { return false };
        let buffer = [BUFFER; 2];
        self.driver.add(&buffer[..usize::from(self.elements)], &[], id).expect("there is room");
        self.added += 1;
        self.parts[DRIVER].staged += 1;
        true
    }

    fn publish_added(&mut self, more: bool) -> bool {
        let staged = std::mem::take(&mut self.parts[DRIVER].staged);
        if staged == 0 {
            return false;
        }
        self.driver.publish();
        let short = self.driver.free() < self.elements;
        self.gave(DRIVER, staged, Ends { more, short });
        true
    }

    fn take_used(&mut self) -> bool {
        let Some(used) = self.driver.pop_used().expect("a right device") else { return false };
        self.free_ids.push(used.id);
        self.returned += 1;
        self.parts[DRIVER].taken += 1;
        true
    }

    fn driver_sleeps(&mut self) -> bool {
        if self.parts[DRIVER].staged > 0 {
            return false;
        }
        if self.comes_back(DRIVER) {
            return true;
        }
        let taken = std::mem::take(&mut self.parts[DRIVER].taken);
        let plan = self.decide(DRIVER, TAKES, taken, Ends::default());
        let look_again = self.driver.arm_calls(plan.arm);
        self.parts[DRIVER].is_awake = look_again && !self.rules.forgets_second_look;
        true
    }

    fn take(&mut self) -> bool {
        let mut at = self.device.cursor();
        let peeked = self.device.peek(&mut at, &self.regions, &mut self.seen);
        let Some(head) = peeked.expect("a right driver") else { return false };
        self.device.pop(head);
        self.inside.push(head);
        self.parts[DEVICE].taken += 1;
        true
    }

    fn put_back(&mut self, rng: &mut Rng) -> bool {
        if self.inside.is_empty() {
            return false;
        }
        let at = match self.options.in_order {
            true => 0,
            false => usize::try_from(rng.below(self.inside.len() as u64)).expect("a few"),
        };
        let head = self.inside.remove(at);
        self.device.add_used(head, 0);
        self.parts[DEVICE].staged += 1;
        true
    }

    fn publish_used(&mut self, more: bool) -> bool {
        let staged = std::mem::take(&mut self.parts[DEVICE].staged);
        if staged == 0 {
            return false;
        }
        self.device.publish();
        self.gave(DEVICE, staged, Ends { more, short: false });
        true
    }

    /// The policy decides about the buffers that a side has published, and the peer is notified.
    fn gave(&mut self, part: usize, moved: u32, ends: Ends) {
        self.parts[part].comes_back = ends.more;
        let notify = self.decide(part, GIVES, moved, ends).notify;
        match part {
            DRIVER if notify && self.driver.must_kick() => self.parts[DEVICE].is_called = true,
            DEVICE if notify => self.calls(),
            _ => {}
        }
    }

    /// A side that said so comes back, and has nothing more.
    fn comes_back(&mut self, part: usize) -> bool {
        let comes_back = self.parts[part].comes_back;
        if comes_back {
            self.gave(part, 0, Ends::default());
        }
        comes_back
    }

    /// The device calls if the driver wants it.
    fn calls(&mut self) {
        self.parts[DRIVER].is_called |= self.device.must_call();
    }

    fn device_sleeps(&mut self) -> bool {
        if self.parts[DEVICE].staged > 0 || !self.inside.is_empty() {
            return false;
        }
        if self.comes_back(DEVICE) {
            return true;
        }
        let taken = std::mem::take(&mut self.parts[DEVICE].taken);
        let plan = self.decide(DEVICE, TAKES, taken, Ends::default());
        let look_again = self.device.arm_kicks(plan.arm);
        self.parts[DEVICE].is_awake = look_again && !self.rules.forgets_second_look;
        true
    }

    /// A notification finds its receiver asleep, or is forgotten.
    fn arrives(&mut self, part: usize) -> bool {
        std::mem::take(&mut self.parts[part].is_called) && self.wakes(part)
    }

    fn wakes(&mut self, part: usize) -> bool {
        self.parts[part].is_awake = true;
        true
    }

    fn decide(&mut self, part: usize, direction: usize, moved: u32, ends: Ends) -> VisitPlan {
        let Ends { more, short } = ends;
        let now = Nanos(self.now);
        // Long packets for a while, then short ones.
        let bulk = if self.now >> 20 & 1 == 1 { moved } else { 0 };
        let visit = Visit { now, moved, bulk, more, short };
        let part = &mut self.parts[part];
        let moderator = &mut part.moderators[direction];
        let was_bulk = moderator.state().cause == Cause::Bulk;
        if !(self.now >> 18).is_multiple_of(3) {
            moderator.on(now, OutsideEvent::Reverse { packets: 1, long: 1 });
        }
        if (self.now >> 16).is_multiple_of(3) {
            let called = moderator.on(now, OutsideEvent::Called);
            self.met.call |= called.is_some();
        }
        // It counts for longer than most worlds last: only half of them have one.
        if was_bulk && self.request_at.is_some_and(|at| self.now >= at) {
            (self.met.request, self.request_at) = (true, None);
            moderator.on(now, OutsideEvent::Request);
        }
        let plan = match moderator.after(visit) {
            VisitPlan { wake_at: Some(_), .. } if !self.rules.has_timers => AT_ONCE,
            plan => plan,
        };
        self.met.bulk[direction] |= moderator.state().cause == Cause::Bulk;
        part.timers[direction] = plan.wake_at;
        plan
    }

    /// The next timer ends; `false`: none runs.
    fn end_timer(&mut self) -> bool {
        let all = [(DRIVER, GIVES), (DRIVER, TAKES), (DEVICE, GIVES), (DEVICE, TAKES)];
        let running = all.into_iter().filter_map(|(part, direction)| {
            Some((self.parts[part].timers[direction]?, part, direction))
        });
        let Some((at, part, direction)) = running.min_by_key(|(at, ..)| *at) else { return false };
        self.now = self.now.max(at.0);
        self.parts[part].timers[direction] = None;
        if direction == TAKES {
            return self.wakes(part);
        }
        self.gave(part, 0, Ends::default());
        true
    }

    /// Runs until all buffers are back; how many operations that took.
    fn run(&mut self, rng: &mut Rng) -> Result<u64, String> {
        let mut operations = 0;
        while self.returned < self.total {
            operations += 1;
            let goes_on = self.step(rng) || self.rules.has_timers && self.end_timer();
            if !goes_on {
                let Self { added, returned, total, options, .. } = self;
                let policies = self.parts.each_ref().map(|part| part.moderators);
                return Err(format!(
                    "both sleep: {returned} of {added} are back, {total} in all, \
                     ring of {} with {options:?}, {policies:?}",
                    self.device.size(),
                ));
            }
        }
        Ok(operations)
    }
}

/// World after world until there were so many operations.
fn operate<D: DriverQueue, V: DeviceQueue>(
    name: &str,
    event_idx: bool,
    rules: Rules,
    operations: u64,
) -> Result<(), String> {
    let mut rng = Rng::from_environment(name, 5);
    let (mut done, mut worlds) = (0, 0);
    let mut met = [0u32; 4];
    while done < operations {
        let mut world = World::<D, V>::new(&mut rng, event_idx, rules);
        done += world.run(&mut rng)?;
        worlds += 1;
        let Met { bulk: [produced, consumed], request, call } = world.met;
        let has = [produced, consumed, request, call];
        met.iter_mut().zip(has).for_each(|(met, has)| *met += u32::from(has));
    }
    println!(
        "{name}: {done} operations in {worlds} worlds; bulk produced, bulk consumed, requests, \
         calls: {met:?}"
    );
    assert!(met.iter().all(|met| *met > 0) || operations < TIMED_OPERATIONS, "{met:?}");
    Ok(())
}

fn nothing_is_lost<D: DriverQueue, V: DeviceQueue>(name: &str, event_idx: bool) {
    let timed = Rules { has_timers: true, ..Rules::default() };
    for (rules, operations) in [(Rules::default(), OPERATIONS), (timed, TIMED_OPERATIONS)] {
        if let Err(why) = operate::<D, V>(name, event_idx, rules, operations) {
            panic!("{name}: {why}");
        }
    }
}

#[test]
fn split_with_flags() {
    nothing_is_lost::<SplitDriver, SplitDevice>("split, flags", false);
}

#[test]
fn split_with_event_idx() {
    nothing_is_lost::<SplitDriver, SplitDevice>("split, EVENT_IDX", true);
}

#[test]
fn packed_with_flags() {
    nothing_is_lost::<PackedDriver, PackedDevice>("packed, flags", false);
}

#[test]
fn packed_with_event_idx() {
    nothing_is_lost::<PackedDriver, PackedDevice>("packed, EVENT_IDX", true);
}

#[test]
fn a_missing_second_look_is_found() {
    let rules = Rules { forgets_second_look: true, ..Rules::default() };
    for event_idx in [false, true] {
        let split = operate::<SplitDriver, SplitDevice>("defect", event_idx, rules, 100_000);
        let packed = operate::<PackedDriver, PackedDevice>("defect", event_idx, rules, 100_000);
        assert!(split.is_err() && packed.is_err(), "{split:?} {packed:?}");
    }
}
