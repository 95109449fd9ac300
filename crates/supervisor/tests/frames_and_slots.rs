//! A front-end's stream in any pieces, and the slots of its requests, against a model.

use std::collections::BTreeMap;

use proptest::prelude::*;
use ringway_supervisor::frame::{BadFrame, FDS_MAX, FRAME_LEN_MAX, Frame, Framer};
use ringway_supervisor::slots::{
    Keep, LINK_FDS_MAX, LINK_LEN_MAX, Link, NotKept, SLOT_LEN_MAX, SLOTS_MAX, SlotRange,
};
use ringway_vhost_user::codec::{HeaderError, PAYLOAD_LEN_MAX};

fn message(payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap();
    let header = [2, 1, len].into_iter().flat_map(u32::to_le_bytes);
    header.chain(payload.iter().copied()).collect()
}

/// Gives a link a whole message.
fn push(link: &mut Link<u32>, payload: &[u8], fds: std::ops::Range<u32>) -> u32 {
    let bytes = message(payload);
    let (header, rest) = bytes.split_at(12);
    if !link.framer.push(header, fds, false).unwrap() {
        assert!(link.framer.push(rest, [], false).unwrap());
    }
    link.framer.outstanding().unwrap().0
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(500))]

    /// However the kernel cuts it.
    #[test]
    fn a_stream_in_pieces_is_its_messages(
        payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..8),
        pieces in prop::collection::vec((1usize..40, 0u32..3), 1..20),
    ) {
        let mut framer = Framer::default();
        let mut pieces = pieces.iter().cycle();
        let mut next_fd = 0u32;
        for (at, payload) in (1u32..).zip(&payloads) {
            let (bytes, first_fd, mut sent) = (message(payload), next_fd, 0);
            loop {
                let &(len, fds) = pieces.next().unwrap();
                let len = len.min(framer.wanted());
                let room = u32::try_from(FDS_MAX).unwrap() - (next_fd - first_fd);
                let ids = next_fd..next_fd + fds.min(room);
                next_fd = ids.end;
                sent += len;
                let is_whole = framer.push(&bytes[sent - len..sent], ids, fds == 2).unwrap();
                prop_assert_eq!(is_whole, sent == bytes.len());
                if is_whole {
                    break;
                }
                prop_assert!(!framer.is_between() && framer.outstanding().is_none());
            }
            let (number, frame) = framer.outstanding().unwrap();
            prop_assert_eq!((number, &frame.bytes), (at, &bytes));
            prop_assert_eq!(&frame.fds, &(first_fd..next_fd).collect::<Vec<_>>());
            prop_assert_eq!((framer.wanted(), framer.finish(at + 1)), (0, None));
            prop_assert!(framer.finish(at).is_some() && framer.finish(at).is_none());
        }
        prop_assert!(framer.is_between());
    }

    #[test]
    fn arbitrary_bytes_are_frames_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let (mut framer, mut left) = (Framer::<u32>::default(), &bytes[..]);
        while !left.is_empty() {
            let (now, rest) = left.split_at(framer.wanted().min(left.len()));
            left = rest;
            match framer.push(now, [], false) {
                Ok(true) => {
                    let (number, frame) = framer.outstanding().unwrap();
                    prop_assert!(frame.bytes.len() <= FRAME_LEN_MAX);
                    framer.finish(number);
                }
                Ok(false) => {}
                Err(_) => break,
            }
        }
    }

    /// A map that is done the same to.
    #[test]
    fn slots_are_a_map_and_no_fd_is_lost(steps in prop::collection::vec(
        (0usize..200, 0u32..5, prop::option::of((0u16..20, 0u8..5)),
         prop::collection::vec((0u16..20, 0u16..20), 0..3)), 0..60)
    ) {
        let mut link = Link::<u32>::default();
        let mut model = BTreeMap::<u16, (Vec<u8>, Vec<u32>)>::new();
        let (mut next_fd, mut closed) = (0, Vec::new());
        for (len, fds, keep, drops) in steps {
            let ids = next_fd..next_fd + fds;
            next_fd += fds;
            let number = push(&mut link, &vec![7; len], ids.clone());
            let keep = keep.map(|(slot, fds)| Keep { slot, fds });
            let range = |(first, last)| SlotRange { first, last };
            let drops: Vec<_> = drops.into_iter().map(range).collect();
            let is_good = keep.is_none_or(|keep| u32::from(keep.fds) <= fds);
            let before = link.replay().count();
            let done = link.done(number, &drops, keep);
            prop_assert_eq!(done.is_ok(), is_good);
            let Ok(gone) = done else {
                prop_assert_eq!(before, link.replay().count());
                prop_assert!(link.framer.outstanding().is_some());
                closed.extend(link.done(number, &[], None).unwrap());
                continue;
            };
            closed.extend(gone);
            for range in drops {
                model.retain(|slot, _| *slot < range.first || *slot > range.last.max(range.first));
            }
            if let Some(keep) = keep {
                let kept = ids.take(keep.fds.into()).collect();
                model.insert(keep.slot, (message(&vec![7; len]), kept));
            }
            let shown: Vec<_> = link.replay().map(|(slot, frame)| {
                (slot, (frame.bytes.clone(), frame.fds.clone()))
            }).collect();
            prop_assert_eq!(shown, model.clone().into_iter().collect::<Vec<_>>());
        }
        // Each is kept or was handed back, once.
        closed.extend(model.into_values().flat_map(|(_, fds)| fds));
        closed.sort_unstable();
        prop_assert_eq!(closed, (0..next_fd).collect::<Vec<_>>());
    }
}

#[test]
fn what_no_front_end_sends_ends_the_connection_with_a_reason() {
    let header = |flags: u32, len: u32| {
        let words = [1, flags, len];
        words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>()
    };
    let push = |bytes: &[u8], fds: u32| Framer::default().push(bytes, 0..fds, false);
    let (len, most) = (PAYLOAD_LEN_MAX + 1, u32::try_from(FDS_MAX).unwrap());
    let too_long = HeaderError::PayloadTooLong { len };
    assert_eq!(push(&header(1, len), 0), Err(BadFrame::Header(too_long)));
    let version = HeaderError::Version { version: 2 };
    assert_eq!(push(&header(2, 0), 0), Err(BadFrame::Header(version)));
    assert_eq!(push(&header(1, 8), most), Ok(false));
    assert_eq!(push(&header(1, 8), most + 1), Err(BadFrame::TooManyFds));
    // Also without a byte more, and in pieces.
    let mut framer = Framer::default();
    assert_eq!(framer.push(&[1], 0..most, false), Ok(false));
    assert_eq!(framer.push(&[0], 0..1, false), Err(BadFrame::TooManyFds));
}

#[test]
fn lost_fds_are_told_of_the_message_that_lost_them() {
    let mut framer = Framer::<u32>::default();
    let bytes = message(&[1]);
    framer.push(&bytes[..12], [1], true).unwrap();
    assert!(framer.push(&bytes[12..], [], false).unwrap());
    let Frame { has_lost_fds, .. } = framer.finish(1).unwrap();
    assert!(has_lost_fds);
    assert!(framer.push(&message(&[]), [], false).unwrap());
    assert!(!framer.finish(2).unwrap().has_lost_fds);
}

#[test]
fn what_a_data_plane_cannot_have_done_changes_nothing() {
    let mut link = Link::default();
    let at = |slot: u16, fds: u8| Some(Keep { slot, fds });
    let all = [SlotRange { first: 0, last: SLOTS_MAX - 1 }];
    assert_eq!(link.done(0, &[], None), Err(NotKept::NotOutstanding));
    let number = push(&mut link, &[0; 8], 0..2);
    assert_eq!(link.done(number, &[], at(3, 1)), Ok(vec![1]), "the one it did not need");
    assert_eq!(link.done(number, &[], None), Err(NotKept::NotOutstanding));
    let number = push(&mut link, &[0; SLOT_LEN_MAX], 0..2);
    for (keep, why) in [
        (at(SLOTS_MAX, 0), NotKept::NotThere),
        (at(0, 3), NotKept::NotThere),
        (at(0, 0), NotKept::TooLong),
    ] {
        assert_eq!(link.done(number, &all, keep), Err(why));
        assert_eq!((link.replay().count(), link.framer.wanted()), (1, 0));
    }
    assert_eq!(link.done(number, &all, None), Ok(vec![0, 0, 1]));
    assert_eq!(link.replay().count(), 0);
}

#[test]
fn all_that_is_kept_of_a_front_end_has_a_limit() {
    for (len, fds, kept) in
        [(SLOT_LEN_MAX - 12, 0, LINK_LEN_MAX / SLOT_LEN_MAX), (0, 32, LINK_FDS_MAX / 32)]
    {
        let mut link = Link::default();
        let mut keep = |slot: usize, drops: &[SlotRange]| {
            let number = push(&mut link, &vec![0; len], 0..fds);
            let slot = u16::try_from(slot).unwrap();
            let keep = Some(Keep { slot, fds: u8::try_from(fds).unwrap() });
            let done = link.done(number, drops, keep).map(drop);
            link.framer.finish(number);
            done
        };
        assert!((0..kept).all(|slot| keep(slot, &[]) == Ok(())));
        assert_eq!(keep(kept, &[]), Err(NotKept::Full));
        assert_eq!(keep(kept - 1, &[]), Ok(()), "in the place of another");
        assert_eq!(keep(kept, &[SlotRange { first: 0, last: 0 }]), Ok(()), "for another");
    }
}

#[test]
fn another_supervisor_goes_on_in_the_middle_of_a_message() {
    let frame = |bytes: &[u8], fds: &[u32]| Frame {
        bytes: bytes.to_vec(),
        fds: fds.to_vec(),
        has_lost_fds: false,
    };
    let whole = message(&[1, 2, 3]);
    for cut in 0..whole.len() {
        let mut before = Framer::default();
        push_all(&mut before, &message(&[]));
        before.finish(1).unwrap();
        for at in 0..cut {
            assert!(!before.push(&whole[at..=at], [], false).unwrap());
        }
        let (number, bytes, fds, _) = before.partial();
        let mut after = Framer::resume(number, frame(bytes, fds), None).unwrap();
        assert_eq!((after.wanted(), after.is_between()), (before.wanted(), cut == 0));
        push_all(&mut after, &whole[cut..]);
        assert_eq!(after.outstanding().map(|(number, it)| (number, &it.bytes)), Some((2, &whole)));
    }
    let resumed = Framer::resume(7, frame(&[], &[]), Some(frame(&whole, &[4]))).unwrap();
    assert_eq!((resumed.wanted(), resumed.outstanding()), (0, Some((7, &frame(&whole, &[4])))));
    let bad = [(&whole[..], None), (&[0; 13][..], None), (&[][..], Some(&whole[1..]))];
    for (partial, outstanding) in bad {
        let outstanding = outstanding.map(|bytes| frame(bytes, &[]));
        assert!(Framer::resume(0, frame(partial, &[]), outstanding).is_err(), "{partial:?}");
    }
    let slots = |len, count| (0..count).map(move |slot| (slot, frame(&vec![0; len], &[1])));
    let resumed = Link::resume(Framer::default(), slots(SLOT_LEN_MAX, 64)).unwrap();
    assert_eq!(resumed.replay().count(), 64);
    assert!(Link::resume(Framer::<u32>::default(), slots(SLOT_LEN_MAX, 65)).is_err());
    assert!(Link::resume(Framer::<u32>::default(), slots(SLOT_LEN_MAX + 1, 1)).is_err());
}

fn push_all(framer: &mut Framer<u32>, bytes: &[u8]) {
    for byte in bytes {
        framer.push(&[*byte], [], false).unwrap();
    }
}
