//! Notification policies in virtual time: the golden table, and what must hold of each of them.
//!
//! `RINGWAY_ACCEPT=1` rewrites the table.

use std::fmt::Write;
use std::path::Path;

use ringway_net::moderation::Policy;
use ringway_net::{PollMode, WAKE_NS};
use ringway_testkit::pacing::{Costs, LOADS, Load, Outcome, simulate};

const SEED: u64 = 5;
/// The front must not depend on one.
const SEEDS: [u64; 8] = [SEED, 1, 2, 3, 4, 6, 7, 8];

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

/// A device that always polls never comes to rest.
const POLLS: [PollMode; 2] = [PollMode::Never, PollMode::Auto];

fn run(load: &Load, policy: &str, costs: Costs) -> Outcome {
    run_with(load, policy, costs, SEED)
}

fn run_with(load: &Load, policy: &str, costs: Costs, seed: u64) -> Outcome {
    run_polling(load, policy, PollMode::Never, costs, seed)
}

fn run_polling(load: &Load, policy: &str, poll: PollMode, costs: Costs, seed: u64) -> Outcome {
    simulate(load, policy.parse::<Policy>().unwrap(), poll, costs, seed)
}

/// Every load with every kind of guest.
fn all() -> impl Iterator<Item = (Costs, &'static Load)> {
    Costs::ALL.into_iter().flat_map(|costs| LOADS.iter().map(move |load| (costs, load)))
}

fn table() -> String {
    let mut text = String::from(
        "Notifications per 1,000 packets and virtual latency in µs. Seed 5.\n\
         Rewritten by RINGWAY_ACCEPT=1 cargo test -p ringway-testkit --test pacing\n",
    );
    for (costs, load) in all() {
        writeln!(text, "\n{}: {}", costs.name, load.name).unwrap();
        let titles = ["kicks", "calls", "returns", "all", "wakes", "p50", "p99", "max"];
        write!(text, "  {:18}", "policy").unwrap();
        titles.iter().for_each(|title| write!(text, "{title:>9}").unwrap());
        text.push('\n');
        for policy in POLICIES {
            write!(text, "  {policy:18}").unwrap();
            let outcome = run(load, policy, costs);
            row(&outcome).iter().for_each(|cell| write!(text, "{cell:>9}").unwrap());
            text.push('\n');
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
    for (costs, load) in all() {
        for (policy, poll) in POLICIES.into_iter().flat_map(|it| POLLS.map(|poll| (it, poll))) {
            let outcome = run_polling(load, policy, poll, costs, SEED);
            let what = format!("{}, {}, {policy}, polling {poll}", costs.name, load.name);
            assert_eq!(outcome.lost, 0, "{what}");
            assert!(outcome.packets >= load.packets, "{what}");
        }
    }
}

/// No fixed policy that is as fast, at the median and for 99 of 100 packets, needs fewer
/// notifications by more than a tenth, and none with as few is faster by more than that.
#[test]
fn adaptive_is_on_the_pareto_front() {
    let mut beaten = String::new();
    for (seed, (costs, load)) in SEEDS.into_iter().flat_map(|seed| all().map(move |it| (seed, it)))
    {
        let adaptive = run_with(load, "adaptive", costs, seed);
        for policy in POLICIES.into_iter().filter(|policy| *policy != "adaptive") {
            let fixed = run_with(load, policy, costs, seed);
            if dominates(&fixed, &adaptive, 1.1) {
                let rows = [fixed, adaptive].map(|outcome| row(&outcome).join(" "));
                let name = costs.name;
                writeln!(beaten, "{name}: {}, seed {seed}: {policy} {rows:?}", load.name).unwrap();
            }
        }
    }
    assert!(beaten.is_empty(), "adaptive is beaten by:\n{beaten}");
}

/// Latency is that of packets whose sender may wait for an answer, where long ones pass as well.
#[allow(clippy::cast_precision_loss)]
fn latency_ns(outcome: &Outcome) -> f64 {
    outcome.asked_p99_ns.filter(|_| outcome.long > 0).unwrap_or(outcome.p99_ns) as f64
}

fn dominates(fixed: &Outcome, adaptive: &Outcome, factor: f64) -> bool {
    let notifications = [fixed, adaptive].map(Outcome::notifications_per_1000);
    let p99 = [fixed, adaptive].map(latency_ns);
    let is_as_fast = p99[0] <= p99[1] && fixed.p50_ns <= adaptive.p50_ns;
    (is_as_fast && notifications[1] > factor * notifications[0])
        || (notifications[0] <= notifications[1] && p99[1] > factor * p99[0])
}

/// By more than one in twenty, beside the fixed policy that is best for it.
#[test]
fn no_stream_is_slowed_down() {
    let is_stream = |load: &Load| load.flows.len() == 1 && load.flows[0].window > 1;
    for (costs, load) in all().filter(|(_, load)| is_stream(load)) {
        let took = |policy| run(load, policy, costs).took_ns;
        let least = POLICIES.map(took).into_iter().min().unwrap();
        let adaptive = took("adaptive");
        assert!(100 * adaptive <= 105 * least, "{} {}: {adaptive} {least}", costs.name, load.name);
    }
}

/// Beside long packets a request takes a tenth longer than without anything held back, at most.
#[test]
fn requests_do_not_wait_behind_long_packets() {
    for (costs, load) in all() {
        let [every, adaptive] = ["every", "adaptive"].map(|policy| run(load, policy, costs));
        if adaptive.long > 0
            && let (Some(every), Some(adaptive)) = (every.asked_p99_ns, adaptive.asked_p99_ns)
        {
            let name = costs.name;
            assert!(10 * adaptive <= 11 * every, "{name} {}: {adaptive} {every}", load.name);
        }
    }
}

/// Calls, returns and kicks: how long the device's policy may hold each.
fn longest_ns(policy: &str) -> [u64; 3] {
    match policy.parse().unwrap() {
        Policy::Every => [0; 3],
        // While its source comes back at once.
        Policy::OnEmpty => [100_000, 100_000, 0],
        Policy::Timer { usecs } => [u64::from(usecs) * 1000; 3],
        Policy::Coalesce(limits) => [u64::from(limits.max_usecs) * 1000; 3],
        Policy::Adaptive => [10, 20, 20].map(|wakes| wakes * WAKE_NS),
    }
}

#[test]
fn nothing_waits_longer_than_its_safety_timer() {
    for ((costs, load), poll) in all().flat_map(|it| POLLS.map(|poll| (it, poll))) {
        for policy in POLICIES {
            let waits = run_polling(load, policy, poll, costs, SEED).waits;
            let seen = [waits.calls_ns, waits.returns_ns, waits.kicks_ns];
            // Each kick finds the device asleep.
            let slack = [waits.slack_ns, waits.slack_ns, 2 * waits.slack_ns];
            for at in 0..3 {
                let most = longest_ns(policy)[at] + slack[at];
                let name = costs.name;
                assert!(seen[at] <= most, "{name} {} {policy} {poll}: {waits:?}", load.name);
            }
        }
    }
}

/// A device that polls spares kicks, and what it found by itself it found.
#[test]
fn a_device_that_polls_finds_packets_by_itself() {
    let flood = &LOADS[1];
    let run = |poll| run_polling(flood, "adaptive", poll, Costs::USER_MODE_LINUX, SEED);
    let [never, auto] = POLLS.map(run);
    assert_eq!(never.hits, 0);
    assert!(auto.hits > 0 && 2 * auto.kicks < never.kicks, "{auto:?} {never:?}");
}
