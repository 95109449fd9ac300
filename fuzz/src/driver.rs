//! A device's writes into used rings, descriptors and buffers, against the driver.

use std::cell::RefCell;

use ringway_driver::{
    Arena, Control, DriverOptions, Held, NetDriver, RxOptions, RxScheme, TxOptions,
};
use ringway_net::{HEADER_LEN, NetHeader};
use ringway_testkit::{Ring, TestMemory};
use ringway_virtq::{
    Arm, DeviceQueue, DriverQueue, Elements, Format, PackedDevice, PackedDriver, Position,
    QueueOptions, QueueSetup, Regions, SharedSlice, SplitDevice, SplitDriver,
};

const ARENA_AT: u64 = 0x10_0000;
const ARENA_LEN: u64 = 2 << 20;
const SIZE: u16 = 8;
/// Bytes of the input that one step takes.
const STEP_LEN: usize = 8;
/// Most packets held at a time.
const HELD_MAX: usize = 4;

thread_local! {
    static MEMORY: RefCell<Option<TestMemory>> = const { RefCell::new(None) };
}

/// A split ring whose device does what the input says.
pub(crate) fn driver_split(data: &[u8]) {
    drive::<SplitDriver, SplitDevice>(data);
}

/// A packed ring whose device does what the input says.
pub(crate) fn driver_packed(data: &[u8]) {
    drive::<PackedDriver, PackedDevice>(data);
}

/// A driver and the memory it shares with the device.
struct Driven<Q, V> {
    driver: NetDriver<Q>,
    /// A device for the receiveq that sometimes keeps to the rules of the ring.
    receiveq: V,
    regions: Regions,
    elements: Elements,
    control: Control<Q>,
    rings: [Ring; 3],
    whole: SharedSlice,
    held: Vec<Held>,
}

fn drive<Q: DriverQueue, V: DeviceQueue>(data: &[u8]) {
    MEMORY.with_borrow_mut(|memory| {
        if memory.is_none() {
            *memory = TestMemory::new(&[(ARENA_AT, ARENA_LEN)]).ok();
        }
        let (Some(memory), Some((&first, steps))) = (memory, data.split_first()) else { return };
        let mut driven = start::<Q, V>(memory, first);
        for step in steps.chunks_exact(STEP_LEN) {
            driven.step(step);
        }
    });
}

fn start<Q: DriverQueue, V: DeviceQueue>(memory: &TestMemory, choice: u8) -> Driven<Q, V> {
    let whole = memory.region(0);
    let mut arena = Arena::new(whole, ARENA_AT);
    let options = QueueOptions {
        event_idx: choice & 0x80 != 0,
        in_order: choice & 0x40 != 0,
        indirect: choice & 0x20 != 0,
        notify_on_empty: false,
    };
    let rings = [(); 3].map(|()| {
        Ring::carve(&mut arena, Q::FORMAT, SIZE, options).expect("the arena is long enough")
    });
    let scheme = RxScheme::ALL[usize::from(choice) % RxScheme::ALL.len()];
    let rx = RxOptions { spare_len: 1 << 16, ..RxOptions::of(scheme) };
    let tx = TxOptions {
        packet_len_max: 1514,
        header_apart: choice & 0x10 != 0,
        ..TxOptions::default()
    };
    let [receiveq, transmitq, controlq] = [0, 1, 2].map(|at: usize| rings[at].start(options));
    let driver = NetDriver::new(receiveq, transmitq, &mut arena, &DriverOptions { rx, tx });
    let driver = driver.expect("the arena is long enough");
    let control = Control::new(controlq, &mut arena).expect("the arena is long enough");
    let (areas, regions) = (rings[0].areas(), memory.regions());
    let setup = QueueSetup { size: SIZE, areas, position: Position::FRESH, options };
    let receiveq = V::start(&setup, &regions).expect("a right setup");
    let (elements, held) = (Elements::new(), Vec::new());
    let mut driven = Driven { driver, receiveq, regions, elements, control, rings, whole, held };
    let _ = driven.driver.rx.flush();
    driven
}

impl<Q: DriverQueue, V: DeviceQueue> Driven<Q, V> {
    /// One thing that the device or the driver's user does.
    fn step(&mut self, step: &[u8]) {
        let word = |at: usize| u16::from_le_bytes([step[at], step[at + 1]]);
        let ring = self.rings[usize::from(step[0] >> 6) % 3];
        match step[0] % 8 {
            0 if step[1] & 0x30 == 0 => use_entry(&ring, Q::FORMAT, step),
            0 | 1 => self.use_buffers(step),
            2 => ring.device.memory.store_u16(2, word(2) % 16),
            3 => self.scribble(word(2), &step[4..]),
            4 => self.receive(),
            5 => self.hold_or_release(),
            6 => {
                let _ = self.driver.tx.send(&NetHeader::default(), &step[..4]);
                let _ = self.driver.tx.flush();
                let _ = self.driver.tx.arm_calls(Arm::After(word(2)));
                let _ = self.driver.tx.reclaim();
            }
            _ => {
                let _ = self.driver.rx.flush();
                let _ = self.control.start(step[1], step[2], &step[3..]);
                let _ = self.control.finish();
            }
        }
    }

    /// The device uses one to four buffers by the rules; the header in them is any.
    fn use_buffers(&mut self, step: &[u8]) {
        let mut at = self.receiveq.cursor();
        for part in 0..=step[2] % 4 {
            let peeked = self.receiveq.peek(&mut at, &self.regions, &mut self.elements);
            let Ok(Some(head)) = peeked else { break };
            let Some(&buffer) = self.elements.writable().first() else { break };
            if part == 0 {
                let header = any_header(step);
                // The device may have scribbled over the descriptor: as much as it says there is.
                buffer.write(0, &header[..buffer.len().min(HEADER_LEN)]);
            }
            let written = u32::from(step[7]) << (step[3] >> 4);
            self.receiveq.pop(head);
            self.receiveq.add_used(head, written);
        }
        self.receiveq.publish();
    }

    /// The start of some buffer, where headers are.
    fn scribble(&self, at: u16, bytes: &[u8]) {
        let at = usize::from(at) * 64 % (self.whole.len() - STEP_LEN);
        self.whole.write(at, bytes);
    }

    fn receive(&mut self) {
        let (before, whole) = (self.driver.rx.counters().packets, self.whole);
        let Ok(Some(lent)) = self.driver.rx.receive() else { return };
        let in_place: usize = lent.fragments().map(|piece| checked_len(piece, whole)).sum();
        assert!(lent.truesize as usize >= in_place, "{} holds {in_place}", lent.truesize);
        let mut bytes = vec![0; lent.len as usize];
        lent.copy_to(&mut bytes);
        // Every other one may be held without having been looked at.
        if before.is_multiple_of(2) {
            assert_eq!(lent.linear().len() + in_place, lent.len as usize);
            lent.copy_to(&mut bytes);
        }
        assert_eq!(self.driver.rx.counters().packets, before + 1);
    }

    fn hold_or_release(&mut self) {
        if self.held.len() < HELD_MAX {
            self.held.extend(self.driver.rx.hold());
        } else {
            self.held.drain(..).for_each(|held| self.driver.rx.release(held));
        }
        assert!(self.driver.rx.statistics().posted_buffers <= u64::from(SIZE));
    }
}

/// A header with any flags, offload and number of buffers.
fn any_header(step: &[u8]) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[..2].copy_from_slice(&[step[3] & 1, step[3] >> 1 & 5]);
    (header[4], header[6], header[8]) = (step[4], step[5], step[6]);
    header[10] = step[2] % 4 + 1 - (step[7] & step[6] & 1);
    header
}

/// The length of a piece that is lent, which must lie in the arena.
fn checked_len(piece: SharedSlice, whole: SharedSlice) -> usize {
    let start = whole.as_ptr().addr();
    let at = piece.as_ptr().addr();
    assert!(at >= start && at + piece.len() <= start + whole.len() && !piece.is_empty());
    piece.len()
}

/// A used entry with an id and a length that are right now and then.
fn use_entry(ring: &Ring, format: Format, step: &[u8]) {
    let at = usize::from(step[1]) % usize::from(SIZE);
    let id = if step[2] < 0xf0 { u32::from(step[2] % 9) } else { u32::from(step[3]) << 12 };
    let len = match step[4] {
        0xf0.. => u32::MAX,
        0xe0.. => u32::from(step[5]) << 8,
        _ => 12 + u32::from(step[5]),
    };
    match format {
        Format::Split => {
            ring.device.memory.store_u32(4 + 8 * at, id);
            ring.device.memory.store_u32(8 + 8 * at, len);
        }
        Format::Packed => {
            let entry = ring.descriptor.memory;
            entry.store_u32(16 * at + 8, len);
            entry.store_u16(16 * at + 12, (id & 0xffff) as u16);
            let used = if step[6] & 1 == 0 { 1 << 7 | 1 << 15 } else { 0 };
            entry.store_u16(16 * at + 14, used | u16::from(step[7] & 7));
        }
    }
}
