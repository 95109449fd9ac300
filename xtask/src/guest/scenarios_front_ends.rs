//! Front-ends that do more than carry packets: they stop and go on, ask, and meet a ringway that
//! was killed.
//!
//! How: pings are numbered and come back, from a guest's kernel or from DPDK; so one that is sent
//! twice is seen, and whether any come at all.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use ringway_extent::Extent;
use ringway_guests::monitor::Monitor;
use ringway_guests::{Process, Stage, Testpmd, net, qemu, shell};

use super::scene::{self, GUEST, HERE, MTU, Scene, TAP, format_name};

const GUEST_MAC: &str = "52:54:00:95:00:02";

/// How often a guest is paused; ringway is killed under DPDK; a guest loses its link; ringway is
/// killed under QEMU.
const PAUSES: Extent = Extent::new("RINGWAY_PAUSES", 8, 100);
const KILLS: Extent = Extent::new("RINGWAY_FRONT_END_KILLS", 8, 100);
const LINK_ROUNDS: u64 = 3;
const KILL_ROUNDS: u64 = 3;

const RESUME_LIMIT: Duration = Duration::from_secs(20);

/// Packets that must come back before the next round.
const ROUND_PACKETS: u64 = 100;

/// How long a guest is paused: some packets wait meanwhile.
const PAUSE: Duration = Duration::from_millis(200);

const PING_EVERY: &str = "0.003";

/// Packets that may be sent twice for each kill: what a ring held. None is at a pause.
const TWICE_MAX: u64 = 256;

pub fn qemu(stage: &Stage, packed: bool) -> anyhow::Result<()> {
    net::create_tap(TAP)?;
    let monitor = stage.file("monitor");
    let device_options = if packed { ",packed=on" } else { "" };
    let machine = qemu::Machine { device_options, monitor: Some(&monitor), ..Default::default() };
    let mut scene = Scene::qemu(stage, &machine, "", MTU, &[])?;
    let mut monitor = Monitor::connect(&monitor)?;
    let mut echo = Echo::start(stage)?;
    echo.wait_for_more().context("before anything")?;
    let pause = |monitor: &mut Monitor, [off, on]: [&str; 2]| -> anyhow::Result<()> {
        monitor.type_line(off)?;
        thread::sleep(PAUSE);
        monitor.type_line(on).map(drop)
    };
    echo.live_through(stage, PAUSES.announced(), "pauses", |_| {
        pause(&mut monitor, ["stop", "cont"])
    })?;
    ask_about_queues(&mut scene, &mut monitor, &mut echo)?;
    let [off, on] = ["set_link n0 off", "set_link n0 on"];
    echo.live_through(stage, LINK_ROUNDS, "times without a link", |_| {
        pause(&mut monitor, [off, on])
    })?;
    echo.check_twice(0)?;
    echo.live_through(stage, KILL_ROUNDS, "kills", |_| scene.kill())?;
    echo.check_twice(KILL_ROUNDS)?;
    scene.port(0)?.check_negotiated(format_name(packed), &[])?;
    scene.finish()
}

/// Asking where a queue stands stops it; it goes on when the guest sends something.
fn ask_about_queues(
    scene: &mut Scene<'_>,
    monitor: &mut Monitor,
    echo: &mut Echo,
) -> anyhow::Result<()> {
    let devices = monitor.type_line("info virtio")?;
    let device = devices.split_whitespace().find(|word| word.starts_with('/'));
    let device = device.with_context(|| format!("no device in {devices}"))?;
    for queues in [&[0][..], &[1], &[0, 1]] {
        for queue in queues {
            monitor.type_line(&format!("info virtio-queue-status {device} {queue}"))?;
        }
        let deadline = Instant::now() + RESUME_LIMIT;
        while scene.side(0).run(&format!("ping -c 1 -W 1 {HERE}"))?.0 != 0 {
            ensure!(Instant::now() < deadline, "asked about {queues:?}: no answer");
        }
        echo.wait_for_more().with_context(|| format!("asked about {queues:?}"))?;
    }
    scene.stage.step(&format!("queues asked about: {:?}", echo.counts()));
    Ok(())
}

/// Ringway is killed under DPDK's virtio-user, which listens, and started again.
pub fn dpdk_server(stage: &Stage, packed: bool) -> anyhow::Result<()> {
    net::create_tap(TAP)?;
    scene::set_up_tap(HERE, MTU)?;
    net::ip(&format!("neigh add {GUEST} lladdr {GUEST_MAC} dev {TAP} nud permanent"))?;
    let socket = stage.file("server.sock");
    let ports = [format!("vm0=vm-connect:{}", socket.display()), format!("up=tap:{TAP}")];
    let mut scene = Scene::start(stage, &ports, &[])?;
    stage.step("testpmd");
    let options = format!(",server=1,packed_vq={}", u8::from(packed));
    // It waits for a connection before it takes commands.
    let testpmd = Testpmd::start(stage, &socket, &options, "--forward-mode=icmpecho")?;
    let mut echo = Echo::start(stage)?;
    echo.wait_for_more().context("before anything")?;
    let kills = KILLS.announced();
    echo.live_through(stage, kills, "kills", |round| {
        // The packets that are waited for have come through the last one.
        if round == 2 {
            scene.port(0)?.check_negotiated(format_name(packed), &[])?;
        }
        scene.kill()
    })?;
    echo.check_twice(kills)?;
    scene.port(0)?.check_healthy(&["no_room", "link_down", "no_route"])?;
    testpmd.finish()?;
    scene.finish()
}

/// Pings that go on all the while; a guest's kernel answers, or DPDK.
struct Echo(Process);

#[derive(Debug, Default, PartialEq, Eq)]
struct DatagramCounts {
    sent: u64,
    came: u64,
    twice: u64,
}

impl Echo {
    fn start(stage: &Stage) -> anyhow::Result<Self> {
        let ping = shell::command(&["ping", "-n", "-i", PING_EVERY, GUEST]);
        Ok(Self(Process::start(stage, "ping", ping)?))
    }

    fn wait_for_more(&mut self) -> anyhow::Result<()> {
        let enough = self.counts().came + ROUND_PACKETS;
        let is_so = |ping: &mut Process| DatagramCounts::of(&ping.printed()).came >= enough;
        self.0.wait_until("answered", RESUME_LIMIT, is_so)
    }

    /// Something happens so often, and packets come back each time.
    fn live_through(
        &mut self,
        stage: &Stage,
        rounds: u64,
        what: &str,
        mut happens: impl FnMut(u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for round in 1..=rounds {
            happens(round)?;
            self.wait_for_more().with_context(|| format!("{what}: {round}"))?;
        }
        stage.step(&format!("{rounds} {what}: {:?}", self.counts()));
        Ok(())
    }

    fn counts(&self) -> DatagramCounts {
        DatagramCounts::of(&self.0.printed())
    }

    /// Packets in flight at so many kills may have come twice, nothing else.
    fn check_twice(&self, kills: u64) -> anyhow::Result<()> {
        let counts = self.counts();
        ensure!(counts.twice <= kills * TWICE_MAX, "{counts:?}");
        Ok(())
    }
}

impl DatagramCounts {
    fn of(printed: &str) -> Self {
        let mut counts = Self::default();
        for line in printed.lines() {
            let Some((_, rest)) = line.split_once("icmp_seq=") else { continue };
            let number = rest.split(' ').next().and_then(|number| number.parse().ok());
            counts.sent = counts.sent.max(number.unwrap_or(0));
            counts.twice += u64::from(line.contains("(DUP!)"));
            counts.came += u64::from(line.contains("time=") && !line.contains("(DUP!)"));
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_are_counted_once_and_twice() {
        let lines = "PING 10.95.0.2 (10.95.0.2) 56(84) bytes of data.\n\
            64 bytes from 10.95.0.2: icmp_seq=1 ttl=64 time=0.2 ms\n\
            64 bytes from 10.95.0.2: icmp_seq=1 ttl=64 time=0.3 ms (DUP!)\n\
            From 10.95.0.1 icmp_seq=3 Destination Host Unreachable\n";
        assert_eq!(DatagramCounts::of(lines), DatagramCounts { sent: 3, came: 1, twice: 1 });
    }
}
