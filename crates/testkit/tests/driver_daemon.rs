//! The driver on a real back-end: all five schemes of receive buffers on both ring formats, every
//! byte verified, small packets and packets of 64 KiB, both ways.
//!
//! The back-end is a `ringway run` of its own, or, if `RINGWAY_BACKEND_DIRECTORY` is set, whatever
//! listens there on `a.sock` and `b.sock` and forwards between the two, headers included: DPDK's
//! `net_vhost` in `./x test guest::dpdk_vhost`. With `RINGWAY_GIB` set the large packets add up to
//! so many GiB.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ringway_driver::{RxScheme, Sent};
use ringway_extent::Extent;
use ringway_net::{DropReason, Features};
use ringway_testkit::beside::{Outcome, accepting, verify_exchange};
use ringway_testkit::frames::{self, Link, STAMPED_LEN_MAX, Stamp};
use ringway_testkit::{ARRIVAL_LIMIT, AnyUserGuest, GuestOptions, RingwayProcess};
use ringway_virtq::Format;

/// In packets of up to 64 KiB, in all directions, schemes and formats together: 96 packets for
/// each, or so many GiB.
const GIB: Extent = Extent::new("RINGWAY_GIB", 0, 10);
const LARGE_PACKETS: u64 = 96;
/// Their lengths repeat after so many.
const LENGTHS: u64 = 96;
/// Directions, schemes and formats.
const RUNS: u64 = 2 * 5 * 2;
/// Bytes of an average large packet.
const LARGE_MEAN_LEN: u64 = 49_800;
/// Another back-end than ringway.
const BACKEND_VARIABLE: &str = "RINGWAY_BACKEND_DIRECTORY";
/// Most of them on their way at once.
const BURST_PACKETS: u64 = 4;
/// Segment size that large packets ask for.
const SEGMENT_LEN: u16 = 1448;
/// Packets of all lengths up to a jumbo frame.
const MIXED_PACKETS: u64 = 300;
const MIXED_LEN_MAX: usize = 9014;

/// The back-end that the guests are attached to.
enum Backend {
    Ringway(RingwayProcess),
    Other(PathBuf),
}

impl Backend {
    fn start() -> std::io::Result<Self> {
        match env::var_os(BACKEND_VARIABLE) {
            Some(directory) => Ok(Self::Other(directory.into())),
            None => RingwayProcess::start(&[("a", ""), ("b", "")]).map(Self::Ringway),
        }
    }

    fn socket(&self, name: &str) -> PathBuf {
        match self {
            Self::Ringway(process) => process.socket(name),
            Self::Other(directory) => directory.join(format!("{name}.sock")),
        }
    }
}

/// Large packets for each run.
fn large_packets() -> u64 {
    (GIB.amount() << 30).div_ceil(RUNS * LARGE_MEAN_LEN).max(LARGE_PACKETS)
}

/// Large packets one way, verified; returns the bytes of all of them.
fn send_large(guests: &mut [AnyUserGuest; 2], from: usize, flow: u64) -> Result<u64, String> {
    let to = 1 - from;
    let link = Link { from: guests[from].mac(), to: guests[to].mac() };
    let (mut sent, mut arrived, mut bytes) = (0, 0, 0);
    let packets = large_packets();
    while arrived < packets {
        while sent < packets.min(arrived + BURST_PACKETS) {
            let shorter = usize::try_from(sent % LENGTHS * 331).map_err(|e| e.to_string())?;
            let len = STAMPED_LEN_MAX - shorter;
            let stamp = Stamp { flow, sequence: sent };
            let (header, packet) = frames::tcp_large(link, stamp, len, SEGMENT_LEN);
            match guests[from].send_with(&header, &packet).map_err(|e| e.to_string())? {
                Sent::Done => (sent, bytes) = (sent + 1, bytes + len as u64),
                _ => break,
            }
        }
        guests[from].flush();
        arrived = receive_large(guests, to, flow, arrived)?;
    }
    Ok(bytes)
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
            if stamp.sequence != next || header.gso_size != SEGMENT_LEN {
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

/// Two guests whose device agreed to this, and to large packets both ways.
fn attach(
    backend: &Backend,
    scheme: RxScheme,
    packed: bool,
) -> Result<[AnyUserGuest; 2], Box<dyn Error>> {
    let mut accept = Features::OFFERED;
    accept.set(Features::RING_PACKED, packed);
    accept.set(Features::MRG_RXBUF, scheme.needs_mergeable());
    let options = GuestOptions { rx_scheme: scheme, ..accepting(accept) };
    let guests = [
        AnyUserGuest::attach(&backend.socket("a"), &options)?,
        AnyUserGuest::attach(&backend.socket("b"), &options)?,
    ];
    for guest in &guests {
        let negotiated = guest.negotiated();
        assert_eq!(guest.format() == Format::Packed, packed, "{negotiated:?}");
        assert_eq!(negotiated.mergeable, scheme.needs_mergeable(), "{negotiated:?}");
        assert!(negotiated.host_tso4 && negotiated.guest_tso4, "{negotiated:?}");
    }
    Ok(guests)
}

#[test]
fn every_scheme_receives_everything_on_both_ring_formats() -> Outcome {
    let backend = Backend::start()?;
    GIB.announced();
    let mut bytes = 0;
    for packed in [false, true] {
        for scheme in RxScheme::ALL {
            let mut guests = attach(&backend, scheme, packed)?;
            let what = format!("{} packed={packed}", scheme.name());
            verify_exchange(&mut guests, MIXED_PACKETS, MIXED_LEN_MAX)
                .map_err(|error| format!("{what}: {error}"))?;
            for from in [0, 1] {
                bytes += send_large(&mut guests, from, 1000 + from as u64)
                    .map_err(|error| format!("{what}: {error}"))?;
            }
            for guest in guests {
                assert_eq!(guest.rx_counters().drops, [0; DropReason::ALL.len()], "{what}");
                assert!(guest.rx_statistics().coalesced > 0 || !scheme.needs_mergeable(), "{what}");
                guest.detach()?;
            }
        }
    }
    println!("verified: {} MiB of packets of up to 64 KiB", bytes >> 20);
    Ok(())
}
