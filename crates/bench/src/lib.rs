//! Measurements: ringway beside its peers, and beside the limit of the machine.
//!
//! How: each kind of measurement ([`ring`], [`guest`], [`history`], [`rxbuf`], [`scale`],
//! [`switch`]) fills a [`report::Report`], a plain value, which is then shown as a table, as
//! Markdown, as JSON or as a page with plots. Everything compared is measured in the same run, one
//! after the other and again from the start, so that what changes on the machine meanwhile changes
//! all of it.
//!
//! Limits: Linux, x86-64; a peer that is not installed is left out, and the report says so.
#![forbid(unsafe_code)]

mod daemon;
pub mod guest;
pub mod history;
pub mod instructions;
pub mod machine;
mod mirror;
mod options;
mod programs;
mod progress;
pub mod report;
pub mod ring;
pub mod rxbuf;
pub mod scale;
mod spread;
pub mod switch;

pub use options::Options;
pub use spread::Spread;
