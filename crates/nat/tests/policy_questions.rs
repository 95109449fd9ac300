//! Questions of a guest with a policy: what leaves is an allowed name, and nothing else of them.

use proptest::collection::vec;
use proptest::prelude::*;
use ringway_nat::policy::name::HostName;
use ringway_nat::policy::question::{Denial, KEPT_KINDS, QuestionStep, QuestionVerdict, judge};
use ringway_nat::policy::{Decision, Policy, RuleId};

const IN: u16 = 1;
const A: u16 = 1;
const HTTPS: u16 = 65;
/// The number of questions to the resolver.
const OWN: u16 = 0x1234;

fn policy() -> Policy {
    let rules = |texts: &[&str]| -> Vec<_> {
        texts.iter().map(|text| text.parse().expect("a rule")).collect()
    };
    Policy::new(&rules(&["pypi.org", "tcp:22 .example.net"]), &rules(&["no.example.net"]), &[])
}

const ALLOWED: RuleId = RuleId { is_allowing: true, index: 0 };
const DENIED: RuleId = RuleId { is_allowing: false, index: 0 };

fn words(words: &[u16]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A question as its section.
fn section(name: &str, kind: u16, class: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        bytes.push(u8::try_from(label.len()).expect("short"));
        bytes.extend(label.bytes());
    }
    bytes.push(0);
    bytes.extend(words(&[kind, class]));
    bytes
}

/// EDNS that takes so many bytes.
fn edns(len: u16, options: &[u8]) -> Vec<u8> {
    let options_len = u16::try_from(options.len()).expect("short");
    [&[0][..], &words(&[41, len, 0, 0x8000, options_len]), options].concat()
}

/// A message with the number 0xabcd that wants recursion.
fn message(name: &str, kind: u16, edns: &[u8]) -> Vec<u8> {
    let head = words(&[0xabcd, 0x0100, 1, 0, 0, u16::from(!edns.is_empty())]);
    [&head[..], &section(name, kind, IN), edns].concat()
}

fn judged(message: &[u8]) -> QuestionVerdict {
    judge(message, false, OWN, &policy(), Denial::Refused).expect("a question")
}

fn answered(verdict: &QuestionVerdict) -> Vec<u8> {
    match &verdict.step {
        QuestionStep::Answer(message) => message.clone(),
        QuestionStep::Ask(question) => panic!("{question:?}"),
    }
}

fn asked(verdict: &QuestionVerdict) -> Vec<u8> {
    match &verdict.step {
        QuestionStep::Ask(question) => question.message(),
        QuestionStep::Answer(message) => panic!("{message:?}"),
    }
}

/// The question to a resolver.
fn outside(name: &str, kind: u16) -> Vec<u8> {
    let head = words(&[OWN, 0x0100, 1, 0, 0, 1]);
    [&head[..], &section(name, kind, IN), &[0], &words(&[41, 1232, 0, 0, 0])].concat()
}

#[test]
fn an_allowed_name_is_asked_for_in_a_new_message() {
    for options in [vec![], edns(4096, b""), edns(512, b"\0\x0a\0\x08leaking!")] {
        let verdict = judged(&message("PyPI.Org", A, &options));
        assert_eq!(verdict.name, HostName::parse("pypi.org"));
        assert_eq!(verdict.decision, Decision::Allowed(ALLOWED));
        assert_eq!(asked(&verdict), outside("pypi.org", A));
    }
    for kind in KEPT_KINDS {
        assert_eq!(
            asked(&judged(&message("a.example.net", kind, b""))),
            outside("a.example.net", kind)
        );
    }
    // Neither the wish for no recursion nor flags of DNSSEC leave.
    let mut other = message("pypi.org", A, b"more than a message");
    other[2..4].copy_from_slice(&[0, 0x30]);
    assert_eq!(asked(&judged(&other)), outside("pypi.org", A));
}

#[test]
fn a_denied_name_is_refused_and_the_reason_is_said() {
    for (name, rule) in [("evil.org", None), ("no.example.net", Some(DENIED))] {
        let verdict = judged(&message(name, A, &edns(1400, b"")));
        assert_eq!(verdict.name, HostName::parse(name));
        assert_eq!(verdict.decision, Decision::Denied(rule));
        let head = words(&[0xabcd, 0x8185, 1, 0, 0, 1]);
        let error = words(&[41, 1232, 0, 0, 6, 15, 2, 15]);
        let golden = [&head[..], &section(name, A, IN), &[0], &error].concat();
        assert_eq!(answered(&verdict), golden);
    }
    let plain = answered(&judged(&message("eVil.org", A, b"")));
    let head = words(&[0xabcd, 0x8185, 1, 0, 0, 0]);
    assert_eq!(plain, [&head[..], &section("eVil.org", A, IN)].concat());
    // A record like EDNS is an answer, or is not there.
    for counts in [[1, 0, 1], [0, 1, 1], [0, 0, 0]] {
        let mut other = message("eVil.org", A, &edns(1400, b""));
        other[6..12].copy_from_slice(&words(&counts));
        assert_eq!(answered(&judged(&other)), plain);
    }
    let message = message("evil.org", A, b"");
    let verdict = judge(&message, false, OWN, &policy(), Denial::NoName).expect("a question");
    assert_eq!(answered(&verdict)[2..4], [0x81, 0x83]);
}

#[test]
fn kinds_that_would_lead_around_the_policy_do_not_exist() {
    for kind in [64, HTTPS, 43, 48, 257, 35] {
        let verdict = judged(&message("pypi.org", kind, b""));
        assert_eq!(verdict.decision, Decision::Allowed(ALLOWED));
        let head = words(&[0xabcd, 0x8180, 1, 0, 0, 0]);
        assert_eq!(answered(&verdict), [&head[..], &section("pypi.org", kind, IN)].concat());
    }
    let other_port = judged(&message("_8443._https.pypi.org", HTTPS, b""));
    assert_eq!(answered(&other_port)[3] & 0xf, 0);
    assert_eq!(answered(&judged(&message("_8443._https.evil.org", HTTPS, b"")))[3] & 0xf, 5);
    assert_eq!(answered(&judged(&message("_a._b.pypi.org", 33, b"")))[3] & 0xf, 5, "another name");
}

#[test]
fn what_is_no_question_for_records_is_refused() {
    for kind in [255, 252, 251, 249, 250, 128, 41, 0] {
        let verdict = judged(&message("pypi.org", kind, b""));
        assert_eq!(verdict.decision, Decision::Denied(None), "{kind}");
        assert_eq!(answered(&verdict)[2..4], [0x81, 0x85], "{kind}");
    }
    let good = message("pypi.org", A, b"");
    let changed = |at: usize, byte: u8| {
        let mut other = good.clone();
        other[at] = byte;
        other
    };
    let class = good.len() - 1;
    for (other, questions) in [
        (changed(class, 3), 1),
        (changed(2, 0x29), 1),
        (changed(2, 0x21), 1),
        (changed(5, 0), 0),
        (changed(5, 2), 0),
        (changed(12, 0xc0), 0),
        (changed(13, b' '), 1),
        (message("", A, b""), 1),
    ] {
        let verdict = judged(&other);
        assert_eq!((verdict.name.clone(), verdict.decision), (None, Decision::Denied(None)));
        let answer = answered(&verdict);
        assert_eq!(answer[..2], [0xab, 0xcd]);
        assert_eq!((answer[2], answer[3]), (0x80 | other[2], 0x85));
        assert_eq!(answer[4..12], words(&[questions, 0, 0, 0]));
        assert_eq!(answer[12..], other[12..][..if questions == 1 { other.len() - 12 } else { 0 }]);
    }
}

#[test]
fn answers_and_pieces_are_not_answered() {
    let good = message("pypi.org", A, b"");
    let judge = |message: &[u8]| judge(message, false, OWN, &policy(), Denial::Refused);
    let mut answer = good.clone();
    answer[2] |= 0x80;
    assert_eq!(judge(&answer), None);
    for len in 0..good.len() {
        let verdict = judge(&good[..len]);
        assert_eq!(verdict.is_some(), len >= 12, "{len}");
        assert!(verdict.is_none_or(|it| !it.decision.is_open()));
    }
}

#[test]
fn names_have_255_bytes_at_most() {
    let label = "a".repeat(63);
    let name = |last: usize| format!("{label}.{label}.{label}.{}.example.net", &label[..last]);
    assert!(judged(&message(&name(49), A, b"")).decision.is_open());
    assert!(!judged(&message(&name(50), A, b"")).decision.is_open());
    let many = format!("{}example.net", "a.".repeat(121));
    assert!(judged(&message(&many, A, b"")).decision.is_open());
}

proptest! {
    #[test]
    fn nothing_leaves_but_an_allowed_name_whatever_comes(
        begin in prop::sample::select(vec![
            vec![],
            message("pypi.org", A, &edns(1232, b"")),
            message("x.example.net", 16, b""),
            message("no.example.net", A, b""),
        ]),
        more in vec(any::<u8>(), 0..300),
        changes in vec((0..60usize, any::<u8>()), 0..5),
        is_stream in any::<bool>(),
        denial in prop::sample::select(vec![Denial::Refused, Denial::NoName]),
    ) {
        let mut bytes = [begin, more].concat();
        for (at, byte) in changes {
            if let Some(to) = bytes.get_mut(at) {
                *to = byte;
            }
        }
        let policy = policy();
        let Some(verdict) = judge(&bytes, is_stream, OWN, &policy, denial) else {
            prop_assert!(bytes.len() < 12 || bytes[2] & 0x80 != 0);
            return Ok(());
        };
        match &verdict.step {
            QuestionStep::Ask(question) => {
                let name = question.name();
                prop_assert!(policy.question(name).is_open() && verdict.decision.is_open());
                prop_assert_eq!(Some(name), verdict.name.as_ref());
                let sent = question.message();
                let known = KEPT_KINDS.iter().any(|kind| sent == outside(name.as_str(), *kind));
                prop_assert!(known);
                prop_assert_eq!(&question.failure()[..2], &bytes[..2]);
            }
            QuestionStep::Answer(answer) => {
                prop_assert!(answer.len() <= 512 && answer[..2] == bytes[..2]);
                prop_assert!(answer[2] & 0x80 != 0 && answer[6..10] == [0; 4]);
                prop_assert_eq!(verdict.decision.is_open(), answer[3] & 0xf == 0);
            }
        }
    }
}
