//! The data plane is killed, and replaced by upgrades, under ping, TCP and numbered UDP: the
//! front-end's socket stays open, the guest's carrier does not change, traffic goes on. How long
//! nothing came is told.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use ringway_guests::console::Console;
use ringway_guests::iperf::{self, Report};
use ringway_guests::process::Process;
use ringway_guests::ringway::Ringway;
use ringway_guests::stage::Stage;
use ringway_guests::traffic::{self, Side};
use ringway_guests::{qemu, shell, uml};

use super::scene::{self, Scene};

const HERE: &str = "10.97.0.1";
const GUEST: &str = "10.97.0.2";
const MTU: u32 = 1500;

/// How often the data plane is killed, and how often it is upgraded, in each kind of traffic.
const CRASHES: u32 = 5;
const UPGRADES: u32 = 3;

/// What iperf3 is asked for beside `ping`: TCP out, TCP in, and UDP in both directions at once,
/// 1,250 numbered packets a second each.
const TRAFFIC: [(&str, &str); 3] =
    [("TCP", ""), ("TCP back", "-R"), ("UDP", "-u --bidir -b 2M -l 200")];

/// Names how often all of that is done: 12 rounds are 180 crashes and 108 upgrades.
const ROUNDS: &str = "RINGWAY_RESTART_ROUNDS";

/// Longest time for a round.
const ROUND_LIMIT: Duration = Duration::from_secs(100);

/// From one to the next.
const PAUSE: Duration = Duration::from_millis(400);

/// Between two pings.
const PING_EVERY_MS: u32 = 5;

/// Packets that each crash may cost: what was read from the tap and not delivered, and what came
/// while there was no data plane.
const LOST_PER_CRASH_MAX: u32 = 64;

/// Packets that each upgrade may cost: a ping may be late.
const LOST_PER_UPGRADE_MAX: u32 = 1;

/// Pings of the last half second that may still be on the way when ping ends.
const LATE_MAX: u32 = 100;

/// What happens to the data plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Crash,
    Upgrade,
}

/// What became of pings, or of other numbered packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) lost: u32,
    /// The longest time without an answer.
    pub(super) gap: Duration,
}

impl Seen {
    /// Not more was lost than may be in so many; said in any case.
    pub(super) fn check(
        self,
        stage: &Stage,
        (what, times): (What, u32),
        option: &str,
    ) -> anyhow::Result<()> {
        let (lost, gap_ms) = (self.lost, self.gap.as_millis());
        stage.note(&format!("{what:?} {option}: {lost} lost in {times}, none for {gap_ms} ms"));
        let each = match what {
            What::Crash => LOST_PER_CRASH_MAX,
            What::Upgrade => LOST_PER_UPGRADE_MAX,
        };
        let most = each * times;
        ensure!(lost <= most, "{what:?}: {lost} lost, {most} may be");
        Ok(())
    }
}

/// How often all of it is done.
pub(super) fn rounds() -> u32 {
    let named = std::env::var(ROUNDS).ok().and_then(|rounds| rounds.parse().ok());
    named.unwrap_or(1)
}

/// The longest time for all rounds.
pub fn limit() -> Duration {
    ROUND_LIMIT * rounds()
}

/// What is done in each kind of traffic, and how often.
pub(super) fn each() -> impl Iterator<Item = (What, u32)> {
    let each = [(What::Crash, CRASHES), (What::Upgrade, UPGRADES)];
    (0..rounds()).flat_map(move |_| each)
}

/// A QEMU guest with split or packed rings.
pub fn qemu(stage: &Stage, packed: bool) -> anyhow::Result<()> {
    let options = format!(",mac={}", qemu::MAC);
    let scene = Scene::with_tap(stage, &options, (HERE, MTU))?;
    let device_options = if packed { ",packed=on" } else { "" };
    let machine = qemu::Machine { device_options, ..qemu::Machine::default() };
    let mut guest = qemu::boot(stage, &scene::socket(stage, "vm0"), &machine)?;
    qemu::set_up(&mut guest, qemu::MAC, GUEST, MTU)?;
    undisturbed(stage, &scene.ringway, &mut guest)?;
    scene.ringway.port("vm0")?.check_negotiated(scene::format_name(packed), &[])?;
    drop(guest);
    scene.finish()
}

/// A User Mode Linux guest, which would never connect again.
pub fn uml(stage: &Stage) -> anyhow::Result<()> {
    let scene = Scene::with_tap(stage, "", (HERE, MTU))?;
    let mut guest = uml::start(stage, "vm0", &scene::socket(stage, "vm0"))?;
    uml::wait_booted(&mut guest, GUEST)?;
    undisturbed(stage, &scene.ringway, &mut guest)?;
    drop(guest);
    scene.finish()
}

fn must(guest: &mut Console, line: &str) -> anyhow::Result<String> {
    Side::Guest(guest).must(line)
}

fn undisturbed(stage: &Stage, ringway: &Ringway, guest: &mut Console) -> anyhow::Result<()> {
    let _server = iperf::start_server(stage)?;
    traffic::tcp(&mut Side::Guest(guest), HERE, 1, "")?;
    let changes = |guest: &mut Console| must(guest, "cat /sys/class/net/eth0/carrier_changes");
    let before = changes(guest)?;
    for (number, (what, times)) in (1..).zip(each()) {
        for (at, (traffic, option)) in (0..).zip(TRAFFIC) {
            stage.step(&format!("{times} times {what:?} under ping and {traffic}"));
            // Each has a log of its own.
            let name = format!("ping{number}_{at}");
            let seen = repeat(stage, (ringway, what, times), guest, (&name, option))?;
            seen.check(stage, (what, times), traffic)?;
        }
    }
    ensure!(changes(guest)? == before, "the guest saw its link change");
    check_stayed(ringway)
}

/// The front-end's connection is the first one, and all is well.
pub(super) fn check_stayed(ringway: &Ringway) -> anyhow::Result<()> {
    let printed = ringway.printed();
    let gone = printed.lines().find(|line| line.contains("front-end gone"));
    ensure!(gone.is_none(), "{}", gone.unwrap_or_default());
    let port = ringway.port("vm0")?;
    ensure!(port.is_connected(), "its port is not connected");
    port.check_healthy(&["no_room", "link_down"])
}

/// Lets it happen so often.
pub(super) fn disturb(ringway: &Ringway, what: What, times: u32) -> anyhow::Result<()> {
    for _ in 0..times {
        thread::sleep(PAUSE);
        match what {
            What::Crash => ringway.kill_data_plane()?,
            What::Upgrade => ringway.upgrade()?,
        }
    }
    Ok(())
}

/// Pings live through it, and one TCP connection, or numbered packets in both directions.
fn repeat(
    stage: &Stage,
    (ringway, what, times): (&Ringway, What, u32),
    guest: &mut Console,
    (name, option): (&str, &str),
) -> anyhow::Result<Seen> {
    let seconds = 2 + times * if what == What::Crash { 1 } else { 2 };
    let pings = seconds * 1000 / PING_EVERY_MS;
    let interval = format!("0.{PING_EVERY_MS:03}");
    let count = pings.to_string();
    let command =
        shell::command(&["ping", "-n", "-D", "-i", &interval, "-c", &count, "-W", "2", GUEST]);
    let mut ping = Process::start(stage, name, command)?;
    let is_over = AtomicBool::new(false);
    let udp_lost = thread::scope(|scope| {
        let disturber = scope.spawn(|| -> anyhow::Result<()> {
            disturb(ringway, what, times)?;
            is_over.store(true, Ordering::Relaxed);
            Ok(())
        });
        let carried = carry(guest, seconds, option);
        let disturbed = disturber.join().map_err(|_| anyhow::anyhow!("it panicked"));
        disturbed?.context("the data plane")?;
        carried.context("iperf3")
    })?;
    ensure!(is_over.load(Ordering::Relaxed), "iperf3 ended before the last {what:?}");
    let limit = Duration::from_secs(u64::from(seconds) + 20);
    ping.wait_until("its end", limit, |it| it.printed().contains(" packets transmitted"))?;
    let printed = ping.printed();
    let lost = lost(&printed).context("what ping says")? + udp_lost;
    Ok(Seen { lost, gap: longest_gap(&printed) })
}

/// How many numbered packets were lost; none where there are no numbers.
fn carry(guest: &mut Console, seconds: u32, option: &str) -> anyhow::Result<u32> {
    let mut side = Side::Guest(guest);
    if !option.contains("-u") {
        return traffic::tcp(&mut side, HERE, seconds, option).map(|_| 0);
    }
    let before = left_by_programs(&mut side)?;
    let line = format!("iperf3 -J -c {HERE} -t {seconds} {option}");
    let lost = Report::lost_both_ways(&traffic::iperf(&mut side, &line)?)?;
    let lost = lost.saturating_sub(left_by_programs(&mut side)?.saturating_sub(before));
    u32::try_from(lost).context("packets lost")
}

/// Packets that either system has received and its programs have not taken in time.
fn left_by_programs(side: &mut Side<'_>) -> anyhow::Result<u64> {
    const READ: &str = "grep ^Udp: /proc/net/snmp";
    let both = [side.must(READ)?, Side::Here.must(READ)?];
    Ok(both.iter().filter_map(|text| without_room(text)).sum())
}

fn without_room(printed: &str) -> Option<u64> {
    let mut lines = printed.lines().filter(|line| line.starts_with("Udp: "));
    let mut names = lines.next()?.split_whitespace();
    let at = names.position(|name| name == "RcvbufErrors")?;
    lines.next()?.split_whitespace().nth(at)?.parse().ok()
}

/// Pings that were sent, by `5000 packets transmitted, 4998 received, …`, and never answered. The
/// last ones may only be late: ping waits for twice as long as an answer has taken so far.
fn lost(printed: &str) -> Option<u32> {
    let line = printed.lines().find(|line| line.contains(" packets transmitted"))?;
    let sent: u32 = line.split_whitespace().next()?.parse().ok()?;
    let answers = printed.lines().filter(|line| line.contains(" bytes from "));
    let number = |line: &str| line.split_once("icmp_seq=")?.1.split(' ').next()?.parse().ok();
    let numbers: BTreeSet<u32> = answers.filter_map(number).collect();
    let last = numbers.last().copied().unwrap_or(0);
    let late = sent.checked_sub(last)?;
    let counted = if late <= LATE_MAX { last } else { sent };
    counted.checked_sub(u32::try_from(numbers.len()).ok()?)
}

/// Between two answers, which each have the time in front: `[1700000000.123456] 64 bytes from …`.
fn longest_gap(printed: &str) -> Duration {
    let times = printed.lines().filter_map(|line| {
        let (seconds, rest) = line.strip_prefix('[')?.split_once("] ")?;
        let (seconds, us) = seconds.split_once('.').filter(|_| rest.contains(" bytes from "))?;
        Some(Duration::from_secs(seconds.parse().ok()?) + Duration::from_micros(us.parse().ok()?))
    });
    let times: Vec<Duration> = times.collect();
    let gaps = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
    gaps.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ping_prints_is_understood() {
        let answer = |number: u32| {
            format!("[7.5] 64 bytes from 10.97.0.2: icmp_seq={number} ttl=64 time=0.1 ms")
        };
        let printed = |sent: u32, numbers: &[u32]| {
            let answers: Vec<String> = numbers.iter().map(|number| answer(*number)).collect();
            format!("PING\n{}\n{sent} packets transmitted, …\nrtt", answers.join("\n"))
        };
        assert_eq!(lost(&printed(7, &[1, 2, 2, 5, 7])), Some(3), "one came twice");
        assert_eq!(lost(&printed(9, &[1, 2, 4])), Some(1), "five are late");
        assert_eq!(lost(&printed(200, &[1, 2, 4])), Some(197));
        assert_eq!(lost("nothing"), None);
    }

    #[test]
    fn packets_without_room_are_read() {
        let printed = "Udp: InDatagrams RcvbufErrors SndbufErrors\nUdp: 9 7 3\n";
        assert_eq!(without_room(printed), Some(7));
        assert_eq!(without_room("Udp: InDatagrams"), None);
    }

    #[test]
    fn the_longest_gap_is_between_two_answers() {
        let answer = |at: &str| format!("[{at}] 64 bytes from 10.97.0.2: icmp_seq=1 ttl=64");
        let lines = ["PING", &answer("7.900000"), &answer("8.150000"), "[9.0] no", &answer("8.2")];
        assert_eq!(longest_gap(&lines.join("\n")), Duration::from_millis(250));
        assert_eq!(longest_gap(""), Duration::ZERO);
    }
}
