//! Front-ends: one connection each, and the processes at the other end.

pub mod front_end;
pub mod peer;
pub mod told;
