//! Frames of connections byte by byte, with and without segmentation by the guest, and a lease
//! that a real client takes.

mod lab;

use std::collections::VecDeque;

use lab::packets::{REMOTE, REMOTE_6, packet, packet6, segment, udp};
use lab::{GUEST, Lab, MAC, plan};
use ringway_nat::Verdict;
use ringway_nat::{Accepts, Action, Actions, Due, Emit, Event, FlowId, FromGuest, HEAD_LEN, Read};
use ringway_net::{GsoType, NEEDS_CSUM, NetHeader};
use smoltcp::socket::dhcpv4;
use smoltcp::wire::{IpAddress, IpCidr};

const ACK: u8 = 0x10;
const SYN: u8 = 0x02;

/// MSS 1460, scale 7.
const OPTIONS: [u8; 8] = [2, 4, 5, 0xb4, 1, 3, 3, 7];

fn due(lab: &mut Lab, accepts: Accepts) -> Option<Emit> {
    match lab.nat.due(GUEST, accepts)? {
        Due::Flow(emit) => Some(emit),
        Due::Reply(frame) => panic!("{frame:02x?}"),
    }
}

fn emitted(lab: &mut Lab, emit: &Emit, read: Read) {
    lab.nat.emitted(emit, read, lab.now, &mut Actions::new());
}

fn accepts(tso: bool) -> Accepts {
    Accepts { tso4: tso, tso6: tso, uso4: tso, uso6: tso, len_max: 65_535 }
}

/// A connection up to the guest's first acknowledgement; its first sequence number to the guest.
fn open(lab: &mut Lab) -> (FlowId, u32) {
    lab.send(&segment(1000, 0, SYN, &OPTIONS, &[]));
    assert!(due(lab, accepts(true)).is_none());
    let flow = lab.host.one().flow;
    lab.tell(flow, Event::Connected { room: 50_000 });
    let mut emit = due(lab, accepts(true)).unwrap();
    let header = emit.finish(0).unwrap();
    let frame = emit.head();
    let golden =
        [&MAC[..], &plan().mac().0, &[8, 0, 0x45, 0, 0, 48, 0, 0, 0x40, 0, 64, 6]].concat();
    assert_eq!(frame[..24], golden);
    assert_eq!(frame[26..38], [198, 51, 100, 7, 10, 0, 2, 15, 0, 80, 0x9c, 0x40]);
    assert_eq!(frame[42..50], [0, 0, 3, 0xe9, 0x70, 0x12, 0xc3, 0x50], "acknowledges 1001");
    assert_eq!(frame[54..], OPTIONS);
    assert_eq!((header.flags, header.csum_start, header.csum_offset), (NEEDS_CSUM, 34, 16));
    let isn = u32::from_be_bytes(*frame[38..].first_chunk().unwrap());
    emitted(lab, &emit, Read::Bytes(0));
    assert!(due(lab, accepts(true)).is_none());
    lab.send(&segment(1001, isn.wrapping_add(1), ACK, &[], &[]));
    let emit = due(lab, accepts(true)).expect("the socket is looked at once");
    emitted(lab, &emit, Read::Empty);
    (flow, isn.wrapping_add(1))
}

#[test]
fn long_segments_only_for_guests_that_take_them() {
    let mut lab = Lab::new(1);
    let (flow, seq) = open(&mut lab);
    lab.host.one().queue = vec![7; 200_000].into();
    lab.tell(flow, Event::Readable);
    let mut emit = due(&mut lab, accepts(false)).unwrap();
    let source = emit.source.unwrap();
    assert_eq!((source.peek_at, source.len_max), (Some(0), 1460));
    assert_eq!(emit.finish(1460).unwrap().gso_type, 0);
    let mut emit = due(&mut lab, accepts(true)).unwrap();
    assert_eq!(emit.source.unwrap().len_max, 44 * 1460);
    let header = emit.finish(64_240).unwrap();
    let golden = NetHeader {
        flags: NEEDS_CSUM,
        gso_type: GsoType::TcpV4.raw(),
        gso_size: 1460,
        hdr_len: 54,
        csum_start: 34,
        csum_offset: 16,
        ..NetHeader::default()
    };
    assert_eq!(header, golden);
    assert_eq!(header.check(54 + 64_240), Ok(()));
    assert_eq!(emit.head()[38..42], seq.to_be_bytes());
    emitted(&mut lab, &emit, Read::Bytes(64_240));
    let next = due(&mut lab, accepts(true)).unwrap();
    assert_eq!(next.source.unwrap().peek_at, Some(64_240), "behind what is on the way");
    let again = due(&mut lab, accepts(true)).unwrap();
    assert_eq!(again.head(), next.head(), "until it is told what became of it");
    let small = due(&mut lab, Accepts { len_max: 1526, ..accepts(true) }).unwrap();
    assert_eq!(small.source.unwrap().len_max, 1460, "what its buffers hold");
}

#[test]
fn after_several_datagrams_several_more_are_expected() {
    let [none, all] = [false, true].map(accepts);
    let question = udp(4000, 7, b"x");
    for (question, ip_len, takes) in [
        (packet(REMOTE, 17, &question), 20, Accepts { uso4: true, ..none }),
        (packet6(REMOTE_6, 17, &question), 40, Accepts { uso6: true, ..none }),
    ] {
        let mut lab = Lab::new(1);
        lab.send(&question);
        let flow = lab.host.one().flow;
        lab.tell(flow, Event::Readable);
        let (one, all_together) = (1500 - u32::from(ip_len) - 8, 65_535 - 22 - u32::from(ip_len));
        let rounds = [(false, one), (true, one), (true, all_together), (false, all_together)];
        for (several, expected) in rounds {
            let mut emit = due(&mut lab, takes).unwrap();
            let source = emit.source.unwrap();
            assert_eq!((source.len_max, source.one_len_max), (expected, one));
            assert!(emit.is_longer(one + 1) && !emit.must_be_cut(one));
            emit.are_several(if several { 500 } else { 0 });
            assert_eq!(emit.is_longer(4100), !several, "each counts");
            assert!(!emit.must_be_cut(1300));
            let header = emit.finish(1300).unwrap();
            let golden = NetHeader {
                flags: NEEDS_CSUM,
                gso_type: if several { GsoType::UdpL4.raw() } else { 0 },
                gso_size: if several { 500 } else { 0 },
                hdr_len: 22 + ip_len,
                csum_start: 14 + ip_len,
                csum_offset: 6,
                ..NetHeader::default()
            };
            let len = 22 + u32::from(ip_len) + 1300;
            assert_eq!((header, header.check(len)), (golden, Ok(())));
            emitted(&mut lab, &emit, Read::Bytes(1300));
        }
        let of_other_family = Accepts { uso4: !takes.uso4, uso6: !takes.uso6, ..all };
        let mut emit = due(&mut lab, of_other_family).unwrap();
        emit.are_several(500);
        assert!(emit.must_be_cut(1300) && !emit.is_longer(1300), "this guest takes none");
    }
}

#[test]
fn acknowledged_bytes_are_consumed_and_lost_ones_peeked_again() {
    let mut lab = Lab::new(1);
    let (flow, seq) = open(&mut lab);
    lab.host.one().queue = (0..=255).cycle().take(10_000).collect::<VecDeque<u8>>();
    lab.tell(flow, Event::Readable);
    for _ in 0..5 {
        let emit = due(&mut lab, accepts(false)).unwrap();
        emitted(&mut lab, &emit, Read::Bytes(1460));
    }
    lab.send(&segment(1001, seq.wrapping_add(1460), ACK, &[], &[]));
    assert_eq!(lab.host.one().consumed, 1460);
    for _ in 0..3 {
        let emit = due(&mut lab, accepts(false)).unwrap();
        assert_eq!(emit.source.unwrap().peek_at, Some(4 * 1460), "not yet");
        lab.send(&segment(1001, seq.wrapping_add(1460), ACK, &[], &[]));
    }
    let emit = due(&mut lab, accepts(false)).unwrap();
    assert_eq!(emit.source.unwrap().peek_at, Some(0));
    assert_eq!(emit.head()[38..42], seq.wrapping_add(1460).to_be_bytes());
    // Keep-alives are no sign of a loss.
    for _ in 0..5 {
        lab.send(&segment(1000, seq.wrapping_add(1460), ACK, &[], &[]));
    }
    assert_eq!(lab.host.one().consumed, 1460);
}

#[test]
fn several_segments_may_be_sent_with_one_call() {
    for (taken, acknowledged) in [(3000, 4001u32), (1700, 2701), (0, 1001)] {
        let mut lab = Lab::new(1);
        let (flow, seq) = open(&mut lab);
        let mut actions = Actions::new();
        let mut sends = Vec::new();
        for at in 0..3 {
            let frame = segment(1001 + at * 1000, seq, ACK, &[], &[9; 1000]);
            let len = u32::try_from(frame.len()).unwrap();
            let packet = FromGuest { guest: GUEST, head: &frame[..HEAD_LEN], len };
            assert_eq!(lab.nat.from_guest(packet, lab.now, &mut actions), Verdict::Done);
            sends.extend(actions.drain());
        }
        assert_eq!(sends, [Action::Send { flow, skip: 54, len: 1000 }; 3]);
        assert!(due(&mut lab, accepts(true)).is_none(), "nothing is acknowledged unasked");
        lab.nat.on_socket(flow, Event::Sent(taken), lab.now, &mut actions);
        let emit = due(&mut lab, accepts(true)).unwrap();
        assert_eq!(emit.head()[42..46], acknowledged.to_be_bytes());
    }
}

#[test]
fn a_guest_that_begins_anew_gets_a_new_connection() {
    let mut lab = Lab::new(1);
    let (flow, _) = open(&mut lab);
    lab.send(&segment(777_000, 0, SYN, &OPTIONS, &[]));
    let fakes: Vec<_> = lab.host.fakes.values().map(|fake| (fake.flow, fake.closed)).collect();
    assert_eq!(fakes.len(), 2);
    assert!(fakes.iter().all(|(id, closed)| closed.is_some() == (*id == flow)));
    lab.tell(flow, Event::Readable);
    lab.tell(flow, Event::Sent(9));
    assert_eq!(lab.nat.flows_of(GUEST), 1);
}

#[test]
fn what_the_socket_did_not_take_is_not_acknowledged_and_its_fin_forgotten() {
    const FIN: u8 = 1;
    let mut lab = Lab::new(1);
    lab.host.capacity = 600;
    let (_, seq) = open(&mut lab);
    lab.host.one().reads = false;
    lab.send(&segment(1001, seq, ACK | FIN, &[], &[9; 1000]));
    let emit = due(&mut lab, accepts(true)).unwrap();
    assert_eq!(emit.head()[42..46], 1601u32.to_be_bytes());
    assert!(!lab.host.one().shutdown);
}

#[test]
fn a_real_client_gets_its_lease() {
    let mut lab = Lab::new(1);
    lab.interface.update_ip_addrs(|addresses| addresses.clear());
    let handle = lab.sockets.add(dhcpv4::Socket::new());
    let mut found = None;
    for _ in 0..20_000 {
        lab.step();
        let socket = lab.sockets.get_mut::<dhcpv4::Socket>(handle);
        if let Some(dhcpv4::Event::Configured(config)) = socket.poll() {
            found = Some((config.address, config.router, config.dns_servers.to_vec()));
            break;
        }
    }
    let (address, router, dns) = found.expect("a lease");
    assert_eq!(IpCidr::from(address), IpCidr::new(IpAddress::v4(10, 0, 2, 15), 24));
    assert_eq!((router, dns), (Some(plan().gateway4()), vec![plan().dns4()]));
}
