//! A driver and a device by turns, over one guest's memory.

use std::marker::PhantomData;

use ringway_device::{AnyGuestPort, Queue};
use ringway_net::offload::Segment;
use ringway_net::{
    ControlState, Counters, Features, MacAddress, Negotiated, NetHeader, Packet, PacketSource,
};
use ringway_testkit::{Rng, TestMemory};
use ringway_virtq::{
    Arm, BufferId, DeviceQueue, DriverQueue, Format, Layout, Position, QueueSetup, SharedSlice,
};

use super::guest::{Guest, Round};

/// Longest packet, in bytes.
const PACKET_LEN_MAX: u64 = 12_000;
/// Pages of data in the first region.
const PAGES: u64 = 0x60;

/// One driver, its ring, and the ids that are free.
struct Driven<D> {
    driver: D,
    free: Vec<u16>,
}

/// The two sides.
pub struct Served<D, V> {
    guest: Guest,
    port: AnyGuestPort,
    negotiated: Negotiated,
    queues: [Driven<D>; 3],
    size: u16,
    /// Where packets come from.
    sender: TestMemory,
    rng: Rng,
    has_started: bool,
    log_before: Option<TestMemory>,
    _device: PhantomData<V>,
}

/// The features of one case. There is no memory for the indirect tables of a long ring.
fn features(format: Format, size: u16, rng: &mut Rng) -> Negotiated {
    let mut features = Features::VERSION_1 | Features::CTRL_VQ;
    features.set(Features::RING_PACKED, format == Format::Packed);
    for feature in
        [Features::EVENT_IDX, Features::INDIRECT_DESC, Features::IN_ORDER, Features::MRG_RXBUF]
    {
        features.set(feature, rng.one_in(2));
    }
    if size > 256 {
        features -= Features::INDIRECT_DESC;
    }
    Negotiated::new(features).unwrap()
}

impl<D: DriverQueue, V: DeviceQueue> Served<D, V> {
    /// A case by seed.
    pub fn new(mut rng: Rng) -> Self {
        let size = [4, 64, 256, 1024][rng.below(4) as usize];
        let negotiated = features(D::FORMAT, size, &mut rng);
        Self::with(Guest::new(PAGES), negotiated, size, rng)
    }

    /// A ring of buffers of one page each, which come back at once.
    pub fn looping(size: u16) -> Self {
        let format = match D::FORMAT {
            Format::Split => Features::empty(),
            Format::Packed => Features::RING_PACKED,
        };
        let negotiated = Negotiated::new(Features::VERSION_1 | Features::MRG_RXBUF | format);
        let guest = Guest::new(size.into());
        let mut served = Self::with(guest, negotiated.unwrap(), size, Rng::new(1));
        for id in 0..size {
            served.post_page(id);
        }
        served
    }

    fn with(guest: Guest, negotiated: Negotiated, size: u16, rng: Rng) -> Self {
        let state = ControlState::new(MacAddress::ZERO, &negotiated);
        let counters = [Counters::default(); 2];
        let port = AnyGuestPort::new(negotiated, state, counters);
        let layout = Layout::of(D::FORMAT, size, negotiated.options);
        let ring_len = u64::from(layout.len).next_multiple_of(64);
        let queues = [0, 1, 2].map(|queue| {
            let (size, at) = match queue {
                0 => (size, Guest::RINGS_AT),
                _ => (size.min(64), Guest::RINGS_AT + ring_len.min(0x2_8000) + queue * 0xa000),
            };
            let len = Layout::of(D::FORMAT, size, negotiated.options).len;
            let memory = guest.memory.regions().slice(at, len).unwrap();
            let driver = D::new(memory, at, size, negotiated.options);
            Driven { driver, free: (0..size).rev().collect() }
        });
        let sender = TestMemory::new(&[(0, 0x4000)]).unwrap();
        let (has_started, log_before, _device) = (false, None, PhantomData);
        let mut served = Self {
            guest,
            port,
            negotiated,
            queues,
            size,
            sender,
            rng,
            has_started,
            log_before,
            _device,
        };
        Queue::ALL.into_iter().for_each(|queue| served.start(queue, Position::FRESH));
        served
    }

    fn start(&mut self, queue: Queue, position: Position) {
        let driver = &self.queues[queue as usize].driver;
        let (size, areas) = (driver.size(), driver.areas());
        let setup = QueueSetup { size, areas, position, options: self.negotiated.options };
        self.port.start(queue, &setup, &self.guest.regions()).unwrap();
        self.has_started = true;
    }

    /// The front-end copies all, and gives another log.
    pub fn begin_round(&mut self) {
        let before = self.guest.new_log();
        self.bind();
        self.guest.copy_all();
        before.region(0).zero();
        self.log_before = Some(before);
        self.has_started = false;
    }

    /// Binds all queues to the memory with its log.
    fn bind(&mut self) {
        for queue in Queue::ALL {
            let areas = self.queues[queue as usize].driver.areas();
            self.port.rebind(queue, &areas, &self.guest.regions()).unwrap();
        }
    }

    /// All is published, and compared.
    pub fn end_round(&mut self) -> Round {
        self.device(|port, _| {
            port.publish(Queue::ToGuest);
            port.publish(Queue::FromGuest);
        });
        if let Some(before) = &self.log_before {
            let mut bytes = vec![0; before.region(0).len()];
            before.region(0).read(0, &mut bytes);
            assert!(bytes.iter().all(|byte| *byte == 0), "marks in a log that was taken away");
        }
        self.guest.end_round(self.has_started)
    }

    /// Lets the device do something.
    fn device(&mut self, act: impl FnOnce(&mut AnyGuestPort, &mut Rng)) {
        act(&mut self.port, &mut self.rng);
        self.guest.note_device();
    }

    /// One thing that one of them does.
    pub fn step(&mut self) {
        match self.rng.below(12) {
            0 | 1 => self.post(),
            2..=4 => self.put(),
            5 => self.transmit(),
            6 => self.command(),
            7 => self.arm(),
            8 | 9 => self.publish(),
            10 => self.guest.take(),
            _ if self.rng.one_in(20) => self.restart(),
            _ => self.reap(),
        }
    }

    /// The driver posts a few receive buffers.
    fn post(&mut self) {
        for _ in 0..self.rng.between(1, 6) {
            let elements = self.elements(4, PACKET_LEN_MAX / 3);
            let Driven { driver, free } = &mut self.queues[Queue::ToGuest as usize];
            let Some(id) = free.pop() else { break };
            if driver.add(&[], &elements, BufferId(id)).is_err() {
                free.push(id);
                break;
            }
        }
        self.queues[Queue::ToGuest as usize].driver.publish();
        self.guest.note_driver();
    }

    /// Elements of random lengths, at random places of both regions.
    fn elements(&mut self, most: u64, len_max: u64) -> Vec<(u64, u32)> {
        let count = self.rng.between(1, most);
        let mut element = |first: bool| {
            let least = if first { len_max.min(12) } else { 1 };
            let len = self.rng.between(least, len_max);
            let (at, room) = match self.rng.one_in(2) {
                true => (Guest::DATA_AT, PAGES * 4096),
                false => (Guest::MORE_AT, Guest::MORE_LEN),
            };
            (at + self.rng.below(room - len), len as u32)
        };
        (0..count).map(|at| element(at == 0)).collect()
    }

    /// A packet goes to the guest, whole or as a segment.
    fn put(&mut self) {
        let len = self.rng.between(60, PACKET_LEN_MAX) as usize;
        let mut bytes = vec![0; len];
        self.rng.fill(&mut bytes);
        bytes[..6].fill(0xff);
        self.sender.region(0).write(0, &bytes);
        let whole = self.sender.region(0).slice(0, len).unwrap();
        let (front, rest) = whole.split_at(len / self.rng.between(2, 9) as usize);
        let header = NetHeader::default();
        self.device(|port, rng| {
            if rng.one_in(3) {
                port.put_segment(&Segment { header, bytes: &bytes });
            } else if rng.one_in(2) {
                put(port, &header, &[whole]);
            } else {
                put(port, &header, &[front, rest]);
            }
        });
    }

    /// The guest sends a packet, and the device takes it.
    fn transmit(&mut self) {
        let elements = self.elements(3, 400);
        let Driven { driver, free } = &mut self.queues[Queue::FromGuest as usize];
        if let Some(id) = free.pop() {
            if driver.add(&elements, &[], BufferId(id)).is_err() {
                free.push(id);
            }
            driver.publish();
        }
        self.guest.note_driver();
        self.device(|port, _| {
            // Whether it is a packet or not, its buffer is used.
            match port {
                AnyGuestPort::Split(port) => take(port.from_guest.as_mut().unwrap()),
                AnyGuestPort::Packed(port) => take(port.from_guest.as_mut().unwrap()),
            }
        });
    }

    /// The guest asks something, and is told an error or not.
    fn command(&mut self) {
        let command = self.elements(2, 8);
        let answer = self.elements(2, 4);
        let Driven { driver, free } = &mut self.queues[Queue::Control as usize];
        if let Some(id) = free.pop() {
            if driver.add(&command, &answer, BufferId(id)).is_err() {
                free.push(id);
            }
            driver.publish();
        }
        self.guest.note_driver();
        self.device(|port, _| _ = port.visit_control(|_| ()));
    }

    fn arm(&mut self) {
        self.device(|port, rng| {
            let queue = Queue::ALL[rng.below(3) as usize];
            let arm = [Arm::Never, Arm::Next, Arm::After(3)][rng.below(3) as usize];
            port.arm_kicks(queue, arm);
        });
    }

    fn publish(&mut self) {
        self.device(|port, rng| {
            let queue = [Queue::ToGuest, Queue::FromGuest][rng.below(2) as usize];
            port.publish(queue);
            port.must_call(queue);
        });
    }

    /// A queue stops, and starts again where it stood.
    fn restart(&mut self) {
        let queue = Queue::ALL[self.rng.below(3) as usize];
        let mut position = Position::FRESH;
        self.device(|port, _| position = port.stop(queue).unwrap());
        self.start(queue, position);
        self.guest.note_device();
    }

    /// The driver takes back what was used.
    fn reap(&mut self) {
        for Driven { driver, free } in &mut self.queues {
            while let Some(used) = driver.pop_used().unwrap() {
                free.push(used.id.0);
            }
        }
        self.guest.note_driver();
    }

    fn post_page(&mut self, id: u16) {
        let at = Guest::DATA_AT + 4096 * u64::from(id);
        let driver = &mut self.queues[Queue::ToGuest as usize].driver;
        driver.add(&[], &[(at, 4096)], BufferId(id)).unwrap();
        driver.publish();
    }

    /// A packet of 1,000 bytes, whose buffer comes back at once.
    pub fn pass_one(&mut self) {
        let whole = self.sender.region(0).slice(0, 1000).unwrap();
        whole.write(0, &[0xff; 6]);
        put(&mut self.port, &NetHeader::default(), &[whole]);
        self.port.publish(Queue::ToGuest);
        let used = self.queues[Queue::ToGuest as usize].driver.pop_used().unwrap();
        self.post_page(used.expect("a buffer").id.0);
        assert!(self.size >= 256);
    }
}

fn put(port: &mut AnyGuestPort, header: &NetHeader, payload: &[SharedSlice]) {
    let len = payload.iter().map(|piece| piece.len()).sum::<usize>() as u32;
    port.put(&Packet { header, payload, len });
}

fn take(from_guest: &mut impl PacketSource) {
    if from_guest.peek().is_some() {
        from_guest.pop();
    }
}
