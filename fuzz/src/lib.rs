//! Fuzz targets: each takes any bytes and must neither panic nor touch what is not its own.
//!
//! The same functions are run two ways: for a bounded number of seeded inputs by `cargo test`, and
//! by libFuzzer with coverage (see `src/bin/fuzz.rs`). The canary must fail: it shows that a
//! failure would be noticed.
#![forbid(unsafe_code)]

mod driver;
mod packet;
mod policy;
mod race;
mod ring;
mod router;
mod session;
mod supervisor;
mod switch;
mod text;
mod wire;

// Two files of the program itself, compiled once more.
#[path = "../../bins/ringway/src/bridge_fdb/messages.rs"]
#[allow(dead_code, reason = "the targets use only some of it")]
mod bridge_fdb;
#[path = "../../bins/ringway/src/bridge_fdb/neighbour.rs"]
#[allow(dead_code, reason = "the targets use only some of it")]
mod neighbour;

use ringway_control::{config, protocol as control};

pub use session::{EFFECTS, Reached, session};
pub use supervisor::supervisor;

/// A fuzz target: takes any bytes.
pub type Target = fn(&[u8]);

/// All targets that must never fail, by name.
pub const TARGETS: [(&str, Target); 34] = [
    ("codec", wire::codec),
    ("device_state", wire::device_state),
    ("bridge_fdb", wire::bridge_fdb),
    ("session", |data| drop(session(data))),
    ("supervisor", |data| _ = supervisor(data)),
    ("header", packet::header),
    ("control", packet::control),
    ("completion", packet::completion),
    ("split_chain", ring::split_chain),
    ("packed_chain", ring::packed_chain),
    ("record_split", ring::record_split),
    ("record_packed", ring::record_packed),
    ("transmitq", ring::transmitq),
    ("race_split", race::race_split),
    ("race_packed", race::race_packed),
    ("driver_split", driver::driver_split),
    ("driver_packed", driver::driver_packed),
    ("switch", switch::switch),
    ("nat_frames", router::frames),
    ("nat_packets", router::packets),
    ("nat_arp", router::arp),
    ("nat_neighbours", router::neighbours),
    ("nat_dhcp", router::dhcp),
    ("nat_dhcp6", router::dhcp6),
    ("nat_names", router::names),
    ("nat_icmp", router::icmp),
    ("nat_datagrams", router::datagrams),
    ("nat_segments", router::segments),
    ("nat_fragments", router::fragments),
    ("policy_hello", policy::hello),
    ("policy_question", policy::question),
    ("policy_answer", policy::answer),
    ("config", text::config),
    ("control_json", text::control_json),
];

/// Fails for inputs that begin with a certain byte pattern, as a planted bug.
pub fn canary(data: &[u8]) {
    assert!(data.len() < 2 || data[0] != 0x5a || data[1] & 0xf0 != 0xa0, "the planted bug");
}
