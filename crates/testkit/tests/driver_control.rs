//! Commands of the driver, carried over a real control queue and answered by what a device does
//! with them.

use ringway_driver::{
    Arena, CoalesceLimits, CommandState, Control, ControlCommand, ControlFailure,
};
use ringway_net::Answer;
use ringway_net::{ControlState, Features, MacAddress, Negotiated, ReceiveMode, answer};
use ringway_testkit::{Ring, TestMemory};
use ringway_virtq::{
    DeviceQueue, DriverQueue, Elements, PackedDevice, PackedDriver, Position, QueueSetup, Regions,
    SplitDevice, SplitDriver,
};

const SIZE: u16 = 16;
const PAIRS_MAX: u16 = 4;

/// A driver's control queue and the device behind it.
struct Commanded<D, V> {
    control: Control<D>,
    device: V,
    negotiated: Negotiated,
    state: ControlState,
    regions: Regions,
    _memory: TestMemory,
}

impl<D: DriverQueue, V: DeviceQueue> Commanded<D, V> {
    fn new() -> Self {
        let features = Features::OFFERED | Features::ON_REQUEST | Features::GUEST_ANNOUNCE;
        let negotiated = Negotiated::new(features - Features::IN_ORDER).expect("they fit together");
        let options = negotiated.options;
        let memory = TestMemory::new(&[(0x10_0000, 1 << 20)]).expect("memory");
        let regions = memory.regions();
        let mut arena = Arena::new(memory.region(0), 0x10_0000);
        let ring = Ring::carve(&mut arena, D::FORMAT, SIZE, options).expect("room");
        let control = Control::new(ring.start(options), &mut arena).expect("room");
        let areas = ring.areas();
        let setup = QueueSetup { size: SIZE, areas, position: Position::FRESH, options };
        let device = V::start(&setup, &regions).expect("a right setup");
        let state = ControlState::new(MacAddress::local(1), &negotiated);
        let state = state.with_queue_pairs_max(PAIRS_MAX);
        Self { control, device, negotiated, state, regions, _memory: memory }
    }

    /// The device answers what is there.
    fn answer(&mut self) {
        let (mut at, mut elements) = (self.device.cursor(), Elements::new());
        let peeked = self.device.peek(&mut at, &self.regions, &mut elements);
        let head = peeked.expect("a right driver").expect("a command");
        let mut bytes = Vec::new();
        for piece in elements.readable() {
            let start = bytes.len();
            bytes.resize(start + piece.len(), 0);
            piece.read(0, &mut bytes[start..]);
        }
        let Answer { result, ack } = answer(&bytes, &mut self.state, &self.negotiated);
        let bytes: Vec<u8> = result.into_iter().flatten().chain([ack.raw()]).collect();
        elements.writable()[0].write(0, &bytes);
        self.device.pop(head);
        self.device.add_used(head, u32::try_from(bytes.len()).expect("a few bytes"));
        self.device.publish();
    }

    fn ask(&mut self, command: &ControlCommand<'_>) -> CommandState {
        let started = self.control.command(command, self.negotiated.features, 0);
        assert!(started.is_ok(), "{command:?}: {started:?}");
        assert!(matches!(self.control.poll(1), Ok(CommandState::Waiting { .. })));
        self.answer();
        let answer = self.control.poll(2).expect("a right device");
        assert_eq!(self.control.poll(3), Ok(CommandState::Idle));
        answer
    }
}

fn commands_take_effect<D: DriverQueue, V: DeviceQueue>() {
    let mut commanded = Commanded::<D, V>::new();
    let mac = MacAddress::local(7);
    assert_eq!(commanded.ask(&ControlCommand::Mac(mac)), CommandState::Ok);
    assert_eq!(commanded.state.mac, mac);
    assert_eq!(commanded.ask(&ControlCommand::Mac(MacAddress::BROADCAST)), CommandState::Refused);
    assert_eq!(commanded.state.mac, mac);
    let mode = ReceiveMode::ALL[0];
    for on in [true, false] {
        assert_eq!(commanded.ask(&ControlCommand::ReceiveMode(mode, on)), CommandState::Ok);
        assert_eq!(commanded.state.filter.mode(mode), on);
    }
    let table = ControlCommand::MacTable {
        unicast: &[MacAddress::local(8), MacAddress::local(9)],
        multicast: &[MacAddress([1, 0, 0x5e, 0, 0, 1])],
    };
    assert_eq!(commanded.ask(&table), CommandState::Ok);
    assert_eq!(commanded.ask(&ControlCommand::Vlan(17, true)), CommandState::Ok);
    assert_eq!(commanded.ask(&ControlCommand::Vlan(0xffff, true)), CommandState::Refused);
    assert_eq!(commanded.ask(&ControlCommand::QueuePairs(PAIRS_MAX)), CommandState::Ok);
    assert_eq!(commanded.state.queue_pairs, PAIRS_MAX);
    assert_eq!(commanded.ask(&ControlCommand::QueuePairs(PAIRS_MAX + 1)), CommandState::Refused);
    assert_eq!(
        commanded.ask(&ControlCommand::GuestOffloads(Features::GUEST_CSUM)),
        CommandState::Ok
    );
    assert_eq!(commanded.state.guest_offloads, Features::GUEST_CSUM);
    assert_eq!(commanded.ask(&ControlCommand::AcknowledgeAnnouncement), CommandState::Ok);
    let limits = CoalesceLimits { max_packets: 16, max_usecs: 50 };
    assert_eq!(commanded.ask(&ControlCommand::CoalesceReceive(limits)), CommandState::Ok);
    for (queue, expected) in [(0, limits), (1, CoalesceLimits::default())] {
        assert_eq!(commanded.ask(&ControlCommand::ReadCoalescing(queue)), CommandState::Ok);
        assert_eq!(commanded.control.coalescing(), expected);
    }
    let too_long = CoalesceLimits { max_usecs: u32::MAX, ..limits };
    assert_eq!(commanded.ask(&ControlCommand::CoalesceQueue(1, too_long)), CommandState::Refused);
    assert_eq!(commanded.ask(&ControlCommand::CoalesceQueue(1, limits)), CommandState::Ok);
    assert_eq!(
        commanded.ask(&ControlCommand::ReadCoalescing(2 * PAIRS_MAX)),
        CommandState::Refused
    );
}

#[test]
fn a_device_does_what_it_is_told() {
    commands_take_effect::<SplitDriver, SplitDevice>();
    commands_take_effect::<PackedDriver, PackedDevice>();
}

#[test]
fn what_cannot_be_asked_is_not_asked() {
    let mut commanded = Commanded::<SplitDriver, SplitDevice>::new();
    let coalesce = ControlCommand::CoalesceReceive(CoalesceLimits::default());
    let without = commanded.negotiated.features - Features::NOTF_COAL;
    let control = &mut commanded.control;
    assert_eq!(control.command(&coalesce, without, 0), Err(ControlFailure::NotNegotiated));
    let many = vec![MacAddress::local(1); 700];
    let table = ControlCommand::MacTable { unicast: &many, multicast: &[] };
    let too_long = control.command(&table, Features::CTRL_RX, 0);
    assert_eq!(too_long, Err(ControlFailure::TooLong));
    // Neither left anything behind.
    assert_eq!(commanded.ask(&ControlCommand::AcknowledgeAnnouncement), CommandState::Ok);
}
