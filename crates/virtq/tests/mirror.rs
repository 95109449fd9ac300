//! Every driver queue against its device queue over one memory: one test body for both formats.
//!
//! How: random operations on both ends, next to a model which knows what each must see: contents,
//! ids, lengths, order, free descriptors, and who must be woken. A failing seed is printed;
//! `RINGWAY_SEED=n` replays it.

mod common;

use std::collections::VecDeque;

use common::{Memory, Rng, Seed};
use ringway_virtq::{
    Arm, BufferId, Cursor, DeviceQueue, DriverQueue, Elements, Format, Head, INDIRECT_ELEMENTS_MAX,
    Layout, PackedDevice, PackedDriver, Position, QueueFull, QueueOptions, QueueSetup, Regions,
    Returned, SharedSlice, SplitDevice, SplitDriver, Used,
};

/// Operations of all cases of one format together.
const OPERATIONS: usize = 3_000_000;
/// Payload bytes that belong to one buffer id.
const SLOT: usize = 64;
const ELEMENTS_PER_BUFFER_MAX: usize = 40;

/// One buffer as the model knows it.
#[derive(Debug, Clone)]
struct Buffer {
    id: u16,
    readable: Vec<(u64, u32)>,
    writable: Vec<(u64, u32)>,
    stamp: u8,
    descriptors: u16,
    /// The device's result.
    head: Option<Head>,
    written: u32,
}

/// One sleeping side: woken at the latest when the total reaches `at`.
#[derive(Debug, Clone, Copy, Default)]
struct Wake {
    at: Option<u64>,
    never: bool,
}

impl Wake {
    /// After the other side has asked whether it must notify.
    fn check(&mut self, notified: bool, total: u64, may_be_needless: bool) {
        assert!(
            !notified || !self.never || may_be_needless,
            "notified although the peer does not want it"
        );
        if notified {
            self.at = None;
        }
        assert!(self.at.is_none_or(|at| total < at), "a lost wake-up: asleep at {total}");
    }

    fn arm(&mut self, arm: Arm, saw_work: bool, total: u64) {
        self.never = arm == Arm::Never;
        let further = match arm {
            Arm::Never => None,
            Arm::Next => Some(1),
            Arm::After(buffers) => Some(u64::from(buffers.max(1))),
        };
        self.at = further.filter(|_| !saw_work).map(|further| total + further);
    }
}

struct Mirror<D, V> {
    rng: Rng,
    options: QueueOptions,
    driver: D,
    device: V,
    regions: Regions,
    elements: Elements,
    payload: SharedSlice,
    payload_address: u64,
    free_ids: Vec<u16>,
    /// Whether ids are those that the driver names. A split ring names descriptors, so that all
    /// must be.
    takes_next: bool,
    free: u16,
    staged: VecDeque<Buffer>,
    available: VecDeque<Buffer>,
    /// Peeked and not popped: the front of `available`, with the cursor behind each.
    window: Vec<(Head, Cursor)>,
    popped: Vec<Buffer>,
    staged_used: VecDeque<Buffer>,
    used: VecDeque<Buffer>,
    /// Buffers that came back and were not added since, and how many were staged again as they
    /// were.
    back: VecDeque<(Returned, Buffer)>,
    repeated: u64,
    /// Totals of buffers: published by each side, popped by each side.
    made_available: u64,
    taken: u64,
    made_used: u64,
    returned: u64,
    unasked_kick: u64,
    unasked_call: u64,
    kick: Wake,
    call: Wake,
    is_first_call: bool,
    stamp: u8,
    /// Keeps the memory mapped.
    _memory: Memory,
}

impl<D: DriverQueue, V: DeviceQueue> Mirror<D, V> {
    fn new(size: u16, options: QueueOptions, seed: u64) -> Self {
        let ring_len = Layout::of(D::FORMAT, size, options).len as usize;
        let mut memory = Memory::new(ring_len + SLOT * usize::from(size));
        let regions = memory.regions();
        let (ring, payload) = memory.share().split_at(ring_len);
        let driver = D::new(ring, Memory::BASE, size, options);
        let setup = QueueSetup { size, areas: driver.areas(), position: Position::FRESH, options };
        let device = V::start(&setup, &regions).expect("a right setup");
        let mut rng = Rng::new(seed);
        Self {
            takes_next: rng.below(2) == 0,
            rng,
            options,
            driver,
            device,
            regions,
            elements: Elements::new(),
            payload,
            payload_address: Memory::BASE + ring_len as u64,
            free_ids: (0..size).collect(),
            free: size,
            staged: VecDeque::new(),
            available: VecDeque::new(),
            window: Vec::new(),
            popped: Vec::new(),
            staged_used: VecDeque::new(),
            used: VecDeque::new(),
            back: VecDeque::new(),
            repeated: 0,
            made_available: 0,
            taken: 0,
            made_used: 0,
            returned: 0,
            unasked_kick: 0,
            unasked_call: 0,
            kick: Wake::default(),
            call: Wake::default(),
            is_first_call: true,
            stamp: 0,
            _memory: memory,
        }
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..12 => self.add(),
            12..22 => self.add_again(),
            22..32 => self.publish_available(),
            32..37 => self.ask_kick(),
            37..57 => self.peek(),
            57..59 => self.window.clear(),
            59..66 => self.pop(),
            66..76 => self.add_used(),
            76..82 => self.publish_used(),
            82..86 => self.ask_call(),
            86..95 => self.pop_used(),
            95..97 => self.arm_kicks(),
            97..99 => self.arm_calls(),
            _ => self.move_device(),
        }
        assert_eq!(self.driver.free(), self.free, "free descriptors");
        let in_flight = usize::from(self.driver.size()) - self.free_ids.len();
        assert_eq!(usize::from(self.driver.in_flight()), in_flight, "buffers");
    }

    // The driver's side.

    fn add(&mut self) {
        if self.free_ids.is_empty() {
            return;
        }
        let mut pick = self.rng.index(self.free_ids.len());
        let next = self.driver.next_id();
        assert_eq!(next.is_some(), self.free > 0);
        if let Some(next) = next
            && self.takes_next
            && (D::FORMAT == Format::Split || self.rng.below(4) > 0)
        {
            let is_next = |&id: &u16| BufferId(id) == next;
            pick = self.free_ids.iter().position(is_next).expect("no buffer has it");
        }
        let id = self.free_ids[pick];
        self.back.retain(|(_, back)| back.id != id);
        let buffer = self.random_buffer(id);
        let count = buffer.readable.len() + buffer.writable.len();
        let fits = count <= usize::from(self.driver.size()) && buffer.descriptors <= self.free;
        let added = self.driver.add(&buffer.readable, &buffer.writable, BufferId(id));
        assert_eq!(added, if fits { Ok(()) } else { Err(QueueFull) }, "{count} elements");
        if fits {
            self.free_ids.swap_remove(pick);
            self.free -= buffer.descriptors;
            self.staged.push_back(buffer);
        }
    }

    /// Some of what came back, as it was; what the ring will not have is left for `add`.
    fn add_again(&mut self) {
        let most = self.rng.index(self.back.len() + 1);
        let returned: Vec<Returned> = self.back.iter().take(most).map(|(back, _)| *back).collect();
        let refused = BufferId(u16::try_from(self.rng.below(100)).expect("small"));
        let count = self.driver.add_again(&returned, |id| id != refused);
        for _ in 0..count {
            let (_, buffer) = self.back.pop_front().expect("no more than it was given");
            assert!(buffer.descriptors == 1 && !buffer.writable.is_empty(), "{buffer:?}");
            assert_ne!(BufferId(buffer.id), refused);
            self.free_ids.retain(|&id| id != buffer.id);
            self.free -= 1;
            self.staged.push_back(buffer);
            self.repeated += 1;
        }
        if count < most {
            self.back.pop_front();
        }
    }

    /// Elements that follow each other in the id's slot; what the device reads is stamped.
    fn random_buffer(&mut self, id: u16) -> Buffer {
        let count = match self.rng.below(20) {
            0 => 1 + self.rng.index(ELEMENTS_PER_BUFFER_MAX),
            1..8 => 2 + self.rng.index(3),
            _ => 1,
        };
        let readable = self.rng.index(count + 1);
        let longest = u32::try_from(SLOT / count).expect("small");
        let mut from = usize::from(id) * SLOT;
        let mut elements = Vec::new();
        for _ in 0..count {
            let len = 1 + self.rng.below(longest);
            elements.push((self.payload_address + from as u64, len));
            from += len as usize;
        }
        self.stamp = self.stamp.wrapping_add(1);
        for (at, &(address, len)) in elements[..readable].iter().enumerate() {
            let stamp = self.stamp.wrapping_add(u8::try_from(at).expect("few"));
            self.memory_at(address, len as usize).write(0, &[stamp; SLOT][..len as usize]);
        }
        let in_table = self.options.indirect && (2..=INDIRECT_ELEMENTS_MAX).contains(&count);
        let writable = elements.split_off(readable);
        Buffer {
            id,
            readable: elements,
            writable,
            stamp: self.stamp,
            descriptors: if in_table { 1 } else { u16::try_from(count).expect("few") },
            head: None,
            written: 0,
        }
    }

    fn publish_available(&mut self) {
        self.driver.publish();
        self.made_available += self.staged.len() as u64;
        self.unasked_kick += self.staged.len() as u64;
        self.available.append(&mut self.staged);
    }

    fn ask_kick(&mut self) {
        let must = self.driver.must_kick();
        assert!(!must || self.unasked_kick > 0, "a kick for nothing");
        self.unasked_kick = 0;
        self.kick.check(must, self.made_available, false);
    }

    fn pop_used(&mut self) {
        let mut used = None;
        self.driver.take_used(1, |returned| used = Some(returned)).expect("a right device");
        let Some(expected) = self.used.pop_front() else {
            assert_eq!(used, None);
            return;
        };
        let used = used.expect("a used buffer");
        assert_eq!((used.id.0, used.len), (expected.id, expected.written));
        let mut left = expected.written as usize;
        for &(address, len) in &expected.writable {
            let len = left.min(len as usize);
            let mut bytes = [0; SLOT];
            self.memory_at(address, len).read(0, &mut bytes[..len]);
            assert!(bytes[..len].iter().all(|&byte| byte == !expected.stamp), "written bytes");
            left -= len;
        }
        self.returned += 1;
        self.free += expected.descriptors;
        self.free_ids.push(expected.id);
        self.back.push_back((used, Buffer { head: None, written: 0, ..expected }));
    }

    fn arm_calls(&mut self) {
        let arm = self.random_arm();
        // More than is in flight cannot come; the queue counts only that much.
        let in_flight = self.made_available - self.returned;
        let arm = match arm {
            Arm::After(buffers) => {
                Arm::After(buffers.min(u16::try_from(in_flight).expect("at most the size")))
            }
            other => other,
        };
        let saw_work = self.driver.arm_calls(arm);
        assert_eq!(saw_work, arm != Arm::Never && !self.used.is_empty(), "{arm:?}");
        self.call.arm(arm, saw_work, self.made_used);
    }

    // The device's side.

    fn peek(&mut self) {
        let mut at = self.window.last().map_or(self.device.cursor(), |&(_, behind)| behind);
        let one = self.device.peek_one(at, &self.regions);
        let peeked = self.device.peek(&mut at, &self.regions, &mut self.elements);
        let head = peeked.expect("a right driver");
        let Some(expected) = self.available.get(self.window.len()) else {
            assert_eq!(head, None);
            return;
        };
        let head = head.expect("an available buffer");
        if D::FORMAT == Format::Packed {
            let Buffer { id, descriptors, .. } = *expected;
            assert_eq!((head.id, head.descriptors), (id, descriptors));
        }
        self.check_elements(expected);
        // One element is found in fewer steps as well.
        let is_one = expected.readable.len() + expected.writable.len() == 1;
        assert_eq!(one.map(|one| one.head), is_one.then_some(head));
        self.window.push((head, at));
    }

    fn check_elements(&self, expected: &Buffer) {
        let same = |elements: &[SharedSlice], wanted: &[(u64, u32)]| {
            assert_eq!(elements.len(), wanted.len());
            for (element, &(address, len)) in elements.iter().zip(wanted) {
                assert_eq!(element.as_ptr(), self.memory_at(address, len as usize).as_ptr());
                assert_eq!(element.len(), len as usize);
            }
        };
        same(self.elements.readable(), &expected.readable);
        same(self.elements.writable(), &expected.writable);
        for (at, element) in self.elements.readable().iter().enumerate() {
            let stamp = expected.stamp.wrapping_add(u8::try_from(at).expect("few"));
            let mut bytes = [0; SLOT];
            element.read(0, &mut bytes[..element.len()]);
            assert!(bytes[..element.len()].iter().all(|&byte| byte == stamp), "readable bytes");
        }
    }

    fn pop(&mut self) {
        if self.window.is_empty() {
            return;
        }
        let count = 1 + self.rng.index(self.window.len());
        for (head, _) in self.window.drain(..count) {
            self.device.pop(head);
            let mut buffer = self.available.pop_front().expect("as many as peeked");
            buffer.head = Some(head);
            self.popped.push(buffer);
            self.taken += 1;
        }
    }

    fn add_used(&mut self) {
        if self.popped.is_empty() {
            return;
        }
        let pick = if self.options.in_order { 0 } else { self.rng.index(self.popped.len()) };
        let mut buffer = self.popped.remove(pick);
        let room: u32 = buffer.writable.iter().map(|&(_, len)| len).sum();
        buffer.written = self.rng.below(room + 1);
        let mut left = buffer.written as usize;
        for &(address, len) in &buffer.writable {
            let len = left.min(len as usize);
            self.memory_at(address, len).write(0, &[!buffer.stamp; SLOT][..len]);
            left -= len;
        }
        self.device.add_used(buffer.head.expect("popped"), buffer.written);
        self.staged_used.push_back(buffer);
    }

    fn publish_used(&mut self) {
        self.device.publish();
        self.made_used += self.staged_used.len() as u64;
        self.unasked_call += self.staged_used.len() as u64;
        self.used.append(&mut self.staged_used);
    }

    fn ask_call(&mut self) {
        let must = self.device.must_call();
        let asked = std::mem::take(&mut self.unasked_call);
        assert!(!must || asked > 0, "a call for nothing");
        let on_empty = self.options.notify_on_empty && D::FORMAT == Format::Split;
        let is_empty = self.taken == self.made_available;
        assert!(must || asked == 0 || !on_empty || !is_empty, "NOTIFY_ON_EMPTY");
        let may_be_needless = (on_empty && is_empty) || self.is_first_call;
        self.is_first_call &= asked == 0;
        self.call.check(must, self.made_used, may_be_needless);
    }

    fn arm_kicks(&mut self) {
        if self.rng.one_in(4) {
            return self.arm_kicks_behind();
        }
        let arm = self.random_arm();
        let saw_work = self.device.arm_kicks(arm);
        assert_eq!(saw_work, arm != Arm::Never && !self.available.is_empty(), "{arm:?}");
        self.kick.arm(arm, saw_work, self.made_available);
    }

    fn arm_kicks_behind(&mut self) {
        let behind = self.window.last().map_or(self.device.cursor(), |&(_, behind)| behind);
        let saw_work = self.device.arm_kicks_behind(behind);
        assert_eq!(saw_work, self.available.len() > self.window.len());
        self.kick.arm(Arm::Next, saw_work, self.made_available);
    }

    /// Rebinds the device, or replaces it by another that continues where it was.
    fn move_device(&mut self) {
        self.publish_used();
        self.ask_call();
        self.window.clear();
        let areas = self.driver.areas();
        // A split ring's used index says how many were used, not which: it is enough in order.
        let may_restart =
            V::FORMAT == Format::Packed || self.options.in_order || self.popped.is_empty();
        if self.rng.one_in(2) || !may_restart {
            self.device.rebind(&areas, &self.regions).expect("right areas");
        } else {
            if V::FORMAT == Format::Split {
                self.taken -= self.popped.len() as u64;
                self.popped.drain(..).rev().for_each(|buffer| self.available.push_front(buffer));
            }
            let (size, position) = (self.device.size(), self.device.position());
            let setup = QueueSetup { size, areas, position, options: self.options };
            self.device = V::start(&setup, &self.regions).expect("a right position");
        }
        self.is_first_call = true;
    }

    fn random_arm(&mut self) -> Arm {
        match self.rng.below(3) {
            0 => Arm::Never,
            1 => Arm::Next,
            _ => Arm::After(1 + self.rng.small(u32::from(self.driver.size()))),
        }
    }

    fn memory_at(&self, address: u64, len: usize) -> SharedSlice {
        let offset = usize::try_from(address - self.payload_address).expect("inside");
        self.payload.slice(offset, len).expect("inside")
    }
}

/// All option combinations, each on several sizes; together [`OPERATIONS`].
fn mirror<D: DriverQueue, V: DeviceQueue>(sizes: &[u16], default_seed: u64) {
    let mut seed = Seed::new(default_seed);
    let each = OPERATIONS / (16 * sizes.len()) + 1;
    for &size in sizes {
        for bits in 0..16u8 {
            let options = QueueOptions {
                event_idx: bits & 1 != 0,
                indirect: bits & 2 != 0,
                in_order: bits & 4 != 0,
                notify_on_empty: bits & 8 != 0,
            };
            seed.case = format!("{:?} of {size}, {options:?}", D::FORMAT);
            let mut mirror = Mirror::<D, V>::new(size, options, seed.value + u64::from(bits));
            for _ in 0..each {
                mirror.step();
            }
            let went_through = mirror.returned;
            assert!(went_through > each as u64 / 100, "only {went_through} went through");
            let repeated = mirror.repeated;
            let is_enough = repeated > each as u64 / 1000;
            assert!(is_enough, "only {repeated} staged again");
        }
    }
}

#[test]
fn split_driver_and_split_device_agree() {
    mirror::<SplitDriver, SplitDevice>(&[1, 2, 4, 16, 128], 0x5eed);
}

#[test]
fn packed_driver_and_packed_device_agree() {
    mirror::<PackedDriver, PackedDevice>(&[1, 2, 3, 7, 16, 130], 0xfeed);
}

/// The 16-bit indexes of a split ring and thousands of laps of a packed one.
fn many_laps<D: DriverQueue, V: DeviceQueue>() {
    let options = QueueOptions { event_idx: true, ..QueueOptions::default() };
    let mut mirror = Mirror::<D, V>::new(2, options, 7);
    let mut wakes = 0;
    for _ in 0..150_000 {
        mirror.add();
        mirror.publish_available();
        mirror.ask_kick();
        mirror.peek();
        mirror.pop();
        mirror.add_used();
        mirror.publish_used();
        mirror.ask_call();
        mirror.pop_used();
        if !mirror.rng.one_in(3) {
            mirror.arm_kicks();
            mirror.arm_calls();
        }
        wakes += u32::from(mirror.kick.at.is_some());
    }
    assert!(mirror.returned > 0x1_0000 && wakes > 1000, "{} {wakes}", mirror.returned);
}

#[test]
fn split_indexes_run_over() {
    many_laps::<SplitDriver, SplitDevice>();
}

#[test]
fn packed_laps_run_over() {
    many_laps::<PackedDriver, PackedDevice>();
}

/// Without IN_ORDER a device may keep a buffer for as long as it likes (virtio 1.2 §2.7.8).
fn one_is_kept<D: DriverQueue, V: DeviceQueue>() {
    let options = QueueOptions { in_order: false, ..QueueOptions::default() };
    let mut queue = Mirror::<D, V>::new(4, options, 0);
    let element = [(queue.payload_address, 64)];
    let give = |queue: &mut Mirror<D, V>, id| {
        queue.driver.add(&[], &element, BufferId(id)).expect("room");
        queue.driver.publish();
        let mut at = queue.device.cursor();
        let peeked = queue.device.peek(&mut at, &queue.regions, &mut queue.elements);
        let head = peeked.expect("a right driver").expect("an available buffer");
        queue.device.pop(head);
        head
    };
    let take = |queue: &mut Mirror<D, V>, head, id| {
        queue.device.add_used(head, 7);
        queue.device.publish();
        let used = queue.driver.pop_used().expect("a right device");
        assert_eq!(used, Some(Used { id: BufferId(id), len: 7 }));
    };
    let kept = give(&mut queue, 0);
    // More than 16 bits count.
    for _ in 0..70_000 {
        let head = give(&mut queue, 1);
        take(&mut queue, head, 1);
    }
    // One is staged: that is not the one that comes.
    queue.driver.add(&[], &element, BufferId(2)).expect("room");
    take(&mut queue, kept, 0);
}

#[test]
fn a_split_device_keeps_a_buffer_while_others_return() {
    one_is_kept::<SplitDriver, SplitDevice>();
}

#[test]
fn a_packed_device_keeps_a_buffer_while_others_return() {
    one_is_kept::<PackedDriver, PackedDevice>();
}
