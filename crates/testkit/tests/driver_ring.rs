//! How many packets a ring of 256 entries holds under each scheme, and the memory it pins: what
//! led from big buffers to mergeable ones, on a real ring.

use std::fmt::Write as _;

use ringway_driver::{RxOptions, RxScheme};
use ringway_net::NetHeader;
use ringway_testkit::{DriverPair, PairShape, golden};
use ringway_virtq::{DeviceQueue, Format, QueueOptions, SplitDevice, SplitDriver};

const SIZE: u16 = 256;
/// Bytes of an MTU-sized packet, and of the largest that Linux sends.
const MTU_LEN: usize = 1514;
const LARGE_LEN: usize = 65_226;
/// Elements of a big buffer in single pages: the header and 17 pages.
const BIG_PAGES: u16 = 18;

type Pair = DriverPair<SplitDriver, SplitDevice>;

fn pair(shape: PairShape) -> Pair {
    let mut pair = Pair::new(shape);
    let _ = pair.driver.rx.flush();
    pair
}

/// Packets of `len` bytes that fit before anything is posted again.
fn fit(pair: &mut Pair, len: usize) -> usize {
    let packet = vec![0; len];
    (0..).find(|_| !pair.give(&NetHeader::default(), &packet)).expect("a ring is finite")
}

/// A pair whose scheme has seen nothing but packets of `len` bytes for a while.
fn used_to(shape: PairShape, len: usize) -> Pair {
    let mut pair = pair(shape);
    let packet = vec![0; len];
    for _ in 0..4 * SIZE {
        assert!(pair.give(&NetHeader::default(), &packet), "room for one");
        pair.receiveq.publish();
        assert!(pair.driver.rx.receive().expect("a right device").is_some());
        let _ = pair.driver.rx.flush();
    }
    pair
}

#[test]
fn the_ring_holds_what_its_scheme_allows() {
    let plain = |scheme| PairShape::plain(Format::Split, SIZE, scheme);
    let pages = PairShape { elements: BIG_PAGES, ..plain(RxScheme::Big) };
    let options = QueueOptions { indirect: true, ..QueueOptions::default() };
    let ewma = plain(RxScheme::ALL[3]);
    let adaptive = plain(RxScheme::Adaptive);
    let rows: [(&str, &dyn Fn() -> Pair); 9] = [
        ("big, pages", &|| pair(pages)),
        ("big, pages in tables", &|| pair(PairShape { options, ..pages })),
        ("big, contiguous", &|| pair(plain(RxScheme::Big))),
        ("page", &|| pair(plain(RxScheme::Page))),
        ("mtu", &|| pair(plain(RxScheme::Mtu(1500)))),
        ("ewma", &|| pair(ewma)),
        ("ewma after 64 KiB", &|| used_to(ewma, LARGE_LEN)),
        ("adaptive", &|| pair(adaptive)),
        ("adaptive after 64 KiB", &|| used_to(adaptive, LARGE_LEN)),
    ];
    let mut text = format!(
        "{:<24}{:>12}{:>10}{:>12}\n{:<24}{:>12}{:>10}{:>12}\n",
        "", "MTU-sized", "64 KiB", "pinned", "", "packets", "packets", "KiB"
    );
    let mut mtu_sized = Vec::new();
    for (name, make) in rows {
        let small = fit(&mut make(), MTU_LEN);
        let mut pair = make();
        let pinned = pair.driver.rx.statistics().posted_bytes / 1024;
        let large = fit(&mut pair, LARGE_LEN);
        let _ = writeln!(text, "{name:<24}{small:>12}{large:>10}{pinned:>12}");
        mtu_sized.push(small);
    }
    println!("{text}");
    assert!((12..=14).contains(&mtu_sized[0]), "{}", mtu_sized[0]);
    assert_eq!(mtu_sized[3..6], [256; 3], "page, mtu and ewma");
    golden::compare("measurements/receive-buffers.md", "ring", &text);
}

/// Bytes of `truesize` that a receiver may hold, like a socket's receive buffer.
const WINDOW_LEN: u32 = 1 << 20;

/// Payload in packets of these lengths, in turn, that a receiver may hold at a time: a window that
/// counts `truesize`, as TCP's does, is this many bytes for the sender.
fn payload_in_window(scheme: RxScheme, lengths: &[usize]) -> u64 {
    let shape = PairShape::plain(Format::Split, SIZE, scheme);
    let spare_len = 2 * WINDOW_LEN;
    let mut pair = Pair::with(shape, &RxOptions { spare_len, ..shape.rx() });
    let _ = pair.driver.rx.flush();
    let (mut held, mut truesize, mut payload) = (Vec::new(), 0, 0);
    for (at, &len) in lengths.iter().cycle().enumerate() {
        assert!(pair.give(&NetHeader::default(), &vec![0; len]), "{scheme:?}: no room");
        pair.receiveq.publish();
        let received = pair.driver.rx.receive().expect("a right device").expect("a packet");
        // Used to the traffic first.
        if at >= 8 * usize::from(SIZE) {
            if truesize + received.truesize > WINDOW_LEN {
                break;
            }
            truesize += received.truesize;
            payload += u64::from(received.len);
            held.push(pair.driver.rx.hold().expect("few fragments"));
        }
        let _ = pair.driver.rx.flush();
    }
    held.into_iter().for_each(|held| pair.driver.rx.release(held));
    payload
}

#[test]
fn a_window_that_counts_truesize_holds_what_the_model_says() {
    let rows: [(&str, &[usize]); 5] = [
        ("MTU", &[MTU_LEN]),
        ("9000", &[9014]),
        ("64 KiB", &[LARGE_LEN]),
        ("64 B and 9000", &[64, 9014]),
        ("MTU and 64 KiB", &[MTU_LEN, MTU_LEN, MTU_LEN, MTU_LEN, LARGE_LEN]),
    ];
    let mut text = format!("{:<18}", "KiB of payload");
    RxScheme::ALL.iter().for_each(|scheme| {
        let _ = write!(text, "{:>10}", scheme.name());
    });
    text.push('\n');
    for (name, lengths) in rows {
        let payloads = RxScheme::ALL.map(|scheme| payload_in_window(scheme, lengths));
        let _ = write!(text, "{name:<18}");
        payloads.iter().for_each(|payload| {
            let _ = write!(text, "{:>10}", payload / 1024);
        });
        text.push('\n');
        let [big, page, mtu, ewma, adaptive] = payloads;
        // The window ends with a whole packet: one of the longest more or less is no difference.
        let slack = *lengths.iter().max().expect("packets") as u64;
        assert!(adaptive + slack >= ewma.max(page).max(big), "{name}: {payloads:?}");
        assert!(mtu >= big || name == "64 KiB", "{name}: {payloads:?}");
    }
    println!("{text}");
    golden::compare("measurements/receive-buffers.md", "window", &text);
}

/// Memory that is held by packets is missing in the ring, is counted, and comes back without a
/// stall however long it was away.
#[test]
fn a_ring_without_memory_is_filled_later() {
    for scheme in RxScheme::ALL {
        let mut pair = pair(PairShape::plain(Format::Split, SIZE, scheme));
        let before = pair.driver.rx.statistics().posted_buffers;
        let mut held = Vec::new();
        while pair.give(&NetHeader::default(), &[0; MTU_LEN]) {
            pair.receiveq.publish();
            assert!(pair.driver.rx.receive().expect("a right device").is_some());
            held.push(pair.driver.rx.hold().expect("one or two fragments"));
            let _ = pair.driver.rx.flush();
        }
        let statistics = pair.driver.rx.statistics();
        assert!(statistics.no_memory > 0, "{scheme:?} {statistics:?}");
        assert!(statistics.posted_bytes < MTU_LEN as u64, "{scheme:?} {statistics:?}");
        held.into_iter().for_each(|held| pair.driver.rx.release(held));
        let _ = pair.driver.rx.flush();
        let after = pair.driver.rx.statistics();
        assert!(after.posted_bytes >= before * 1518 / 4, "{scheme:?} {after:?}");
        assert!(fit(&mut pair, MTU_LEN) >= 64, "{scheme:?}");
    }
}
