//! The information of the loader: the command line, and where memory ends (PVH, `struct
//! hvm_start_info`).
//!
//! Limits: the loader is trusted; a command line has at most 4,096 bytes.

use core::ptr;

/// The number that every version begins with.
const MAGIC: u32 = 0x336e_c578;
/// A memory map entry of usable memory.
const MEMORY: u32 = 1;
/// Longest command line in bytes.
const COMMAND_LINE_LEN_MAX: usize = 4096;
/// Entries of the memory map that are looked at.
const ENTRIES_MAX: u32 = 128;

/// The information that the loader leaves in memory.
#[derive(Debug)]
#[repr(C)]
pub struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    modules_at: u64,
    command_line_at: u64,
    rsdp_at: u64,
    memory_map_at: u64,
    memory_map_entries: u32,
    reserved: u32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct MemoryMapEntry {
    address: u64,
    len: u64,
    kind: u32,
    reserved: u32,
}

impl StartInfo {
    /// Whether this is what we know how to read: version 1 or later.
    pub fn is_known(&self) -> bool {
        self.magic == MAGIC && self.version >= 1
    }

    /// The end of the memory in which `inside` lies.
    pub fn memory_end(&self, inside: u64) -> Option<usize> {
        let entries = pointer::<MemoryMapEntry>(self.memory_map_at)?;
        let mut all = (0..self.memory_map_entries.min(ENTRIES_MAX)).map(|at| {
            // SAFETY: the loader's map is in mapped memory and has this many entries.
            unsafe { entries.add(at as usize).read_unaligned() }
        });
        let has_it = |entry: &MemoryMapEntry| {
            entry.kind == MEMORY && (entry.address..entry.address + entry.len).contains(&inside)
        };
        let entry = all.find(has_it)?;
        usize::try_from(entry.address + entry.len).ok()
    }

    /// The command line, or nothing if it is not text. Lies in memory that is never reused: below
    /// the image.
    pub fn command_line(&self) -> &'static str {
        let Some(start) = pointer::<u8>(self.command_line_at) else { return "" };
        // SAFETY: the loader's text is in mapped memory and ends with a zero.
        let is_end = |at: &usize| unsafe { start.add(*at).read() } == 0;
        let len = (0..COMMAND_LINE_LEN_MAX).find(is_end).unwrap_or(0);
        // SAFETY: as above; no code writes there.
        let bytes = unsafe { core::slice::from_raw_parts(start, len) };
        core::str::from_utf8(bytes).unwrap_or("")
    }
}

fn pointer<T>(address: u64) -> Option<*const T> {
    let address = usize::try_from(address).ok().filter(|address| *address != 0)?;
    Some(ptr::with_exposed_provenance(address))
}
