//! Questions of the control socket's clients that only the data plane can answer.

pub mod fdb;
pub mod router;
pub mod stats;
pub mod trace;
mod trace_reasons;
