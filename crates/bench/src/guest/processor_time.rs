//! Processor time of programs with everything they have started.
//!
//! How: `/proc/PID/stat` of each program, of the processes below it and of those in its group, with
//! the time of children that have ended. User Mode Linux has a process for each of its own.
//!
//! Limits: counted in the kernel's ticks of 10 ms.

use std::collections::BTreeMap;
use std::fs;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Status {
    parent: u32,
    group: u32,
    ticks: u64,
}

/// Seconds of processor time of these programs so far.
pub(super) fn seconds(programs: &[u32]) -> f64 {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| {
        let id: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((id, parse(&fs::read_to_string(entry.path().join("stat")).ok()?)?))
    });
    let ticks = ticks(&processes.collect(), programs);
    // A count of ticks is far below what a double holds exactly.
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// The same of the first thread of a program alone.
pub(super) fn of_first_thread(program: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{program}/task/{program}/stat"));
    let ticks = stat.ok().and_then(|stat| parse(&stat)).map_or(0, |status| status.ticks);
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// The second field is the program's name in parentheses and may contain anything.
fn parse(stat: &str) -> Option<Status> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    // From the third field on: state, parent, group; 14 to 17 are own and children's times.
    let ticks = (11..15).map(number).sum::<Option<u64>>()?;
    let id = |at: usize| u32::try_from(number(at)?).ok();
    Some(Status { parent: id(1)?, group: id(2)?, ticks })
}

fn ticks(processes: &BTreeMap<u32, Status>, programs: &[u32]) -> u64 {
    let is_part = |id: u32, status: &Status| {
        let mut at = Some((id, *status));
        // No chain of parents is longer than there are processes.
        for _ in 0..processes.len() {
            let Some((id, status)) = at else { return false };
            if programs.contains(&id) || programs.contains(&status.group) {
                return true;
            }
            at = processes.get(&status.parent).map(|parent| (status.parent, *parent));
        }
        false
    };
    let part = processes.iter().filter(|(id, status)| is_part(**id, status));
    part.map(|(_, status)| status.ticks).sum()
}

#[cfg(test)]
mod tests {
    use rustix::time::{ClockId, clock_gettime};

    use super::*;

    #[test]
    fn times_are_read_whatever_the_program_is_called() {
        let stat = "7 (a) b (c) S 3 7 1 0 -1 0 0 0 0 0 10 20 3 4 20 0 1 0 5 6 7";
        assert_eq!(parse(stat), Some(Status { parent: 3, group: 7, ticks: 37 }));
        assert_eq!(parse("7 (a) S 3"), None);
    }

    #[test]
    fn descendants_and_groups_count() {
        let status = |parent, group, ticks| Status { parent, group, ticks };
        let processes = BTreeMap::from([
            (1, status(0, 1, 1)),
            (2, status(1, 2, 10)),
            (3, status(2, 3, 100)),
            (4, status(1, 2, 1000)),
            (5, status(9, 9, 10_000)),
        ]);
        assert_eq!(ticks(&processes, &[2]), 1110);
        assert_eq!(ticks(&processes, &[3]), 100);
        assert_eq!(ticks(&processes, &[]), 0);
    }

    #[test]
    fn we_have_used_some() {
        // Not for a while, but until this process was really let run for some ticks.
        let used = || clock_gettime(ClockId::ProcessCPUTime);
        while used().tv_sec == 0 && used().tv_nsec < 60_000_000 {}
        assert!(seconds(&[std::process::id()]) > 0.0);
    }
}
