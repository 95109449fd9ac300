//! Notification coalescing as a Linux guest's `ethtool` sets it, and what ringway makes of it.
//!
//! Two User Mode Linux guests; QEMU answers the control queue itself and offers no coalescing. What
//! the kernel of this machine's guests is too old for is told, not tried; the newest must know all
//! of it.

use anyhow::ensure;
use ringway_guests::ringway::Pacing;
use ringway_guests::{Stage, traffic};

use super::scene::{ADDRESSES, Scene};

/// The words of ringway about a queue whose guest has set something.
const BY_GUEST: &str = "set by the guest";
const BY_GUEST_FOR_QUEUE: &str = "set by the guest for this queue";
const PINGS: u32 = 2_000;
/// Floods in which a guest that moderates by itself has to decide something. It does so within 64
/// calls, if the last 64 were different: the first flood is enough, as a rule.
const MODERATED_FLOODS_MAX: u32 = 5;
/// The values that Linux chooses from: packets, and microseconds.
const MODERATED_PACKETS: u64 = 256;
const MODERATED_TIMERS_US: [u64; 5] = [1, 8, 64, 128, 256];

pub fn coalesce(stage: &Stage, is_newest: bool) -> anyhow::Result<()> {
    let mut scene = Scene::two_guests(stage, ["", ""], &[], &[])?;
    let version = scene.must(0, "uname -r")?;
    stage.note(&format!("Linux {}", version.trim()));
    let wanted = [("NOTF_COAL", true), ("VQ_NOTF_COAL", is_newest)];
    scene.port(0)?.check_negotiated("packed", &wanted)?;
    all_queues(&mut scene)?;
    out_of_range(&mut scene)?;
    single_queues(&mut scene, is_newest)?;
    moderation(&mut scene, is_newest)?;
    scene.finish()
}

fn all_queues(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let kicks = scene.port(0)?.pacing("kicks")?;
    // Linux 6.1 forgets that it starts with one frame, and sets both kinds if one was asked
    // for.
    scene.must(0, "ethtool -C eth0 rx-usecs 50 rx-frames 16 tx-frames 1")?;
    expect(scene, "calls", 16, 50, BY_GUEST)?;
    expect(scene, "returns", 1, 0, BY_GUEST)?;
    scene.must(0, "ethtool -C eth0 tx-usecs 100 tx-frames 32")?;
    expect(scene, "returns", 32, 100, BY_GUEST)?;
    expect(scene, "calls", 16, 50, BY_GUEST)?;
    ensure!(scene.port(0)?.pacing("kicks")? == kicks, "kicks are none of its business");
    let shown = scene.must(0, "ethtool -c eth0")?;
    let words: Vec<&str> = shown.split_whitespace().collect();
    for set in [["rx-usecs:", "50"], ["rx-frames:", "16"], ["tx-frames:", "32"]] {
        ensure!(words.windows(2).any(|pair| pair == set), "{set:?}: {shown}");
    }
    let mean_ms = traffic::flood(&mut scene.side(0), ADDRESSES[1], PINGS)?;
    scene.stage.step(&format!("{PINGS} pings while 50 and 100 µs are set: {mean_ms} ms each"));
    Ok(())
}

/// The guest is refused, told so, and everything stays as it was.
fn out_of_range(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let before = scene.port(0)?.refused_commands();
    for beyond in ["rx-usecs 1000001", "rx-frames 32769", "tx-usecs 4294967295"] {
        let (status, text) = scene.side(0).run(&format!("ethtool -C eth0 {beyond}"))?;
        ensure!(status != 0, "{beyond} was not refused: {text}");
    }
    let refused = scene.port(0)?.refused_commands() - before;
    ensure!(refused >= 3, "{refused} refusals were counted");
    expect(scene, "calls", 16, 50, BY_GUEST)?;
    expect(scene, "returns", 32, 100, BY_GUEST)
}

fn single_queues(scene: &mut Scene<'_>, is_newest: bool) -> anyhow::Result<()> {
    let set = "ethtool -Q eth0 queue_mask 1 --coalesce";
    if !knows(scene, is_newest, "single queues", &format!("{set} rx-usecs 20 rx-frames 4"))? {
        return Ok(());
    }
    expect(scene, "calls", 4, 20, BY_GUEST_FOR_QUEUE)?;
    scene.must(0, &format!("{set} tx-usecs 70 tx-frames 8"))?;
    expect(scene, "returns", 8, 70, BY_GUEST_FOR_QUEUE)?;
    let before = scene.port(0)?.refused_commands();
    for beyond in ["rx-usecs 1000001", "rx-frames 32769", "tx-usecs 1000001"] {
        // For single queues, ethtool says so and does not fail.
        let (_, text) = scene.side(0).run(&format!("{set} {beyond}"))?;
        ensure!(text.contains("Cannot set"), "{beyond} was not refused for one queue: {text}");
    }
    let refused = scene.port(0)?.refused_commands() - before;
    ensure!(refused >= 3, "{refused} refusals for one queue were counted");
    expect(scene, "calls", 4, 20, BY_GUEST_FOR_QUEUE)?;
    expect(scene, "returns", 8, 70, BY_GUEST_FOR_QUEUE)?;
    // A change that ethtool takes for none is not sent.
    scene.must(0, "ethtool -C eth0 rx-usecs 60 rx-frames 24")?;
    expect(scene, "calls", 24, 60, BY_GUEST)
}

/// The guest's kernel measures its traffic and sets the limits by itself.
fn moderation(scene: &mut Scene<'_>, is_newest: bool) -> anyhow::Result<()> {
    if !knows(scene, is_newest, "adaptive-rx", "ethtool -C eth0 adaptive-rx on")? {
        return Ok(());
    }
    let mut pacing = scene.port(0)?.pacing("calls")?;
    for _ in 0..MODERATED_FLOODS_MAX {
        if pacing.cause == BY_GUEST_FOR_QUEUE {
            break;
        }
        traffic::flood(&mut scene.side(0), ADDRESSES[1], PINGS)?;
        pacing = scene.port(0)?.pacing("calls")?;
        scene.stage.step(&format!("under its own moderation: {pacing}"));
    }
    let is_choice = MODERATED_TIMERS_US.contains(&pacing.timer_us);
    ensure!(pacing.cause == BY_GUEST_FOR_QUEUE, "the guest has decided nothing: {pacing}");
    ensure!(pacing.window == MODERATED_PACKETS && is_choice, "not Linux' choice: {pacing}");
    scene.must(0, "ethtool -C eth0 adaptive-rx off")?;
    expect(scene, "calls", 24, 60, BY_GUEST)?;
    traffic::flood(&mut scene.side(0), ADDRESSES[1], PINGS)?;
    expect(scene, "calls", 24, 60, BY_GUEST)
}

/// Sets something that older kernels refuse.
fn knows(scene: &mut Scene<'_>, is_newest: bool, what: &str, line: &str) -> anyhow::Result<bool> {
    let (status, text) = scene.side(0).run(line)?;
    if status != 0 {
        let why = text.trim().replace('\n', ", ");
        ensure!(!is_newest, "{what}: refused by the newest kernel: {why}");
        scene.stage.note(&format!("{what}: not known to this guest's kernel: {why}"));
    }
    Ok(status == 0)
}

fn expect(
    scene: &Scene<'_>,
    direction: &str,
    window: u64,
    timer_us: u64,
    cause: &str,
) -> anyhow::Result<()> {
    let wanted = Pacing { window, timer_us, cause: cause.to_string() };
    let found = scene.port(0)?.pacing(direction)?;
    ensure!(found == wanted, "{direction}: {found}, not {wanted}");
    scene.stage.step(&format!("{direction}: {found}"));
    Ok(())
}
