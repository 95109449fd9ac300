//! virtio over memory-mapped registers (virtio 1.2 §4.2), and access to device registers in
//! general.
//!
//! How: [`Registers`] is the only way to a device's registers: each access is volatile, checked
//! against the length, and little-endian. [`MmioTransport`] is a device whose whole interface is
//! one block of them.
//!
//! Limits: version 2 of the interface; QEMU has it with `virtio-mmio.force-legacy=false`.

use core::ptr;

use ringway_net::Features;

use crate::transport::{Doorbell, QueueStart, Transport};

/// A block of device registers.
#[derive(Debug, Clone, Copy)]
pub struct Registers {
    start: *mut u8,
    len: usize,
}

// SAFETY: every access is a single volatile load or store, which needs no exclusive owner; what
// concurrent accesses mean is the device's business.
unsafe impl Send for Registers {}
// SAFETY: as above.
unsafe impl Sync for Registers {}

macro_rules! accesses {
    ($($read:ident $write:ident $word:ty),*) => {$(
        /// Reads a register; `offset` must be inside and aligned.
        #[inline]
        pub fn $read(self, offset: usize) -> $word {
            let register = self.at::<$word>(offset);
            // SAFETY: inside the block and aligned, both just checked; the block is mapped.
            <$word>::from_le(unsafe { ptr::read_volatile(register) })
        }

        /// Writes a register; `offset` must be inside and aligned.
        #[inline]
        pub fn $write(self, offset: usize, value: $word) {
            let register = self.at::<$word>(offset);
            // SAFETY: inside the block and aligned, both just checked; the block is mapped.
            unsafe { ptr::write_volatile(register, value.to_le()) }
        }
    )*};
}

impl Registers {
    /// Takes `len` bytes of registers at `start`.
    ///
    /// # Safety
    /// The bytes must be mapped, uncached if the processor caches at all, and stay so for as long
    /// as any copy is in use. They must be registers: no Rust reference to them may exist.
    pub const unsafe fn new(start: *mut u8, len: usize) -> Self {
        Self { start, len }
    }

    /// Bytes of the block.
    pub const fn len(self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The `len` bytes at `offset`, if they are all inside.
    pub fn slice(self, offset: usize, len: usize) -> Option<Self> {
        let end = offset.checked_add(len)?;
        (end <= self.len).then(|| Self { start: self.start.wrapping_add(offset), len })
    }

    accesses!(read_u8 write_u8 u8, read_u16 write_u16 u16, read_u32 write_u32 u32);

    /// Writes a 64-bit register as two halves, low first (virtio 1.2 §4.1.3.1).
    pub fn write_u64(self, offset: usize, value: u64) {
        let [low, high] = halves(value);
        self.write_u32(offset, low);
        self.write_u32(offset + 4, high);
    }

    /// Reads a field of a configuration space with accesses of the field's width; `false`: it is
    /// not all inside.
    pub(crate) fn read_field(self, offset: usize, into: &mut [u8]) -> bool {
        let Some(field) = self.slice(offset, into.len()) else { return false };
        match into.len() {
            2 => into.copy_from_slice(&field.read_u16(0).to_le_bytes()),
            4 => into.copy_from_slice(&field.read_u32(0).to_le_bytes()),
            _ => {
                for (at, byte) in into.iter_mut().enumerate() {
                    *byte = field.read_u8(at);
                }
            }
        }
        true
    }

    fn at<W>(self, offset: usize) -> *mut W {
        let is_inside = offset <= self.len && size_of::<W>() <= self.len - offset;
        assert!(is_inside, "register {offset:#x} of {:#x}", self.len);
        let register = self.start.wrapping_add(offset).cast::<W>();
        assert!(register.is_aligned(), "misaligned register {offset:#x}");
        register
    }
}

/// The low and the high half of a word.
pub(crate) fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}

/// Offsets of the registers (virtio 1.2 §4.2.2).
mod at {
    pub const MAGIC: usize = 0x00;
    pub const VERSION: usize = 0x04;
    pub const DEVICE_ID: usize = 0x08;
    pub const DEVICE_FEATURES: usize = 0x10;
    pub const DEVICE_FEATURES_SELECT: usize = 0x14;
    pub const DRIVER_FEATURES: usize = 0x20;
    pub const DRIVER_FEATURES_SELECT: usize = 0x24;
    pub const QUEUE_SELECT: usize = 0x30;
    pub const QUEUE_SIZE_MAX: usize = 0x34;
    pub const QUEUE_SIZE: usize = 0x38;
    pub const QUEUE_READY: usize = 0x44;
    pub const QUEUE_NOTIFY: usize = 0x50;
    pub const INTERRUPT_STATUS: usize = 0x60;
    pub const INTERRUPT_ACKNOWLEDGE: usize = 0x64;
    pub const STATUS: usize = 0x70;
    pub const QUEUE_DESCRIPTOR: usize = 0x80;
    pub const QUEUE_DRIVER: usize = 0x90;
    pub const QUEUE_DEVICE: usize = 0xa0;
    pub const CONFIG_GENERATION: usize = 0xfc;
    pub const CONFIG: usize = 0x100;
}

/// "virt", little-endian.
const MAGIC: u32 = 0x7472_6976;
const VERSION: u32 = 2;
/// A network device (virtio 1.2 §5.1.1).
const NET: u32 = 1;

/// Why a block of registers is no device for us, or does not do what is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MmioError {
    /// No virtio device, or nothing of length enough.
    NotVirtio,
    /// A version of the interface that is not 2; 1 is the legacy one.
    Version(u32),
    /// Another kind of device; 0 is an empty place.
    Device(u32),
    /// The queue is in use already.
    QueueInUse(u16),
    /// The configuration space is shorter.
    NoConfig,
}

/// A network device behind memory-mapped registers.
#[derive(Debug)]
pub struct MmioTransport {
    registers: Registers,
}

impl MmioTransport {
    /// Looks at a block of registers.
    ///
    /// # Errors
    /// There is no network device that we can drive.
    pub fn new(registers: Registers) -> Result<Self, MmioError> {
        if registers.len() < at::CONFIG || registers.read_u32(at::MAGIC) != MAGIC {
            return Err(MmioError::NotVirtio);
        }
        match (registers.read_u32(at::VERSION), registers.read_u32(at::DEVICE_ID)) {
            (VERSION, NET) => Ok(Self { registers }),
            (VERSION, other) => Err(MmioError::Device(other)),
            (other, _) => Err(MmioError::Version(other)),
        }
    }

    /// Takes the interrupt away: whether it was about used buffers, and about the configuration.
    pub fn acknowledge_interrupt(&mut self) -> (bool, bool) {
        let pending = self.registers.read_u32(at::INTERRUPT_STATUS) & 3;
        self.registers.write_u32(at::INTERRUPT_ACKNOWLEDGE, pending);
        (pending & 1 != 0, pending & 2 != 0)
    }
}

/// Kicks a queue by writing its number.
#[derive(Debug, Clone, Copy)]
pub struct MmioDoorbell {
    notify: Registers,
    queue: u16,
}

impl Doorbell for MmioDoorbell {
    fn kick(&self) {
        self.notify.write_u32(at::QUEUE_NOTIFY, self.queue.into());
    }
}

impl Transport for MmioTransport {
    type Error = MmioError;
    type Doorbell = MmioDoorbell;

    fn status(&mut self) -> Result<u8, MmioError> {
        Ok(self.registers.read_u32(at::STATUS).to_le_bytes()[0])
    }

    fn set_status(&mut self, status: u8) -> Result<(), MmioError> {
        self.registers.write_u32(at::STATUS, status.into());
        Ok(())
    }

    fn offered_features(&mut self) -> Result<Features, MmioError> {
        let [low, high] = [0, 1].map(|half| {
            self.registers.write_u32(at::DEVICE_FEATURES_SELECT, half);
            u64::from(self.registers.read_u32(at::DEVICE_FEATURES))
        });
        Ok(Features::from_bits_retain(low | high << 32))
    }

    fn accept_features(&mut self, features: Features) -> Result<(), MmioError> {
        for (select, half) in (0..).zip(halves(features.bits())) {
            self.registers.write_u32(at::DRIVER_FEATURES_SELECT, select);
            self.registers.write_u32(at::DRIVER_FEATURES, half);
        }
        Ok(())
    }

    fn queue_size_max(&mut self, queue: u16) -> Result<u16, MmioError> {
        self.registers.write_u32(at::QUEUE_SELECT, queue.into());
        let max = self.registers.read_u32(at::QUEUE_SIZE_MAX);
        Ok(u16::try_from(max).unwrap_or(u16::MAX))
    }

    fn start_queue(&mut self, start: &QueueStart) -> Result<MmioDoorbell, MmioError> {
        let registers = self.registers;
        registers.write_u32(at::QUEUE_SELECT, start.queue.into());
        if registers.read_u32(at::QUEUE_READY) != 0 {
            return Err(MmioError::QueueInUse(start.queue));
        }
        registers.write_u32(at::QUEUE_SIZE, start.size.into());
        registers.write_u64(at::QUEUE_DESCRIPTOR, start.areas.descriptor);
        registers.write_u64(at::QUEUE_DRIVER, start.areas.driver);
        registers.write_u64(at::QUEUE_DEVICE, start.areas.device);
        registers.write_u32(at::QUEUE_READY, 1);
        Ok(MmioDoorbell { notify: registers, queue: start.queue })
    }

    fn config_generation(&mut self) -> Result<u32, MmioError> {
        Ok(self.registers.read_u32(at::CONFIG_GENERATION))
    }

    fn read_config(&mut self, offset: u16, into: &mut [u8]) -> Result<(), MmioError> {
        let is_inside = self.registers.read_field(at::CONFIG + usize::from(offset), into);
        is_inside.then_some(()).ok_or(MmioError::NoConfig)
    }
}
