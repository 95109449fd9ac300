//! Processes of this ringway: other programs take their places, journals show how they ended.

pub mod descriptors;
pub mod journal;
pub mod replace;
pub mod system_calls;
pub mod take_over;
pub mod upgrade;
