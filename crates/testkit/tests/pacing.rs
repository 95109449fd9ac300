//! Notification policies in virtual time: the golden table, and what must hold of each of them.
//!
//! `RINGWAY_ACCEPT=1` rewrites the table.

use std::fmt::Write;
use std::path::Path;

use ringway_net::notify::Policy;
use ringway_testkit::pacing::{Guest, LOADS, Load, Outcome, simulate};

const SEED: u64 = 5;
/// The front must not depend on one.
const SEEDS: [u64; 4] = [SEED, 1, 2, 3];

const POLICIES: [&str; 8] = [
    "every",
    "on-empty",
    "timer:50us",
    "timer:150us",
    "timer:250us",
    "coalesce:8/25us",
    "coalesce:16/50us",
    "adaptive",
];

fn run(load: &Load, policy: &str, guest: Guest) -> Outcome {
    run_with(load, policy, guest, SEED)
}

fn run_with(load: &Load, policy: &str, guest: Guest, seed: u64) -> Outcome {
    simulate(load, policy.parse::<Policy>().unwrap(), guest, seed)
}

fn table() -> String {
    let mut text = String::from(
        "Notifications per 1,000 packets and virtual latency in µs. Seed 5.\n\
         Rewritten by RINGWAY_ACCEPT=1 cargo test -p ringway-testkit --test pacing\n",
    );
    for guest in [Guest::Stock, Guest::Paced] {
        for load in &LOADS {
            writeln!(text, "\n{guest:?} guest, {}", load.name).unwrap();
            let titles = ["kicks", "calls", "returns", "all", "wakes", "p50", "p99", "max"];
            write!(text, "  {:18}", "policy").unwrap();
            titles.iter().for_each(|title| write!(text, "{title:>9}").unwrap());
            text.push('\n');
            for policy in POLICIES {
                write!(text, "  {policy:18}").unwrap();
                let outcome = run(load, policy, guest);
                row(&outcome).iter().for_each(|cell| write!(text, "{cell:>9}").unwrap());
                text.push('\n');
            }
        }
    }
    text
}

#[allow(clippy::cast_precision_loss)]
fn row(outcome: &Outcome) -> [String; 8] {
    let per_1000 = |count: u64| format!("{:.1}", count as f64 * 1e3 / outcome.packets as f64);
    let micros = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
    [
        per_1000(outcome.kicks),
        per_1000(outcome.calls),
        per_1000(outcome.return_calls),
        format!("{:.1}", outcome.notifications_per_1000()),
        per_1000(outcome.device_wakes),
        micros(outcome.p50_ns),
        micros(outcome.p99_ns),
        micros(outcome.max_ns),
    ]
}

#[test]
fn the_golden_table_is_what_the_policies_do() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/pacing.txt");
    let text = table();
    if std::env::var_os("RINGWAY_ACCEPT").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    assert!(text == golden, "the table has changed:\n{text}");
}

#[test]
fn every_packet_arrives() {
    for guest in [Guest::Stock, Guest::Paced] {
        for load in &LOADS {
            for policy in POLICIES {
                let outcome = run(load, policy, guest);
                assert_eq!(outcome.lost, 0, "{guest:?} {} {policy}", load.name);
                assert!(outcome.packets >= load.packets, "{guest:?} {} {policy}", load.name);
            }
        }
    }
}

/// No fixed policy that is as fast needs fewer notifications, and none with as few is faster, by
/// more than a tenth.
#[test]
fn adaptive_is_on_the_pareto_front() {
    let mut beaten = String::new();
    let all = [Guest::Stock, Guest::Paced].into_iter();
    let all = all.flat_map(|guest| LOADS.iter().map(move |load| (guest, load)));
    for (seed, (guest, load)) in
        SEEDS.into_iter().flat_map(|seed| all.clone().map(move |it| (seed, it)))
    {
        let adaptive = run_with(load, "adaptive", guest, seed);
        for policy in POLICIES.into_iter().filter(|policy| *policy != "adaptive") {
            let fixed = run_with(load, policy, guest, seed);
            if dominates(&fixed, &adaptive) {
                let rows = [fixed, adaptive].map(|outcome| row(&outcome).join(" "));
                writeln!(beaten, "{guest:?} guest, {}, seed {seed}: {policy} {rows:?}", load.name)
                    .unwrap();
            }
        }
    }
    assert!(beaten.is_empty(), "adaptive is beaten by:\n{beaten}");
}

#[allow(clippy::cast_precision_loss)]
fn dominates(fixed: &Outcome, adaptive: &Outcome) -> bool {
    let notifications = [fixed, adaptive].map(Outcome::notifications_per_1000);
    let p99 = [fixed, adaptive].map(|outcome| outcome.p99_ns as f64);
    (p99[0] <= p99[1] && notifications[1] > 1.1 * notifications[0])
        || (notifications[0] <= notifications[1] && p99[1] > 1.1 * p99[0])
}
