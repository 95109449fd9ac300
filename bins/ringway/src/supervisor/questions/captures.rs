//! File descriptors for a capture: a file in memory for the data plane and the client, and a pair
//! of sockets by which each sees the other's end. The supervisor keeps none of them.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::Context;
use ringway_host::CaptureFile;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::supervisor::planes::plane::OutgoingFd;

/// File descriptors for the data plane, and those for the client.
pub struct CaptureFds {
    pub sent: Vec<OutgoingFd>,
    pub handed: Vec<OwnedFd>,
}

impl CaptureFds {
    /// For so many workers.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn new(workers: u16) -> anyhow::Result<Self> {
        let file = CaptureFile::create(workers).context("a file in memory")?;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .context("a pair of sockets")?;
        let copy = file.try_clone().context("a file descriptor")?;
        Ok(Self {
            sent: [copy, ours].map(|fd| OutgoingFd::Own(Arc::new(fd))).into(),
            handed: vec![file, theirs],
        })
    }
}
