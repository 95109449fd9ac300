//! A guest with a policy: its questions are judged, and it reaches what answers have opened.

mod lab;

use std::sync::Arc;

use lab::packets::{REMOTE, packet, tcp, udp};
use lab::{GUEST, Lab};
use ringway_nat::policy::Policy;
use ringway_nat::policy::question::Denial;
use ringway_nat::{Actions, Close, Due, FlowId, Guest, Refusal, Target, Verdict};
use ringway_net::Nanos;

const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 0x10;
const SYN_ACK: u8 = SYN | ACK;
const SERVER: [u8; 4] = [10, 0, 2, 3];
const OTHER: [u8; 4] = [198, 51, 100, 8];
const DENIED: Verdict = Verdict::Refused(Refusal::Denied);
const SECOND_NS: u64 = 1_000_000_000;

fn policy(allow: &[&str]) -> Option<(Arc<Policy>, Denial)> {
    let rules: Vec<_> = allow.iter().map(|rule| rule.parse().expect("a rule")).collect();
    Some((Arc::new(Policy::new(&rules, &[], &[])), Denial::Refused))
}

fn lab(allow: &[&str]) -> Lab {
    let mut lab = Lab::scripted();
    lab.nat.set_policy(GUEST, policy(allow));
    lab
}

fn wire(name: &str) -> Vec<u8> {
    let labels = name.split('.').flat_map(|label| {
        let len = u8::try_from(label.len()).expect("short");
        [&[len][..], label.as_bytes()].concat()
    });
    labels.chain([0]).collect()
}

/// The guest asks for the address of a name, in a message with number 7.
fn ask(lab: &mut Lab, name: &str) {
    let head = [0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let message = [&head[..], &wire(name), &[0, 1, 0, 1]].concat();
    lab.send(&packet(SERVER, 17, &udp(5353, 53, &message)));
}

/// The message that went to a resolver, and the flow in which it did.
fn asked(lab: &Lab) -> Option<(FlowId, Vec<u8>)> {
    let mut all = lab.host.fakes.values().filter(|it| matches!(it.to, Target::Resolver(_)));
    let fake = all.next_back()?;
    Some((fake.flow, fake.datagrams_out.last()?.clone()))
}

/// A resolver's answer to that message: one address, which may be remembered for a second.
fn answer(message: &[u8], address: [u8; 4]) -> Vec<u8> {
    let question = &message[12..message.len() - 11];
    let head = [&message[..2], &[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]].concat();
    let record = [&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4][..], &address].concat();
    [&head[..], question, &record].concat()
}

/// The DNS message in the frame that is due for the guest.
fn due(lab: &mut Lab) -> Option<Vec<u8>> {
    let message = match lab.nat.due(GUEST, lab.accepts)? {
        Due::Reply(frame) => frame[42..].to_vec(),
        Due::Flow(_) => return None,
    };
    lab.nat.replied(GUEST);
    Some(message)
}

/// The name has that address from now on, as the guest hears.
fn resolve(lab: &mut Lab, name: &str, address: [u8; 4]) {
    while due(lab).is_some() {}
    ask(lab, name);
    let (flow, message) = asked(lab).expect("it is asked outside");
    assert!(lab.nat.on_answer(flow, &answer(&message, address), lab.now));
    let heard = due(lab).expect("an answer");
    assert_eq!((&heard[..2], &heard[heard.len() - 4..]), (&[0, 7][..], &address[..]));
}

/// The guest opens a connection; the port that it comes from is another one each time.
fn open(lab: &mut Lab, to: [u8; 4], port: u16, from: u16) -> Verdict {
    lab.send(&packet(to, 6, &tcp((from, port), (1000, 0), SYN, &[&[], &[]])));
    *lab.verdicts.last().expect("a verdict")
}

fn connections(lab: &Lab) -> usize {
    let is_open = |to: &Target| matches!(to, Target::Address(_));
    lab.host.fakes.values().filter(|it| is_open(&it.to)).count()
}

#[test]
fn an_address_opens_when_an_allowed_name_has_it() {
    let mut lab = lab(&["tcp:80 a.example"]);
    assert_eq!(open(&mut lab, REMOTE, 80, 1), DENIED);
    resolve(&mut lab, "A.Example", REMOTE);
    let (_, message) = asked(&lab).expect("a question");
    assert_eq!(message[12..22], *b"\x01a\x07example", "nothing of the guest's but the name");
    assert_eq!(open(&mut lab, REMOTE, 80, 2), Verdict::Done);
    assert_eq!(open(&mut lab, REMOTE, 81, 3), DENIED, "another port");
    assert_eq!(open(&mut lab, OTHER, 80, 4), DENIED, "another address");
    assert_eq!(connections(&lab), 1);
    lab.send(&packet(REMOTE, 1, &[8, 0, 0, 0, 0, 1, 0, 1]));
    assert_eq!(lab.verdicts.last(), Some(&DENIED), "an echo request is none of a service");
}

#[test]
fn a_question_that_is_not_allowed_goes_nowhere() {
    let mut lab = lab(&["tcp:80 a.example"]);
    due(&mut lab);
    ask(&mut lab, "b.example");
    assert_eq!((lab.verdicts.last(), asked(&lab)), (Some(&Verdict::Done), None));
    let heard = due(&mut lab).expect("an answer");
    assert_eq!((heard[..2].to_vec(), heard[3] & 0xf), (vec![0, 7], 5), "refused");
    assert_eq!(open(&mut lab, SERVER, 53, 1), DENIED, "by TCP");
    assert_eq!(lab.host.fakes.len(), 0);
}

#[test]
fn an_answer_nobody_has_asked_for_opens_nothing() {
    let mut lab = lab(&["tcp:80 a.example"]);
    ask(&mut lab, "a.example");
    let (flow, message) = asked(&lab).expect("a question");
    while due(&mut lab).is_some() {}
    let mut wrong = answer(&message, REMOTE);
    wrong[1] ^= 1;
    assert!(lab.nat.on_answer(flow, &wrong, lab.now));
    assert_eq!((due(&mut lab), open(&mut lab, REMOTE, 80, 1)), (None, DENIED));
    // One of its own network, and one of the host's.
    for private in [[10, 0, 2, 15], [127, 0, 0, 1], [192, 168, 1, 1]] {
        ask(&mut lab, "a.example");
        let (flow, message) = asked(&lab).expect("a question");
        assert!(lab.nat.on_answer(flow, &answer(&message, private), lab.now));
        let heard = due(&mut lab).expect("an answer");
        assert_eq!(heard[7], 0, "it tells of no address");
    }
    assert_eq!(open(&mut lab, [192, 168, 1, 1], 80, 2), DENIED);
}

#[test]
fn an_address_stays_open_as_long_as_a_flow_uses_it_and_a_minute() {
    let mut lab = lab(&["tcp:80 a.example", "tcp:80 b.example"]);
    resolve(&mut lab, "a.example", REMOTE);
    resolve(&mut lab, "b.example", OTHER);
    lab.now = lab.now.plus(59 * SECOND_NS);
    lab.step();
    assert_eq!(open(&mut lab, REMOTE, 80, 1), Verdict::Done);
    for _ in 0..10 {
        lab.now = lab.now.plus(SECOND_NS);
        lab.step();
    }
    assert_eq!(open(&mut lab, OTHER, 80, 2), DENIED, "a minute is over");
    assert_eq!(open(&mut lab, REMOTE, 80, 3), Verdict::Done, "it is used");
}

#[test]
fn flows_that_another_policy_does_not_allow_are_ended() {
    let mut lab = lab(&["tcp:80 a.example", "tcp:80 b.example"]);
    resolve(&mut lab, "a.example", REMOTE);
    resolve(&mut lab, "b.example", OTHER);
    let opened = [open(&mut lab, REMOTE, 80, 1), open(&mut lab, OTHER, 80, 2)];
    assert_eq!(opened, [Verdict::Done; 2]);
    lab.nat.set_policy(GUEST, policy(&["tcp:80 b.example"]));
    let mut actions = Actions::new();
    let mut ended = 0;
    while lab.nat.end_a_denied_flow(GUEST, lab.now, &mut actions) {
        ended += actions.drain().count();
    }
    assert_eq!(ended, 1);
    assert_eq!(open(&mut lab, OTHER, 80, 3), Verdict::Done, "still bound");
    lab.nat.set_policy(GUEST, None);
    assert_eq!(open(&mut lab, REMOTE, 80, 4), Verdict::Done, "without a policy");
}

/// A hello of TLS that names that host (RFC 8446 §4.1.2, RFC 6066 §3).
fn hello(name: &str) -> Vec<u8> {
    let len = |bytes: &[u8]| u16::try_from(bytes.len()).expect("short").to_be_bytes();
    let list = |bytes: &[u8]| [&len(bytes)[..], bytes].concat();
    let names = list(&[&[0][..], &list(name.as_bytes())].concat());
    let extensions = list(&[&[0, 0][..], &list(&names)].concat());
    let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0], &extensions].concat();
    let message = [&[1, 0][..], &list(&body)].concat();
    [&[22, 3, 1][..], &list(&message)].concat()
}

/// A connection to port 443 that is open, with the number that the guest acknowledges.
fn connected(lab: &mut Lab) -> u32 {
    assert_eq!(open(lab, REMOTE, 443, 40_000), Verdict::Done);
    let heard = heard(lab);
    let [(SYN_ACK, seq, _)] = heard[..] else { panic!("{heard:?}") };
    let ack = seq.wrapping_add(1);
    say(lab, 1001, ack, &[]);
    ack
}

fn say(lab: &mut Lab, seq: u32, ack: u32, data: &[u8]) {
    let segment = tcp((40_000, 443), (seq, ack), ACK, &[&[], data]);
    lab.send(&packet(REMOTE, 6, &segment));
}

/// The segments that the guest hears: flags, sequence number, and bytes of data.
fn heard(lab: &mut Lab) -> Vec<(u8, u32, usize)> {
    lab.seen.clear();
    (0..5).for_each(|_| lab.step());
    let segments = lab.seen.iter().filter(|frame| frame[12..14] == [8, 0] && frame[23] == 6);
    let segments = segments.map(|frame| {
        let [len, at] = [usize::from(frame[17]) + 14, 34 + usize::from(frame[46] >> 4) * 4];
        let seq = frame[38..42].try_into().expect("four bytes");
        (frame[47], u32::from_be_bytes(seq), len - at)
    });
    segments.collect()
}

/// The bytes that the other end of the only connection has got.
fn received(lab: &mut Lab) -> Vec<u8> {
    (0..50).for_each(|_| lab.step());
    let mut all = lab.host.fakes.values().filter(|it| it.to == outside());
    all.next_back().expect("a connection").received.clone()
}

fn outside() -> Target {
    Target::Address((REMOTE, 443).into())
}

#[test]
fn a_connection_goes_on_when_its_hello_names_the_host_of_its_address() {
    let bytes = hello("a.example");
    for pieces in [vec![bytes.len()], vec![5, 1, 40], vec![1; 20]] {
        let mut lab = lab(&["a.example"]);
        resolve(&mut lab, "a.example", REMOTE);
        let ack = connected(&mut lab);
        let mut at = 0;
        for len in pieces.iter().copied().chain([bytes.len()]) {
            let piece = &bytes[at..bytes.len().min(at + len)];
            assert!(at == bytes.len() || received(&mut lab).is_empty(), "it is held");
            say(&mut lab, 1001 + u32::try_from(at).expect("short"), ack, piece);
            at += piece.len();
        }
        assert_eq!(received(&mut lab), bytes);
        say(&mut lab, 1001 + u32::try_from(at).expect("short"), ack, b"more");
        assert_eq!(received(&mut lab)[bytes.len()..], *b"more");
    }
}

#[test]
fn a_connection_that_names_another_host_is_refused() {
    let wrong = [hello("c.example"), hello("b.example"), b"GET / HTTP/1.1".to_vec()];
    for bytes in wrong {
        // The second one is allowed, but not at this address.
        let mut lab = lab(&["a.example", "b.example"]);
        resolve(&mut lab, "a.example", REMOTE);
        let ack = connected(&mut lab);
        say(&mut lab, 1001, ack, &bytes);
        assert_eq!(lab.verdicts.last(), Some(&DENIED));
        let heard = heard(&mut lab);
        let [(flags, seq, 7), (RST, ..)] = heard[..] else { panic!("an alert: {heard:?}") };
        assert_eq!((flags & ACK, seq), (ACK, ack));
        assert_eq!(received(&mut lab), b"");
        let mut all = lab.host.fakes.values().filter(|it| it.to == outside());
        assert_eq!(all.next_back().and_then(|it| it.closed), Some(Close::Reset));
    }
}

#[test]
fn a_connection_that_names_no_host_in_time_is_ended() {
    let mut lab = lab(&["a.example"]);
    resolve(&mut lab, "a.example", REMOTE);
    let ack = connected(&mut lab);
    say(&mut lab, 1001, ack, &hello("a.example")[..9]);
    (0..2900).for_each(|_| lab.step());
    assert_eq!(lab.nat.flows_of(GUEST), 2, "with the question's");
    (0..200).for_each(|_| lab.step());
    assert_eq!(lab.nat.flows_of(GUEST), 1);
}

#[test]
fn other_guests_have_nothing_to_do_with_it() {
    let mut lab = lab(&["tcp:80 a.example"]);
    assert!(!lab.nat.on_answer(FlowId::from_u64(0), &[0; 40], Nanos(0)));
    lab.nat.add_guest(Guest(4), "vm1");
    lab.sender = Guest(4);
    assert_eq!(open(&mut lab, REMOTE, 80, 1), Verdict::Done);
}
