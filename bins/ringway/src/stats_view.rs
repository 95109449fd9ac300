//! Statistics as a table for people; a pure function of one report, or of two with the rates in
//! between.

use std::fmt::Write as _;

use crate::control::{
    DirectionStats, EffortStats, NatStats, PacingStats, PortStats, StatsReply, WorkerStats,
};
use crate::{layout, units};

/// A column for each thing there is to know about a port.
const HEADER: [&str; 7] =
    ["port", "state", "negotiated", "to guest", "from guest", "pacing", "dropped"];

/// The columns that are numbers.
const NUMBERS: [usize; 2] = [3, 4];

/// Packets of a second from which on system calls are told per packet.
const BUSY_PACKETS: u64 = 1000;

/// The ports, of so many, and the lines above them, no wider than that; with the report `before`,
/// rates are shown too.
pub fn table_of(now: &StatsReply, before: Option<&StatsReply>, all: usize, width: usize) -> String {
    let rows = now.ports.iter().map(|port| {
        let earlier = before.and_then(|before| earlier(port, now, before));
        row(port, earlier)
    });
    let ports = layout::rows(HEADER, &rows.collect::<Vec<_>>(), &NUMBERS, width);
    let seconds = units::count(now.uptime_ms / 1000);
    let shown = now.ports.len();
    let of = if shown == all { String::new() } else { format!("{shown} of ") };
    let count = of + &units::counted(all as u64, "port");
    let workers = now.workers.iter().flat_map(|it| layout::wrapped(&worker(it), width));
    let workers: String = workers.map(|line| line + "\n").collect();
    let sandbox = now.sandbox.iter().map(|sandbox| format!("sandbox: {sandbox}"));
    let forbidden = now.data_plane.iter().filter_map(|plane| plane.forbidden_call.as_ref());
    let forbidden =
        forbidden.map(|call| format!("a data plane ended by forbidden system call {call}"));
    let sandbox = sandbox.chain(forbidden);
    let sandbox = sandbox.flat_map(|line| layout::wrapped(&line, width));
    let sandbox: String = sandbox.map(|line| line + "\n").collect();
    format!("running for {seconds} s, {count}\n{sandbox}{workers}{ports}")
}

/// Everything that is known about one port, no wider than that.
pub fn one_port(port: &PortStats, width: usize) -> String {
    layout::rows(HEADER, &[row(port, None)], &NUMBERS, width)
}

fn row(port: &PortStats, earlier: Option<(&PortStats, u64)>) -> [String; HEADER.len()] {
    [
        format!("{}\n{}:{}", port.name, port.kind, port.address),
        state(port),
        port.negotiated(),
        direction(&port.to_guest, earlier.map(|(port, ms)| (&port.to_guest, ms))),
        direction(&port.from_guest, earlier.map(|(port, ms)| (&port.from_guest, ms))),
        pacing(port),
        drops(port),
    ]
}

/// How a worker spends its time, in the last second.
fn worker(worker: &WorkerStats) -> String {
    let WorkerStats { worker: number, mode, last_second, .. } = worker;
    let EffortStats { packets, system_calls, .. } = *last_second;
    let calls = match packets {
        0 => "no packets".to_string(),
        BUSY_PACKETS.. => {
            let each = units::approximate(system_calls) * 1000.0 / units::approximate(packets);
            format!("{each:.0} system calls per 1,000 packets")
        }
        // A share of so few would say more about the seconds than about the packets.
        _ => {
            let packets = units::counted(packets, "packet");
            format!("{} for {packets}", units::counted(system_calls, "system call"))
        }
    };
    format!(
        "worker {number}: {mode}, {} wake-ups/s, polling {:.1} % of the time, {calls}",
        units::count(last_second.wakeups),
        units::approximate(last_second.polled_ns) / 1e7,
    )
}

/// The same port in the report before, and the milliseconds that have passed since.
fn earlier<'a>(
    port: &PortStats,
    now: &StatsReply,
    before: &'a StatsReply,
) -> Option<(&'a PortStats, u64)> {
    // A daemon that was started anew has run for less long: nothing to compare with.
    let passed_ms = now.uptime_ms.checked_sub(before.uptime_ms).filter(|&ms| ms > 0)?;
    let port = before.ports.iter().find(|other| other.name == port.name)?;
    Some((port, passed_ms))
}

fn state(port: &PortStats) -> String {
    let mut text = port.state.clone();
    if port.link_up == Some(false) {
        text.push_str("\nlink down");
    }
    if let Some(front_end) = &port.front_end {
        // Each on a line of its own keeps the column narrow.
        let _ = write!(text, "\n{}", front_end.to_string().replace(", ", "\n"));
    }
    if let Some(next) = &port.waiting_front_end {
        let _ = write!(text, "\nwaits for it:\n{}", next.to_string().replace(", ", "\n"));
    }
    if port.refused_front_ends > 0 {
        let refused = units::counted(port.refused_front_ends, "front-end");
        let _ = write!(text, "\n{refused} refused");
    }
    if port.replayed > 0 {
        let twice = units::counted(port.replayed, "packet");
        let _ = write!(text, "\n{twice} may have come twice");
    }
    for line in port.notice.iter().chain(&port.error).chain(&port.broken) {
        let _ = write!(text, "\n{line}");
    }
    text
}

fn direction(now: &DirectionStats, before: Option<(&DirectionStats, u64)>) -> String {
    let mut text = format!("{} packets\n{}", units::count(now.packets), units::bytes(now.bytes));
    if let Some((before, passed_ms)) = before {
        let per_second = |now: u64, before: u64| {
            units::approximate(now.saturating_sub(before)) * 1000.0 / units::approximate(passed_ms)
        };
        let bits = units::bits_per_second(per_second(now.bytes, before.bytes) * 8.0);
        let packets = units::packets_per_second(per_second(now.packets, before.packets));
        let _ = write!(text, "\n{bits}\n{packets}");
    }
    text
}

/// Of each queue: what is done about it, packets per notification, the windows, and why they are
/// what they are.
fn pacing(port: &PortStats) -> String {
    let mut lines = Vec::new();
    for queue in &port.queues {
        let wakeups = units::count(queue.wakeups_last_second);
        lines.push(format!("{}: {}, {wakeups} wake-ups/s", queue.queue, queue.mode));
        let directions = || port.pacing.iter().filter(|pace| pace.queue == queue.queue);
        lines.extend(directions().map(paced));
        // The policies have no say in how a guest tells of new buffers: it kicks when asked to.
        if queue.packets > 0 && directions().all(|pace| pace.direction != "kicks") {
            lines.push(format!("  kicks: {}", packets_each(queue.packets, queue.kicks)));
        }
    }
    if port.refused_commands > 0 {
        lines.push(format!("{} commands refused", units::count(port.refused_commands)));
    }
    if let (Some(used), Some(own)) = (&port.used_mac, &port.mac) {
        lines.push(format!("the guest uses {used},\n  the port has {own}"));
    }
    for (count, how) in [(port.migrations_in, "came"), (port.migrations_out, "left")] {
        if count > 0 {
            lines.push(format!("{} {how} by migration", units::counted(count, "guest")));
        }
    }
    if port.moved_addresses > 0 {
        lines.push(format!("{} addresses moved here", units::count(port.moved_addresses)));
    }
    lines.extend(port.nat.iter().flat_map(routed));
    lines.join("\n")
}

/// The statistics of a router, line by line.
fn routed(nat: &NatStats) -> Vec<String> {
    let mut lines = vec![units::counted(nat.sockets, "socket")];
    lines.extend(nat.networks.iter().map(|network| format!("guests: {network}")));
    let leases = nat.leases.iter().map(|(port, leases)| format!("{port}: {}", leases.join(", ")));
    lines.extend(leases);
    lines.extend(nat.forwards.iter().cloned());
    lines.extend(nat.failed_forwards.iter().map(|it| format!("not yet: {it}")));
    let flows =
        |(port, count): (&String, &u64)| format!("{port}: {}", units::counted(*count, "flow"));
    lines.extend(nat.flows.iter().map(flows));
    let refused =
        |(why, count): (&String, &u64)| format!("refused, {why}: {}", units::count(*count));
    lines.extend(nat.refused.iter().map(refused));
    lines
}

fn paced(pace: &PacingStats) -> String {
    let timer_us = units::approximate(pace.timer_ns) / 1000.0;
    format!(
        "  {}: {}\n    window {}, {timer_us:.0} µs: {}",
        pace.direction,
        packets_each(pace.packets, pace.notifications),
        pace.window,
        pace.cause
    )
}

fn packets_each(packets: u64, notifications: u64) -> String {
    let ratio = units::approximate(packets) / units::approximate(notifications.max(1));
    format!("{ratio:.1} packets each")
}

/// The total, and where it comes from.
fn drops(port: &PortStats) -> String {
    let directions = [("to guest", &port.to_guest), ("from guest", &port.from_guest)];
    let total = units::total(directions.iter().flat_map(|(_, it)| it.drops.values()));
    let mut text = units::count(total);
    for (name, direction) in directions {
        for (reason, &count) in direction.drops.iter().filter(|&(_, &count)| count > 0) {
            let _ = write!(text, "\n{name}, {reason}: {}", units::count(count));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::examples::{example, largest};

    const WIDE: usize = 250;

    fn table(now: &StatsReply, before: Option<&StatsReply>, width: usize) -> String {
        table_of(now, before, now.ports.len(), width)
    }

    #[test]
    fn nothing_is_wider_than_the_terminal_and_nothing_is_left_out() {
        let words = |width| {
            let text = table(&example(), None, width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
            let is_word = |word: &&str| word.chars().any(char::is_alphanumeric);
            let mut words: Vec<String> =
                text.split_whitespace().filter(is_word).map(str::to_owned).collect();
            words.sort_unstable();
            words
        };
        for width in [40, 80, 100, 132] {
            assert_eq!(words(width), words(WIDE), "{width}");
        }
    }

    #[test]
    fn system_calls_are_told_per_packet_only_where_there_are_packets() {
        let told = |packets, system_calls| {
            let mut reply = example();
            reply.workers[0].last_second.packets = packets;
            reply.workers[0].last_second.system_calls = system_calls;
            worker(&reply.workers[0])
        };
        assert!(told(0, 12).ends_with(", no packets"), "{}", told(0, 12));
        assert!(told(1, 12).ends_with(", 12 system calls for 1 packet"));
        assert!(told(2000, 1000).ends_with(", 500 system calls per 1,000 packets"));
    }

    #[test]
    fn the_table_shows_state_traffic_and_drops() {
        let text = table(&example(), None, WIDE);
        let wanted = [
            "vm0",
            "vm:/run/vm0.sock",
            "running",
            "packed, mergeable, checksum out",
            "1,000,000 packets",
            "1.00 GB",
            "to guest, no_room: 7",
            "receiveq1: held, 1,034 wake-ups/s",
            "calls: 500000.0 packets each",
            "kicks: 500.0 packets each",
            "window 8, 31 µs: batches",
            "worker 0: polling, 12 wake-ups/s, polling 2.5 % of the time, \
             250 system calls per 1,000",
            "3 commands refused",
            "5 addresses moved here",
            "pid 4711 (qemu-system-x86)",
            "user kvm (107)",
            "2 front-ends refused",
            "\nsandbox: on (no_new_privs, no core, capabilities: net_admin)\n",
        ];
        for words in wanted {
            assert!(text.contains(words), "{words} in\n{text}");
        }
        let has_rates = ["b/s", "packets/s"].iter().any(|unit| text.contains(unit));
        assert!(!has_rates, "no rates without a report before:\n{text}");
    }

    #[test]
    fn what_a_router_does_is_shown() {
        let mut reply = example();
        let leases = [("vm0".to_string(), vec!["10.0.2.15".to_string()])].into();
        let flows = [("vm0".to_string(), 3)].into();
        let refused = [("spoofed_source".to_string(), 2)].into();
        reply.ports[0].nat =
            Some(NatStats { flows, leases, sockets: 3, refused, ..NatStats::default() });
        if let Some(nat) = &mut reply.ports[0].nat {
            nat.networks = vec!["10.0.3.0/24".into()];
        }
        let text = table(&reply, None, WIDE);
        for words in [
            "3 sockets",
            "guests: 10.0.3.0/24",
            "vm0: 10.0.2.15",
            "vm0: 3 flows",
            "refused, spoofed_source: 2",
        ] {
            assert!(text.contains(words), "{words} in\n{text}");
        }
    }

    #[test]
    fn rates_are_what_came_in_between() {
        let before = example();
        let mut now = example();
        now.uptime_ms += 2000;
        now.ports[0].to_guest.packets += 3000;
        now.ports[0].to_guest.bytes += 1_000_000;
        let text = table(&now, Some(&before), WIDE);
        assert!(text.contains("4.00 Mb/s"), "{text}");
        assert!(text.contains("1.50 kpackets/s"), "{text}");
        assert!(text.contains("0 b/s"), "{text}");
    }

    #[test]
    fn numbers_that_cannot_be_are_shown_all_the_same() {
        let text = table(&largest(), Some(&example()), WIDE);
        assert!(text.contains("18,446,744,073,709,551,615"), "{text}");
    }

    #[test]
    fn a_daemon_started_anew_has_no_rates_yet() {
        let mut now = example();
        now.uptime_ms = 100;
        assert!(!table(&now, Some(&example()), WIDE).contains("b/s"));
    }

    #[test]
    fn failures_and_broken_queues_are_told() {
        let mut reply = example();
        reply.ports[0].broken = vec!["transmitq1: descriptor outside memory".to_string()];
        reply.ports[0].error = Some("permission denied".to_string());
        reply.ports[0].format = None;
        let text = table(&reply, None, WIDE);
        assert!(text.contains("transmitq1: descriptor outside memory"), "{text}");
        assert!(text.contains("permission denied"), "{text}");
        assert!(text.contains('–'), "{text}");
    }
}
