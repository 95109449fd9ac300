//! Notification coalescing as a Linux guest's `ethtool` sets it, and what ringway makes of it.
//!
//! Two User Mode Linux guests; QEMU answers the control queue itself and offers no coalescing. What
//! the kernel of this machine's guests is too old for is told, not tried; the newest must know all
//! of it.

use anyhow::ensure;
use ringway_guests::ringway::Pacing;
use ringway_guests::{Port, Stage, traffic};

use super::scene::{ADDRESSES, Scene};

/// What ringway says of a queue whose guest has set something.
const BY_GUEST: &str = "set by the guest";
const BY_GUEST_FOR_QUEUE: &str = "set by the guest for this queue";
const PINGS: u32 = 2_000;
/// Floods in which a guest that moderates by itself has to decide something. It does so within 64
/// calls, if the last 64 were different: the first flood is enough, as a rule.
const MODERATED_FLOODS_MAX: u32 = 5;
/// What Linux chooses from: packets, and microseconds.
const MODERATED_PACKETS: u64 = 256;
const MODERATED_TIMERS_US: [u64; 5] = [1, 8, 64, 128, 256];

struct Coalesce<'a> {
    scene: Scene<'a>,
    /// The guest's kernel knows everything that can be set.
    is_newest: bool,
}

pub fn coalesce(stage: &Stage, is_newest: bool) -> anyhow::Result<()> {
    let scene = Scene::two_guests(stage, ["", ""], &[], &[])?;
    let mut scene = Coalesce { scene, is_newest };
    let version = scene.must("uname -r")?;
    stage.note(&format!("Linux {}", version.trim()));
    let wanted = [("NOTF_COAL", true), ("VQ_NOTF_COAL", is_newest)];
    scene.port()?.check_negotiated("packed", &wanted)?;
    scene.all_queues()?;
    scene.out_of_range()?;
    scene.single_queues()?;
    scene.moderation()?;
    scene.scene.finish()
}

impl Coalesce<'_> {
    fn all_queues(&mut self) -> anyhow::Result<()> {
        let kicks = self.port()?.pacing("kicks")?;
        // Linux 6.1 forgets that it starts with one frame, and sets both kinds if one was asked
        // for.
        self.must("ethtool -C eth0 rx-usecs 50 rx-frames 16 tx-frames 1")?;
        self.expect("calls", 16, 50, BY_GUEST)?;
        self.expect("returns", 1, 0, BY_GUEST)?;
        self.must("ethtool -C eth0 tx-usecs 100 tx-frames 32")?;
        self.expect("returns", 32, 100, BY_GUEST)?;
        self.expect("calls", 16, 50, BY_GUEST)?;
        ensure!(self.port()?.pacing("kicks")? == kicks, "kicks are none of its business");
        let shown = self.must("ethtool -c eth0")?;
        let words: Vec<&str> = shown.split_whitespace().collect();
        for set in [["rx-usecs:", "50"], ["rx-frames:", "16"], ["tx-frames:", "32"]] {
            ensure!(words.windows(2).any(|pair| pair == set), "{set:?}: {shown}");
        }
        let mean_ms = traffic::flood(&mut self.scene.side(0), ADDRESSES[1], PINGS)?;
        self.scene
            .stage
            .step(&format!("{PINGS} pings while 50 and 100 µs are set: {mean_ms} ms each"));
        Ok(())
    }

    /// The guest is refused, told so, and everything stays as it was.
    fn out_of_range(&mut self) -> anyhow::Result<()> {
        let before = self.port()?.refused_commands();
        for beyond in ["rx-usecs 1000001", "rx-frames 32769", "tx-usecs 4294967295"] {
            let (status, text) = self.run(&format!("ethtool -C eth0 {beyond}"))?;
            ensure!(status != 0, "{beyond} was not refused: {text}");
        }
        let refused = self.port()?.refused_commands() - before;
        ensure!(refused >= 3, "{refused} refusals were counted");
        self.expect("calls", 16, 50, BY_GUEST)?;
        self.expect("returns", 32, 100, BY_GUEST)
    }

    fn single_queues(&mut self) -> anyhow::Result<()> {
        let set = "ethtool -Q eth0 queue_mask 1 --coalesce";
        if !self.knows("single queues", &format!("{set} rx-usecs 20 rx-frames 4"))? {
            return Ok(());
        }
        self.expect("calls", 4, 20, BY_GUEST_FOR_QUEUE)?;
        self.must(&format!("{set} tx-usecs 70 tx-frames 8"))?;
        self.expect("returns", 8, 70, BY_GUEST_FOR_QUEUE)?;
        let before = self.port()?.refused_commands();
        for beyond in ["rx-usecs 1000001", "rx-frames 32769", "tx-usecs 1000001"] {
            // For single queues, ethtool says so and does not fail.
            let (_, text) = self.run(&format!("{set} {beyond}"))?;
            ensure!(text.contains("Cannot set"), "{beyond} was not refused for one queue: {text}");
        }
        let refused = self.port()?.refused_commands() - before;
        ensure!(refused >= 3, "{refused} refusals for one queue were counted");
        self.expect("calls", 4, 20, BY_GUEST_FOR_QUEUE)?;
        self.expect("returns", 8, 70, BY_GUEST_FOR_QUEUE)?;
        // What ethtool takes for no change is not sent.
        self.must("ethtool -C eth0 rx-usecs 60 rx-frames 24")?;
        self.expect("calls", 24, 60, BY_GUEST)
    }

    /// The guest's kernel measures its traffic and sets the limits by itself.
    fn moderation(&mut self) -> anyhow::Result<()> {
        if !self.knows("adaptive-rx", "ethtool -C eth0 adaptive-rx on")? {
            return Ok(());
        }
        let mut pacing = self.port()?.pacing("calls")?;
        for _ in 0..MODERATED_FLOODS_MAX {
            if pacing.cause == BY_GUEST_FOR_QUEUE {
                break;
            }
            traffic::flood(&mut self.scene.side(0), ADDRESSES[1], PINGS)?;
            pacing = self.port()?.pacing("calls")?;
            self.scene.stage.step(&format!("under its own moderation: {pacing}"));
        }
        let is_choice = MODERATED_TIMERS_US.contains(&pacing.timer_us);
        ensure!(pacing.cause == BY_GUEST_FOR_QUEUE, "the guest has decided nothing: {pacing}");
        ensure!(pacing.window == MODERATED_PACKETS && is_choice, "not Linux' choice: {pacing}");
        self.must("ethtool -C eth0 adaptive-rx off")?;
        self.expect("calls", 24, 60, BY_GUEST)?;
        traffic::flood(&mut self.scene.side(0), ADDRESSES[1], PINGS)?;
        self.expect("calls", 24, 60, BY_GUEST)
    }

    /// Sets something that older kernels refuse.
    fn knows(&mut self, what: &str, line: &str) -> anyhow::Result<bool> {
        let (status, text) = self.run(line)?;
        if status != 0 {
            let why = text.trim().replace('\n', ", ");
            ensure!(!self.is_newest, "{what}: refused by the newest kernel: {why}");
            self.scene.stage.note(&format!("{what}: not known to this guest's kernel: {why}"));
        }
        Ok(status == 0)
    }

    fn expect(
        &self,
        direction: &str,
        window: u64,
        timer_us: u64,
        cause: &str,
    ) -> anyhow::Result<()> {
        let wanted = Pacing { window, timer_us, cause: cause.to_string() };
        let found = self.port()?.pacing(direction)?;
        ensure!(found == wanted, "{direction}: {found}, not {wanted}");
        self.scene.stage.step(&format!("{direction}: {found}"));
        Ok(())
    }

    fn port(&self) -> anyhow::Result<Port> {
        self.scene.port(0)
    }

    fn must(&mut self, line: &str) -> anyhow::Result<String> {
        self.scene.must(0, line)
    }

    fn run(&mut self, line: &str) -> anyhow::Result<(i32, String)> {
        self.scene.side(0).run(line)
    }
}
