//! A driver and a device over one arena in one process; a test plays the device.
//!
//! How: rings and memory are real, and each side can be made to lie. Limits: one queue pair; the
//! device does something when it is told to; a wrong driver ends the test.

use std::collections::VecDeque;

use ringway_driver::{Arena, DriverOptions, NetDriver, RxOptions, RxScheme, TxOptions};
use ringway_net::{HEADER_LEN, NetHeader};
use ringway_virtq::{
    DeviceQueue, DriverQueue, Elements, Format, Position, QueueOptions, QueueSetup, Regions,
};

use crate::{Ring, TestMemory};

/// Where the arena is for the device.
pub const ARENA_AT: u64 = 0x10_0000;

/// The options of a pair.
#[derive(Debug, Clone, Copy)]
pub struct PairShape {
    /// The ring format; must be that of the pair's types.
    pub format: Format,
    /// Entries of each queue.
    pub size: u16,
    /// Scheme of receive buffers.
    pub scheme: RxScheme,
    /// Elements of each receive buffer; with more than one, transmitted headers are apart as well.
    pub elements: u16,
    /// How the rings work.
    pub options: QueueOptions,
}

impl PairShape {
    /// A plain pair of this format, size and scheme.
    pub fn plain(format: Format, size: u16, scheme: RxScheme) -> Self {
        Self { format, size, scheme, elements: 1, options: QueueOptions::default() }
    }

    /// How its receiveq works.
    pub fn rx(&self) -> RxOptions {
        RxOptions { elements: self.elements, ..RxOptions::of(self.scheme) }
    }
}

/// The two sides of one queue pair, and the packets inside the device.
#[derive(Debug)]
pub struct DriverPair<D, V> {
    /// The driver under test.
    pub driver: NetDriver<D>,
    /// The device's side of the receiveq.
    pub receiveq: V,
    /// The device's side of the transmitq.
    pub transmitq: V,
    /// The memory of both rings.
    pub rings: [Ring; 2],
    /// Packets the device has taken and not given back yet.
    pub in_device: VecDeque<(NetHeader, Vec<u8>)>,
    /// All memory.
    pub memory: TestMemory,
    elements: Elements,
    regions: Regions,
}

impl<D: DriverQueue, V: DeviceQueue> DriverPair<D, V> {
    /// A pair with the options that follow from its shape.
    pub fn new(shape: PairShape) -> Self {
        Self::with(shape, &shape.rx())
    }

    /// A pair with these options for receiving.
    pub fn with(shape: PairShape, rx: &RxOptions) -> Self {
        let len = usize::from(shape.size) * 2 * 17 * 4096 + (2 << 20);
        let memory = TestMemory::new(&[(ARENA_AT, len as u64)]).expect("memory for a test");
        let regions = memory.regions();
        let mut arena = Arena::new(memory.region(0), ARENA_AT);
        let rings = [(); 2].map(|()| {
            Ring::carve(&mut arena, shape.format, shape.size, shape.options)
                .expect("room for rings")
        });
        let tx = TxOptions { header_apart: shape.elements > 1, ..TxOptions::default() };
        let options = DriverOptions { rx: *rx, tx };
        let [receiveq, transmitq] = [&rings[0], &rings[1]].map(|ring| ring.start(shape.options));
        let driver = NetDriver::new(receiveq, transmitq, &mut arena, &options).expect("room");
        let [receiveq, transmitq] = [&rings[0], &rings[1]].map(|ring| {
            let setup = QueueSetup {
                size: shape.size,
                areas: ring.areas(),
                position: Position::FRESH,
                options: shape.options,
            };
            V::start(&setup, &regions).expect("a right setup")
        });
        let (elements, in_device) = (Elements::new(), VecDeque::new());
        Self { driver, receiveq, transmitq, rings, in_device, memory, elements, regions }
    }

    /// Device: takes everything the driver has made available.
    pub fn take_all(&mut self) {
        let mut at = self.transmitq.cursor();
        loop {
            let peeked = self.transmitq.peek(&mut at, &self.regions, &mut self.elements);
            let Some(head) = peeked.expect("a right driver") else { break };
            assert!(self.elements.writable().is_empty());
            let mut bytes = Vec::new();
            for piece in self.elements.readable() {
                let start = bytes.len();
                bytes.resize(start + piece.len(), 0);
                piece.read(0, &mut bytes[start..]);
            }
            let packet = bytes.split_off(HEADER_LEN);
            let header = NetHeader::decode(&bytes.try_into().expect("12 bytes"));
            self.in_device.push_back((header, packet));
            self.transmitq.pop(head);
            self.transmitq.add_used(head, 0);
        }
        self.transmitq.publish();
    }

    /// Device: gives back as many packets as the driver has buffers for.
    pub fn give_all(&mut self) {
        while let Some((header, packet)) = self.in_device.pop_front() {
            if !self.give(&header, &packet) {
                self.in_device.push_front((header, packet));
                break;
            }
        }
        self.receiveq.publish();
    }

    /// Device: puts one packet into receive buffers, not published yet. `false`: no room.
    pub fn give(&mut self, header: &NetHeader, packet: &[u8]) -> bool {
        let mut at = self.receiveq.cursor();
        let mut bytes = header.encode().to_vec();
        bytes.extend(packet);
        let mut rest = &bytes[..];
        let mut taken = Vec::new();
        let mut first = None;
        while !rest.is_empty() {
            let peeked = self.receiveq.peek(&mut at, &self.regions, &mut self.elements);
            let Some(head) = peeked.expect("a right driver") else { return false };
            assert!(self.elements.readable().is_empty());
            first.get_or_insert(self.elements.writable()[0]);
            let before = rest.len();
            for piece in self.elements.writable() {
                let (now, later) = rest.split_at(piece.len().min(rest.len()));
                piece.write(0, now);
                rest = later;
            }
            taken.push((head, u32::try_from(before - rest.len()).expect("small")));
        }
        let num_buffers = u16::try_from(taken.len()).expect("few");
        first.expect("one").write(0, &NetHeader { num_buffers, ..*header }.encode());
        for (head, written) in taken {
            self.receiveq.pop(head);
            self.receiveq.add_used(head, written);
        }
        true
    }

    /// Device: uses one buffer with this header and `written` bytes, whatever is true.
    pub fn use_one(&mut self, header: &NetHeader, written: u32) {
        let mut at = self.receiveq.cursor();
        let peeked = self.receiveq.peek(&mut at, &self.regions, &mut self.elements);
        let head = peeked.expect("a right driver").expect("a buffer");
        self.elements.writable()[0].write(0, &header.encode());
        self.receiveq.pop(head);
        self.receiveq.add_used(head, written);
        self.receiveq.publish();
    }

    /// Device: the length of each buffer that is available now, without taking any.
    pub fn available(&mut self) -> Vec<usize> {
        let mut at = self.receiveq.cursor();
        let mut lengths = Vec::new();
        loop {
            let peeked = self.receiveq.peek(&mut at, &self.regions, &mut self.elements);
            if peeked.expect("a right driver").is_none() {
                return lengths;
            }
            lengths.push(self.elements.writable().iter().map(|piece| piece.len()).sum());
        }
    }
}
