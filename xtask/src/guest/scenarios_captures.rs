//! A capture in one place, compared with a capture in another one.
//!
//! How: guests run tcpdump, and ringway captures its ports. What a guest puts together again on
//! arrival (GRO) is turned off.
//!
//! Limits: TCP over IPv4.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};
use ringway_guests::{Console, Direction, Process, Stage, qemu, uml};

use super::scene::{ADDRESSES, MTU, Scene, port, rates};
use crate::test_program::TestProgram;

pub const PROGRAM: TestProgram = TestProgram("captures");

/// Tells it where the captures are.
const DIRECTORY_VARIABLE: &str = "RINGWAY_CAPTURES";

/// The guests: one with everything, and one without.
const RICH: usize = 0;
const PLAIN: usize = 1;

const RICH_OPTIONS: &str = ",packed=off,mtu=9000,queues=2";
const PLAIN_OPTIONS: &str = ",csum=off,guest_csum=off";

/// The port that is captured, with a server of its own.
const PORT: u16 = 5202;
const FILTER: &str = "tcp port 5202";

const LIMIT: Duration = Duration::from_secs(30);

/// Transfers that are captured, at most, until both captures are whole: a capture sometimes ends
/// without packets that had passed its filter ("77 packets captured, 92 packets received by
/// filter").
const CAPTURES_MAX: usize = 3;

/// The end of a guest's capture, after what is still on its way to it.
const STOP: &str = "sleep 1; kill -INT $capture; wait $capture";

/// Fewer packets of a way prove nothing, nor do packets that are all short.
const PACKETS_MIN: usize = 20;
const LONG: usize = 10_000;

/// Where the source address is in an IPv4 packet behind an Ethernet header.
const SOURCE_AT: std::ops::Range<usize> = 26..30;

fn start_captures(scene: &mut Scene<'_>, filter: &str) -> anyhow::Result<()> {
    let options = "-Z root -i eth0 -s 0 -B 8192 -U --immediate-mode -w packets";
    scene.on_all(&format!("tcpdump {options} '{filter}' 2>tcpdump.log & capture=$!"))?;
    scene.on_all("until grep -q listening tcpdump.log; do sleep 0.1; done")
}

/// Brings the capture of a User Mode Linux guest here.
fn fetch(scene: &mut Scene<'_>, guest: usize, file: &str) -> anyhow::Result<()> {
    let here = scene.stage.directory.display();
    let mount = format!("mkdir here && mount -t hostfs none here -o {here}");
    scene.must(guest, &format!("{mount} && cp packets here/{file} && umount here")).map(drop)
}

/// Captures of two ports have the packets that the guests at them have captured themselves: one
/// sends the other a transfer, and each way the packets are compared byte for byte and in order.
pub fn pair(stage: &Stage) -> anyhow::Result<()> {
    let mut scene = Scene::two_guests(stage, [""; 2], &[], &[])?;
    scene.on_all("ethtool -K eth0 gro off")?;
    scene.must(1, &format!("iperf3 -s -D -p {PORT}"))?;
    stage.step("captures");
    let mut captures = [capture_port(&scene, "vm0")?, capture_port(&scene, "vm1")?];
    start_captures(&mut scene, FILTER)?;
    scene.must(0, &format!("iperf3 -c {} -p {PORT} -n 2M", ADDRESSES[1]))?;
    scene.on_all(STOP)?;
    stage.step("comparison");
    for (guest, capture) in captures.iter_mut().enumerate() {
        ensure!(capture.terminate(LIMIT)?.success(), "{}", capture.printed());
        let file = format!("guest{guest}.pcap");
        fetch(&mut scene, guest, &file)?;
        let ours = read_pcapng(&stage.file(&format!("vm{guest}.pcapng")))?;
        let theirs = read_pcap(&stage.file(&file))?;
        for (number, address) in ADDRESSES.iter().enumerate() {
            let way = format!("at vm{guest} from guest {number}");
            let [ours, theirs] = [&ours, &theirs].map(|packets| from(packets, address));
            same(&ours, &theirs).context(way)?;
        }
    }
    scene.finish()
}

/// Starts one of a port, and waits until it has a packet.
fn capture_port(scene: &Scene<'_>, port: &str) -> anyhow::Result<Process> {
    let file = scene.stage.file(&format!("{port}.pcapng"));
    let text = file.display().to_string();
    let command = scene.ringway.question(&["capture", port, &text, "--filter", FILTER]);
    let mut process = Process::start(scene.stage, &format!("capture-{port}"), command)?;
    let is_there = |_: &mut Process| fs::metadata(&file).is_ok_and(|file| file.len() > 0);
    process.wait_until("captures", LIMIT, is_there)?;
    Ok(process)
}

fn same(ours: &[&[u8]], theirs: &[&[u8]]) -> anyhow::Result<()> {
    let longest = ours.iter().map(|packet| packet.len()).max();
    ensure!(ours.len() >= PACKETS_MIN, "only {} packets", ours.len());
    let first = ours.iter().zip(theirs).position(|(ours, theirs)| ours != theirs);
    if let Some(at) = first {
        bail!("packet {at} differs:\n{:02x?}\n{:02x?}", beginning(ours[at]), beginning(theirs[at]));
    }
    ensure!(ours.len() == theirs.len(), "{} packets, and {}", ours.len(), theirs.len());
    println!("{} packets are the same, the longest has {longest:?} bytes", ours.len());
    Ok(())
}

fn beginning(packet: &[u8]) -> &[u8] {
    &packet[..packet.len().min(80)]
}

/// Those of that IPv4 address.
fn from<'a>(packets: &'a [Vec<u8>], address: &str) -> Vec<&'a [u8]> {
    let address: Vec<u8> = address.split('.').filter_map(|part| part.parse().ok()).collect();
    let is_it = |packet: &&[u8]| packet.get(SOURCE_AT) == Some(&address);
    packets.iter().map(Vec::as_slice).filter(is_it).collect()
}

fn read_pcapng(path: &Path) -> anyhow::Result<Vec<Vec<u8>>> {
    let (mut reader, mut packets) = (PcapNgReader::new(File::open(path)?)?, Vec::new());
    while let Some(block) = reader.next_block() {
        if let (Block::EnhancedPacket(packet), _) = block? {
            packets.push(packet.data.to_vec());
        }
    }
    ensure!(packets.iter().any(|packet| packet.len() > LONG), "no segmentation offload");
    Ok(packets)
}

fn read_pcap(path: &Path) -> anyhow::Result<Vec<Vec<u8>>> {
    let (mut reader, mut packets) = (PcapReader::new(File::open(path)?)?, Vec::new());
    while let Some(packet) = reader.next_packet() {
        packets.push(packet?.data().to_vec());
    }
    Ok(packets)
}

/// Two Linux guests that differ in everything, and what one captured on its way out compared with
/// what the other captured on its way in.
///
/// User Mode Linux has split rings, jumbo packets, two queue pairs and every offload; QEMU has
/// packed rings, an ordinary MTU, one pair and no offload at all; two workers are between them. A
/// test of the host crate lets this machine's kernel segment what was sent, and compares that with
/// what was received, byte for byte. Packets that the emulated guest is too slow for are dropped
/// and sent again.
pub fn compare(stage: &Stage) -> anyhow::Result<()> {
    let mut scene = start(stage)?;
    let [out, back] = rates(&mut scene.side(RICH), ADDRESSES[PLAIN], 1, "")?;
    stage.note(&format!("rich to plain: {out:.2} Gb/s; plain to rich: {back:.2} Gb/s"));
    capture(&mut scene)?;
    let features = ["CSUM", "GUEST_CSUM", "HOST_TSO4", "GUEST_TSO4", "MQ"];
    for (guest, format, has) in [(RICH, "split", true), (PLAIN, "packed", false)] {
        scene.port(guest)?.check_negotiated(format, &features.map(|feature| (feature, has)))?;
    }
    let pairs = scene.port(RICH)?.pairs(Direction::FromGuest);
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
    let mut rich = uml::start(stage, "vm0", &stage.socket("vm0"))?;
    let mut plain = boot(stage, &stage.socket("vm1"))?;
    uml::wait_booted(&mut rich, ADDRESSES[RICH])?;
    qemu::set_up(&mut plain, qemu::MAC, ADDRESSES[PLAIN], MTU)?;
    scene.guests = vec![rich, plain];
    scene.must(RICH, "ethtool -L eth0 combined 2")?;
    // The capture has the packets that arrived, not those that the guest has put together again.
    scene.must(PLAIN, "ethtool -K eth0 gro off")?;
    scene.must(PLAIN, &format!("iperf3 -s -D && iperf3 -s -D -p {PORT}"))?;
    Ok(scene)
}

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

/// The messages of captures that are not whole.
fn transfer(scene: &mut Scene<'_>) -> anyhow::Result<Vec<String>> {
    start_captures(scene, &format!("tcp dst port {PORT}"))?;
    scene.must(RICH, &format!("iperf3 -c {} -p {PORT} -n 1M", ADDRESSES[PLAIN]))?;
    let mut lost = Vec::new();
    for guest in [RICH, PLAIN] {
        scene.must(guest, STOP)?;
        let said = scene.must(guest, "cat tcpdump.log")?;
        if !is_whole(&said)? {
            lost.push(said.lines().skip(1).collect::<Vec<_>>().join(", "));
        }
    }
    Ok(lost)
}

fn bring(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    scene.stage.step("captures leave the guests");
    fetch(scene, RICH, "sent.pcap")?;
    scene.must(PLAIN, "stty raw -echo </dev/ttyS1 && cat packets >/dev/ttyS1").map(drop)
}

/// A guest whose second serial port is the file of its capture.
fn boot(stage: &Stage, socket: &Path) -> anyhow::Result<Console> {
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
