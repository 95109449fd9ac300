//! Datagrams that are longer than the network's MTU, both ways.

mod lab;

use lab::packets::{REMOTE, REMOTE_6, packet, packet6, parts, udp};
use lab::{GUEST, Lab, plan};
use ringway_nat::{Event, Protocol, Refusal, Verdict};
use ringway_net::offload::Sum;

const UDP: u8 = 17;

fn data(len: usize) -> Vec<u8> {
    (0..=250).cycle().take(len).collect()
}

/// The contents of the IP packets to the guest, put together again.
fn together(lab: &Lab) -> Vec<u8> {
    let mut whole = Vec::new();
    for frame in &lab.seen {
        assert!(frame.len() <= 1514, "{} bytes", frame.len());
        let word = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
        let (offset, more, start, end) = if frame[12..14] == [8, 0] {
            assert_eq!(Sum::default().add_bytes(&frame[14..34]).fold(), 0xffff);
            ((word(20) & 0x1fff) * 8, word(20) & 0x2000 != 0, 34, 14 + word(16))
        } else {
            assert_eq!(frame[20], 44);
            (word(56) & 0xfff8, word(56) & 1 != 0, 62, 54 + word(18))
        };
        assert_eq!(offset, whole.len(), "in order");
        assert!(!more || (end - start).is_multiple_of(8));
        whole.extend(&frame[start..end]);
    }
    whole
}

/// Whether the checksum of what an IP packet carries is right.
fn is_sum_right(is_ipv4: bool, protocol: u8, whole: &[u8]) -> bool {
    let guest6 = lab::guest6().octets();
    let mut sum = Sum::default().add_bytes(whole);
    if !is_ipv4 || protocol != 1 {
        let len = u16::try_from(whole.len()).unwrap();
        sum = match is_ipv4 {
            true => sum.add_bytes(&REMOTE).add_bytes(&[10, 0, 2, 15]),
            false => {
                sum.add_bytes(REMOTE_6.map(u16::to_be_bytes).as_flattened()).add_bytes(&guest6)
            }
        };
        sum = sum.add_word(u16::from(protocol)).add_word(len);
    }
    sum.fold() == 0xffff
}

#[test]
fn a_long_datagram_of_a_guest_leaves_whole_and_its_answer_comes_in_parts() {
    for is_ipv4 in [true, false] {
        for len in [1473, 4000, 60_000] {
            let mut lab = Lab::scripted();
            let all = parts(is_ipv4, UDP, &udp(4000, 7, &data(len)), 1440);
            for part in all.iter().rev() {
                lab.send(part);
            }
            let fake = lab.host.one();
            assert_eq!(fake.protocol, Protocol::Udp);
            assert!(fake.datagrams_out == [data(len)], "{len}: other bytes");
            fake.datagrams_in = [data(len)].into();
            let flow = fake.flow;
            lab.tell(flow, Event::Readable);
            lab.step();
            let whole = together(&lab);
            assert!(whole[8..] == data(len) && whole[..4] == [0, 7, 0x0f, 0xa0], "{len}");
            assert!(is_sum_right(is_ipv4, UDP, &whole));
        }
    }
}

#[test]
fn a_long_echo_goes_and_comes_with_the_guests_identifier() {
    for (is_ipv4, protocol, kind) in [(true, 1, [8, 0]), (false, 58, [128, 129])] {
        let mut lab = Lab::scripted();
        let request = [&[kind[0], 0, 0, 0, 0x42, 0x42, 0, 1][..], &data(4000)].concat();
        for part in parts(is_ipv4, protocol, &request, 1440) {
            lab.send(&part);
        }
        let fake = lab.host.one();
        assert!(fake.datagrams_out == [request]);
        let reply = [&[kind[1], 0, 0, 0, 0x77, 0x77, 0, 1][..], &data(4000)].concat();
        fake.datagrams_in = [reply].into();
        let flow = fake.flow;
        lab.tell(flow, Event::Readable);
        lab.step();
        let whole = together(&lab);
        assert_eq!((whole[0], &whole[4..8], whole.len()), (kind[1], &[0x42, 0x42, 0, 1][..], 4008));
        assert!(is_sum_right(is_ipv4, protocol, &whole));
    }
}

#[test]
fn the_router_answers_a_long_echo_in_parts() {
    let mut lab = Lab::scripted();
    let request = [&[8, 0, 0, 0, 0x42, 0x42, 0, 1][..], &data(4000)].concat();
    for mut part in parts(true, 1, &request, 1480) {
        part[30..34].copy_from_slice(&plan().gateway4().octets());
        lab.send(&part);
    }
    lab.step();
    let whole = together(&lab);
    assert!(whole[0] == 0 && whole[4..] == request[4..]);
    assert!(lab.host.fakes.is_empty());
}

/// The rules that each part is judged by: it is no way around what is refused of whole packets.
#[test]
fn parts_are_no_way_around_what_is_refused() {
    let mut lab = Lab::scripted();
    let all = parts(true, UDP, &udp(4000, 7, &data(3000)), 1440);
    for (at, bytes, why) in [
        (26, [10, 0, 3, 15], Refusal::SpoofedSource),
        (30, [127, 0, 0, 1], Refusal::Denied),
        (30, [169, 254, 169, 254], Refusal::Denied),
        (30, [10, 0, 2, 16], Refusal::Denied),
    ] {
        for part in &all {
            let mut part = part.clone();
            part[at..at + 4].copy_from_slice(&bytes);
            lab.send(&part);
        }
        assert_eq!(lab.verdicts.pop(), Some(Verdict::Refused(why)));
    }
    for part in parts(true, 6, &data(3000), 1440) {
        lab.send(&part);
        assert_eq!(lab.verdicts.pop(), Some(Verdict::Refused(Refusal::Fragment)), "of a stream");
    }
    assert!(lab.host.fakes.is_empty());
}

#[test]
fn datagrams_that_never_end_hold_nothing_for_longer_than_15_seconds() {
    let mut lab = Lab::scripted();
    let all = parts(true, UDP, &udp(4000, 7, &data(3000)), 1440);
    lab.send(&all[0]);
    let at = lab.nat.deadline().expect("they are forgotten");
    assert_eq!(at, lab.now.plus(15_000_000_000));
    for _ in 0..15_001 {
        lab.step();
    }
    lab.send(&all[1]);
    lab.send(&all[2]);
    assert!(lab.host.fakes.is_empty(), "its first part is gone");
    // A datagram that comes whole in the meantime is not disturbed.
    lab.send(&packet(REMOTE, UDP, &udp(4000, 7, b"x")));
    lab.send(&packet6(REMOTE_6, 44, &[&[UDP, 0, 0, 0, 0, 0, 0, 1][..], &udp(1, 2, b"y")].concat()));
    let sent: Vec<_> = lab.host.fakes.values().map(|fake| fake.datagrams_out.clone()).collect();
    assert_eq!(sent, [[b"x"], [b"y"]], "an only part is a whole");
    assert_eq!(lab.nat.flows_of(GUEST), 2);
}
