//! Answers of resolvers under a policy: what a guest is told is what its name is bound to.

mod resolver;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::*;
use ringway_nat::policy::answer::{ADDRESSES_MAX, ALIASES_MAX, GuestAnswer, RECORDS_MAX};
use ringway_nat::policy::question::UpstreamQuestion;
use simple_dns::Packet;
use simple_dns::rdata::RData;

use resolver::{
    A, AAAA, CNAME, IN, MX, NS, Record, SRV, TXT, a, alias, message, question, record, wire, words,
    written,
};

const FINE: u16 = 0x8180;

fn all(_: IpAddr) -> bool {
    true
}

fn told(question: &UpstreamQuestion, records: &[Record]) -> GuestAnswer {
    question.answer(&message(question, FINE, records), all).expect("an answer to it")
}

fn code(answer: &GuestAnswer) -> u8 {
    answer.message[3] & 0xf
}

fn places(lasts: &[u8]) -> Vec<(IpAddr, u32)> {
    lasts.iter().map(|last| (Ipv4Addr::new(192, 0, 2, *last).into(), 300)).collect()
}

#[test]
fn a_guest_gets_its_own_question_and_the_records_of_its_name() {
    let asked = question("WWW.PyPI.org", A, Some(1232));
    let answer = told(&asked, &[a("www.pypi.org", 7), a("WWW.pypi.ORG", 8)]);
    let mut golden = words(&[0xabcd, 0x8180, 1, 2, 0, 1]);
    golden.extend(wire("WWW.PyPI.org"));
    golden.extend(words(&[A, IN]));
    for last in [7, 8] {
        golden.extend(words(&[0xc00c, A, IN, 0, 300, 4]));
        golden.extend([192, 0, 2, last]);
    }
    golden.push(0);
    golden.extend(words(&[41, 1232, 0, 0, 0]));
    let addresses = places(&[7, 8]);
    let expected = GuestAnswer { message: golden, addresses, dropped: vec![], is_truncated: false };
    assert_eq!(answer, expected);
    assert_eq!(asked.name().as_str(), "www.pypi.org");
}

#[test]
fn aliases_are_followed_from_the_name_of_the_question() {
    let asked = question("a.org", A, None);
    let records = [
        a("evil.net", 66),
        alias("b.cdn.net", "c.cdn.net"),
        alias("a.org", "B.cdn.net"),
        a("a.org", 67),
        a("b.cdn.net", 68),
        a("c.cdn.net", 1),
        record("c.cdn.net", AAAA, &[0x20; 16]),
        record("c.cdn.net", TXT, b"\x01x"),
        a("c.cdn.net", 2),
    ];
    let answer = told(&asked, &records);
    assert_eq!(answer.addresses, places(&[1, 2]));
    let packet = Packet::parse(&answer.message).expect("a message");
    let names: Vec<String> = packet.answers.iter().map(|it| it.name.to_string()).collect();
    assert_eq!(names, ["a.org", "b.cdn.net", "c.cdn.net", "c.cdn.net"]);
    let nothing = told(&asked, &[alias("x.org", "y.org"), a("y.org", 1)]);
    assert_eq!((code(&nothing), nothing.addresses), (0, vec![]));
    let unfinished = told(&asked, &[alias("a.org", "b.org")]);
    assert_eq!((code(&unfinished), unfinished.addresses), (0, vec![]));
}

#[test]
fn circles_and_long_chains_of_aliases_are_trouble() {
    let asked = question("n0.org", A, None);
    let chain = |len: usize| -> Vec<Record> {
        let link = |at: usize| alias(&format!("n{at}.org"), &format!("n{}.org", at + 1));
        (0..len).map(link).chain([a(&format!("n{len}.org"), 5)]).collect()
    };
    assert_eq!(told(&asked, &chain(ALIASES_MAX)).addresses, places(&[5]));
    let circle = vec![alias("n0.org", "x.org"), alias("x.org", "n0.org"), a("n0.org", 5)];
    for records in [chain(ALIASES_MAX + 1), circle, vec![alias("n0.org", "n0.org")]] {
        let answer = told(&asked, &records);
        assert_eq!((code(&answer), answer.addresses), (2, vec![]));
        assert_eq!(answer.message, asked.failure());
    }
}

#[test]
fn no_answer_opens_what_stands_for_others_or_must_not_be_opened() {
    let asked = question("rebind.org", AAAA, Some(1232));
    let texts =
        ["2001:db8::1", "::ffff:10.0.0.1", "64:ff9b::8.8.8.8", "64:ff9b:1::8.8.8.8", "fd00::1"];
    let texts = texts.map(|text| text.parse::<Ipv6Addr>().expect("an address"));
    let records = texts.map(|it| record("rebind.org", AAAA, &it.octets()));
    let is_private = |it: IpAddr| matches!(it, IpAddr::V6(it) if it.is_unique_local());
    let bytes = message(&asked, FINE, &records);
    let answer = asked.answer(&bytes, |it| !is_private(it)).expect("an answer to it");
    assert_eq!(answer.addresses, [(texts[0].into(), 300)]);
    assert_eq!(answer.dropped, texts[1..].iter().map(|it| IpAddr::V6(*it)).collect::<Vec<_>>());
    assert!(answer.message.ends_with(&words(&[6, 15, 2, 15])), "the guest is told so");
    let none = question("rebind.org", A, None);
    let bytes = message(&none, FINE, &[a("rebind.org", 1)]);
    let none = none.answer(&bytes, |_| false).expect("an answer to it");
    assert_eq!((code(&none), none.addresses.len(), none.dropped.len()), (0, 0, 1));
}

#[test]
fn only_the_answer_to_the_question_counts() {
    let asked = question("a.org", A, None);
    let good = message(&asked, FINE, &[a("a.org", 1)]);
    assert!(asked.answer(&good, all).is_some());
    // Number, the bits that say what it is, how many questions, and the question itself.
    let question_end = 12 + wire("a.org").len() + 4;
    for at in [0, 1, 4, 5].into_iter().chain(12..question_end) {
        let mut other = good.clone();
        other[at] ^= 2;
        assert_eq!(asked.answer(&other, all), None, "{at}");
    }
    for flags in [0x0180, 0xa980, 0x8980] {
        assert_eq!(asked.answer(&message(&asked, flags, &[a("a.org", 1)]), all), None);
    }
    for len in 0..good.len() {
        let answer = asked.answer(&good[..len], all);
        assert_eq!(answer.is_some(), len >= question_end, "{len}");
        assert!(answer.is_none_or(|it| it.message == asked.failure()));
    }
}

#[test]
fn trouble_of_the_resolver_is_trouble_and_no_name_is_no_name() {
    let asked = question("a.org", A, None);
    for trouble in [1, 2, 4, 5, 9, 15] {
        for records in [&[][..], &[a("a.org", 1)]] {
            let answer = asked.answer(&message(&asked, FINE | trouble, records), all);
            let answer = answer.map(|it| (it.message, it.addresses));
            assert_eq!(answer, Some((asked.failure(), vec![])), "{trouble}");
        }
    }
    let no_name = asked.answer(&message(&asked, FINE | 3, &[alias("a.org", "b.org")]), all);
    let no_name = no_name.expect("an answer to it");
    assert_eq!((code(&no_name), no_name.message[7]), (3, 1), "the alias is told");
    let odd = asked.answer(&message(&asked, FINE | 3, &[a("a.org", 1)]), all);
    assert_eq!(odd.map(|it| (it.message, it.addresses)), Some((asked.failure(), vec![])));
}

#[test]
fn what_stands_behind_the_answers_is_not_read() {
    let asked = question("a.org", A, None);
    let mut bytes = message(&asked, FINE, &[a("a.org", 1)]);
    bytes[8..12].copy_from_slice(&[0xff; 4]);
    bytes.extend([0xff; 30]);
    assert_eq!(asked.answer(&bytes, all), Some(told(&asked, &[a("a.org", 1)])));
}

#[test]
fn names_in_records_are_written_out() {
    let pointer = |head: &[u8]| [head, &[1, b'x', 0xc0, 12]].concat();
    let plain = |head: &[u8]| [head, &wire("x.a.org")].concat();
    for (kind, head) in [(MX, &[0, 10][..]), (NS, &[]), (SRV, &[0, 1, 0, 2, 0, 80]), (12, &[])] {
        let asked = question("a.org", kind, None);
        let answer = told(&asked, &[record("a.org", kind, &pointer(head)), a("x.a.org", 1)]);
        let same = told(&asked, &[record("a.org", kind, &plain(head))]);
        assert_eq!(answer, same);
        let packet = Packet::parse(&answer.message).expect("a message");
        let target = match &packet.answers[0].rdata {
            RData::MX(it) => it.exchange.to_string(),
            RData::SRV(it) => it.target.to_string(),
            RData::NS(it) => it.0.to_string(),
            RData::PTR(it) => it.0.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!((target.as_str(), answer.addresses), ("x.a.org", vec![]));
    }
    let asked = question("a.org", CNAME, None);
    assert_eq!(told(&asked, &[alias("a.org", "a.org")]).message[7], 1, "not followed");
}

#[test]
fn pointers_that_lead_nowhere_are_trouble() {
    let asked = question("a.org", A, None);
    let at = u16::try_from(message(&asked, FINE, &[]).len()).expect("short");
    for pointer in [at, at + 1, at + 2, 0x3fff] {
        let name = words(&[0xc000 | pointer]);
        let record = Record { name, ..a("a.org", 1) };
        assert_eq!(told(&asked, &[record, a("a.org", 2)]).message, asked.failure());
    }
    let class = |class: u8| {
        let mut bytes = message(&asked, FINE, &[a("a.org", 1), a("a.org", 2)]);
        bytes[usize::from(at) + wire("a.org").len() + 2] = class;
        asked.answer(&bytes, all).expect("an answer to it").addresses
    };
    assert_eq!((class(0), class(0x80)), (places(&[1, 2]), places(&[2])));
}

#[test]
fn nothing_is_remembered_longer_than_a_day() {
    let asked = question("a.org", A, None);
    for (ttl_s, told_s) in [(0, 0), (86_400, 86_400), (86_401, 86_400), (1 << 31, 0)] {
        let answer = told(&asked, &[Record { ttl_s, ..a("a.org", 1) }]);
        assert_eq!(answer.addresses[0].1, told_s);
        assert_eq!(Packet::parse(&answer.message).expect("a message").answers[0].ttl, told_s);
    }
}

#[test]
fn long_answers_are_cut_to_what_the_guest_takes_and_binds() {
    let many: Vec<Record> = (0..=u8::MAX).cycle().take(500).map(|last| a("a.org", last)).collect();
    assert_eq!(told(&question("a.org", A, None), &many).addresses.len(), ADDRESSES_MAX);
    let texts: Vec<Record> =
        (0..40).map(|_| record("a.org", TXT, &[&[200][..], &[b'x'; 200]].concat())).collect();
    for (len_max, sent_max) in [(None, 65_535), (Some(0), 512), (Some(4096), 1232)] {
        let answer = told(&question("a.org", TXT, len_max), &texts);
        assert!(answer.message.len() <= sent_max);
        assert_eq!(answer.message[2] & 2 != 0, len_max.is_some(), "the guest asks by TCP");
        assert!(!answer.is_truncated, "the resolver has said all");
        assert!(answer.message[7] >= 2, "as many as there is room for");
    }
    let cut = told(&question("a.org", A, Some(512)), &many);
    assert!(
        cut.addresses.len() < ADDRESSES_MAX && usize::from(cut.message[7]) == cut.addresses.len()
    );
    let asked = question("a.org", A, None);
    let answer = asked.answer(&message(&asked, FINE | 0x200, &many[..1]), all).expect("an answer");
    assert!(answer.is_truncated && answer.message[2] & 2 != 0);
}

#[test]
fn the_worst_message_is_read() {
    let asked = question("a.org", A, None);
    let mut bytes = message(&asked, FINE, &[]);
    // Pointers that lead from one to the next, as far as pointers reach; and records behind them.
    let begin = bytes.len();
    let first = Record { name: vec![0], kind: 10, ttl_s: 0, data: vec![0; 16_370 - begin] };
    bytes.extend(written(&first));
    let data = begin + 11;
    let last = (data..bytes.len() - 2).step_by(2).next_back().expect("room");
    for at in (data + 2..=last).step_by(2) {
        let to = u16::try_from(at - 2).expect("pointers reach that far");
        bytes[at..at + 2].copy_from_slice(&(0xc000 | to).to_be_bytes());
    }
    let name = words(&[0xc000 | u16::try_from(last).expect("pointers reach that far")]);
    for _ in 1..RECORDS_MAX {
        bytes.extend(written(&Record { name: name.clone(), ..a("a.org", 1) }));
    }
    bytes[6..8].copy_from_slice(&u16::MAX.to_be_bytes());
    let begin = std::time::Instant::now();
    let answer = asked.answer(&bytes, all).expect("an answer to it");
    println!("{:?} for {} bytes", begin.elapsed(), bytes.len());
    assert_eq!((code(&answer), answer.addresses), (0, vec![]));
}

/// Names below two domains, few enough that they meet.
fn any_name() -> impl Strategy<Value = String> {
    (0..4u8, prop::sample::select(vec!["org", "net"])).prop_map(|(at, top)| format!("N{at}.{top}"))
}

fn any_record() -> impl Strategy<Value = Record> {
    let kinds = prop::sample::select(vec![A, A, A, AAAA, CNAME, CNAME, TXT]);
    (any_name(), kinds, any_name(), any::<u8>(), 0..200_000u32).prop_map(
        |(name, kind, target, last, ttl_s)| {
            let data = match kind {
                A => vec![192, 0, 2, last],
                AAAA => [&[0x20, 1][..], &[0; 13], &[last]].concat(),
                CNAME => wire(&target),
                _ => vec![1, last],
            };
            Record { ttl_s, ..record(&name, kind, &data) }
        },
    )
}

fn is_opened(address: IpAddr) -> bool {
    let octets = match address {
        IpAddr::V4(it) => it.octets().to_vec(),
        IpAddr::V6(it) => it.octets().to_vec(),
    };
    octets.last().is_some_and(|last| last % 4 != 0)
}

/// The addresses at the end of a name's aliases; `None`: there is no end.
fn looked_up(name: &str, kind: u16, records: &[Record]) -> Option<Vec<(IpAddr, u32)>> {
    let (mut name, mut count) = (wire(name), 0);
    let is_named = |it: &&Record, name: &[u8]| it.name.eq_ignore_ascii_case(name);
    while let Some(next) = records.iter().find(|it| is_named(it, &name) && it.kind == CNAME) {
        name.clone_from(&next.data);
        count += 1;
        if count > records.len() {
            return None;
        }
    }
    let found = records.iter().filter(|it| is_named(it, &name) && it.kind == kind);
    let found = found.map(|it| {
        let address = match <[u8; 4]>::try_from(&it.data[..]) {
            Ok(four) => IpAddr::from(four),
            Err(_) => IpAddr::from(<[u8; 16]>::try_from(&it.data[..]).expect("an address")),
        };
        (address, it.ttl_s.min(86_400))
    });
    Some(found.filter(|(address, _)| is_opened(*address)).collect())
}

proptest! {
    #[test]
    fn addresses_are_those_at_the_end_of_the_aliases(
        records in vec(any_record(), 0..12),
        kind in prop::sample::select(vec![A, AAAA]),
    ) {
        let asked = question("n0.org", kind, None);
        let answer = asked.answer(&message(&asked, FINE, &records), is_opened);
        let answer = answer.expect("an answer to it");
        let expected = looked_up("n0.org", kind, &records);
        prop_assert_eq!(code(&answer) == 2, expected.is_none());
        prop_assert_eq!(answer.addresses, expected.unwrap_or_default());
    }

    #[test]
    fn a_guest_is_told_of_nothing_that_is_not_bound_whatever_comes(
        records in vec(any_record(), 0..8),
        more in vec(any::<u8>(), 0..100),
        changes in vec((18..400usize, any::<u8>()), 0..6),
        counts in vec(any::<u16>(), 0..3),
        len_max in prop::sample::select(vec![None, Some(0), Some(600)]),
        flags in prop::sample::select(vec![FINE, FINE, FINE, 0x8380, 0x8183]),
    ) {
        let asked = question("N0.org", A, len_max);
        let mut bytes = [message(&asked, flags, &records), more].concat();
        let end = 12 + wire("n0.org").len() + 4;
        for (at, byte) in changes {
            if let Some(to) = bytes.get_mut(at).filter(|_| at >= end) {
                *to = byte;
            }
        }
        for (at, count) in counts.into_iter().enumerate() {
            bytes[6 + 2 * at..8 + 2 * at].copy_from_slice(&count.to_be_bytes());
        }
        let answer = asked.answer(&bytes, is_opened).expect("an answer to it");
        let most = len_max.map_or(65_535, |len| usize::from(len).max(512));
        prop_assert!(answer.message.len() <= most);
        let packet = Packet::parse(&answer.message).expect("a message");
        prop_assert_eq!(packet.id(), 0xabcd);
        prop_assert_eq!(packet.questions[0].qname.to_string(), "N0.org");
        let told: BTreeSet<IpAddr> = packet.answers.iter().filter_map(|it| match &it.rdata {
            RData::A(it) => Some(Ipv4Addr::from(it.address).into()),
            RData::AAAA(it) => Some(Ipv6Addr::from(it.address).into()),
            _ => None,
        }).collect();
        prop_assert!(told.iter().all(|it| is_opened(*it)));
        prop_assert_eq!(told, answer.addresses.iter().map(|it| it.0).collect::<BTreeSet<_>>());
    }
}
