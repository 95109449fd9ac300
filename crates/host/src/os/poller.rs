//! A thin layer over epoll: fds come with a token, wake-ups give the token back.
//!
//! Level-triggered unless asked otherwise. With [`Poller::add_edge`] a wake-up says that something
//! *new* happened, so an eventfd need not be read at all.
//!
//! Limits: as many wake-ups per wait as [`Events`] has room for; the rest come with the next wait.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

use crate::os::system_calls::count_system_call;

/// Longest wait; a longer timeout only leads to a wait that ends early without events.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Does not wait.
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Whether there is `epoll_pwait2`, as far as is known.
static HAS_FINE_WAIT: AtomicBool = AtomicBool::new(true);

/// The event to be woken for. Errors and hang-ups always wake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Something can be read.
    Readable,
    /// Something can be written.
    Writable,
    /// Either.
    Both,
}

/// One wake-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollEvent {
    /// The token that the fd was added with.
    pub token: u64,
    /// Something can be read, the end of the stream included.
    pub readable: bool,
    /// Something can be written.
    pub writable: bool,
    /// The other end is gone, or the fd has an error.
    pub hang_up: bool,
}

/// Room for wake-ups, taken once.
pub struct Events {
    list: Vec<epoll::Event>,
}

// SAFETY: what the kernel gives back in an event is the number that a file was added with, and
// never an address.
unsafe impl Send for Events {}

/// An epoll instance.
#[derive(Debug)]
pub struct Poller {
    fd: OwnedFd,
}

impl Poller {
    /// A poller that watches nothing.
    ///
    /// # Errors
    /// The operating system has no epoll instance left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { fd: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Wakes for as long as `fd` is readable.
    ///
    /// # Errors
    /// The fd cannot be polled (a file, for instance), or is watched already.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.add_with(fd, token, Interest::Readable)
    }

    /// Wakes once each time `fd` becomes readable anew. What was readable before counts as new.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn add_edge(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let flags = Interest::Readable.flags() | epoll::EventFlags::ET;
        Ok(epoll::add(&self.fd, fd, epoll::EventData::new_u64(token), flags)?)
    }

    /// The same for reading and writing.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn add_edge_both(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let flags = Interest::Both.flags() | epoll::EventFlags::ET;
        Ok(epoll::add(&self.fd, fd, epoll::EventData::new_u64(token), flags)?)
    }

    /// Wakes for as long as what `interest` says holds.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn add_with(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.fd, fd, epoll::EventData::new_u64(token), interest.flags())?)
    }

    /// Changes token and interest of an fd that was added; it is level-triggered afterwards.
    ///
    /// # Errors
    /// The fd is not watched.
    pub fn modify(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.fd, fd, epoll::EventData::new_u64(token), interest.flags())?)
    }

    /// Watches `fd` no more. To be called before it is closed: an fd that a front-end sent stays
    /// open there, and closing only our copy of it would leave it watched.
    ///
    /// # Errors
    /// The fd is not watched.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::delete(&self.fd, fd)?)
    }

    /// Waits for wake-ups, at most for `timeout` (`None`: for ever), and gives their number. It is
    /// also 0 when a signal interrupted the wait.
    ///
    /// # Errors
    /// Waiting itself failed.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<usize> {
        events.list.clear();
        let Some(timeout) = timeout else { return self.wait_for(events, None) };
        if timeout.is_zero() {
            return self.wait_for(events, Some(&AT_ONCE));
        }
        let timeout = timespec(timeout.min(TIMEOUT_MAX));
        if HAS_FINE_WAIT.load(Ordering::Relaxed) {
            match self.wait_fine(events, &timeout) {
                // Linux before 5.11, or a filter that does not know the call.
                Err(Errno::NOSYS | Errno::PERM) => HAS_FINE_WAIT.store(false, Ordering::Relaxed),
                waited => return none_if_interrupted(waited),
            }
        }
        if self.becomes_ready(&timeout)? { self.wait_for(events, Some(&AT_ONCE)) } else { Ok(0) }
    }

    /// With a timeout, none or 0: `epoll_wait` rounds up to milliseconds, and pacing waits for
    /// microseconds.
    fn wait_for(&self, events: &mut Events, timeout: Option<&Timespec>) -> io::Result<usize> {
        count_system_call();
        let room = rustix::buffer::spare_capacity(&mut events.list);
        none_if_interrupted(epoll::wait(&self.fd, room, timeout))
    }

    /// `epoll_pwait2`, with a timeout in nanoseconds.
    fn wait_fine(&self, events: &mut Events, timeout: &Timespec) -> rustix::io::Result<usize> {
        let room = events.list.spare_capacity_mut();
        let count = libc::c_int::try_from(room.len()).unwrap_or(libc::c_int::MAX);
        let timeout = libc::timespec { tv_sec: timeout.tv_sec, tv_nsec: timeout.tv_nsec };
        let (no_signals, size) = (std::ptr::null::<libc::sigset_t>(), size_of::<u64>());
        count_system_call();
        // SAFETY: the kernel writes at most `count` events of its own layout into the room, and
        // only reads the timeout; no signal mask is given.
        let found = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.fd.as_raw_fd(),
                room.as_mut_ptr(),
                count,
                &raw const timeout,
                no_signals,
                size,
            )
        };
        let Ok(found) = usize::try_from(found) else {
            let why = io::Error::last_os_error().raw_os_error();
            return Err(why.map_or(Errno::IO, Errno::from_raw_os_error));
        };
        // SAFETY: the kernel has filled in so many events, one behind the other.
        unsafe { events.list.set_len(found) };
        Ok(found)
    }

    /// Waits until there are wake-ups, or the time is over, where there is no `epoll_pwait2`.
    fn becomes_ready(&self, timeout: &Timespec) -> io::Result<bool> {
        count_system_call();
        let ready = poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(timeout));
        Ok(none_if_interrupted(ready)? > 0)
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(0),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

fn none_if_interrupted(waited: rustix::io::Result<usize>) -> io::Result<usize> {
    match waited {
        Err(Errno::INTR) => Ok(0),
        waited => Ok(waited?),
    }
}

/// To be watched by another poller: readable while there are wake-ups.
impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Interest {
    fn flags(self) -> epoll::EventFlags {
        match self {
            Self::Readable => epoll::EventFlags::IN | epoll::EventFlags::RDHUP,
            Self::Writable => epoll::EventFlags::OUT,
            Self::Both => epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP,
        }
    }
}

impl Events {
    /// Room for `capacity` wake-ups, at least one.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { list: Vec::with_capacity(capacity.max(1)) }
    }

    /// As after a wait without wake-ups.
    pub fn clear(&mut self) {
        self.list.clear();
    }

    /// The wake-ups of the last wait.
    pub fn iter(&self) -> impl Iterator<Item = PollEvent> + '_ {
        self.list.iter().map(|event| {
            let (flags, data) = (event.flags, event.data);
            PollEvent {
                token: data.u64(),
                readable: flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP),
                writable: flags.contains(epoll::EventFlags::OUT),
                hang_up: flags.intersects(
                    epoll::EventFlags::HUP | epoll::EventFlags::RDHUP | epoll::EventFlags::ERR,
                ),
            }
        })
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("len", &self.list.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Instant;

    use super::*;
    use crate::os::eventfd::EventFd;

    /// Each way to wait for a part of a millisecond: what is there is told, and what is not takes
    /// time.
    #[test]
    fn both_ways_to_wait_say_the_same() {
        let (poller, bell) = (Poller::new().unwrap(), EventFd::new().unwrap());
        let mut events = Events::with_capacity(4);
        poller.add(bell.as_fd(), 7).unwrap();
        for has_fine_wait in [false, true] {
            let timeout = Duration::from_micros(300);
            let wait = |events: &mut Events| match has_fine_wait {
                true => poller.wait(events, Some(timeout)).unwrap(),
                false => {
                    let is_ready = poller.becomes_ready(&timespec(timeout)).unwrap();
                    if is_ready { poller.wait_for(events, Some(&AT_ONCE)).unwrap() } else { 0 }
                }
            };
            events.clear();
            let begun = Instant::now();
            assert_eq!(wait(&mut events), 0);
            assert!(begun.elapsed() >= timeout, "{:?}", begun.elapsed());
            bell.notify();
            assert_eq!(wait(&mut events), 1);
            let tokens: Vec<u64> = events.iter().map(|event| event.token).collect();
            assert_eq!(tokens, [7]);
            bell.drain();
        }
    }

    #[test]
    fn a_timed_wait_takes_one_system_call() {
        let (poller, bell) = (Poller::new().unwrap(), EventFd::new().unwrap());
        poller.add(bell.as_fd(), 7).unwrap();
        bell.notify();
        let mut events = Events::with_capacity(4);
        let wait = Some(Duration::from_micros(300));
        assert_eq!(poller.wait(&mut events, wait).unwrap(), 1);
        if !HAS_FINE_WAIT.load(Ordering::Relaxed) {
            return println!("skipped: no epoll_pwait2 here");
        }
        let before = crate::os::system_calls::system_calls();
        assert_eq!(poller.wait(&mut events, wait).unwrap(), 1);
        assert_eq!(crate::os::system_calls::system_calls() - before, 1);
    }
}
