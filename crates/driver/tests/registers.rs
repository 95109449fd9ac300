//! Devices made of memory: what the two register transports find there, and what they refuse.

use std::cell::RefCell;

use ringway_driver::{
    ConfigSpace, Ecam, FunctionAddress, MmioError, MmioTransport, PciError, PciTransport,
    QueueStart, Registers, Transport, net_functions,
};
use ringway_virtq::{Areas, Format};

const BAR_AT: u64 = 0xfe00_0000;
const BAR_LEN: usize = 0x4000;
const HERE: FunctionAddress = FunctionAddress { bus: 0, device: 3, function: 0 };
/// Where in the configuration space each capability is, and where in the BAR its structure.
const COMMON: (u8, u32) = (0x40, 0);
const NOTIFY: (u8, u32) = (0x50, 0x1000);
const DEVICE: (u8, u32) = (0x70, 0x2000);
const MSIX: u8 = 0x80;

#[repr(align(4096))]
struct Memory([u8; BAR_LEN]);

fn registers() -> Registers {
    let memory = Box::leak(Box::new(Memory([0; BAR_LEN])));
    // SAFETY: the memory is leaked, so it stays; only the registers touch it from here on.
    unsafe { Registers::new(memory.0.as_mut_ptr(), BAR_LEN) }
}

/// One function's configuration space.
struct Space(RefCell<[u8; 256]>);

impl Space {
    /// A network device with all capabilities, its BAR 4 assigned.
    fn good() -> Self {
        let space = Self(RefCell::new([0; 256]));
        space.set(0x00, 0x1041_1af4);
        space.set(0x04, 1 << 20);
        space.set(0x20, 0xfe00_0004);
        space.set(0x34, COMMON.0.into());
        space.capability(COMMON, 1, 0x38, NOTIFY.0);
        space.capability(NOTIFY, 2, 0x10, DEVICE.0);
        space.set(usize::from(NOTIFY.0) + 16, 4);
        space.capability(DEVICE, 4, 24, MSIX);
        space.set(MSIX.into(), 0x11 | 2 << 16);
        space.set(usize::from(MSIX) + 4, 0x3000 | 4);
        space
    }

    fn capability(&self, (at, offset): (u8, u32), kind: u32, len: u32, next: u8) {
        let at = usize::from(at);
        self.set(at, 0x09 | u32::from(next) << 8 | 16 << 16 | kind << 24);
        self.set(at + 4, 4);
        self.set(at + 8, offset);
        self.set(at + 12, len);
    }

    fn set(&self, at: usize, value: u32) {
        self.0.borrow_mut()[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
}

impl ConfigSpace for &Space {
    fn read(&self, function: FunctionAddress, offset: u16) -> u32 {
        if function != HERE {
            return u32::MAX;
        }
        let bytes = self.0.borrow();
        let at = usize::from(offset);
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    }

    fn write(&self, _: FunctionAddress, offset: u16, value: u32) {
        // The upper half of the command register is the status, in which zeros change nothing.
        let kept = if offset == 4 { self.read(HERE, 4) & 0xffff_0000 } else { 0 };
        self.set(offset.into(), value | kept);
    }
}

fn open(space: &Space, bar: Registers) -> Result<PciTransport<&Space>, PciError> {
    PciTransport::new(space, HERE, |address, len| {
        bar.slice(usize::try_from(address.checked_sub(BAR_AT)?).ok()?, len)
    })
}

fn start(queue: u16, vector: Option<u16>) -> QueueStart {
    let areas = Areas::new(0x1_0000_1000, 0x2000, 0x3000);
    QueueStart { queue, size: 64, areas, format: Format::Split, vector }
}

#[test]
fn spec_4_1_4_structures_are_found_and_a_queue_is_described() {
    let (space, bar) = (Space::good(), registers());
    let found: Vec<_> = net_functions(&&space, 0).collect();
    assert_eq!(found, [HERE]);
    let mut transport = open(&space, bar).expect("a good device");
    assert_eq!((&space).read(HERE, 4) & 0x406, 0x406, "memory, bus master, no interrupt line");
    assert_eq!(transport.vectors(), 3);
    transport.set_vector(2, 0x1_fee0_0000, 0x41).expect("there are three");
    assert_eq!(bar.read_u32(0x3000 + 32 + 4), 1);
    assert_eq!((&space).read(HERE, MSIX.into()) >> 31, 1, "enabled");
    assert_eq!(transport.set_vector(3, 0, 0), Err(PciError::NoVector(3)));
    bar.write_u16(0x1e, 2);
    let doorbell = transport.start_queue(&start(5, Some(1))).expect("a good queue");
    assert_eq!((bar.read_u16(0x16), bar.read_u16(0x18), bar.read_u16(0x1a)), (5, 64, 1));
    assert_eq!((bar.read_u32(0x20), bar.read_u32(0x24), bar.read_u16(0x1c)), (0x1000, 1, 1));
    ringway_driver::Doorbell::kick(&doorbell);
    assert_eq!(bar.read_u16(0x1000 + 2 * 4), 5, "the queue's own register");
    assert_eq!(transport.start_queue(&start(5, None)).err(), Some(PciError::QueueInUse(5)));
}

#[test]
fn a_doorbell_outside_its_structure_is_refused() {
    let (space, bar) = (Space::good(), registers());
    let mut transport = open(&space, bar).expect("a good device");
    bar.write_u16(0x1e, 4);
    let error = transport.start_queue(&start(0, None)).err();
    assert_eq!(error, Some(PciError::NoDoorbell(0)));
    let odd = Space::good();
    odd.set(usize::from(NOTIFY.0) + 16, 3);
    bar.write_u16(0x1e, 1);
    let error = open(&odd, bar).expect("a good device").start_queue(&start(0, None)).err();
    assert_eq!(error, Some(PciError::NoDoorbell(0)), "misaligned");
    assert_eq!(bar.read_u16(0x1c), 0, "not enabled");
    let mut word = [0; 2];
    assert_eq!(transport.read_config(22, &mut word), Ok(()));
    assert_eq!(transport.read_config(24, &mut word), Err(PciError::NoConfig));
}

#[test]
fn capabilities_that_make_no_sense_are_refused() {
    let error = |change: fn(&Space)| {
        let space = Space::good();
        change(&space);
        open(&space, registers()).err()
    };
    let common = Some(PciError::NoCapability("common"));
    assert_eq!(error(|_| ()), None);
    assert_eq!(error(|space| space.set(0x04, 0)), common, "no list at all");
    assert_eq!(error(|space| space.capability(COMMON, 1, 0x37, NOTIFY.0)), common, "too short");
    assert_eq!(error(|space| space.capability(COMMON, 9, 0x38, COMMON.0)), common, "a loop");
    assert_eq!(error(|space| space.set(0x44, 7)), common, "an unknown BAR is skipped");
    assert_eq!(error(|space| space.set(0x48, 2)), common, "misaligned");
    let notify = Some(PciError::NoCapability("notify"));
    assert_eq!(error(|space| space.capability(NOTIFY, 8, 0x10, DEVICE.0)), notify);
    assert_eq!(error(|space| space.set(0x58, 0x1001)), notify, "misaligned");
    let no_bar = Some(PciError::NoBar(4));
    assert_eq!(error(|space| space.set(0x20, 4)), no_bar, "not assigned");
    assert_eq!(error(|space| space.set(0x20, 0xfe01)), no_bar, "ports");
    assert_eq!(error(|space| space.set(0x48, u32::MAX - 3)), no_bar, "outside");
    assert_eq!(error(|space| space.set(0x4c, u32::MAX)), no_bar, "too long");
}

#[test]
fn memory_mapped_configuration_space_ends_where_it_ends() {
    let bar = registers();
    bar.write_u32(0x1008, 77);
    let ecam = Ecam(bar);
    let second = FunctionAddress { bus: 0, device: 0, function: 1 };
    assert_eq!(ecam.read(second, 8), 77);
    assert_eq!(ecam.read(HERE, 0), u32::MAX, "nothing there");
    ecam.write(HERE, 0, 1);
    assert_eq!(net_functions(&ecam, 0).count(), 0);
}

#[test]
fn spec_4_2_2_what_is_no_network_device_is_told_apart() {
    let error = |magic, version, device| {
        let block = registers();
        for (at, word) in [(0, magic), (4, version), (8, device)] {
            block.write_u32(at, word);
        }
        MmioTransport::new(block).err()
    };
    assert_eq!(error(0x7472_6976, 2, 1), None);
    assert_eq!(error(0, 2, 1), Some(MmioError::NotVirtio));
    assert_eq!(error(0x7472_6976, 1, 1), Some(MmioError::Version(1)));
    assert_eq!(error(0x7472_6976, 2, 0), Some(MmioError::Device(0)));
    let short = registers().slice(0, 0x80).expect("inside");
    assert_eq!(MmioTransport::new(short).err(), Some(MmioError::NotVirtio));
}

#[test]
fn spec_4_2_3_a_queue_is_described_in_registers() {
    let block = registers();
    for (at, word) in [(0, 0x7472_6976), (4, 2), (8, 1)] {
        block.write_u32(at, word);
    }
    let mut transport = MmioTransport::new(block).expect("a good device");
    let doorbell = transport.start_queue(&start(7, None)).expect("a good queue");
    assert_eq!([0x30, 0x38, 0x44, 0x80, 0x84].map(|at| block.read_u32(at)), [7, 64, 1, 0x1000, 1]);
    ringway_driver::Doorbell::kick(&doorbell);
    assert_eq!(block.read_u32(0x50), 7);
    assert_eq!(transport.start_queue(&start(7, None)).err(), Some(MmioError::QueueInUse(7)));
    block.write_u32(0x60, 2);
    assert_eq!(transport.acknowledge_interrupt(), (false, true));
    assert_eq!(block.read_u32(0x64), 2);
    let mut mac = [0; 6];
    block.write_u8(0x105, 9);
    assert_eq!(transport.read_config(0, &mut mac), Ok(()));
    assert_eq!(mac, [0, 0, 0, 0, 0, 9]);
}
