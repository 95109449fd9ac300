//! DPDK's driver on ringway's device: everything that is sent comes back, and all counts agree.
//!
//! How: this side sends UDP through a tap; `testpmd` swaps addresses and ports and sends each
//! packet back; this side's kernel delivers it only if its checksum is right, and we compare its
//! bytes.
//!
//! Limits: one packet's headers change on the way, its payload never.

use std::collections::VecDeque;
use std::net::UdpSocket;
use std::time::Duration;

use anyhow::{Context, ensure};
use ringway_guests::testpmd::Counted;
use ringway_guests::{Direction, PortStatistics, Stage, Testpmd, net};

use super::scene::{MTU, Scene, TAP, format_name};
use super::switches::Switches;

const HERE: &str = "10.96.0.1";
const THERE: &str = "10.96.0.2";

/// Packets that need up to five of testpmd's buffers, in bytes; ordinary ones fit one.
const JUMBO: u32 = 9000;

/// Received packets may be longer than a buffer, and sent ones too (`MULTI_SEGS`).
const JUMBO_OPTIONS: &str = "--max-pkt-len=9018 --enable-scatter --tx-offloads=0x8000";

const PACKETS: u64 = 20_000;

/// Packets and bytes on the way at once: fewer than any queue on it holds, and than the kernel
/// keeps for a socket (212,992 bytes, each packet counted with the memory it lies in).
const WINDOW: usize = 32;
const WINDOW_LEN: usize = 32_000;

/// IPv4 and UDP headers, and that of Ethernet, in bytes.
const HEADERS_LEN: u32 = 20 + 8;
const ETHERNET_LEN: u64 = 14;

/// Every payload starts with its number.
const NUMBER_LEN: u64 = 8;

const RETURN_LIMIT: Duration = Duration::from_secs(5);

pub const SWITCHES: Switches = Switches {
    switches: [
        ("RING_PACKED", "packed_vq", ["split", "packed"]),
        // Buffers are used in the order in which they were made available.
        ("IN_ORDER", "in_order", ["any_order", "in_order"]),
        ("MRG_RXBUF", "mrg_rxbuf", ["plain", "mergeable"]),
    ],
    values: ["0", "1"],
};

pub fn echo(stage: &Stage, switches: [bool; 3]) -> anyhow::Result<()> {
    let [packed, _, mergeable] = switches;
    let (mtu, jumbo) = if mergeable { (JUMBO, JUMBO_OPTIONS) } else { (MTU, "") };
    // Nothing is announced, and no side asks who has which address: only our packets come.
    let scene = Scene::with_tap(stage, ",announce=off", HERE, mtu)?;
    let ringway = &scene.ringway;
    let socket = stage.socket("vm0");
    net::ip(&format!("neigh add {THERE} lladdr 52:54:00:96:00:02 dev {TAP} nud permanent"))?;
    stage.step("testpmd");
    let options = format!("--forward-mode=5tswap {jumbo}");
    let testpmd = Testpmd::start(stage, &socket, &SWITCHES.options(switches), &options)?;
    let before = [ringway.port("vm0")?, ringway.port("up")?];
    stage.step("packets");
    let sent = send_round(PACKETS, mtu);
    let after = [ringway.port("vm0")?, ringway.port("up")?];
    let bytes = sent.with_context(|| format!("{} {}", after[0], after[1]))?;
    stage.step("counts");
    check_counts(&before, &after, bytes)?;
    let counted = testpmd.finish()?;
    let expected = Counted { received: PACKETS, missed: 0, sent: PACKETS };
    ensure!(counted == expected, "testpmd counted {counted:?}, not {expected:?}");
    let negotiated = [&SWITCHES.negotiated(switches)[..], &[("VERSION_1", true)]].concat();
    after[0].check_negotiated(format_name(packed), &negotiated)?;
    after.iter().try_for_each(|port| port.check_healthy(&[]))?;
    scene.finish()
}

fn check_counts(
    before: &[PortStatistics; 2],
    after: &[PortStatistics; 2],
    bytes: u64,
) -> anyhow::Result<()> {
    for (before, after) in before.iter().zip(after) {
        for direction in [Direction::ToGuest, Direction::FromGuest] {
            let moved = after.moved(direction).since(before.moved(direction));
            let is_equal = moved.packets == PACKETS && moved.bytes == bytes;
            ensure!(is_equal, "{moved:?} {direction:?}, not {PACKETS} packets of {bytes} bytes");
        }
    }
    Ok(())
}

/// Sends packets and takes each back, in order; returns the bytes of all of them on the wire.
fn send_round(packets: u64, mtu: u32) -> anyhow::Result<u64> {
    let socket = UdpSocket::bind((HERE, 7000)).context("UDP socket")?;
    socket.connect((THERE, 7001))?;
    socket.set_read_timeout(Some(RETURN_LIMIT))?;
    let mut on_the_way = VecDeque::with_capacity(WINDOW);
    let mut buffer = [0; 10_000];
    let mut bytes = 0;
    let mut next = 0;
    let mut len_on_the_way = 0;
    while next < packets || !on_the_way.is_empty() {
        if next < packets && on_the_way.len() < WINDOW && len_on_the_way < WINDOW_LEN {
            let sent = payload(next, mtu);
            socket.send(&sent).with_context(|| format!("sending packet {next}"))?;
            bytes += sent.len() as u64 + u64::from(HEADERS_LEN) + ETHERNET_LEN;
            len_on_the_way += sent.len();
            on_the_way.push_back(sent);
            next += 1;
            continue;
        }
        let number = next - on_the_way.len() as u64;
        let len = socket.recv(&mut buffer).with_context(|| format!("packet {number} is lost"))?;
        let expected = on_the_way.pop_front().unwrap_or_default();
        len_on_the_way -= expected.len();
        let received = buffer.get(..len).unwrap_or_default();
        let first = expected.iter().zip(received).position(|(sent, came)| sent != came);
        ensure!(
            received == expected,
            "packet {number} came back in {len} bytes: {first:?} differs"
        );
    }
    Ok(bytes)
}

/// A payload that follows from its number: length and contents are different for each.
fn payload(number: u64, mtu: u32) -> Vec<u8> {
    // The multiplier of Fibonacci hashing: what follows each other is far apart.
    let word = |at: u64| (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let len_max = u64::from(mtu - HEADERS_LEN);
    let len = NUMBER_LEN + (word(number) >> 32) % (len_max - NUMBER_LEN + 1);
    let words = (1..=len / 8).map(|at| word(number + at));
    let mut bytes: Vec<u8> =
        std::iter::once(number).chain(words).flat_map(u64::to_le_bytes).collect();
    bytes.truncate(usize::try_from(len).unwrap_or(usize::MAX));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn payloads_differ_and_have_all_kinds_of_lengths() {
        let payloads: BTreeSet<Vec<u8>> = (0..1000).map(|number| payload(number, MTU)).collect();
        assert_eq!(payloads.len(), 1000);
        let lens = payloads.iter().map(Vec::len);
        assert!(lens.clone().min() < Some(30) && lens.clone().max() > Some(1440));
        assert!(lens.max() <= Some(1472));
        assert_eq!(payload(7, JUMBO), payload(7, JUMBO));
        assert!((0..1000).any(|number| payload(number, JUMBO).len() > 8900));
    }
}
