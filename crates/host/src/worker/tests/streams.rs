//! Packets that go the same way in one loop: what ends it, and what is counted.

use super::*;
use crate::port::Carrier;

/// A UDP packet over IPv4, of another conversation for each source port.
fn udp(to: MacAddress, from: MacAddress, source_port: u8) -> Vec<u8> {
    let mut bytes = frame(to, from, source_port);
    bytes[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    bytes[26..38].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2, 0, source_port, 0, 9]);
    bytes[38..40].copy_from_slice(&[0, 26]);
    bytes
}

/// The conversations, of 0 to 31, that come to the first pair of a guest that has two on this
/// worker, with so many of them in one visit.
fn at_first_pair(ports: usize, batch_len: usize) -> Vec<u8> {
    let mut bench = Bench::new(ports);
    let pair = FromPair { pair: 0, of: 2 };
    bench.guests[1] = Guest::attach_pair(std::slice::from_mut(&mut bench.worker), 1, pair);
    bench.worker.ports.set_pairs(PortId(1), 2, false);
    bench.guests[1].post_all();
    bench.introduce();
    let conversations: Vec<u8> = (0..32).collect();
    for conversations in conversations.chunks(batch_len) {
        for &port in conversations {
            bench.send(0, &udp(mac(1), mac(0), port), 1);
        }
        assert!(bench.step().is_some());
    }
    bench.guests[1].received.iter().filter_map(|frame| frame.last().copied()).collect()
}

#[test]
fn conversations_of_one_visit_each_come_to_their_own_pair() {
    for ports in [2, 3] {
        let one_by_one = at_first_pair(ports, 1);
        assert!((8..=24).contains(&one_by_one.len()), "{one_by_one:?}");
        assert_eq!(at_first_pair(ports, 32), one_by_one, "{ports} ports");
    }
}

#[test]
fn a_receiver_that_takes_a_stream_is_not_stuck_and_all_of_it_counts() {
    for ports in [2, 3] {
        let mut bench = Bench::new(ports);
        bench.introduce();
        bench.worker.ports.slots[1].room.is_stuck = true;
        let before = bench.worker.effort.packets;
        bench.send(0, &frame(mac(1), mac(0), 1), 10);
        bench.settle();
        assert!(!bench.worker.ports.slots[1].room.is_stuck);
        assert_eq!(bench.worker.effort.packets - before, 10);
        assert_eq!(bench.guests[1].received.len(), 10);
    }
}

#[test]
fn a_stream_to_a_port_whose_link_is_down_is_dropped_and_counted() {
    for ports in [2, 3] {
        let mut bench = Bench::new(ports);
        bench.introduce();
        bench.worker.ports.set_link(PortId(1), Carrier::Down);
        bench.send(0, &frame(mac(1), mac(0), 1), 10);
        bench.settle();
        assert_eq!(bench.guests[1].received.len(), 0);
        assert_eq!(bench.drops(1, DropReason::LinkDown), [10, 0]);
        bench.worker.ports.set_link(PortId(1), Carrier::Up);
        bench.send(0, &frame(mac(1), mac(0), 1), 10);
        bench.settle();
        assert_eq!(bench.guests[1].received.len(), 10);
    }
}
