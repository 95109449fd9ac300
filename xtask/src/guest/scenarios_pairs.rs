//! Several queue pairs and several workers: a Linux guest says which it uses, and packets follow.
//!
//! Two User Mode Linux guests with two pairs each, and a tap, at a ringway with two workers: what
//! stays on a pair stays with one worker, everything else crosses from one to the other.

use anyhow::ensure;
use ringway_guests::ringway::Way;
use ringway_guests::stage::Stage;
use ringway_guests::traffic::{self, Side};

use super::scene::{self, ADDRESSES, MTU, Scene, TAP};

const HERE: &str = "10.99.0.3";
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

/// Changes the number of pairs and the table of hashes, and looks where packets go.
pub fn pairs(stage: &Stage) -> anyhow::Result<()> {
    let options = [",queues=2,rss=on,packed=off", ",queues=2,rss=on"];
    let (tap, workers) = (format!("up=tap:{TAP}"), ["--workers", "2"]);
    let mut scene = Scene::two_guests(stage, options, &[tap], &workers)?;
    scene::set_up_tap(HERE, MTU)?;
    scene.must(1, "iperf3 -s -D")?;
    scene.on_all("ethtool -L eth0 combined 2")?;
    expect(&mut scene, "two pairs", [true, true])?;
    scene.on_all("ethtool -L eth0 combined 1")?;
    expect(&mut scene, "one pair", [true, false])?;
    scene.on_all("ethtool -L eth0 combined 2")?;
    scene.must(1, "ethtool -X eth0 weight 0 1")?;
    expect(&mut scene, "all hashes to the second pair", [false, true])?;
    scene.must(1, &format!("ethtool -X eth0 equal 2 hkey {}", hash_key()))?;
    expect(&mut scene, "hashes to both pairs", [true, true])?;
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
fn expect(scene: &mut Scene<'_>, what: &str, used: [bool; 2]) -> anyhow::Result<()> {
    let before = scene.port(1)?.pairs(Way::To);
    let report = traffic::tcp(&mut scene.side(0), ADDRESSES[1], 1, STREAMS)?;
    let after = scene.port(1)?.pairs(Way::To);
    let moved: Vec<u64> = after.iter().zip(&before).map(|(now, then)| now - then).collect();
    let text = format!("{what}: {:.2} Gb/s, {moved:?} packets per pair", report.gigabits());
    scene.stage.step(&text);
    let seen: Vec<bool> = moved.iter().map(|packets| *packets > USED_PACKETS).collect();
    ensure!(seen == used, "{text}: used {seen:?}, not {used:?}");
    Ok(())
}
