//! A guest that attaches properly and then misbehaves: raw access to every byte of its rings.
//!
//! How: [`HostileGuest`] goes through the same start-up as a good guest, but no driver runs on its
//! queues. A test writes descriptors, indexes, headers and commands as it likes, word by word, or
//! lets [`HostileGuest::scramble`] do so by seed, and kicks.
//!
//! Limits: what a real guest cannot do either is not done here (it writes its own memory only), but
//! for what its front-end can do: [`RawQueue::block_calls`].

use std::io;
use std::path::Path;

use ringway_driver::Part;
use ringway_net::Negotiated;
use ringway_virtq::Format;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

use crate::arena::TestMemory;
use crate::attachment::{AttachedQueue, Attachment, GuestError, GuestOptions};
use crate::rng::Rng;

/// Bytes of scratch memory that descriptors may point into.
const SCRATCH_LEN: usize = 1 << 20;

/// Does not wait.
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Descriptor flag: the chain goes on.
pub const NEXT: u16 = 1;
/// Descriptor flag: the device may write.
pub const WRITE: u16 = 2;
/// Descriptor flag: a table of descriptors.
pub const INDIRECT: u16 = 4;
/// Packed descriptor flag: available, if it equals the wrap counter.
pub const AVAILABLE: u16 = 1 << 7;
/// Packed descriptor flag: used, if it equals the wrap counter.
pub const USED: u16 = 1 << 15;

/// One descriptor as it lies in memory; `id` is split's `next`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RawDescriptor {
    /// Guest-physical address.
    pub address: u64,
    /// Bytes.
    pub len: u32,
    /// Buffer id (packed), or index of the next descriptor (split).
    pub id: u16,
    /// `NEXT`, `WRITE`, `INDIRECT`, and for packed rings `AVAILABLE`, `USED`.
    pub flags: u16,
}

/// How [`HostileGuest::scramble`] chooses what it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scramble {
    /// Every byte of every area at random.
    Bytes,
    /// Descriptors that are nearly right: they get deeper into the device before they fail.
    Plausible,
}

/// A started queue without a driver.
#[derive(Debug)]
pub struct RawQueue<'a> {
    queue: &'a AttachedQueue,
}

impl RawQueue<'_> {
    /// Entries of the queue.
    pub fn size(&self) -> u16 {
        self.queue.ring.size
    }

    /// Descriptor area.
    pub fn descriptor_area(&self) -> Part {
        self.queue.ring.descriptor
    }

    /// Driver area.
    pub fn driver_area(&self) -> Part {
        self.queue.ring.driver
    }

    /// Device area.
    pub fn device_area(&self) -> Part {
        self.queue.ring.device
    }

    /// Writes descriptor number `at`, its flags last.
    pub fn set_descriptor(&self, at: u16, format: Format, descriptor: RawDescriptor) {
        let area = self.queue.ring.descriptor.memory;
        write_descriptor(area, usize::from(at % self.size()) * 16, format, descriptor);
    }

    /// Split: puts a chain's head into entry `at` of the available ring.
    pub fn set_available(&self, at: u16, head: u16) {
        self.queue.ring.driver.memory.store_u16(4 + 2 * usize::from(at % self.size()), head);
    }

    /// Split: the available index.
    pub fn set_available_index(&self, index: u16) {
        // PAIRS WITH: crates/virtq/src/event.rs::after_seeing. Even a hostile guest shall be seen
        // to have written what it meant.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
        self.queue.ring.driver.memory.store_u16(2, index);
    }

    /// Split: the used index. Packed: flags of the device event suppression.
    pub fn device_word(&self) -> u16 {
        self.queue.ring.device.memory.load_u16(2)
    }

    /// Kicks the device.
    pub fn kick(&self) {
        self.queue.kick();
    }

    /// Makes the fd that the device calls through blocking, and fills it: a thread that writes to
    /// it waits for ever.
    ///
    /// # Errors
    /// From the operating system.
    pub fn block_calls(&self) -> io::Result<()> {
        let fd = self.queue.call_fd();
        rustix::fs::fcntl_setfl(fd, OFlags::empty())?;
        // A call that is in there already would make this write wait.
        if poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&AT_ONCE))? > 0 {
            rustix::io::read(fd, &mut [0; 8])?;
        }
        rustix::io::write(fd, &(u64::MAX - 1).to_ne_bytes())?;
        Ok(())
    }
}

/// A guest without a driver.
#[derive(Debug)]
pub struct HostileGuest {
    attachment: Attachment,
    scratch: Part,
    format: Format,
}

impl HostileGuest {
    /// Attaches to a listening device, as a good guest would.
    ///
    /// # Errors
    /// The device is not there, or refuses.
    pub fn attach(socket: &Path, options: &GuestOptions) -> Result<Self, GuestError> {
        let mut attachment = Attachment::new(socket, options)?;
        let scratch = attachment.arena.carve(SCRATCH_LEN, 4096)?;
        let format = attachment.format();
        attachment.start()?;
        Ok(Self { attachment, scratch, format })
    }

    /// The ring format negotiated.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The result of the negotiation.
    pub fn negotiated(&self) -> &Negotiated {
        &self.attachment.negotiated
    }

    /// Memory that descriptors may point into.
    pub fn scratch(&self) -> Part {
        self.scratch
    }

    /// All memory shared with the device.
    pub fn memory(&self) -> &TestMemory {
        &self.attachment.memory
    }

    /// Queues the device has started for us.
    pub fn queue_count(&self) -> usize {
        self.attachment.queues.len()
    }

    /// A queue by its index (virtio 1.2 §5.1.2).
    pub fn queue(&self, index: usize) -> RawQueue<'_> {
        RawQueue { queue: &self.attachment.queues[index] }
    }

    /// Makes the chain of `elements` available at the start of a fresh queue, flags as given
    /// except that `NEXT` and, for packed rings, the wrap flags are added. Then kicks.
    pub fn offer(&self, index: usize, elements: &[RawDescriptor]) {
        let queue = self.queue(index);
        // Backwards: a packed ring's first descriptor makes the whole chain available.
        for at in (0..queue.size()).take(elements.len()).rev() {
            let mut element = elements[usize::from(at)];
            if usize::from(at) + 1 < elements.len() {
                element.flags |= NEXT;
            }
            match self.format {
                Format::Split => element.id = at + 1,
                Format::Packed => element.flags |= AVAILABLE,
            }
            queue.set_descriptor(at, self.format, element);
        }
        if self.format == Format::Split {
            queue.set_available(0, 0);
            queue.set_available_index(1);
        }
        queue.kick();
    }

    /// Writes a table of descriptors into the scratch memory, `offset` bytes from its start, and
    /// gives the descriptor that points to it. `NEXT` is added to all but the last.
    pub fn indirect_table(&self, offset: usize, elements: &[RawDescriptor]) -> RawDescriptor {
        for (at, &element) in (0..).zip(elements) {
            let mut element = RawDescriptor { id: at + 1, ..element };
            if usize::from(at) + 1 < elements.len() {
                element.flags |= NEXT;
            }
            let entry = offset + usize::from(at) * 16;
            write_descriptor(self.scratch.memory, entry, self.format, element);
        }
        let len = u32::try_from(elements.len() * 16).unwrap_or(0);
        let address = self.scratch.device_address + offset as u64;
        RawDescriptor { address, len, id: 0, flags: INDIRECT }
    }

    /// Writes nonsense over every ring, header and command, and kicks every queue.
    pub fn scramble(&self, rng: &mut Rng, how: Scramble) {
        self.scramble_scratch(rng);
        for index in 0..self.queue_count() {
            match how {
                Scramble::Bytes => self.scramble_bytes(index, rng),
                Scramble::Plausible => self.scramble_plausible(index, rng),
            }
            self.queue(index).kick();
        }
    }

    fn scramble_scratch(&self, rng: &mut Rng) {
        let mut bytes = vec![0; 4096];
        for at in (0..SCRATCH_LEN).step_by(4096) {
            // Indirect tables, headers and commands: random, or descriptors that look right.
            if rng.one_in(2) {
                rng.fill(&mut bytes);
                self.scratch.memory.write(at, &bytes);
            } else {
                for entry in (at..at + 4096).step_by(16) {
                    let descriptor = self.plausible(64, rng);
                    write_descriptor(self.scratch.memory, entry, self.format, descriptor);
                }
            }
        }
    }

    fn scramble_bytes(&self, index: usize, rng: &mut Rng) {
        let queue = self.queue(index);
        for part in [queue.descriptor_area(), queue.driver_area(), queue.device_area()] {
            let mut bytes = vec![0; part.memory.len()];
            rng.fill(&mut bytes);
            part.memory.write(0, &bytes);
        }
        if self.format == Format::Split && !rng.one_in(4) {
            // Else nearly every round would end at the index.
            queue.set_available_index(rng.word() % (queue.size() + 1));
        }
    }

    fn scramble_plausible(&self, index: usize, rng: &mut Rng) {
        let queue = self.queue(index);
        // Rarely one more: an index that is just outside.
        let wrong_size = if rng.one_in(8) { queue.size() + 1 } else { queue.size() };
        for at in (0..queue.size()).rev() {
            let descriptor = self.plausible(wrong_size, rng);
            queue.set_descriptor(at, self.format, descriptor);
            if self.format == Format::Split {
                queue.set_available(at, rng.word() % wrong_size);
            }
        }
        if self.format == Format::Split {
            queue.set_available_index(rng.word() % (queue.size() + 1));
        }
    }

    fn plausible(&self, size: u16, rng: &mut Rng) -> RawDescriptor {
        let mut flags = [0, NEXT, WRITE, NEXT | WRITE, INDIRECT, INDIRECT | NEXT][pick(rng, 6)];
        if self.format == Format::Packed {
            flags |= if rng.one_in(8) { rng.word() & (AVAILABLE | USED) } else { AVAILABLE };
        }
        let lens = [0, 1, 11, 12, 13, 16, 64, 256, 1526, 4096, 65_562, u32::MAX];
        RawDescriptor {
            address: self.plausible_address(rng),
            len: if rng.one_in(8) { rng.double_word() } else { lens[pick(rng, lens.len())] },
            id: rng.word() % size,
            flags,
        }
    }

    /// Mostly inside memory; sometimes at its edges, outside, or where the end overflows.
    fn plausible_address(&self, rng: &mut Rng) -> u64 {
        let inside = self.scratch.device_address + rng.below(SCRATCH_LEN as u64 - 65_562);
        let regions = self.attachment.memory.ranges();
        let (start, len) = regions[pick(rng, regions.len())];
        match rng.below(16) {
            0 => start,
            1 => start + len - rng.below(64),
            2 => start.wrapping_sub(rng.below(64)),
            3 => rng.bits(),
            4 => u64::MAX - rng.below(4096),
            5 => self.scratch.device_address,
            _ => inside,
        }
    }
}

fn pick(rng: &mut Rng, len: usize) -> usize {
    usize::try_from(rng.below(len as u64)).unwrap_or(0)
}

/// The two formats differ only in the order of the last two words (virtio 1.2 §2.7.5, §2.8.13).
fn write_descriptor(
    memory: ringway_virtq::SharedSlice,
    at: usize,
    format: Format,
    descriptor: RawDescriptor,
) {
    memory.store_u64(at, descriptor.address);
    memory.store_u32(at + 8, descriptor.len);
    let (id_at, flags_at) = match format {
        Format::Split => (14, 12),
        Format::Packed => (12, 14),
    };
    memory.store_u16(at + id_at, descriptor.id);
    // PAIRS WITH: crates/virtq/src/event.rs::after_seeing. Even a hostile guest shall be seen to
    // have written what it meant.
    std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
    memory.store_u16(at + flags_at, descriptor.flags);
}
