//! A thin layer over epoll: fds come with a token, wake-ups give the token back.
//!
//! Level-triggered unless asked otherwise. With [`Poller::add_edge`] a wake-up says that something
//! *new* happened, so an eventfd need not be read at all.
//!
//! Limits: as many wake-ups per wait as [`Events`] has room for; the rest come with the next wait.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use crate::effort::count_system_call;

/// Longest wait; a longer timeout only leads to a wait that ends early without events.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Does not wait.
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// What to be woken for. Errors and hang-ups always wake.
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
    /// What the fd was added with.
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
        let at_most = match timeout {
            Some(timeout) if !timeout.is_zero() => {
                if !self.becomes_ready(timeout)? {
                    return Ok(0);
                }
                Some(&AT_ONCE)
            }
            Some(_) => Some(&AT_ONCE),
            None => None,
        };
        count_system_call();
        let room = rustix::buffer::spare_capacity(&mut events.list);
        match epoll::wait(&self.fd, room, at_most) {
            Err(rustix::io::Errno::INTR) => Ok(0),
            waited => Ok(waited?),
        }
    }

    /// Waits until there are wake-ups, or the time is over. `epoll_wait` rounds up to milliseconds,
    /// and pacing waits for microseconds.
    fn becomes_ready(&self, timeout: Duration) -> io::Result<bool> {
        let timeout = timeout.min(TIMEOUT_MAX);
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(0),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        count_system_call();
        match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => Ok(false),
            ready => Ok(ready? > 0),
        }
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
