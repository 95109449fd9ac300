//! The driver on a real back-end: all five schemes of receive buffers on both ring formats, every
//! byte verified, small packets and packets of 64 KiB, both ways.

use std::time::{Duration, Instant};

use ringway_driver::{RxScheme, Sent};
use ringway_net::{DropReason, Features};
use ringway_testkit::beside::{Outcome, accepting, attach_two, verify_exchange};
use ringway_testkit::frames::{self, Link, STAMPED_LEN_MAX, Stamp};
use ringway_testkit::{ARRIVAL_LIMIT, AnyUserGuest, GuestOptions, RingwayProcess};

/// Packets of 64 KiB per direction and guest: 6 MiB each.
const LARGE_PACKETS: u64 = 96;
/// Most of them on their way at once.
const BURST_PACKETS: u64 = 4;
/// Segment size that large packets ask for.
const SEGMENT_LEN: u16 = 1448;
/// Packets of all lengths up to a jumbo frame.
const MIXED_PACKETS: u64 = 300;
const MIXED_LEN_MAX: usize = 9014;

/// Large packets one way, verified; returns how many arrived.
fn send_large(guests: &mut [AnyUserGuest; 2], from: usize, flow: u64) -> Result<u64, String> {
    let to = 1 - from;
    let link = Link { from: guests[from].mac(), to: guests[to].mac() };
    let (mut sent, mut arrived) = (0, 0);
    while arrived < LARGE_PACKETS {
        while sent < LARGE_PACKETS.min(arrived + BURST_PACKETS) {
            let len = STAMPED_LEN_MAX - usize::try_from(sent * 331).map_err(|e| e.to_string())?;
            let stamp = Stamp { flow, sequence: sent };
            let (header, packet) = frames::tcp_large(link, stamp, len, SEGMENT_LEN);
            match guests[from].send_with(&header, &packet).map_err(|e| e.to_string())? {
                Sent::Done => sent += 1,
                _ => break,
            }
        }
        guests[from].flush();
        arrived = receive_large(guests, to, flow, arrived)?;
    }
    Ok(arrived)
}

/// Waits for at least one more packet of the flow.
fn receive_large(
    guests: &mut [AnyUserGuest; 2],
    to: usize,
    flow: u64,
    mut next: u64,
) -> Result<u64, String> {
    let (before, deadline) = (next, Instant::now() + ARRIVAL_LIMIT);
    while next == before {
        while let Some((header, packet)) = guests[to].receive().map_err(|e| e.to_string())? {
            let stamp = frames::read_stamp(&packet).ok_or("contents changed")?;
            if stamp.flow != flow {
                continue;
            }
            if (stamp.sequence, header.gso_size) != (next, SEGMENT_LEN) {
                return Err(format!("{stamp:?} {header:?} instead of number {next}"));
            }
            next += 1;
        }
        guests[to].flush();
        if next == before {
            if Instant::now() > deadline {
                return Err(format!("number {next} does not arrive"));
            }
            guests[to].wait_call(Duration::from_millis(100)).map_err(|e| e.to_string())?;
        }
    }
    Ok(next)
}

#[test]
fn every_scheme_receives_everything_on_both_ring_formats() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", ""), ("b", "")])?;
    for packed in [false, true] {
        for scheme in RxScheme::ALL {
            let mut accept = Features::OFFERED;
            accept.set(Features::RING_PACKED, packed);
            accept.set(Features::MRG_RXBUF, scheme.needs_mergeable());
            let options = GuestOptions { rx_scheme: scheme, ..accepting(accept) };
            let mut guests = attach_two(&ringway, [&options, &options])?;
            let what = format!("{} packed={packed}", scheme.name());
            verify_exchange(&mut guests, MIXED_PACKETS, MIXED_LEN_MAX)
                .map_err(|error| format!("{what}: {error}"))?;
            for from in [0, 1] {
                send_large(&mut guests, from, 1000 + from as u64)
                    .map_err(|error| format!("{what}: {error}"))?;
            }
            for guest in guests {
                assert_eq!(guest.rx_counters().drops, [0; DropReason::ALL.len()], "{what}");
                assert!(guest.rx_statistics().coalesced > 0 || !scheme.needs_mergeable(), "{what}");
                guest.detach()?;
            }
        }
    }
    Ok(())
}
