//! The interfaces to the operating system, with nothing of ports or packets in them.

pub(crate) mod call_guard;
pub(crate) mod clock;
pub(crate) mod credentials;
pub(crate) mod empty_path;
pub(crate) mod eventfd;
pub(crate) mod forbidden_calls;
pub(crate) mod inherited;
pub(crate) mod page_faults;
pub(crate) mod pin;
pub(crate) mod poller;
pub(crate) mod state_file;
pub(crate) mod system_calls;
pub(crate) mod tries;
