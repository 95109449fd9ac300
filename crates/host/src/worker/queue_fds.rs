//! The file descriptors of a queue, as a front-end sends them.

use std::io;

use ringway_foreign::UntrustedFd;

use crate::os::eventfd::{CallFd, Callee, KickFd};

/// The file descriptors a queue notifies through; a missing one means polling or no notification.
#[derive(Debug, Default)]
pub struct QueueFds {
    /// Guest → device.
    pub kick: Option<KickFd>,
    /// Device → guest.
    pub call: Option<CallFd>,
    /// Device → front-end: the queue is broken.
    pub error: Option<CallFd>,
    /// The guest is called as soon as the queue runs: the data plane before may have shown
    /// something and not said so.
    pub calls_at_start: bool,
}

/// One notification fd of a running queue.
#[derive(Debug)]
pub enum NotifyFd {
    /// Guest → device.
    Kick(Option<KickFd>),
    /// Device → guest.
    Call(Option<CallFd>),
    /// Device → front-end.
    Error(Option<CallFd>),
}

impl QueueFds {
    /// Takes over the fds a front-end sent.
    ///
    /// # Errors
    /// One of them is neither an eventfd nor a socket.
    pub fn new(
        callee: &Callee,
        kick: Option<UntrustedFd>,
        call: Option<UntrustedFd>,
        error: Option<UntrustedFd>,
    ) -> io::Result<Self> {
        let call_fd = |fd| CallFd::new(fd, callee);
        Ok(Self {
            kick: kick.map(KickFd::new).transpose()?,
            call: call.map(call_fd).transpose()?,
            error: error.map(call_fd).transpose()?,
            calls_at_start: false,
        })
    }
}
