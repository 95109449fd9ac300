//! virtio over PCI, the modern interface (virtio 1.2 §4.1).
//!
//! How: the function's capabilities say in which BAR, and where in it, the common configuration,
//! the notifications and the device configuration are ([`PciTransport::new`]). Configuration space
//! is reached through a [`ConfigSpace`]: memory-mapped ([`Ecam`]), or ports where a processor has
//! them. With MSI-X, each queue has a vector of its own; without, the driver polls.
//!
//! Limits: BARs must have been assigned by firmware; memory BARs only; one domain.

use ringway_net::Features;

use crate::mmio::{Registers, halves};
use crate::transport::{Doorbell, QueueStart, Transport};

/// Capabilities that are looked at: more than fit into a configuration space.
const CAPABILITIES_MAX: usize = 48;

/// Virtio's vendor, and a network device, modern and transitional (virtio 1.2 §4.1.2).
const VENDOR: u32 = 0x1af4;
const NET_MODERN: u32 = 0x1041;
const NET_TRANSITIONAL: u32 = 0x1000;

/// Registers of every function's configuration space.
mod header {
    pub const IDS: u16 = 0x00;
    pub const COMMAND: u16 = 0x04;
    pub const TYPE: u16 = 0x0c;
    pub const BAR: u16 = 0x10;
    pub const BARS: u8 = 6;
    pub const CAPABILITIES: u16 = 0x34;

    pub const MEMORY_SPACE: u32 = 1 << 1;
    pub const BUS_MASTER: u32 = 1 << 2;
    pub const NO_INTERRUPT_LINE: u32 = 1 << 10;
    /// Of the status half of the same register.
    pub const HAS_CAPABILITIES: u32 = 1 << 20;
    pub const MULTI_FUNCTION: u32 = 1 << 23;
}

/// Capability ids.
const VENDOR_SPECIFIC: u32 = 0x09;
const MSIX: u32 = 0x11;
/// Of MSI-X's control word, which is the upper half of its first register.
const MSIX_ENABLE: u32 = 1 << 31;
const MSIX_ENTRY_LEN: usize = 16;
/// A queue without a vector (virtio 1.2 §4.1.5.1.3).
const NO_VECTOR: u16 = 0xffff;

/// Kinds of virtio capabilities (virtio 1.2 §4.1.4).
const COMMON: u32 = 1;
const NOTIFY: u32 = 2;
const DEVICE: u32 = 4;

/// Offsets in the common configuration (virtio 1.2 §4.1.4.3).
mod common {
    pub const DEVICE_FEATURE_SELECT: usize = 0x00;
    pub const DEVICE_FEATURE: usize = 0x04;
    pub const DRIVER_FEATURE_SELECT: usize = 0x08;
    pub const DRIVER_FEATURE: usize = 0x0c;
    pub const STATUS: usize = 0x14;
    pub const CONFIG_GENERATION: usize = 0x15;
    pub const QUEUE_SELECT: usize = 0x16;
    pub const QUEUE_SIZE: usize = 0x18;
    pub const QUEUE_VECTOR: usize = 0x1a;
    pub const QUEUE_ENABLE: usize = 0x1c;
    pub const QUEUE_NOTIFY_OFFSET: usize = 0x1e;
    pub const QUEUE_DESCRIPTOR: usize = 0x20;
    pub const QUEUE_DRIVER: usize = 0x28;
    pub const QUEUE_DEVICE: usize = 0x30;
    pub const LEN: usize = 0x38;
}

/// Where a function is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionAddress {
    /// Bus.
    pub bus: u8,
    /// Device on the bus, below 32.
    pub device: u8,
    /// Function of the device, below 8.
    pub function: u8,
}

/// Access to configuration space, 32 bits at a time.
pub trait ConfigSpace {
    /// Reads a register; `offset` is a multiple of 4. All ones if nothing is there.
    fn read(&self, function: FunctionAddress, offset: u16) -> u32;
    /// Writes a register; `offset` is a multiple of 4.
    fn write(&self, function: FunctionAddress, offset: u16, value: u32);
}

/// Memory-mapped configuration space (PCI Express base specification, §7.2.2).
#[derive(Debug, Clone, Copy)]
pub struct Ecam(pub Registers);

impl Ecam {
    /// Bytes per function, and how far apart functions, devices and buses are, as shifts.
    const SHIFTS: [u32; 3] = [12, 15, 20];

    fn offset(function: FunctionAddress, offset: u16) -> usize {
        let [of_function, of_device, of_bus] = Self::SHIFTS;
        usize::from(function.bus) << of_bus
            | usize::from(function.device) << of_device
            | usize::from(function.function) << of_function
            | usize::from(offset)
    }
}

impl ConfigSpace for Ecam {
    fn read(&self, function: FunctionAddress, offset: u16) -> u32 {
        let at = self.0.slice(Self::offset(function, offset), 4);
        at.map_or(u32::MAX, |register| register.read_u32(0))
    }

    fn write(&self, function: FunctionAddress, offset: u16, value: u32) {
        if let Some(register) = self.0.slice(Self::offset(function, offset), 4) {
            register.write_u32(0, value);
        }
    }
}

/// Network devices on one bus.
pub fn net_functions<C: ConfigSpace>(space: &C, bus: u8) -> impl Iterator<Item = FunctionAddress> {
    let functions = move |device| {
        let first = FunctionAddress { bus, device, function: 0 };
        let is_multi = space.read(first, header::TYPE) & header::MULTI_FUNCTION != 0;
        (0..if is_multi { 8 } else { 1 }).map(move |function| FunctionAddress { function, ..first })
    };
    (0..32).flat_map(functions).filter(move |function| {
        let ids = space.read(*function, header::IDS);
        ids & 0xffff == VENDOR && matches!(ids >> 16, NET_MODERN | NET_TRANSITIONAL)
    })
}

/// Why a function cannot be driven, or does not do what is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PciError {
    /// A capability that the modern interface must have is missing, or its place makes no sense.
    NoCapability(&'static str),
    /// A BAR that is needed has no memory assigned, or it cannot be mapped.
    NoBar(u8),
    /// The function has no MSI-X, or not so many vectors, or refuses to use one.
    NoVector(u16),
    /// The queue's notification register lies outside its capability.
    NoDoorbell(u16),
    /// The queue is in use already.
    QueueInUse(u16),
    /// The configuration space is shorter.
    NoConfig,
}

/// A network device behind PCI.
#[derive(Debug)]
pub struct PciTransport<C> {
    space: C,
    function: FunctionAddress,
    common: Registers,
    notify: Registers,
    /// Bytes from one queue's notification register to the next.
    notify_multiplier: usize,
    config: Registers,
    msix: Option<Msix>,
}

/// The function's MSI-X capability: where it is, and its table.
#[derive(Debug, Clone, Copy)]
struct Msix {
    capability: u16,
    table: Registers,
}

impl<C: ConfigSpace> PciTransport<C> {
    /// Looks at a function and switches its memory on. `map` makes registers of a physical address
    /// and a length in bytes; it is called once for each structure.
    ///
    /// # Errors
    /// Not a modern virtio device, or its BARs are unassigned or cannot be mapped.
    pub fn new(
        space: C,
        function: FunctionAddress,
        map: impl FnMut(u64, usize) -> Option<Registers>,
    ) -> Result<Self, PciError> {
        let command = space.read(function, header::COMMAND) & 0xffff;
        let wanted = header::MEMORY_SPACE | header::BUS_MASTER | header::NO_INTERRUPT_LINE;
        space.write(function, header::COMMAND, command | wanted);
        let mut finder = Finder { space: &space, function, map };
        let common = finder.structure(COMMON)?.ok_or(PciError::NoCapability("common"))?;
        if common.registers.len() < common::LEN {
            return Err(PciError::NoCapability("common"));
        }
        let notify = finder.structure(NOTIFY)?.ok_or(PciError::NoCapability("notify"))?;
        let config = finder.structure(DEVICE)?.ok_or(PciError::NoCapability("device"))?;
        let msix = finder.msix()?;
        let multiplier = space.read(function, notify.capability + 16);
        Ok(Self {
            common: common.registers,
            notify: notify.registers,
            notify_multiplier: multiplier as usize,
            config: config.registers,
            msix,
            space,
            function,
        })
    }

    /// Sends a message to `address` (on x86 an interrupt) for this vector, from now on.
    ///
    /// # Errors
    /// [`PciError::NoVector`].
    pub fn set_vector(&mut self, vector: u16, address: u64, data: u32) -> Result<(), PciError> {
        let missing = PciError::NoVector(vector);
        let msix = self.msix.ok_or(missing)?;
        let at = usize::from(vector) * MSIX_ENTRY_LEN;
        let entry = msix.table.slice(at, MSIX_ENTRY_LEN).ok_or(missing)?;
        entry.write_u64(0, address);
        entry.write_u32(8, data);
        // Bit 0 masks the vector.
        entry.write_u32(12, 0);
        let control = self.space.read(self.function, msix.capability);
        self.space.write(self.function, msix.capability, control | MSIX_ENABLE);
        Ok(())
    }

    /// Vectors that the function has.
    pub fn vectors(&self) -> usize {
        self.msix.map_or(0, |msix| msix.table.len() / MSIX_ENTRY_LEN)
    }

    fn select(&self, queue: u16) {
        self.common.write_u16(common::QUEUE_SELECT, queue);
    }
}

/// A virtio capability and the registers it points to.
struct Structure {
    capability: u16,
    registers: Registers,
}

/// Walks the capabilities of one function.
struct Finder<'a, C, M> {
    space: &'a C,
    function: FunctionAddress,
    map: M,
}

impl<C: ConfigSpace, M: FnMut(u64, usize) -> Option<Registers>> Finder<'_, C, M> {
    /// The first virtio capability of a kind whose BAR is known. Unknown BARs must be skipped
    /// (virtio 1.2 §4.1.4.1).
    fn structure(&mut self, kind: u32) -> Result<Option<Structure>, PciError> {
        let bar_of = |capability| self.read(capability + 4).to_le_bytes()[0];
        let found = self.capabilities().find(|&(capability, first)| {
            let is_kind = first & 0xff == VENDOR_SPECIFIC && first >> 24 == kind;
            is_kind && bar_of(capability) < header::BARS
        });
        let Some((capability, _)) = found else { return Ok(None) };
        let bar = bar_of(capability);
        let (offset, len) = (self.read(capability + 8), self.read(capability + 12));
        // No structure of ours may be misaligned (virtio 1.2 §4.1.4.3 to §4.1.4.6).
        if !offset.is_multiple_of(if kind == NOTIFY { 2 } else { 4 }) {
            return Ok(None);
        }
        let registers = self.registers(bar, offset, len as usize)?;
        Ok(Some(Structure { capability, registers }))
    }

    fn msix(&mut self) -> Result<Option<Msix>, PciError> {
        let found = self.capabilities().find(|(_, first)| first & 0xff == MSIX);
        let Some((capability, first)) = found else { return Ok(None) };
        let entries = (first >> 16 & 0x7ff) as usize + 1;
        // The lowest three bits say which BAR, the others where in it.
        let table = self.read(capability + 4);
        let bar = table.to_le_bytes()[0] & 7;
        let table = self.registers(bar, table & !7, entries * MSIX_ENTRY_LEN)?;
        Ok(Some(Msix { capability, table }))
    }

    /// Where each capability is, and its first register.
    fn capabilities(&self) -> impl Iterator<Item = (u16, u32)> + use<'_, C, M> {
        let has_any = self.read(header::COMMAND) & header::HAS_CAPABILITIES != 0;
        let first = if has_any { self.read(header::CAPABILITIES) } else { 0 };
        let mut next = u16::from(first.to_le_bytes()[0] & !3);
        core::iter::from_fn(move || {
            let at = next;
            let register = (at != 0).then(|| self.read(at))?;
            next = u16::from(register.to_le_bytes()[1] & !3);
            Some((at, register))
        })
        .take(CAPABILITIES_MAX)
    }

    fn registers(&mut self, bar: u8, offset: u32, len: usize) -> Result<Registers, PciError> {
        let start = self.bar(bar).ok_or(PciError::NoBar(bar))?;
        let start = start.checked_add(offset.into()).ok_or(PciError::NoBar(bar))?;
        (self.map)(start, len).ok_or(PciError::NoBar(bar))
    }

    /// Physical address of a memory BAR that was assigned.
    fn bar(&self, bar: u8) -> Option<u64> {
        const IS_PORT: u32 = 1;
        const IS_64_BIT: u32 = 1 << 2;
        if bar >= header::BARS {
            return None;
        }
        let at = header::BAR + 4 * u16::from(bar);
        let low = self.read(at);
        let is_wide = low & IS_64_BIT != 0 && bar + 1 < header::BARS;
        let high = if is_wide { self.read(at + 4) } else { 0 };
        let address = u64::from(low & !0xf) | u64::from(high) << 32;
        (low & IS_PORT == 0 && address != 0).then_some(address)
    }

    fn read(&self, offset: u16) -> u32 {
        self.space.read(self.function, offset)
    }
}

/// Kicks a queue by writing its number to its own register.
#[derive(Debug, Clone, Copy)]
pub struct PciDoorbell {
    register: Registers,
    queue: u16,
}

impl Doorbell for PciDoorbell {
    fn kick(&self) {
        self.register.write_u16(0, self.queue);
    }
}

impl<C: ConfigSpace> Transport for PciTransport<C> {
    type Error = PciError;
    type Doorbell = PciDoorbell;

    fn status(&mut self) -> Result<u8, PciError> {
        Ok(self.common.read_u8(common::STATUS))
    }

    fn set_status(&mut self, status: u8) -> Result<(), PciError> {
        self.common.write_u8(common::STATUS, status);
        Ok(())
    }

    fn offered_features(&mut self) -> Result<Features, PciError> {
        let [low, high] = [0, 1].map(|half| {
            self.common.write_u32(common::DEVICE_FEATURE_SELECT, half);
            u64::from(self.common.read_u32(common::DEVICE_FEATURE))
        });
        Ok(Features::from_bits_retain(low | high << 32))
    }

    fn accept_features(&mut self, features: Features) -> Result<(), PciError> {
        for (select, half) in (0..).zip(halves(features.bits())) {
            self.common.write_u32(common::DRIVER_FEATURE_SELECT, select);
            self.common.write_u32(common::DRIVER_FEATURE, half);
        }
        Ok(())
    }

    fn queue_size_max(&mut self, queue: u16) -> Result<u16, PciError> {
        self.select(queue);
        Ok(self.common.read_u16(common::QUEUE_SIZE))
    }

    fn start_queue(&mut self, start: &QueueStart) -> Result<PciDoorbell, PciError> {
        self.select(start.queue);
        let common = self.common;
        if common.read_u16(common::QUEUE_ENABLE) != 0 {
            return Err(PciError::QueueInUse(start.queue));
        }
        common.write_u16(common::QUEUE_SIZE, start.size);
        common.write_u64(common::QUEUE_DESCRIPTOR, start.areas.descriptor);
        common.write_u64(common::QUEUE_DRIVER, start.areas.driver);
        common.write_u64(common::QUEUE_DEVICE, start.areas.device);
        let vector = start.vector.unwrap_or(NO_VECTOR);
        common.write_u16(common::QUEUE_VECTOR, vector);
        if common.read_u16(common::QUEUE_VECTOR) != vector {
            return Err(PciError::NoVector(vector));
        }
        let offset = usize::from(common.read_u16(common::QUEUE_NOTIFY_OFFSET));
        let register = offset.checked_mul(self.notify_multiplier).filter(|at| at % 2 == 0);
        let register = register.and_then(|offset| self.notify.slice(offset, 2));
        let register = register.ok_or(PciError::NoDoorbell(start.queue))?;
        common.write_u16(common::QUEUE_ENABLE, 1);
        Ok(PciDoorbell { register, queue: start.queue })
    }

    fn config_generation(&mut self) -> Result<u32, PciError> {
        Ok(self.common.read_u8(common::CONFIG_GENERATION).into())
    }

    fn read_config(&mut self, offset: u16, into: &mut [u8]) -> Result<(), PciError> {
        let is_inside = self.config.read_field(offset.into(), into);
        is_inside.then_some(()).ok_or(PciError::NoConfig)
    }
}
