//! The five schemes of receive buffers on one table: workloads × schemes, with the cost model of
//! ADR 0010, next to what a search over every length finds.
//!
//! The table is committed text: a change of a scheme shows as a difference there. Accept one with
//! `RINGWAY_ACCEPT=1 cargo test -p ringway-testkit --test driver_buffers`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ringway_driver::rx_buffer::{ADAPTIVE_LEN_MAX, BUFFER_ALIGN, buffers_for, packet_cost};
use ringway_driver::rx_buffer::{Adaptive, ENTRY_COST_BYTES, PAGE_LEN};
use ringway_driver::{RxBufferSizer, RxScheme};
use ringway_testkit::{Rng, golden};

const RING_SIZE: u16 = 256;
const HEADER_LEN: u32 = 12;
/// Packets before anything is counted on steady rows.
const WARM_UP: usize = 2000;
/// Packets counted.
const PACKETS: usize = 20_000;
/// Packets of one phase on changing rows.
const PHASE: usize = 1000;
/// A TCP segment of 45 × 1448 bytes with its headers: what Linux calls 64 KiB.
const LARGE: u32 = 65_226;
/// Ring entries of a big buffer without indirect tables: its header and 17 pages.
const BIG_ENTRIES: u64 = 18;

/// One workload: the length of each packet, and whether it changes.
struct Workload {
    name: &'static str,
    /// One kind of packet, for which an average means something.
    unimodal: bool,
    steady: bool,
    packet: fn(&mut Rng, usize) -> u32,
}

const fn workload(name: &'static str, packet: fn(&mut Rng, usize) -> u32) -> Workload {
    Workload { name, unimodal: true, steady: true, packet }
}

const WORKLOADS: [Workload; 13] = [
    workload("64 B", |_, _| 64),
    workload("MTU", |_, _| 1514),
    workload("uniform 64-1500", |rng, _| between(rng, 64, 1500)),
    workload("4 KiB with header", |_, _| 4084),
    Workload {
        unimodal: false,
        ..workload("4 KiB mean, 2-6 KiB", |rng, _| between(rng, 2048, 6144))
    },
    workload("64 KiB stream", |_, _| LARGE),
    Workload {
        unimodal: false,
        ..workload("90 % 64 B, 10 % 64 KiB", |rng, _| if rng.one_in(10) { LARGE } else { 64 })
    },
    Workload {
        unimodal: false,
        ..workload("50 % 64 B, 50 % 9000", |rng, _| if rng.one_in(2) { 9014 } else { 64 })
    },
    Workload {
        unimodal: false,
        ..workload("80 % MTU, 20 % 64 KiB", |rng, _| if rng.one_in(5) { LARGE } else { 1514 })
    },
    Workload {
        steady: false,
        unimodal: false,
        ..workload("64 B / 64 KiB by turns", |_, at| {
            if (at / PHASE).is_multiple_of(2) { 64 } else { LARGE }
        })
    },
    Workload {
        steady: false,
        unimodal: false,
        ..workload("MTU / 64 KiB by turns", |_, at| {
            if (at / PHASE).is_multiple_of(2) { 1514 } else { LARGE }
        })
    },
    Workload {
        steady: false,
        unimodal: false,
        ..workload("2-6 KiB / 64 KiB by turns", |rng, at| {
            if (at / PHASE).is_multiple_of(2) { between(rng, 2048, 6144) } else { LARGE }
        })
    },
    Workload {
        steady: false,
        unimodal: false,
        ..workload("slow ramp", |_, at| {
            let up = 64 + u32::try_from(at).expect("small") * (LARGE - 64) / PACKETS_U32;
            up.min(LARGE)
        })
    },
];

const PACKETS_U32: u32 = 20_000;

fn between(rng: &mut Rng, low: u64, high: u64) -> u32 {
    u32::try_from(rng.between(low, high)).expect("small")
}

/// What one scheme does with one workload.
#[derive(Default)]
struct Outcome {
    payload: u64,
    memory: u64,
    entries: u64,
    cost: u64,
    /// Most packets from a change until the chosen length is within 5 % of the new optimum; `None`:
    /// it never was.
    settles: Option<usize>,
}

/// The seed of the table; other seeds must not matter.
const SEED: u64 = 0x6275_6666;

fn lengths(workload: &Workload, seed: u64) -> Vec<u32> {
    let mut rng = Rng::new(seed);
    let warm_up = if workload.steady { WARM_UP } else { 0 };
    (0..warm_up + PACKETS).map(|at| (workload.packet)(&mut rng, at)).collect()
}

/// The phases a clairvoyant would choose a length for.
fn phases<'a>(workload: &Workload, lengths: &'a [u32]) -> impl Iterator<Item = &'a [u32]> {
    lengths.chunks(if workload.steady { lengths.len() } else { PHASE })
}

/// How often each length comes, header included.
struct Counts(BTreeMap<u32, u64>);

impl Counts {
    fn of(lengths: &[u32]) -> Self {
        let mut counts = BTreeMap::new();
        lengths.iter().for_each(|len| *counts.entry(len + HEADER_LEN).or_insert(0) += 1);
        Self(counts)
    }

    /// Cost of all of them in buffers of one length.
    fn cost(&self, buffer_len: u32) -> u64 {
        self.0.iter().map(|(len, count)| count * packet_cost(*len, buffer_len)).sum()
    }

    /// The best length of all that `adaptive` may choose, by trying them all.
    fn search(&self) -> (u32, u64) {
        let lower = Adaptive::new(HEADER_LEN, RING_SIZE).len_min();
        let candidates = (lower..=ADAPTIVE_LEN_MAX).step_by(BUFFER_ALIGN as usize);
        let costs = candidates.map(|buffer_len| (buffer_len, self.cost(buffer_len)));
        costs.min_by_key(|(_, cost)| *cost).expect("candidates")
    }
}

fn run(scheme: RxScheme, workload: &Workload, lengths: &[u32]) -> Outcome {
    let mut sizer = RxBufferSizer::new(scheme, HEADER_LEN, RING_SIZE);
    let mut outcome = Outcome { settles: Some(0), ..Outcome::default() };
    for phase in phases(workload, lengths) {
        let counts = Counts::of(phase);
        let (_, least) = counts.search();
        let mut settled = None;
        let mut judged = 0;
        for (at, &len) in phase.iter().enumerate() {
            let buffer_len = sizer.next_len();
            sizer.on_packet(len);
            if settled.is_none() && buffer_len != judged {
                judged = buffer_len;
                settled = (counts.cost(buffer_len) * 100 <= least * 105).then_some(at);
            }
            if workload.steady && at < WARM_UP {
                continue;
            }
            outcome.count(scheme, len, buffer_len);
        }
        outcome.settles = outcome.settles.and_then(|most| Some(most.max(settled?)));
    }
    outcome
}

impl Outcome {
    fn count(&mut self, scheme: RxScheme, len: u32, buffer_len: u32) {
        let buffers = u64::from(buffers_for(len + HEADER_LEN, buffer_len));
        let entries = if scheme == RxScheme::Big { BIG_ENTRIES } else { buffers };
        self.payload += u64::from(len);
        self.memory += buffers * u64::from(buffer_len);
        self.entries += entries;
        self.cost += buffers * u64::from(buffer_len) + u64::from(ENTRY_COST_BYTES) * entries;
    }
}

/// The table, and all that has to hold about it.
struct Table {
    text: String,
    failures: Vec<String>,
    average_is_wrong: Vec<(&'static str, u64)>,
}

fn per(sum: u64, of: u64) -> String {
    let hundredths = (100 * sum + of / 2) / of;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// How much more `cost` is than `least`, in hundredths of a per cent.
fn above(cost: u64, least: u64) -> u64 {
    (10_000 * cost.saturating_sub(least)) / least
}

fn row(table: &mut Table, workload: &Workload) {
    let lengths = lengths(workload, SEED);
    let counted = if workload.steady { &lengths[WARM_UP..] } else { &lengths[..] };
    let optima: Vec<_> =
        phases(workload, counted).map(|phase| Counts::of(phase).search()).collect();
    let least: u64 = optima.iter().map(|(_, cost)| cost).sum();
    let best = match optima.as_slice() {
        [(len, _)] => format!("{len} bytes"),
        _ => "by phase".to_string(),
    };
    let packets = counted.len() as u64;
    let cost = per(least, packets);
    let _ = writeln!(table.text, "\n{} (optimum: {best}, cost {cost} a packet)", workload.name);
    let mut costs = [0; 5];
    for (at, scheme) in RxScheme::ALL.into_iter().enumerate() {
        let outcome = run(scheme, workload, &lengths);
        costs[at] = outcome.cost;
        let _ = writeln!(
            table.text,
            "  {:<9}{:>9}{:>9}{:>12}{:>11} %{:>9}",
            scheme.name(),
            per(outcome.memory, outcome.payload),
            per(outcome.entries, packets),
            per(outcome.cost, packets),
            per(above(outcome.cost, least), 100),
            outcome.settles.map_or("never".to_string(), |settles| settles.to_string()),
        );
    }
    check(table, workload, costs, least);
}

fn check(table: &mut Table, workload: &Workload, costs: [u64; 5], least: u64) {
    let [big, page, mtu, ewma, adaptive] = costs;
    let best_fixed = big.min(page).min(mtu);
    if workload.unimodal && above(ewma, best_fixed) > 100 {
        table.failures.push(format!("{}: ewma is not within 1 % of the best", workload.name));
    }
    let limit = if workload.steady { 100 } else { 500 };
    if above(adaptive, least) > limit {
        table.failures.push(format!(
            "{}: adaptive is {} over",
            workload.name,
            above(adaptive, least)
        ));
    }
    let gain = 10_000 * ewma.saturating_sub(adaptive) / ewma;
    if !workload.unimodal && gain >= 1000 {
        table.average_is_wrong.push((workload.name, gain));
    }
}

#[test]
fn the_table_of_schemes_is_as_committed() {
    let mut table =
        Table { text: String::new(), failures: Vec::new(), average_is_wrong: Vec::new() };
    let _ = writeln!(
        table.text,
        "Ring of {RING_SIZE} entries, header {HEADER_LEN} bytes, pages of {PAGE_LEN} bytes; an entry costs\n\
         {ENTRY_COST_BYTES} bytes. big: without mergeable and indirect, so 18 entries each.\n\n\
         {:<11}{:>9}{:>9}{:>12}{:>13}{:>9}\n{:<11}{:>9}{:>9}{:>12}{:>13}{:>9}",
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
    );
    for workload in &WORKLOADS {
        row(&mut table, workload);
    }
    let _ =
        writeln!(table.text, "\nRows where an average is wrong, and what adaptive saves there:");
    for (name, gain) in &table.average_is_wrong {
        let _ = writeln!(table.text, "  {name}: {} %", per(*gain, 100));
    }
    println!("{}", table.text);
    assert!(table.failures.is_empty(), "{}", table.failures.join("\n"));
    assert!(table.average_is_wrong.len() >= 2, "{:?}", table.average_is_wrong);
    golden::compare("rx-buffers.md", "schemes", &table.text);
}

/// What the table shows of `adaptive` is no accident of its random numbers.
#[test]
fn adaptive_is_near_the_optimum_whatever_the_seed() {
    let mut seeds = Rng::from_environment("adaptive", 0xada);
    for workload in WORKLOADS.iter().filter(|workload| workload.steady) {
        for _ in 0..3 {
            let lengths = lengths(workload, seeds.bits());
            let (len, least) = Counts::of(&lengths[WARM_UP..]).search();
            let outcome = run(RxScheme::Adaptive, workload, &lengths);
            let over = above(outcome.cost, least);
            assert!(over <= 100, "{}: {over} over the cost of {len} bytes", workload.name);
        }
    }
}
