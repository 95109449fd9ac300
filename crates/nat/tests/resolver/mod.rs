//! A guest's questions, and a resolver's answers to them.

use ringway_nat::policy::Policy;
use ringway_nat::policy::question::{Denial, QuestionStep, UpstreamQuestion, judge};

pub const IN: u16 = 1;
pub const A: u16 = 1;
pub const NS: u16 = 2;
pub const CNAME: u16 = 5;
pub const MX: u16 = 15;
pub const TXT: u16 = 16;
pub const AAAA: u16 = 28;
pub const SRV: u16 = 33;

pub fn words(words: &[u16]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

pub fn wire(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).expect("short"));
        bytes.extend(label.bytes());
    }
    bytes.push(0);
    bytes
}

/// A question of a guest for that name, which takes answers of such a length, or came by TCP.
pub fn question(name: &str, kind: u16, len_max: Option<u16>) -> UpstreamQuestion {
    let policy = Policy::new(&[".org".parse().expect("a rule")], &[], &[]);
    let mut message = words(&[0xabcd, 0x0100, 1, 0, 0, u16::from(len_max.is_some())]);
    message.extend(wire(name));
    message.extend(words(&[kind, IN]));
    if let Some(len) = len_max {
        message.push(0);
        message.extend(words(&[41, len, 0, 0, 0]));
    }
    let verdict = judge(&message, len_max.is_none(), 77, &policy, Denial::Refused);
    match verdict.expect("a question").step {
        QuestionStep::Ask(question) => question,
        QuestionStep::Answer(answer) => panic!("{answer:?}"),
    }
}

#[derive(Debug, Clone)]
pub struct Record {
    pub name: Vec<u8>,
    pub kind: u16,
    pub ttl_s: u32,
    pub data: Vec<u8>,
}

pub fn record(name: &str, kind: u16, data: &[u8]) -> Record {
    Record { name: wire(name), kind, ttl_s: 300, data: data.to_vec() }
}

pub fn a(name: &str, last: u8) -> Record {
    record(name, A, &[192, 0, 2, last])
}

pub fn alias(name: &str, target: &str) -> Record {
    record(name, CNAME, &wire(target))
}

pub fn written(record: &Record) -> Vec<u8> {
    let len = u16::try_from(record.data.len()).expect("short");
    let head = words(&[record.kind, IN]);
    let ttl = record.ttl_s.to_be_bytes();
    [&record.name[..], &head, &ttl, &len.to_be_bytes(), &record.data].concat()
}

/// A message of the resolver to a question: the words of its header from the second one on, its
/// question, and what stands behind it.
pub fn message(question: &UpstreamQuestion, flags: u16, records: &[Record]) -> Vec<u8> {
    let asked = question.message();
    let count = u16::try_from(records.len()).expect("few");
    let records: Vec<u8> = records.iter().flat_map(written).collect();
    let behind = &asked[12..asked.len() - 11];
    [&asked[..2], &words(&[flags, 1, count, 0, 0]), behind, &records].concat()
}
