//! Journals that are made, taken over and refused, and deaths that are noticed.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use ringway_device::{Queue, QueueId};
use ringway_net::{Counters, MacAddress};
use ringway_switch::{GROUP_NOTES_MAX, GroupNote, MACS_MAX, PortId};
use ringway_virtq::{Areas, Position, QueueOptions, QueueSetup};

use super::counts::Counts;
use super::learned::NotedAddress;
use super::ring_lines::{NotedRing, Past, RingName};
use super::watch::{JournalWatch, Owner};
use super::worker_line::{BEAT_AT, Busy, OWNER_AT, VisitNote, WorkerLine};
use super::*;
use crate::worker::effort::Spent;

fn name(port: u16, link: u32) -> RingName {
    let queue = QueueId { pair: 0, queue: Queue::FromGuest };
    RingName { port: PortId(port), queue, link, format: Format::Packed }
}

fn setup(descriptor: u64) -> QueueSetup {
    let areas = Areas::new(descriptor, 0x2000, 0x3000);
    let options = QueueOptions::default();
    QueueSetup { size: 256, areas, position: Position::FRESH, options }
}

#[test]
fn what_is_no_journal_is_refused() {
    let file = Journal::create(2, 8).unwrap();
    Journal::open(&file).unwrap();
    rustix::io::pwrite(&file, &1u32.to_le_bytes(), LAYOUT_AT as u64).unwrap();
    assert!(matches!(Journal::open(&file), Err(Unfit::Layout(1))));
    let layout = u32::from(JOURNAL_LAYOUT).to_le_bytes();
    rustix::io::pwrite(&file, &layout, LAYOUT_AT as u64).unwrap();
    for rings in [0u32, 7, 9, u32::MAX] {
        rustix::io::pwrite(&file, &rings.to_le_bytes(), RINGS_AT as u64).unwrap();
        assert!(matches!(Journal::open(&file), Err(Unfit::NoJournal)), "{rings}");
    }
    rustix::io::pwrite(&file, &8u32.to_le_bytes(), RINGS_AT as u64).unwrap();
    Journal::open(&file).unwrap();
    let plain = rustix::fs::memfd_create("plain", MemfdFlags::ALLOW_SEALING).unwrap();
    assert!(matches!(Journal::open(&plain), Err(Unfit::NoJournal)));
    let mut bytes = vec![0; 4096];
    rustix::io::pread(&file, &mut bytes, 0).unwrap();
    rustix::io::pwrite(&plain, &bytes, 0).unwrap();
    rustix::fs::ftruncate(&plain, Sizes::new(2, 8).unwrap().len() as u64).unwrap();
    assert!(matches!(Journal::open(&plain), Err(Unfit::Unsealed)));
}

#[test]
fn only_what_is_used_of_a_journal_takes_memory() {
    let file = Journal::create(4, 1024).unwrap();
    let journal = Journal::open(&file).unwrap();
    for port in 0..64 {
        assert!(journal.claim_ring(&name(port, 1), &setup(0x1000)).is_some());
    }
    let blocks = rustix::fs::fstat(&file).unwrap().st_blocks;
    assert!(blocks * 512 < 128 * 1024, "{blocks} blocks");
}

#[test]
fn only_the_next_data_plane_finds_a_ring_and_only_the_same_one() {
    let file = Journal::create(1, 2).unwrap();
    let first = Journal::open(&file).unwrap();
    let claim = |journal: &Journal, name, setup: &QueueSetup| {
        let claim = journal.claim_ring(&name, setup)?;
        journal.note_ring(&NotedRing { line: claim.line, name, setup: *setup });
        Some(claim.past)
    };
    assert_eq!(claim(&first, name(0, 1), &setup(0x1000)), Some(Past::None));
    assert_eq!(claim(&first, name(0, 1), &setup(0x1000)), Some(Past::None));
    assert_eq!(claim(&first, name(1, 2), &setup(0x1000)), Some(Past::None));
    assert_eq!(claim(&first, name(2, 3), &setup(0x1000)), None, "there are only two");
    let second = Journal::open(&file).unwrap();
    assert_eq!(claim(&second, name(0, 1), &setup(0x1000)), Some(Past::Left));
    assert_eq!(claim(&second, name(1, 9), &setup(0x1000)), Some(Past::OtherRing));
    let third = Journal::open(&file).unwrap();
    assert_eq!(claim(&third, name(0, 1), &setup(0x7000)), Some(Past::OtherRing));
    third.settle();
    assert_eq!(claim(&third, name(1, 9), &setup(0x1000)), Some(Past::None));
}

#[test]
fn the_end_of_a_worker_is_seen_and_whom_it_served() {
    let file = Journal::create(2, 1).unwrap();
    let journal = Arc::new(Journal::open(&file).unwrap());
    let watch = JournalWatch::open(&file).unwrap();
    let second = Duration::from_secs(1);
    assert_eq!((watch.owner(0), watch.owner(2)), (Owner::Free, Owner::Free));
    let (sender, taken) = mpsc::channel();
    let worker = std::thread::spawn(move || {
        let mut line = WorkerLine::take(journal, 0).unwrap();
        line.awake();
        line.set_busy(Some(Busy::of(PortId(7), 3)));
        sender.send(()).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        // As if it was killed: nothing is given back.
        std::mem::forget(line);
    });
    taken.recv().unwrap();
    assert_eq!(watch.owner(0), Owner::Alive);
    assert!(watch.beat(0).unwrap().is_awake);
    assert_eq!(watch.wait(0, Duration::from_millis(1)).unwrap(), Owner::Alive);
    assert_eq!(watch.wait(0, 60 * second).unwrap(), Owner::Dead);
    worker.join().unwrap();
    assert_eq!(watch.busy(0), Some(Busy::of(PortId(7), 3)));

    let journal = Arc::new(Journal::open(&file).unwrap());
    assert_eq!((journal.interrupted(), watch.busy(0)), (1, None));
    let line = WorkerLine::take(journal.clone(), 0).unwrap();
    assert_eq!(watch.owner(0), Owner::Alive);
    let other = std::thread::spawn(move || WorkerLine::take(journal, 0).map(drop));
    assert!(matches!(other.join().unwrap(), Err(Unfit::Held(0))));
    drop(line);
    assert_eq!(watch.wait(0, second).unwrap(), Owner::Free);
}

/// The supervisor goes on while a data plane has the journal.
#[test]
fn a_destroyed_head_does_not_keep_a_supervisor_from_watching() {
    let file = Journal::create(2, 1).unwrap();
    let _line = WorkerLine::take(Arc::new(Journal::open(&file).unwrap()), 1).unwrap();
    rustix::io::pwrite(&file, &[0xff; GENERATION_AT], 0).unwrap();
    assert!(JournalWatch::open(&file).is_err());
    let watch = JournalWatch::resume(&file, 2, 1).unwrap();
    assert_eq!((watch.owner(0), watch.owner(1)), (Owner::Free, Owner::Alive));
    for (workers, rings) in [(1, 1), (2, 2), (0, 1), (2, 0)] {
        assert!(JournalWatch::resume(&file, workers, rings).is_err(), "{workers} {rings}");
    }
}

#[test]
fn whatever_a_data_plane_has_left_the_next_one_has_a_journal() {
    let file = Journal::create(2, 1).unwrap();
    let watch = JournalWatch::open(&file).unwrap();
    let first = Journal::open(&file).unwrap();
    let claim = first.claim_ring(&name(7, 1), &setup(0x1000)).unwrap();
    first.note_ring(&NotedRing { line: claim.line, name: name(7, 1), setup: setup(0x1000) });
    let line = Sizes::worker_at(0);
    rustix::io::pwrite(&file, &[0xff; GENERATION_AT], 0).unwrap();
    rustix::io::pwrite(&file, &1u32.to_le_bytes(), (line + OWNER_AT) as u64).unwrap();
    rustix::io::pwrite(&file, &3u64.to_le_bytes(), (line + BEAT_AT) as u64).unwrap();
    assert!(Journal::open(&file).is_err());
    watch.repair(false);
    assert!(!watch.beat(0).unwrap().is_awake);
    assert_eq!(watch.owner(0), Owner::Alive, "it may be a process that still ends");
    watch.repair(true);
    let next = Arc::new(Journal::open(&file).unwrap());
    let past = next.claim_ring(&name(7, 1), &setup(0x1000)).unwrap().past;
    assert_eq!(past, Past::Left);
    WorkerLine::take(next, 0).unwrap();
}

#[test]
fn counts_that_cannot_be_leave_room_to_count_on() {
    let file = Journal::create(1, 1).unwrap();
    let most = Counts { refused_commands: u64::MAX, moved_addresses: 5, ..counted(0) };
    let next = || WorkerLine::unlocked(Arc::new(Journal::open(&file).unwrap()), 0).unwrap();
    next().note_counts(0, (PortId(3), 0), &most);
    let past = next().note_counts(0, (PortId(3), 0), &counted(0)).unwrap();
    assert_eq!((past.refused_commands, past.moved_addresses), (1 << 60, 5));
}

/// Every word is another one.
fn counted(times: u64) -> Counts {
    let way = |first: u64| Counters {
        packets: times * first,
        bytes: times * (first + 1),
        kicks: times * (first + 2),
        calls: times * (first + 3),
        long_packets: 0,
        drops: std::array::from_fn(|reason| times * (first + 4 + reason as u64)),
    };
    Counts {
        ways: [way(1), way(100)],
        control: [200 * times, 201 * times],
        refused_commands: 202 * times,
        moved_addresses: 203 * times,
        nat_refused: std::array::from_fn(|reason| times * (300 + reason as u64)),
    }
}

#[test]
fn the_next_worker_goes_on_from_what_the_one_before_has_spent() {
    let file = Journal::create(2, 1).unwrap();
    let next = || {
        let journal = Arc::new(Journal::open(&file).unwrap());
        [0, 1].map(|worker| WorkerLine::unlocked(journal.clone(), worker).unwrap())
    };
    let spent = Spent::of_words(std::array::from_fn(|at| 7 + at as u64));
    let [zero, one] = next();
    assert_eq!((zero.spent(), one.spent()), (Spent::default(), Spent::default()));
    zero.note_spent(&spent);
    zero.set_busy(Some(Busy::of(PortId(7), 3)));
    let [zero, one] = next();
    assert_eq!((zero.spent(), one.spent()), (spent, Spent::default()));
    assert_eq!(spent.plus(&spent).words(), spent.words().map(|word| 2 * word));
}

#[test]
fn a_visit_notes_the_port_that_it_delivers_into() {
    let file = Journal::create(1, 1).unwrap();
    let journal = Arc::new(Journal::open(&file).unwrap());
    let watch = JournalWatch::open(&file).unwrap();
    let line = WorkerLine::unlocked(journal, 0).unwrap();
    let visited = Busy::of(PortId(255), 7);
    let note = VisitNote::begin(Some(&line), visited);
    assert_eq!(watch.busy(0), Some(visited));
    for into in [0, 3, 255].map(PortId) {
        note.delivers_into(into);
        assert_eq!(watch.busy(0), Some(Busy { into: Some(into), ..visited }));
    }
    note.delivers_no_more();
    assert_eq!(watch.busy(0), Some(visited));
    line.set_busy(None);
    assert_eq!(watch.busy(0), None);
    let note = VisitNote::of(Some(&line), None);
    note.delivers_into(PortId(4));
    assert_eq!(watch.busy(0), Some(Busy::of(PortId(4), 0)));
}

#[test]
fn the_next_data_plane_goes_on_from_what_was_counted() {
    let file = Journal::create(2, 1).unwrap();
    let next = || {
        let journal = Arc::new(Journal::open(&file).unwrap());
        (
            journal.clone(),
            [0, 1].map(|worker| WorkerLine::unlocked(journal.clone(), worker).unwrap()),
        )
    };
    let nothing = Some(counted(0));
    let (slot, other) = ((PortId(3), 0), (PortId(4), 2));
    let (_, [mut zero, mut one]) = next();
    assert_eq!(one.note_counts(5, slot, &counted(7)), nothing);
    assert_eq!(one.note_counts(5, slot, &counted(9)), None);
    assert_eq!(zero.note_counts(5, slot, &counted(1)), nothing, "of another worker");
    assert_eq!(one.note_counts(1, other, &counted(3)), nothing);
    let (journal, [mut zero, mut one]) = next();
    assert_eq!(one.note_counts(8, slot, &counted(2)), Some(counted(9)), "in another slot");
    assert_eq!(zero.note_counts(5, slot, &counted(0)), Some(counted(1)));
    // Of the other port there is nothing any more.
    journal.settle();
    zero.forget_counts(PortId(3));
    assert_eq!(zero.note_counts(5, slot, &counted(0)), nothing, "another port of that number");
    let (_, [mut zero, mut one]) = next();
    assert_eq!(one.note_counts(5, slot, &counted(0)), Some(counted(11)));
    assert_eq!(one.note_counts(1, other, &counted(0)), nothing);
    assert_eq!(zero.note_counts(5, slot, &counted(0)), nothing);
}

#[test]
fn addresses_are_there_for_the_next_one_and_impossible_ones_are_not_believed() {
    let file = Journal::create(1, 1).unwrap();
    let noted = |number: u16| NotedAddress {
        address: MacAddress::local(number.into()),
        vlan: number % 4095,
        port: PortId(number % 256),
        seen_ms: u64::from(number) << 20,
    };
    let first = Journal::open(&file).unwrap();
    assert_eq!(first.addresses(), []);
    for count in [3, 0, 5, u16::try_from(MACS_MAX).unwrap() + 1] {
        let all: Vec<NotedAddress> = (0..count).map(noted).collect();
        first.note_addresses(&all);
        let kept = &all[..all.len().min(MACS_MAX)];
        assert_eq!(Journal::open(&file).unwrap().addresses(), kept);
    }
    first.addresses_list().memory.store_u64(0, 2 * MACS_MAX as u64 + 1);
    assert_eq!(first.addresses(), []);
}

#[test]
fn what_is_known_of_groups_is_there_for_the_next_one() {
    let file = Journal::create(1, 1).unwrap();
    let first = Journal::open(&file).unwrap();
    assert_eq!(first.groups(), []);
    for count in [3, 0, 5, GROUP_NOTES_MAX + 1] {
        let all: Vec<_> = (0..count as u64).map(|at| GroupNote::from_word(at << 20)).collect();
        first.note_groups(&all);
        assert_eq!(Journal::open(&file).unwrap().groups(), all[..count.min(GROUP_NOTES_MAX)]);
    }
    first.groups_list().memory.store_u64(0, GROUP_NOTES_MAX as u64 + 1);
    assert_eq!(first.groups(), []);
    assert_eq!(first.addresses(), [], "they have places of their own");
}

/// A worker's notes, and the next data plane's view of them in the renewed journal.
#[test]
fn a_renewed_journal_has_what_may_be_believed_and_is_another_file() {
    let file = Journal::create(2, 64).unwrap();
    let watch = JournalWatch::open(&file).unwrap();
    let journal = Arc::new(Journal::open(&file).unwrap());
    let line = WorkerLine::take(journal.clone(), 0).unwrap();
    line.set_busy(Some(Busy::of(PortId(3), 0)));
    let claim = journal.claim_ring(&name(3, 7), &setup(0x1000)).unwrap();
    journal.note_ring(&NotedRing { line: claim.line, name: name(3, 7), setup: setup(0x1000) });
    journal.note_control(claim.line, b"as it was set");
    let seen = NotedAddress {
        address: MacAddress::from_u64(0x0200_0000_0001),
        vlan: 5,
        port: PortId(3),
        seen_ms: 17,
    };
    journal.note_addresses(&[seen]);

    let renewed = watch.renewed(&file).unwrap();
    // A process that has the old one has no part in the new one.
    journal.note_addresses(&[]);
    assert_eq!(JournalWatch::open(&renewed).unwrap().owner(0), Owner::Free);
    let next = Journal::open(&renewed).unwrap();
    assert_eq!(next.interrupted(), 1);
    let claim = next.claim_ring(&name(3, 7), &setup(0x1000)).unwrap();
    assert_eq!(claim.past, Past::Left);
    assert_eq!(next.control(claim.line), b"as it was set");
    assert_eq!(next.addresses(), [seen]);
    let blocks = |file: &OwnedFd| rustix::fs::fstat(file).unwrap().st_blocks;
    assert!(blocks(&renewed) <= blocks(&file), "no more is copied than is used");
}

/// The rings between workers are left out first, and half of one would be worse than nothing.
#[test]
fn where_not_all_can_be_copied_rings_of_guests_come_first() {
    let file = Journal::create(2, 64).unwrap();
    let watch = JournalWatch::open(&file).unwrap();
    let journal = Arc::new(Journal::open(&file).unwrap());
    let claim = journal.claim_ring(&name(3, 7), &setup(0x1000)).unwrap();
    journal.note_ring(&NotedRing { line: claim.line, name: name(3, 7), setup: setup(0x1000) });
    journal.note_control(claim.line, b"as it was set");
    let counts_at = watch.sizes.hand_over_at(0, 1);
    let packets = vec![0xff; 128 << 10];
    rustix::io::pwrite(&file, &[1; PAGE], counts_at as u64).unwrap();
    let packets_at = counts_at + RING_LEN - packets.len();
    rustix::io::pwrite(&file, &packets, packets_at as u64).unwrap();

    for (left, expected) in [(2 * packets.len(), 1), (packets.len(), 0)] {
        let renewed = watch.renewed_within(&file, left).unwrap();
        let mut count = [0];
        rustix::io::pread(&renewed, &mut count, counts_at as u64).unwrap();
        assert_eq!(count, [expected], "{left} bytes");
        let next = Journal::open(&renewed).unwrap();
        let claim = next.claim_ring(&name(3, 7), &setup(0x1000)).unwrap();
        assert_eq!((claim.past, next.control(claim.line)), (Past::Left, b"as it was set".to_vec()));
    }
}

/// A data plane that was taken over may say that all of it is in use, and of its head that it is no
/// journal.
#[test]
fn a_journal_that_was_destroyed_is_renewed_within_bounds() {
    let file = Journal::create(1, 1024).unwrap();
    let watch = JournalWatch::open(&file).unwrap();
    let sizes = Sizes::new(1, 1024).unwrap();
    let noise = vec![0xff; sizes.entries_at(0)];
    rustix::io::pwrite(&file, &noise, 0).unwrap();
    for ring in 0..1024 {
        rustix::io::pwrite(&file, &noise[..PAGE], sizes.entries_at(ring) as u64).unwrap();
    }
    let renewed = watch.renewed(&file).unwrap();
    let next = JournalWatch::open(&renewed).unwrap();
    assert_eq!((next.owner(0), next.beat(0).unwrap().number), (Owner::Free, 0));
    let journal = Arc::new(Journal::open(&renewed).unwrap());
    assert_eq!(journal.addresses(), []);
    WorkerLine::take(journal, 0).expect("it is free");
}
