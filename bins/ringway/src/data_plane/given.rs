//! File descriptors that this process was started with: messages name them by their numbers.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use ringway_foreign::DeferredDrop;
use ringway_supervisor::wire::BadMessage;

/// Those that no message has named yet.
#[derive(Debug, Default)]
pub(super) struct StartFds {
    fds: BTreeMap<u32, OwnedFd>,
    is_told: bool,
}

impl StartFds {
    /// The supervisor says that there are these. A number that is none is missed when it is named.
    pub(super) fn add(&mut self, numbers: &[u32]) {
        let inherited = |number: &u32| {
            let fd = ringway_host::take_inherited_fd(i32::try_from(*number).ok()?)?;
            Some((*number, fd))
        };
        self.is_told = true;
        self.fds.extend(numbers.iter().filter_map(inherited));
    }

    /// Whether the supervisor has told of some, or that there are none: one that does not is older,
    /// and knows nothing of stations.
    pub(super) fn is_told(&self) -> bool {
        self.is_told
    }

    /// Those of one message.
    ///
    /// # Errors
    /// One is not there.
    pub(super) fn take(&mut self, numbers: &[u32]) -> Result<Vec<OwnedFd>, BadMessage> {
        let came: Vec<OwnedFd> =
            numbers.iter().filter_map(|number| self.fds.remove(number)).collect();
        match came.len() {
            len if len == numbers.len() => Ok(came),
            came => Err(BadMessage::Fds { came }),
        }
    }

    /// The others were a front-end's that had gone by then. To close them can take long.
    pub(super) fn close(&mut self) {
        let rest = std::mem::take(&mut self.fds);
        if !rest.is_empty()
            && let Ok(closer) = DeferredDrop::start()
        {
            drop(closer.keep(rest));
        }
    }
}
