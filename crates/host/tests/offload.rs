//! Completed packets against what the kernel makes of the same ones, byte for byte.
//!
//! How: an unsegmented packet is sent through a packet socket on a tap whose reader accepts
//! nothing, so the kernel completes it on the way to us; the same packet goes through `complete`.
//! Each test runs in a network namespace of its own.

mod common;

use common::wire::Wire;
use common::{in_namespace, kernel};
use ringway_host::{Tap, TapOffloads, TapOptions};
use ringway_net::offload::complete;
use ringway_net::{GsoType, NEEDS_CSUM, NetHeader, Packet, PacketSink, Put};
use ringway_testkit::Rng;
use ringway_testkit::unsegmented::{ACK, CWR, ECE, FIN, PSH, Unsegmented};

/// Packets that the tap's queue holds (its default length is 500).
const SEGMENTS_MAX: u64 = 400;

fn ours(packet: &Unsegmented, accepts_csum: bool) -> Vec<(NetHeader, Vec<u8>)> {
    let (header, mut bytes) = packet.build();
    let mut segments = complete(&header, &mut bytes, accepts_csum).expect("a good packet");
    let mut all = Vec::new();
    while let Some(segment) = segments.cut() {
        all.push((segment.header, segment.bytes.to_vec()));
    }
    all
}

/// The packets that come out of the tap when the kernel has to send `packet` through it.
fn kernels(tap: &mut Tap, packet: &Unsegmented) -> Vec<(NetHeader, Vec<u8>)> {
    let (header, bytes) = packet.build();
    kernel::completed(tap, &header, &bytes)
}

fn compare(tap: &mut Tap, packet: &Unsegmented, accepts_csum: bool) {
    let (ours, kernels) = (ours(packet, accepts_csum), kernels(tap, packet));
    let what = Unsegmented { payload: Vec::new(), ..packet.clone() };
    assert_eq!(ours.len(), kernels.len(), "segments of {} bytes, {what:?}", packet.payload.len());
    for (number, (ours, kernels)) in ours.iter().zip(&kernels).enumerate() {
        // The comparison covers the parts of the header that a receiver may look at.
        let relevant = |header: &NetHeader| {
            let is_partial = header.flags & NEEDS_CSUM != 0;
            let csum = is_partial.then_some((header.csum_start, header.csum_offset));
            (header.flags, header.gso_type, csum)
        };
        assert_eq!(relevant(&ours.0), relevant(&kernels.0), "segment {number} of {what:?}");
        assert!(
            ours.1 == kernels.1,
            "segment {number} of {what:?}: {}",
            first_difference(&ours.1, &kernels.1)
        );
    }
}

fn first_difference(ours: &[u8], kernels: &[u8]) -> String {
    let at = ours.iter().zip(kernels).position(|(ours, kernels)| ours != kernels);
    let end = at.map_or(0, |at| at + 4);
    format!(
        "{} and {} bytes, different at {at:?}: {:02x?} and {:02x?}",
        ours.len(),
        kernels.len(),
        ours.get(at.unwrap_or(0)..end),
        kernels.get(at.unwrap_or(0)..end)
    )
}

fn with_tap(test: impl FnOnce(&mut Tap) + Send + 'static) {
    in_namespace(|| {
        let options = TapOptions { name: "tap0".to_owned(), mtu: Some(9500) };
        let mut tap = Tap::open(&options).expect("a tap");
        test(&mut tap);
    });
}

fn shapes() -> Vec<Unsegmented> {
    let tcp4 = Unsegmented::new(10_000, 1448);
    let tcp6 = Unsegmented { is_ipv6: true, ..tcp4.clone() };
    let udp4 = Unsegmented { is_udp: true, ..Unsegmented::new(10_000, 1472) };
    let udp6 = Unsegmented { is_ipv6: true, ..udp4.clone() };
    vec![tcp4, tcp6, udp4, udp6]
}

#[test]
fn every_kind_is_segmented_as_the_kernel_does() {
    with_tap(|tap| {
        for packet in shapes() {
            compare(tap, &packet, false);
        }
    });
}

#[test]
fn every_flag_is_where_the_kernel_puts_it() {
    with_tap(|tap| {
        for shape in shapes().into_iter().take(2) {
            for flags in [FIN | PSH, ECE, CWR, CWR | ECE | PSH | FIN, 0xff] {
                compare(tap, &Unsegmented { flags: flags | ACK, ..shape.clone() }, false);
            }
        }
    });
}

#[test]
fn segments_of_odd_sizes_are_the_kernels() {
    with_tap(|tap| {
        for shape in shapes() {
            for gso_size in [1, 7, 536, 1001, 4095, 8999] {
                for len in [gso_size, gso_size + 1, 2 * gso_size, 7 * gso_size - 1] {
                    let payload = Unsegmented::new(len, 1).payload;
                    let gso_size = u16::try_from(gso_size).expect("small");
                    compare(tap, &Unsegmented { payload, gso_size, ..shape.clone() }, false);
                }
            }
        }
    });
}

#[test]
fn a_checksum_alone_is_completed_as_the_kernel_does() {
    with_tap(|tap| {
        for shape in shapes() {
            for len in [0, 1, 2, 1000, 1401] {
                let payload = Unsegmented::new(len, 1).payload;
                compare(tap, &Unsegmented { payload, gso_size: 0, ..shape.clone() }, false);
            }
        }
    });
}

#[test]
fn checksums_stay_partial_for_who_accepts_that() {
    with_tap(|tap| {
        let csum = TapOffloads { csum: true, ..TapOffloads::default() };
        assert_eq!(tap.set_offloads(csum), csum);
        for shape in shapes() {
            compare(tap, &shape, true);
        }
    });
}

#[test]
fn any_packet_is_completed_as_the_kernel_does() {
    with_tap(|tap| {
        let mut rng = Rng::from_environment("offload", 0x0ff1);
        for _ in 0..100 {
            compare(tap, &Unsegmented::random(&mut rng, SEGMENTS_MAX), false);
        }
    });
}

#[test]
fn unsegmented_udp_passes_both_ways_where_the_kernel_takes_it() {
    with_tap(|tap| {
        let uso = TapOffloads { csum: true, uso: true, ..TapOffloads::default() };
        let is_granted = tap.set_offloads(uso) == uso;
        for packet in shapes().into_iter().filter(|packet| packet.is_udp) {
            let (header, bytes) = packet.build();
            let sent = [common::shared(&bytes)];
            let len = u32::try_from(bytes.len()).expect("small");
            let wire = Wire::new(tap.name(), u16::from_be_bytes([bytes[12], bytes[13]]));
            let put = tap.put(&Packet { header: &header, payload: &sent, len });
            if !is_granted {
                println!("skipped: no unsegmented UDP before Linux 6.2");
                assert_eq!(put, Put::Unfinished);
                continue;
            }
            assert_eq!(put, Put::Done);
            assert!(wire.receive() == bytes, "to the host");
            let back = kernels(tap, &packet);
            assert_eq!(back.len(), 1);
            assert_eq!((back[0].0.gso(), back[0].0.gso_size), (Some(GsoType::UdpL4), 1472));
            assert!(back[0].1 == bytes, "from the host");
        }
    });
}
