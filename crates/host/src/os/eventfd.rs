//! Notification fds: kicks from the guest, calls to the guest, and our own wake-ups.
//!
//! Fds that a front-end sent share their *open file description* with it. Setting `O_NONBLOCK` on
//! ours would set it on theirs, which breaks a User Mode Linux guest: it relies on its kick eventfd
//! being blocking. So the flag is never touched, and instead
//!
//! - a kick is never read: the poller wakes for each one anew (edge-triggered);
//! - a call through a socket is sent with `MSG_DONTWAIT`, and only Unix stream sockets are taken
//!   ([`is_local_stream`] says why);
//! - a call through an eventfd, for which writing with `RWF_NOWAIT` is not supported (the kernel
//!   answers `EOPNOTSUPP`), is a plain write if the fd is non-blocking (QEMU, DPDK and most
//!   others), and otherwise comes after a `poll` that says whether the counter has room.
//!
//! A front-end that fills its own blocking eventfd exactly between our poll and our write, or that
//! clears `O_NONBLOCK` later and then fills it, makes that write wait: the thread's [`CallGuard`]
//! ends it, and that front-end is not called any more ([`Callee`]). One that lets it wait for less
//! than that, again and again, is noticed because the thread sleeps in calls: of [`CHECK_EVERY`]
//! one is checked (ADR 24). A stop of the whole process (SIGSTOP, a debugger, strace) is no such
//! sleep.
//!
//! Limits: a front-end that kicks through a socket finds it full one day; none is known that does.
//!
//! [`CallGuard`]: crate::CallGuard

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ringway_foreign::UntrustedFd;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketType, sockopt};

use crate::os::call_guard::{bounded, sleeps};
use crate::os::clock::now;
use crate::os::empty_path::empty_path;
use crate::os::system_calls::count_system_call;

/// The number that is added to an eventfd, and that is sent through a socket.
const ONE: [u8; 8] = 1u64.to_ne_bytes();

/// Guest → device: there are available buffers.
#[derive(Debug)]
pub struct KickFd {
    fd: UntrustedFd,
}

impl KickFd {
    /// Takes over what a front-end sent: an eventfd, or a socket.
    ///
    /// # Errors
    /// `InvalidInput`: it is something else, and waiting for it could make a file system of the
    /// front-end's own wait.
    pub fn new(fd: impl Into<UntrustedFd>) -> io::Result<Self> {
        let fd = fd.into();
        call_kind(fd.as_fd())?;
        Ok(Self { fd })
    }
}

impl AsFd for KickFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallResult {
    /// The guest will be notified.
    Sent,
    /// Earlier calls are still unread, so the guest will be notified anyway.
    Pending,
    /// The other end is gone.
    Gone,
    /// This call, or another one to the same [`Callee`], would have waited for it.
    Blocked,
}

/// Of so many calls through an eventfd one is checked: whether the thread slept in it.
const CHECK_EVERY: u32 = 32;

/// Most calls that may sleep, each for less than a tick of the guard: one that must read its own
/// memory from a disk sleeps too, and so does one during which the whole process is stopped.
const WAITS_MAX: u64 = 8;

/// After this time one such call is forgotten.
const WAIT_FORGOTTEN_NS: u64 = 10_000_000_000;

/// The receiver of calls: one front-end, through all its fds.
#[derive(Debug, Clone, Default)]
pub struct Callee {
    has_blocked: Arc<AtomicBool>,
    /// When the last call in which a thread slept will be forgotten; one is, each
    /// [`WAIT_FORGOTTEN_NS`].
    waits_forgotten_at: Arc<AtomicU64>,
    bell: Option<Arc<EventFd>>,
}

impl Callee {
    /// One that has behaved so far; `bell` is rung when it blocks a call.
    pub fn new(bell: Arc<EventFd>) -> Self {
        Self { bell: Some(bell), ..Self::default() }
    }

    /// Whether a call would have waited for it: it has made an eventfd blocking, and filled it. No
    /// fd of it is called any more.
    pub fn has_blocked(&self) -> bool {
        self.has_blocked.load(Ordering::Relaxed)
    }

    #[cold]
    fn waited(&self, now_ns: u64) {
        // Two workers at the same time count as one.
        let forgotten_at = self.waits_forgotten_at.load(Ordering::Relaxed).max(now_ns);
        let forgotten_at = forgotten_at + WAIT_FORGOTTEN_NS;
        self.waits_forgotten_at.store(forgotten_at, Ordering::Relaxed);
        if forgotten_at - now_ns > (WAITS_MAX - 1) * WAIT_FORGOTTEN_NS {
            self.block();
        }
    }

    #[cold]
    fn block(&self) {
        self.has_blocked.store(true, Ordering::Relaxed);
        if let Some(bell) = &self.bell {
            bell.notify();
        }
    }
}

/// How a call is made; found out once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallKind {
    /// An eventfd that never blocks.
    Eventfd,
    /// An eventfd that would block if its counter were full.
    BlockingEventfd,
    Socket,
}

/// Device → guest: there are used buffers.
#[derive(Debug)]
pub struct CallFd {
    fd: UntrustedFd,
    kind: CallKind,
    callee: Callee,
    /// Calls until one is checked.
    until_check: Cell<u32>,
}

impl CallFd {
    /// Takes over what a front-end sent: an eventfd, or a stream socket (User Mode Linux).
    ///
    /// # Errors
    /// `InvalidInput`: it is something else, and writing to it could do anything.
    pub fn new(fd: impl Into<UntrustedFd>, callee: &Callee) -> io::Result<Self> {
        let fd = fd.into();
        let kind = call_kind(fd.as_fd())?;
        Ok(Self { fd, kind, callee: callee.clone(), until_check: Cell::new(0) })
    }

    /// Whether it is a stream socket, as only User Mode Linux sends.
    pub fn is_socket(&self) -> bool {
        self.kind == CallKind::Socket
    }

    /// Notifies. In a thread with a [`CallGuard`](crate::CallGuard) it never waits for the peer.
    pub fn call(&self) -> CallResult {
        if self.callee.has_blocked() {
            return CallResult::Blocked;
        }
        count_system_call();
        let sent = match self.kind {
            CallKind::Socket => {
                rustix::net::send(&self.fd, &ONE, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
            }
            CallKind::BlockingEventfd if !is_ready(self.fd.as_fd(), PollFlags::OUT) => {
                return CallResult::Pending;
            }
            CallKind::Eventfd | CallKind::BlockingEventfd => self.write(),
        };
        match sent {
            Ok(_) => CallResult::Sent,
            // Only a write that waits is interrupted.
            Err(Errno::INTR) if self.kind != CallKind::Socket => {
                self.callee.block();
                CallResult::Blocked
            }
            // A full counter or a full socket: the guest has not read what is in there yet.
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM) => CallResult::Pending,
            Err(_) => CallResult::Gone,
        }
    }
}

impl CallFd {
    /// To an eventfd. One that is not full never makes the thread sleep.
    fn write(&self) -> rustix::io::Result<usize> {
        let write = || bounded(|| rustix::io::write(&self.fd, &ONE));
        if let Some(left) = self.until_check.get().checked_sub(1) {
            self.until_check.set(left);
            return write();
        }
        let sleeps_before = sleeps();
        let written = write();
        let sleeps_after = sleeps();
        if sleeps_after == sleeps_before {
            self.until_check.set(CHECK_EVERY);
        } else if sleeps() == sleeps_after {
            // And the next one is checked, too.
            self.callee.waited(now().0);
        }
        // Otherwise to ask was a sleep by itself: a debugger stops this thread in each system call.
        written
    }
}

impl AsFd for CallFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// An eventfd of our own, to wake another thread.
#[derive(Debug)]
pub struct EventFd {
    fd: OwnedFd,
}

impl EventFd {
    /// One that has not been rung.
    ///
    /// # Errors
    /// The process has no fd left.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self { fd: rustix::event::eventfd(0, flags)? })
    }

    /// Makes it readable.
    pub fn notify(&self) {
        count_system_call();
        // It can fail only when the counter is full, and then it is readable already.
        let _ = rustix::io::write(&self.fd, &ONE);
    }

    /// Makes it unreadable; `true` if it was readable.
    pub fn drain(&self) -> bool {
        count_system_call();
        rustix::io::read(&self.fd, &mut [0; 8]).is_ok()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// `false` also when poll itself fails: then nothing is known.
fn is_ready(fd: BorrowedFd<'_>, flags: PollFlags) -> bool {
    count_system_call();
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [PollFd::from_borrowed_fd(fd, flags)];
    rustix::event::poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().intersects(flags)
}

/// Whether that is a Unix stream socket. A send through another kind of socket can wait for the
/// socket's lock, whatever its flags say: a front-end keeps the lock of a TCP socket while it sends
/// from memory in which page faults sleep.
///
/// # Errors
/// The kernel does not say.
pub fn is_local_stream(fd: BorrowedFd<'_>) -> io::Result<bool> {
    match sockopt::socket_domain(fd) {
        Ok(AddressFamily::UNIX) => Ok(sockopt::socket_type(fd)? == SocketType::STREAM),
        Ok(_) | Err(Errno::NOTSOCK) => Ok(false),
        Err(why) => Err(why.into()),
    }
}

fn call_kind(fd: BorrowedFd<'_>) -> io::Result<CallKind> {
    if is_local_stream(fd)? {
        return Ok(CallKind::Socket);
    }
    if !is_eventfd(fd)? {
        let what = "a notification fd must be an eventfd or a Unix stream socket";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let is_nonblocking = rustix::fs::fcntl_getfl(fd)?.contains(OFlags::NONBLOCK);
    Ok(if is_nonblocking { CallKind::Eventfd } else { CallKind::BlockingEventfd })
}

/// An eventfd has no file type, unlike everything that has a name, and can be written to. Nothing
/// is asked that the kernel does not know by itself: any other question could be one to a file
/// system that the front-end serves.
fn is_eventfd(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let mode = match rustix::fs::statx(fd, empty_path(), flags, StatxFlags::TYPE) {
        Ok(known) => known.stx_mode.into(),
        // A filter of system calls around all of it: there is nothing else to ask.
        Err(Errno::NOSYS | Errno::PERM) => rustix::fs::fstat(fd)?.st_mode,
        Err(why) => return Err(why.into()),
    };
    Ok(FileType::from_raw_mode(mode) == FileType::Unknown && takes_words(fd))
}

/// Whether words can be written to a file without a name. None is: the kernel refuses where they
/// would come from, after it has looked whether there is anything to do with them.
fn takes_words(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: nothing is read from that address, where nothing can be.
    let written = unsafe { libc::write(fd.as_raw_fd(), std::ptr::null(), ONE.len()) };
    written < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eventfd_is_known_among_files_without_a_name() {
        use rustix::event::epoll;
        let eventfd = EventFd::new().expect("one");
        assert!(is_eventfd(eventfd.as_fd()).expect("known"));
        assert!(!eventfd.drain(), "to ask changes nothing");
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("one");
        let (pipe, pipe_end) = rustix::pipe::pipe().expect("a pipe");
        let file = std::fs::File::open("/proc/self/exe").expect("this program");
        for other in [epoll.as_fd(), pipe.as_fd(), pipe_end.as_fd(), file.as_fd()] {
            assert!(!is_eventfd(other).expect("known"), "{other:?}");
            assert!(!is_local_stream(other).expect("known"), "{other:?}");
        }
    }

    const NOW: u64 = 1 << 40;

    #[test]
    fn a_call_that_sleeps_now_and_then_blocks_nothing() {
        let callee = Callee::default();
        (0..1000).for_each(|at| callee.waited(NOW + at * WAIT_FORGOTTEN_NS));
        assert!(!callee.has_blocked());
    }

    #[test]
    fn calls_that_sleep_one_after_the_other_are_too_many() {
        let callee = Callee::default();
        (1..WAITS_MAX).for_each(|at| callee.waited(NOW + at));
        assert!(!callee.has_blocked());
        callee.waited(NOW + WAITS_MAX);
        assert!(callee.has_blocked());
    }
}
