//! Notification policies in virtual time: the golden table, and what must hold of each of them.
//!
//! `RINGWAY_ACCEPT=1` rewrites the table.

use std::fmt::Write;
use std::path::Path;

use ringway_net::PollMode;
use ringway_net::notify::{GIVER_WAIT_NS_MAX, Policy, SENT_STREAM_NS, TAKER_WAIT_NS_MAX};
use ringway_testkit::pacing::{Guest, LOADS, Load, Outcome, simulate};

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

fn run(load: &Load, policy: &str, guest: Guest) -> Outcome {
    run_with(load, policy, guest, SEED)
}

fn run_with(load: &Load, policy: &str, guest: Guest, seed: u64) -> Outcome {
    run_polling(load, policy, PollMode::Never, guest, seed)
}

fn run_polling(load: &Load, policy: &str, poll: PollMode, guest: Guest, seed: u64) -> Outcome {
    simulate(load, policy.parse::<Policy>().unwrap(), poll, guest, seed)
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
            for (policy, poll) in POLICIES.into_iter().flat_map(|it| POLLS.map(|poll| (it, poll))) {
                let outcome = run_polling(load, policy, poll, guest, SEED);
                let what = format!("{guest:?} {} {policy}, polling {poll}", load.name);
                assert_eq!(outcome.lost, 0, "{what}");
                assert!(outcome.packets >= load.packets, "{what}");
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
            if dominates(&fixed, &adaptive, 1.1) {
                let rows = [fixed, adaptive].map(|outcome| row(&outcome).join(" "));
                writeln!(beaten, "{guest:?} guest, {}, seed {seed}: {policy} {rows:?}", load.name)
                    .unwrap();
            }
        }
    }
    assert!(beaten.is_empty(), "adaptive is beaten by:\n{beaten}");
}

/// Latency is that of packets that somebody may wait to see answered, where long ones pass as well: those
/// are held back because nobody waits for one.
#[allow(clippy::cast_precision_loss)]
fn latency_ns(outcome: &Outcome) -> f64 {
    outcome.asked_p99_ns.filter(|_| outcome.long > 0).unwrap_or(outcome.p99_ns) as f64
}

fn dominates(fixed: &Outcome, adaptive: &Outcome, factor: f64) -> bool {
    let notifications = [fixed, adaptive].map(Outcome::notifications_per_1000);
    let p99 = [fixed, adaptive].map(latency_ns);
    (p99[0] <= p99[1] && notifications[1] > factor * notifications[0])
        || (notifications[0] <= notifications[1] && p99[1] > factor * p99[0])
}

/// By more than two in a hundred, beside the fixed policy that is best for it.
#[test]
fn no_stream_is_slowed_down() {
    for guest in [Guest::Stock, Guest::Paced] {
        for load in LOADS.iter().filter(|load| load.flows.len() == 1 && load.flows[0].window > 1) {
            let took = |policy| run(load, policy, guest).took_ns;
            let least = POLICIES.map(took).into_iter().min().unwrap();
            let adaptive = took("adaptive");
            assert!(100 * adaptive <= 102 * least, "{guest:?} {}: {adaptive} {least}", load.name);
        }
    }
}

/// Beside a stream of long packets that the guest sends, who asks is a tenth later than without anything
/// held back, at most; beside one to the guest a fifth later, as a guest that paces itself may take more of
/// it at once.
#[test]
fn nobody_who_asks_waits_for_long_packets() {
    for (guest, load) in [Guest::Stock, Guest::Paced]
        .into_iter()
        .flat_map(|guest| LOADS.iter().map(move |load| (guest, load)))
    {
        let [every, adaptive] = ["every", "adaptive"].map(|policy| run(load, policy, guest));
        if adaptive.long > 0
            && let (Some(every), Some(adaptive)) = (every.asked_p99_ns, adaptive.asked_p99_ns)
        {
            let tenths = if load.flows[0].remote_sends { 12 } else { 11 };
            let is_kept = 10 * adaptive <= tenths * every;
            assert!(is_kept, "{guest:?} {}: {adaptive} {every}", load.name);
        }
    }
}

/// Calls, returns and kicks: how long the device's policy may hold each.
fn longest_ns(policy: &str, guest: Guest) -> [u64; 3] {
    let all = match policy.parse().unwrap() {
        Policy::Every | Policy::OnEmpty => [0; 3],
        Policy::Timer { usecs } => [u64::from(usecs) * 1000; 3],
        Policy::Coalesce(limits) => [limits.timer_ns(); 3],
        Policy::Adaptive => [GIVER_WAIT_NS_MAX, SENT_STREAM_NS, TAKER_WAIT_NS_MAX],
    };
    // A guest that paces its calls itself is called when it asks.
    if guest == Guest::Paced { [0, all[1], all[2]] } else { all }
}

#[test]
fn nothing_waits_longer_than_its_safety_timer() {
    for guest in [Guest::Stock, Guest::Paced] {
        for (load, poll) in LOADS.iter().flat_map(|load| POLLS.map(|poll| (load, poll))) {
            for policy in POLICIES {
                let waits = run_polling(load, policy, poll, guest, SEED).waits;
                let seen = [waits.calls_ns, waits.returns_ns, waits.kicks_ns];
                // Each kick finds the device asleep.
                let slack = [waits.slack_ns, waits.slack_ns, 2 * waits.slack_ns];
                for at in 0..3 {
                    let most = longest_ns(policy, guest)[at] + slack[at];
                    assert!(seen[at] <= most, "{guest:?} {} {policy} {poll}: {waits:?}", load.name);
                }
            }
        }
    }
}

/// A device that polls spares kicks, and what it found by itself it found.
#[test]
fn a_device_that_polls_finds_packets_by_itself() {
    for guest in [Guest::Stock, Guest::Paced] {
        let flood = &LOADS[1];
        let [never, auto] = POLLS.map(|poll| run_polling(flood, "adaptive", poll, guest, SEED));
        assert_eq!(never.hits, 0);
        assert!(auto.hits > 0 && 2 * auto.kicks < never.kicks, "{auto:?} {never:?}");
    }
}
