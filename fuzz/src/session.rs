//! Messages of a front-end to a session, with descriptors, and what its guest and the device do
//! between.
//!
//! How: three bytes make a step. Most steps are requests that fit each other (few rings, few places
//! for memory), so that rings start and stop; some are any bytes, with any number of descriptors.
//! The host is played: queues run or not, and effects fail where the input says so. Limits: what a
//! session believes is compared with the played host, what it wants is only carried out.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;

use ringway_vhost_user::{Applied, Effect, Offer, Outcome, Session, codec};
use ringway_virtq::Position;

use crate::wire::message;

/// Most steps of one input.
const STEPS_MAX: usize = 64;

/// receiveq, transmitq, controlq.
const RINGS: usize = 3;

/// The requests that are put together, by number, and how many descriptors each needs.
const REQUESTS: [(u8, usize); 36] = [
    (1, 0),
    (2, 0),
    (3, 0),
    (4, 0),
    (5, 1),
    (6, 1),
    (7, 1),
    (8, 0),
    (8, 0),
    (9, 0),
    (9, 0),
    (10, 0),
    (11, 0),
    (12, 1),
    (12, 1),
    (13, 1),
    (14, 1),
    (15, 0),
    (16, 0),
    (17, 0),
    (18, 0),
    (18, 0),
    (19, 0),
    (20, 0),
    (21, 1),
    (24, 0),
    (25, 0),
    (34, 0),
    (36, 0),
    (37, 1),
    (38, 0),
    (39, 0),
    (40, 0),
    (12, 0),
    (42, 1),
    (43, 0),
];

/// Split, packed, without bit 30, with event index, with a log of pages; and one that was not
/// offered.
const FEATURES: [u64; 6] =
    [1 << 32 | 1 << 30, 5 << 32 | 1 << 30, 1 << 32, 0x1_7000_0020, 0x1_4400_0000, 1 << 63];

/// The protocol features without which there is no log of pages, and no state of the device.
const LOG_AND_STATE: u64 = 1 << 1 | 1 << 19;

/// Positions that mean something: fresh rings, DPDK's and User Mode Linux's words, nonsense.
const BASES: [u32; 6] = [0, 0x8000_8000, 0x8000, 3, 0x0003_8005, u32::MAX];

/// The effects that an input has led to, by name.
pub type Reached = BTreeSet<&'static str>;

/// A host that keeps nothing but which queues run.
#[derive(Default)]
struct Host {
    running: [bool; RINGS],
    /// The number of effects that are carried out before one fails.
    fails_after: Option<usize>,
    /// The log could not be mapped.
    has_no_log: bool,
    reached: Reached,
}

/// One input; which effects it has led to.
pub fn session(data: &[u8]) -> Reached {
    let mut session = Session::new(Offer {
        features: 0x0000_0005_7500_7fff,
        queue_pairs_max: 1,
        has_control_queue: true,
        config: vec![0; 24],
        memory_slots_max: 4,
        has_device_state: true,
    });
    let mut host = Host::default();
    let [begin, rest @ ..] = data else { return host.reached };
    for (bytes, fds) in beginning(*begin) {
        let outcome = handle(&mut session, &bytes, fds);
        host.finish(&mut session, outcome);
    }
    let mut rest = rest;
    for _ in 0..STEPS_MAX {
        let [kind, a, b, behind @ ..] = rest else { break };
        rest = behind;
        let outcome = match kind {
            0..0xc0 => handle(&mut session, &known(*kind, *a, *b), known_fds(*kind, *b)),
            0xc0..0xe0 => {
                let (payload, behind) = behind.split_at(usize::from(b % 64).min(behind.len()));
                rest = behind;
                handle(&mut session, &message(*a, payload), usize::from(kind % 4))
            }
            0xe0..0xf8 => Some(session.kicked(&[u16::from(a % 4)], b & 1 != 0)),
            _ => {
                host.fails_after = Some(usize::from(a % 3));
                None
            }
        };
        host.finish(&mut session, outcome);
    }
    host.reached
}

/// Messages before the input begins: each bit is one thing, so that far from all has to be found by
/// chance.
fn beginning(bits: u8) -> Vec<(Vec<u8>, usize)> {
    let region = u64s(&[1, 0x10_0000, 0x10_0000, 0x7000_0000, 0]);
    let mut all = vec![(message(16, &u64s(&[LOG_AND_STATE])), 0, 1)];
    all.push((message(2, &u64s(&[FEATURES[usize::from(bits >> 6)]])), 0, 1));
    all.push((message(5, &region), 1, 2));
    for ring in 0..2u32 {
        let at = 0x7000_0000 + 0x1_0000 * u64::from(ring);
        let addresses = [u32s(&[ring, 0]), u64s(&[at, at + 0x2000, at + 0x1000, 0])].concat();
        all.push((message(8, &u32s(&[ring, 256])), 0, 4));
        all.push((message(9, &addresses), 0, 8));
        all.push((message(12, &u64s(&[ring.into()])), 1, 16));
        all.push((message(18, &u32s(&[ring, 1])), 0, 32));
    }
    let said = all.into_iter().filter(|(_, _, bit)| bits & bit != 0);
    said.map(|(bytes, fds, _)| (bytes, fds)).collect()
}

fn handle(session: &mut Session, bytes: &[u8], fds: usize) -> Option<Outcome> {
    let fds = (0..fds).map_while(|_| descriptor().ok().map(Into::into)).collect();
    let message = codec::decode(bytes, fds).ok()?;
    Some(session.handle(message))
}

/// Of a file that says nothing: nothing is done with it.
fn descriptor() -> io::Result<OwnedFd> {
    use std::sync::LazyLock;
    static NULL: LazyLock<io::Result<std::fs::File>> =
        LazyLock::new(|| std::fs::File::open("/dev/null"));
    let file = NULL.as_ref().map_err(|error| io::Error::from(error.kind()))?;
    Ok(file.try_clone()?.into())
}

fn known_fds(kind: u8, b: u8) -> usize {
    let (_, fds) = REQUESTS[usize::from(kind) % REQUESTS.len()];
    // Now and then too few or too many.
    if b == 0xff { 2 - fds } else { fds }
}

/// A request that fits others.
fn known(kind: u8, a: u8, b: u8) -> Vec<u8> {
    let (request, fds) = REQUESTS[usize::from(kind) % REQUESTS.len()];
    let ring = u32::from(a % 4);
    let pick = |count: usize| usize::from(b) % count;
    let region = |which: u8| {
        let at = 0x10_0000 * (1 + u64::from(which % 3));
        [at, 0x8_0000, 0x7000_0000 + u64::from(which / 3 % 2) * 0x8_0000, 0]
    };
    let payload = match request {
        2 => u64s(&[FEATURES[pick(FEATURES.len())]]),
        5 => [u64s(&[1]), u64s(&region(b))].concat(),
        // Behind the last region, in front of its end, and nothing.
        6 => u64s(&[[0x80, 1, 0][pick(3)], 0]),
        8 => u32s(&[ring, [256, 16, 3, 0, 0x1_0000][pick(5)]]),
        9 => {
            let at = 0x7000_0000 + 0x1_0000 * (u64::from(b) % 16);
            [u32s(&[ring, 0]), u64s(&[at, at + 0x2000, at + 0x1000, 0])].concat()
        }
        10 => u32s(&[ring, BASES[pick(BASES.len())]]),
        // With the flag that there is no descriptor, where there is none.
        12..=14 => u64s(&[u64::from(ring) | if fds == 0 { 1 << 8 } else { 0 }]),
        11 | 18 => u32s(&[ring, u32::from(b & 1)]),
        16 if a < 0x80 => u64s(&[LOG_AND_STATE]),
        16 => u64s(&[u64::from(a) << 9 | u64::from(b)]),
        20 => u64s(&[u64::from(a) << 8 | u64::from(b)]),
        24 | 25 => u32s(&[u32::from(a), u32::from(b) % 8, 0, 0, 0]),
        37 | 38 => [u64s(&[0]), u64s(&region(a))].concat(),
        39 => u64s(&[[0, 15, 0x100][pick(3)]]),
        42 => u32s(&[u32::from(a % 3), u32::from(b) / 0x80]),
        _ => u64s(&[u64::from(a)]),
    };
    message(request, &payload)
}

fn u32s(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn u64s(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

impl Host {
    fn running(&self) -> impl Iterator<Item = u16> + '_ {
        (0..).zip(self.running).filter_map(|(index, runs)| runs.then_some(index))
    }

    fn finish(&mut self, session: &mut Session, outcome: Option<Outcome>) {
        let Some(outcome) = outcome else { return };
        let (mut applied, pending) = (self.carry_out(outcome.effects), outcome.pending);
        if std::mem::take(&mut self.has_no_log) {
            for index in session.log_failed() {
                if std::mem::take(self.runs(index)) {
                    applied.stopped.push((index, Position::FRESH));
                }
            }
        }
        let _ = session.complete(pending, applied);
        let believed: Vec<u16> = session.running().collect();
        assert_eq!(believed, self.running().collect::<Vec<_>>(), "which queues run");
    }

    /// As the daemon does it.
    fn carry_out(&mut self, effects: Vec<Effect>) -> Applied {
        let mut applied = Applied { is_set_up: false, ..Applied::OK };
        let mut started = Vec::new();
        let mut left = self.fails_after.take().filter(|_| !effects.is_empty());
        for effect in effects {
            self.reached.insert(name(&effect));
            match effect {
                Effect::StopQueue { index } => {
                    assert!(std::mem::take(self.runs(index)), "queue {index} does not run");
                    applied.stopped.push((index, Position::FRESH));
                    continue;
                }
                Effect::DiscardPackets { index, .. } => {
                    assert!(index % 2 == 1 && !*self.runs(index), "queue {index} is no such one");
                    applied.stopped.push((index, Position::FRESH));
                    continue;
                }
                _ if !applied.ok => continue,
                _ if left == Some(0) => {
                    applied.ok = false;
                    self.has_no_log = matches!(effect, Effect::SetLog(_));
                    continue;
                }
                Effect::StartQueue { index, .. } => {
                    assert!(!std::mem::replace(self.runs(index), true), "queue {index} runs");
                    started.push(index);
                }
                Effect::RebindQueue { index, .. }
                | Effect::SetKick { index, .. }
                | Effect::SetCall { index, .. }
                | Effect::SetError { index, .. } => {
                    assert!(*self.runs(index), "queue {index} does not run");
                }
                _ => {}
            }
            applied.is_set_up = true;
            left = left.map(|left| left - 1);
        }
        if !applied.ok {
            for index in started {
                *self.runs(index) = false;
                applied.stopped.push((index, Position::FRESH));
            }
        }
        applied
    }

    fn runs(&mut self, index: u16) -> &mut bool {
        &mut self.running[usize::from(index)]
    }
}

fn name(effect: &Effect) -> &'static str {
    match effect {
        Effect::StopQueue { .. } => "StopQueue",
        Effect::SetLog(_) => "SetLog",
        Effect::DropLog => "DropLog",
        Effect::Logging(_) => "Logging",
        Effect::Reset => "Reset",
        Effect::Features(_) => "Features",
        Effect::SetMemory(_) => "SetMemory",
        Effect::AddMemory(_) => "AddMemory",
        Effect::RemoveMemory(_) => "RemoveMemory",
        Effect::StartQueue { .. } => "StartQueue",
        Effect::RebindQueue { .. } => "RebindQueue",
        Effect::DiscardPackets { .. } => "DiscardPackets",
        Effect::WatchKicks(_) => "WatchKicks",
        Effect::SetKick { .. } => "SetKick",
        Effect::SetCall { .. } => "SetCall",
        Effect::SetError { .. } => "SetError",
        Effect::BackendChannel(_) => "BackendChannel",
        Effect::AnnounceMac(_) => "AnnounceMac",
        Effect::SetMtu(_) => "SetMtu",
        Effect::TransferState { .. } => "TransferState",
        Effect::CheckState => "CheckState",
    }
}

/// Names of all effects.
pub const EFFECTS: [&str; 21] = [
    "AddMemory",
    "AnnounceMac",
    "BackendChannel",
    "CheckState",
    "DiscardPackets",
    "DropLog",
    "Features",
    "Logging",
    "RebindQueue",
    "RemoveMemory",
    "Reset",
    "SetCall",
    "SetError",
    "SetKick",
    "SetLog",
    "SetMemory",
    "SetMtu",
    "StartQueue",
    "StopQueue",
    "TransferState",
    "WatchKicks",
];
