//! The log of pages that a guest's queues write, while its front-end copies its memory elsewhere.
//!
//! How: it goes to the workers as other memory does, so that queues mark there from their next
//! visit on, and nowhere else. Where it cannot be mapped, queues that would write unseen are
//! stopped in front of that; the session lets them go on with a good log.

use anyhow::Context;
use ringway_host::LogRequest;
use ringway_vhost_user::LogArea;

use super::super::workers::Workers;
use super::Link;
use super::effects::Moved;

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
