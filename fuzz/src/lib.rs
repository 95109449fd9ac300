//! Fuzz targets: each takes any bytes and must neither panic nor touch what is not its own.
//!
//! The same functions are run two ways: for a bounded number of seeded inputs by `cargo test`, and
//! by libFuzzer with coverage (see `src/bin/fuzz.rs`). The canary must fail: it shows that a
//! failure would be noticed.
#![forbid(unsafe_code)]

mod driver;
mod packet;
mod race;
mod ring;
mod switch;
mod wire;

/// A fuzz target: takes any bytes.
pub type Target = fn(&[u8]);

/// All targets that must never fail, by name.
pub const TARGETS: [(&str, Target); 13] = [
    ("codec", wire::codec),
    ("session", wire::session),
    ("header", packet::header),
    ("control", packet::control),
    ("completion", packet::completion),
    ("split_chain", ring::split_chain),
    ("packed_chain", ring::packed_chain),
    ("transmitq", ring::transmitq),
    ("race_split", race::race_split),
    ("race_packed", race::race_packed),
    ("driver_split", driver::driver_split),
    ("driver_packed", driver::driver_packed),
    ("switch", switch::switch),
];

/// Fails for inputs that begin with a certain byte pattern, as a planted bug.
pub fn canary(data: &[u8]) {
    assert!(data.len() < 2 || data[0] != 0x5a || data[1] & 0xf0 != 0xa0, "the planted bug");
}
