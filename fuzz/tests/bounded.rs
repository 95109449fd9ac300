//! Every target with a bounded number of seeded inputs: random bytes, structured bytes, and small
//! changes of inputs that came before. The seed is another one in each run, unless `RINGWAY_SEED`
//! gives one; a failing input is printed, with the seed. Inputs that failed once are kept.
#![allow(clippy::cast_possible_truncation, reason = "small numbers that the tests choose")]

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};

use ringway_extent::Extent;
use ringway_fuzz::{EFFECTS, TARGETS, Target, canary, session, supervisor};
use ringway_testkit::Rng;

/// Inputs of each target; and inputs that together lead a session to each of its effects.
const INPUTS: Extent = Extent::new("RINGWAY_FUZZ_INPUTS", 10_000, 1_000_000);
const FEW_INPUTS: u64 = 20_000;
const INPUT_LEN_MAX: u64 = 2048;
const KEPT_MAX: usize = 64;

/// Inputs that failed once, by target, in hexadecimal.
const FAILED_ONCE: [(&str, &str); 3] = [
    // The device shortens a descriptor and then writes a header into its buffer.
    ("driver_split", "ff3b0800800400000000ffff0011000000003b0800"),
    ("driver_packed", "ff3b0800800400000000ffff0011000000003b0800"),
    // A socket takes the few bytes that it gets, and the router asks how many more it takes.
    (
        "nat_segments",
        "01000100000500003f04000004000000000100000500050300000000000000000000000000000001\
         00000500000000000000000400000400000000010000050000000000000500050000000000000004\
         000004000000003f0404010100",
    ),
];

/// Inputs that must lead to each effect of a session.
const REACHED_MIN: u32 = 20;

#[test]
fn no_input_fails_any_target() {
    let (inputs, mut rng) = (INPUTS.announced(), seeded());
    for (name, target) in TARGETS {
        if let Some(input) = failing_input(target, inputs, &mut rng) {
            panic!("{name} fails with the input {}", hex(&input));
        }
    }
}

/// A failure behind an effect that no input leads to would not be noticed.
#[test]
fn inputs_lead_to_every_effect_of_a_session() {
    let mut rng = seeded();
    let mut counts = BTreeMap::from(EFFECTS.map(|name| (name, 0_u32)));
    for _ in 0..FEW_INPUTS {
        for name in session(&random(&mut rng, 256)) {
            *counts.get_mut(name).expect("a known effect") += 1;
        }
    }
    println!("inputs that lead to each: {counts:?}");
    assert!(counts.values().all(|&count| count >= REACHED_MIN), "{counts:?}");
}

#[test]
fn inputs_lead_a_supervisor_to_keep_requests() {
    let mut rng = seeded();
    let kept = |rng: &mut Rng| supervisor(&random(rng, INPUT_LEN_MAX)) > 0;
    let count = (0..FEW_INPUTS / 10).filter(|_| kept(&mut rng)).count();
    assert!(count as u64 > FEW_INPUTS / 100, "{count}");
}

#[test]
fn inputs_that_failed_once_fail_no_more() {
    for (name, input) in FAILED_ONCE {
        let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).expect("a target");
        target(&unhex(input));
    }
}

/// A generator whose seed is another one in each run, and printed.
fn seeded() -> Rng {
    Rng::from_environment("fuzz", RandomState::new().hash_one(0))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().map(|digit| digit.to_digit(16).expect("hexadecimal") as u8).collect();
    digits.as_chunks().0.iter().map(|[high, low]| high << 4 | low).collect()
}

#[test]
fn the_canary_fails_and_is_noticed() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found = failing_input(canary, 200 * FEW_INPUTS, &mut seeded());
    std::panic::set_hook(hook);
    assert!(found.is_some(), "a failure would not be noticed");
}

/// Runs a target; the first input that fails.
fn failing_input(target: Target, inputs: u64, rng: &mut Rng) -> Option<Vec<u8>> {
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for _ in 0..inputs {
        let input = make_input(rng, &kept);
        if catch_unwind(AssertUnwindSafe(|| target(&input))).is_err() {
            return Some(input);
        }
        if kept.len() < KEPT_MAX {
            kept.push(input);
        }
    }
    None
}

fn make_input(rng: &mut Rng, kept: &[Vec<u8>]) -> Vec<u8> {
    match rng.below(4) {
        0 => random(rng, INPUT_LEN_MAX),
        1 => random(rng, 64),
        2 => ring_like(rng),
        _ => changed(rng, kept),
    }
}

fn random(rng: &mut Rng, len_max: u64) -> Vec<u8> {
    (0..rng.below(len_max)).map(|_| rng.bits() as u8).collect()
}

/// Indexes that make descriptors available, then sixteen with addresses near the memory.
fn ring_like(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = vec![0, 0, rng.below(20) as u8, 0];
    for _ in 0..16 {
        bytes.extend((rng.below(18) as u16).to_le_bytes());
    }
    bytes.resize(0x40, 0);
    for _ in 0..16 {
        let address = 0x4000 + rng.below(0x4800);
        let len = rng.below(0x800) as u32 & !(rng.below(2) as u32 * 15);
        bytes.extend(address.to_le_bytes());
        bytes.extend(len.to_le_bytes());
        bytes.extend((rng.below(18) as u16).to_le_bytes());
        bytes.extend((rng.below(20) as u16 | (rng.bits() as u16 & 0x8080)).to_le_bytes());
    }
    let tail = random(rng, 0x400);
    bytes.extend(tail);
    bytes
}

fn changed(rng: &mut Rng, kept: &[Vec<u8>]) -> Vec<u8> {
    let Some(at) = usize::try_from(rng.below(kept.len().max(1) as u64)).ok() else {
        return Vec::new();
    };
    let mut input = kept.get(at).cloned().unwrap_or_default();
    for _ in 0..=rng.below(8) {
        let at = rng.below(input.len().max(1) as u64) as usize;
        if let Some(byte) = input.get_mut(at) {
            *byte = rng.bits() as u8;
        }
    }
    input
}
