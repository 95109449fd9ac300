//! Shares of the worker's time: budgets of a visit, and what a port that floods takes from others.

use ringway_virtq::ELEMENTS_MAX;

use super::*;
use crate::forward::budget::BUDGET_UNITS;
use crate::forward::budget::UNIT_LEN;

#[test]
fn a_port_that_floods_costs_another_pair_at_most_its_share() {
    let (pair, flooder, guests) = ([0, 1], 2, 8);
    let mut bench = Bench::new(guests);
    bench.introduce();
    let turns = 200;
    let (mut to_pair, mut by_flooder, mut longest) = (0, 0, 0);
    for _ in 0..turns * 2 {
        bench.send(pair[0], &frame(mac(pair[1]), mac(pair[0]), 1), usize::from(QUEUE_SIZE));
        let flood = frame(MacAddress::BROADCAST, mac(flooder), 2);
        bench.send(flooder, &flood, usize::from(QUEUE_SIZE));
        let (port, got) = bench.step().unwrap();
        let copies: usize = got.iter().sum();
        match usize::from(port.0) {
            0 => to_pair += got[pair[1]],
            _ => by_flooder += copies,
        }
        longest = longest.max(copies);
    }
    println!("{turns} turns: {to_pair} packets of the pair, {by_flooder} copies of the flood");
    assert_eq!(to_pair, turns * BUDGET_UNITS as usize, "as many per turn as without the flood");
    assert!(to_pair * 100 >= by_flooder * 90, "the flood has more than its share of the copies");
    assert!(longest < BUDGET_UNITS as usize + guests, "a visit of {longest} copies");
    let share = turns * BUDGET_UNITS as usize;
    assert!(by_flooder.abs_diff(share) <= guests, "{by_flooder} copies instead of {share}");
}

/// How many packets with so many bytes of padding a guest that always has more sends in so many
/// visits, and how often the receiver is called.
fn moved_in(visits: usize, padding: u32) -> (usize, u64) {
    let mut bench = Bench::new(3);
    bench.introduce();
    // The old buffers are used up first.
    bench.guests[1].receive_len = RECEIVE_LEN + padding;
    bench.send(0, &frame(mac(1), mac(0), 1), usize::from(QUEUE_SIZE));
    bench.settle();
    bench.guests[0].padding = padding;
    let packet = frame(mac(1), mac(0), 2);
    let calls = |bench: &Bench| match &bench.worker.ports.slots[1].end {
        End::Guest(guest) => guest.fds[Queue::ToGuest as usize].calls,
        _ => 0,
    };
    let before = calls(&bench);
    let mut packets = 0;
    for _ in 0..visits {
        bench.send(0, &packet, usize::from(QUEUE_SIZE));
        let (_, got) = bench.step().unwrap();
        packets += got[1];
    }
    (packets, calls(&bench) - before)
}

#[test]
fn a_visit_has_a_budget_of_packets_and_of_bytes_and_ends_with_one_call() {
    let visits: usize = 50;
    let budget = BUDGET_UNITS as usize;
    assert_eq!(moved_in(visits, 0), (visits * budget, visits as u64));
    // Each counts for itself and for the seven times 8 KiB that it has.
    let (packets, calls) = moved_in(visits, 7 * UNIT_LEN);
    assert_eq!((packets, calls), (visits * budget / 8, visits as u64));
    // Three into sixty-four does not go: what a visit takes too much, the next one has less.
    let (packets, calls) = moved_in(visits, 2 * UNIT_LEN);
    assert!(packets.abs_diff(visits * budget / 3) <= 1, "{packets} packets");
    assert_eq!(calls, visits as u64);
}

/// The 99th percentile of the time between sending and receiving one packet, in copies that the
/// worker makes meanwhile, while `flooders` other ports send as much as they can.
fn latency_p99_copies(flooders: usize) -> usize {
    let (pair, samples) = ([0, 1], 500);
    let mut bench = Bench::new(2 + flooders + 4);
    bench.introduce();
    let mut latencies = Vec::new();
    for sample in 0..samples {
        // Sent after another number of visits each time.
        let visits_before = sample * 7 % 5;
        let mut copies = None;
        for visit in 0..100 {
            for flooder in 2..2 + flooders {
                let flood = frame(MacAddress::BROADCAST, mac(flooder), 2);
                bench.send(flooder, &flood, usize::from(QUEUE_SIZE));
            }
            if visit == visits_before {
                bench.send(pair[0], &frame(mac(pair[1]), mac(pair[0]), 1), 1);
                copies = Some(0);
            }
            bench.guests[pair[1]].received.clear();
            let Some((port, got)) = bench.step() else { continue };
            copies = copies.map(|copies| copies + got.iter().sum::<usize>());
            let has_arrived = bench.guests[pair[1]].received.iter().any(|frame| frame[14] == 1);
            if usize::from(port.0) == pair[0] && has_arrived {
                latencies.extend(copies);
                break;
            }
        }
    }
    assert_eq!(latencies.len(), samples, "packets were lost");
    latencies.sort_unstable();
    latencies[samples * 99 / 100]
}

#[test]
fn a_port_that_floods_delays_another_pair_by_at_most_one_visit() {
    let alone = latency_p99_copies(0);
    assert_eq!(alone, 1);
    for flooders in 1..=3 {
        let copies = latency_p99_copies(flooders);
        println!("{flooders} flooders: the 99th percentile is {copies} copies, {alone} alone");
        // A visit ends with the packet that uses its budget up, and that goes to all others.
        let visit = BUDGET_UNITS as usize + 2 + flooders + 4;
        assert!(copies <= alone + flooders * visit, "{copies} copies with {flooders} flooders");
    }
}

/// Posts as many buffers as there can be, each of as many elements as there can be, of which the
/// first takes any packet; all are in one table.
fn post_longest_chains(guest: &Guest) {
    const NEXT_WRITE: u16 = 1 | 2;
    const INDIRECT: u16 = 4;
    let (elements, table) = (u16::try_from(ELEMENTS_MAX).unwrap(), RECEIVE_AT + 0x1_0000);
    let write = |address: u64, bytes: &[u8]| {
        guest.memory.write(usize::try_from(address - BASE).unwrap(), bytes);
    };
    let descriptor = |address: u64, len: u32, flags: u16, next: u16| {
        let [address, len] = [address.to_le_bytes(), u64::from(len).to_le_bytes()];
        [&address[..], &len[..4], &flags.to_le_bytes(), &next.to_le_bytes()].concat()
    };
    for at in 0..elements {
        let flags = if at + 1 < elements { NEXT_WRITE } else { 2 };
        let len = if at == 0 { RECEIVE_LEN } else { 1 };
        let element = descriptor(BASE + RECEIVE_AT, len, flags, at + 1);
        write(BASE + table + 16 * u64::from(at), &element);
    }
    let areas = guest.queues[0].areas();
    for id in 0..QUEUE_SIZE {
        let whole = descriptor(BASE + table, 16 * u32::from(elements), INDIRECT, 0);
        write(areas.descriptor + 16 * u64::from(id), &whole);
        write(areas.driver + 4 + 2 * u64::from(id), &id.to_le_bytes());
    }
    write(areas.driver + 2, &QUEUE_SIZE.to_le_bytes());
}

/// The elements that a receiver makes the worker look at take from the sender's share, as the
/// sender's own packets do.
#[test]
fn buffers_of_many_elements_take_from_the_share_of_who_sends_into_them() {
    let (mut worker, _ends) = worker(WorkerPeers::of(1).unwrap().remove(0), Switch::new(7));
    let features = Features::VERSION_1 | Features::INDIRECT_DESC;
    let mut sender = Guest::attach(&mut worker, 0);
    let pair = FromPair { pair: 0, of: 1 };
    let receiver = Guest::attach_with(std::slice::from_mut(&mut worker), 1, pair, features);
    post_longest_chains(&receiver);
    while let Some(slot) = worker.schedule.ready.pop_front() {
        worker.visit(slot);
    }
    sender.send(&frame(mac(1), mac(0), 1), usize::from(QUEUE_SIZE));
    worker.on_kick(PortId(0), Queue::FromGuest);
    let used_index = usize::try_from(receiver.queues[0].areas().device - BASE + 2).unwrap();
    let (turns, mut received) = (12, 0);
    for _ in 0..turns {
        worker.schedule.ready.pop_front().into_iter().for_each(|slot| worker.visit(slot));
        received = usize::from(receiver.memory.load_u16(used_index));
    }
    // Each counts for itself and for sixteen times 64 elements.
    let (budget, units) = (BUDGET_UNITS as usize, 1 + ELEMENTS_MAX / 64);
    assert_eq!(received, budget, "one visit of them");
    assert!(received * units > turns * budget, "and they pay for it");
}
