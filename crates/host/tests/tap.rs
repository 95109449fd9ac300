//! The tap against the kernel, each test in a network namespace of its own.
#![allow(clippy::cast_possible_truncation)]

mod common;

use std::os::fd::AsFd;

use common::wire::{IPV4, QUIET, TCP_HEADERS_LEN, Wire, frame, tcp_frame};
use common::{gathered, in_namespace, pieces, shared, wait_readable, wire};
use ringway_host::{GuestMemory, Tap, TapError, TapOffloads, TapOptions, install_bus_guard};
use ringway_net::offload::Segment;
use ringway_net::{DropReason, GsoType, NEEDS_CSUM, NetHeader};
use ringway_net::{PACKET_LEN_MAX, Packet, PacketSink, PacketSource, Put, TapCalls};
use ringway_virtq::SharedSlice;

fn open(name: &str) -> Tap {
    try_open(name, None).expect("a tap")
}

fn try_open(name: &str, mtu: Option<u16>) -> Result<Tap, TapError> {
    Tap::open(&TapOptions { name: name.to_owned(), mtu })
}

fn put(tap: &mut Tap, header: NetHeader, payload: &[SharedSlice]) -> Put {
    let len = payload.iter().map(|piece| piece.len() as u32).sum();
    tap.put(&Packet { header: &header, payload, len })
}

fn dropped(drops: [u64; DropReason::ALL.len()]) -> Vec<(DropReason, u64)> {
    let counted = DropReason::ALL.into_iter().zip(drops);
    counted.filter(|&(_, count)| count > 0).collect()
}

/// The header of a packet that TCP hands to a device that segments.
fn gso_header() -> NetHeader {
    NetHeader {
        flags: NEEDS_CSUM,
        gso_type: GsoType::TcpV4.raw(),
        hdr_len: TCP_HEADERS_LEN as u16,
        gso_size: 1448,
        csum_start: 34,
        csum_offset: 16,
        num_buffers: 0,
    }
}

#[test]
fn packets_of_the_host_are_lent_until_taken() {
    in_namespace(|| {
        let mut tap = open("tap0");
        let wire = Wire::new("tap0", QUIET);
        assert!(tap.peek().is_none());
        let frames = [frame(60, 1), frame(1514, 2), frame(14, 3)];
        frames.iter().for_each(|frame| wire.send(frame));
        wait_readable(tap.as_fd());
        for expected in &frames {
            for _ in 0..2 {
                let packet = tap.peek().expect("a packet");
                assert_eq!(gathered(packet.payload), *expected);
                assert_eq!(packet.len as usize, expected.len());
                assert_eq!(*packet.header, NetHeader::default());
            }
            tap.pop();
        }
        assert!(tap.peek().is_none());
        assert_eq!((tap.from_tap.packets, tap.from_tap.bytes), (3, 60 + 1514 + 14));
    });
}

#[test]
fn packets_of_the_host_are_read_straight_into_pieces() {
    in_namespace(|| {
        let mut tap = open("tap0");
        let wire = Wire::new("tap0", QUIET);
        let room = shared(&[0; 2000]);
        for lens in [&[][..], &[1, 2, 13, 700], &[1; 1500], &[0, 14, 0, 1]] {
            let expected = frame(1514, lens.len() as u8);
            wire.send(&expected);
            wait_readable(tap.as_fd());
            let pieces = pieces(room, lens);
            let read = tap.read_into(&pieces).expect("readable");
            assert_eq!(read, Some((NetHeader::default(), 1514)), "{} pieces", pieces.len());
            assert_eq!(gathered(&pieces)[..1514], expected);
            assert_eq!(tap.read_into(&pieces).expect("open"), None);
        }
        assert_eq!(tap.from_tap.packets, 4);
    });
}

#[test]
fn a_packet_that_was_lent_before_is_the_first_to_be_read() {
    in_namespace(|| {
        let mut tap = open("tap0");
        let wire = Wire::new("tap0", QUIET);
        wire.send(&frame(100, 1));
        wire.send(&frame(200, 2));
        wait_readable(tap.as_fd());
        assert_eq!(tap.peek().expect("a packet").len, 100);
        let pieces = pieces(shared(&[0; 300]), &[50, 30]);
        for (len, seed) in [(100, 1), (200, 2)] {
            let read = tap.read_into(&pieces).expect("readable").expect("a packet");
            assert_eq!(read.1 as usize, len);
            assert_eq!(gathered(&pieces)[..len], frame(len, seed));
        }
        assert_eq!(tap.from_tap.packets, 2);
    });
}

#[test]
fn a_packet_that_its_receiver_does_not_take_is_lent_instead() {
    in_namespace(|| {
        let mut tap = open("tap0");
        let wire = Wire::new("tap0", QUIET);
        wire.send(&frame(100, 1));
        wire.send(&frame(200, 2));
        wait_readable(tap.as_fd());
        let room = pieces(shared(&[0; 300]), &[50, 30]);
        let (header, len) = tap.read_into(&room).expect("readable").expect("a packet");
        assert!(!tap.is_lending());
        tap.lend(header, len, &room);
        assert!(tap.is_lending());
        tap.set_segments_done(3);
        assert_eq!(gathered(tap.peek().expect("the same").payload), frame(100, 1));
        assert_eq!((tap.segments_done(), tap.from_tap.packets), (3, 0));
        tap.pop();
        assert!(!tap.is_lending());
        assert_eq!(gathered(tap.peek().expect("the next").payload), frame(200, 2));
        tap.pop();
        let counted = (tap.segments_done(), tap.from_tap.packets, tap.from_tap.bytes);
        assert_eq!(counted, (0, 2, 300), "each once");
    });
}

#[test]
fn segments_out_of_private_memory_arrive_like_packets() {
    in_namespace(|| {
        let mut tap = open("tap0");
        let wire = Wire::new("tap0", QUIET);
        for len in [14, 1514, 9000] {
            let bytes = frame(len, 5);
            let segment = Segment { header: NetHeader::default(), bytes: &bytes };
            assert_eq!(tap.put_segment(&segment), Put::Done);
            assert_eq!(wire.receive(), bytes);
        }
        assert_eq!((tap.to_tap.packets, tap.to_tap.bytes), (3, 14 + 1514 + 9000));
        let bytes = vec![0; PACKET_LEN_MAX as usize + 1];
        let segment = Segment { header: NetHeader::default(), bytes: &bytes };
        assert_eq!(tap.put_segment(&segment), Put::Refused);
        assert_eq!(dropped(tap.to_tap.drops), [(DropReason::TooLong, 1)]);
    });
}

#[test]
fn packets_to_the_host_arrive_in_order_and_whole() {
    in_namespace(|| {
        let mut tap = open("tap0");
        let wire = Wire::new("tap0", QUIET);
        // The last one has more pieces than one system call takes.
        for lens in [&[][..], &[14, 3, 1], &[1; 1021], &[1; 1022], &[1; 1023]] {
            let sent = frame(1500, lens.len() as u8);
            // The value that a guest leaves in `num_buffers` must not matter.
            let header = NetHeader { num_buffers: 77, ..NetHeader::default() };
            assert_eq!(put(&mut tap, header, &pieces(shared(&sent), lens)), Put::Done);
            assert_eq!(wire.receive(), sent, "{} pieces", lens.len() + 1);
        }
        assert_eq!((tap.to_tap.packets, tap.to_tap.bytes), (5, 5 * 1500));
        assert_eq!(dropped(tap.to_tap.drops), []);
    });
}

/// Drivers fill `hdr_len` as they like (virtio 1.2 §5.1.6.2.2: a hint).
#[test]
fn no_packet_is_refused_for_how_long_its_headers_are_said_to_be() {
    in_namespace(|| {
        let mut tap = open("tap0");
        tap.set_writes(TapCalls::IoUring);
        let wire = Wire::new("tap0", IPV4);
        let sent = tcp_frame(1000);
        let plain = NetHeader::default();
        let csum = NetHeader { gso_type: 0, gso_size: 0, ..gso_header() };
        let gso = NetHeader { gso_size: 600, ..gso_header() };
        for header in [plain, csum, gso].map(|header| NetHeader { hdr_len: 0xffff, ..header }) {
            let payload = [shared(&sent)];
            let packet = Packet { header: &header, payload: &payload, len: sent.len() as u32 };
            assert_eq!(tap.put(&packet), Put::Done, "{header:?}");
            assert_eq!(tap.stage(&packet), Put::Done, "{header:?}");
            tap.flush();
            assert_eq!(dropped(tap.to_tap.drops), [], "{header:?}");
            for _ in 0..2 {
                assert_eq!(wire.receive().len(), sent.len());
            }
        }
    });
}

#[test]
fn staged_packets_arrive_at_the_flush_in_order_and_whole() {
    in_namespace(|| {
        let mut tap = open("tap0");
        let wire = Wire::new("tap0", QUIET);
        if tap.set_writes(TapCalls::IoUring).is_none() {
            return println!("skipped: no io_uring here");
        }
        // More than fit at a time, in one piece and in several.
        let frames: Vec<_> = (0..100_u8).map(|n| frame(60 + usize::from(n) * 14, n)).collect();
        let mut bad = frame(60, 0);
        for (at, bytes) in frames.iter().enumerate() {
            let all = shared(bytes);
            let cut = pieces(all, &[14, bytes.len() - 14]);
            let payload = if at % 3 == 0 { vec![all] } else { cut };
            let len = bytes.len() as u32;
            let header = NetHeader::default();
            assert_eq!(tap.stage(&Packet { header: &header, payload: &payload, len }), Put::Done);
            if at == 98 {
                // Nonsense among good ones: of the kernel's to refuse, and counted.
                let header = NetHeader { gso_type: 99, ..header };
                tap.stage(&Packet { header: &header, payload: &[shared(&bad)], len: 60 });
            }
        }
        assert_eq!(tap.to_tap.packets, 64, "the rest waits");
        tap.flush();
        tap.flush();
        assert_eq!(tap.to_tap.packets, 100);
        assert_eq!(dropped(tap.to_tap.drops), [(DropReason::Malformed, 1)]);
        // One that does not wait comes behind those that do.
        bad[14] = 7;
        for (byte, stays) in [(1, true), (2, false)] {
            bad[15] = byte;
            let kept = bad.clone().leak();
            let packet = Packet { header: &NetHeader::ZERO, payload: &[shared(kept)], len: 60 };
            assert_eq!(if stays { tap.stage(&packet) } else { tap.put(&packet) }, Put::Done);
        }
        for expected in &frames {
            assert_eq!(&wire.receive(), expected);
        }
        assert_eq!([wire.receive()[15], wire.receive()[15]], [1, 2]);
    });
}

#[test]
fn bad_packets_to_the_host_are_refused_and_counted() {
    in_namespace(|| {
        let mut tap = open("tap0");
        let good = frame(60, 1);
        let no_type = NetHeader { gso_type: 99, gso_size: 1, ..NetHeader::default() };
        assert_eq!(put(&mut tap, no_type, &[shared(&good)]), Put::Refused);
        assert_eq!(put(&mut tap, NetHeader::default(), &[shared(&[1; 5])]), Put::Refused);
        let too_long = vec![0; PACKET_LEN_MAX as usize + 1];
        assert_eq!(put(&mut tap, NetHeader::default(), &[shared(&too_long)]), Put::Refused);
        wire::set_up("tap0", false);
        assert_eq!(put(&mut tap, NetHeader::default(), &[shared(&good)]), Put::Refused);
        let (malformed, too_long) = ((DropReason::Malformed, 2), (DropReason::TooLong, 1));
        let down = (DropReason::LinkDown, 1);
        assert_eq!(dropped(tap.to_tap.drops), [malformed, too_long, down]);
        wire::set_up("tap0", true);
        assert_eq!(put(&mut tap, NetHeader::default(), &[shared(&good)]), Put::Done);
        assert_eq!((tap.to_tap.packets, tap.to_tap.bytes), (1, 60));
    });
}

#[test]
fn an_unsegmented_packet_goes_to_the_host_in_one_piece() {
    in_namespace(|| {
        let mut tap = open("tap0");
        let wire = Wire::new("tap0", IPV4);
        let sent = tcp_frame(40_000);
        let payload = pieces(shared(&sent), &[54, 4096, 4096, 10_000]);
        assert_eq!(put(&mut tap, gso_header(), &payload), Put::Done);
        assert_eq!(wire.receive(), sent);
    });
}

#[test]
fn the_host_segments_exactly_what_the_receiver_does_not_accept() {
    in_namespace(|| {
        let mut tap = open("tap0");
        let wire = Wire::new("tap0", IPV4);
        wire.send_with_header();
        let sent = tcp_frame(20_000);
        let with_header = [&gso_header().encode()[..10], &sent].concat();

        let wanted = TapOffloads { csum: true, tso4: true, ecn: true, ..TapOffloads::default() };
        assert_eq!(tap.set_offloads(wanted), wanted);
        assert_eq!(tap.packet_len_max(), PACKET_LEN_MAX);
        wire.send(&with_header);
        wait_readable(tap.as_fd());
        let packet = tap.peek().expect("one large packet");
        assert_eq!(gathered(packet.payload), sent);
        assert_eq!(packet.header.gso(), Some(GsoType::TcpV4));
        assert_eq!((packet.header.gso_size, packet.header.flags), (1448, NEEDS_CSUM));
        assert_eq!((packet.header.csum_start, packet.header.csum_offset), (34, 16));
        tap.pop();
        assert!(tap.peek().is_none());

        assert_eq!(tap.set_offloads(TapOffloads::default()), TapOffloads::default());
        assert!(tap.packet_len_max() < 2000);
        wire.send(&with_header);
        let mut payload: Vec<u8> = Vec::new();
        wait_readable(tap.as_fd());
        while let Some(packet) = tap.peek() {
            assert_eq!(*packet.header, NetHeader::default(), "complete");
            assert!(packet.len <= tcp_frame(1448).len() as u32);
            payload.extend(&gathered(packet.payload)[TCP_HEADERS_LEN..]);
            tap.pop();
        }
        assert_eq!(payload, sent[TCP_HEADERS_LEN..]);
        assert_eq!(tap.from_tap.packets, 1 + 20_000u64.div_ceil(1448));
    });
}

#[test]
fn offloads_without_their_preconditions_are_not_granted() {
    in_namespace(|| {
        let mut tap = open("tap0");
        let all = TapOffloads { csum: true, tso4: true, tso6: true, ecn: true, uso: true };
        let granted = tap.set_offloads(all);
        assert_eq!(TapOffloads { uso: true, ..granted }, all, "uso depends on the kernel");
        let without_csum = TapOffloads { csum: false, ..all };
        assert_eq!(tap.set_offloads(without_csum), TapOffloads::default());
        let only_ecn = TapOffloads { csum: true, ecn: true, ..TapOffloads::default() };
        assert_eq!(tap.set_offloads(only_ecn), TapOffloads { ecn: false, ..only_ecn });
    });
}

#[test]
fn a_packet_longer_than_the_room_is_dropped_and_the_next_one_comes() {
    in_namespace(|| {
        let mut tap = open("tap0");
        let wire = Wire::new("tap0", QUIET);
        assert_eq!((tap.mtu(), tap.packet_len_max()), (Some(1500), 1522));
        wire::set_mtu("tap0", 4000);
        wire.send(&frame(4014, 1));
        wire.send(&frame(1522, 2));
        wait_readable(tap.as_fd());
        let pieces = pieces(shared(&[0; 1522]), &[1000]);
        assert_eq!(tap.read_into(&pieces).expect("readable"), None);
        assert_eq!((tap.mtu(), tap.packet_len_max()), (Some(4000), 4022), "looked up anew");
        assert!(tap.is_lending());
        assert_eq!(gathered(tap.peek().expect("the long one").payload), frame(4014, 1));
        assert_eq!(tap.read_into(&pieces).expect("still too long"), None);
        tap.pop();
        let read = tap.read_into(&pieces).expect("readable").expect("the second");
        assert_eq!((read.1, gathered(&pieces)), (1522, frame(1522, 2)));
        assert_eq!((dropped(tap.from_tap.drops), tap.from_tap.packets), (vec![], 2));
    });
}

#[test]
fn memory_that_was_taken_away_costs_a_packet_and_nothing_else() {
    in_namespace(|| {
        install_bus_guard().expect("handler");
        let mut tap = open("tap0");
        let wire = Wire::new("tap0", QUIET);
        let file = common::memory_file(4096);
        let memory = GuestMemory::map(vec![common::request(&file, 0, 4096, 0)]).expect("good");
        let lost = memory.regions().slice(0, 2000).expect("inside");
        rustix::fs::ftruncate(&file, 0).expect("ftruncate");
        assert_eq!(put(&mut tap, NetHeader::default(), &[lost]), Put::Refused);
        assert_eq!(dropped(tap.to_tap.drops), [(DropReason::Os, 1)]);
        wire.send(&frame(500, 1));
        wire.send(&frame(500, 2));
        wait_readable(tap.as_fd());
        // Whether the kernel tells that it lost the bytes depends on its version.
        match tap.read_into(&[lost]) {
            Ok(read) => assert_eq!(read, Some((NetHeader::default(), 500))),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EFAULT)),
        }
        let packet = tap.peek().expect("the second");
        assert_eq!(gathered(packet.payload), frame(500, 2));
    });
}
