//! Messages of a guest with a policy to the outside, and the answers of resolvers.

use std::net::IpAddr;

use ringway_nat::policy::Policy;
use ringway_nat::policy::bindings::Bindings;
use ringway_nat::policy::hello::{HELLO_LEN_MAX, Hello, HelloReader, HelloRefusal};
use ringway_nat::policy::question::{Denial, KEPT_KINDS, QuestionStep, UpstreamQuestion, judge};
use ringway_net::Nanos;

/// Most bytes of a record that an input chooses.
const RECORD_LEN_MAX: usize = 300;

/// The number of questions to the resolver.
const OWN: u16 = 0x1234;
const HEADER_LEN: usize = 12;
/// Kinds of records, and of questions.
const A: u8 = 1;
const CNAME: u8 = 5;
const TXT: u8 = 16;

/// The first bytes of a connection: as they are, in records, or as extensions of a hello.
pub(crate) fn hello(data: &[u8]) {
    let Some((&[how, len, cut], rest)) = data.split_first_chunk() else { return };
    let len = usize::from(len) * 2 % RECORD_LEN_MAX + 1;
    let bytes = match how & 3 {
        0 => rest.to_vec(),
        1 => in_records(rest, len),
        2 => in_records(&message(rest), len),
        _ => in_records(&message(&with_extensions(rest)), len),
    };
    let mut reader = HelloReader::default();
    let mut before = Hello::More;
    for end in (0..bytes.len()).step_by(usize::from(cut) * 4 + 1).chain([bytes.len()]) {
        let now = reader.read(&bytes[..end]);
        assert!(before == Hello::More || before == now, "{before:?}, then {now:?}");
        before = now;
    }
    assert_eq!(HelloReader::default().read(&bytes), before, "the same in one piece");
    if bytes.len() >= HELLO_LEN_MAX {
        assert_ne!(before, Hello::More, "it has an end");
    }
    let is_a_record = bytes.first().is_none_or(|kind| *kind == 22);
    assert!(is_a_record || before == Hello::Refused(HelloRefusal::NotTls));
}

fn in_records(message: &[u8], len: usize) -> Vec<u8> {
    let records = message.chunks(len).map(|part| [&[22, 3, 1][..], &list(part)].concat());
    records.collect::<Vec<_>>().concat()
}

fn list(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes()[..], bytes].concat()
}

/// The message of a hello with that body.
fn message(body: &[u8]) -> Vec<u8> {
    [&[1, 0][..], &list(body)].concat()
}

/// The body of a hello that has a `server_name` among its extensions: one choice of content, kind
/// and bytes for each pair of the input.
fn with_extensions(data: &[u8]) -> Vec<u8> {
    let mut extensions = Vec::new();
    for &[kind, choice] in data.as_chunks().0.iter().take(64) {
        let content = match choice % 8 {
            0 => vec![choice],
            1 => list(&[&[0][..], &list(b"192.0.2.1")].concat()),
            2 => list(&[&[kind & 1][..], &list(&[b'a', b'.', choice])].concat()),
            3 => list(data.get(..usize::from(choice)).unwrap_or_default()),
            _ => list(&[&[0][..], &list(b"a.example.org")].concat()),
        };
        extensions.extend([&[0, kind & choice][..], &list(&content)].concat());
    }
    [&[3, 3][..], &[0; 32], &[0], &list(&[0x13, 1]), &[1, 0], &list(&extensions)].concat()
}

fn policy() -> Policy {
    let rule = |text: &str| text.parse().expect("a rule");
    Policy::new(&[rule(".a.org")], &[rule("no.a.org")], &[])
}

/// A message to the router's name server: a name that may be allowed, then what the input says.
pub(crate) fn question(data: &[u8]) {
    let Some((&[how, kind], rest)) = data.split_first_chunk() else { return };
    let name: &[u8] = match how & 7 {
        0 => b"\x02No\x01a\x03org\0",
        1 => b"\x05_8443\x06_https\x01a\x03org\0",
        2 | 3 => b"",
        _ => b"\x01X\x01A\x03oRg\0",
    };
    let head = [how, kind, how & 0x11, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    let message = match how & 7 {
        3 => rest.to_vec(),
        _ => [&head[..], name, &[0, kind, 0, 1], rest].concat(),
    };
    let denial = if how & 0x20 == 0 { Denial::Refused } else { Denial::NoName };
    let policy = policy();
    let Some(verdict) = judge(&message, how & 0x40 != 0, OWN, &policy, denial) else { return };
    match &verdict.step {
        QuestionStep::Answer(answer) => {
            assert!(answer.len() <= 512 && answer[..2] == message[..2] && answer[6..10] == [0; 4]);
            assert_eq!(verdict.decision.is_open(), answer[3] & 0xf == 0);
        }
        QuestionStep::Ask(question) => {
            let name = question.name();
            assert!(policy.question(name).is_open());
            let known = KEPT_KINDS.map(|kind| outside(name.as_str(), kind));
            assert!(known.contains(&question.message()), "nothing else leaves");
        }
    }
}

/// The questions that a resolver may be asked about a name.
fn outside(name: &str, kind: u16) -> Vec<u8> {
    let labels = name
        .split('.')
        .flat_map(|label| [&[u8::try_from(label.len()).unwrap_or(0)], label.as_bytes()].concat());
    let mut message = OWN.to_be_bytes().to_vec();
    message.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
    message.extend(labels);
    message.push(0);
    message.extend([kind, 1].map(u16::to_be_bytes).as_flattened());
    message.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    message
}

fn asked(how: u8) -> Option<UpstreamQuestion> {
    let mut message = vec![1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    message.extend(b"\x01X\x01A\x03oRg\0");
    let kind = KEPT_KINDS[usize::from(how >> 4) % KEPT_KINDS.len()];
    message.extend([kind, 1].map(u16::to_be_bytes).as_flattened());
    message.extend([0, 0, 41, how, 0, 0, 0, 0, 0, 0, 0]);
    match judge(&message, how & 1 != 0, OWN, &policy(), Denial::Refused)?.step {
        QuestionStep::Ask(question) => Some(question),
        QuestionStep::Answer(_) => None,
    }
}

fn is_opened(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(it) => it.octets()[3] & 3 != 0,
        IpAddr::V6(it) => it.octets()[15] & 3 != 0,
    }
}

/// An answer of a resolver: its question, then records that the input chooses, or any bytes.
pub(crate) fn answer(data: &[u8]) {
    let Some((&[how, flags, count], rest)) = data.split_first_chunk() else { return };
    let Some(question) = asked(how) else { return };
    let mut message = question.message();
    message.truncate(message.len() - 11);
    let head = [0x80 | flags & 6, flags >> 4 & 3, 0, 1, 0, count, 0, 0, 0, 9];
    message[2..HEADER_LEN].copy_from_slice(&head);
    if how & 2 == 0 {
        let records = add_records(&mut message, flags, rest);
        message[7] = if flags & 1 == 0 { records } else { records.min(count) };
    } else {
        message.extend(rest);
    }
    let Some(answer) = question.answer(&message, is_opened) else {
        panic!("it answers this question");
    };
    let taken = (usize::from(how) << 8).clamp(512, 1232);
    let most = if how & 1 == 0 { taken } else { usize::from(u16::MAX) };
    assert!(answer.message.len() <= most && answer.message[..2] == [1, 2]);
    assert!(answer.message[HEADER_LEN..].starts_with(b"\x01X\x01A\x03oRg\0"));
    assert!(answer.addresses.iter().all(|(address, _)| is_opened(*address)));
    assert!(usize::from(answer.message[7]) >= answer.addresses.len());
    let mut bindings = Bindings::default();
    assert_eq!(bindings.bind(question.name(), &answer.addresses, Nanos(0)), 0);
}

/// Adds records, one for each six bytes: name, kind, and what is in it; odd ones and aliases if the
/// flags say so. Returns how many.
fn add_records(message: &mut Vec<u8>, flags: u8, data: &[u8]) -> u8 {
    let (is_odd, has_aliases) = (flags & 1 != 0, flags & 8 != 0);
    let (mut last, mut count) = ([0xc0, 0x0c], 0);
    for &[name, kind, pointer, low, content, ttl] in data.as_chunks().0.iter().take(64) {
        match name % 8 {
            0 if is_odd => message.extend([0xc0 | pointer & 0x3f, low]),
            1 => message.extend([1, name, 0]),
            2 | 3 => message.extend([0xc0, 0x0c]),
            _ => message.extend(last),
        }
        let kind = match kind % 8 {
            0 if is_odd => kind,
            1 | 2 if has_aliases => CNAME,
            3 => 28,
            4 | 5 => TXT,
            _ => A,
        };
        message.extend([0, kind, 0, 1 + u8::from(ttl == 7), ttl, 0, 1, low]);
        let at = u16::try_from(message.len() + 2).unwrap_or(0);
        let data = match kind {
            A => vec![192, 0, 2, content],
            TXT => [&[200][..], &[content; 200]].concat(),
            28 => [&[0x20, 1][..], &[0; 13], &[content]].concat(),
            CNAME if content & 0x80 == 0 => vec![1, content, 0xc0, 0x0e],
            CNAME => vec![1, content, 0xc0, 0x0c],
            _ => vec![1, content, pointer, low, 0],
        };
        if kind == CNAME {
            last = (0xc000 | at).to_be_bytes();
        }
        message.extend(list(&data));
        count += 1;
    }
    count
}
