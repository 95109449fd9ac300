//! The log of pages that a guest's queues write, while its front-end copies its memory elsewhere.
//!
//! How: it goes to the workers as other memory does, so that queues mark there from their next
//! visit on, and nowhere else. Where it cannot be mapped, queues that would write unseen are
//! stopped in front of that; the session lets them go on with a good log.

#[cfg(debug_assertions)]
use std::env;

use anyhow::Context;
use ringway_host::LogRequest;
use ringway_vhost_user::LogArea;

use super::super::workers::Workers;
use super::Link;
use super::effects::Moved;

/// With this variable nothing is marked, so that a test can show that it would find a page that is
/// missing in a guest's copy. Programs that are shipped do not look at it.
#[cfg(debug_assertions)]
const NO_MARKS: &str = "RINGWAY_TEST_NO_MARKS";

impl Link {
    /// Written pages are marked there from now on.
    ///
    /// # Errors
    /// It cannot be used; the log before is still there.
    pub fn set_log(
        &mut self,
        area: LogArea,
        moved: Option<&Moved>,
        workers: &Workers,
    ) -> anyhow::Result<()> {
        if are_marks_off() {
            return Ok(());
        }
        let LogArea { size, offset, fd } = area;
        let fd = fd.context("no file came with it")?;
        let memory = self.memory.with_log(LogRequest { size, offset, fd })?;
        self.set_memory(memory, moved, workers)
    }

    /// No page is marked any more.
    ///
    /// # Errors
    /// A queue runs outside the memory.
    pub fn drop_log(&mut self, moved: Option<&Moved>, workers: &Workers) -> anyhow::Result<()> {
        let memory = self.memory.without_log();
        self.set_memory(memory, moved, workers)
    }
}

#[cfg(debug_assertions)]
fn are_marks_off() -> bool {
    env::var_os(NO_MARKS).is_some()
}

#[cfg(not(debug_assertions))]
const fn are_marks_off() -> bool {
    false
}
