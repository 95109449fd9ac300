//! A packet out of a file that `ringway capture` or tcpdump wrote.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};

/// The first bytes of a pcapng file.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Packets that are looked at, at most.
const PACKETS_MAX: u64 = 100_000_000;

/// `FILE`, or `FILE:NUMBER`: its first packet, or that one, counted from 1.
///
/// # Errors
/// The file cannot be read, or has no such packet.
pub fn packet(typed: &str) -> anyhow::Result<Vec<u8>> {
    let numbered = typed.rsplit_once(':').and_then(|(file, number)| {
        let number = number.parse::<u64>().ok()?;
        (!Path::new(typed).exists()).then_some((file, number))
    });
    let (place, number) = numbered.unwrap_or((typed, 1));
    ensure!((1..=PACKETS_MAX).contains(&number), "--pcap {typed}: packets are counted from 1");
    let open = || File::open(place).with_context(|| format!("--pcap {place}"));
    let mut begin = [0; 4];
    std::io::Read::read_exact(&mut open()?, &mut begin)
        .with_context(|| format!("--pcap {place}: no packets"))?;
    let found = if begin == PCAPNG { of_pcapng(open()?, number) } else { of_pcap(open()?, number) };
    let found = found.with_context(|| format!("--pcap {place}"))?;
    found.with_context(|| format!("--pcap {place}: it has no packet {number}"))
}

fn of_pcap(file: File, number: u64) -> anyhow::Result<Option<Vec<u8>>> {
    let mut reader = PcapReader::new(file)?;
    ensure!(reader.header().datalink == DataLink::ETHERNET, "its packets are not of Ethernet");
    for at in 1..=number {
        let Some(packet) = reader.next_packet() else { return Ok(None) };
        let packet = packet?;
        if at == number {
            return Ok(Some(packet.data().to_vec()));
        }
    }
    Ok(None)
}

fn of_pcapng(file: File, number: u64) -> anyhow::Result<Option<Vec<u8>>> {
    let mut reader = PcapNgReader::new(file)?;
    let mut at = 0;
    while let Some(block) = reader.next_block() {
        let (block, _) = block?;
        let bytes = match block {
            Block::EnhancedPacket(packet) => packet.data.into_owned(),
            Block::SimplePacket(packet) => packet.data.into_owned(),
            Block::InterfaceDescription(of) if of.linktype != DataLink::ETHERNET => {
                bail!("its packets are not of Ethernet")
            }
            _ => continue,
        };
        at += 1;
        if at == number {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}
