//! A guest that changes its rings and buffers between any two steps of the device.

use std::cell::RefCell;

use ringway_device::{AnyGuestPort, GuestPort, Queue};
use ringway_net::offload::Segment;
use ringway_net::{ControlState, Counters, Features, MacAddress, NEEDS_CSUM, Negotiated};
use ringway_net::{NetHeader, PacketSink, PacketSource};
use ringway_testkit::TestMemory;
use ringway_virtq::{Areas, Arm, DeviceQueue, Format, Position, QueueSetup, SharedSlice};

const BASE: u64 = 0x4000;
/// Three rings, then buffers.
const MEMORY_LEN: u64 = 0x1_0000;
const RING_LEN: usize = 0x1000;
const BUFFERS_AT: u64 = BASE + 3 * RING_LEN as u64;
const DRIVER_AT: usize = 0x800;
const DEVICE_AT: usize = 0xc00;
/// Of split and packed rings.
const SIZES: [[u16; 4]; 2] = [[1, 2, 4, 16], [1, 3, 7, 16]];
/// Bytes of the input that one step takes.
const STEP_LEN: usize = 8;

thread_local! {
    static MEMORY: RefCell<Option<TestMemory>> = const { RefCell::new(None) };
}

/// With split rings.
pub(crate) fn race_split(data: &[u8]) {
    race(data, Format::Split);
}

/// With packed rings.
pub(crate) fn race_packed(data: &[u8]) {
    race(data, Format::Packed);
}

/// A device, and the guest's memory.
struct Race<'a> {
    port: AnyGuestPort,
    memory: &'a TestMemory,
    whole: SharedSlice,
    negotiated: Negotiated,
    size: u16,
}

fn race(data: &[u8], format: Format) {
    MEMORY.with_borrow_mut(|memory| {
        if memory.is_none() {
            *memory = TestMemory::new(&[(BASE, MEMORY_LEN)]).ok();
        }
        let (Some(memory), [choice, size, steps @ ..]) = (memory, data) else { return };
        let whole = memory.region(0);
        whole.zero();
        let size = SIZES[usize::from(format == Format::Packed)][usize::from(size % 4)];
        let negotiated = negotiated(*choice, format);
        let state = ControlState::new(MacAddress::local(1), &negotiated).with_queue_pairs_max(2);
        let port = AnyGuestPort::new(negotiated, state, [Counters::default(); 2]);
        let mut race = Race { port, memory, whole, negotiated, size };
        Queue::ALL.into_iter().for_each(|queue| race.start(queue, Position::FRESH));
        race.port.watch_requests(true);
        steps.chunks_exact(STEP_LEN).for_each(|step| race.step(step));
        assert!(memory.guards_intact(), "memory outside the guest's was written");
    });
}

fn negotiated(choice: u8, format: Format) -> Negotiated {
    let without = [
        Features::MRG_RXBUF,
        Features::IN_ORDER,
        Features::INDIRECT_DESC,
        Features::EVENT_IDX,
        Features::HASH_REPORT,
        Features::GUEST_CSUM,
    ];
    let mut features = Features::OFFERED | Features::ON_REQUEST;
    for (bit, feature) in without.into_iter().enumerate() {
        features.set(feature, choice >> bit & 1 != 0);
    }
    features.set(Features::RING_PACKED, format == Format::Packed);
    Negotiated::new(features.drop_unmet()).expect("nothing is left that lacks something")
}

impl Race<'_> {
    fn setup(&self, queue: Queue, position: Position) -> QueueSetup {
        let at = BASE + (queue as usize * RING_LEN) as u64;
        let areas = Areas::new(at, at + DRIVER_AT as u64, at + DEVICE_AT as u64);
        QueueSetup { size: self.size, areas, position, options: self.negotiated.options }
    }

    fn start(&mut self, queue: Queue, position: Position) {
        let setup = self.setup(queue, position);
        let _ = self.port.start(queue, &setup, &self.memory.regions());
    }

    /// One thing that the guest, its front-end or the device does.
    fn step(&mut self, step: &[u8]) {
        let word = |at: usize| u16::from_le_bytes([step[at], step[at + 1]]);
        let queue = Queue::ALL[usize::from(step[1]) % 3];
        match step[0] % 16 {
            0..6 => self.offer(queue, step),
            6 => self.whole.store_u16((usize::from(word(2)) % (4 * RING_LEN)) & !1, word(4)),
            7..11 => match &mut self.port {
                AnyGuestPort::Split(port) => forward(port, self.whole, step),
                AnyGuestPort::Packed(port) => forward(port, self.whole, step),
            },
            11 => {
                for queue in Queue::ALL {
                    self.port.publish(queue);
                    let _ = (self.port.must_call(queue), self.port.driver_event(queue));
                }
                let _ = self.port.take_request();
            }
            12 => {
                let arm = [Arm::Never, Arm::Next, Arm::After(word(2))][usize::from(step[4] % 3)];
                let _ = self.port.arm_kicks(queue, arm);
            }
            13 => _ = self.port.visit_control(|_| ()),
            14 => self.rebind(queue, step),
            _ => self.restart(queue, step),
        }
    }

    /// Makes something available, perhaps what the device still has.
    fn offer(&mut self, queue: Queue, step: &[u8]) {
        let ring = self.whole.split_at(queue as usize * RING_LEN).1;
        let slot = usize::from(step[2]) % usize::from(self.size);
        // Now and then the end of memory is not far enough away.
        let address = BUFFERS_AT + u64::from(step[3]) * 0xcf;
        let len = [0, 1, 12, 13, 26, 60, 1526, 70_000][usize::from(step[4] % 8)];
        let id = u16::from(step[5]) % (self.size + u16::from(step[5] > 0xf0));
        // Mostly of the direction that it should have.
        let write = if queue == Queue::ToGuest { 2 } else { u16::from(step[6] & 2) };
        let flags = write | u16::from(step[6] >> 4 == 0) | u16::from(step[6] >> 4 == 1) << 2;
        let entry = slot * 16;
        ring.store_u64(entry, address);
        ring.store_u32(entry + 8, len);
        match self.negotiated.format {
            Format::Split => {
                ring.store_u16(entry + 12, flags);
                ring.store_u16(entry + 14, id);
                ring.store_u16(DRIVER_AT + 4 + 2 * slot, id);
                let index = ring.load_u16(DRIVER_AT + 2);
                ring.store_u16(DRIVER_AT + 2, index.wrapping_add(u16::from(step[7] % 3)));
            }
            Format::Packed => {
                ring.store_u16(entry + 12, id);
                let lap = if step[7] & 1 == 0 { 1 << 7 } else { 1 << 15 };
                ring.store_u16(entry + 14, flags | lap);
            }
        }
    }

    fn rebind(&mut self, queue: Queue, step: &[u8]) {
        let mut areas = self.setup(queue, Position::FRESH).areas;
        if step[2].is_multiple_of(8) {
            areas.device += u64::from(step[3]) << 12;
        }
        let _ = self.port.rebind(queue, &areas, &self.memory.regions());
    }

    /// Where it was, or elsewhere.
    fn restart(&mut self, queue: Queue, step: &[u8]) {
        let stopped = self.port.stop(queue).unwrap_or(Position::FRESH);
        let at = u16::from_le_bytes([step[3], step[4]]);
        let position = match step[2] % 4 {
            0 => Position { available: at, used: at >> 4, ..stopped },
            1 => Position { available_wrap: step[3] & 1 != 0, ..stopped },
            _ => stopped,
        };
        self.start(queue, position);
        self.port.watch_requests(step[2] & 4 == 0);
    }
}

/// The device takes a packet, or gives one.
fn forward<Q: DeviceQueue>(port: &mut GuestPort<Q>, whole: SharedSlice, step: &[u8]) {
    let len = u32::from(u16::from_le_bytes([step[2], step[3]])) >> (step[4] & 15);
    let header = NetHeader { flags: step[5] & NEEDS_CSUM, ..NetHeader::default() };
    match step[1] % 4 {
        0 => {
            let bytes = vec![step[6]; len as usize];
            if let Some(to_guest) = &mut port.to_guest {
                let _ = to_guest.put_segment(&Segment { header, bytes: &bytes });
            }
        }
        1 => {
            let Some(to_guest) = &mut port.to_guest else { return };
            let Some(room) = to_guest.reserve(len) else { return };
            assert!(room.iter().all(|piece| is_inside(whole, *piece)));
            let room: usize = room.iter().map(|piece| piece.len()).sum();
            to_guest.commit(header, len.min(u32::try_from(room).unwrap_or(0)));
        }
        _ => {
            let Some(mut source) = port.from_guest.take() else { return };
            if let Some(packet) = source.peek() {
                let sum: usize = packet.payload.iter().map(|piece| piece.len()).sum();
                assert_eq!(sum, packet.len as usize);
                assert!(packet.payload.iter().all(|piece| is_inside(whole, *piece)));
                let _ = port.put(&packet);
            }
            if step[5] & 2 != 0 {
                source.pop();
            }
            port.from_guest = Some(source);
        }
    }
}

fn is_inside(whole: SharedSlice, piece: SharedSlice) -> bool {
    let (start, at) = (whole.as_ptr().addr(), piece.as_ptr().addr());
    at >= start && at + piece.len() <= start + whole.len() && !piece.is_empty()
}
