//! The five schemes of receive buffers on one table: workloads × schemes, with the cost model of
//! ADR 0010, next to what a search over every length finds.
//!
//! The tables are committed text: a change of a scheme shows as a difference there. Accept one with
//! `RINGWAY_ACCEPT=1 cargo test -p ringway-testkit --test driver_buffers`.

mod limits;
mod model;
mod workloads;

use std::fmt::Write as _;

use ringway_driver::RxScheme;
use ringway_driver::rx_buffer::{ENTRY_COST_BYTES, PAGE_LEN};
use ringway_testkit::{Rng, golden};

use model::{Counts, Outcome, above, optimum, per, saved, settles};
use workloads::{Average, WORKLOADS, Workload};

const RING_SIZE: u16 = 256;
const HEADER_LEN: u32 = 12;

/// The seed of the tables; other seeds must not matter.
const SEED: u64 = 0x6275_6666;

/// The table, and all that has to hold about it.
#[derive(Default)]
struct Table {
    text: String,
    failures: Vec<String>,
    /// Rows where an average is wrong, what `adaptive` saves there, and the most that can be saved.
    average_is_wrong: Vec<(&'static str, u64, u64)>,
}

impl Table {
    fn add_row(&mut self, workload: &Workload) {
        let lengths = workload.lengths(SEED);
        let (best, least) = optimum(workload, &lengths, ENTRY_COST_BYTES);
        let best = best.map_or("by phase".to_string(), |len| format!("{len} bytes"));
        let packets = (lengths.len() - workload.warm_up()) as u64;
        let cost = per(least, packets);
        let _ = writeln!(self.text, "\n{} (optimum: {best}, cost {cost} a packet)", workload.name);
        let costs = RxScheme::ALL.map(|scheme| {
            let outcome = Outcome::of(scheme, workload, &lengths);
            let cost = outcome.cost(ENTRY_COST_BYTES);
            let _ = writeln!(
                self.text,
                "  {:<9}{:>9}{:>9}{:>12}{:>11} %{:>9}",
                scheme.name(),
                per(outcome.memory, outcome.payload),
                per(outcome.entries, packets),
                per(cost, packets),
                per(above(cost, least), 100),
                settles(scheme, workload, &lengths)
                    .map_or("never".to_string(), |packets| packets.to_string()),
            );
            cost
        });
        self.check(workload, costs, least);
    }

    fn check(&mut self, workload: &Workload, costs: [u64; 5], least: u64) {
        let name = workload.name;
        let [big, page, mtu, ewma, adaptive] = costs;
        let over = above(ewma, big.min(page).min(mtu));
        match workload.average {
            Average::Fits if over > 100 => self.failures.push(format!("{name}: ewma {over} over")),
            Average::Fits => {}
            Average::Exceeded | Average::Mixed => {
                self.average_is_wrong.push((name, saved(adaptive, ewma), saved(least, ewma)));
            }
        }
        let limit = if workload.steady { 100 } else { 500 };
        let over = above(adaptive, least);
        if over > limit {
            self.failures.push(format!("{name}: adaptive is {over} over"));
        }
    }
}

fn heading() -> String {
    format!(
        "Ring of {RING_SIZE} entries, header {HEADER_LEN} bytes, pages of {PAGE_LEN} bytes; \
         an entry costs\n\
         {ENTRY_COST_BYTES} bytes. big: without mergeable and indirect, so 18 entries each.\n\n\
         {:<11}{:>9}{:>9}{:>12}{:>13}{:>9}\n{:<11}{:>9}{:>9}{:>12}{:>13}{:>9}\n",
        "",
        "memory/",
        "entries/",
        "cost/",
        "above the",
        "settles",
        "",
        "payload",
        "packet",
        "packet",
        "optimum",
        "packets",
    )
}

#[test]
fn the_table_of_schemes_is_as_committed() {
    let mut table = Table { text: heading(), ..Table::default() };
    WORKLOADS.iter().for_each(|workload| table.add_row(workload));
    let _ = writeln!(
        table.text,
        "\nWhere an average is wrong: what adaptive saves over ewma, and the most that \
         one length,\n\
         or one for each phase, could save"
    );
    for (name, gain, most) in &table.average_is_wrong {
        let _ =
            writeln!(table.text, "  {name:<26}{:>7} %{:>7} %", per(*gain, 100), per(*most, 100));
    }
    println!("{}", table.text);
    assert!(table.failures.is_empty(), "{}", table.failures.join("\n"));
    let large = table.average_is_wrong.iter().filter(|(_, gain, _)| *gain >= 1000).count();
    assert!(large >= 2, "{:?}", table.average_is_wrong);
    golden::compare("measurements/receive-buffers.md", "schemes", &table.text);
}

/// The numbers of `adaptive` in the table are no accident of its random numbers.
#[test]
fn adaptive_is_near_the_optimum_whatever_the_seed() {
    let mut seeds = Rng::from_environment("adaptive", 0xada);
    for workload in WORKLOADS.iter().filter(|workload| workload.steady) {
        for _ in 0..3 {
            let lengths = workload.lengths(seeds.bits());
            let (len, least) = Counts::of(&lengths[workload.warm_up()..]).search(ENTRY_COST_BYTES);
            let outcome = Outcome::of(RxScheme::Adaptive, workload, &lengths);
            let over = above(outcome.cost(ENTRY_COST_BYTES), least);
            assert!(over <= 100, "{}: {over} over the cost of {len} bytes", workload.name);
        }
    }
}
