//! A data plane in small: a session, what is kept of it, and a host that carries every effect out.
//!
//! Its other end is a supervisor's [`Link`], which has to agree with it.
#![allow(dead_code)] // each test file uses its own part

use std::fs::File;
use std::os::fd::OwnedFd;

use ringway_foreign::UntrustedFd;
use ringway_supervisor::keep::{Changes, Keeper, slot};
use ringway_supervisor::slots::{Link, SlotRange};
use ringway_vhost_user::{
    Applied, Effect, MemoryRange, Offer, Outcome, ProtocolFeatures, RingView, Session, codec,
};
use ringway_virtq::Position;

pub const BIT_30: u64 = 1 << 30;
/// Written pages are logged.
pub const LOG_ALL: u64 = 1 << 26;
pub const SPLIT: u64 = 1 << 32 | BIT_30;
pub const PACKED: u64 = SPLIT | 1 << 34;
/// Where the front-end has its first region.
pub const USER: u64 = 0x7000_0000;
const NEED_REPLY: u32 = 9;

/// Bytes of a request and how many fds go with it.
#[derive(Debug, Clone)]
pub struct Request(pub u32, pub Vec<u8>, pub usize);

impl Request {
    pub fn bytes(&self) -> Vec<u8> {
        let len = u32::try_from(self.1.len()).unwrap();
        [u32s(&[self.0, NEED_REPLY, len]), self.1.clone()].concat()
    }
}

pub fn u32s(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

pub fn u64s(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A region, by number: one MiB each, where nothing else is.
pub fn region(at: u64) -> [u64; 4] {
    let from = at << 20;
    [0x10_0000 + from, 0x10_0000, USER + from, 0]
}

pub fn table(regions: &[u64]) -> Request {
    let count = u32::try_from(regions.len()).unwrap();
    let all: Vec<u64> = regions.iter().flat_map(|&at| region(at)).collect();
    Request(5, [u32s(&[count, 0]), u64s(&all)].concat(), regions.len())
}

pub fn add(at: u64) -> Request {
    Request(37, [u64s(&[0]), u64s(&region(at))].concat(), 1)
}

pub fn remove(at: u64) -> Request {
    Request(38, [u64s(&[0]), u64s(&region(at))].concat(), 0)
}

/// Where a ring is: `place` 64 KiB steps into the front-end's memory.
pub fn addresses(ring: u32, place: u64) -> Request {
    let at = USER + (place << 16);
    let parts = u64s(&[at, at + 0x2000, at + 0x1000, 0]);
    Request(9, [u32s(&[ring, 0]), parts].concat(), 0)
}

pub fn features(bits: u64) -> Request {
    Request(2, u64s(&[bits]), 0)
}

/// `SET_LOG_BASE` of so many bytes.
pub fn log(len: u64, has_fd: bool) -> Request {
    Request(6, u64s(&[len, 0]), usize::from(has_fd))
}

pub fn words(code: u32, ring: u32, value: u32) -> Request {
    Request(code, u32s(&[ring, value]), 0)
}

/// `SET_VRING_KICK`, `_CALL`, `_ERR`.
pub fn with_fd(code: u32, ring: u32, has_fd: bool) -> Request {
    let flag = if has_fd { 0 } else { 0x100 };
    Request(code, u64s(&[u64::from(ring) | flag]), usize::from(has_fd))
}

pub fn number(code: u32, value: u64) -> Request {
    Request(code, u64s(&[value]), 0)
}

pub fn plain(code: u32) -> Request {
    Request(code, vec![], 0)
}

pub fn offer() -> Offer {
    Offer {
        features: 0xd_3101_8028 | 1 << 17 | LOG_ALL,
        queue_pairs_max: 1,
        has_control_queue: true,
        config: vec![],
        memory_slots_max: 509,
        has_device_state: true,
    }
}

fn fds(count: usize) -> Vec<UntrustedFd> {
    (0..count).map(|_| OwnedFd::from(File::open("/dev/null").unwrap()).into()).collect()
}

/// The state that a session shows of itself.
#[derive(Debug, PartialEq, Eq)]
pub struct Shown {
    pub accepted: Option<u64>,
    pub protocol_features: ProtocolFeatures,
    pub memory: Vec<(MemoryRange, u32)>,
    pub rings: Vec<RingView>,
    pub log_len: Option<u64>,
}

/// Both ends of one front-end.
pub struct DataPlane {
    pub session: Session,
    pub keeper: Keeper,
    pub link: Link<u32>,
    /// Whether effects succeed, and if not, whether memory and features do.
    pub succeeds: bool,
    pub is_set_up: bool,
}

impl DataPlane {
    pub fn new() -> Self {
        let (session, keeper, link) = (Session::new(offer()), Keeper::default(), Link::default());
        Self { session, keeper, link, succeeds: true, is_set_up: true }
    }

    /// Everything of a guest whose first ring runs.
    pub fn running(bits: u64) -> Self {
        let mut it = Self::new();
        for request in [features(bits), table(&[0])].iter().chain(&ring(0)) {
            it.send(request);
        }
        it
    }

    fn carry_out(&mut self, outcome: &Outcome) -> Applied {
        let has_some = outcome.effects.iter().any(|it| !matches!(it, Effect::WatchKicks(_)));
        let ok = self.succeeds || !has_some;
        let mut applied = Applied { ok, is_set_up: ok || self.is_set_up, stopped: Vec::new() };
        let sets_log = outcome.effects.iter().any(|it| matches!(it, Effect::SetLog(_)));
        if sets_log && !applied.is_set_up {
            let stopped = self.session.log_failed().into_iter();
            applied.stopped.extend(stopped.map(|index| (index, Position::FRESH)));
        }
        for effect in &outcome.effects {
            if let Effect::StopQueue { index } | Effect::DiscardPackets { index, .. } = effect {
                applied.stopped.push((*index, Position::FRESH));
            }
        }
        applied
    }

    /// The whole way of one request: framed, carried out, kept.
    pub fn send(&mut self, request: &Request) -> Changes {
        let bytes = request.bytes();
        let (header, payload) = bytes.split_at(self.link.framer.wanted());
        let ids = 0..u32::try_from(request.2).unwrap();
        let is_whole = self.link.framer.push(header, ids, false).unwrap();
        assert!(is_whole || self.link.framer.push(payload, [], false).unwrap());
        let message = codec::decode(&bytes, fds(request.2)).unwrap();
        let intent = self.keeper.intend(&message.request, bytes.len()).unwrap();
        let outcome = self.session.handle(message);
        let applied = self.carry_out(&outcome);
        let is_taken = intent.is_taken(outcome.is_remembered, &applied);
        self.session.complete(outcome.pending, applied);
        let changes = self.keeper.settle(intent, is_taken, &self.session);
        let number = self.link.framer.outstanding().unwrap().0;
        self.link.done(number, &changes.drops, changes.keep).unwrap();
        changes
    }

    /// The guest kicks every ring that does not run.
    pub fn kick(&mut self, is_quiet: bool) -> Vec<SlotRange> {
        let outcome = self.session.kicked(&[0, 1, 2], is_quiet);
        let applied = self.carry_out(&outcome);
        self.session.complete(outcome.pending, applied);
        let drops = self.keeper.went_on(&self.session);
        self.link.forget(&drops);
        drops
    }

    pub fn shown(&self) -> Shown {
        let rings = 0..self.session.ring_count();
        Shown {
            accepted: self.session.accepted(),
            protocol_features: self.session.protocol_features(),
            memory: self.session.memory().collect(),
            rings: rings.filter_map(|ring| self.session.ring_view(ring)).collect(),
            log_len: self.session.log_len(),
        }
    }

    /// A new one, from what the supervisor has kept of this one. How often rings were started.
    pub fn successor(&self) -> (Self, usize) {
        let (mut next, mut starts) = (Self::new(), 0);
        for (slot, frame) in self.link.replay() {
            let message = codec::decode(&frame.bytes, fds(frame.fds.len())).unwrap();
            next.keeper.restore(slot, &message.request, frame.bytes.len()).unwrap();
            let outcome = next.session.handle(message);
            let is_start = |effect: &&Effect| matches!(effect, Effect::StartQueue { .. });
            starts += outcome.effects.iter().filter(is_start).count();
            let applied = next.carry_out(&outcome);
            next.session.complete(outcome.pending, applied);
        }
        (next, starts)
    }
}

/// All that makes a ring run.
pub fn ring(index: u32) -> [Request; 6] {
    [
        words(8, index, 256),
        words(10, index, 0),
        addresses(index, u64::from(index)),
        with_fd(13, index, true),
        with_fd(12, index, true),
        words(18, index, 1),
    ]
}

/// A slot in words.
pub fn name(number: u16) -> String {
    let kinds = [
        (slot::STATUS, "status"),
        (slot::ASKED, "asked"),
        (slot::KICK, "kick"),
        (slot::ENABLE, "enable"),
        (slot::BASE, "base"),
        (slot::ADDRESSES, "addresses"),
        (slot::RESET_OWNER, "reset owner"),
        (slot::FEATURES, "features"),
        (slot::SIZE, "size"),
        (slot::ERROR, "error"),
        (slot::CALL, "call"),
        (slot::LOG, "log"),
        (slot::ADDED, "added"),
        (slot::REMOVED, "removed"),
        (slot::TABLE, "table"),
        (slot::CHANNEL, "channel"),
        (slot::PROTOCOL_FEATURES, "protocol features"),
        (slot::OWNER, "owner"),
    ];
    let (first, kind) = kinds.iter().find(|(first, _)| number >= *first).unwrap();
    format!("{kind} {}", number - first)
}

/// The changes, in words.
pub fn told(changes: &Changes) -> String {
    let keep = changes.keep.iter().map(|keep| format!("keep {} fds {}", name(keep.slot), keep.fds));
    let drops = changes.drops.iter().map(|range| match range.first == range.last {
        true => format!("drop {}", name(range.first)),
        false => format!("drop {} to {}", name(range.first), name(range.last)),
    });
    drops.chain(keep).collect::<Vec<_>>().join(", ")
}
