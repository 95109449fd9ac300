//! The data plane is killed, and replaced by upgrades, under ping, TCP both ways and numbered UDP,
//! all at once: the front-end's socket stays open, the guest's carrier does not change, traffic
//! goes on. How long nothing came is told.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use ringway_extent::Extent;
use ringway_guests::iperf::IperfReport;
use ringway_guests::{Console, Process, Ringway, Side, Stage, iperf, qemu, shell, silence};

use super::scene::{GUEST, HERE, MTU, Scene, format_name};

/// How often the data plane is killed, and how often it is upgraded.
const CRASHES: u32 = 3;
const UPGRADES: u32 = 2;

/// Options of iperf3 beside `ping`: TCP out, TCP in, and UDP in both directions at once, 1,250
/// numbered packets a second each. A server serves one of them, at a port of its own.
const TRAFFIC: [&str; 3] = ["-p 5201", "-p 5202 -R", "-p 5203 -u --bidir -b 2M -l 200"];

/// All of that is done so often: 20 rounds are 60 crashes and 40 upgrades.
const ROUNDS: Extent = Extent::new("RINGWAY_RESTART_ROUNDS", 1, 20);

const ROUND_LIMIT: Duration = Duration::from_secs(60);

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

/// Memory that the guest touches, in MiB: 4096 needs as much, and half a minute.
const MEMORY_MIB: Extent = Extent::new("RINGWAY_RESTART_MEMORY_MIB", 512, 4096);

/// The memory that the guest has beside that, in MiB.
const REST_MIB: u64 = 512;

/// Written by one command, which has a time limit.
const PART_MIB: u64 = 256;

/// A server says so at first, and when it has served a client.
const LISTENING: &str = "Server listening";
const LISTENING_LIMIT: Duration = Duration::from_secs(10);

const KILLS: usize = 5;
const MEMORY_PAUSE: Duration = Duration::from_millis(500);

/// In the log, with the time in front of it.
const SERVES: &str = "a new data plane serves, ";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Crash,
    Upgrade,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outage {
    pub(super) lost: u32,
    /// The longest time without an answer.
    pub(super) gap: Duration,
}

impl Outage {
    /// Not more was lost than may be in so many; said in any case.
    pub(super) fn check(self, stage: &Stage, what: What, times: u32) -> anyhow::Result<()> {
        let (lost, gap_ms) = (self.lost, self.gap.as_millis());
        stage.note(&format!("{what:?}: {lost} lost in {times}, none for {gap_ms} ms"));
        let is_crash = what == What::Crash;
        let most = times * if is_crash { LOST_PER_CRASH_MAX } else { LOST_PER_UPGRADE_MAX };
        ensure!(lost <= most, "{what:?}: {lost} lost, {most} may be");
        Ok(())
    }
}

pub fn limit() -> Duration {
    ROUND_LIMIT * u32::try_from(ROUNDS.amount()).unwrap_or(u32::MAX)
}

/// The actions in each kind of traffic, and how often.
pub(super) fn each() -> impl Iterator<Item = (What, u32)> {
    let each = [(What::Crash, CRASHES), (What::Upgrade, UPGRADES)];
    (0..ROUNDS.announced()).flat_map(move |_| each)
}

pub fn qemu(stage: &Stage, packed: bool) -> anyhow::Result<()> {
    let device_options = if packed { ",packed=on" } else { "" };
    let machine = qemu::Machine { device_options, ..qemu::Machine::default() };
    let mut scene = Scene::qemu(stage, &machine, "", MTU, &[])?;
    undisturbed(&mut scene)?;
    scene.port(0)?.check_negotiated(format_name(packed), &[])?;
    scene.finish()
}

/// A User Mode Linux guest, which would never connect again.
pub fn uml(stage: &Stage) -> anyhow::Result<()> {
    let mut scene = Scene::with_tap(stage, "", HERE, MTU)?;
    scene.boot_uml(&[GUEST])?;
    undisturbed(&mut scene)?;
    scene.finish()
}

/// The data plane is killed while it serves a guest that has touched much memory: the kernel unmaps
/// all of it before it tells of the death, and the next one must not wait for that. How long it
/// took is told and not judged; a machine that does something else is slow.
pub fn memory(stage: &Stage) -> anyhow::Result<()> {
    let touched_mib = MEMORY_MIB.announced();
    let memory = format!("{}M", touched_mib + REST_MIB);
    let machine = qemu::Machine { memory: &memory, ..qemu::Machine::default() };
    let mut scene = Scene::qemu(stage, &machine, "", MTU, &[])?;
    stage.step(&format!("the guest touches {touched_mib} MiB"));
    scene.must(0, &format!("mount -o remount,size={touched_mib}M /tmp"))?;
    for part in 0..touched_mib / PART_MIB {
        let line = format!("dd if=/dev/zero of=/tmp/part{part} bs=1M count={}", PART_MIB - 1);
        scene.must(0, &line)?;
    }
    for _ in 0..KILLS {
        scene.ringway.kill_data_plane()?;
        thread::sleep(MEMORY_PAUSE);
        Side::Here.must(&format!("ping -c 1 -W 5 {GUEST}"))?;
    }
    scene.must(0, &format!("ping -c 3 -i 0.2 {HERE}"))?;
    let printed = scene.ringway.printed();
    let time_ms = |line: &str| Some(line.split_once(SERVES)?.1.split(' ').next()?.to_string());
    let times_ms: Vec<String> = printed.lines().filter_map(time_ms).collect();
    ensure!(times_ms.len() == KILLS, "{} data planes were started", times_ms.len());
    stage.note(&format!("the next one served after {} ms", times_ms.join(", ")));
    check_stayed(&scene.ringway).context("after all")?;
    scene.finish()
}

fn undisturbed(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let start = |port| iperf::start_server_on(scene.stage, HERE, port);
    let mut servers =
        (5201..).map(start).take(TRAFFIC.len()).collect::<anyhow::Result<Vec<_>>>()?;
    let changes = "cat /sys/class/net/eth0/carrier_changes";
    let before = scene.must(0, changes)?;
    for (number, (what, times)) in (1..).zip(each()) {
        for server in &mut servers {
            let is_ready = |it: &mut Process| it.printed().matches(LISTENING).count() >= number;
            server.wait_until("listening again", LISTENING_LIMIT, is_ready)?;
        }
        scene.stage.step(&format!("{times} times {what:?} under ping, TCP both ways and UDP"));
        // Each has a log of its own.
        let outage = repeat(scene, what, times, &format!("ping{number}"))?;
        outage.check(scene.stage, what, times)?;
    }
    ensure!(scene.must(0, changes)? == before, "the guest saw its link change");
    check_stayed(&scene.ringway)
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

/// Pings live through it, and two TCP connections, and numbered packets in both directions.
fn repeat(scene: &mut Scene<'_>, what: What, times: u32, name: &str) -> anyhow::Result<Outage> {
    let seconds = 2 + times * if what == What::Crash { 1 } else { 2 };
    let pings = seconds * 1000 / PING_EVERY_MS;
    let words = format!("ping -n -D -i 0.{PING_EVERY_MS:03} -c {pings} -W 2 {GUEST}");
    let command = shell::command(&words.split(' ').collect::<Vec<_>>());
    let mut ping = Process::start(scene.stage, name, command)?;
    let (ringway, guest) = (&scene.ringway, &mut scene.guests[0]);
    let udp_lost = thread::scope(|scope| {
        let disturber = scope.spawn(|| disturb(ringway, what, times));
        let carried = carry(guest, seconds);
        let was_over = disturber.is_finished();
        let disturbed = disturber.join().map_err(|_| anyhow::anyhow!("it panicked"));
        disturbed?.context("the data plane")?;
        ensure!(was_over, "iperf3 ended before the last {what:?}");
        carried.context("iperf3")
    })?;
    let limit = Duration::from_secs(u64::from(seconds) + 20);
    ping.wait_until("its end", limit, |it| it.printed().contains(" packets transmitted"))?;
    let printed = ping.printed();
    let lost = lost(&printed).context("what ping says")? + udp_lost;
    let gap_ms = silence::silence_ms(&printed).context("two answers")?;
    Ok(Outage { lost, gap: Duration::from_secs_f64(gap_ms.max(0.0) / 1e3) })
}

/// All traffic at once; how many numbered packets were lost.
fn carry(guest: &mut Console, seconds: u32) -> anyhow::Result<u32> {
    let mut side = Side::Guest(guest);
    let before = left_by_programs(&mut side)?;
    let clients = (0..).zip(TRAFFIC).map(|(at, options)| {
        format!("iperf3 -J -c {HERE} -t {seconds} {options} > traffic{at} 2>&1 &")
    });
    side.must(&format!("{} wait", clients.collect::<Vec<_>>().join(" ")))?;
    let mut text = |at: usize| side.must(&format!("cat traffic{at}"));
    for at in [0, 1] {
        let text = text(at)?;
        let report = IperfReport::parse(&text).with_context(|| text.clone())?;
        ensure!(report.bits_per_second > 0.0, "TCP {}: nothing arrived", TRAFFIC[at]);
    }
    let lost = IperfReport::lost_both_ways(&text(2)?)?;
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
}
