//! Rings of captures, from both sides.

use std::sync::Arc;

use ringway_net::{DropReason, NEEDS_CSUM, NetHeader, Packet};

use super::record::HEAD_LEN;
use super::*;
use crate::memory::scratch::Scratch;

fn pair() -> (CaptureWriter, CaptureReader) {
    let fd = CaptureFile::create(2).unwrap();
    let file = Arc::new(CaptureFile::open(&fd).unwrap());
    assert!(CaptureWriter::new(file.clone(), 2).is_none(), "there are two rings");
    (CaptureWriter::new(file, 1).unwrap(), CaptureReader::open(&fd).unwrap())
}

fn record(number: u64, packet_len: u32) -> CaptureRecord {
    let dropped = [
        None,
        Some(DroppedBy::Port(DropReason::Storm)),
        Some(DroppedBy::Receiver(DropReason::NoRoom)),
    ];
    CaptureRecord {
        direction: match number % 2 {
            0 => CaptureDirection::FromGuest,
            _ => CaptureDirection::ToGuest,
        },
        port: 258,
        pair: 3,
        output: [CaptureOutput::Unknown, CaptureOutput::One(255), CaptureOutput::Several(256)]
            [(number % 3) as usize],
        time_ns: number,
        header: NetHeader { flags: NEEDS_CSUM, csum_start: 34, ..NetHeader::default() },
        dropped: dropped[(number % 3) as usize],
        stands_for: 70_000,
        packet_len,
    }
}

fn all(reader: &mut CaptureReader) -> Vec<(CaptureRecord, Vec<u8>)> {
    let mut all = Vec::new();
    let take = |record, bytes| {
        all.push((record, bytes));
        true
    };
    reader.read(take).unwrap();
    all
}

/// Puts a packet of two pieces in, each byte its number.
fn put(writer: &mut CaptureWriter, memory: &Scratch, number: u64, len: u32, snap: u32) {
    let bytes = memory.bytes();
    let filled = vec![number.to_le_bytes()[0]; len as usize];
    bytes.write(0, &filled);
    let (first, rest) = bytes.split_at(len as usize / 3);
    let payload = [first, rest.split_at(len as usize - first.len()).0];
    let packet = Packet { header: &NetHeader::ZERO, payload: &payload, len };
    writer.put(&record(number, len), &packet, snap);
}

#[test]
fn every_packet_comes_out_as_it_went_in_also_around_the_end() {
    let (mut writer, mut reader) = pair();
    let memory = Scratch::new(70_000);
    let mut next = 0;
    for number in 0..3000u64 {
        let len = u32::try_from(14 + number * 37 % 65_000).unwrap();
        put(&mut writer, &memory, number, len, u32::MAX);
        if number % 7 == 0 {
            for (read, bytes) in all(&mut reader) {
                let len = u32::try_from(14 + next * 37 % 65_000).unwrap();
                assert_eq!(read, record(next, len));
                assert_eq!(bytes, vec![next.to_le_bytes()[0]; len as usize]);
                next += 1;
            }
        }
    }
    assert!(next > 2990 && reader.lost() == 0, "{next} {}", reader.lost());
}

#[test]
fn a_full_ring_loses_and_counts_and_goes_on_when_there_is_room() {
    let (mut writer, mut reader) = pair();
    let memory = Scratch::new(2000);
    let fit = RING_LEN / (HEAD_LEN + 1000);
    for number in 0..fit as u64 + 10 {
        put(&mut writer, &memory, number, 1500, 1000);
    }
    assert_eq!(reader.lost(), 10);
    let read = all(&mut reader);
    assert_eq!(read.len(), fit);
    assert!(read.iter().all(|(record, bytes)| record.packet_len == 1500 && bytes.len() == 1000));
    put(&mut writer, &memory, 5, 60, 1000);
    assert_eq!(all(&mut reader).len(), 1);
}

#[test]
fn neither_side_believes_what_cannot_be() {
    let (mut writer, mut reader) = pair();
    let memory = Scratch::new(2000);
    put(&mut writer, &memory, 1, 100, 1000);
    let counts = reader_counts(&writer);
    // A reader that says it has read what was not written makes itself lose packets.
    for lie in [1 << 40, 1 << 63, 8] {
        counts.store_u64(READ_AT, lie);
        put(&mut writer, &memory, 1, 100, 1000);
    }
    counts.store_u64(READ_AT, 0);
    assert!(reader.lost() >= 2);
    // A writer that says there is more than a ring.
    counts.store_u64(WRITTEN_AT, RING_LEN as u64 + 8);
    assert!(reader.read(|_, _| true).is_err());
    // A record that is longer than what was written, or than the ring.
    for len in [200u32, u32::MAX - 8, 70_000] {
        counts.store_u64(WRITTEN_AT, 144);
        writer_records(&writer).store_u32(0, len);
        assert!(reader.read(|_, _| true).is_err(), "{len}");
    }
    writer_records(&writer).store_u32(0, u32::MAX);
    assert!(reader.read(|_, _| true).is_err(), "all of it left out");
}

fn reader_counts(writer: &CaptureWriter) -> SharedSlice {
    writer.memory().counts
}

fn writer_records(writer: &CaptureWriter) -> SharedSlice {
    writer.memory().records
}

#[test]
fn a_file_that_is_none_is_refused() {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("other", flags).unwrap();
    assert!(CaptureFile::open(&file).is_err());
    rustix::fs::ftruncate(&file, len_for(1) as u64).unwrap();
    let mut head = MAGIC.to_le_bytes().to_vec();
    head.extend(1u32.to_le_bytes());
    rustix::io::pwrite(&file, &head, 0).unwrap();
    assert!(CaptureFile::open(&file).is_err(), "it may be shortened");
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    assert!(CaptureFile::open(&file).is_ok());
}

#[test]
fn losses_that_cannot_be_are_told_all_the_same() {
    let fd = CaptureFile::create(2).unwrap();
    let file = Arc::new(CaptureFile::open(&fd).unwrap());
    for ring in 0..2 {
        let writer = CaptureWriter::new(file.clone(), ring).unwrap();
        reader_counts(&writer).store_u64(LOST_AT, u64::MAX - 1);
    }
    assert_eq!(CaptureReader::open(&fd).unwrap().lost(), u64::MAX);
}
