//! A guest whose memory is copied while its queues are served.

pub mod guest;
pub mod serve;
