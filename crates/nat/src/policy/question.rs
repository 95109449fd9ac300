//! A guest's question to resolvers, under a policy: what it asks for, and whether it may.
//!
//! Nothing of a guest's message leaves but an allowed name: the question that goes outside is a
//! new message. What cannot be allowed is answered here, with the reason for those that read it
//! (RFC 8914).
//!
//! Limits: records other than those of [`KEPT_KINDS`] do not exist, those for services with
//! encryption keys and hints about addresses (RFC 9460) among them. A guest's own EDNS is read if
//! it is the first record behind the question, where everyone puts it.

use super::name::HostName;
use super::{Decision, Policy};
use crate::names::{self, Question};
use crate::packet::{array, word};

/// Longest datagram of the name service, in bytes, that crosses networks in one piece.
const DATAGRAM_LEN_MAX: u16 = 1232;
/// Longest one for those that do not say what they take (RFC 1035 §2.3.4).
const DATAGRAM_LEN_MIN: u16 = 512;

const HEADER_LEN: usize = 12;
const SVCB: u16 = 64;
const HTTPS: u16 = 65;
const OPT: u16 = 41;
/// Kinds that ask for more than records of one kind (RFC 6895 §3.1).
const META: std::ops::RangeInclusive<u16> = 128..=255;

/// Kinds of records that guests get: A, NS, CNAME, SOA, PTR, MX, TXT, AAAA, SRV.
pub const KEPT_KINDS: [u16; 9] = [1, 2, 5, 6, 12, 15, 16, 28, 33];

pub(super) const NO_ERROR: u8 = 0;
pub(super) const SERVER_FAILURE: u8 = 2;
pub(super) const NAME_ERROR: u8 = 3;
pub(super) const REFUSED: u8 = 5;
/// `Blocked`: the operator of the resolver wants it so (RFC 8914 §4.16).
pub(super) const BLOCKED: u16 = 15;

/// In the third byte of a header.
pub(super) const IS_ANSWER: u8 = 0x80;
pub(super) const OPCODE: u8 = 0x78;
pub(super) const IS_TRUNCATED: u8 = 2;
const RECURSION_WANTED: u8 = 1;
/// In the fourth byte.
const RECURSION_THERE: u8 = 0x80;
const CHECKING_DISABLED: u8 = 0x10;

/// How a name is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Denial {
    /// `REFUSED`: others may know the name.
    #[default]
    Refused,
    /// `NXDOMAIN`: for programs that take a resolver for broken that refuses.
    NoName,
}

/// The outcome of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionVerdict {
    /// The name that was judged; `None`: no host can have it, or there is none.
    pub name: Option<HostName>,
    /// Denied without a rule, too, where the kind of the question is.
    pub decision: Decision,
    /// The next step.
    pub step: QuestionStep,
}

/// The next step after a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuestionStep {
    /// The guest gets this message.
    Answer(Vec<u8>),
    /// A resolver outside has to be asked.
    Ask(UpstreamQuestion),
}

/// A question to a resolver outside, and the guest's for which it is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamQuestion {
    pub(super) name: HostName,
    pub(super) kind: u16,
    pub(super) number: u16,
    /// In lower case.
    pub(super) section: Vec<u8>,
    pub(super) asker: Asker,
}

/// The message of a guest, as far as an answer repeats it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asker {
    number: [u8; 2],
    /// Third and fourth byte of the header.
    flags: [u8; 2],
    /// The question as the guest spelled it; empty: there is not one.
    pub(super) section: Vec<u8>,
    has_edns: bool,
    /// Longest answer that it takes.
    pub(super) len_max: usize,
}

/// Judges a message of a guest. `is_stream`: it came by TCP; `number`: the one of a question
/// outside. `None`: it is none that could be answered.
pub fn judge(
    message: &[u8],
    is_stream: bool,
    number: u16,
    policy: &Policy,
    denial: Denial,
) -> Option<QuestionVerdict> {
    let asker = Asker::of(message, is_stream)?;
    let refusal = |name, rule, code| QuestionVerdict {
        name,
        decision: Decision::Denied(rule),
        step: QuestionStep::Answer(asker.reply(code, 0, Some(BLOCKED), (0, &[]))),
    };
    let question = Question::parse(message);
    let Some((name, kind)) = question.and_then(|it| Some((judged(&it)?, it.kind()))) else {
        return Some(refusal(None, None, REFUSED));
    };
    let decision = policy.question(&name);
    if let Decision::Denied(rule) = decision {
        let code = if denial == Denial::NoName { NAME_ERROR } else { REFUSED };
        return Some(refusal(Some(name), rule, code));
    }
    if META.contains(&kind) || kind == OPT || kind == 0 {
        return Some(refusal(Some(name), None, REFUSED));
    }
    let step = if KEPT_KINDS.contains(&kind) {
        QuestionStep::Ask(UpstreamQuestion::new(name.clone(), kind, number, asker))
    } else {
        QuestionStep::Answer(asker.reply(NO_ERROR, 0, None, (0, &[])))
    };
    Some(QuestionVerdict { name: Some(name), decision, step })
}

/// The host that a question is about. Services have their port and scheme in front of it
/// (`_8443._https.example.net`, RFC 9460 §9.1).
fn judged(question: &Question<'_>) -> Option<HostName> {
    let mut name = question.name();
    while matches!(question.kind(), SVCB | HTTPS) && name.starts_with('_') {
        name = name.split_once('.')?.1;
    }
    HostName::parse(name)
}

impl UpstreamQuestion {
    fn new(name: HostName, kind: u16, number: u16, asker: Asker) -> Self {
        // No length and neither kind nor class is a letter in upper case.
        let section = asker.section.to_ascii_lowercase();
        Self { name, kind, number, section, asker }
    }

    /// The name that the guest asked for.
    pub fn name(&self) -> &HostName {
        &self.name
    }

    /// The message for the resolver.
    pub fn message(&self) -> Vec<u8> {
        let mut message = self.number.to_be_bytes().to_vec();
        message.extend([RECURSION_WANTED, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
        message.extend(&self.section);
        message.extend(edns(None));
        message
    }

    pub(super) fn has_number(&self, number: u16) -> bool {
        self.number == number
    }

    /// The guest's answer if the resolver gives none.
    pub fn failure(&self) -> Vec<u8> {
        self.asker.reply(SERVER_FAILURE, 0, None, (0, &[]))
    }
}

impl Asker {
    fn of(message: &[u8], is_stream: bool) -> Option<Self> {
        let header: [u8; HEADER_LEN] = array(message, 0)?;
        let [high, low, second, third, ..] = header;
        if second & IS_ANSWER != 0 {
            return None;
        }
        let is_one = word(&header, 4) == Some(1);
        let end = names::question_end(message).filter(|_| is_one);
        let behind = end.and_then(|end| message.get(end..)).unwrap_or_default();
        let takes = edns_len(behind).filter(|_| header[6..10] == [0; 4] && header[10..] != [0; 2]);
        let len_max =
            takes.map_or(DATAGRAM_LEN_MIN, |len| len.clamp(DATAGRAM_LEN_MIN, DATAGRAM_LEN_MAX));
        Some(Self {
            number: [high, low],
            flags: [second & (OPCODE | RECURSION_WANTED), third & CHECKING_DISABLED],
            section: end.map_or(Vec::new(), |end| message[HEADER_LEN..end].to_vec()),
            has_edns: takes.is_some(),
            len_max: usize::from(if is_stream { u16::MAX } else { len_max }),
        })
    }

    /// The length of a reply without answers.
    pub(super) fn reply_len(&self) -> usize {
        HEADER_LEN + self.section.len() + if self.has_edns { edns(None).len() } else { 0 }
    }

    /// An answer, with so many records in those bytes. `flags`: more of the third byte; `error`:
    /// an extended one (RFC 8914).
    pub(super) fn reply(
        &self,
        code: u8,
        flags: u8,
        error: Option<u16>,
        (count, answers): (u16, &[u8]),
    ) -> Vec<u8> {
        let mut reply = self.number.to_vec();
        reply.push(IS_ANSWER | self.flags[0] | flags);
        reply.push(RECURSION_THERE | self.flags[1] | code);
        let questions = u16::from(!self.section.is_empty());
        reply.extend(
            [questions, count, 0, self.has_edns.into()].map(u16::to_be_bytes).as_flattened(),
        );
        reply.extend(&self.section);
        reply.extend(answers);
        if self.has_edns {
            reply.extend(edns(error));
        }
        reply
    }
}

/// The bytes that a guest takes in one datagram, if EDNS comes next.
fn edns_len(record: &[u8]) -> Option<u16> {
    let is_edns = record.first() == Some(&0) && word(record, 1) == Some(OPT);
    word(record, 3).filter(|_| is_edns)
}

/// The record of EDNS (RFC 6891 §6.1.2), without flags.
fn edns(error: Option<u16>) -> Vec<u8> {
    const EXTENDED_ERROR: u16 = 15;
    let mut record = vec![0];
    record.extend([OPT, DATAGRAM_LEN_MAX, 0, 0].map(u16::to_be_bytes).as_flattened());
    match error {
        Some(error) => {
            record.extend([6, EXTENDED_ERROR, 2, error].map(u16::to_be_bytes).as_flattened());
        }
        None => record.extend([0, 0]),
    }
    record
}
