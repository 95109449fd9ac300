//! The parts that several of these tests need: memory files, shared bytes, a watchdog, a namespace.
#![allow(dead_code, clippy::cast_possible_truncation)]

pub mod kernel;
pub mod rig;
pub mod wire;

use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::time::Duration;

use ringway_host::{Events, MemoryRequest, Poller};
use ringway_virtq::SharedSlice;
use rustix::fs::MemfdFlags;

/// Longer than anything here can take; a test that needs it hangs.
pub const HANG_TIMEOUT: Duration = Duration::from_secs(20);

/// A memory file of `len` bytes.
pub fn memory_file(len: u64) -> OwnedFd {
    let fd = rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).expect("memfd");
    rustix::fs::ftruncate(&fd, len).expect("ftruncate");
    fd
}

/// One region over a copy of `fd`.
pub fn request(fd: &OwnedFd, guest_address: u64, size: u64, mmap_offset: u64) -> MemoryRequest {
    let fd = fd.try_clone().expect("dup");
    MemoryRequest { guest_address, size, mmap_offset, fd: fd.into() }
}

/// Shared memory with these bytes in it; it is never freed.
pub fn shared(bytes: &[u8]) -> SharedSlice {
    let leaked = Box::into_raw(bytes.to_vec().into_boxed_slice());
    // SAFETY: never freed, and no other code knows the address.
    unsafe { SharedSlice::new(leaked.cast(), bytes.len()) }
}

/// Cuts into pieces of these lengths; what is left over is the last piece.
pub fn pieces(bytes: SharedSlice, lens: &[usize]) -> Vec<SharedSlice> {
    let mut rest = bytes;
    let mut pieces = Vec::new();
    for &len in lens {
        let (piece, behind) = rest.split_at(len.min(rest.len()));
        pieces.push(piece);
        rest = behind;
    }
    pieces.push(rest);
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// All bytes of the pieces, one behind the other.
pub fn gathered(pieces: &[SharedSlice]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in pieces {
        let start = bytes.len();
        bytes.resize(start + piece.len(), 0);
        piece.read(0, &mut bytes[start..]);
    }
    bytes
}

/// Runs `work` in a thread and fails if it takes too long, as it does when something blocks.
pub fn without_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::sync_channel(1);
    let thread = std::thread::spawn(move || {
        let _ = sender.send(work());
    });
    match receiver.recv_timeout(HANG_TIMEOUT) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("blocked"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().expect_err("the thread sent nothing"))
        }
    }
}

/// Waits until `fd` is readable.
pub fn wait_readable(fd: impl std::os::fd::AsFd) {
    let poller = Poller::new().expect("epoll");
    poller.add(fd.as_fd(), 0).expect("add");
    let count = poller.wait(&mut Events::with_capacity(1), Some(HANG_TIMEOUT)).expect("wait");
    assert_eq!(count, 1, "nothing to read");
}

/// Runs `test` in a thread with a network of its own; says so if that is not possible.
pub fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if !std::path::Path::new("/dev/net/tun").exists() {
        println!("skipped: no /dev/net/tun");
        return;
    }
    without_blocking(move || {
        // SAFETY: only this thread gets another network; it shares no socket with other threads.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            println!("skipped: no network namespace: {}", std::io::Error::last_os_error());
            return;
        }
        // Otherwise the kernel's own packets would come in between.
        let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        test();
    });
}
