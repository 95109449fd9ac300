//! Datagrams, echo requests, what they meet, leases, and arbitrary bytes.

mod lab;

use lab::packets::{REMOTE, REMOTE_6, packet, packet6, udp};
use lab::{GUEST, Lab, MAC, plan};
use proptest::prelude::*;
use ringway_nat::{Actions, Due, Event, FlowId, Problem, Protocol, Read, Refusal, Target, Verdict};
use ringway_net::offload::Sum;

#[test]
fn datagrams_go_and_come_with_their_length() {
    let mut lab = Lab::new(1);
    for len in [0, 1, 5, 1000] {
        lab.send(&packet(REMOTE, 17, &udp(4000, 7, &vec![3; len])));
    }
    let fake = lab.host.one();
    assert_eq!((fake.protocol, fake.to), (Protocol::Udp, Target::Address((REMOTE, 7).into())));
    let lens: Vec<usize> = fake.datagrams_out.iter().map(Vec::len).collect();
    assert_eq!(lens, [0, 1, 5, 1000], "without padding");
    fake.datagrams_in = [vec![], vec![9; 1472], vec![9; 1473], vec![8]].into();
    let flow = fake.flow;
    lab.tell(flow, Event::Readable);
    lab.step();
    assert_eq!(lab.seen.len(), 5, "one was too long: it comes in parts");
    let golden =
        [&MAC[..], &plan().mac().0, &[8, 0, 0x45, 0, 0, 29, 0, 0, 0x40, 0, 64, 17]].concat();
    let last = &lab.seen[4];
    assert_eq!(last[..24], golden);
    assert_eq!(last[26..40], [198, 51, 100, 7, 10, 0, 2, 15, 0, 7, 0x0f, 0xa0, 0, 9]);
    assert_eq!(Sum::default().add_bytes(&last[14..34]).fold(), 0xffff);
    assert_eq!((lab.seen[0][38..40].to_vec(), last[42]), (vec![0, 8], 8));
}

#[test]
fn flows_end_and_the_oldest_makes_room() {
    let mut lab = Lab::new(1);
    for port in 0..1030 {
        lab.send(&packet(REMOTE, 17, &udp(4000 + port, 7, b"x")));
        lab.now = lab.now.plus(3_000_000);
    }
    assert_eq!(lab.nat.flows_of(GUEST), 1024);
    let closed: Vec<bool> = lab.host.fakes.values().map(|fake| fake.closed.is_some()).collect();
    assert_eq!(closed.iter().filter(|closed| **closed).count(), 6);
    for _ in 0..35_000 {
        lab.step();
    }
    assert_eq!(lab.nat.flows_of(GUEST), 0, "after 30 s");
}

/// A datagram read for one flow is often another one's, where both have one port outside.
#[test]
fn a_port_with_many_datagrams_leaves_other_flows_their_turn() {
    let mut lab = Lab::scripted();
    let others = [[198, 51, 100, 7], [198, 51, 100, 8]];
    for (to, port) in [(others[0], 4000), (others[1], 4000), (REMOTE, 5000)] {
        lab.send(&packet(to, 17, &udp(port, 7, b"x")));
    }
    let flows: Vec<FlowId> = lab.host.fakes.values().map(|fake| fake.flow).collect();
    lab.tell(flows[0], Event::Readable);
    lab.tell(flows[2], Event::Readable);
    let mut turns = Vec::new();
    for _ in 0..4 {
        let Some(Due::Flow(mut emit)) = lab.nat.due(GUEST, lab.accepts) else {
            panic!("one is due")
        };
        turns.push(emit.flow);
        if emit.flow == flows[0] {
            emit.come_from(flows[1], (others[1], 7).into());
        }
        lab.nat.emitted(&emit, Read::Bytes(1), lab.now, &mut Actions::new());
    }
    assert_eq!(turns, [flows[0], flows[2], flows[0], flows[2]]);
}

#[test]
fn a_guest_that_opens_too_fast_is_slowed() {
    let mut lab = Lab::new(1);
    for port in 0..10_200 {
        lab.send(&packet(REMOTE, 17, &udp(4000 + port, 7, b"x")));
    }
    let refused = lab.verdicts.iter().filter(|it| **it == Verdict::Refused(Refusal::FlowRate));
    assert_eq!(refused.count(), 200);
}

#[test]
fn echoes_have_the_guests_identifier() {
    let mut lab = Lab::new(1);
    let request = [8, 0, 0, 0, 0x42, 0x42, 0, 5, b'h', b'i'];
    lab.send(&packet(REMOTE, 1, &request));
    let fake = lab.host.one();
    assert_eq!((fake.protocol, &fake.datagrams_out[0][..]), (Protocol::Echo, &request[..]));
    fake.datagrams_in = [vec![0, 0, 0xab, 0xcd, 0x77, 0x77, 0, 5, b'h', b'i']].into();
    let flow = fake.flow;
    lab.tell(flow, Event::Readable);
    lab.step();
    let reply = &lab.seen[0][34..44];
    assert_eq!((reply[0], &reply[4..]), (0, &[0x42, 0x42, 0, 5, b'h', b'i'][..]));
    assert_eq!(Sum::default().add_bytes(reply).fold(), 0xffff);
    let (from, to) = (&lab.seen[0][26..30], &lab.seen[0][30..34]);
    assert_eq!((from, to), (&REMOTE[..], &[10, 0, 2, 15][..]));
    for id in 0..100u8 {
        lab.send(&packet(REMOTE, 1, &[8, 0, 0, 0, 1, id, 0, 1]));
    }
    assert_eq!(lab.nat.flows_of(GUEST), 64);
}

#[test]
fn errors_come_back_about_the_guests_own_packet() {
    let mut lab = Lab::new(1);
    lab.send(&packet(REMOTE, 17, &udp(4000, 7, b"x")));
    let flow = lab.host.one().flow;
    let hop = Some([203, 0, 113, 9].into());
    for (problem, from, golden) in [
        (Problem::PortUnreachable, Some(REMOTE.into()), [3, 3, 0, 0]),
        (Problem::HopsExceeded, hop, [11, 0, 0, 0]),
        (Problem::TooBig(1280), None, [3, 4, 5, 0]),
    ] {
        lab.seen.clear();
        lab.tell(flow, Event::Report { from, problem });
        lab.step();
        let frame = &lab.seen[0];
        assert_eq!([frame[34], frame[35], frame[40], frame[41]], golden);
        let offender = from.unwrap_or(plan().gateway4().into());
        assert_eq!(
            frame[26..30],
            match offender {
                std::net::IpAddr::V4(offender) => offender.octets(),
                std::net::IpAddr::V6(_) => unreachable!(),
            }
        );
        assert_eq!(frame[54..66], [10, 0, 2, 15, 198, 51, 100, 7, 0x0f, 0xa0, 0, 7]);
    }
    lab.seen.clear();
    let mut old = packet(REMOTE, 17, &udp(4000, 7, b"x"));
    old[22] = 1;
    lab.send(&old);
    lab.step();
    assert_eq!(lab.seen[0][34..36], [11, 0], "hops");
}

/// Whether the checksum behind the IPv6 header is right.
fn is_sum_right(frame: &[u8]) -> bool {
    let len = u16::from_be_bytes([frame[18], frame[19]]);
    let end = 54 + usize::from(len);
    let sum = Sum::default().add_bytes(&frame[22..end]);
    sum.add_word(u16::from(frame[20])).add_word(len).fold() == 0xffff
}

#[test]
fn datagrams_and_echoes_by_ipv6() {
    let mut lab = Lab::new(1);
    lab.send(&packet6(REMOTE_6, 17, &udp(4000, 7, b"x")));
    let flow = lab.host.one().flow;
    lab.host.one().datagrams_in = [b"answer".to_vec()].into();
    lab.tell(flow, Event::Readable);
    lab.step();
    assert_eq!(&lab.seen[0][62..68], b"answer");
    let from = Some(std::net::Ipv6Addr::from(REMOTE_6).into());
    lab.tell(flow, Event::Report { from, problem: Problem::TooBig(1300) });
    lab.step();
    assert_eq!(lab.seen[1][54..56], [2, 0]);
    assert_eq!(lab.seen[1][58..62], 1300u32.to_be_bytes());
    lab.send(&packet6(REMOTE_6, 58, &[128, 0, 0, 0, 0x42, 0x42, 0, 1, 9]));
    let echo = lab.host.fakes.values_mut().find(|fake| fake.protocol == Protocol::Echo).unwrap();
    echo.datagrams_in = [vec![129, 0, 1, 2, 0x77, 0x77, 0, 1, 9]].into();
    let flow = echo.flow;
    lab.tell(flow, Event::Readable);
    lab.step();
    assert_eq!(lab.seen.last().unwrap()[58..63], [0x42, 0x42, 0, 1, 9]);
    assert!(lab.seen.iter().all(|frame| is_sum_right(frame)));
    lab.send(&packet6([0, 0, 0, 0, 0, 0, 0, 1], 17, &udp(4000, 7, b"x")));
    assert_eq!(lab.verdicts.pop(), Some(Verdict::Refused(Refusal::Denied)));
}

#[test]
fn a_port_that_the_guest_closed_is_closed_for_the_other_end() {
    let mut lab = Lab::new(1);
    lab.send(&packet(REMOTE, 17, &udp(4000, 7, b"x")));
    let quoted = [&[0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0][..], &REMOTE, &[10, 0, 2, 15]];
    let quoted = [&quoted.concat()[..], &udp(7, 4000, b"")].concat();
    lab.send(&packet(REMOTE, 1, &[&[3, 1, 0, 0, 0, 0, 0, 0][..], &quoted].concat()));
    assert_eq!(lab.nat.flows_of(GUEST), 1, "another error");
    lab.send(&packet(REMOTE, 1, &[&[3, 3, 0, 0, 0, 0, 0, 0][..], &quoted].concat()));
    assert_eq!(lab.nat.flows_of(GUEST), 0);
    assert!(lab.host.one().closed.is_some());
}

#[test]
fn what_is_not_the_guests_own_is_refused() {
    let mut lab = Lab::new(1);
    let good = packet(REMOTE, 17, &udp(4000, 7, b"x"));
    let with = |at: usize, bytes: &[u8]| {
        let mut frame = good.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    for (frame, why) in [
        (with(26, &[10, 0, 3, 15]), Refusal::SpoofedSource),
        (with(26, &[10, 0, 2, 2]), Refusal::SpoofedSource),
        (with(26, &[127, 0, 0, 1]), Refusal::SpoofedSource),
        (with(0, &[2, 0, 0, 0, 0, 1]), Refusal::NotForUs),
        (with(6, &[0xff; 6]), Refusal::Malformed),
        (with(16, &[0xff, 0xff]), Refusal::Malformed),
        (with(20, &[0x20, 0]), Refusal::Fragment),
        (with(23, &[132]), Refusal::Malformed),
        (with(38, &[0, 200]), Refusal::Malformed),
        (with(30, &[224, 0, 0, 1]), Refusal::Denied),
        (with(30, &[127, 0, 0, 1]), Refusal::Denied),
    ] {
        lab.send(&frame);
        assert_eq!(lab.verdicts.pop(), Some(Verdict::Refused(why)));
    }
    assert!(lab.host.fakes.is_empty());
}

proptest! {
    #[test]
    fn arbitrary_frames_are_survived(
        seed in any::<u64>(),
        changes in proptest::collection::vec((12..80usize, any::<u8>()), 0..6),
        protocol in prop_oneof![Just(6u8), Just(17), Just(1), Just(58), any::<u8>()],
        len in 0..1600usize,
        cut in 0..1600usize,
    ) {
        let mut lab = Lab::new(seed);
        let payload: Vec<u8> =
            (0..len).map(|_| u8::try_from(lab.random.below(256)).unwrap()).collect();
        let mut frame = packet(REMOTE, protocol, &payload);
        for _ in 0..3 {
            lab.send(&frame);
            lab.step();
            for (at, byte) in &changes {
                let at = at % frame.len();
                frame[at] = *byte;
            }
            let flows: Vec<_> = lab.host.fakes.values()
                .filter(|fake| fake.closed.is_none()).map(|fake| fake.flow).collect();
            for flow in flows {
                lab.tell(flow, Event::Readable);
            }
        }
        frame.truncate(cut);
        lab.send(&frame);
        lab.step();
    }

    #[test]
    fn arbitrary_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut lab = Lab::new(1);
        lab.send(&bytes);
        let mut to_us = packet(REMOTE, 6, &bytes);
        lab.send(&to_us);
        to_us[12..14].copy_from_slice(&[0x86, 0xdd]);
        to_us[14] = 0x60;
        lab.send(&to_us);
        lab.step();
    }
}
