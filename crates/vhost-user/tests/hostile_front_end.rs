//! A front-end that means harm: lengths that lie, fds that no request needs, random bytes.

mod common;

use std::os::fd::AsFd;

use common::{Backend, FLAGS, NEED_REPLY, fd_count, fds, fds_are_counted, message, u32s, u64s};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use ringway_vhost_user::codec::{self, PAYLOAD_LEN_MAX};
use ringway_vhost_user::{Message, Request, WhyMalformed};

/// Every request: its number, the shortest payload that is enough, and the fds it needs.
const REQUESTS: [(u32, usize, usize); 27] = [
    (1, 0, 0),
    (2, 8, 0),
    (3, 0, 0),
    (4, 0, 0),
    (5, 8 + 2 * 32, 2),
    (8, 8, 0),
    (9, 40, 0),
    (10, 8, 0),
    (11, 4, 0),
    (12, 8, 1),
    (13, 8, 1),
    (14, 8, 1),
    (15, 0, 0),
    (16, 8, 0),
    (17, 0, 0),
    (18, 8, 0),
    (19, 8, 0),
    (20, 8, 0),
    (21, 0, 1),
    (24, 12, 0),
    (25, 12 + 4, 0),
    (34, 0, 0),
    (36, 0, 0),
    (37, 40, 1),
    (38, 40, 0),
    (39, 8, 0),
    (40, 0, 0),
];

/// A payload that makes sense for the request, so that only its length can be wrong.
fn payload(code: u32, len: usize) -> Vec<u8> {
    let mut payload = match code {
        5 => u32s(&[2, 0]),
        25 => u32s(&[0, 4, 0]),
        _ => Vec::new(),
    };
    payload.resize(len.max(payload.len()), 0);
    payload.truncate(len);
    payload
}

fn decode(code: u32, payload: &[u8], fd_count: usize) -> Message {
    codec::decode(&message(code, NEED_REPLY, payload), fds(fd_count)).unwrap()
}

#[test]
fn every_request_with_every_shorter_and_some_longer_payloads() {
    let _alone = fds_are_counted();
    for (code, needed, fd_count) in REQUESTS {
        for len in 0..needed {
            let message = decode(code, &payload(code, len), fd_count);
            let short = matches!(
                message.request,
                Request::Malformed { why: WhyMalformed::Short { len: told }, .. } if told == len
            );
            assert!(short, "request {code} with {len} bytes: {:?}", message.request);
            let answer =
                Backend::new().send(&common::message(code, NEED_REPLY, &vec![0; len]), vec![]);
            assert!(answer.reply.is_some(), "request {code} with {len} bytes is not answered");
        }
        for len in [needed, needed + 1, needed + 24, PAYLOAD_LEN_MAX as usize] {
            let message = decode(code, &payload(code, len), fd_count);
            assert!(!matches!(message.request, Request::Malformed { .. }), "{:?}", message.request);
            assert_eq!(message.request.code(), code);
        }
    }
}

#[test]
fn every_request_with_too_few_fds() {
    let _alone = fds_are_counted();
    for (code, needed, fd_count) in REQUESTS {
        for came in 0..fd_count {
            let message = decode(code, &payload(code, needed), came);
            let missing = matches!(
                message.request,
                Request::Malformed { why: WhyMalformed::MissingFds { .. }, .. }
            );
            assert!(missing, "request {code} with {came} fds: {:?}", message.request);
        }
    }
}

#[test]
fn a_region_count_that_lies() {
    let _alone = fds_are_counted();
    for (count, len, fd_count) in [(2, 40, 2), (33, 8 + 33 * 32, 32), (u32::MAX, 72, 8)] {
        let mut payload = u32s(&[count, 0]);
        payload.resize(len, 0);
        let message = decode(5, &payload, fd_count);
        assert!(matches!(message.request, Request::Malformed { .. }), "{:?}", message.request);
    }
    // More fds than regions: the first ones count.
    let message = decode(5, &[u32s(&[1, 0]), u64s(&[0; 4])].concat(), 8);
    assert!(matches!(&message.request, Request::SetMemTable(regions) if regions.len() == 1));
}

#[test]
fn headers_that_cannot_be_believed_are_errors() {
    let _alone = fds_are_counted();
    for bytes in [
        vec![],
        vec![0; 11],
        u32s(&[1, 0, 0]),
        u32s(&[1, 2, 0]),
        u32s(&[1, 3, 0]),
        u32s(&[1, 1, 1]),
        u32s(&[1, 1, 0, 0]),
        u32s(&[1, 1, PAYLOAD_LEN_MAX + 1]),
        u32s(&[1, 1, u32::MAX]),
    ] {
        assert!(codec::decode(&bytes, vec![]).is_err(), "{bytes:?}");
    }
    let reply = codec::decode(&message(1, 5, &[]), vec![]).unwrap();
    assert!(matches!(reply.request, Request::Malformed { why: WhyMalformed::IsReply, .. }));
}

#[test]
fn extra_fds_are_closed_with_every_message() {
    let _alone = fds_are_counted();
    for (code, needed, fd_count) in REQUESTS {
        for len in [needed, needed.saturating_sub(1)] {
            let before = common::fd_count();
            let mut backend = Backend::new();
            let bytes = message(code, FLAGS, &payload(code, len));
            let held = backend.send(&bytes, fds(fd_count + 5));
            // Nothing but the one fd of a ring stays, and that with the session.
            let kept = usize::from((12..=14).contains(&code) && len == needed);
            assert_eq!(common::fd_count(), before + kept, "request {code}");
            drop((backend, held));
            assert_eq!(common::fd_count(), before, "request {code}");
        }
    }
}

#[test]
fn ten_thousand_repetitions_leave_no_fd_behind() {
    let _alone = fds_are_counted();
    let mut backend = Backend::negotiated(1 << 32 | common::BIT_30);
    let life = |backend: &mut Backend| {
        let table = [u32s(&[1, 0]), u64s(&[0x10_0000, 0x10_0000, 0x7000_0000, 0])].concat();
        for (code, payload, fd_count) in [
            (5, table, 2),
            (13, u64s(&[0]), 1),
            (14, u64s(&[0]), 3),
            (12, u64s(&[0]), 1),
            (21, vec![], 2),
            (8, u32s(&[0, 256]), 1),
            (9, common::ring_addresses(0, 0x7000_0000), 0),
            (18, u32s(&[0, 1]), 0),
            (13, u64s(&[0]), 1),
            (31, vec![0; 16], 1),
            (6, vec![0; 16], 1),
            (11, u32s(&[0, 0]), 0),
        ] {
            backend.send(&message(code, FLAGS, &payload), fds(fd_count));
        }
    };
    life(&mut backend);
    let before = fd_count();
    for _ in 0..10_000 {
        life(&mut backend);
    }
    assert_eq!(fd_count(), before);
}

fn runner(seed: u8, cases: u32) -> TestRunner {
    println!("seed {seed}, {cases} cases");
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]))
}

#[test]
fn random_bytes_never_panic_the_codec() {
    let _alone = fds_are_counted();
    let input = (proptest::collection::vec(any::<u8>(), 0..200), 0..3usize, any::<bool>());
    let result = runner(7, 20_000).run(&input, |(mut bytes, fd_count, believable)| {
        if believable && bytes.len() >= 12 {
            let len = u32::try_from(bytes.len() - 12).unwrap();
            bytes[0] %= 48;
            bytes[1..4].fill(0);
            bytes[4] = bytes[4] & !3 | 1;
            bytes[8..12].copy_from_slice(&len.to_le_bytes());
            prop_assert!(codec::decode(&bytes, fds(fd_count)).is_ok());
        }
        let _ = codec::decode(&bytes, fds(fd_count));
        let _ = codec::decode_reply(u32::from(bytes.first().copied().unwrap_or(0)), &bytes);
        Ok(())
    });
    result.unwrap();
}

/// Requests that are well formed but come in any order with any small or extreme numbers.
fn request() -> impl Strategy<Value = (u32, Vec<u8>, usize)> {
    let word = prop_oneof![0..4u64, Just(0x100), Just(256), Just(0x7000_0000), any::<u64>()];
    let payload = proptest::collection::vec(word, 0..10).prop_map(|words| u64s(&words));
    let narrow = proptest::collection::vec(0..3u32, 2..6).prop_map(|words| u32s(&words));
    let features = proptest::sample::subsequence(vec![24, 28, 29, 30, 32, 34, 35], 0..=7);
    let features = features.prop_map(|bits| u64s(&[bits.iter().map(|bit| 1u64 << bit).sum()]));
    prop_oneof![
        (0..48u32, payload, 0..3usize),
        (proptest::sample::select(vec![8u32, 10, 11, 18, 18]), narrow, Just(0usize)),
        (Just(2u32), features, Just(0usize)),
        (0..3u64, 12..15u32).prop_map(|(index, code)| (code, u64s(&[index]), 1)),
        (0..3u32).prop_map(|index| (8, u32s(&[index, 256]), 0)),
        (0..3u32).prop_map(|index| (9, common::ring_addresses(index, 0x7000_0000), 0)),
        (0..3u64).prop_map(|at| {
            let region = u64s(&[at << 20, 1 << 20, 0x7000_0000, 0]);
            (5, [u32s(&[1, 0]), region].concat(), 1)
        }),
    ]
}

/// The effects must agree with the state that the session believes in, and no ring starts twice.
#[test]
fn random_sessions_never_panic_and_their_effects_add_up() {
    let _alone = fds_are_counted();
    let before = fd_count();
    let starts = std::cell::Cell::new(0);
    let input = proptest::collection::vec(request(), 1..120);
    let result = runner(11, 600).run(&input, |requests| {
        let mut backend = Backend::new();
        let mut running = std::collections::BTreeSet::new();
        for (code, payload, fd_count) in requests {
            let step = backend.send(&message(code, NEED_REPLY, &payload), fds(fd_count));
            prop_assert!(step.reply.is_some(), "request {} is not answered", code);
            for effect in &step.effects {
                let mut words = effect.split(' ');
                let (verb, index) = (words.next().unwrap(), words.next());
                let index = index.and_then(|index| index.parse::<u16>().ok());
                match (verb, index) {
                    ("start", Some(index)) => {
                        starts.set(starts.get() + 1);
                        prop_assert!(running.insert(index), "{} while it runs", effect);
                    }
                    ("stop", Some(index)) => {
                        prop_assert!(running.remove(&index), "{} while it does not run", effect);
                    }
                    ("rebind" | "set", Some(index)) => {
                        prop_assert!(running.contains(&index), "{} while it does not run", effect);
                    }
                    ("reset" | "features", _) => prop_assert!(running.is_empty(), "{}", effect),
                    _ => {}
                }
            }
            let believed: std::collections::BTreeSet<_> = backend.session.running().collect();
            prop_assert_eq!(&believed, &running);
        }
        Ok(())
    });
    result.unwrap();
    assert!(starts.get() > 100, "only {} starts: the test tests nothing", starts.get());
    assert_eq!(fd_count(), before);
}

#[test]
fn what_is_encoded_is_decoded() {
    let _alone = fds_are_counted();
    let result = runner(13, 5_000).run(&request(), |(code, payload, fd_count)| {
        let bytes = message(code, NEED_REPLY, &payload);
        let first = codec::decode(&bytes, fds(fd_count)).unwrap();
        let malformed = matches!(
            first.request,
            Request::Malformed { .. } | Request::Unknown { .. } | Request::NotOffered { .. }
        );
        if !malformed {
            let again: Vec<_> = first.request.fds();
            let again =
                again.iter().map(|fd| fd.as_fd().try_clone_to_owned().unwrap().into()).collect();
            let second = codec::decode(&codec::encode(&first), again).unwrap();
            prop_assert_eq!(codec::encode(&first), codec::encode(&second));
            prop_assert_eq!(first.request.fds().len(), second.request.fds().len());
        }
        Ok(())
    });
    result.unwrap();
}
