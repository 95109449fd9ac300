//! How far the model can be trusted, and an average be tuned.

use std::fmt::Write as _;

use ringway_driver::RxScheme;
use ringway_driver::rx_buffer::{ENTRY_COST_BYTES, EwmaOptions};
use ringway_testkit::golden;

use crate::SEED;
use crate::model::{Outcome, above, optimum, per};
use crate::workloads::{Average, WORKLOADS};

/// An entry is worth this many bytes, perhaps; the one in the middle is what `adaptive` believes.
const ENTRY_COSTS: [u32; 3] = [ENTRY_COST_BYTES / 2, ENTRY_COST_BYTES, 2 * ENTRY_COST_BYTES];

/// A packet counts `2^-bits`.
const WEIGHT_BITS: [u8; 6] = [0, 2, 4, 6, 8, 10];

/// Costs of an entry that are tried before it is said that none is right, in bytes.
const ENTRY_COST_MAX: u32 = 1 << 20;

/// Without fractions the average of a small weight stays wherever it began: no weight at all.
fn exact(weight_bits: u8) -> RxScheme {
    RxScheme::Ewma(EwmaOptions { weight_bits, ..EwmaOptions::EXACT })
}

#[test]
fn the_choice_is_good_if_an_entry_costs_half_or_twice_as_much() {
    let mut text = format!(
        "{:<26}{:>24}{:>24}{:>24}\n{:<26}",
        "", "optimum, bytes", "adaptive above it, %", "best of the others", "an entry costs, bytes"
    );
    [ENTRY_COSTS; 3].concat().iter().for_each(|cost| {
        let _ = write!(text, "{cost:>8}");
    });
    for workload in &WORKLOADS {
        let lengths = workload.lengths(SEED);
        let outcomes = RxScheme::ALL.map(|scheme| Outcome::of(scheme, workload, &lengths));
        let optima = ENTRY_COSTS.map(|cost| optimum(workload, &lengths, cost));
        let _ = write!(text, "\n{:<26}", workload.name);
        for (len, _) in optima {
            let _ = write!(text, "{:>8}", len.map_or("-".to_string(), |len| len.to_string()));
        }
        for (entry_cost, (_, least)) in ENTRY_COSTS.into_iter().zip(optima) {
            let [others @ .., adaptive] = outcomes.each_ref().map(|one| one.cost(entry_cost));
            let over = above(adaptive, least);
            let _ = write!(text, "{:>8}", per(over, 100));
            let name = workload.name;
            assert!(over <= 500, "{name}: {over} above the optimum at {entry_cost}");
            let best = others.into_iter().min().unwrap_or(0);
            let over = above(adaptive, best);
            assert!(over <= 100, "{name}: {over} above another scheme at {entry_cost}");
        }
        for entry_cost in ENTRY_COSTS {
            let schemes = RxScheme::ALL.iter().zip(&outcomes).take(RxScheme::ALL.len() - 1);
            let best = schemes.min_by_key(|(_, outcome)| outcome.cost(entry_cost));
            let _ = write!(text, "{:>8}", best.map_or("", |(scheme, _)| scheme.name()));
        }
    }
    text.push('\n');
    println!("{text}");
    golden::compare("measurements/receive-buffers.md", "entry", &text);
}

/// Neither a weight nor a cost of an entry that anybody would believe makes an average right for
/// packets of which half are longer.
#[test]
fn no_weight_makes_an_average_fit_what_is_longer() {
    let mut text = format!("{:<22}", "weight of a packet");
    WEIGHT_BITS.iter().for_each(|bits| {
        let _ = write!(text, "{:>8}", format!("1/{}", 1 << bits));
    });
    let _ = writeln!(text, "{:>8}{:>20}", "Linux", "1 % if entries cost");
    for workload in WORKLOADS.iter().filter(|workload| workload.average == Average::Exceeded) {
        let lengths = workload.lengths(SEED);
        let fixed = RxScheme::ALL.into_iter().filter(|scheme| scheme.is_fixed());
        let fixed: Vec<_> = fixed.map(|scheme| Outcome::of(scheme, workload, &lengths)).collect();
        let over = |outcome: &Outcome, entry_cost| {
            let best = fixed.iter().map(|one| one.cost(entry_cost)).min().unwrap_or(0);
            above(outcome.cost(entry_cost), best)
        };
        let _ = write!(text, "{:<22}", workload.name);
        let linux = RxScheme::Ewma(EwmaOptions::LINUX);
        for scheme in WEIGHT_BITS.map(exact).into_iter().chain([linux]) {
            let over = over(&Outcome::of(scheme, workload, &lengths), ENTRY_COST_BYTES);
            let _ = write!(text, "{:>8}", per(over, 100));
            assert!(over > 100, "{}: {scheme:?} {over}", workload.name);
        }
        let linux = Outcome::of(linux, workload, &lengths);
        let mut costs = (ENTRY_COST_BYTES..ENTRY_COST_MAX).step_by(16);
        let right = costs.find(|cost| over(&linux, *cost) <= 100);
        let right = right.map_or("any: never".to_string(), |cost| format!("{cost} bytes"));
        let _ = writeln!(text, "{right:>20}");
    }
    println!("{text}");
    golden::compare("measurements/receive-buffers.md", "weights", &text);
}
