//! Two Linux guests that differ in everything, and what one captured on its way out compared with
//! what the other captured on its way in.
//!
//! How: User Mode Linux with split rings, jumbo packets, two queue pairs and every offload; QEMU
//! with packed rings, an ordinary MTU, one pair and no offload at all; two workers between them.
//! Both run tcpdump. A test of the host crate then lets this machine's kernel segment what was
//! sent, and compares that with what was received, byte for byte.
//!
//! Limits: IPv4. Packets that the emulated guest is too slow for are dropped and sent again.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use ringway_guests::console::Console;
use ringway_guests::ringway::Way;
use ringway_guests::stage::Stage;
use ringway_guests::traffic;
use ringway_guests::{qemu, uml};

use super::scene::{ADDRESSES, MTU, Scene, port, socket};
use crate::test_program::TestProgram;

pub const PROGRAM: TestProgram = TestProgram { package: "ringway-host", name: "captures" };

/// Tells it where the captures are.
const DIRECTORY_VARIABLE: &str = "RINGWAY_CAPTURES";

/// The guests: one with everything, and one without.
const RICH: usize = 0;
const PLAIN: usize = 1;

const RICH_OPTIONS: &str = ",packed=off,mtu=9000,queues=2";
const PLAIN_OPTIONS: &str = ",csum=off,guest_csum=off";

/// A server of its own for what is captured.
const PORT: u16 = 5202;

const LIMIT: Duration = Duration::from_secs(30);

/// Transfers that are captured, at most, until both captures are whole: a capture sometimes ends
/// without packets that had passed its filter ("77 packets captured, 92 packets received by
/// filter").
const CAPTURES_MAX: usize = 3;

/// TCP both ways, then a transfer that both guests capture.
pub fn compare(stage: &Stage) -> anyhow::Result<()> {
    let mut scene = start(stage)?;
    for (name, options) in [("rich to plain", ""), ("plain to rich", "-R")] {
        let report = traffic::tcp(&mut scene.side(RICH), ADDRESSES[PLAIN], 1, options)?;
        stage.note(&format!("{name}: {:.2} Gb/s", report.gigabits()));
    }
    capture(&mut scene)?;
    let features = ["CSUM", "GUEST_CSUM", "HOST_TSO4", "GUEST_TSO4", "MQ"];
    for (guest, format, has) in [(RICH, "split", true), (PLAIN, "packed", false)] {
        scene.port(guest)?.check_negotiated(format, &features.map(|feature| (feature, has)))?;
    }
    let pairs = scene.port(RICH)?.pairs(Way::From);
    ensure!(pairs.len() == 2, "pairs of the first guest: {pairs:?}");
    stage.step("comparison");
    let verified = PROGRAM.verify(stage, (DIRECTORY_VARIABLE, &stage.directory), LIMIT);
    scene.finish()?;
    verified
}

fn start(stage: &Stage) -> anyhow::Result<Scene<'_>> {
    let plain_options = format!("{PLAIN_OPTIONS},mac={}", qemu::MAC);
    let ports = [port(stage, "vm0", RICH_OPTIONS), port(stage, "vm1", &plain_options)];
    let mut scene = Scene::start(stage, &ports, &["--workers", "2"])?;
    stage.step("two guests");
    let mut rich = uml::start(stage, "vm0", &socket(stage, "vm0"))?;
    let mut plain = boot(stage, &socket(stage, "vm1"))?;
    uml::wait_booted(&mut rich, ADDRESSES[RICH])?;
    qemu::set_up(&mut plain, qemu::MAC, ADDRESSES[PLAIN], MTU)?;
    scene.guests = vec![rich, plain];
    scene.must(RICH, "ethtool -L eth0 combined 2")?;
    // What is captured is what arrived, and not what the guest has put together again.
    scene.must(PLAIN, "ethtool -K eth0 gro off")?;
    scene.must(PLAIN, &format!("iperf3 -s -D && iperf3 -s -D -p {PORT}"))?;
    Ok(scene)
}

/// A short transfer, captured by both, and the captures brought here.
fn capture(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    scene.stage.step("captures");
    for number in 1..=CAPTURES_MAX {
        let lost = transfer(scene)?;
        if lost.is_empty() {
            return bring(scene);
        }
        scene.stage.note(&format!("capture {number} is not whole: {}", lost.join("; ")));
    }
    bail!("none of {CAPTURES_MAX} captures is whole");
}

/// What is said by captures that are not whole.
fn transfer(scene: &mut Scene<'_>) -> anyhow::Result<Vec<String>> {
    let options = "-Z root -i eth0 -s 0 -B 8192 -U --immediate-mode -w packets";
    let expression = format!("tcp dst port {PORT}");
    scene.on_all(&format!("tcpdump {options} '{expression}' 2>tcpdump.log & capture=$!"))?;
    scene.on_all("until grep -q listening tcpdump.log; do sleep 0.1; done")?;
    let transfer = format!("iperf3 -c {} -p {PORT} -n 1M", ADDRESSES[PLAIN]);
    scene.must(RICH, &transfer)?;
    let mut lost = Vec::new();
    // What is still on its way to a capture gets there.
    for guest in [RICH, PLAIN] {
        scene.must(guest, "sleep 1; kill -INT $capture; wait $capture")?;
        let said = scene.must(guest, "cat tcpdump.log")?;
        if !is_whole(&said)? {
            lost.push(said.lines().skip(1).collect::<Vec<_>>().join(", "));
        }
    }
    Ok(lost)
}

fn bring(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    scene.stage.step("captures leave the guests");
    let here = scene.stage.directory.display();
    let fetch = format!("mkdir here && mount -t hostfs none here -o {here}");
    scene.must(RICH, &format!("{fetch} && cp packets here/sent.pcap && umount here"))?;
    scene.must(PLAIN, "stty raw -echo </dev/ttyS1 && cat packets >/dev/ttyS1")?;
    Ok(())
}

/// A guest whose second serial port is the file of its capture.
fn boot(stage: &Stage, socket: &std::path::Path) -> anyhow::Result<Console> {
    let received: PathBuf = stage.file("received.pcap");
    let arguments = [
        "-m 256M -object memory-backend-memfd,id=mem,size=256M,share=on".to_string(),
        "-machine memory-backend=mem -netdev vhost-user,id=n0,chardev=c0".to_string(),
        format!("-chardev socket,id=c0,path={}", socket.display()),
        format!("-serial file:{}", received.display()),
        format!("-device virtio-net-pci,netdev=n0,mac={},packed=on", qemu::MAC),
    ];
    let words = arguments.iter().flat_map(|words| words.split(' ')).map(str::to_string);
    qemu::boot_with(stage, words.collect())
}

/// Whether tcpdump has written every packet that passed its filter.
fn is_whole(said: &str) -> anyhow::Result<bool> {
    let count = |what: &str| -> anyhow::Result<u64> {
        let line = said.lines().find_map(|line| line.trim().strip_suffix(what));
        Ok(line.with_context(|| format!("no line about {what:?}:\n{said}"))?.trim().parse()?)
    };
    let captured = count("packets captured")?;
    Ok(captured == count("packets received by filter")? && count("packets dropped by kernel")? == 0)
}
