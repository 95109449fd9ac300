//! What somebody else sent, and a thread that lets go of it.
//!
//! To close a file descriptor can take as long as whoever sent it likes: of a file system that it serves
//! itself; of a socket that holds others, which linger. So a [`Foreign`] value is not dropped by
//! whoever drops it, but by a [`Closer`], a thread that does nothing else and may wait for ever.
//!
//! Limits: what a thread that waits has not let go of yet, stays. Who takes values from others asks
//! [`Closer::is_idle`] before it takes more.

#![forbid(unsafe_code)]

use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};

type Job = Box<dyn FnOnce() + Send>;

/// A thread that lets go of values. It ends behind the last clone, and the last value that is to go
/// there; nobody waits for that.
#[derive(Debug, Clone)]
pub struct Closer {
    jobs: Sender<Job>,
    /// Values that are to go, and have not gone.
    left: Arc<AtomicUsize>,
}

impl Closer {
    /// Starts the thread.
    ///
    /// # Errors
    /// The operating system gives no thread.
    pub fn start() -> io::Result<Self> {
        let (jobs, to_do) = mpsc::channel::<Job>();
        let thread = std::thread::Builder::new().name("ringway-closer".to_string());
        thread.spawn(move || to_do.into_iter().for_each(|job| job()))?;
        Ok(Self { jobs, left: Arc::default() })
    }

    /// Whether all that was to go has gone.
    pub fn is_idle(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// Does that when all has gone that is to go now; in the thread, so it must not wait.
    pub fn afterwards(&self, act: impl FnOnce() + Send + 'static) {
        self.give(Box::new(act));
    }

    /// A value that is dropped by this thread.
    pub fn keep<T: Send + 'static>(&self, value: T) -> Foreign<T> {
        Foreign { value: Some(value), closer: Some(self.clone()) }
    }

    fn let_go<T: Send + 'static>(&self, value: T) {
        self.left.fetch_add(1, Ordering::Relaxed);
        let left = self.left.clone();
        self.give(Box::new(move || {
            drop(value);
            left.fetch_sub(1, Ordering::Release);
        }));
    }

    fn give(&self, job: Job) {
        // The thread ends only when nobody can give it anything.
        let given = self.jobs.send(job);
        debug_assert!(given.is_ok(), "the thread has ended");
    }
}

/// A value that came from somebody else; or, made by [`From`], one of our own, which is dropped like
/// any other.
#[derive(Debug)]
pub struct Foreign<T: Send + 'static> {
    /// Taken out by `drop` only.
    value: Option<T>,
    closer: Option<Closer>,
}

/// A file descriptor that somebody else sent.
pub type ForeignFd = Foreign<OwnedFd>;

impl<T: Send + 'static> Foreign<T> {
    /// From now on it goes that way.
    pub fn go_to(&mut self, closer: &Closer) {
        self.closer = Some(closer.clone());
    }

    /// What belongs to it, and goes as it goes.
    pub fn with<U: Send + 'static>(&self, value: U) -> Foreign<U> {
        Foreign { value: Some(value), closer: self.closer.clone() }
    }
}

impl ForeignFd {
    /// Another file descriptor of the same file.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(self.with(self.deref().try_clone()?))
    }
}

impl<T: Send + 'static> From<T> for Foreign<T> {
    fn from(value: T) -> Self {
        Self { value: Some(value), closer: None }
    }
}

impl<T: Send + 'static> Deref for Foreign<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("there until it is dropped")
    }
}

impl<T: AsFd + Send + 'static> AsFd for Foreign<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.deref().as_fd()
    }
}

impl<T: Send + 'static> Drop for Foreign<T> {
    fn drop(&mut self) {
        if let (Some(closer), Some(value)) = (&self.closer, self.value.take()) {
            closer.let_go(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, RecvTimeoutError};
    use std::time::Duration;

    use super::*;

    const SOON: Duration = Duration::from_millis(50);
    const LIMIT: Duration = Duration::from_secs(10);

    /// Its drop says so, and then waits until it may go.
    struct Slow(Sender<()>, Receiver<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
            let _ = self.1.recv();
        }
    }

    #[test]
    fn whoever_drops_a_value_that_waits_does_not_wait() {
        let closer = Closer::start().unwrap();
        let (told, begun) = mpsc::channel();
        let (permit, permitted) = mpsc::channel();
        let slow = closer.keep(Slow(told, permitted));
        let beside = slow.with(());
        assert!(closer.is_idle(), "it is still used");
        drop((slow, beside));
        begun.recv_timeout(LIMIT).unwrap();
        assert!(!closer.is_idle());
        let (told, gone) = mpsc::channel();
        closer.afterwards(move || told.send(()).unwrap());
        assert_eq!(gone.recv_timeout(SOON), Err(RecvTimeoutError::Timeout));
        permit.send(()).unwrap();
        gone.recv_timeout(LIMIT).unwrap();
        assert!(closer.is_idle());
    }

    #[test]
    fn a_value_outlives_everybody_who_knows_its_thread() {
        let (told, begun) = mpsc::channel();
        let (permit, permitted) = mpsc::channel();
        let slow = Closer::start().unwrap().keep(Slow(told, permitted));
        drop(slow);
        begun.recv_timeout(LIMIT).unwrap();
        permit.send(()).unwrap();
    }

    #[test]
    fn a_value_of_our_own_goes_at_once() {
        let (told, begun) = mpsc::channel();
        let (permit, permitted) = mpsc::channel();
        permit.send(()).unwrap();
        drop(Foreign::from(Slow(told, permitted)));
        begun.try_recv().unwrap();
    }
}
