//! How many packets a ring of 256 entries holds under each scheme, and the memory it pins: what
//! led from big buffers to mergeable ones, on a real ring.

use std::fmt::Write as _;

use ringway_driver::RxScheme;
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
    golden::compare("rx-buffers.md", "ring", &text);
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
