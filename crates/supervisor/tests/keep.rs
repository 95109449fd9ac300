//! The requests that are kept of a front-end are enough to have the same session again, and no
//! more.

mod common;

use common::{
    BIT_30, DataPlane, LOG_ALL, PACKED, Request, SPLIT, add, addresses, features, log, number,
    plain, remove, ring, table, told, with_fd, words,
};
use proptest::prelude::*;
use ringway_supervisor::keep::{Keeper, slot};
use ringway_supervisor::slots::{NotKept, SLOT_LEN_MAX};
use ringway_vhost_user::codec;

/// One request in each state.
fn answers(request: &Request, states: &[fn() -> DataPlane]) -> Vec<String> {
    states.iter().map(|state| told(&state().send(request))).collect()
}

fn fresh() -> DataPlane {
    DataPlane::new()
}

fn running() -> DataPlane {
    DataPlane::running(SPLIT)
}

/// `GET_VRING_BASE` has stopped its ring.
fn suspended() -> DataPlane {
    let mut it = running();
    assert_eq!(told(&it.send(&words(11, 0, 0))), "keep asked 0 fds 0");
    it
}

#[test]
fn each_request_is_kept_in_each_state_as_it_counts() {
    // Request; what it changes when nothing was told, when ring 0 runs, when ring 0 was stopped.
    let same = |text: &'static str| [text; 3];
    let rows: Vec<(Request, [&str; 3])> = vec![
        (plain(3), same("keep owner 0 fds 0")),
        (number(16, 1 << 3), same("keep protocol features 0 fds 0")),
        (number(16, 1 << 60), same("")),
        (Request(21, vec![], 1), same("keep channel 0 fds 1")),
        (Request(21, vec![], 3), same("keep channel 0 fds 1")),
        (features(SPLIT), same("keep features 0 fds 0")),
        (
            features(PACKED),
            [
                "keep features 0 fds 0",
                "drop kick 0, keep features 0 fds 0",
                "drop kick 0, drop asked 0, keep features 0 fds 0",
            ],
        ),
        (features(1 << 60), same("")),
        (table(&[0, 1]), same("keep table 0 fds 2")),
        (table(&[0, 0]), same("")),
        (add(0), same("keep added 0 fds 1")),
        (remove(0), ["", "keep removed 0 fds 0", "keep removed 0 fds 0"]),
        (remove(1), same("")),
        (number(39, 15), same("keep status 0 fds 0")),
        (number(39, 256), same("")),
        (number(39, 0), ["", "drop size 0 to status 0", "drop size 0 to status 0"]),
        (plain(34), ["", "drop size 0 to status 0", "drop size 0 to status 0"]),
        (
            plain(4),
            [
                "keep reset owner 0 fds 0",
                "drop enable 0 to kick 0, keep reset owner 0 fds 0",
                "drop enable 0 to kick 0, drop asked 0, keep reset owner 0 fds 0",
            ],
        ),
        (
            words(8, 0, 128),
            ["keep size 0 fds 0", "", "drop kick 0, drop asked 0, keep size 0 fds 0"],
        ),
        (words(8, 0, 0), ["", "", "drop kick 0, drop asked 0"]),
        (
            words(10, 0, 5),
            ["keep base 0 fds 0", "", "drop kick 0, drop asked 0, keep base 0 fds 0"],
        ),
        (addresses(0, 2), same("keep addresses 0 fds 0")),
        // Remembered though it is refused, because memory may follow; not of a ring that runs.
        (addresses(0, 90), ["keep addresses 0 fds 0", "", "keep addresses 0 fds 0"]),
        (addresses(9, 0), same("")),
        (with_fd(13, 2, true), same("keep call 2 fds 1")),
        (with_fd(14, 1, false), same("keep error 1 fds 0")),
        (words(18, 0, 0), same("keep enable 0 fds 0")),
        (
            with_fd(12, 0, true),
            ["keep kick 0 fds 1", "keep kick 0 fds 1", "drop asked 0, keep kick 0 fds 1"],
        ),
        (words(11, 0, 0), ["", "keep asked 0 fds 0", "keep asked 0 fds 0"]),
        (words(11, 200, 0), same("")),
        (plain(1), same("")),
        (plain(40), same("")),
        (number(19, 1), same("")),
        (number(20, 1500), same("")),
        (Request(6, vec![0; 16], 1), same("")),
        (Request(99, vec![], 2), same("")),
        (Request(8, vec![0; 3], 0), same("")),
    ];
    for (request, expected) in rows {
        assert_eq!(answers(&request, &[fresh, running, suspended]), expected, "{request:?}");
    }
}

#[test]
fn a_region_that_is_removed_takes_its_addition_along_and_a_table_takes_all() {
    let mut it = DataPlane::new();
    for (request, expected) in [
        (table(&[0, 1]), "keep table 0 fds 2"),
        (add(2), "keep added 0 fds 1"),
        (add(2), "keep added 1 fds 1"),
        (add(0), "keep added 2 fds 1"),
        (remove(0), "drop added 2"),
        (remove(2), "drop added 1"),
        (remove(1), "keep removed 0 fds 0"),
        (add(1), "keep added 1 fds 1"),
        (remove(0), "keep removed 1 fds 0"),
        (remove(1), "drop added 1"),
        (remove(1), ""),
    ] {
        assert_eq!(told(&it.send(&request)), expected, "{request:?}");
        assert_eq!(it.successor().0.shown(), it.shown());
    }
    let all = "drop removed 0 to added 959, keep table 0 fds 1";
    assert_eq!(told(&it.send(&table(&[3]))), all);
    assert_eq!(it.successor().0.shown(), it.shown());
}

#[test]
fn a_log_is_kept_until_logging_ends() {
    let resets = [number(39, 0), plain(34)];
    let ends = resets.map(|reset| (reset, "drop size 0 to status 0, drop log 0"));
    let bad = [log(8, false), log(0, true)].map(|log| (log, "drop log 0"));
    let without = (features(SPLIT), "drop log 0, keep features 0 fds 0");
    for (end, expected) in ends.into_iter().chain(bad).chain([without]) {
        let mut it = running();
        assert_eq!(told(&it.send(&number(16, 2))), "keep protocol features 0 fds 0");
        for (request, expected) in [
            (log(64, true), "keep log 0 fds 1"),
            (features(SPLIT | LOG_ALL), "keep features 0 fds 0"),
            (log(65, true), "keep log 0 fds 1"),
        ] {
            assert_eq!(told(&it.send(&request)), expected, "{request:?}");
            let (next, starts) = it.successor();
            assert_eq!((next.shown(), starts), (it.shown(), 1), "{request:?}");
        }
        assert_eq!(told(&it.send(&end)), expected, "{end:?}");
        assert_eq!(it.successor().0.shown(), it.shown());
    }
}

#[test]
fn a_log_that_could_not_be_mapped_is_not_kept() {
    let mut it = running();
    it.send(&number(16, 2));
    it.send(&log(64, true));
    it.send(&features(SPLIT | LOG_ALL));
    (it.succeeds, it.is_set_up) = (false, false);
    assert_eq!(told(&it.send(&log(64, true))), "drop log 0");
    assert!(!it.shown().rings[0].is_running);
    assert_eq!(it.successor().0.shown(), it.shown());
}

#[test]
fn a_ring_that_goes_on_by_a_kick_is_not_stopped_any_more() {
    let mut it = suspended();
    assert!(it.kick(false).is_empty());
    assert_eq!(it.successor().0.shown(), it.shown());
    assert_eq!(it.kick(true).len(), 1);
    assert_eq!(it.successor().0.shown(), it.shown());
    assert!(it.shown().rings[0].is_running);
}

#[test]
fn in_a_replay_each_ring_starts_once_with_its_kick() {
    let mut it = running();
    for request in ring(1).iter().chain(&ring(2)) {
        it.send(request);
    }
    let (next, starts) = it.successor();
    assert_eq!(next.shown(), it.shown());
    assert_eq!(starts, 3);
}

#[test]
fn what_could_not_be_carried_out_is_kept_as_far_as_the_session_goes_by_it() {
    let mut it = running();
    let before = it.shown();
    (it.succeeds, it.is_set_up) = (false, false);
    // Memory that could not be mapped, and features that could not be set.
    for request in [table(&[0, 1]), add(1)] {
        assert_eq!(told(&it.send(&request)), "", "{request:?}");
    }
    assert_eq!(it.shown(), before);
    // The ring was stopped for memory that could not be mapped, and cannot be started again now.
    // A region that is only counted is not undone by that.
    let mut other = running();
    (other.succeeds, other.is_set_up) = (false, false);
    assert_eq!(told(&other.send(&table(&[3]))), "");
    assert_eq!(told(&other.send(&add(0))), "keep added 0 fds 1");
    assert_eq!(other.successor().0.shown().memory, other.shown().memory);
    // A ring that was put elsewhere in memory that was mapped.
    it.is_set_up = true;
    assert_eq!(told(&it.send(&table(&[0, 1]))), "keep table 0 fds 2");
    // A ring that could not be started.
    it.succeeds = true;
    ring(1)[..5].iter().for_each(|request| drop(it.send(request)));
    it.succeeds = false;
    assert_eq!(told(&it.send(&words(18, 1, 1))), "keep enable 1 fds 0");
    assert!(!it.shown().rings[1].is_running);
    assert!(it.successor().0.shown().rings[1].is_running, "tried again");
}

#[test]
fn what_is_too_much_to_be_kept_is_said_before_the_session_has_it() {
    let keeper = Keeper::default();
    let intend = |len: usize| {
        let payload = vec![0; len];
        let bytes = Request(3, payload, 0).bytes();
        let message = codec::decode(&bytes, vec![]).unwrap();
        keeper.intend(&message.request, bytes.len()).map(drop)
    };
    assert_eq!(intend(SLOT_LEN_MAX - 12), Ok(()));
    assert_eq!(intend(SLOT_LEN_MAX - 11), Err(NotKept::TooLong));
    // The same region again and again.
    let mut it = DataPlane::new();
    (0..960).for_each(|_| drop(it.send(&add(0))));
    let bytes = add(0).bytes();
    let fd = std::fs::File::open("/dev/null").unwrap();
    let message = codec::decode(&bytes, vec![std::os::fd::OwnedFd::from(fd).into()]).unwrap();
    assert_eq!(it.keeper.intend(&message.request, bytes.len()).map(drop), Err(NotKept::Full));
    assert_eq!(it.successor().0.shown(), it.shown());
}

/// The numbers are part of the protocol: the next data plane may be of another version.
#[test]
fn these_slots_have_these_numbers() {
    let numbers = [
        slot::OWNER,
        slot::PROTOCOL_FEATURES,
        slot::CHANNEL,
        slot::TABLE,
        slot::REMOVED,
        slot::ADDED,
        slot::LOG,
        slot::CALL,
        slot::ERROR,
        slot::SIZE,
        slot::FEATURES,
        slot::RESET_OWNER,
        slot::ADDRESSES,
        slot::BASE,
        slot::ENABLE,
        slot::KICK,
        slot::ASKED,
        slot::STATUS,
    ];
    let expected =
        [0, 1, 2, 3, 4, 36, 996, 997, 1126, 1255, 1384, 1385, 1386, 1515, 1644, 1773, 1902, 2031];
    assert_eq!(numbers, expected);
}

#[derive(Debug, Clone)]
enum Step {
    Send(Request),
    Kick { is_quiet: bool },
    Fail { is_set_up: bool, request: Request },
}

fn requests() -> impl Strategy<Value = Request> {
    let rings = 0u32..4;
    let regions = prop::collection::vec(0u64..4, 0..4);
    prop_oneof![
        1 => Just(plain(3)),
        1 => Just(plain(4)),
        1 => Just(plain(34)),
        2 => prop_oneof![Just(0u64), 0u64..300].prop_map(|status| number(39, status)),
        3 => prop_oneof![
            Just(SPLIT), Just(PACKED), Just(SPLIT & !BIT_30), Just(SPLIT | 1 << 29), Just(1 << 60),
            Just(SPLIT | LOG_ALL), Just(SPLIT | LOG_ALL)
        ]
        .prop_map(features),
        2 => prop_oneof![Just(1u64 << 3), Just(0x1_a238), Just(0x1_a23a), Just(1 << 60)]
            .prop_map(|bits| number(16, bits)),
        3 => (0u64..0x60, any::<bool>()).prop_map(|(len, has_fd)| log(len, has_fd)),
        3 => regions.prop_map(|regions| table(&regions)),
        4 => (0u64..4).prop_map(add),
        3 => (0u64..4).prop_map(remove),
        1 => (0usize..3).prop_map(|fds| Request(21, vec![], fds)),
        4 => (rings.clone(), prop_oneof![Just(100u32), (0u32..12).prop_map(|log2| 1 << log2 >> 2)])
            .prop_map(|(ring, size)| words(8, ring, size)),
        5 => (rings.clone(), 0u64..70).prop_map(|(ring, place)| addresses(ring, place)),
        3 => (rings.clone(), 0u32..9).prop_map(|(ring, base)| words(10, ring, base)),
        4 => (rings.clone(), 0u32..2).prop_map(|(ring, on)| words(18, ring, on)),
        8 => (rings.clone(), 12u32..15, any::<bool>())
            .prop_map(|(ring, code, has_fd)| with_fd(code, ring, has_fd)),
        3 => rings.prop_map(|ring| words(11, ring, 0)),
        1 => (0u32..50, prop::collection::vec(any::<u8>(), 0..80), 0usize..3)
            .prop_map(|(code, payload, fds)| Request(code, payload, fds)),
    ]
}

fn whole_rings() -> impl Strategy<Value = Vec<Step>> {
    (0u32..3).prop_map(|index| ring(index).map(Step::Send).to_vec())
}

fn steps(fail: u32) -> impl Strategy<Value = Vec<Step>> {
    let one = |step: Step| vec![step];
    let some = prop_oneof![
        20 => requests().prop_map(Step::Send).prop_map(one),
        3 => whole_rings(),
        2 => any::<bool>().prop_map(|is_quiet| Step::Kick { is_quiet }).prop_map(one),
        fail => (any::<bool>(), requests())
            .prop_map(|(is_set_up, request)| Step::Fail { is_set_up, request }).prop_map(one),
    ];
    prop::collection::vec(some, 0..40).prop_map(|steps| steps.concat())
}

fn walk(steps: Vec<Step>, mut compare: impl FnMut(&DataPlane)) {
    let mut it = DataPlane::new();
    for step in [features(SPLIT), table(&[0])].map(Step::Send).into_iter().chain(steps) {
        match step {
            Step::Send(request) => drop(it.send(&request)),
            Step::Kick { is_quiet } => drop(it.kick(is_quiet)),
            Step::Fail { is_set_up, request } => {
                (it.succeeds, it.is_set_up) = (false, is_set_up);
                it.send(&request);
                it.succeeds = true;
            }
        }
        compare(&it);
    }
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(400))]

    /// After each step, whatever was asked, granted and refused.
    #[test]
    fn a_session_is_rebuilt_from_what_is_kept(steps in steps(0)) {
        walk(steps, |it| {
            let (next, _) = it.successor();
            assert_eq!(next.shown(), it.shown());
            assert_eq!(next.keeper, it.keeper);
        });
    }

    /// Where effects fail, a successor tries again: which rings run may differ, and nothing else.
    #[test]
    fn a_session_is_rebuilt_also_where_effects_have_failed(steps in steps(8)) {
        walk(steps, |it| {
            let (next, _) = it.successor();
            let (mut then, mut now) = (it.shown(), next.shown());
            for ring in then.rings.iter_mut().chain(&mut now.rings) {
                ring.is_running = false;
            }
            assert_eq!(now, then);
            assert_eq!(next.keeper, it.keeper);
        });
    }
}
