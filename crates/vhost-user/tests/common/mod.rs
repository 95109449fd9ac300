//! A scripted back-end: messages as bytes in, effects as text and replies as bytes out.
//!
//! The bytes are put together here and not by the crate's own codec, so that a mistake made in
//! both directions of it is seen.
#![allow(dead_code)] // each test file uses its own part

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringway_foreign::UntrustedFd;
use ringway_vhost_user::{
    Applied, Effect, MemoryRegion, Offer, Outcome, Refusal, Session, base_from_position, codec,
};
use ringway_virtq::{Areas, Format, Position};

/// Bit 30, which is about vhost-user itself.
pub const BIT_30: u64 = 1 << 30;
/// Pages that are written are logged.
pub const LOG_ALL: u64 = 1 << 26;
/// The features of the tests' device: all that matter for rings, and MAC, MTU, STATUS, MRG_RXBUF.
pub const FEATURES: u64 = 0xd_3101_8028 | 1 << 17;
/// Every protocol feature that is offered, by number. MQ (0) needs more than one queue pair.
pub const PROTOCOL_FEATURES: u64 =
    1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 9 | 1 << 13 | 1 << 15 | 1 << 16;
pub const CONFIG: [u8; 12] = [2, 0, 0, 0, 0, 7, 1, 0, 1, 0, 0x28, 0x23];

pub const FLAGS: u32 = 1;
pub const NEED_REPLY: u32 = 9;

pub fn offer() -> Offer {
    Offer {
        features: FEATURES,
        queue_pairs_max: 1,
        has_control_queue: true,
        config: CONFIG.to_vec(),
        memory_slots_max: 509,
        has_device_state: false,
    }
}

/// The same with a log of written pages: bit 26, and LOG_SHMFD.
pub fn offer_with_log(queue_pairs_max: u16) -> Offer {
    Offer { features: FEATURES | LOG_ALL, queue_pairs_max, ..offer() }
}

/// The same with the device's state, too.
pub fn offer_with_state(queue_pairs_max: u16) -> Offer {
    Offer { has_device_state: true, ..offer_with_log(queue_pairs_max) }
}

/// A message: header and payload.
pub fn message(code: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32s(&[code, flags, u32::try_from(payload.len()).unwrap()]);
    bytes.extend(payload);
    bytes
}

pub fn u32s(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

pub fn u64s(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Bytes from hexadecimal text with spaces.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap()).collect()
}

/// A reply: the same request number, flags exactly 5.
pub fn reply(code: u32, payload: &[u8]) -> Option<Vec<u8>> {
    Some(message(code, 5, payload))
}

pub fn ack(code: u32) -> Option<Vec<u8>> {
    reply(code, &u64s(&[0]))
}

pub fn nack(code: u32) -> Option<Vec<u8>> {
    reply(code, &u64s(&[1]))
}

pub fn fds(count: usize) -> Vec<UntrustedFd> {
    (0..count).map(|_| OwnedFd::from(File::open("/dev/null").unwrap()).into()).collect()
}

/// The outcome of one message.
pub struct Step {
    pub effects: Vec<String>,
    pub reply: Option<Vec<u8>>,
    pub refused: Option<Refusal>,
}

/// A session and the simplest host: it knows where a queue stands and nothing else.
pub struct Backend {
    pub session: Session,
    /// Where every queue stands when it is stopped next.
    pub stands_at: Position,
    /// Whether the next effects succeed.
    pub succeeds: bool,
    /// Whether no log can be mapped.
    pub refuses_logs: bool,
    /// The rings whose kicks it was told to watch last; not among the effects of a step.
    pub watched: String,
}

impl Backend {
    pub fn new() -> Self {
        Self::with(offer())
    }

    pub fn with(offer: Offer) -> Self {
        let (session, watched) = (Session::new(offer), "watch".into());
        let refuses_logs = false;
        Self { session, stands_at: Position::FRESH, succeeds: true, refuses_logs, watched }
    }

    /// Features and memory are there: one region, user address 0x7000_0000, guest address
    /// 0x10_0000, 1 MiB.
    pub fn negotiated(features: u64) -> Self {
        let mut backend = Self::new();
        backend.ack(2, &u64s(&[features]), 0);
        let table = [u32s(&[1, 0]), u64s(&[0x10_0000, 0x10_0000, 0x7000_0000, 0])].concat();
        backend.ack(5, &table, 1);
        backend
    }

    pub fn send(&mut self, bytes: &[u8], fds: Vec<UntrustedFd>) -> Step {
        let message = codec::decode(bytes, fds).expect("a header that can be believed");
        let outcome = self.session.handle(message);
        self.carry_out(outcome)
    }

    /// The guest kicks; what comes of it.
    pub fn kick(&mut self, queues: &[u16], is_quiet: bool) -> Vec<String> {
        let outcome = self.session.kicked(queues, is_quiet);
        let step = self.carry_out(outcome);
        assert_eq!(step.reply, None);
        step.effects
    }

    fn carry_out(&mut self, outcome: Outcome) -> Step {
        let mut applied = if self.succeeds { Applied::OK } else { Applied::FAILED };
        for effect in &outcome.effects {
            if let Effect::StopQueue { index } | Effect::DiscardPackets { index, .. } = effect {
                applied.stopped.push((*index, self.stands_at));
            }
        }
        let is_log = |effect: &Effect| matches!(effect, Effect::SetLog(_));
        if self.refuses_logs && outcome.effects.iter().any(is_log) {
            applied = Applied { ok: false, is_set_up: false, ..applied };
            let stopped = self.session.log_failed();
            applied.stopped.extend(stopped.into_iter().map(|index| (index, self.stands_at)));
        }
        let is_watch = |effect: &&Effect| matches!(effect, Effect::WatchKicks(_));
        if let Some(watch) = outcome.effects.iter().find(is_watch) {
            self.watched = describe(watch);
        }
        let others = outcome.effects.iter().filter(|effect| !is_watch(effect));
        let effects = others.map(describe).collect();
        let reply = self.session.complete(outcome.pending, applied);
        Step { effects, reply, refused: outcome.refused }
    }

    /// Sends one message with as many fds, and checks all that comes of it.
    #[track_caller]
    pub fn step(
        &mut self,
        bytes: &[u8],
        fd_count: usize,
        effects: &[&str],
        reply: Option<Vec<u8>>,
    ) {
        let step = self.send(bytes, fds(fd_count));
        assert_eq!(step.effects, effects);
        assert_eq!(step.reply, reply);
    }

    /// Sends a request that must be acknowledged; what comes of it.
    #[track_caller]
    pub fn ack(&mut self, code: u32, payload: &[u8], fd_count: usize) -> Vec<String> {
        let step = self.send(&message(code, NEED_REPLY, payload), fds(fd_count));
        assert_eq!(step.reply, ack(code), "{:?}", step.refused);
        step.effects
    }

    /// Sends a request that must be refused; why it was.
    #[track_caller]
    pub fn nack(&mut self, code: u32, payload: &[u8], fd_count: usize) -> String {
        let step = self.send(&message(code, NEED_REPLY, payload), fds(fd_count));
        assert_eq!(step.reply, nack(code));
        step.refused.expect("a reason").to_string()
    }

    /// Sends a request that leads to something that cannot be carried out.
    #[track_caller]
    pub fn fail(&mut self, code: u32, payload: &[u8], fd_count: usize) {
        self.succeeds = false;
        let step = self.send(&message(code, NEED_REPLY, payload), fds(fd_count));
        assert_eq!(step.reply, nack(code));
        self.succeeds = true;
    }

    /// Everything about a ring but "enable": 256 entries in the memory of `negotiated`.
    pub fn describe_ring(&mut self, index: u32, base: u32) -> Vec<String> {
        self.ack(8, &u32s(&[index, 256]), 0);
        self.ack(10, &u32s(&[index, base]), 0);
        self.ack(9, &ring_addresses(index, 0x7000_0000), 0);
        self.ack(13, &u64s(&[index.into()]), 1);
        self.ack(12, &u64s(&[index.into()]), 1)
    }

    pub fn base(&mut self, index: u32) -> u32 {
        let bytes = self.send(&message(11, FLAGS, &u32s(&[index, 0])), vec![]).reply.unwrap();
        assert_eq!(bytes[..16], [u32s(&[11, 5, 8]), u32s(&[index])].concat());
        u32::from_le_bytes(bytes[16..].try_into().unwrap())
    }
}

/// `SET_VRING_ADDR` with the ring at one address: descriptors, then used, then available.
pub fn ring_addresses(index: u32, at: u64) -> Vec<u8> {
    [u32s(&[index, 0]), u64s(&[at, at + 0x2000, at + 0x1000, 0])].concat()
}

/// An effect in one line.
pub fn describe(effect: &Effect) -> String {
    let fd = |name: &str, fd: &Option<UntrustedFd>| match fd {
        Some(_) => format!(" {name}"),
        None => String::new(),
    };
    match effect {
        Effect::StopQueue { index } => format!("stop {index}"),
        Effect::Reset => "reset".into(),
        Effect::SetLog(area) => format!("log {:#x}@{:#x}", area.size, area.offset),
        Effect::DropLog => "no log".into(),
        Effect::Logging(is_on) => format!("logging {is_on}"),
        Effect::Features(features) => format!("features {features:#x}"),
        Effect::SetMemory(regions) => {
            let regions: Vec<_> = regions.iter().map(describe_region).collect();
            format!("memory {}", regions.join(" "))
        }
        Effect::AddMemory(region) => format!("add memory {}", describe_region(region)),
        Effect::RemoveMemory(range) => format!("remove memory {:#x}", range.guest_address),
        Effect::StartQueue { index, format, setup, kick, call, error, .. } => {
            let base = base_from_position(setup.position, *format);
            let format = if *format == Format::Split { "split" } else { "packed" };
            let fds = [fd("kick", kick), fd("call", call), fd("error", error)].concat();
            let areas = describe_areas(&setup.areas);
            format!("start {index} {format} {} at {areas} base {base:#x}{fds}", setup.size)
        }
        Effect::RebindQueue { index, areas } => format!("rebind {index} {}", describe_areas(areas)),
        Effect::DiscardPackets { index, .. } => format!("discard {index}"),
        Effect::WatchKicks(fds) => {
            let indexes = fds.iter().map(|(index, _)| format!(" {index}"));
            format!("watch{}", indexes.collect::<String>())
        }
        Effect::SetKick { index, fd: it } => format!("set {index}{}", fd("kick", it)),
        Effect::SetCall { index, fd: it } => format!("set {index}{}", fd("call", it)),
        Effect::SetError { index, fd: it } => format!("set {index}{}", fd("error", it)),
        Effect::BackendChannel(_) => "channel".into(),
        Effect::AnnounceMac(mac) => format!("announce {mac:02x?}"),
        Effect::SetMtu(mtu) => format!("mtu {mtu}"),
        Effect::TransferState { direction, .. } => format!("transfer {direction:?}"),
        Effect::CheckState => "check".into(),
    }
}

fn describe_region(region: &MemoryRegion) -> String {
    let MemoryRegion { guest_address, size, user_address, mmap_offset, .. } = region;
    format!("{guest_address:#x}+{size:#x}@{user_address:#x}/{mmap_offset:#x}")
}

fn describe_areas(areas: &Areas) -> String {
    format!("{:#x}/{:#x}/{:#x}", areas.descriptor, areas.driver, areas.device)
}

static COUNTING: Mutex<()> = Mutex::new(());

/// Nothing else in this test process may open or close fds while they are counted.
pub fn fds_are_counted() -> MutexGuard<'static, ()> {
    COUNTING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Open file descriptors of this process.
pub fn fd_count() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
