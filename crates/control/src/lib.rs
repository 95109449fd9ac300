//! The configuration of a ringway, and the questions and answers on its control socket.
//!
//! How: flags, a file and requests become the same model ([`config`]). A question is one line of
//! JSON and so is its answer ([`protocol`]); [`protocol::client`] asks. [`places`] says where the
//! sockets are if nothing is said about it, and [`units`] writes numbers for people.
//!
//! Limits: nothing is opened here but the socket of a client; the program does the rest.
#![forbid(unsafe_code)]

pub mod config;
pub mod places;
pub mod protocol;
pub mod units;
