//! What `ringway bench` measures with real peers: two User Mode Linux guests on the switch and on a
//! bridge, policies of notification, routers, and DPDK's ends of a ring.
//!
//! Limits: that there are numbers is looked at, not what they are.

use std::time::Duration;

use anyhow::{Context, ensure};
use ringway_guests::{Console, Stage};
use serde_json::Value;

use crate::bench::ringway_bench;
use crate::downloads::KERNEL_VARIABLE;
use crate::paths::Paths;

/// Longest time for any of them.
const LIMIT: Duration = Duration::from_secs(230);

/// What is measured, the rows that its first tables must have, how many numbers of each of them
/// must be above zero, how many tables; and the same of one more table behind them.
pub struct Case(&'static str, &'static str, usize, usize, Option<(&'static str, usize)>);

/// Two guests on ringway's switch, beside a bridge.
pub const GUESTS: Case = Case(
    "guest --here --quick --pairs uml-pair --json",
    "ringway's switch|Linux bridge, two vector taps",
    10,
    1,
    None,
);

/// The same with a QEMU guest, beside QEMU's own tap.
pub const QEMU: Case =
    Case("guest --here --quick --pairs qemu --json", "ringway + tap|QEMU's own tap", 10, 1, None);

pub const PACING: Case = Case(
    "pacing --here --quick --pairs uml --json",
    "adaptive|adaptive again|timer:50us|timer:150us|timer:250us|every|on-empty|coalesce:16/50us",
    7,
    1,
    None,
);

/// Ringway's router beside a tap; QEMU's guests take half a minute more.
pub const ROUTERS: Case = Case(
    "nat --here --quick --pairs uml --json",
    "ringway nat:|ringway tap:, routed by the kernel",
    10,
    1,
    None,
);

/// DPDK's program and Open vSwitch in the place of ringway, and a closed loop through all switches.
pub const SWITCH: Case = Case(
    "switch --here --seconds 0.02 --repeats 1 --json",
    "two ports|three ports|DPDK testpmd, two ports|Open vSwitch with DPDK, three ports",
    5,
    1,
    Some((
        "ringway|ringway, always polling|DPDK testpmd, two ports|Open vSwitch with DPDK|\
         Open vSwitch in user space, taps|Linux bridge, taps|vde_switch",
        3,
    )),
);

/// Three techniques of the history.
pub const HISTORY: Case = Case(
    "history --guest uml --here --repeats 1 --rows 150,host's,packed --json",
    "150 µs timer|mergeable buffers, host's GSO off|packed ring",
    2,
    1,
    None,
);

/// Both formats and directions, DPDK's rows, too; Mpps and Gb/s.
pub const RINGS: Case = Case(
    "ring --seconds 0.02 --repeats 1 --sizes 64 --json",
    "limit: plain ring|ringway × ringway|DPDK × ringway|DPDK × DPDK|ringway in place × DPDK|\
     ringway × DPDK",
    2,
    4,
    None,
);

pub fn measure(
    stage: &Stage,
    Case(words, names, numbers, tables, last): &Case,
) -> anyhow::Result<()> {
    let mut command = ringway_bench(&Paths::new());
    command.args(words.split(' ')).env(KERNEL_VARIABLE, &stage.programs.kernel);
    let (status, text) = Console::start(stage, "bench", command)?.wait_end(0, LIMIT)?;
    ensure!(status.success(), "ringway bench {words}: {status}:\n{text}");
    let report: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    let last = last.map(|(names, numbers)| (*tables, names, numbers));
    let mut all = (0..*tables).map(|at| (at, *names, *numbers)).chain(last);
    let checked = all.try_for_each(|(at, names, numbers)| {
        let names: Vec<&str> = names.split('|').collect();
        check(&report["tables"][at], &names, numbers)
    });
    checked.with_context(|| report["left_out"].to_string())
}

/// A table has a row of each of these names, whose first numbers, so many, are above zero.
fn check(table: &Value, names: &[&str], numbers: usize) -> anyhow::Result<()> {
    let title = &table["title"];
    let rows = table["rows"].as_array().with_context(|| format!("{title}: no rows"))?;
    for name in names {
        let row =
            rows.iter().filter_map(Value::as_array).find(|row| row.iter().any(|it| it == name));
        let row = row.with_context(|| format!("{title}: no {name}"))?;
        let values = row.iter().filter_map(|cell| cell["median"].as_f64());
        let found = values.take(numbers).filter(|value| *value > 0.0).count();
        ensure!(found == numbers, "{title}, {name}: {row:?}");
    }
    Ok(())
}
