//! The file descriptors through which a guest and the worker tell each other about one queue.

use ringway_net::Nanos;

use crate::journal::ring_lines::NotedRing;
use crate::os::clock::now;
use crate::os::eventfd::{CallFd, CallResult, KickFd};
use crate::port::per_second::PerSecond;
use crate::uml::{RetryStep, UmlCallRetry};

/// The notification file descriptors of one queue.
#[derive(Debug, Default)]
pub(crate) struct NotifyFds {
    pub(crate) kick: Option<KickFd>,
    pub(crate) call: Option<CallFd>,
    pub(crate) error: Option<CallFd>,
    /// Where the ring is, while it runs.
    pub(crate) areas: Option<ringway_virtq::Areas>,
    /// Where the ring is noted, while it runs.
    pub(crate) noted: Option<NotedRing>,
    pub(crate) kicks: PerSecond,
    pub(crate) calls: u64,
    pub(crate) is_broken_reported: bool,
    /// The other side does not hear calls any more.
    calls_disabled: bool,
    /// The last call, while the guest may have slept through it.
    retry: Option<UmlCallRetry>,
}

impl NotifyFds {
    /// Calls go through this fd from now on.
    pub(crate) fn set_call(&mut self, call: Option<CallFd>) {
        (self.call, self.calls_disabled) = (call, false);
    }

    /// Tells the guest that buffers were used. `event` is what the guest says about calls now.
    /// `true`: the guest may sleep through this call; see [`call_again`](Self::call_again).
    pub(crate) fn call(&mut self, event: Option<u32>) -> bool {
        let Some(call) = self.call.as_ref().filter(|_| !self.calls_disabled) else { return false };
        self.calls += 1;
        // A peer that is gone shows on its socket, in the control thread; a peer that blocked a
        // call was reported there. The fd stays open here: to close it takes memory.
        if matches!(call.call(), CallResult::Gone | CallResult::Blocked) {
            (self.calls_disabled, self.retry) = (true, None);
            return false;
        }
        self.retry = call.is_socket().then(|| UmlCallRetry::new(event, now()));
        self.retry.is_some()
    }

    /// The guest broke the queue: tells its front-end, once; `true`: it was told now.
    pub(crate) fn report_broken(&mut self) -> bool {
        if std::mem::replace(&mut self.is_broken_reported, true) {
            return false;
        }
        if let Some(error) = &self.error {
            error.call();
        }
        true
    }

    /// Repeats a call that the guest may have slept through, if it is time; `true`: another round
    /// is needed.
    pub(crate) fn call_again(&mut self, event: Option<u32>, now: Nanos) -> bool {
        if !self.is_given_up() {
            self.repeat(event, now);
        }
        self.retry.is_some() && !self.is_given_up()
    }

    /// The guest has not looked for so long that the worker does not wake up for it any more.
    pub(crate) fn is_given_up(&self) -> bool {
        self.retry.is_some_and(|retry| retry.is_given_up())
    }

    /// Repeats the last call if it is time and `event`, what the guest says about calls now, shows
    /// that it has not looked since.
    pub(crate) fn repeat(&mut self, event: Option<u32>, now: Nanos) {
        let Some(retry) = &mut self.retry else { return };
        match (retry.round(event, now), &self.call) {
            (RetryStep::Wait, Some(_)) => {}
            (RetryStep::Call, Some(call)) => _ = call.call(),
            (RetryStep::Heard, _) | (_, None) => self.retry = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::{Callee, EventFd};

    /// Calls go to the other end, which never blocks.
    fn behind_a_socket() -> (NotifyFds, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let call = CallFd::new(OwnedFd::from(ours), &Callee::default()).unwrap();
        (NotifyFds { call: Some(call), ..NotifyFds::default() }, theirs)
    }

    #[test]
    fn a_guest_behind_a_socket_is_called_again_until_it_looks() {
        let (mut fds, mut theirs) = behind_a_socket();
        let mut heard = || theirs.read(&mut [0; 64]).unwrap_or(0);
        let later = |milliseconds: u64| now().plus(milliseconds * 1_000_000);
        assert!(!fds.call_again(Some(1), later(1)));
        assert_eq!(heard(), 0, "no call was made yet");
        assert!(fds.call(Some(1)));
        assert_eq!(heard(), 8);
        for (milliseconds, expected) in (1..).zip([8, 8, 0, 8]) {
            assert!(fds.call_again(Some(1), later(milliseconds)), "it has not looked");
            assert_eq!(heard(), expected);
        }
        assert!(!fds.call_again(Some(2), later(5)), "it has");
        assert!(!fds.call_again(Some(2), later(6)));
        assert_eq!(heard(), 0, "that is enough");
        assert!(fds.call(Some(2)));
        fds.call = None;
        assert!(!fds.call_again(Some(2), later(1)), "there is no fd to call through");
    }

    /// A stopped guest must not find its socket full: it would be told of nothing any more.
    #[test]
    fn a_guest_that_is_given_up_is_called_by_what_comes_but_less_and_less_often() {
        let (mut fds, mut theirs) = behind_a_socket();
        assert!(fds.call(Some(1)));
        let called_at = now().0;
        let at = |milliseconds: u64| Nanos(called_at).plus(milliseconds * 1_000_000);
        while fds.call_again(Some(1), at(100)) {}
        assert!(fds.is_given_up() && !fds.call_again(Some(1), at(900)));
        assert!(theirs.read(&mut [0; 64]).unwrap_or(0) > 0);
        let mut reminded = |event, milliseconds| {
            fds.repeat(event, at(milliseconds));
            (theirs.read(&mut [0; 64]).unwrap_or(0) > 0, fds.is_given_up())
        };
        let calls = (1000..100_000).filter(|&at| reminded(Some(1), at).0).count();
        assert_eq!(calls, 7, "1, 2, 4, ... 64 s after the call");
        assert_eq!(reminded(Some(2), 200_000), (false, false), "it has looked");
    }

    #[test]
    fn a_guest_behind_an_eventfd_never_sleeps_through_a_call() {
        let bell = EventFd::new().unwrap();
        let call =
            CallFd::new(bell.as_fd().try_clone_to_owned().unwrap(), &Callee::default()).unwrap();
        let mut fds = NotifyFds { call: Some(call), ..NotifyFds::default() };
        assert!(!fds.call(Some(1)));
        assert!(bell.drain());
        assert!(!fds.call_again(Some(1), now().plus(1_000_000)));
        assert!(!bell.drain());
    }
}
