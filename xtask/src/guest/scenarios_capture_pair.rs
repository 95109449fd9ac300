//! What captures of two ports have is what the guests at them have captured themselves.
//!
//! How: two User Mode Linux guests run tcpdump while one sends the other a transfer and answers
//! come back; ringway captures both ports. Each way the packets are compared byte for byte and in
//! order. What is put together again on arrival (GRO) is turned off.
//!
//! Limits: one TCP connection over IPv4.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use pcap_file::pcapng::{Block, PcapNgReader};
use ringway_guests::process::Process;
use ringway_guests::stage::Stage;

use super::scene::{ADDRESSES, Scene};

const LIMIT: Duration = Duration::from_secs(10);
const FILTER: &str = "tcp port 5202";

/// Fewer packets of a way prove nothing, nor do packets that are all short.
const PACKETS_MIN: usize = 20;
const LONG: usize = 10_000;

/// Where the source address is in an IPv4 packet behind an Ethernet header.
const SOURCE_AT: std::ops::Range<usize> = 26..30;

/// Of a file of packets, and of each packet in it (pcap-savefile(5)).
const FILE_HEADER_LEN: usize = 24;
const RECORD_HEADER_LEN: usize = 16;

pub fn compare(stage: &Stage) -> anyhow::Result<()> {
    let mut scene = Scene::two_guests(stage, [""; 2], &[], &[])?;
    scene.on_all("ethtool -K eth0 gro off")?;
    scene.must(1, "iperf3 -s -D -p 5202")?;
    stage.step("captures");
    let mut captures = [capture(&scene, "vm0")?, capture(&scene, "vm1")?];
    let options = "-Z root -i eth0 -s 0 -B 8192 -U --immediate-mode -w packets";
    scene.on_all(&format!("tcpdump {options} '{FILTER}' 2>tcpdump.log & capture=$!"))?;
    scene.on_all("until grep -q listening tcpdump.log; do sleep 0.1; done")?;
    scene.must(0, &format!("iperf3 -c {} -p 5202 -n 2M", ADDRESSES[1]))?;
    // What is still on its way to a capture gets there.
    scene.on_all("sleep 1; kill -INT $capture; wait $capture")?;
    stage.step("comparison");
    for (guest, capture) in captures.iter_mut().enumerate() {
        ensure!(capture.terminate(LIMIT)?.success(), "{}", capture.printed());
        let fetch = format!("mkdir here && mount -t hostfs none here -o {}", place(stage));
        scene
            .must(guest, &format!("{fetch} && cp packets here/guest{guest}.pcap && umount here"))?;
        let ours = read_pcapng(stage, &format!("vm{guest}"))?;
        let theirs = read(&stage.file(&format!("guest{guest}.pcap")))?;
        for (number, address) in ADDRESSES.iter().enumerate() {
            let way = format!("at vm{guest} from guest {number}");
            let [ours, theirs] = [&ours, &theirs].map(|packets| from(packets, address));
            same(&ours, &theirs).context(way)?;
        }
    }
    scene.finish()
}

fn place(stage: &Stage) -> String {
    stage.directory.display().to_string()
}

/// Starts one, and waits until it has a packet.
fn capture(scene: &Scene<'_>, port: &str) -> anyhow::Result<Process> {
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
        bail!("packet {at} differs:\n{:02x?}\n{:02x?}", start(ours[at]), start(theirs[at]));
    }
    ensure!(ours.len() == theirs.len(), "{} packets, and {}", ours.len(), theirs.len());
    println!("{} packets are the same, the longest has {longest:?} bytes", ours.len());
    Ok(())
}

fn start(packet: &[u8]) -> &[u8] {
    &packet[..packet.len().min(80)]
}

/// Those of that IPv4 address.
fn from<'a>(packets: &'a [Vec<u8>], address: &str) -> Vec<&'a [u8]> {
    let address: Vec<u8> = address.split('.').filter_map(|part| part.parse().ok()).collect();
    let is_it = |packet: &&[u8]| packet.get(SOURCE_AT) == Some(&address);
    packets.iter().map(Vec::as_slice).filter(is_it).collect()
}

fn read_pcapng(stage: &Stage, port: &str) -> anyhow::Result<Vec<Vec<u8>>> {
    let file = fs::File::open(stage.file(&format!("{port}.pcapng")))?;
    let (mut reader, mut packets) = (PcapNgReader::new(file)?, Vec::new());
    while let Some(block) = reader.next_block() {
        if let (Block::EnhancedPacket(packet), _) = block? {
            packets.push(packet.data.to_vec());
        }
    }
    ensure!(packets.iter().any(|packet| packet.len() > LONG), "no segmentation offload");
    Ok(packets)
}

fn read(path: &Path) -> anyhow::Result<Vec<Vec<u8>>> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    let short = || format!("{}: ends in a packet", PathBuf::from(path).display());
    let (mut packets, mut at) = (Vec::new(), FILE_HEADER_LEN);
    while at < bytes.len() {
        let len = bytes.get(at + 8..at + 12).and_then(|word| word.first_chunk());
        let len = u32::from_le_bytes(*len.with_context(short)?) as usize;
        let start = at + RECORD_HEADER_LEN;
        packets.push(bytes.get(start..start + len).with_context(short)?.to_vec());
        at = start + len;
    }
    Ok(packets)
}
