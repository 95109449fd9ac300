//! The back-end's side of one connection: requests in, effects out, no I/O.
//!
//! A front-end tells everything about a ring in any order, often more than once. So nothing happens
//! at the moment it is told: the session remembers, and after each request compares which rings
//! *ought* to run with those that do. A ring ought to run when
//!
//! - features were accepted, and the ring is enabled if bit 30 is among them,
//! - a kick was set (an fd, or explicitly none) since the ring was last stopped, or the guest has
//!   kicked since `GET_VRING_BASE` stopped it and the front-end has gone quiet (without a kick
//!   where it tells the device's status),
//! - its size and addresses are known and lie inside the memory table.
//!
//! Requests are refused one by one; nothing a front-end sends ends the session. One request at a
//! time: [`Session::complete`] comes before the next [`Session::handle`].

mod device;
mod ring;
mod view;

pub use view::RingView;

use crate::codec;
use crate::effect::{Answer, Applied, Before, Effect, Outcome, PendingReply};
use crate::memory_table::MemoryTable;
use crate::message::{
    Message, PROTOCOL_FEATURES_BIT, ProtocolFeatures, Reply, Request, has_own_reply,
};
use crate::refusal::Refusal;
use crate::ring_state::{RingState, Running};

const NOTIFY_ON_EMPTY: u64 = 1 << 24;
const INDIRECT_DESC: u64 = 1 << 28;
const EVENT_IDX: u64 = 1 << 29;
const ACCESS_PLATFORM: u64 = 1 << 33;
const RING_PACKED: u64 = 1 << 34;
const IN_ORDER: u64 = 1 << 35;

/// Device status bit (virtio 1.2 §2.1): the driver uses the device.
const STATUS_DRIVER_OK: u8 = 4;

/// The index of a ring has eight bits in the requests that carry an fd.
const RINGS_MAX: usize = 256;

/// The device's offer on this connection.
#[derive(Debug, Clone)]
pub struct Offer {
    /// Virtio feature bits (the vhost-user bit 30 is added by itself), and bit 26 where pages that
    /// are written can be marked.
    pub features: u64,
    /// Queue pairs, 1 to 127.
    pub queue_pairs_max: u16,
    /// Whether a control queue follows them.
    pub has_control_queue: bool,
    /// The bytes of `struct virtio_net_config`; what lies beyond reads as zero.
    pub config: Vec<u8>,
    /// Most memory regions at a time.
    pub memory_slots_max: u64,
    /// Whether the device's state can be saved and loaded.
    pub has_device_state: bool,
}

/// One connection's state.
#[derive(Debug)]
pub struct Session {
    offer: Offer,
    protocol_features: ProtocolFeatures,
    /// Accepted features with bit 30; `None` before `SET_FEATURES` and after a reset.
    accepted: Option<u64>,
    status: u8,
    memory: MemoryTable,
    rings: Vec<RingState>,
    has_backend_channel: bool,
    /// Bytes of the log in which pages are marked; `None`: there is none that can be used.
    log_len: Option<u64>,
    /// Rings whose kicks are told, and which of their kick fds that is.
    watched: Vec<(u16, u32)>,
}

/// The effects of one request while they are collected: queues stop before anything else happens.
#[derive(Default)]
struct Plan {
    watch: Option<Effect>,
    stops: Vec<Effect>,
    effects: Vec<Effect>,
    before: Before,
    /// The front-end is not told, but the log is.
    complaint: Option<Refusal>,
}

impl Plan {
    fn outcome(
        self,
        code: u32,
        reply_wanted: bool,
        answer: Answer,
        refused: Option<Refusal>,
    ) -> Outcome {
        let mut effects: Vec<Effect> = self.watch.into_iter().chain(self.stops).collect();
        effects.extend(self.effects);
        let pending = PendingReply { code, reply_wanted, answer, before: self.before };
        let refused = refused.or(self.complaint);
        Outcome { effects, pending, refused, is_remembered: true }
    }
}

impl Session {
    /// A fresh connection.
    ///
    /// # Panics
    /// More queues than the protocol can name (a mistake in the configuration of this process).
    pub fn new(offer: Offer) -> Self {
        let count = 2 * usize::from(offer.queue_pairs_max) + usize::from(offer.has_control_queue);
        assert!((1..=RINGS_MAX).contains(&count), "{count} rings, possible are 1 to {RINGS_MAX}");
        Self {
            offer,
            protocol_features: ProtocolFeatures::empty(),
            accepted: None,
            status: 0,
            memory: MemoryTable::default(),
            rings: (0..count).map(|_| RingState::default()).collect(),
            has_backend_channel: false,
            log_len: None,
            watched: Vec::new(),
        }
    }

    /// Takes one request. What it leads to has to be carried out; then comes
    /// [`complete`](Self::complete).
    pub fn handle(&mut self, message: Message) -> Outcome {
        let code = message.request.code();
        let mut plan = Plan::default();
        let answer = self.take(message.request, &mut plan);
        let is_remembered = match &answer {
            Ok(_) => true,
            Err(Refusal::RingOutsideMemory { index }) => {
                self.rings[usize::from(*index)].running.is_none()
            }
            Err(_) => false,
        };
        let settled = self.settle(&mut plan);
        // A request with a reply of its own is answered even when it is refused, because its sender
        // waits.
        let (answer, refused) = match (answer, settled) {
            (Ok(answer), Ok(())) => (answer, None),
            (Ok(Answer::Ack), Err(refusal)) => (Answer::Nack, Some(refusal)),
            (Ok(answer), Err(refusal)) => (answer, Some(refusal)),
            (Err(refusal), _) if has_own_reply(code) => {
                (Answer::Reply(Self::refused_reply(code)), Some(refusal))
            }
            (Err(refusal), _) => (Answer::Nack, Some(refusal)),
        };
        let outcome = plan.outcome(code, message.reply_wanted, answer, refused);
        Outcome { is_remembered, ..outcome }
    }

    /// The effects were carried out (or not): the bytes of the reply, if one is due.
    pub fn complete(&mut self, pending: PendingReply, applied: Applied) -> Option<Vec<u8>> {
        if !applied.ok {
            self.undo(pending.before, applied.is_set_up);
        }
        for (index, position) in applied.stopped {
            if let Some(ring) = self.rings.get_mut(usize::from(index)) {
                ring.stopped_at(position);
            }
        }
        let format = self.format();
        let reply = match pending.answer {
            Answer::Ack if applied.ok => pending.reply_wanted.then_some(Reply::ACK),
            Answer::Ack | Answer::Nack => pending.reply_wanted.then_some(Reply::NACK),
            Answer::Reply(reply) => Some(reply),
            Answer::Either { done, failed } => Some(if applied.ok { done } else { failed }),
            Answer::Base { index } => self.rings.get_mut(usize::from(index)).map(|ring| {
                Reply::VringState { index: u32::from(index), base: ring.answer_base(format) }
            }),
        };
        reply.map(|reply| codec::encode_reply(pending.code, &reply))
    }

    /// The configuration space is different now. The bytes, if any, are to be sent on the channel
    /// that [`Effect::BackendChannel`] handed over.
    pub fn set_config(&mut self, config: Vec<u8>) -> Option<Vec<u8>> {
        let needed = ProtocolFeatures::CONFIG | ProtocolFeatures::BACKEND_REQ;
        let changed = self.offer.config != config;
        self.offer.config = config;
        let tell = changed && self.has_backend_channel && self.protocol_features.contains(needed);
        tell.then(codec::encode_config_change)
    }

    /// A predecessor of this process had this ring, and it stood there when it was stopped; see
    /// [`stood`](Self::stood).
    pub fn stood_at(&mut self, index: u16, base: u32, goes_on: bool) {
        let format = self.format();
        if let Some(ring) = self.rings.get_mut(usize::from(index)) {
            ring.stood_at(base, goes_on, format);
        }
    }

    /// A queue that was to start could not, after all: it is taken for stopped.
    pub fn start_failed(&mut self, index: u16) {
        if let Some(ring) = self.rings.get_mut(usize::from(index)) {
            ring.start_failed();
        }
    }

    /// The rings that run, as far as this session knows.
    pub fn running(&self) -> impl Iterator<Item = u16> + '_ {
        let running = self.rings.iter().enumerate().filter(|(_, ring)| ring.running.is_some());
        running.filter_map(|(index, _)| u16::try_from(index).ok())
    }

    fn take(&mut self, request: Request, plan: &mut Plan) -> Result<Answer, Refusal> {
        match request {
            Request::GetFeatures => return reply_u64(self.offer.features | PROTOCOL_FEATURES_BIT),
            Request::GetProtocolFeatures => {
                return reply_u64(self.protocol_features_offered().bits());
            }
            Request::GetQueueNum => return reply_u64(self.offer.queue_pairs_max.into()),
            Request::GetMaxMemSlots => return reply_u64(self.offer.memory_slots_max),
            Request::GetStatus => return reply_u64(self.status.into()),
            Request::GetConfig { offset, size, flags } => return self.config(offset, size, flags),
            Request::GetVringBase { index } => return self.stop_for_base(index, plan),
            Request::SetDeviceStateFd(state) => return self.transfer_state(state, plan),
            Request::CheckDeviceState => return self.check_state(plan),
            Request::SetOwner => {}
            Request::ResetOwner => self.disable_all(plan),
            Request::SetFeatures(features) => self.accept_features(features, plan)?,
            Request::SetProtocolFeatures(features) => self.accept_protocol_features(features)?,
            Request::SetStatus(status) => self.set_status(status, plan)?,
            Request::ResetDevice => self.reset(plan, RingState::reset),
            Request::SetMemTable(regions) => self.set_memory(regions, plan)?,
            Request::AddMemReg(region) => self.add_memory(region, plan)?,
            Request::RemMemReg(range) => self.remove_memory(range, plan)?,
            Request::SetLogBase(area) => return Ok(self.set_log(area, plan)),
            // Nothing is told through it: a front-end looks at the log when it wants to.
            Request::SetLogFd => self.needs_log_file()?,
            Request::SetVringNum { index, size } => self.set_size(index, size, plan)?,
            Request::SetVringBase { index, base } => self.set_base(index, base, plan)?,
            Request::SetVringAddr(addresses) => self.set_addresses(addresses)?,
            Request::SetVringKick(vring) => self.set_kick(vring, plan)?,
            Request::SetVringCall(vring) => self.set_call(vring, plan)?,
            Request::SetVringErr(vring) => self.set_error(vring, plan)?,
            Request::SetVringEnable { index, enable } => {
                let index = self.ring_index(index.into())?;
                self.ring(index).enabled = Some(enable);
            }
            Request::SetBackendReqFd(fd) => {
                self.has_backend_channel = true;
                plan.effects.push(Effect::BackendChannel(fd));
            }
            Request::SendRarp(mac) => plan.effects.push(Effect::AnnounceMac(mac)),
            Request::NetSetMtu(mtu) => plan.effects.push(Effect::SetMtu(Self::checked_mtu(mtu)?)),
            Request::SetConfig { .. } => return Err(Refusal::ConfigNotWritable),
            Request::NotOffered { code } => return Err(Refusal::NotOffered { code }),
            Request::Unknown { code } => return Err(Refusal::Unknown { code }),
            Request::Malformed { code, why } => return Err(Refusal::Malformed { code, why }),
        }
        Ok(Answer::Ack)
    }

    /// Something could not be carried out: what was to come behind it did not happen either.
    fn undo(&mut self, before: Before, is_set_up: bool) {
        for index in before.started {
            self.rings[usize::from(index)].start_failed();
        }
        if is_set_up {
            return;
        }
        if before.is_accepting {
            self.accepted = before.accepted;
        }
        let Some(memory) = before.memory else { return };
        self.memory = memory;
        for (index, areas) in before.rebound {
            if let Some(running) = &mut self.rings[usize::from(index)].running {
                running.areas = areas;
            }
        }
    }

    /// Compares which rings ought to run with those that do.
    fn settle(&mut self, plan: &mut Plan) -> Result<(), Refusal> {
        let (format, options) = (self.format(), self.options());
        for at in 0..self.rings.len() {
            let index = u16::try_from(at).unwrap_or(u16::MAX);
            let wanted = self.wanted_areas(&self.rings[at]);
            let ring = &mut self.rings[at];
            match (&mut ring.running, wanted) {
                (None, None) => {}
                (Some(_), None) => {
                    if ring.pause() {
                        plan.stops.push(Effect::StopQueue { index });
                    }
                }
                (Some(running), Some(areas)) => {
                    if running.areas != areas {
                        let before = std::mem::replace(&mut running.areas, areas);
                        plan.before.rebound.push((index, before));
                        plan.effects.push(Effect::RebindQueue { index, areas });
                    }
                }
                (None, Some(areas)) => {
                    let start = ring.start(index, Running { areas, format }, options)?;
                    plan.effects.extend(start);
                    plan.before.started.push(index);
                }
            }
            self.settle_discarding(index, plan)?;
        }
        self.settle_watch(plan)
    }
}

fn reply_u64(value: u64) -> Result<Answer, Refusal> {
    Ok(Answer::Reply(Reply::U64(value)))
}
