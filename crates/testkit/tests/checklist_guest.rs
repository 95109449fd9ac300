//! The checklist of what guests have done to other devices, one test per class: each named after
//! what happens, with the advisory it is known by.
//!
//! Every test runs against split and packed rings, several times, in a real ringway, while two
//! other guests exchange verified traffic; no byte outside guest memory changes, no fd or mapping
//! is left, and the port serves a good guest afterwards (`beside_good_guests` sees to that).

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringway_extent::Extent;
use ringway_net::{Features, HEADER_LEN, NetHeader};
use ringway_testkit::beside::{
    FRAME_LEN_MAX, Outcome, QUEUE_NAMES, SHOWN_LIMIT, accepting, beside_good_guests, broken_queues,
    verify_exchange, wait_for_broken,
};
use ringway_testkit::frames::{self, BROADCAST, Link, Stamp};
use ringway_testkit::hostile::{AVAILABLE, INDIRECT, NEXT, RawDescriptor, WRITE};
use ringway_testkit::{
    AnyUserGuest, Footprint, GuestOptions, HostileGuest, RingwayProcess, Rng, Usage,
};
use ringway_virtq::Format;

const RECEIVEQ: usize = 0;
const TRANSMITQ: usize = 1;

/// How often each attack is repeated per ring format.
const REPETITIONS: usize = 3;
/// Bytes of the header with the features used here.
const HEADER: u32 = 12;

const FORMATS: [Features; 2] = [Features::empty(), Features::RING_PACKED];

fn with_format(format: Features) -> GuestOptions {
    GuestOptions {
        queue_size: 64,
        ..accepting(Features::OFFERED.difference(Features::RING_PACKED) | format)
    }
}

/// The fate of the port.
#[derive(Debug, Clone, Copy)]
enum Fate {
    /// This queue stops, and no other.
    Stops(usize),
    /// A packet is dropped for this reason; no queue stops.
    Drops(&'static str),
}

/// Carries out one attack, again and again.
fn row(fate: Fate, attack: impl Fn(&HostileGuest)) -> Outcome {
    beside_good_guests(false, |ringway| {
        for format in FORMATS {
            for repetition in 0..REPETITIONS {
                let before = drops(ringway, fate)?;
                let guest = HostileGuest::attach(&ringway.socket("h"), &with_format(format))?;
                attack(&guest);
                let seen = expect(ringway, fate, before);
                seen.map_err(|error| format!("{format}, repetition {repetition}: {error}"))?;
                assert!(guest.memory().guards_intact(), "{format}: written outside memory");
            }
        }
        Ok(())
    })
}

fn expect(ringway: &RingwayProcess, fate: Fate, before: u64) -> Outcome {
    match fate {
        Fate::Stops(queue) => return wait_for_broken(ringway, "h", QUEUE_NAMES[queue]),
        Fate::Drops(reason) => {
            let deadline = Instant::now() + SHOWN_LIMIT;
            while drops(ringway, fate)? == before {
                if Instant::now() > deadline {
                    return Err(format!("not counted as {reason}").into());
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
    let broken = broken_queues(ringway, "h")?;
    if broken.is_empty() { Ok(()) } else { Err(format!("stopped: {broken:?}").into()) }
}

fn drops(ringway: &RingwayProcess, fate: Fate) -> Result<u64, std::io::Error> {
    let Fate::Drops(reason) = fate else { return Ok(0) };
    let stats = ringway.port_stats("h")?;
    Ok(stats.to_guest.dropped(reason) + stats.from_guest.dropped(reason))
}

/// 100 readable bytes: an empty header and a packet of zeros.
fn readable(guest: &HostileGuest) -> RawDescriptor {
    RawDescriptor { address: guest.scratch().device_address, len: 100, id: 0, flags: 0 }
}

/// A good guest at `p` that says something to everybody, again and again, while `during` runs.
fn while_a_guest_broadcasts(
    ringway: &RingwayProcess,
    lens: &[usize],
    during: impl FnOnce() -> Outcome,
) -> Outcome {
    let mut guest = AnyUserGuest::attach(&ringway.socket("p"), &GuestOptions::default())?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let talker = scope.spawn(|| {
            let link = Link { from: guest.mac(), to: BROADCAST };
            for sequence in 0.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let at = usize::try_from(sequence).unwrap_or(0) % lens.len();
                let packet = frames::udp(link, Stamp { flow: 0, sequence }, lens[at]);
                let _ = guest.send(&packet).map_err(|error| error.to_string())?;
                guest.flush();
                thread::sleep(Duration::from_millis(1));
            }
            guest.detach().map_err(|error| error.to_string())
        });
        let result = during();
        over.store(true, Ordering::Relaxed);
        talker.join().map_err(|_| "the talker panicked")??;
        result
    })
}

// 1a: addresses, lengths and descriptors

#[test]
fn cve_2018_1059_a_buffer_that_crosses_the_end_of_a_region() -> Outcome {
    row(Fate::Stops(TRANSMITQ), |guest| {
        let (start, len) = guest.memory().ranges()[0];
        let end = start + len;
        guest.offer(TRANSMITQ, &[RawDescriptor { address: end - 50, ..readable(guest) }]);
    })
}

#[test]
fn cve_2018_1059_an_indirect_table_that_crosses_the_end_of_a_region() -> Outcome {
    row(Fate::Stops(TRANSMITQ), |guest| {
        let (start, len) = guest.memory().ranges()[0];
        let address = start + len - 16;
        let table = RawDescriptor { address, len: 32, id: 0, flags: INDIRECT };
        guest.offer(TRANSMITQ, &[table]);
    })
}

#[test]
fn an_address_and_a_length_that_overflow() -> Outcome {
    row(Fate::Stops(TRANSMITQ), |guest| {
        let address = u64::MAX - 50;
        guest.offer(TRANSMITQ, &[RawDescriptor { address, ..readable(guest) }]);
    })
}

#[test]
fn cve_2020_10725_a_bad_address_with_length_zero() -> Outcome {
    row(Fate::Stops(TRANSMITQ), |guest| {
        let bad = RawDescriptor { address: 0xdead_0000_0000, len: 0, ..readable(guest) };
        guest.offer(TRANSMITQ, &[readable(guest), bad]);
    })
}

#[test]
fn cve_2016_6490_length_zero_at_every_place_of_a_chain() -> Outcome {
    for place in 0..4 {
        row(Fate::Stops(TRANSMITQ), |guest| {
            let mut chain = [readable(guest); 4];
            chain[place].len = 0;
            guest.offer(TRANSMITQ, &chain);
        })?;
    }
    Ok(())
}

#[test]
fn cve_2016_6490_length_zero_at_every_place_of_an_indirect_table() -> Outcome {
    for place in 0..4 {
        row(Fate::Stops(TRANSMITQ), |guest| {
            let mut chain = [readable(guest); 4];
            chain[place].len = 0;
            guest.offer(TRANSMITQ, &[guest.indirect_table(4096, &chain)]);
        })?;
    }
    Ok(())
}

#[test]
fn cve_2016_5403_more_buffers_than_the_ring_has() -> Outcome {
    row(Fate::Stops(TRANSMITQ), |guest| {
        let queue = guest.queue(TRANSMITQ);
        match guest.format() {
            Format::Split => {
                queue.set_available_index(queue.size() + 1);
                queue.kick();
            }
            // A packed ring has no index that could say so: a chain that never ends.
            Format::Packed => never_ending(guest),
        }
    })
}

/// Split: every descriptor names itself as the next one. Packed: all have a next one.
fn never_ending(guest: &HostileGuest) {
    let queue = guest.queue(TRANSMITQ);
    for at in (0..queue.size()).rev() {
        let flags = if guest.format() == Format::Packed { NEXT | AVAILABLE } else { NEXT };
        let descriptor = RawDescriptor { id: at, flags, ..readable(guest) };
        queue.set_descriptor(at, guest.format(), descriptor);
    }
    if guest.format() == Format::Split {
        queue.set_available(0, 0);
        queue.set_available_index(1);
    }
    queue.kick();
}

#[test]
fn a_loop_of_descriptors_and_a_table_in_a_table() -> Outcome {
    row(Fate::Stops(TRANSMITQ), |guest| {
        let inner = guest.indirect_table(4096, &[readable(guest)]);
        guest.offer(TRANSMITQ, &[guest.indirect_table(8192, &[inner])]);
    })?;
    row(Fate::Stops(TRANSMITQ), never_ending)
}

#[test]
fn cve_2026_45782_the_same_head_twice() -> Outcome {
    row(Fate::Drops("malformed"), |guest| {
        // Long enough for the header only, so that each is counted.
        let short = RawDescriptor { len: HEADER, ..readable(guest) };
        let queue = guest.queue(TRANSMITQ);
        match guest.format() {
            Format::Split => {
                queue.set_descriptor(0, Format::Split, short);
                queue.set_available(0, 0);
                queue.set_available(1, 0);
                queue.set_available_index(2);
            }
            Format::Packed => {
                let available = RawDescriptor { id: 7, flags: AVAILABLE, ..short };
                queue.set_descriptor(1, Format::Packed, available);
                queue.set_descriptor(0, Format::Packed, available);
            }
        }
        queue.kick();
    })
}

#[test]
fn cve_2020_14375_descriptors_and_headers_that_change_while_they_are_read() -> Outcome {
    beside_good_guests(true, |ringway| {
        for format in FORMATS {
            let mut rng = Rng::from_environment("changing", 14_375);
            for _ in 0..REPETITIONS {
                let guest = HostileGuest::attach(&ringway.socket("h"), &with_format(format))?;
                let until = Instant::now() + Duration::from_millis(300);
                while Instant::now() < until {
                    for flip in 0..1000_u16 {
                        let queue = guest.queue(TRANSMITQ);
                        let wild = flip % 2 == 0;
                        let len = if wild { u32::MAX } else { 100 };
                        let mut flags =
                            if guest.format() == Format::Packed { AVAILABLE } else { 0 };
                        flags |= [0, NEXT, WRITE, INDIRECT][usize::from(rng.word() % 4)];
                        let descriptor = RawDescriptor { len, flags, ..readable(&guest) };
                        queue.set_descriptor(flip, guest.format(), descriptor);
                        let header = NetHeader {
                            gso_size: rng.word(),
                            csum_start: rng.word(),
                            flags: u8::from(wild),
                            ..NetHeader::default()
                        };
                        guest.scratch().memory.write(0, &header.encode());
                        if guest.format() == Format::Split {
                            queue.set_available(flip, flip);
                            queue.set_available_index(flip);
                        }
                    }
                    guest.queue(TRANSMITQ).kick();
                }
                assert!(guest.memory().guards_intact(), "{format}: written outside memory");
            }
        }
        Ok(())
    })
}

#[test]
fn cve_2023_3019_receive_buffers_that_are_the_ring_itself() -> Outcome {
    beside_good_guests(true, |ringway| {
        while_a_guest_broadcasts(ringway, &[100, 1500], || {
            for format in FORMATS {
                for _ in 0..REPETITIONS {
                    let guest = HostileGuest::attach(&ringway.socket("h"), &with_format(format))?;
                    let parts = [
                        guest.queue(RECEIVEQ).descriptor_area(),
                        guest.queue(RECEIVEQ).driver_area(),
                        guest.queue(RECEIVEQ).device_area(),
                    ];
                    let address = parts[0].device_address & !0xfff;
                    let whole = RawDescriptor { address, len: 4096, id: 0, flags: WRITE };
                    guest.offer(RECEIVEQ, &[whole; 8]);
                    thread::sleep(Duration::from_millis(50));
                    assert!(guest.memory().guards_intact(), "{format}: written outside memory");
                }
            }
            Ok(())
        })
    })
}

#[test]
fn cve_2020_16843_indexes_that_wrap_lose_nothing() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", ""), ("b", "")])?;
    for format in FORMATS {
        let options = GuestOptions { queue_size: 32, ..with_format(format) };
        let attach = |port: &str| AnyUserGuest::attach(&ringway.socket(port), &options);
        let mut guests = [attach("a")?, attach("b")?];
        verify_exchange(&mut guests, 70_000, 128)?;
    }
    Ok(())
}

// 1b: packet headers and packet contents

#[test]
fn cve_2022_26353_a_bad_buffer_behind_good_ones_uses_none_of_them() -> Outcome {
    beside_good_guests(true, |ringway| {
        while_a_guest_broadcasts(ringway, &[1500], || {
            for format in FORMATS {
                for _ in 0..REPETITIONS {
                    let guest = HostileGuest::attach(&ringway.socket("h"), &with_format(format))?;
                    let queue = guest.queue(RECEIVEQ);
                    let good = RawDescriptor { len: 200, flags: WRITE, ..readable(&guest) };
                    let bad = RawDescriptor { address: 0xdead_0000_0000, ..good };
                    for at in (0..4).rev() {
                        let mut descriptor = if at == 3 { bad } else { good };
                        descriptor.id = at;
                        if guest.format() == Format::Packed {
                            descriptor.flags |= AVAILABLE;
                        }
                        queue.set_descriptor(at, guest.format(), descriptor);
                        if guest.format() == Format::Split {
                            queue.set_available(at, at);
                        }
                    }
                    let before = queue.device_word();
                    if guest.format() == Format::Split {
                        queue.set_available_index(4);
                    }
                    queue.kick();
                    wait_for_broken(ringway, "h", QUEUE_NAMES[RECEIVEQ])?;
                    if guest.format() == Format::Split {
                        assert_eq!(queue.device_word(), before, "nothing was used");
                    }
                }
            }
            Ok(())
        })
    })
}

#[test]
fn cve_2022_2132_only_a_header_split_at_every_byte() -> Outcome {
    for first in 1..HEADER {
        row(Fate::Drops("malformed"), |guest| {
            let head = RawDescriptor { len: first, ..readable(guest) };
            let rest = RawDescriptor { len: HEADER - first, ..readable(guest) };
            guest.offer(TRANSMITQ, &[head, rest]);
        })?;
    }
    Ok(())
}

#[test]
fn cve_2022_2132_less_than_a_header() -> Outcome {
    row(Fate::Stops(TRANSMITQ), |guest| {
        guest.offer(TRANSMITQ, &[RawDescriptor { len: HEADER - 1, ..readable(guest) }]);
    })
}

#[test]
fn cve_2024_41090_frames_shorter_than_their_ethernet_header() -> Outcome {
    for len in [0, 1, 6, 13] {
        row(Fate::Drops("malformed"), |guest| {
            guest.offer(TRANSMITQ, &[RawDescriptor { len: HEADER + len, ..readable(guest) }]);
        })?;
    }
    Ok(())
}

#[test]
fn every_byte_of_a_header_is_written_and_no_byte_behind_the_packet() -> Outcome {
    const POISON: u8 = 0x5a;
    const BUFFER: usize = 4096;
    beside_good_guests(true, |ringway| {
        while_a_guest_broadcasts(ringway, &[200], || {
            for format in FORMATS {
                let guest = HostileGuest::attach(&ringway.socket("h"), &with_format(format))?;
                guest.scratch().memory.write(0, &[POISON; BUFFER]);
                let address = guest.scratch().device_address;
                let len = u32::try_from(BUFFER)?;
                guest.offer(RECEIVEQ, &[RawDescriptor { address, len, id: 0, flags: WRITE }]);
                let mut bytes = [0; BUFFER];
                let deadline = Instant::now() + SHOWN_LIMIT;
                while bytes[HEADER_LEN] == POISON || bytes[HEADER_LEN] == 0 {
                    assert!(Instant::now() < deadline, "no packet arrives");
                    thread::sleep(Duration::from_millis(5));
                    guest.scratch().memory.read(0, &mut bytes);
                }
                thread::sleep(Duration::from_millis(5));
                guest.scratch().memory.read(0, &mut bytes);
                let mut header = [0; HEADER_LEN];
                header.copy_from_slice(&bytes[..HEADER_LEN]);
                let header = NetHeader::decode(&header);
                assert_eq!(header, NetHeader { num_buffers: 1, ..NetHeader::default() });
                let behind = &bytes[HEADER_LEN + 200..];
                assert!(behind.iter().all(|byte| *byte == POISON), "{format}: more was written");
            }
            Ok(())
        })
    })
}

#[test]
fn cve_2015_7295_a_jumbo_frame_for_somebody_with_small_buffers() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", "mtu=9000"), ("b", ""), ("p", "mtu=9000")])?;
    for format in FORMATS {
        let small = with_format(format).accept.difference(Features::MRG_RXBUF);
        // Without the features that make the driver post the largest buffers.
        let small = small.difference(Features::GUEST_CSUM).drop_unmet();
        let receiver = AnyUserGuest::attach(&ringway.socket("b"), &accepting(small))?;
        let sender = AnyUserGuest::attach(&ringway.socket("a"), &with_format(format))?;
        let mut guests = [sender, receiver];
        verify_exchange(&mut guests, 10, FRAME_LEN_MAX)?;
        let link = Link { from: guests[0].mac(), to: guests[1].mac() };
        for sequence in 0..100 {
            let jumbo = frames::udp(link, Stamp { flow: 1 << 40, sequence }, 65_000);
            let _ = guests[0].send(&jumbo)?;
            guests[0].flush();
        }
        verify_exchange(&mut guests, 100, FRAME_LEN_MAX)?;
        assert_eq!(broken_queues(&ringway, "b")?, [""; 0]);
    }
    Ok(())
}

#[test]
fn cve_2021_3416_nobody_hears_himself() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", ""), ("b", ""), ("p", "")])?;
    for format in FORMATS {
        let mut guest = AnyUserGuest::attach(&ringway.socket("a"), &with_format(format))?;
        let own = guest.mac();
        for (sequence, to) in (0..).zip([own, BROADCAST, [0; 6], own, BROADCAST]) {
            let packet = frames::udp(Link { from: own, to }, Stamp { flow: 0, sequence }, 100);
            let _ = guest.send(&packet)?;
            guest.flush();
        }
        assert!(!guest.wait_call(Duration::from_millis(100))? || guest.receive()?.is_none());
        guest.detach()?;
    }
    Ok(())
}

#[test]
fn cve_2019_3900_a_guest_that_always_has_more_starves_nobody() -> Outcome {
    beside_good_guests(true, |ringway| {
        for format in FORMATS {
            let mut flooder = AnyUserGuest::attach(&ringway.socket("h"), &with_format(format))?;
            let nowhere = Link { from: flooder.mac(), to: [2, 0, 0, 0, 0, 0x77] };
            let before = progress(ringway)?;
            let until = Instant::now() + Duration::from_millis(500);
            for sequence in 0.. {
                if Instant::now() > until {
                    break;
                }
                let packet = frames::udp(nowhere, Stamp { flow: 0, sequence }, 1500);
                let _ = flooder.send(&packet)?;
                flooder.flush();
            }
            let moved = progress(ringway)? - before;
            assert!(moved > 100, "{format}: only {moved} packets of others while one flooded");
            flooder.detach()?;
        }
        Ok(())
    })
}

/// Packets that the good guest at `a` has sent so far.
fn progress(ringway: &RingwayProcess) -> Result<u64, std::io::Error> {
    ringway.port_stats("a").map(|stats| stats.from_guest.packets)
}

// 1c: control queue and tables

#[test]
fn control_commands_that_lie_are_refused_and_change_nothing() -> Outcome {
    beside_good_guests(false, |ringway| {
        for format in FORMATS {
            let mut guest = AnyUserGuest::attach(&ringway.socket("h"), &with_format(format))?;
            let huge_table = [&600_u32.to_le_bytes()[..], &[0; 36], &[0; 4]].concat();
            let lies: [(u8, u8, &[u8]); 9] = [
                (0, 0, &[]),
                (0, 9, &[1]),
                (1, 0, &[0xff; 8]),
                (1, 0, &huge_table),
                (1, 1, &[0xff; 6]),
                (2, 0, &[0, 0x10]),
                (2, 0, &[0xff, 0xff]),
                (4, 0, &[0, 0]),
                (5, 0, &[0xff; 8]),
            ];
            for (class, command, data) in lies {
                assert_eq!(guest.command(class, command, data)?, 1, "{class} {command} {data:?}");
            }
            guest.detach()?;
        }
        Ok(())
    })
}

#[test]
fn a_control_command_without_room_for_its_answer() -> Outcome {
    const CONTROLQ: usize = 2;
    row(Fate::Stops(CONTROLQ), |guest| guest.offer(CONTROLQ, &[readable(guest)]))
}

// 1e: without an advisory

#[test]
fn receive_buffers_that_the_device_may_not_write() -> Outcome {
    beside_good_guests(true, |ringway| {
        while_a_guest_broadcasts(ringway, &[100], || {
            for format in FORMATS {
                let guest = HostileGuest::attach(&ringway.socket("h"), &with_format(format))?;
                guest.offer(RECEIVEQ, &[readable(&guest)]);
                wait_for_broken(ringway, "h", QUEUE_NAMES[RECEIVEQ])?;
            }
            Ok(())
        })
    })
}

#[test]
fn two_element_receive_buffers_without_mergeable() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", ""), ("b", "")])?;
    for format in FORMATS {
        let accept = with_format(format).accept.difference(Features::MRG_RXBUF);
        let options = GuestOptions { rx_elements: 2, ..accepting(accept) };
        let attach = |port: &str| AnyUserGuest::attach(&ringway.socket(port), &options);
        verify_exchange(&mut [attach("a")?, attach("b")?], 500, FRAME_LEN_MAX)?;
    }
    Ok(())
}

#[test]
fn a_driver_hands_over_with_garbage_in_its_rings() -> Outcome {
    beside_good_guests(true, |ringway| {
        let mut rng = Rng::from_environment("hand over", 32);
        for format in FORMATS {
            for _ in 0..REPETITIONS {
                let first = HostileGuest::attach(&ringway.socket("h"), &with_format(format))?;
                first.scramble(&mut rng, ringway_testkit::Scramble::Plausible);
                drop(first);
                let next = AnyUserGuest::attach(&ringway.socket("h"), &with_format(format))?;
                let other = AnyUserGuest::attach(&ringway.socket("p"), &with_format(format))?;
                verify_exchange(&mut [next, other], 50, FRAME_LEN_MAX)?;
            }
        }
        Ok(())
    })
}

/// Of every attack of this file that needs one descriptor chain, all together.
const ATTACKS: Extent = Extent::new("RINGWAY_ATTACKS", 2_000, 10_000);

#[test]
fn many_repetitions_leave_nothing_behind() -> Outcome {
    let ringway = RingwayProcess::start(&[("h", ""), ("b", "")])?;
    let options = |format| GuestOptions { queue_size: 4, ..with_format(format) };
    let warm_up = HostileGuest::attach(&ringway.socket("h"), &options(FORMATS[0]))?;
    drop(warm_up);
    let before = Footprint::of(ringway.pid())?;
    let mut resident_after_warm_up = 0.0;
    for repetition in 0..ATTACKS.announced() {
        let format = FORMATS[usize::try_from(repetition % 2)?];
        let guest = HostileGuest::attach(&ringway.socket("h"), &options(format))?;
        let good = readable(&guest);
        let attacks = [
            vec![RawDescriptor { address: u64::MAX - 50, ..good }],
            vec![good, RawDescriptor { len: 0, ..good }],
            vec![RawDescriptor { len: 17, flags: INDIRECT, ..good }],
            vec![RawDescriptor { len: HEADER - 1, ..good }],
            vec![RawDescriptor { len: HEADER, ..good }],
        ];
        guest.offer(TRANSMITQ, &attacks[usize::try_from(repetition)? % attacks.len()]);
        if repetition == 500 {
            resident_after_warm_up = Usage::look(ringway.pid())?.memory_kib;
        }
    }
    // The last guests' connections end a moment later.
    Footprint { fds: before.fds + 16, guest_mappings: 4 }.wait_until_again(ringway.pid())?;
    let resident = Usage::look(ringway.pid())?.memory_kib;
    println!("resident: {resident_after_warm_up} KiB after 500, {resident} KiB after all");
    assert!(resident < resident_after_warm_up + 2048.0, "memory is lost");
    Ok(())
}
