//! One target under libFuzzer, chosen by the environment variable `RINGWAY_FUZZ_TARGET`.
#![no_main]

use std::sync::OnceLock;

use ringway_fuzz::{TARGETS, Target, canary};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    static TARGET: OnceLock<Target> = OnceLock::new();
    TARGET.get_or_init(chosen)(data);
});

fn chosen() -> Target {
    let name = std::env::var("RINGWAY_FUZZ_TARGET").unwrap_or_default();
    let known = TARGETS.iter().find(|(target, _)| *target == name);
    known.map_or(canary, |(_, target)| *target)
}
