//! What was aimed at, beside what the tables say: one row for each aim and each table that has it.
//!
//! Limits: it only reads what the tables show, rounded as they show it.

use crate::tables::{Number, Place, cell};

/// What a number must reach.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Needed {
    AtLeast(f64),
    AtMost(f64),
}

/// One number that was aimed at.
struct Aim {
    what: String,
    part: &'static str,
    place: Place,
    needed: Needed,
    /// Behind what is needed: a space and the unit, or nothing.
    unit: &'static str,
}

/// What stands in front of the table.
const HEAD: &str = "## What was aimed at, and what the tables say

Reached: yes or no if all of the spread says so; otherwise it is undecided, and what the median
says stands behind it. B are bytes; out is from the guest, in is to it. Adaptive notification is
judged in a part of its own, `ringway bench pacing`.
";

/// The directions and ring formats of `ringway bench ring`: its tables, and how they are called here.
const RINGS: [(&str, &str); 4] = [
    ("guest → host, split ring", "out, split"),
    ("host → guest, split ring", "in, split"),
    ("guest → host, packed ring", "out, packed"),
    ("host → guest, packed ring", "in, packed"),
];

/// What is compared in each of [`RINGS`]: name, row, column, and what is needed.
const RING_AIMS: [(&str, [&str; 2], &str, f64); 7] = [
    (
        "DPDK's driver × ringway's device ÷ DPDK × DPDK, 64 B",
        ["64", "DPDK × ringway"],
        "× DPDK × DPDK",
        1.2,
    ),
    (
        "ringway's driver × DPDK's device ÷ DPDK × DPDK, 64 B, in place",
        ["64", "ringway in place × DPDK"],
        "× DPDK × DPDK",
        1.2,
    ),
    (
        "ringway's driver × DPDK's device ÷ DPDK × DPDK, 64 B, with copies",
        ["64", "ringway × DPDK"],
        "× DPDK × DPDK",
        1.2,
    ),
    ("ringway × ringway ÷ plain ring, 64 B", ["64", "ringway × ringway"], "× limit", 0.8),
    ("ringway × ringway ÷ plain ring, 1518 B", ["1518", "ringway × ringway"], "× limit", 0.85),
    ("ringway × ringway ÷ plain ring, 9000 B", ["9000", "ringway × ringway"], "× limit", 0.85),
    ("ringway × ringway ÷ plain ring, 64 KiB", ["65536", "ringway × ringway"], "× limit", 0.9),
];

/// What is compared in the tables of ratios of `ringway bench guest`: name, table, row, what is
/// needed out and in.
const STREAM_AIMS: [(&str, &str, &str, f64, f64); 3] = [
    (
        "TCP, User Mode Linux ÷ its own tap",
        "User Mode Linux ↔ this machine: ratios",
        "ringway + tap ÷ UML's vector tap",
        1.3,
        2.0,
    ),
    (
        "TCP, emulated guest ÷ QEMU's own tap",
        "Linux under QEMU ↔ this machine: ratios",
        "ringway + tap ÷ QEMU's own tap",
        1.3,
        1.3,
    ),
    (
        "TCP, between two User Mode Linux ÷ bridge",
        "User Mode Linux ↔ User Mode Linux: ratios",
        "ringway's switch ÷ Linux bridge, two vector taps",
        2.0,
        2.0,
    ),
];

/// The columns of those tables, how they are called here, and whether they are from the guest.
const STREAMS: [(&str, &str, bool); 4] = [
    ("TCP out", "out", true),
    ("4 streams out", "out, 4 streams", true),
    ("TCP in", "in", false),
    ("4 streams in", "in, 4 streams", false),
];

/// The section that says what was aimed at and what is reached. `section` has the tables of a part.
pub fn verdicts<'a>(section: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut rows = String::new();
    let mut count = [0; 4];
    for aim in aims() {
        let seen = section(aim.part).and_then(|section| cell(section, &aim.place));
        let number = seen.and_then(Number::of);
        let reached = number.map_or("not measured", |number| aim.needed.reached(number));
        let word = reached.split([' ', ':']).next();
        let kind = ["yes", "no", "undecided"].iter().position(|kind| word == Some(kind));
        count[kind.unwrap_or(3)] += 1;
        let (sign, value) = aim.needed.shown();
        rows.push_str(&format!(
            "| {} | {} | {sign} {value}{} | {} | {reached} |\n",
            aim.what,
            aim.part,
            aim.unit,
            seen.unwrap_or("–")
        ));
    }
    let [yes, no, undecided, missing] = count;
    let sum = format!("{yes} yes, {no} no, {undecided} undecided, {missing} not measured.");
    format!(
        "{HEAD}\n{sum}\n\n| what | part | needed | seen | reached |\n|---|---|---|---|---|\n{rows}"
    )
}

impl Needed {
    fn shown(self) -> (&'static str, f64) {
        match self {
            Needed::AtLeast(value) => ("≥", value),
            Needed::AtMost(value) => ("≤", value),
        }
    }

    fn reached(self, seen: Number) -> &'static str {
        let holds = |value: f64| match self {
            Needed::AtLeast(needed) => value >= needed,
            Needed::AtMost(needed) => value <= needed,
        };
        match (holds(seen.lowest), holds(seen.highest), holds(seen.median)) {
            (true, true, _) => "yes",
            (false, false, _) => "no",
            (_, _, true) => "undecided: median yes",
            (_, _, false) => "undecided: median no",
        }
    }
}

/// All aims, in the order in which they are shown.
fn aims() -> Vec<Aim> {
    let mut aims = ring_aims();
    aims.extend(switch_aims());
    aims.extend(stream_aims());
    aims.extend(other_aims());
    aims
}

fn ring_aims() -> Vec<Aim> {
    let mut aims = Vec::new();
    for (what, row, column, needed) in RING_AIMS {
        for (table, name) in RINGS {
            aims.push(Aim {
                what: format!("{what}: {name}"),
                part: "ring",
                place: Place { table: table.to_string(), row: row.to_vec(), column },
                needed: Needed::AtLeast(needed),
                unit: "",
            });
        }
    }
    aims
}

fn switch_aims() -> Vec<Aim> {
    let aim = |what: &str, bytes, ring, column, needed, unit| Aim {
        what: format!("{what}: {ring}"),
        part: "switch",
        place: Place {
            table: "From guest to guest".to_string(),
            row: vec![bytes, ring, "three ports"],
            column,
        },
        needed,
        unit,
    };
    let short = |ring| {
        let what = "guest to guest by a switch, a worker's time for 64 B";
        aim(what, "64", ring, "worker, ns/packet", Needed::AtMost(30.0), " ns")
    };
    let long = |ring| {
        let what = "one copy ÷ a worker's time for 64 KiB";
        aim(what, "65536", ring, "copy ÷ worker", Needed::AtLeast(0.9), "")
    };
    vec![short("split"), short("packed"), long("split"), long("packed")]
}

fn stream_aims() -> Vec<Aim> {
    let mut aims = Vec::new();
    for (what, table, row, out, inward) in STREAM_AIMS {
        for (column, name, from_guest) in STREAMS {
            aims.push(Aim {
                what: format!("{what}: {name}"),
                part: "guest",
                place: Place { table: table.to_string(), row: vec![row], column },
                needed: Needed::AtLeast(if from_guest { out } else { inward }),
                unit: "",
            });
        }
    }
    aims
}

fn other_aims() -> Vec<Aim> {
    let qemu = |what: &str, column, needed| Aim {
        what: what.to_string(),
        part: "guest",
        place: Place { table: STREAM_AIMS[1].1.to_string(), row: vec![STREAM_AIMS[1].2], column },
        needed,
        unit: "",
    };
    let idle = |what: &str, row: [&'static str; 2], column, needed, unit| Aim {
        what: what.to_string(),
        part: "scale",
        place: Place { table: "Ports and queue pairs".to_string(), row: row.to_vec(), column },
        needed: Needed::AtMost(needed),
        unit,
    };
    let (wakes, memory) = ("idle, wake-ups/s", "memory per port, KiB");
    vec![
        qemu(
            "mean flood ping, emulated guest ÷ QEMU's own tap",
            "flood ping, mean (less is better)",
            Needed::AtMost(0.6),
        ),
        qemu(
            "UDP in, 64 B, emulated guest ÷ QEMU's own tap",
            "64-byte UDP in",
            Needed::AtLeast(3.0),
        ),
        idle("wake-ups of an idle daemon: 64 ports", ["64", "1"], wakes, 0.0, " per second"),
        idle(
            "wake-ups of an idle daemon: 2 ports of 8 pairs",
            ["2", "8"],
            wakes,
            0.0,
            " per second",
        ),
        idle("memory of the daemon per idle port: 64 ports", ["64", "1"], memory, 2048.0, " KiB"),
        idle(
            "memory of the daemon per idle port: 2 ports of 8 pairs",
            ["2", "8"],
            memory,
            2048.0,
            " KiB",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_on_both_sides_decides_nothing() {
        let seen = |median, lowest, highest| Number { median, lowest, highest };
        let needed = Needed::AtLeast(0.8);
        assert_eq!(needed.reached(seen(0.9, 0.8, 1.0)), "yes");
        assert_eq!(needed.reached(seen(0.7, 0.6, 0.79)), "no");
        assert_eq!(needed.reached(seen(0.8, 0.6, 1.0)), "undecided: median yes");
        assert_eq!(needed.reached(seen(0.7, 0.6, 1.0)), "undecided: median no");
        assert_eq!(Needed::AtMost(30.0).reached(seen(29.0, 28.0, 30.0)), "yes");
        assert_eq!(Needed::AtMost(0.0).reached(seen(0.0, 0.0, 0.0)), "yes");
    }

    #[test]
    fn what_is_missing_is_not_measured() {
        let text = verdicts(|part| {
            (part == "scale").then_some("### Ports and queue pairs\n\n| ports | queue pairs each | idle, wake-ups/s |\n|---|---|---|\n| 64 | 1 | 0.0 |\n")
        });
        assert!(text.contains("64 ports | scale | ≤ 0 per second | 0.0 | yes |"), "{text}");
        assert!(text.contains(&format!("\n1 yes, 0 no, 0 undecided, {} not", aims().len() - 1)));
        assert_eq!(text.matches("| – | not measured |").count(), aims().len() - 1);
    }
}
