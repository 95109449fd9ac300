//! Policies of ports, carried out: rates, what happens when a receiver is full, VLAN tags.

use ringway_switch::{RateLimit, Vlan, VlanSet, WhenFull};

use super::*;

#[test]
fn a_guest_above_its_rate_is_left_alone_until_its_time_comes() {
    let mut bench = Bench::new(3);
    bench.introduce();
    // The first packet is paid for after eight minutes.
    let rate_from_guest = RateLimit { bits_per_second: 1, packets_per_second: 0, burst_us: 1 };
    bench.set(0, PortPolicy { rate_from_guest, ..PortPolicy::default() });
    bench.send(0, &frame(mac(1), mac(0), 1), 10);
    bench.settle();
    assert_eq!(bench.guests[1].received.len(), 1);
    let sleep = sleep_at_most(&bench.worker).unwrap();
    assert!(sleep > Duration::from_secs(60), "wakes up after {sleep:?}");
    // Kicks change nothing, and others are not concerned.
    bench.worker.on_kick(PortId(0), Queue::FromGuest);
    bench.send(2, &frame(mac(1), mac(2), 1), 10);
    bench.settle();
    assert_eq!(bench.guests[1].received.len(), 11);
    bench.set(0, PortPolicy::default());
    bench.settle();
    assert_eq!(bench.guests[1].received.len(), 20, "nothing was lost");
    assert_eq!(sleep_at_most(&bench.worker), None);
}

#[test]
fn what_is_too_much_for_a_receiver_waits_or_is_dropped() {
    let rate_to_guest = RateLimit { bits_per_second: 1, packets_per_second: 0, burst_us: 1 };
    for when_full in [WhenFull::Hold, WhenFull::Drop] {
        let mut bench = Bench::new(3);
        bench.introduce();
        bench.set(1, PortPolicy { rate_to_guest, when_full, ..PortPolicy::default() });
        bench.send(0, &frame(mac(1), mac(0), 1), 10);
        bench.settle();
        // Eight minutes are longer than anything is held.
        assert_eq!(bench.guests[1].received.len(), 1);
        assert_eq!(bench.drops(1, DropReason::RateLimit), [9, 0]);
    }
}

#[test]
fn a_receiver_without_buffers_holds_its_senders_only_if_it_may() {
    for (when_full, is_held) in [(WhenFull::Hold, true), (WhenFull::Drop, false)] {
        let mut bench = Bench::new(3);
        bench.introduce();
        bench.set(1, PortPolicy { when_full, is_uplink: true, ..PortPolicy::default() });
        // It takes what fits and does not post again.
        for _ in 0..2 {
            bench.send(0, &frame(mac(1), mac(0), 1), usize::from(QUEUE_SIZE));
            while let Some(port) = bench.worker.schedule.ready.pop_front() {
                bench.worker.visit(port);
            }
        }
        assert_eq!(bench.worker.schedule.holds.of(PortId(0)).is_some(), is_held, "{when_full:?}");
        let dropped = bench.drops(1, DropReason::NoRoom)[0];
        assert_eq!(dropped, if is_held { 0 } else { u64::from(QUEUE_SIZE) });
    }
}

#[test]
fn tags_come_and_go_in_the_receivers_memory() {
    let vlan = |number| ringway_switch::VlanId::new(number).unwrap();
    let tagged: VlanSet = [vlan(10), vlan(20)].into_iter().collect();
    let mut bench = Bench::new(3);
    bench.set(0, PortPolicy { vlan: Vlan::Access(vlan(10)), ..PortPolicy::default() });
    bench.set(1, PortPolicy { vlan: Vlan::Access(vlan(20)), ..PortPolicy::default() });
    bench
        .set(2, PortPolicy { vlan: Vlan::Trunk { tagged, native: None }, ..PortPolicy::default() });
    let untagged = frame(MacAddress::BROADCAST, mac(0), 9);
    let tag = |frame: &[u8]| [&frame[..12], &[0x81, 0, 0, 10], &frame[12..]].concat();
    let with_tag = tag(&untagged);
    bench.send(0, &untagged, 1);
    bench.settle();
    assert_eq!(bench.guests[2].received, std::slice::from_ref(&with_tag));
    let answer = frame(MacAddress::BROADCAST, mac(2), 9);
    bench.send(2, &tag(&answer), 1);
    bench.settle();
    assert_eq!(bench.guests[0].received, [answer]);
    assert!(bench.guests[1].received.is_empty(), "the other VLAN");
    bench.send(0, &with_tag, 1);
    bench.settle();
    assert_eq!(bench.drops(0, DropReason::Vlan), [0, 1]);
}

#[test]
fn two_ports_are_a_cable_until_there_is_something_to_decide() {
    let mut bench = Bench::new(2);
    assert!(bench.worker.bridge.cable.is_some());
    let locked = PortPolicy { locked_mac: Some(mac(0)), ..PortPolicy::default() };
    bench.set(0, locked);
    assert!(bench.worker.bridge.cable.is_none());
    bench.send(0, &frame(mac(1), mac(5), 1), 1);
    bench.send(0, &frame(mac(1), mac(0), 1), 1);
    bench.settle();
    assert_eq!(bench.guests[1].received.len(), 1);
    assert_eq!(bench.drops(0, DropReason::SpoofedMac), [0, 1]);
    bench.set(0, PortPolicy::default());
    assert!(bench.worker.bridge.cable.is_some());
    bench.worker.snoop_multicast(true);
    assert!(bench.worker.bridge.cable.is_none());
}
