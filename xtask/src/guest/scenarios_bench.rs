//! Measurements of `ringway bench` with real peers: two User Mode Linux guests on the switch and on
//! a bridge, policies of notification, routers, and DPDK's ends of a ring.
//!
//! Limits: that there are numbers is looked at, not what they are.

use std::time::Duration;

use anyhow::{Context, ensure};
use ringway_guests::{Console, Stage};
use serde_json::Value;

use crate::bench::ringway_bench;
use crate::downloads::KERNEL_VARIABLE;
use crate::paths::Paths;

/// Longest time for any of them, also in the long tier.
const LIMIT: Duration = Duration::from_secs(230);

/// The arguments of a measurement, and those in the long tier; then of each table, or of so many,
/// the rows that it must have, and how many numbers of each of them must be above zero.
pub type Case = ([&'static str; 2], &'static [(usize, &'static str, usize)]);

pub const GUESTS: Case = (
    ["guest --here --quick --pairs uml-pair --json"; 2],
    &[(1, "ringway's switch|Linux bridge, two vector taps", 10)],
);

pub const QEMU: Case =
    (["guest --here --quick --pairs qemu --json"; 2], &[(1, "ringway + tap|QEMU's own tap", 10)]);

const POLICIES: &str =
    "adaptive|adaptive again|timer:50us|timer:150us|timer:250us|every|on-empty|coalesce:16/50us";
pub const PACING: Case = (
    [
        "pacing --here --seconds 0.2 --repeats 1 --pairs uml --json",
        "pacing --here --quick --pairs uml --json",
    ],
    &[(1, POLICIES, 7)],
);

/// QEMU's guests take half a minute more.
pub const ROUTERS: Case = (
    ["nat --here --quick --pairs uml --json"; 2],
    &[(1, "ringway nat:|ringway tap:, routed by the kernel", 10)],
);

pub const SWITCH: Case = (
    ["switch --here --seconds 0.02 --repeats 1 --json", "switch --here --quick --json"],
    &[
        (1, "two ports|three ports|DPDK testpmd, two ports|Open vSwitch with DPDK, three ports", 5),
        (
            1,
            "ringway|DPDK testpmd, two ports|ringway, packed|DPDK testpmd, packed|\
             Open vSwitch with DPDK|Open vSwitch in user space, taps|Linux bridge, taps|vde_switch",
            3,
        ),
    ],
);

/// Three techniques of the history.
pub const HISTORY: Case = (
    ["history --guest uml --here --repeats 1 --rows 150,host's,packed --json"; 2],
    &[(1, "150 µs timer|mergeable buffers, host's GSO off|packed ring", 2)],
);

/// Both formats and directions; Mpps and Gb/s.
pub const RINGS: Case = (
    ["ring --seconds 0.02 --repeats 1 --sizes 64 --json", "ring --quick --json"],
    &[(
        4,
        "limit: plain ring|ringway × ringway|DPDK × ringway|DPDK × DPDK|ringway in place × DPDK|\
         ringway × DPDK",
        2,
    )],
);

pub fn measure(stage: &Stage, ([short, long], wanted): Case) -> anyhow::Result<()> {
    let words = if ringway_extent::is_long() { long } else { short };
    if words != long {
        ringway_extent::announce(long);
    }
    let mut command = ringway_bench(&Paths::new());
    command.args(words.split(' ')).env(KERNEL_VARIABLE, &stage.programs.kernel);
    let (status, text) = Console::start(stage, "bench", command)?.wait_end(0, LIMIT)?;
    ensure!(status.success(), "ringway bench {words}: {status}:\n{text}");
    let report: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    let each = wanted.iter().flat_map(|&(tables, names, numbers)| vec![(names, numbers); tables]);
    for (at, (names, numbers)) in each.enumerate() {
        check(&report["tables"][at], names, numbers)
            .with_context(|| report["left_out"].to_string())?;
    }
    Ok(())
}

/// A table has a row of each of these names, whose first numbers, so many, are above zero.
fn check(table: &Value, names: &str, numbers: usize) -> anyhow::Result<()> {
    let title = &table["title"];
    let rows = table["rows"].as_array().with_context(|| format!("{title}: no rows"))?;
    for name in names.split('|') {
        let row =
            rows.iter().filter_map(Value::as_array).find(|row| row.iter().any(|it| it == name));
        let row = row.with_context(|| format!("{title}: no {name}"))?;
        let values = row.iter().filter_map(|cell| cell["median"].as_f64());
        let found = values.take(numbers).filter(|value| *value > 0.0).count();
        ensure!(found == numbers, "{title}, {name}: {row:?}");
    }
    Ok(())
}
