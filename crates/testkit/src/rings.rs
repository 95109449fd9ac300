//! The memory of one ring, with each of its parts in reach: drivers run on it, tests look into it.

use ringway_driver::{Arena, ArenaFull, Part};
use ringway_virtq::{AreaSizes, Areas, DriverQueue, Format, Layout, QueueOptions, SharedSlice};

/// Every ring starts at its own page.
const RING_ALIGN: usize = 4096;

/// The memory of one ring.
#[derive(Debug, Clone, Copy)]
pub struct Ring {
    /// Entries.
    pub size: u16,
    /// Descriptor area.
    pub descriptor: Part,
    /// Driver area.
    pub driver: Part,
    /// Device area.
    pub device: Part,
    /// All of it, indirect tables included.
    whole: Part,
}

impl Ring {
    /// Takes the memory of a ring with `size` entries.
    ///
    /// # Errors
    /// [`ArenaFull`].
    pub fn carve(
        arena: &mut Arena,
        format: Format,
        size: u16,
        options: QueueOptions,
    ) -> Result<Self, ArenaFull> {
        let layout = Layout::of(format, size, options);
        let sizes = AreaSizes::of(format, size);
        let whole = arena.carve(layout.len as usize, RING_ALIGN)?;
        let part = |offset: u32, len: u32| {
            let memory = whole.memory.slice(offset as usize, len as usize);
            let memory = memory.unwrap_or(SharedSlice::EMPTY);
            Part { memory, device_address: whole.device_address + u64::from(offset) }
        };
        Ok(Self {
            size,
            descriptor: part(layout.descriptor, sizes.descriptor),
            driver: part(layout.driver, sizes.driver),
            device: part(layout.device, sizes.device),
            whole,
        })
    }

    /// Starts a driver on it, in the format and with the options it was carved for.
    pub fn start<Q: DriverQueue>(&self, options: QueueOptions) -> Q {
        Q::new(self.whole.memory, self.whole.device_address, self.size, options)
    }

    /// The addresses of its parts as the device sees them.
    pub fn areas(&self) -> Areas {
        Areas::new(
            self.descriptor.device_address,
            self.driver.device_address,
            self.device.device_address,
        )
    }
}
