//! Messages as bytes: there and back, and nothing else is accepted.

use std::net::IpAddr;

use proptest::prelude::*;
use ringway_supervisor::frame::{FDS_MAX, FRAME_LEN_MAX};
use ringway_supervisor::slots::{Keep, SLOT_LEN_MAX, SLOTS_MAX, SlotRange};
use ringway_supervisor::wire::{
    BadMessage, Bytes, DROPS_MAX, Flaw, KnownStation, List, MESSAGE_LEN_MAX, Offence,
    PIECE_LEN_MAX, REASON_LEN_MAX, SPEC_LEN_MAX, SeenIp, Station, TAP_FDS_MAX, Text, ToData,
    ToSupervisor, Versions,
};

fn bytes<const MAX: usize>() -> impl Strategy<Value = Bytes<MAX>> {
    prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..64.min(MAX)),
        1 => Just(vec![7; MAX]),
    ]
    .prop_map(|bytes| Bytes::new(bytes).unwrap())
}

fn text<const MAX: usize>() -> impl Strategy<Value = Text<MAX>> {
    prop_oneof![".{0,80}".prop_map(|text| Text::cut(&text)), Just(Text::cut(&"ü".repeat(MAX)))]
}

fn versions() -> impl Strategy<Value = Versions> {
    any::<(u16, u16)>().prop_map(|(first, last)| Versions { first, last })
}

fn flaw() -> impl Strategy<Value = Option<Flaw>> {
    prop::option::of(prop_oneof![Just(Flaw::LostFds), Just(Flaw::OwnSocket)])
}

fn offence() -> impl Strategy<Value = Option<Offence>> {
    prop::option::of(prop_oneof![Just(Offence::Blocked), Just(Offence::Stalled)])
}

fn refusal() -> impl Strategy<Value = Option<Text<REASON_LEN_MAX>>> {
    prop::option::of(text())
}

fn keep() -> impl Strategy<Value = Option<Keep>> {
    let fds = 0..=u8::try_from(FDS_MAX).unwrap();
    prop::option::of((0..SLOTS_MAX, fds).prop_map(|(slot, fds)| Keep { slot, fds }))
}

fn drops() -> impl Strategy<Value = List<SlotRange, DROPS_MAX>> {
    let range = (0..SLOTS_MAX, 0..SLOTS_MAX)
        .prop_map(|(one, other)| SlotRange { first: one.min(other), last: one.max(other) });
    prop::collection::vec(range, 0..8).prop_map(|drops| List::new(drops).unwrap())
}

fn to_data() -> impl Strategy<Value = ToData> {
    let spec = bytes::<SPEC_LEN_MAX>;
    prop_oneof![
        bytes().prop_map(|settings| ToData::Config { settings }),
        (any::<(u32, u16)>(), spec()).prop_map(|((order, port), spec)| ToData::Port {
            order,
            port,
            spec
        }),
        any::<(u32, u16)>().prop_map(|(order, port)| ToData::Remove { order, port }),
        (any::<(u32, u16)>(), spec()).prop_map(|((order, port), spec)| ToData::Change {
            order,
            port,
            spec
        }),
        (any::<(u32, u16, u32)>(), spec()).prop_map(|((order, port, link), spec)| ToData::Link {
            order,
            port,
            link,
            spec
        }),
        any::<(u32, u32)>().prop_map(|(order, link)| ToData::Unlink { order, link }),
        (any::<(u32, u16)>(), bytes::<SLOT_LEN_MAX>())
            .prop_map(|((link, slot), bytes)| ToData::Slot { link, slot, bytes }),
        (any::<(u32, u32)>(), flaw(), bytes()).prop_map(|((link, number), flaw, bytes)| {
            ToData::Frame { link, number, flaw, bytes }
        }),
        (any::<bool>(), bytes()).prop_map(|(is_last, positions)| ToData::Go { is_last, positions }),
        Just(ToData::Quiesce {}),
        Just(ToData::DoesItGoOn {}),
        any::<u16>().prop_map(|version| ToData::Speaks { version }),
        Just(ToData::EndTransfers {}),
        any::<u32>().prop_map(|order| ToData::LinksDown { order }),
        Just(ToData::Replayed {}),
        prop::collection::vec(any::<u32>(), 0..64)
            .prop_map(|fds| ToData::Given { fds: List::new(fds).unwrap() }),
        bytes::<PIECE_LEN_MAX>().prop_map(|parts| ToData::Batch { parts }),
        (any::<u16>(), known()).prop_map(|(port, stations)| {
            ToData::Stations { port, stations: List::new(stations).unwrap() }
        }),
        (any::<u32>(), bytes::<PIECE_LEN_MAX>())
            .prop_map(|(ask, bytes)| ToData::Ask { ask, bytes }),
    ]
}

fn to_supervisor() -> impl Strategy<Value = ToSupervisor> {
    prop_oneof![
        (versions(), versions()).prop_map(|(wire, journal)| ToSupervisor::Hello { wire, journal }),
        (any::<(u32, bool, bool)>(), refusal()).prop_map(
            |((order, is_told, is_closing), refusal)| ToSupervisor::Finished {
                order,
                is_told,
                is_closing,
                refusal
            }
        ),
        (any::<(u32, u32, bool)>(), prop::option::of(bytes()), keep(), drops()).prop_map(
            |((link, number, is_closing), reply, keep, drops)| ToSupervisor::Done {
                link,
                number,
                is_closing,
                reply,
                keep,
                drops
            }
        ),
        (any::<u32>(), drops()).prop_map(|(link, drops)| ToSupervisor::Forget { link, drops }),
        any::<u16>().prop_map(|port| ToSupervisor::Closed { port }),
        refusal().prop_map(|refusal| ToSupervisor::Ready { refusal }),
        Just(ToSupervisor::Running {}),
        Just(ToSupervisor::GoesOn {}),
        any::<(u32, Option<u32>)>()
            .prop_map(|(link, goes_on_at)| ToSupervisor::Runs { link, goes_on_at }),
        any::<(u32, bool)>()
            .prop_map(|(link, is_migrating)| ToSupervisor::Stopped { link, is_migrating }),
        (any::<bool>(), bytes())
            .prop_map(|(is_last, positions)| ToSupervisor::Export { is_last, positions }),
        (any::<(u32, bool)>(), bytes()).prop_map(|((ask, is_last), bytes)| ToSupervisor::Answer {
            ask,
            is_last,
            bytes
        }),
        (any::<u32>(), offence(), text()).prop_map(|(link, offence, why)| ToSupervisor::LetGo {
            link,
            offence,
            why
        }),
        any::<u16>().prop_map(|port| ToSupervisor::TapGone { port }),
        any::<u32>().prop_map(|call| ToSupervisor::Forbidden { call }),
        prop::collection::vec(any::<(u16, [u8; 6])>(), 0..8).prop_map(|stations| {
            let stations = stations.into_iter().map(|(vlan, address)| Station { vlan, address });
            ToSupervisor::Departed { stations: List::new(stations.collect()).unwrap() }
        }),
        (any::<u16>(), prop::collection::vec(any::<(u16, [u8; 6], IpAddr)>(), 0..8)).prop_map(
            |(port, ips)| {
                let ips = ips.into_iter().map(|(vlan, address, ip)| {
                    let ip = ip.to_canonical();
                    SeenIp { vlan, address, ip }
                });
                ToSupervisor::SeenIps { port, ips: List::new(ips.collect()).unwrap() }
            }
        ),
        (any::<u16>(), known()).prop_map(|(port, stations)| {
            ToSupervisor::Stations { port, stations: List::new(stations).unwrap() }
        }),
    ]
}

fn known() -> impl Strategy<Value = Vec<KnownStation>> {
    let one = any::<(u16, [u8; 6], IpAddr, bool)>().prop_map(|(port, address, ip, is_leased)| {
        KnownStation { port, address, ip: ip.to_canonical(), is_leased }
    });
    prop::collection::vec(one, 0..8)
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn what_is_encoded_is_decoded(one in to_data(), other in to_supervisor()) {
        let (first, second) = (one.encode(), other.encode());
        prop_assert!(first.len() <= MESSAGE_LEN_MAX && second.len() <= MESSAGE_LEN_MAX);
        prop_assert_eq!(ToData::decode(&first), Ok(one));
        prop_assert_eq!(ToSupervisor::decode(&second), Ok(other));
        // Of the wrong direction.
        prop_assert_eq!(ToData::decode(&second), Err(BadMessage::Kind { kind: second[0] }));
        prop_assert_eq!(ToSupervisor::decode(&first), Err(BadMessage::Kind { kind: first[0] }));
    }

    /// Cut off, or with more behind it, no message is one.
    #[test]
    fn less_and_more_are_refused(message in to_supervisor(), cut in any::<prop::sample::Index>()) {
        let mut bytes = message.encode();
        let short = &bytes[..cut.index(bytes.len())];
        prop_assert_eq!(ToSupervisor::decode(short), Err(BadMessage::Short));
        bytes.push(0);
        prop_assert_eq!(ToSupervisor::decode(&bytes), Err(BadMessage::TooLong { left: 1 }));
    }

    /// Arbitrary bytes, and good ones of which some were changed.
    #[test]
    fn whatever_is_decoded_encodes_to_the_same_bytes(
        noise in prop::collection::vec(any::<u8>(), 0..100),
        kind in prop_oneof![0u8..16, 126u8..146],
        message in to_supervisor(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut changed = message.encode();
        for (at, value) in flips {
            let at = at.index(changed.len());
            changed[at] = value;
        }
        for bytes in [[vec![kind], noise].concat(), changed] {
            if let Ok(message) = ToData::decode(&bytes) {
                prop_assert_eq!(message.encode(), bytes.clone());
            }
            if let Ok(message) = ToSupervisor::decode(&bytes) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }
    }
}

#[test]
fn what_is_wrong_is_named() {
    let done = |tail: &[u8]| [&[131, 1, 0, 0, 0, 2, 0, 0, 0, 0][..], tail].concat();
    let last = u8::try_from(SLOTS_MAX >> 8).unwrap();
    let rows: [(Vec<u8>, BadMessage); 11] = [
        (vec![], BadMessage::Short),
        (vec![0], BadMessage::Kind { kind: 0 }),
        (vec![135, 0], BadMessage::TooLong { left: 1 }),
        (vec![139, 1], BadMessage::Short),
        (done(&[2]), BadMessage::Value),
        (done(&[1, 0xff, 0xff]), BadMessage::Length { len: 65_535, limit: FRAME_LEN_MAX }),
        (done(&[0, 1, 0, last, 0]), BadMessage::Value),
        (done(&[0, 1, 0, 0, 33]), BadMessage::Value),
        (done(&[0, 0, 1, 0, 6, 0, 5, 0]), BadMessage::Value),
        (done(&[0, 0, 1, 4]), BadMessage::Length { len: 1025, limit: DROPS_MAX }),
        (vec![134, 1, 2, 0, 0xc3, 0x28], BadMessage::Text),
    ];
    for (bytes, why) in rows {
        assert_eq!(ToSupervisor::decode(&bytes), Err(why), "{bytes:?}");
    }
}

/// Bytes that no change of this file may change: they are the protocol.
#[test]
fn these_messages_are_these_bytes() {
    let drops = List::new(vec![SlotRange { first: 5, last: 6 }]).unwrap();
    let done = ToSupervisor::Done {
        link: 1,
        number: 0x0403_0201,
        is_closing: true,
        reply: Bytes::new(vec![9, 8]),
        keep: Some(Keep { slot: 0x0102, fds: 3 }),
        drops,
    };
    let expected = [131, 1, 0, 0, 0, 1, 2, 3, 4, 1, 1, 2, 0, 9, 8, 1, 2, 1, 3, 1, 0, 5, 0, 6, 0];
    assert_eq!(done.encode(), expected);
    let hello = ToSupervisor::Hello {
        wire: Versions { first: 1, last: 2 },
        journal: Versions { first: 3, last: 4 },
    };
    assert_eq!(hello.encode(), [129, 1, 0, 2, 0, 3, 0, 4, 0]);
    let slot = ToData::Slot { link: 7, slot: 3, bytes: Bytes::new(vec![1]).unwrap() };
    assert_eq!(slot.encode(), [7, 7, 0, 0, 0, 3, 0, 1, 0, 1]);
    assert_eq!(ToData::Quiesce {}.encode(), [10]);
}

#[test]
fn fds_come_only_where_they_belong() {
    let rows = [
        (ToData::Quiesce {}, 0),
        (ToData::Port { order: 1, port: 2, spec: Bytes::default() }, TAP_FDS_MAX + 1),
        (ToData::Slot { link: 1, slot: 2, bytes: Bytes::default() }, FDS_MAX),
        (ToData::Go { is_last: true, positions: Bytes::default() }, 1),
        (ToData::Go { is_last: false, positions: Bytes::default() }, 0),
    ];
    for (message, most) in rows {
        let bytes = message.encode();
        assert_eq!(ToData::decode_with(&bytes, most), Ok(message));
        let came = most + 1;
        assert_eq!(ToData::decode_with(&bytes, came), Err(BadMessage::Fds { came }));
    }
}

#[test]
fn versions_have_the_newest_of_both_in_common() {
    let common = |one: (u16, u16), other: (u16, u16)| {
        let of = |(first, last)| Versions { first, last };
        of(one).common(of(other))
    };
    assert_eq!(common((1, 3), (2, 5)), Some(3));
    assert_eq!(common((1, 1), (2, 5)), None);
    assert_eq!(common((9, 1), (1, 9)), None, "nonsense");
}
