//! Several queue pairs and several workers: a Linux guest says which it uses, and packets follow.

use anyhow::{Context, ensure};
use ringway_guests::{Direction, Side, Stage, iperf, qemu, traffic};

use super::scene::{self, ADDRESSES, HERE, MTU, Scene, TAP, format_name};

/// Of this machine, beside two guests at [`ADDRESSES`].
const BESIDE: &str = "10.99.0.3";
/// Packets that show that a pair is used; fewer are the guests' own small talk.
const USED_PACKETS: u64 = 500;
/// Streams at once, so that each of two pairs gets some: where chance chooses for each, all of them
/// have the same in one of 30,000 runs.
const STREAMS: &str = "-P 16";
/// The receiver's key of hashes, bytes in turn: with it a sender's port changes the pair by each of
/// its lowest four bits but one, so that ports that follow each other never all have the same. A
/// guest's own key is random, and in one of eight no bit does that which 8 even ports differ in.
const HASH_KEY: [&str; 2] = ["6d", "5a"];
/// Length of a key in bytes (VIRTIO 1.3, 5.1.4: at least this much is possible).
const HASH_KEY_LEN: usize = 40;

/// Of the QEMU guest.
const PAIRS: usize = 4;
/// Streams at once, one way and then the other: where chance chooses a pair for each, one of four
/// pairs has none of the 64 in one of 25 million runs.
const QEMU_STREAMS: &str = "-P 32";
/// Packets that show that a pair is used, and how many may still come on one that is not.
const QEMU_USED_PACKETS: u64 = 100;
const STRAY_PACKETS: u64 = 20;
/// Seconds of traffic in the background, and how much of it has passed when the guest changes the
/// number of its pairs.
const BACKGROUND: &str = "iperf3 --bidir -P 8 -t 2";
const BEFORE_CHANGE: &str = "sleep 1";

/// Two User Mode Linux guests with two pairs each, and a tap, at a ringway with two workers: what
/// stays on a pair stays with one worker, everything else crosses from one to the other. The number
/// of pairs and the table of hashes change.
pub fn uml(stage: &Stage) -> anyhow::Result<()> {
    let options = [",queues=2,rss=on,packed=off", ",queues=2,rss=on"];
    let (tap, workers) = (format!("up=tap:{TAP}"), ["--workers", "2"]);
    let mut scene = Scene::two_guests(stage, options, &[tap], &workers)?;
    scene::set_up_tap(BESIDE, MTU)?;
    scene.must(1, "iperf3 -s -D")?;
    scene.on_all("ethtool -L eth0 combined 2")?;
    expect_used(&mut scene, "two pairs", [true, true])?;
    scene.on_all("ethtool -L eth0 combined 1")?;
    expect_used(&mut scene, "one pair", [true, false])?;
    scene.on_all("ethtool -L eth0 combined 2")?;
    scene.must(1, "ethtool -X eth0 weight 0 1")?;
    expect_used(&mut scene, "all hashes to the second pair", [false, true])?;
    scene.must(1, &format!("ethtool -X eth0 equal 2 hkey {}", hash_key()))?;
    expect_used(&mut scene, "hashes to both pairs", [true, true])?;
    // This machine talks to both pairs, both ways.
    for options in [STREAMS.to_string(), format!("{STREAMS} -R")] {
        let report = traffic::tcp(&mut Side::Here, ADDRESSES[1], 1, &options)?;
        stage.step(&format!("tap {options}: {:.2} Gb/s", report.gigabits()));
    }
    scene.finish()
}

fn hash_key() -> String {
    let bytes: Vec<&str> = HASH_KEY.into_iter().cycle().take(HASH_KEY_LEN).collect();
    bytes.join(":")
}

/// Lets the guests talk, and compares which of the receiver's pairs were used.
fn expect_used(scene: &mut Scene<'_>, what: &str, used: [bool; 2]) -> anyhow::Result<()> {
    let before = scene.port(1)?.pairs(Direction::ToGuest);
    let report = traffic::tcp(&mut scene.side(0), ADDRESSES[1], 1, STREAMS)?;
    let after = scene.port(1)?.pairs(Direction::ToGuest);
    let moved: Vec<u64> = after.iter().zip(&before).map(|(now, then)| now - then).collect();
    let text = format!("{what}: {:.2} Gb/s, {moved:?} packets per pair", report.gigabits());
    scene.stage.step(&text);
    let seen: Vec<bool> = moved.iter().map(|packets| *packets > USED_PACKETS).collect();
    ensure!(seen == used, "{text}: used {seen:?}, not {used:?}");
    Ok(())
}

/// A QEMU guest, whose monitor answers the control queue itself, changes how many pairs it uses
/// under traffic, again and again; what both sides count of each pair shows where packets go.
pub fn qemu(stage: &Stage, is_packed: bool) -> anyhow::Result<()> {
    let packed = if is_packed { "on" } else { "off" };
    let queues = format!(",queues={PAIRS}");
    let device_options = &format!(",mq=on,packed={packed}");
    let machine =
        qemu::Machine { device_options, netdev_options: &queues, ..qemu::Machine::default() };
    let mut scene = Scene::qemu(stage, &machine, &queues, MTU, &["--workers", "2"])?;
    let _server = iperf::start_server(stage)?;
    traffic::flood(&mut scene.side(0), HERE, 1000)?;
    for pairs in [4, 1, 3, 4] {
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
    for options in [QEMU_STREAMS.to_string(), format!("{QEMU_STREAMS} -R")] {
        let report = traffic::tcp(&mut scene.side(0), HERE, 1, &options)?;
        scene.stage.step(&format!("{options}: {:.2} Gb/s", report.gigabits()));
    }
    let after = counts(scene)?;
    for ((who, then), (_, now)) in before.iter().zip(&after) {
        let moved: Vec<u64> = now.iter().zip(then).map(|(now, then)| now - then).collect();
        scene.stage.step(&format!("{who}: {moved:?}"));
        let (used, others) = moved.split_at(pairs);
        let is_right = moved.len() == PAIRS
            && used.iter().all(|packets| *packets >= QEMU_USED_PACKETS)
            && others.iter().all(|packets| *packets <= STRAY_PACKETS);
        ensure!(is_right, "{who}: {moved:?}: not the first {pairs} pairs");
    }
    Ok(())
}

fn counts(scene: &mut Scene<'_>) -> anyhow::Result<[(&'static str, Vec<u64>); 4]> {
    let text = scene.must(0, "ethtool -S eth0")?;
    let port = scene.port(0)?;
    Ok([
        ("received by the guest", guest_counts(&text, "rx")?),
        ("sent by the guest", guest_counts(&text, "tx")?),
        ("given to the guest", port.pairs(Direction::ToGuest)),
        ("taken from the guest", port.pairs(Direction::FromGuest)),
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
