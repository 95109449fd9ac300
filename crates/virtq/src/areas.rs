//! How large the three parts of a ring are, how they are aligned, and how a driver lays them out.
//!
//! How: [`AreaSizes`] is the table of virtio 1.2 §2.7 and §2.8 in code, [`Bound`] translates the
//! addresses a driver gave into checked memory, and [`Layout`] is the one arrangement our own
//! drivers use. Limits: sizes up to [`SIZE_MAX`]; one part lies in one region.

use crate::desc::DESCRIPTOR_LEN;
use crate::{Areas, Broken, Format, QueueOptions, Regions, SIZE_MAX, SharedSlice, Why};

/// Most elements our drivers put into an indirect table; longer buffers are chained in the ring.
pub const INDIRECT_ELEMENTS_MAX: usize = 32;

/// Bytes of one indirect table of our drivers.
const INDIRECT_TABLE_LEN: u32 = 512;
const _: () = assert!(INDIRECT_TABLE_LEN as usize == 16 * INDIRECT_ELEMENTS_MAX);

/// Bytes of each part of a queue, event words included (virtio 1.2 §2.7, §2.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AreaSizes {
    /// Descriptor area.
    pub descriptor: u32,
    /// Driver area.
    pub driver: u32,
    /// Device area.
    pub device: u32,
}

impl AreaSizes {
    /// For a queue of `size` entries.
    pub const fn of(format: Format, size: u16) -> Self {
        let entries = size as u32;
        let descriptor = DESCRIPTOR_LEN * entries;
        match format {
            Format::Split => Self { descriptor, driver: 6 + 2 * entries, device: 6 + 8 * entries },
            Format::Packed => Self { descriptor, driver: 4, device: 4 },
        }
    }

    /// The alignment of the address of each part, in bytes.
    pub const fn alignments(format: Format) -> Self {
        match format {
            Format::Split => Self { descriptor: 16, driver: 2, device: 4 },
            Format::Packed => Self { descriptor: 16, driver: 4, device: 4 },
        }
    }
}

/// How our drivers arrange a queue in one piece of memory: byte offsets from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Offset of the descriptor area.
    pub descriptor: u32,
    /// Offset of the driver area.
    pub driver: u32,
    /// Offset of the device area.
    pub device: u32,
    /// Offset of the indirect tables, as many as entries; they end at `len`.
    pub indirect: u32,
    /// Bytes of it all.
    pub len: u32,
}

impl Layout {
    /// The alignment of the memory's address, here and on the device's side, in bytes. A cache
    /// line: what the two sides write never shares one.
    pub const ALIGN: u32 = 64;

    /// For a queue of `size` entries, with indirect tables only if they are negotiated.
    pub const fn of(format: Format, size: u16, options: QueueOptions) -> Self {
        let sizes = AreaSizes::of(format, size);
        let driver = sizes.descriptor.next_multiple_of(Self::ALIGN);
        let device = (driver + sizes.driver).next_multiple_of(Self::ALIGN);
        let indirect = (device + sizes.device).next_multiple_of(Self::ALIGN);
        let tables = if options.indirect { INDIRECT_TABLE_LEN * size as u32 } else { 0 };
        Self { descriptor: 0, driver, device, indirect, len: indirect + tables }
    }

    /// The addresses of the parts when the memory starts at `device_address`.
    pub const fn areas(&self, device_address: u64) -> Areas {
        Areas::new(
            device_address + self.descriptor as u64,
            device_address + self.driver as u64,
            device_address + self.device as u64,
        )
    }
}

/// The parts of a ring as memory that was checked for place, length and alignment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub descriptor: SharedSlice,
    pub driver: SharedSlice,
    pub device: SharedSlice,
}

impl Bound {
    /// Translates what the driver gave; the words in it are aligned on the host as well.
    pub fn translate(
        format: Format,
        size: u16,
        areas: &Areas,
        regions: &Regions,
    ) -> Result<Self, Broken> {
        let sizes = AreaSizes::of(format, size);
        let aligns = AreaSizes::alignments(format);
        let part = |address: u64, len: u32, align: u32| {
            let found = regions.slice(address, len).filter(|found| {
                // A region need not be mapped with the alignment of its guest address.
                address.is_multiple_of(u64::from(align)) && found.is_aligned_to(align as usize)
            });
            found.ok_or(Broken(Why::BadArea))
        };
        Ok(Self {
            descriptor: part(areas.descriptor, sizes.descriptor, aligns.descriptor)?,
            driver: part(areas.driver, sizes.driver, aligns.driver)?,
            device: part(areas.device, sizes.device, aligns.device)?,
        })
    }
}

/// The memory of one of our drivers, laid out and zeroed.
#[derive(Debug)]
pub(crate) struct DriverMemory {
    pub bound: Bound,
    pub areas: Areas,
    /// The indirect tables, empty if not negotiated, and where the device sees them.
    indirect: SharedSlice,
    indirect_address: u64,
}

impl DriverMemory {
    pub fn new(
        format: Format,
        memory: SharedSlice,
        device_address: u64,
        size: u16,
        options: QueueOptions,
    ) -> Self {
        assert!((1..=SIZE_MAX).contains(&size), "queue of {size} entries");
        let layout = Layout::of(format, size, options);
        let aligned = device_address.is_multiple_of(u64::from(Layout::ALIGN));
        assert!(aligned && memory.is_aligned_to(Layout::ALIGN as usize), "alignment of a queue");
        memory.zero();
        let sizes = AreaSizes::of(format, size);
        let part = |offset: u32, len: u32| {
            memory.slice(offset as usize, len as usize).expect("memory as long as its layout")
        };
        Self {
            bound: Bound {
                descriptor: part(layout.descriptor, sizes.descriptor),
                driver: part(layout.driver, sizes.driver),
                device: part(layout.device, sizes.device),
            },
            areas: layout.areas(device_address),
            indirect: part(layout.indirect, layout.len - layout.indirect),
            indirect_address: device_address + u64::from(layout.indirect),
        }
    }

    /// One of the indirect tables, and its address for the device.
    #[inline]
    pub fn indirect_table(&self, index: u16) -> (SharedSlice, u64) {
        let offset = INDIRECT_TABLE_LEN * u32::from(index);
        let table = self.indirect.slice(offset as usize, INDIRECT_TABLE_LEN as usize);
        (table.expect("as many tables as entries"), self.indirect_address + u64::from(offset))
    }
}
