//! Values that an untrusted process sent, and threads that drop them.
//!
//! To close a file descriptor can take as long as its sender likes: the file may be in a file
//! system that the sender serves itself (FUSE), or be a socket that holds others, with `SO_LINGER`.
//! So the thread that drops an [`Untrusted`] value does not close it: it hands it to a
//! [`DeferredDrop`], behind which a thread that does nothing else may wait for ever.
//!
//! Limits: values pile up behind one that takes long. Code that takes values from a peer asks
//! [`DeferredDrop::is_idle`] before it takes more.

#![forbid(unsafe_code)]

mod closers;

use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use closers::{CLOSERS, Job};

/// A queue of values that are dropped by another thread, one after the other, for as long as each
/// takes. Other queues do not wait for it, and no thread waits for what is left when the last clone
/// is gone.
#[derive(Debug, Clone)]
pub struct DeferredDrop {
    queue: u64,
    /// Values that were handed over and are not dropped yet.
    left: Arc<AtomicUsize>,
}

impl DeferredDrop {
    /// Another one.
    ///
    /// # Errors
    /// The operating system gives no thread.
    pub fn start() -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        CLOSERS.start()?;
        Ok(Self { queue: NEXT.fetch_add(1, Ordering::Relaxed), left: Arc::default() })
    }

    /// Whether every value that was handed over is dropped.
    pub fn is_idle(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// Calls `act` when every value that was handed over until now is dropped; in another thread,
    /// so it must not wait.
    pub fn afterwards(&self, act: impl FnOnce() + Send + 'static) {
        self.give(Box::new(act));
    }

    /// A value that is dropped in this queue.
    pub fn keep<T: Send + 'static>(&self, value: T) -> Untrusted<T> {
        Untrusted { value: Some(value), closer: Some(self.clone()) }
    }

    fn drop_later<T: Send + 'static>(&self, value: T) {
        self.left.fetch_add(1, Ordering::Relaxed);
        let left = self.left.clone();
        self.give(Box::new(move || {
            drop(value);
            left.fetch_sub(1, Ordering::Release);
        }));
    }

    fn give(&self, job: Job) {
        CLOSERS.give(self.queue, job);
    }
}

/// A value that an untrusted process sent; or, made by [`From`], one of our own, which is dropped
/// like any other.
#[derive(Debug)]
pub struct Untrusted<T: Send + 'static> {
    /// Taken out by `drop` only.
    value: Option<T>,
    closer: Option<DeferredDrop>,
}

/// A file descriptor that an untrusted process sent.
pub type UntrustedFd = Untrusted<OwnedFd>;

impl<T: Send + 'static> Untrusted<T> {
    /// It is dropped by that thread from now on.
    pub fn go_to(&mut self, closer: &DeferredDrop) {
        self.closer = Some(closer.clone());
    }

    /// A value that belongs to it, dropped by the same thread.
    pub fn with<U: Send + 'static>(&self, value: U) -> Untrusted<U> {
        Untrusted { value: Some(value), closer: self.closer.clone() }
    }
}

impl UntrustedFd {
    /// Another file descriptor of the same file.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(self.with(self.deref().try_clone()?))
    }
}

impl<T: Send + 'static> From<T> for Untrusted<T> {
    fn from(value: T) -> Self {
        Self { value: Some(value), closer: None }
    }
}

impl<T: Send + 'static> Deref for Untrusted<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("there until it is dropped")
    }
}

impl<T: AsFd + Send + 'static> AsFd for Untrusted<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.deref().as_fd()
    }
}

impl<T: Send + 'static> Drop for Untrusted<T> {
    fn drop(&mut self) {
        if let (Some(closer), Some(value)) = (&self.closer, self.value.take()) {
            closer.drop_later(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
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
    fn to_drop_a_value_that_waits_does_not_wait() {
        let closer = DeferredDrop::start().unwrap();
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

    /// As those of many guests are, after a restart.
    fn drop_many() {
        let (told, gone) = mpsc::channel();
        for number in 0..1000 {
            let told = told.clone();
            DeferredDrop::start().unwrap().afterwards(move || told.send(number).unwrap());
        }
        let mut all: Vec<i32> = (0..1000).map(|_| gone.recv_timeout(LIMIT).unwrap()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn queues_of_which_each_waits_keep_no_other_waiting() {
        let waiting: Vec<_> = (0..20)
            .map(|_| {
                let closer = DeferredDrop::start().unwrap();
                let ((told, begun), (permit, permitted)) = (mpsc::channel(), mpsc::channel());
                closer.keep(Slow(told, permitted));
                let (after, is_over) = mpsc::channel();
                closer.afterwards(move || after.send(()).unwrap());
                begun.recv_timeout(LIMIT).unwrap();
                (closer, permit, is_over)
            })
            .collect();
        drop_many();
        for (closer, permit, is_over) in waiting {
            assert!(!closer.is_idle());
            permit.send(()).unwrap();
            is_over.recv_timeout(LIMIT).unwrap();
            assert!(closer.is_idle());
        }
        drop_many();
    }

    #[test]
    fn a_value_outlives_every_handle_of_its_queue() {
        let (told, begun) = mpsc::channel();
        let (permit, permitted) = mpsc::channel();
        let slow = DeferredDrop::start().unwrap().keep(Slow(told, permitted));
        drop(slow);
        begun.recv_timeout(LIMIT).unwrap();
        permit.send(()).unwrap();
    }

    #[test]
    fn a_value_of_our_own_goes_at_once() {
        let (told, begun) = mpsc::channel();
        let (permit, permitted) = mpsc::channel();
        permit.send(()).unwrap();
        drop(Untrusted::from(Slow(told, permitted)));
        begun.try_recv().unwrap();
    }
}
