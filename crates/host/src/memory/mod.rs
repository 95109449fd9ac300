//! The guest's memory, mapped into this process.
//!
//! A front-end sends a file descriptor per region; each is checked against the size of its file,
//! mapped, guarded against SIGBUS, and unmapped when the last [`GuestMemory`] that has it is gone.
//! Tables are values: adding or removing a region gives a new table that shares the other mappings,
//! so queues can move from the old table to the new one before the old one is dropped.
//!
//! Limits: [`REGIONS_MAX`] regions of [`GUEST_LEN_MAX`] bytes in all; the memory behind a region
//! must be a file with a size (memfd, tmpfs, hugetlbfs or a disk file, not a character device, and
//! not a file that a program may serve, see `backing.rs`). For all guests together, see
//! `share.rs`.

pub(crate) mod backing;
pub(crate) mod log;
pub(crate) mod pieces;
pub(crate) mod ring_words;
pub(crate) mod scratch;
pub(crate) mod share;
pub(crate) mod signal_bus;

use std::io;
use std::os::fd::AsFd;
use std::ptr;
use std::sync::Arc;

use ringway_foreign::{Untrusted, UntrustedFd};
use ringway_virtq::{DirtyLog, REGIONS_MAX, Region, RegionError, Regions, SharedSlice};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::memory::backing::Backing;
use crate::memory::share::{Account, Share, Shortage};
use crate::memory::signal_bus::Guarded;

/// Most bytes of one guest's memory.
pub const GUEST_LEN_MAX: u64 = 1 << 44;

/// One region as a front-end describes it (vhost-user, *memory region description*).
#[derive(Debug)]
pub struct MemoryRequest {
    /// First guest-physical address.
    pub guest_address: u64,
    /// Length in bytes.
    pub size: u64,
    /// Where the region starts in the file, in bytes; need not be page aligned.
    pub mmap_offset: u64,
    /// The file.
    pub fd: UntrustedFd,
}

/// Why a region or a table was refused. Nothing stays mapped.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// More than [`REGIONS_MAX`].
    #[error("{0} memory regions, at most {REGIONS_MAX} are possible")]
    TooMany(usize),
    /// More than [`GUEST_LEN_MAX`].
    #[error("memory regions of {0:#x} bytes, at most {GUEST_LEN_MAX:#x} are possible")]
    TooLong(u64),
    /// A region of length zero.
    #[error("memory region at {guest_address:#x}: size 0")]
    Empty {
        /// Where.
        guest_address: u64,
    },
    /// Addresses or offsets do not fit in 64 bits.
    #[error("memory region at {guest_address:#x}: size {size:#x} overflows the address space")]
    Overflow {
        /// Where.
        guest_address: u64,
        /// Its length in bytes.
        size: u64,
    },
    /// The file is shorter than the region says; touching the rest would raise SIGBUS.
    #[error(
        "memory region at {guest_address:#x}: its file has {file_len:#x} bytes, \
         it needs {needed_len:#x}"
    )]
    ShortFile {
        /// Where.
        guest_address: u64,
        /// The length of the file, in bytes.
        file_len: u64,
        /// The length that it would have to have, in bytes.
        needed_len: u64,
    },
    /// Two regions share guest-physical addresses.
    #[error("memory regions overlap")]
    Overlap,
    /// A program may serve the file, and could make a thread that touches the memory wait for ever.
    #[error(
        "memory region at {guest_address:#x}: its file is neither in memory nor on a disk that \
         is mounted where ringway runs: use memfd, tmpfs or hugetlbfs"
    )]
    Served {
        /// Where.
        guest_address: u64,
    },
    /// The guest has more regions than its reserve, and there are no more beyond that.
    #[error(
        "too many memory regions: they are beyond what is kept for each port, and of what all \
         ports have in common too little is left"
    )]
    NoGuard,
    /// The guest has more memory than its reserve, and there are no more addresses beyond that.
    #[error(
        "memory region at {guest_address:#x}: {size:#x} bytes are beyond what is kept for each \
         port, and of what all ports have in common too little is left"
    )]
    NoAddresses {
        /// Where.
        guest_address: u64,
        /// Its length in bytes.
        size: u64,
    },
    /// The operating system refused to map the file.
    #[error("memory region at {guest_address:#x}: cannot map {size:#x} bytes: {source}")]
    Map {
        /// Where.
        guest_address: u64,
        /// Its length in bytes.
        size: u64,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// All memory of one guest. Cheap to clone; the mappings live as long as the last clone.
#[derive(Debug, Clone)]
pub struct GuestMemory {
    mappings: Vec<SharedMapping>,
    /// Where written pages are marked, if they are.
    log: Option<SharedMapping>,
    regions: Regions,
    /// Of all tables that were made from one.
    account: Account,
}

impl GuestMemory {
    /// No memory at all.
    pub fn empty() -> Self {
        let (mappings, log, regions) = (Vec::new(), None, Regions::empty());
        Self { mappings, log, regions, account: Account::default() }
    }

    /// Maps a whole table of a guest that has none yet.
    ///
    /// # Errors
    /// See [`MemoryError`].
    pub fn map(requests: Vec<MemoryRequest>) -> Result<Self, MemoryError> {
        Self::empty().replaced_by(requests)
    }

    /// Maps another whole table of the same guest, which counts as part of its share.
    ///
    /// # Errors
    /// See [`MemoryError`]; this table stays as it is.
    pub fn replaced_by(&self, requests: Vec<MemoryRequest>) -> Result<Self, MemoryError> {
        if requests.len() > REGIONS_MAX {
            return Err(MemoryError::TooMany(requests.len()));
        }
        let map = |request: MemoryRequest| Mapping::new(&request, &self.account);
        let mappings: Result<Vec<_>, _> = requests.into_iter().map(map).collect();
        self.with_mappings(mappings?)
    }

    /// This table and one region more.
    ///
    /// # Errors
    /// See [`MemoryError`]; this table stays as it is.
    pub fn with(&self, request: MemoryRequest) -> Result<Self, MemoryError> {
        if self.mappings.len() >= REGIONS_MAX {
            return Err(MemoryError::TooMany(self.mappings.len() + 1));
        }
        let mut mappings = self.mappings.clone();
        mappings.push(Mapping::new(&request, &self.account)?);
        self.with_mappings(mappings)
    }

    /// This table without the region of exactly this address and size; the same if there is none.
    #[must_use]
    pub fn without(&self, guest_address: u64, size: u64) -> Self {
        let is_other = |mapping: &&SharedMapping| {
            let region = &mapping.region;
            region.guest_address != guest_address || region.memory.len() as u64 != size
        };
        let mappings = self.mappings.iter().filter(is_other).cloned().collect();
        // Removing cannot break what held before.
        self.with_mappings(mappings).unwrap_or_else(|_| self.clone())
    }

    /// Where everything is. The answer is only addresses: its user must keep this value, or
    /// a clone of it, for as long.
    pub fn regions(&self) -> Regions {
        self.regions.clone()
    }

    /// Number of regions.
    pub fn len(&self) -> usize {
        self.mappings.len()
    }

    /// Whether there is no region.
    pub fn is_empty(&self) -> bool {
        self.mappings.is_empty()
    }

    /// Whether the front-end took memory away that this process has touched since. Such regions
    /// read as zeros from then on, and the guest sees nothing of what is written there.
    pub fn torn(&self) -> bool {
        self.all().any(|mapping| mapping.guard.torn())
    }

    /// Whether any of it is in a file on a disk: a page may have to be read first.
    pub(crate) fn is_on_disk(&self) -> bool {
        self.all().any(|mapping| mapping.is_on_disk)
    }

    /// All that is mapped.
    fn all(&self) -> impl Iterator<Item = &SharedMapping> {
        self.mappings.iter().chain(&self.log)
    }

    fn with_mappings(&self, mappings: Vec<SharedMapping>) -> Result<Self, MemoryError> {
        // Cannot overflow: all of it is mapped.
        let len = mappings.iter().map(|mapping| mapping.region.memory.len() as u64).sum();
        if len > GUEST_LEN_MAX {
            return Err(MemoryError::TooLong(len));
        }
        let regions = Regions::new(mappings.iter().map(|mapping| mapping.region).collect());
        let regions = regions.map_err(|why| match why {
            RegionError::TooMany => MemoryError::TooMany(mappings.len()),
            // Lengths and ends were checked one by one.
            RegionError::BadRange | RegionError::Overlap => MemoryError::Overlap,
        })?;
        let log = self.log.as_ref().map(|log| DirtyLog::new(log.region.memory));
        let (regions, account) = (regions.with_log(log), self.account.clone());
        Ok(Self { mappings, log: self.log.clone(), regions, account })
    }
}

impl Default for GuestMemory {
    fn default() -> Self {
        Self::empty()
    }
}

/// A mapping goes the way of the fd from which it was made: it may be the last that needs the file.
type SharedMapping = Arc<Untrusted<Mapping>>;

/// One mapped region. Fields are dropped in this order: the handler for SIGBUS forgets the address
/// before the kernel may give it to another mapping.
#[derive(Debug)]
struct Mapping {
    region: Region,
    is_on_disk: bool,
    guard: Guarded,
    _span: Span,
    _share: Share,
}

/// Mapped pages, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Span {
    /// Address of the first page.
    pub(crate) start: usize,
    /// Length in bytes, a multiple of the page size.
    pub(crate) len: usize,
}

/// The part of a file to map, in bytes.
#[derive(Debug, PartialEq, Eq)]
struct Extent {
    offset: u64,
    lead_len: usize,
    mapped_len: usize,
    size: usize,
}

impl Mapping {
    fn new(request: &MemoryRequest, account: &Account) -> Result<SharedMapping, MemoryError> {
        let guest_address = request.guest_address;
        let size = request.size;
        let os_error = |source: rustix::io::Errno| MemoryError::Map {
            guest_address,
            size,
            source: source.into(),
        };
        let backing = backing::of(request.fd.as_fd()).map_err(os_error)?;
        let Backing { file_len, page_size, is_on_disk } =
            backing.ok_or(MemoryError::Served { guest_address })?;
        let extent = Extent::new(request, file_len, page_size)?;
        let share = account.take(extent.mapped_len as u64).map_err(|short| match short {
            Shortage::Regions => MemoryError::NoGuard,
            Shortage::Addresses => MemoryError::NoAddresses { guest_address, size },
        })?;
        let mapping = Self::of_extent(request, &extent, share).map_err(os_error)?;
        let mapping = Self { is_on_disk, ..mapping.ok_or(MemoryError::NoGuard)? };
        Ok(Arc::new(request.fd.with(mapping)))
    }

    /// `None`: nothing can be guarded any more.
    fn of_extent(
        request: &MemoryRequest,
        extent: &Extent,
        share: Share,
    ) -> rustix::io::Result<Option<Self>> {
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs no other.
        let base = unsafe {
            let len = extent.mapped_len;
            rustix::mm::mmap(ptr::null_mut(), len, protection, flags, &request.fd, extent.offset)?
        };
        let span = Span { start: base as usize, len: extent.mapped_len };
        let Some(guard) = Guarded::new(span.start, span.start + span.len) else { return Ok(None) };
        // A core dump should neither contain guests' memory nor be as large. Best effort.
        // SAFETY: this advice does not change what the memory contains.
        let _ = unsafe { rustix::mm::madvise(base, span.len, Advice::LinuxDontDump) };
        let first = base.cast::<u8>().wrapping_add(extent.lead_len);
        // SAFETY: lead and size lie inside the span, which is readable and writable and lives as
        // long as this value. Slices and queues made from it do not borrow it: the caller of
        // `GuestMemory::regions` keeps the GuestMemory alive for as long as they are used. No Rust
        // reference to the memory is ever made.
        let memory = unsafe { SharedSlice::new(first, extent.size) };
        let region = Region { guest_address: request.guest_address, memory };
        Ok(Some(Self { region, is_on_disk: false, guard, _span: span, _share: share }))
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped. The last owner of the region is going away, and no
        // other thread uses the memory: see where its SharedSlice is made.
        let unmapped = unsafe { rustix::mm::munmap(self.start as *mut _, self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of a mapping of ours: {unmapped:?}");
    }
}

impl Extent {
    fn new(request: &MemoryRequest, file_len: u64, page_size: u64) -> Result<Self, MemoryError> {
        let MemoryRequest { guest_address, size, mmap_offset, .. } = *request;
        let overflow = MemoryError::Overflow { guest_address, size };
        if size == 0 {
            return Err(MemoryError::Empty { guest_address });
        }
        let (Some(_), Some(needed_len)) =
            (guest_address.checked_add(size), mmap_offset.checked_add(size))
        else {
            return Err(overflow);
        };
        if file_len < needed_len {
            return Err(MemoryError::ShortFile { guest_address, file_len, needed_len });
        }
        let lead_len = mmap_offset % page_size;
        let mapped_len = (lead_len + size).checked_next_multiple_of(page_size);
        let in_memory = |len: u64| isize::try_from(len).ok().map(isize::unsigned_abs);
        match (in_memory(lead_len), mapped_len.and_then(in_memory), in_memory(size)) {
            (Some(lead_len), Some(mapped_len), Some(size)) => {
                Ok(Self { offset: mmap_offset - lead_len as u64, lead_len, mapped_len, size })
            }
            _ => Err(overflow),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(guest_address: u64, size: u64, mmap_offset: u64) -> MemoryRequest {
        let fd = rustix::fs::memfd_create("extent", rustix::fs::MemfdFlags::CLOEXEC);
        MemoryRequest { guest_address, size, mmap_offset, fd: fd.expect("memfd").into() }
    }

    #[test]
    fn extents_start_and_end_at_pages() {
        let extent = Extent::new(&request(0, 0x1801, 0x2f00), 0x10000, 0x1000).expect("fits");
        assert_eq!(
            extent,
            Extent { offset: 0x2000, lead_len: 0xf00, mapped_len: 0x3000, size: 0x1801 }
        );
        let extent = Extent::new(&request(0, 0x1000, 0x20_1000), 0x60_0000, 0x20_0000);
        assert_eq!(
            extent.expect("fits"),
            Extent { offset: 0x20_0000, lead_len: 0x1000, mapped_len: 0x20_0000, size: 0x1000 }
        );
    }

    #[test]
    fn whatever_numbers_a_front_end_sends_the_extent_is_inside_the_file() {
        let numbers = [0, 1, 0xfff, 0x1000, 0x1001, 1 << 40, 1 << 63, u64::MAX - 1, u64::MAX];
        let mut accepted = 0;
        for (guest_address, size) in numbers.iter().flat_map(|&a| numbers.map(|size| (a, size))) {
            for (offset, file_len) in numbers.iter().flat_map(|&o| numbers.map(|len| (o, len))) {
                let request = request(guest_address, size, offset);
                let Ok(extent) = Extent::new(&request, file_len, 0x1000) else { continue };
                accepted += 1;
                let end = u128::from(extent.offset) + extent.lead_len as u128 + extent.size as u128;
                assert!(end <= u128::from(file_len) && extent.size as u64 == size && size > 0);
                assert!(extent.mapped_len >= extent.lead_len + extent.size);
                assert_eq!(extent.mapped_len % 0x1000, 0);
            }
        }
        assert!(accepted > 20, "{accepted} accepted");
    }
}
