//! Several queue pairs of a QEMU guest, whose monitor answers the control queue itself.
//!
//! The guest talks with this machine through a tap, at a ringway with two workers. It changes how
//! many pairs it uses under traffic; what both sides count of each pair shows where packets go.

use anyhow::{Context, ensure};
use ringway_guests::ringway::Way;
use ringway_guests::stage::Stage;
use ringway_guests::traffic;
use ringway_guests::{iperf, qemu};

use super::scene::{HERE, MTU, Scene, format_name};

const PAIRS: usize = 4;
/// Streams at once, one way and then the other: where chance chooses a pair for each, one of four
/// pairs has none of the 64 in one of 25 million runs.
const STREAMS: &str = "-P 32";
/// Packets that show that a pair is used, and how many may still come on one that is not.
const USED_PACKETS: u64 = 100;
const STRAY_PACKETS: u64 = 20;
/// Seconds of traffic in the background, and how much of it has passed when the guest changes the
/// number of its pairs.
const BACKGROUND: &str = "iperf3 --bidir -P 8 -t 4";
const BEFORE_CHANGE: &str = "sleep 1.5";

/// Changes the number of pairs again and again, and looks where packets go.
pub fn pairs(stage: &Stage, is_packed: bool) -> anyhow::Result<()> {
    let packed = if is_packed { "on" } else { "off" };
    let queues = format!(",queues={PAIRS}");
    let device_options = &format!(",mq=on,packed={packed}");
    let machine =
        qemu::Machine { device_options, netdev_options: &queues, ..qemu::Machine::default() };
    let mut scene = Scene::qemu(stage, &machine, &queues, MTU, &["--workers", "2"])?;
    let _server = iperf::start_server(stage)?;
    traffic::flood(&mut scene.side(0), HERE, 1000)?;
    for pairs in [4, 1, 4, 2, 3, 4] {
        change_under_traffic(&mut scene, pairs)?;
        expect(&mut scene, pairs)?;
    }
    let negotiated = [("MQ", true), ("CTRL_VQ", false)];
    scene.port(0)?.check_negotiated(format_name(is_packed), &negotiated)?;
    scene.finish()
}

/// The guest uses so many pairs from now on; what is under way goes on.
fn change_under_traffic(scene: &mut Scene<'_>, pairs: usize) -> anyhow::Result<()> {
    scene.stage.step(&format!("{pairs} pairs from now on, under traffic"));
    let background = format!("({BACKGROUND} -c {HERE}; echo ended $?) >/tmp/background 2>&1 &");
    scene.must(0, &background)?;
    scene.must(0, &format!("{BEFORE_CHANGE}; ethtool -L eth0 combined {pairs}"))?;
    let text = scene.must(0, "while ! grep ended /tmp/background; do sleep 0.2; done")?;
    if !text.contains("ended 0") {
        let text = scene.must(0, "cat /tmp/background")?;
        anyhow::bail!("traffic did not survive {pairs} pairs:\n{text}");
    }
    Ok(())
}

/// Traffic both ways goes through the first so many pairs and no other.
fn expect(scene: &mut Scene<'_>, pairs: usize) -> anyhow::Result<()> {
    let before = counts(scene)?;
    for options in [STREAMS.to_string(), format!("{STREAMS} -R")] {
        let report = traffic::tcp(&mut scene.side(0), HERE, 1, &options)?;
        scene.stage.step(&format!("{options}: {:.2} Gb/s", report.gigabits()));
    }
    let after = counts(scene)?;
    for ((who, then), (_, now)) in before.iter().zip(&after) {
        let moved: Vec<u64> = now.iter().zip(then).map(|(now, then)| now - then).collect();
        scene.stage.step(&format!("{who}: {moved:?}"));
        let (used, others) = moved.split_at(pairs);
        let is_right = moved.len() == PAIRS
            && used.iter().all(|packets| *packets >= USED_PACKETS)
            && others.iter().all(|packets| *packets <= STRAY_PACKETS);
        ensure!(is_right, "{who}: {moved:?}: not the first {pairs} pairs");
    }
    Ok(())
}

/// Packets so far through each pair, as each side counts them.
fn counts(scene: &mut Scene<'_>) -> anyhow::Result<[(&'static str, Vec<u64>); 4]> {
    let text = scene.must(0, "ethtool -S eth0")?;
    let port = scene.port(0)?;
    Ok([
        ("received by the guest", guest_counts(&text, "rx")?),
        ("sent by the guest", guest_counts(&text, "tx")?),
        ("given to the guest", port.pairs(Way::To)),
        ("taken from the guest", port.pairs(Way::From)),
    ])
}

/// Packets of each queue in what `ethtool -S` prints: `rx_queue_0_packets` before Linux 6.8,
/// `rx0_packets` from there on. Queues that are not used now are not in it.
fn guest_counts(text: &str, way: &str) -> anyhow::Result<Vec<u64>> {
    let of = |queue: usize| -> Option<u64> {
        let names = [format!("{way}_queue_{queue}_packets"), format!("{way}{queue}_packets")];
        let mut lines = text.lines().filter_map(|line| line.trim().split_once(": "));
        let (_, count) = lines.find(|(name, _)| names.iter().any(|known| known == name))?;
        count.trim().parse().ok()
    };
    of(0).with_context(|| format!("no {way} queue: {text}"))?;
    Ok((0..PAIRS).map(|queue| of(queue).unwrap_or(0)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_old_and_new_kernels_are_read() {
        let line = |name: String| format!("     {name}: 7\n     {name}_bytes: 9\n");
        let old: String = (0..PAIRS).map(|at| line(format!("rx_queue_{at}_packets"))).collect();
        let new: String = (0..PAIRS).map(|at| line(format!("rx{at}_packets"))).collect();
        for text in [old, new] {
            assert_eq!(guest_counts(&text, "rx").ok(), Some(vec![7; PAIRS]));
            assert!(guest_counts(&text, "tx").is_err());
        }
        let one = guest_counts(&line("rx0_packets".to_string()), "rx");
        assert_eq!(one.ok(), Some(vec![7, 0, 0, 0]));
    }
}
