//! A driver queue against the device's source and sink over one memory, both ring formats.
#![allow(clippy::cast_possible_truncation, reason = "small numbers that the tests choose")]

use ringway_device::{AnyGuestPort, ControlQueue, FromGuest, Queue, ReceiveLists, ToGuest};
use ringway_net::offload::Segment;
use ringway_net::{
    ControlState, Counters, DropReason, Features, MacAddress, NEEDS_CSUM, Negotiated, NetHeader,
    Packet, PacketSink, PacketSource, Put, ReceiveHash,
};
use ringway_testkit::TestMemory;
use ringway_virtq::{
    Arm, BufferId, DeviceQueue, DriverQueue, ELEMENTS_MAX, Elements, Format, Layout, PackedDevice,
    PackedDriver, Position, QueueSetup, Regions, SharedSlice, SplitDevice, SplitDriver, Used, Why,
};

const BASE: u64 = 0x10_0000;
const QUEUE_SIZE: u16 = 64;
const DATA_AT: u64 = BASE + 0x4_0000;
const SENDER_AT: u64 = 0x100_0000;

/// One queue with a driver on it, and memory for its buffers.
struct Bench<D> {
    memory: TestMemory,
    driver: D,
    negotiated: Negotiated,
}

impl<D: DriverQueue> Bench<D> {
    fn new(features: Features) -> Self {
        let memory = TestMemory::new(&[(BASE, 0x20_0000), (SENDER_AT, 0x2_0000)]).unwrap();
        let format = match D::FORMAT {
            Format::Split => Features::empty(),
            Format::Packed => Features::RING_PACKED,
        };
        let negotiated = Negotiated::new(features | format | Features::VERSION_1).unwrap();
        let layout = Layout::of(D::FORMAT, QUEUE_SIZE, negotiated.options);
        let ring = memory.regions().slice(BASE, layout.len).unwrap();
        let driver = D::new(ring, BASE, QUEUE_SIZE, negotiated.options);
        Self { memory, driver, negotiated }
    }

    fn setup(&self) -> QueueSetup {
        QueueSetup {
            size: QUEUE_SIZE,
            areas: self.driver.areas(),
            position: Position::FRESH,
            options: self.negotiated.options,
        }
    }

    fn device<Q: DeviceQueue>(&self) -> Q {
        Q::start(&self.setup(), &self.regions()).unwrap()
    }

    fn regions(&self) -> Regions {
        self.memory.regions()
    }

    fn at(&self, address: u64, len: usize) -> SharedSlice {
        self.regions().slice(address, len as u32).unwrap()
    }

    fn write(&self, address: u64, bytes: &[u8]) {
        self.at(address, bytes.len()).write(0, bytes);
    }

    fn read(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.at(address, len).read(0, &mut bytes);
        bytes
    }

    /// Sends header and packet as one buffer whose elements have the given lengths.
    fn send(&mut self, bytes: &[u8], cuts: &[usize]) {
        self.write(DATA_AT, bytes);
        let (mut at, mut list) = (0, Vec::new());
        for &cut in cuts.iter().chain([&bytes.len()]) {
            let end = cut.min(bytes.len());
            if end > at {
                list.push((DATA_AT + at as u64, (end - at) as u32));
            }
            at = at.max(end);
        }
        self.driver.add(&list, &[], BufferId(0)).unwrap();
        self.driver.publish();
    }

    /// Posts receive buffers of these lengths, each at its own 64 KiB + 4 KiB.
    fn post(&mut self, lens: &[u32]) {
        for (id, &len) in lens.iter().enumerate() {
            let element = [(buffer_at(id), len)];
            self.driver.add(&[], &element, BufferId(id as u16)).unwrap();
        }
        self.driver.publish();
    }

    fn all_used(&mut self) -> Vec<Used> {
        std::iter::from_fn(|| self.driver.pop_used().unwrap()).collect()
    }

    /// A packet of `len` bytes in memory of another guest, in two pieces.
    fn put(&self, to_guest: &mut impl PacketSink, header: NetHeader, len: usize) -> Put {
        self.write(SENDER_AT, &pattern(len));
        let whole = self.at(SENDER_AT, len);
        let pieces = [whole.split_at(len / 3).0, whole.split_at(len / 3).1];
        to_guest.put(&Packet { header: &header, payload: &pieces, len: len as u32 })
    }
}

fn buffer_at(id: usize) -> u64 {
    DATA_AT + id as u64 * 0x1_1000
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

fn to_guest<D: DriverQueue, Q: DeviceQueue>(bench: &Bench<D>) -> ToGuest<Q> {
    ToGuest::new(
        bench.device(),
        bench.regions(),
        bench.negotiated,
        Counters::default(),
        ReceiveLists::new(),
    )
}

fn from_guest<D: DriverQueue, Q: DeviceQueue>(bench: &Bench<D>) -> FromGuest<Q> {
    FromGuest::new(
        bench.device(),
        bench.regions(),
        bench.negotiated,
        Counters::default(),
        Elements::readable_only(),
    )
}

/// Runs a generic test body for both formats.
macro_rules! both_formats {
    ($($body:ident),* $(,)?) => {
        mod split {
            use super::{SplitDevice, SplitDriver};
            $(#[test] fn $body() { super::$body::<SplitDriver, SplitDevice>(); })*
        }
        mod packed {
            use super::{PackedDevice, PackedDriver};
            $(#[test] fn $body() { super::$body::<PackedDriver, PackedDevice>(); })*
        }
    };
}

both_formats!(
    spec_5_1_6_4_a_merged_packet_counts_its_buffers,
    a_merged_packet_appears_all_at_once,
    without_mergeable_buffers_one_packet_takes_one_buffer,
    a_packet_longer_than_the_buffer_is_refused_and_the_buffer_stays,
    no_room_changes_nothing,
    what_needs_too_many_pieces_is_refused_at_once,
    an_offload_that_was_not_accepted_is_never_seen,
    a_ring_that_is_nowhere_is_not_touched,
    a_segment_is_received_like_any_packet,
    requests_are_seen_whichever_way_a_packet_goes_in,
    a_segment_longer_than_the_buffer_is_refused,
    a_readable_element_breaks_the_receiveq,
    a_buffer_without_room_for_the_header_breaks_the_receiveq,
    the_header_may_be_split_at_every_byte,
    a_packet_shorter_than_ethernet_is_dropped_and_counted,
    a_buffer_shorter_than_the_header_breaks_the_transmitq,
    a_visit_ends_after_so_many_bad_buffers_or_commands,
    a_writable_element_of_the_transmitq_is_read_and_never_written,
    an_offload_that_was_not_negotiated_cannot_be_sent,
    spec_5_1_6_5_every_command_is_answered,
    spec_5_1_6_5_2_tables_of_any_length_are_taken,
    spec_1_3_5_1_6_5_7_a_result_comes_before_its_acknowledgement,
    an_acknowledgement_that_cannot_be_written_breaks_the_controlq,
    spec_5_1_6_4_the_hash_stands_behind_the_header,
);

fn spec_5_1_6_4_a_merged_packet_counts_its_buffers<D: DriverQueue, Q: DeviceQueue>() {
    for len in [14, 60, 1012, 1013, 1514, 4000, 9000, 65_550] {
        let mut bench = Bench::<D>::new(Features::MRG_RXBUF);
        let mut sink = to_guest::<D, Q>(&bench);
        let buffers: Vec<u32> = [1024; 64].to_vec();
        // 64 buffers of 1 KiB hold less than the longest packet.
        let buffers = if len > 60_000 { vec![4096; 17] } else { buffers };
        bench.post(&buffers);
        assert_eq!(bench.put(&mut sink, NetHeader::default(), len), Put::Done);
        sink.flush();
        let used = bench.all_used();
        let expected = (len + 12).div_ceil(buffers[0] as usize);
        assert_eq!(used.len(), expected, "packet of {len} bytes");
        let header = NetHeader::decode(&bench.read(buffer_at(0), 12).try_into().unwrap());
        assert_eq!(usize::from(header.num_buffers), expected);
        let mut received = Vec::new();
        for one in &used {
            received.extend(bench.read(buffer_at(one.id.0.into()), one.len as usize));
        }
        assert_eq!(received[12..], pattern(len), "packet of {len} bytes");
        assert_eq!((sink.counters.packets, sink.counters.bytes), (1, len as u64));
    }
}

fn a_merged_packet_appears_all_at_once<D: DriverQueue, Q: DeviceQueue>() {
    let mut bench = Bench::<D>::new(Features::MRG_RXBUF);
    let mut sink = to_guest::<D, Q>(&bench);
    bench.post(&[256; 20]);
    assert_eq!(bench.put(&mut sink, NetHeader::default(), 1000), Put::Done);
    assert!(bench.all_used().is_empty(), "used entries were visible before the flush");
    assert!(sink.flush());
    assert_eq!(bench.all_used().len(), 4);
    assert!(!sink.flush(), "nothing new to tell");
}

fn without_mergeable_buffers_one_packet_takes_one_buffer<D: DriverQueue, Q: DeviceQueue>() {
    let mut bench = Bench::<D>::new(Features::empty());
    let mut sink = to_guest::<D, Q>(&bench);
    bench.post(&[1526, 1526]);
    for len in [60, 1514] {
        assert_eq!(bench.put(&mut sink, NetHeader::default(), len), Put::Done);
    }
    sink.flush();
    let used = bench.all_used();
    assert_eq!(used.iter().map(|used| used.len).collect::<Vec<_>>(), [72, 1526]);
    for (id, len) in [(0, 60), (1, 1514)] {
        let bytes = bench.read(buffer_at(id), 12 + len);
        assert_eq!(bytes[10..12], [1, 0], "num_buffers is 1 (virtio 1.2 §5.1.6.4.1)");
        assert_eq!(bytes[12..], pattern(len));
    }
}

fn a_packet_longer_than_the_buffer_is_refused_and_the_buffer_stays<
    D: DriverQueue,
    Q: DeviceQueue,
>() {
    let mut bench = Bench::<D>::new(Features::empty());
    let mut sink = to_guest::<D, Q>(&bench);
    bench.post(&[512]);
    assert_eq!(bench.put(&mut sink, NetHeader::default(), 501), Put::Refused);
    assert_eq!(sink.counters.drops[DropReason::TooLong as usize], 1);
    assert_eq!(bench.put(&mut sink, NetHeader::default(), 500), Put::Done);
    sink.flush();
    assert_eq!(bench.all_used().len(), 1);
}

fn no_room_changes_nothing<D: DriverQueue, Q: DeviceQueue>() {
    let mut bench = Bench::<D>::new(Features::MRG_RXBUF);
    let mut sink = to_guest::<D, Q>(&bench);
    bench.post(&[512, 512]);
    assert_eq!(bench.put(&mut sink, NetHeader::default(), 2000), Put::NoRoom);
    sink.flush();
    assert!(bench.all_used().is_empty());
    assert_eq!(bench.put(&mut sink, NetHeader::default(), 700), Put::Done);
    sink.flush();
    assert_eq!(bench.all_used().len(), 2, "the same two buffers");
    assert_eq!(sink.counters.packets, 1);
}

/// No kick could announce room for it, so a sender that waited would wait for ever.
fn what_needs_too_many_pieces_is_refused_at_once<D: DriverQueue, Q: DeviceQueue>() {
    let mut bench = Bench::<D>::new(Features::MRG_RXBUF | Features::INDIRECT_DESC);
    let mut sink = to_guest::<D, Q>(&bench);
    for id in 0..QUEUE_SIZE {
        let elements: Vec<(u64, u32)> =
            (0..32).map(|at| (DATA_AT + u64::from(id) * 64 + at, 1)).collect();
        bench.driver.add(&[], &elements, BufferId(id)).unwrap();
    }
    bench.driver.publish();
    for (len, put) in [(1500, Put::Refused), (60, Put::Done), (1500, Put::Refused)] {
        assert_eq!(bench.put(&mut sink, NetHeader::default(), len), put, "{len}");
    }
    assert_eq!(sink.counters.drops[DropReason::TooLong as usize], 2);
    sink.flush();
    assert_eq!(bench.all_used().len(), 3, "three buffers for 72 bytes");
}

fn an_offload_that_was_not_accepted_is_never_seen<D: DriverQueue, Q: DeviceQueue>() {
    let csum =
        NetHeader { flags: NEEDS_CSUM, csum_start: 34, csum_offset: 16, ..Default::default() };
    let tso = NetHeader { gso_type: 1, gso_size: 1448, hdr_len: 54, ..csum };
    for (features, header, expected) in [
        (Features::empty(), csum, Put::Unfinished),
        (Features::GUEST_CSUM, csum, Put::Done),
        (Features::GUEST_CSUM, tso, Put::Unfinished),
        (Features::GUEST_CSUM | Features::GUEST_TSO4, tso, Put::Done),
        (Features::GUEST_CSUM | Features::GUEST_TSO6, tso, Put::Unfinished),
    ] {
        let mut bench = Bench::<D>::new(features | Features::MRG_RXBUF);
        let mut sink = to_guest::<D, Q>(&bench);
        bench.post(&[4096, 4096]);
        assert_eq!(bench.put(&mut sink, header, 3000), expected, "{features} {header:?}");
        assert_eq!(sink.counters.drops, [0; DropReason::ALL.len()]);
        sink.flush();
        assert_eq!(bench.all_used().is_empty(), expected == Put::Unfinished, "nothing changed");
    }
}

/// The caller that moves the memory unmaps the old one next.
fn a_ring_that_is_nowhere_is_not_touched<D: DriverQueue, Q: DeviceQueue>() {
    let bytes = [NetHeader::default().encode().to_vec(), pattern(60)].concat();
    for lost in [false, true] {
        let mut bench = Bench::<D>::new(Features::empty());
        let mut sink = to_guest::<D, Q>(&bench);
        bench.post(&[2000, 2000]);
        assert_eq!(bench.put(&mut sink, NetHeader::default(), 60), Put::Done);
        let mut bench = Bench::<D>::new(Features::empty());
        let mut source = from_guest::<D, Q>(&bench);
        bench.send(&bytes, &[]);
        assert!(source.peek().is_some());
        source.pop();
        if lost {
            let areas = bench.driver.areas();
            assert!(sink.rebind(&areas, &Regions::empty()).is_err());
            assert!(source.rebind(&areas, &Regions::empty()).is_err());
        }
        let published = [sink.publish().packets, source.publish().packets];
        assert_eq!(published, if lost { [0, 0] } else { [1, 1] });
        assert_eq!([sink.must_call(), source.must_call()], [!lost; 2]);
    }
}

fn requests_are_seen_whichever_way_a_packet_goes_in<D: DriverQueue, Q: DeviceQueue>() {
    let header = NetHeader::default();
    let mut bench = Bench::<D>::new(Features::MRG_RXBUF | Features::VERSION_1);
    let mut sink = to_guest::<D, Q>(&bench);
    bench.post(&[2000; 12]);
    bench.write(SENDER_AT, &pattern(4096));
    let put = |sink: &mut ToGuest<Q>, len: usize| {
        let payload = &[bench.at(SENDER_AT, len)];
        assert_eq!(sink.put(&Packet { header: &header, payload, len: len as u32 }), Put::Done);
        sink.requests.take()
    };
    assert_eq!(put(&mut sink, 60), None, "packets are not watched");
    sink.requests.watch(true);
    assert_eq!(put(&mut sink, 60), Some(true), "as it is: in one piece");
    assert_eq!(sink.requests.take(), Some(false), "told once");
    assert_eq!(put(&mut sink, 4096), Some(false), "a long one");
    assert_eq!(bench.put(&mut sink, header, 60), Put::Done);
    assert_eq!(sink.requests.take(), Some(true), "in several pieces");
    sink.reserve(60).expect("room")[0].write(0, &pattern(60));
    sink.commit(header, 60);
    assert_eq!(sink.requests.take(), Some(true), "written by its owner");
    // An acknowledgement has no answer, whatever lay where it goes.
    let whole = bench.at(SENDER_AT, 54);
    whole.write(0, &acknowledgement());
    let pieces = [whole.split_at(20).0, whole.split_at(20).1];
    for payload in [&[whole][..], &pieces] {
        assert_eq!(sink.put(&Packet { header: &header, payload, len: 54 }), Put::Done);
        assert_eq!(sink.requests.take(), Some(false), "{} pieces", payload.len());
    }
    sink.reserve(2000).expect("room")[0].write(0, &acknowledgement());
    sink.commit(header, 54);
    assert_eq!(sink.requests.take(), Some(false), "written by its owner");
    bench.write(SENDER_AT, &pattern(60));
    sink.requests.watch(false);
    assert_eq!(put(&mut sink, 60), None, "packets are not watched any more");
}

/// Ethernet, IPv4 and TCP without payload.
fn acknowledgement() -> [u8; 54] {
    let mut bytes = [0; 54];
    bytes[12..14].copy_from_slice(&[8, 0]);
    (bytes[14], bytes[17], bytes[23]) = (0x45, 40, 6);
    (bytes[46], bytes[47]) = (0x50, 0x10);
    bytes
}

fn a_segment_is_received_like_any_packet<D: DriverQueue, Q: DeviceQueue>() {
    let header = NetHeader { flags: NEEDS_CSUM, csum_start: 34, ..Default::default() };
    let features = Features::MRG_RXBUF | Features::VERSION_1 | Features::GUEST_CSUM;
    let mut bench = Bench::<D>::new(features);
    let mut sink = to_guest::<D, Q>(&bench);
    let bytes = pattern(1700);
    assert_eq!(sink.put_segment(&Segment { header, bytes: &bytes }), Put::NoRoom);
    bench.post(&[1012, 1012, 1012]);
    assert_eq!(sink.put_segment(&Segment { header, bytes: &bytes }), Put::Done);
    sink.flush();
    assert_eq!(bench.all_used().iter().map(|used| used.len).collect::<Vec<_>>(), [1012, 700]);
    let received = NetHeader::decode(&bench.read(buffer_at(0), 12).try_into().unwrap());
    assert_eq!(received, NetHeader { num_buffers: 2, ..header });
    let payload = [bench.read(buffer_at(0) + 12, 1000), bench.read(buffer_at(1), 700)].concat();
    assert_eq!(payload, bytes);
}

fn a_segment_longer_than_the_buffer_is_refused<D: DriverQueue, Q: DeviceQueue>() {
    let mut bench = Bench::<D>::new(Features::VERSION_1);
    let mut sink = to_guest::<D, Q>(&bench);
    bench.post(&[1526]);
    let segment = |bytes| Segment { header: NetHeader::default(), bytes };
    assert_eq!(sink.put_segment(&segment(&[1; 1515])), Put::Refused);
    assert_eq!(sink.counters.drops[DropReason::TooLong as usize], 1);
    assert_eq!(sink.put_segment(&segment(&[1; 1514])), Put::Done);
}

fn a_readable_element_breaks_the_receiveq<D: DriverQueue, Q: DeviceQueue>() {
    let mut bench = Bench::<D>::new(Features::MRG_RXBUF);
    let mut sink = to_guest::<D, Q>(&bench);
    bench.driver.add(&[(DATA_AT, 64)], &[(DATA_AT + 64, 2000)], BufferId(0)).unwrap();
    bench.driver.publish();
    assert_eq!(bench.put(&mut sink, NetHeader::default(), 100), Put::Refused);
    assert_eq!(sink.broken(), Some(Why::WrongDirection));
}

fn a_buffer_without_room_for_the_header_breaks_the_receiveq<D: DriverQueue, Q: DeviceQueue>() {
    for len in [1, 11] {
        let mut bench = Bench::<D>::new(Features::MRG_RXBUF);
        let mut sink = to_guest::<D, Q>(&bench);
        bench.post(&[len]);
        assert_eq!(bench.put(&mut sink, NetHeader::default(), 100), Put::Refused);
        assert_eq!(sink.broken(), Some(Why::NoHeader));
    }
}

fn the_header_may_be_split_at_every_byte<D: DriverQueue, Q: DeviceQueue>() {
    let header = NetHeader { hdr_len: 0x1234, ..NetHeader::default() };
    let mut bytes = header.encode().to_vec();
    bytes.extend(pattern(60));
    for first in 1..bytes.len() {
        for second in [first, first + 1, first + 5] {
            let mut bench = Bench::<D>::new(Features::empty());
            let mut source = from_guest::<D, Q>(&bench);
            bench.send(&bytes, &[first, second]);
            let packet = source.peek().unwrap();
            assert_eq!((packet.header.hdr_len, packet.len), (0x1234, 60));
            let mut payload = vec![0; 60];
            assert_eq!(packet.copy_out(&mut payload), 60);
            assert_eq!(payload, pattern(60), "cut at {first} and {second}");
            assert!(source.peek().is_some(), "peeking again lends the same packet");
            source.pop();
            assert!(source.peek().is_none());
            assert!(source.flush());
            assert_eq!(bench.all_used(), [Used { id: BufferId(0), len: 0 }]);
        }
    }
}

fn a_packet_shorter_than_ethernet_is_dropped_and_counted<D: DriverQueue, Q: DeviceQueue>() {
    for len in 12..12 + 14 {
        let mut bench = Bench::<D>::new(Features::empty());
        let mut source = from_guest::<D, Q>(&bench);
        bench.send(&vec![0; len], &[5]);
        assert!(source.peek().is_none());
        assert_eq!(source.counters.drops[DropReason::Malformed as usize], 1, "{len} bytes");
        assert_eq!(source.broken(), None);
        source.flush();
        assert_eq!(bench.all_used().len(), 1, "the buffer goes back");
    }
}

/// Or a guest with a long ring would keep the worker from all others.
fn a_visit_ends_after_so_many_bad_buffers_or_commands<D: DriverQueue, Q: DeviceQueue>() {
    let mut bench = Bench::<D>::new(Features::empty());
    let mut source = from_guest::<D, Q>(&bench);
    for id in 0..40 {
        let len = if id < 39 { 12 + 5 } else { 12 + 60 };
        bench.driver.add(&[(DATA_AT, len)], &[], BufferId(id)).unwrap();
    }
    bench.driver.publish();
    for found in [false, false] {
        assert_eq!(source.peek().is_some(), found);
    }
    assert_eq!(source.publish().packets, 32);
    assert!(source.arm_kicks(Arm::Next), "there are more");
    assert!(source.peek().is_some());
    let mut bench = Bench::<D>::new(Features::CTRL_VQ);
    let mut control = ControlQueue::<Q>::new(bench.device(), bench.regions(), bench.negotiated);
    for id in 0..20 {
        bench.driver.add(&[(DATA_AT, 8)], &[(DATA_AT + 4096, 1)], BufferId(id)).unwrap();
    }
    bench.driver.publish();
    let mut state = ControlState::new(MacAddress::ZERO, &Negotiated::NOTHING);
    control.visit(&mut state, |_| ());
    assert_eq!(bench.all_used().len(), 16);
    assert!(control.arm_kicks(Arm::Next), "there are more");
    control.visit(&mut state, |_| ());
    assert_eq!(bench.all_used().len(), 4);
}

/// Makes so many buffers available, each of as many elements of that length as one may have: all of
/// them are in the same table.
fn make_chains_available(bench: &Bench<SplitDriver>, count: u16, len: u32) {
    const NEXT: u16 = 1;
    const INDIRECT: u16 = 4;
    let descriptor = |address: u64, len: u32, flags: u16, next: u16| {
        [&address.to_le_bytes()[..], &len.to_le_bytes(), &flags.to_le_bytes(), &next.to_le_bytes()]
            .concat()
    };
    let (elements, areas) = (ELEMENTS_MAX as u16, bench.driver.areas());
    for at in 0..elements {
        let flags = if at + 1 < elements { NEXT } else { 0 };
        let element = descriptor(DATA_AT + 0x1_0000, len, flags, at + 1);
        bench.write(DATA_AT + 16 * u64::from(at), &element);
    }
    for id in 0..count {
        let table = descriptor(DATA_AT, 16 * u32::from(elements), INDIRECT, 0);
        bench.write(areas.descriptor + 16 * u64::from(id), &table);
        bench.write(areas.driver + 4 + 2 * u64::from(id), &id.to_le_bytes());
    }
    bench.write(areas.driver + 2, &count.to_le_bytes());
}

/// Or a guest would keep the worker from all others for a hundred times as long as by packets.
#[test]
fn what_is_done_about_no_packet_is_bounded_in_elements_too() {
    let bench = Bench::<SplitDriver>::new(Features::INDIRECT_DESC);
    make_chains_available(&bench, 40, 100);
    let mut source = from_guest::<_, SplitDevice>(&bench);
    let mut visits = 0;
    while source.counters.drops[DropReason::TooLong as usize] < 40 {
        assert!(source.peek().is_none(), "they are longer than any packet");
        let given_back = source.publish().packets as usize;
        assert!((1..=2).contains(&given_back), "{given_back} buffers in one visit");
        visits += 1;
        assert!(source.arm_kicks(Arm::Next) || visits == 20, "there are more");
    }
    assert_eq!(visits, 20);
}

/// The same of commands.
#[test]
fn what_is_answered_at_a_time_is_bounded_in_elements_too() {
    let bench = Bench::<SplitDriver>::new(Features::INDIRECT_DESC | Features::CTRL_VQ);
    make_chains_available(&bench, 3, 1);
    // The last element is for the answer.
    bench.write(DATA_AT + 16 * (ELEMENTS_MAX as u64 - 1) + 12, &2u16.to_le_bytes());
    let device: SplitDevice = bench.device();
    let mut control = ControlQueue::new(device, bench.regions(), bench.negotiated);
    let mut state = ControlState::new(MacAddress::ZERO, &Negotiated::NOTHING);
    for used in 1..=3 {
        control.visit(&mut state, |_| ());
        assert_eq!(control.refused(), used, "one takes as long as many others");
        assert_eq!(control.arm_kicks(Arm::Next), used < 3, "whether there are more");
    }
}

/// A port whose transmitq runs.
fn sending<D: DriverQueue>(bench: &Bench<D>) -> AnyGuestPort {
    let state = ControlState::new(MacAddress::ZERO, &bench.negotiated);
    let mut port = AnyGuestPort::new(bench.negotiated, state, [Counters::default(); 2]);
    port.start(Queue::FromGuest, &bench.setup(), &bench.regions()).unwrap();
    port
}

#[test]
fn a_disabled_transmitq_is_emptied_in_pieces() {
    let bench = Bench::<SplitDriver>::new(Features::INDIRECT_DESC);
    make_chains_available(&bench, 40, 60);
    let mut port = sending(&bench);
    for used in [16, 32, 40] {
        assert_eq!(port.discard(), used < 40, "whether there are more");
        assert_eq!(port.counters()[1].drops[DropReason::LinkDown as usize], used);
        let shown = bench.at(bench.driver.areas().device + 2, 2).load_u16(0);
        assert_eq!(u64::from(shown), used);
    }
    let mut bench = Bench::<SplitDriver>::new(Features::empty());
    (0..QUEUE_SIZE).for_each(|id| {
        bench.driver.add(&[(DATA_AT, 12 + 60)], &[], BufferId(id)).unwrap();
    });
    bench.driver.publish();
    assert!(!sending(&bench).discard(), "so many usual ones go at once");
    assert_eq!(bench.all_used().len(), usize::from(QUEUE_SIZE));
}

fn a_buffer_shorter_than_the_header_breaks_the_transmitq<D: DriverQueue, Q: DeviceQueue>() {
    for len in 1..12 {
        let mut bench = Bench::<D>::new(Features::empty());
        let mut source = from_guest::<D, Q>(&bench);
        bench.send(&vec![0; len], &[5]);
        assert!(source.peek().is_none());
        assert_eq!(source.broken(), Some(Why::NoHeader), "{len} bytes");
    }
}

fn a_writable_element_of_the_transmitq_is_read_and_never_written<D: DriverQueue, Q: DeviceQueue>() {
    let mut bench = Bench::<D>::new(Features::empty());
    let mut source = from_guest::<D, Q>(&bench);
    let mut bytes = NetHeader::default().encode().to_vec();
    bytes.extend(pattern(60));
    bench.write(DATA_AT, &bytes);
    bench.driver.add(&[], &[(DATA_AT, 12), (DATA_AT + 12, 60)], BufferId(3)).unwrap();
    bench.driver.publish();
    let mut payload = vec![0; 60];
    assert_eq!(source.peek().unwrap().copy_out(&mut payload), 60);
    assert_eq!(payload, pattern(60));
    source.pop();
    source.flush();
    assert_eq!(bench.all_used(), [Used { id: BufferId(3), len: 0 }]);
    assert_eq!(bench.read(DATA_AT, bytes.len()), bytes);
}

fn an_offload_that_was_not_negotiated_cannot_be_sent<D: DriverQueue, Q: DeviceQueue>() {
    let header =
        NetHeader { flags: NEEDS_CSUM, csum_start: 34, csum_offset: 16, ..Default::default() };
    let mut bytes = header.encode().to_vec();
    bytes.extend(pattern(100));
    for (features, passes) in [(Features::empty(), false), (Features::CSUM, true)] {
        let mut bench = Bench::<D>::new(features);
        let mut source = from_guest::<D, Q>(&bench);
        bench.send(&bytes, &[12]);
        assert_eq!(source.peek().is_some(), passes);
        let dropped = source.counters.drops[DropReason::Malformed as usize];
        assert_eq!(dropped, u64::from(!passes));
    }
}

fn spec_5_1_6_5_every_command_is_answered<D: DriverQueue, Q: DeviceQueue>() {
    let mac = MacAddress([0x52, 0x54, 0, 1, 2, 3]);
    let mut set_mac = vec![1, 1];
    set_mac.extend(mac.0);
    for (command, ack, after) in [
        (set_mac, 0, mac),
        (vec![0, 0, 1], 1, MacAddress::ZERO),
        (vec![2, 0, 5, 0], 1, MacAddress::ZERO),
        (vec![9, 9], 1, MacAddress::ZERO),
        (vec![1], 1, MacAddress::ZERO),
        (vec![7; 5000], 1, MacAddress::ZERO),
    ] {
        let mut bench =
            Bench::<D>::new(Features::CTRL_VQ | Features::CTRL_MAC_ADDR | Features::MAC);
        let mut control = ControlQueue::<Q>::new(bench.device(), bench.regions(), bench.negotiated);
        bench.write(DATA_AT, &command);
        bench.write(DATA_AT + 4096, &[0xee]);
        let readable = [(DATA_AT, command.len() as u32)];
        bench.driver.add(&readable, &[(DATA_AT + 4096, 1)], BufferId(0)).unwrap();
        bench.driver.publish();
        let mut state = ControlState::new(MacAddress::ZERO, &Negotiated::NOTHING);
        assert!(control.visit(&mut state, |_| ()));
        assert_eq!(bench.all_used(), [Used { id: BufferId(0), len: 1 }]);
        assert_eq!(bench.read(DATA_AT + 4096, 1), [ack], "command {:?}…", &command[..1]);
        assert_eq!(state.mac, after);
    }
}

/// As Linux sends it with 1,000 groups: class and command, then each table in an element of its
/// own.
fn spec_5_1_6_5_2_tables_of_any_length_are_taken<D: DriverQueue, Q: DeviceQueue>() {
    const GROUPS: u32 = 1000;
    let mut tables = vec![1, 0, 0, 0, 0, 0];
    tables.extend(GROUPS.to_le_bytes());
    tables.extend((0..GROUPS).flat_map(|at| [1, 0, 0x5e, 0, (at >> 8) as u8, at as u8]));
    let len = tables.len();
    for (cuts, ack) in [
        (&[2, 6][..], 0),
        (&[1, 3, 8, 300, 301, 5000], 0),
        // The last address lacks a byte.
        (&[2, 6, len - 1], 1),
    ] {
        let mut bench = Bench::<D>::new(Features::CTRL_VQ | Features::CTRL_RX);
        let mut control = ControlQueue::<Q>::new(bench.device(), bench.regions(), bench.negotiated);
        bench.write(DATA_AT, &tables);
        let ends = cuts.iter().copied().chain((ack == 0).then_some(len));
        let (mut readable, mut at) = (Vec::new(), 0);
        for end in ends {
            readable.push((DATA_AT + at as u64, (end - at) as u32));
            at = end;
        }
        let ack_at = DATA_AT + 0x1_0000;
        bench.driver.add(&readable, &[(ack_at, 1)], BufferId(0)).unwrap();
        bench.driver.publish();
        let before = ControlState::new(MacAddress::ZERO, &bench.negotiated);
        let mut state = before.clone();
        assert!(control.visit(&mut state, |_| ()));
        assert_eq!(bench.read(ack_at, 1), [ack], "{cuts:?}");
        assert_eq!(state != before, ack == 0, "{cuts:?}");
    }
}

/// The result of a request lies before the acknowledgement, in however many pieces.
fn spec_1_3_5_1_6_5_7_a_result_comes_before_its_acknowledgement<D: DriverQueue, Q: DeviceQueue>() {
    let limits = [16, 0, 0, 0, 50, 0, 0, 0];
    let set = [&[6, 1][..], &limits].concat();
    let (request, beyond) = ([6, 3, 0, 0, 0, 0], [6, 3, 2, 0, 0, 0]);
    let answer = |bytes: [u8; 8], ack| [&bytes[..], &[ack]].concat();
    for (request, pieces, expected, refused) in [
        (request, &[9][..], answer(limits, 0), 0),
        (request, &[3, 5, 1], answer(limits, 0), 0),
        (request, &[8, 40], answer(limits, 0), 0),
        (beyond, &[9], answer([0; 8], 1), 1),
        (request, &[8], vec![1], 1),
    ] {
        let mut bench =
            Bench::<D>::new(Features::CTRL_VQ | Features::NOTF_COAL | Features::VQ_NOTF_COAL);
        let mut control = ControlQueue::<Q>::new(bench.device(), bench.regions(), bench.negotiated);
        let mut state = ControlState::new(MacAddress::ZERO, &bench.negotiated);
        bench.write(DATA_AT, &set);
        bench.write(DATA_AT + 2048, &request);
        let first = [(DATA_AT, set.len() as u32)];
        bench.driver.add(&first, &[(DATA_AT + 1024, 1)], BufferId(0)).unwrap();
        let (mut writable, mut at) = (Vec::new(), DATA_AT + 4096);
        for &len in pieces {
            writable.push((at, len));
            at += u64::from(len);
        }
        bench.driver.add(&[(DATA_AT + 2048, 6)], &writable, BufferId(1)).unwrap();
        bench.driver.publish();
        assert!(control.visit(&mut state, |_| ()));
        let used = bench.all_used();
        assert_eq!(used[1].len, expected.len() as u32, "{pieces:?}");
        assert_eq!(bench.read(DATA_AT + 4096, expected.len()), expected, "{pieces:?}");
        assert_eq!(control.refused(), refused);
    }
}

fn an_acknowledgement_that_cannot_be_written_breaks_the_controlq<D: DriverQueue, Q: DeviceQueue>() {
    let mut bench = Bench::<D>::new(Features::CTRL_VQ);
    let mut control = ControlQueue::<Q>::new(bench.device(), bench.regions(), bench.negotiated);
    bench.driver.add(&[(DATA_AT, 8)], &[], BufferId(0)).unwrap();
    bench.driver.publish();
    assert!(!control.visit(&mut ControlState::new(MacAddress::ZERO, &Negotiated::NOTHING), |_| ()));
    assert_eq!(control.broken(), Some(Why::WrongDirection));
}

/// A published hash (see `net`), in the 20 bytes that the guest reads.
fn spec_5_1_6_4_the_hash_stands_behind_the_header<D: DriverQueue, Q: DeviceQueue>() {
    const KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];
    let mut bytes = vec![0; 60];
    bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
    bytes[23] = 6;
    bytes[26..34].copy_from_slice(&[66, 9, 149, 187, 161, 142, 100, 80]);
    bytes[34..38].copy_from_slice(&[0x0a, 0xea, 0x06, 0xe6]);
    let hashed = [0x78, 0xc1, 0xcc, 0x51, 2, 0, 0, 0];
    for (hash, expected) in [(ReceiveHash::new(0x3f, &KEY), hashed), (None, [0; 8])] {
        let features = Features::MRG_RXBUF | Features::CTRL_VQ | Features::HASH_REPORT;
        let mut bench = Bench::<D>::new(features);
        let mut sink = to_guest::<D, Q>(&bench);
        sink.set_hash(hash);
        // The header does not even fit into the first buffer's first half.
        bench.post(&[50, 2000]);
        bench.write(SENDER_AT, &bytes);
        let payload = [bench.at(SENDER_AT, bytes.len())];
        let packet = Packet { header: &NetHeader::ZERO, payload: &payload, len: 60 };
        assert_eq!(sink.put(&packet), Put::Done);
        sink.flush();
        assert_eq!(bench.all_used().len(), 2);
        assert_eq!(bench.read(buffer_at(0) + 12, 8), expected);
        assert_eq!(bench.read(buffer_at(0) + 20, 30), bytes[..30]);
    }
}

#[test]
fn a_queue_that_stops_is_kicked_behind_whatever_is_available() {
    stops_and_is_kicked::<SplitDriver>();
    stops_and_is_kicked::<PackedDriver>();
}

/// A stopped queue goes on when its guest kicks, so the kick must not depend on what is in it; nor
/// is all of that walked through, which would keep the worker from all others.
fn stops_and_is_kicked<D: DriverQueue>() {
    const OUTSIDE: u64 = 0xdead_0000;
    let mut bench = Bench::<D>::new(Features::EVENT_IDX);
    for id in 0..3 {
        bench.driver.add(&[(OUTSIDE, 60), (OUTSIDE, 60)], &[], BufferId(id)).unwrap();
    }
    bench.driver.publish();
    assert!(bench.driver.must_kick());
    let mut port = sending(&bench);
    assert!(port.stop(Queue::FromGuest).is_some());
    bench.driver.add(&[(OUTSIDE, 60)], &[], BufferId(3)).unwrap();
    bench.driver.publish();
    assert!(bench.driver.must_kick(), "the next one is kicked");
    bench.driver.add(&[(OUTSIDE, 60)], &[], BufferId(4)).unwrap();
    bench.driver.publish();
    assert!(!bench.driver.must_kick(), "the one behind it is not");
}
