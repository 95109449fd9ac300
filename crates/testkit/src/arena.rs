//! Guest memory for tests: one memory file, mapped here and handed to a device elsewhere.
//!
//! How: the file holds the regions with guard areas of a known pattern before, between and after
//! them. A device maps only the regions; [`TestMemory::guards_intact`] shows whether a
//! device wrote past one by accident.
//!
//! Limits: Linux only; regions are multiples of a page.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringway_host::{GuestMemory, MemoryRequest};
use ringway_virtq::{Region, Regions, SharedSlice};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

/// Bytes of each guard area.
const GUARD_BYTES: usize = 16 * 4096;
const GUARD_LEN: u64 = GUARD_BYTES as u64;
const GUARD_PATTERN: u8 = 0xa5;
/// The name of the memory in `/proc`.
pub(crate) const FILE_NAME: &CStr = c"ringway-test-memory";
const PAGE_LEN: u64 = 4096;

/// Memory of a guest: some regions with guard areas around them.
#[derive(Debug)]
pub struct TestMemory {
    file: OwnedFd,
    /// (guest-physical address, bytes), in the order given.
    ranges: Vec<(u64, u64)>,
    /// The whole file, guards included.
    whole: SharedSlice,
    regions: Regions,
    /// Keeps the mapping alive.
    _mapping: GuestMemory,
}

impl TestMemory {
    /// Makes one region per (guest-physical address, bytes); both are multiples of a page.
    ///
    /// # Errors
    /// From the operating system.
    pub fn new(ranges: &[(u64, u64)]) -> io::Result<Self> {
        for (address, len) in ranges {
            assert!(address.is_multiple_of(PAGE_LEN) && len.is_multiple_of(PAGE_LEN), "pages only");
        }
        let file_len = ranges.iter().map(|(_, len)| len + GUARD_LEN).sum::<u64>() + GUARD_LEN;
        let file = memfd_create(FILE_NAME, MemfdFlags::CLOEXEC)?;
        ftruncate(&file, file_len)?;
        let (mapping, whole) = map_whole(&file, file_len)?;
        let slice = |at: usize| {
            let len = usize::try_from(ranges[at].1).map_err(io::Error::other)?;
            let start = usize::try_from(file_offset(ranges, at)).map_err(io::Error::other)?;
            whole.slice(start, len).ok_or_else(|| io::Error::other("file too short"))
        };
        let mut table = Vec::new();
        for (at, &(guest_address, _)) in ranges.iter().enumerate() {
            table.push(Region { guest_address, memory: slice(at)? });
        }
        let regions =
            Regions::new(table).map_err(|error| io::Error::other(format!("{error:?}")))?;
        let memory = Self { file, ranges: ranges.to_vec(), whole, regions, _mapping: mapping };
        memory.for_each_guard(|guard| guard.write(0, &[GUARD_PATTERN; GUARD_BYTES]));
        Ok(memory)
    }

    /// The regions as a device in this process sees them.
    pub fn regions(&self) -> Regions {
        self.regions.clone()
    }

    /// (guest-physical address, bytes) of each region.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    /// Where a region starts in the file, in bytes.
    pub fn file_offset(&self, region: usize) -> u64 {
        file_offset(&self.ranges, region)
    }

    /// The memory of a region.
    pub fn region(&self, region: usize) -> SharedSlice {
        let (address, len) = self.ranges[region];
        let found = u32::try_from(len).ok().and_then(|len| self.regions.slice(address, len));
        found.unwrap_or(SharedSlice::EMPTY)
    }

    /// The file, to hand to a device.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Takes the memory away under the processes that have mapped it; nothing of it may be touched
    /// any more.
    ///
    /// # Errors
    /// From the operating system.
    pub fn truncate(&self) -> io::Result<()> {
        Ok(ftruncate(&self.file, 0)?)
    }

    /// Whether no byte outside the regions was written.
    pub fn guards_intact(&self) -> bool {
        let mut intact = true;
        self.for_each_guard(|guard| {
            let mut bytes = [0; GUARD_BYTES];
            guard.read(0, &mut bytes);
            intact &= bytes.iter().all(|&byte| byte == GUARD_PATTERN);
        });
        intact
    }

    fn for_each_guard(&self, mut each: impl FnMut(SharedSlice)) {
        for at in 0..=self.ranges.len() {
            let start = file_offset(&self.ranges, at) - GUARD_LEN;
            let guard = usize::try_from(start).ok();
            let guard = guard.and_then(|start| self.whole.slice(start, GUARD_BYTES));
            assert!(guard.is_some(), "the file ends with a guard");
            each(guard.unwrap_or(SharedSlice::EMPTY));
        }
    }
}

/// Each region comes after a guard.
fn file_offset(ranges: &[(u64, u64)], region: usize) -> u64 {
    GUARD_LEN + ranges[..region].iter().map(|(_, len)| len + GUARD_LEN).sum::<u64>()
}

/// Maps a file from start to end.
fn map_whole(file: &OwnedFd, len: u64) -> io::Result<(GuestMemory, SharedSlice)> {
    let fd = file.try_clone()?;
    let request = MemoryRequest { guest_address: 0, size: len, mmap_offset: 0, fd: fd.into() };
    let mapping = GuestMemory::map(vec![request]).map_err(io::Error::other)?;
    let whole = u32::try_from(len).ok().and_then(|len| mapping.regions().slice(0, len));
    let whole = whole.ok_or_else(|| io::Error::other("a test needs less than 4 GiB"))?;
    Ok((mapping, whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_past_a_region_is_noticed() {
        let ranges = [(0x10_0000, 8192), (0x4000_0000, 4096)];
        for at in [0, GUARD_LEN + 8192, 2 * GUARD_LEN + 8192 + 4096] {
            let memory = TestMemory::new(&ranges).expect("memory for a test");
            memory.region(0).write(0, &[1; 8192]);
            memory.region(1).write(4095, &[1]);
            assert!(memory.guards_intact());
            memory.whole.write(usize::try_from(at).expect("small"), &[0]);
            assert!(!memory.guards_intact(), "byte {at}");
        }
    }

    #[test]
    fn regions_are_where_the_file_offsets_say() {
        let memory = TestMemory::new(&[(0x1000, 4096), (0x10_0000, 8192)]).expect("memory");
        memory.region(1).write(0, b"here");
        let mut bytes = [0; 4];
        let offset = usize::try_from(memory.file_offset(1)).expect("small");
        memory.whole.read(offset, &mut bytes);
        assert_eq!(&bytes, b"here");
        memory.regions().slice(0x10_0000, 4).expect("inside").read(0, &mut bytes);
        assert_eq!(&bytes, b"here");
        assert!(memory.regions().slice(0x1ffd, 4).is_none());
    }
}
