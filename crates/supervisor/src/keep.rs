//! The data plane's side: which request is kept in which slot, and which slots it makes needless.
//!
//! The requests that are kept are those that the [`Session`] goes by: replayed in the order of
//! [`slot`] numbers into a new session, they give the same one. So a request that is refused is
//! kept only if the session remembers it all the same
//! ([`Outcome::is_remembered`](ringway_vhost_user::Outcome)). Which kicks still count, and whether
//! there is a log, is read from the session.
//!
//! ```text
//! intend ─► Session::handle ─► effects ─► Intent::is_taken ─► Session::complete ─► settle
//! ```
//!
//! Not kept: where rings stand (the journal has that), the position that `GET_VRING_BASE` was
//! answered, that a ring has gone on by itself, questions.

use std::collections::BTreeMap;

use ringway_vhost_user::{Applied, MemoryRange, Request, Session};

use crate::slots::{Keep, NotKept, SlotRange, check};

/// The numbers of slots, in the order of replay. Memory comes before features, and all kinds of
/// what is told about rings one after the other, so that a ring starts once, with its kick, when
/// all else is there, and so that what a reset forgets is one range. Part of the wire's version.
///
/// A request takes the place of the one before of its kind. A reset, `RESET_DEVICE` or a status of
/// 0, drops all slots from [`SIZE`](slot::SIZE) on, a new memory table those of regions.
pub mod slot {
    /// Rings that a device may have: 64 pairs and a control queue.
    pub const RINGS_MAX: u16 = 129;
    /// Regions of a memory table, each of which may be removed.
    pub const REMOVALS_MAX: u16 = 32;
    /// Regions added one by one; QEMU up to 7.2 adds each once for each queue pair.
    pub const ADDITIONS_MAX: u16 = 960;

    /// `SET_OWNER`
    pub const OWNER: u16 = 0;
    /// `SET_PROTOCOL_FEATURES`
    pub const PROTOCOL_FEATURES: u16 = 1;
    /// `SET_BACKEND_REQ_FD`
    pub const CHANNEL: u16 = 2;
    /// `SET_MEM_TABLE`
    pub const TABLE: u16 = 3;
    /// `REM_MEM_REG` of regions of the table; the first of [`REMOVALS_MAX`]. A new table drops it.
    pub const REMOVED: u16 = 4;
    /// `ADD_MEM_REG`, one for each time; the first of [`ADDITIONS_MAX`]. Its `REM_MEM_REG` drops
    /// it, or a new table.
    pub const ADDED: u16 = REMOVED + REMOVALS_MAX;
    /// `SET_LOG_BASE`: before features and addresses, so that no ring of a replay writes without
    /// it. The end of bit 26 drops it, each reset, and an area in which nothing can be marked.
    pub const LOG: u16 = ADDED + ADDITIONS_MAX;
    /// `SET_VRING_CALL`; from here on the first of [`RINGS_MAX`] where it is about rings.
    pub const CALL: u16 = LOG + 1;
    /// `SET_VRING_ERR`
    pub const ERROR: u16 = CALL + RINGS_MAX;
    /// `SET_VRING_NUM`; the first that a reset forgets. Before features: without them, any size
    /// that is offered may be told.
    pub const SIZE: u16 = ERROR + RINGS_MAX;
    /// `SET_FEATURES`
    pub const FEATURES: u16 = SIZE + RINGS_MAX;
    /// `RESET_OWNER`, which disables all rings
    pub const RESET_OWNER: u16 = FEATURES + 1;
    /// `SET_VRING_ADDR`
    pub const ADDRESSES: u16 = RESET_OWNER + 1;
    /// `SET_VRING_BASE`
    pub const BASE: u16 = ADDRESSES + RINGS_MAX;
    /// `SET_VRING_ENABLE`; `RESET_OWNER` drops it, too.
    pub const ENABLE: u16 = BASE + RINGS_MAX;
    /// `SET_VRING_KICK`; all that makes the session forget it drops it, too. `GET_VRING_BASE` alone
    /// does not: the ring goes on when its guest kicks (`info virtio-queue-status` in QEMU).
    pub const KICK: u16 = ENABLE + RINGS_MAX;
    /// `GET_VRING_BASE`, where it has stopped a ring that goes on by a kick. A kick drops it, a new
    /// kick fd, and all that drops the kick.
    pub const ASKED: u16 = KICK + RINGS_MAX;
    /// `SET_STATUS` other than 0; the last one.
    pub const STATUS: u16 = ASKED + RINGS_MAX;
    const _: () = assert!(STATUS < crate::slots::SLOTS_MAX);
}

/// The change that a request would make, once it is carried out.
#[derive(Debug)]
pub struct Intent {
    what: What,
    keep: Option<Keep>,
    len: usize,
}

#[derive(Debug)]
enum What {
    Nothing,
    Put,
    Features(u64),
    Log,
    Table(Vec<MemoryRange>),
    /// `is_new`: not one that is there already, and only counted.
    Add {
        range: MemoryRange,
        is_new: bool,
    },
    Remove(MemoryRange),
    ResetOwner,
    Reset,
    Ask {
        ring: u16,
    },
}

/// The change that a request has made: drops first, then the keep.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Slots that are not needed any more.
    pub drops: Vec<SlotRange>,
    /// Where the request itself goes.
    pub keep: Option<Keep>,
}

/// The requests that are kept of one front-end.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Keeper {
    /// Bytes and fds in each slot.
    held: BTreeMap<u16, (usize, u8)>,
    /// Regions of the memory table that were not removed.
    table: Vec<MemoryRange>,
    removals: u16,
    additions: BTreeMap<u16, MemoryRange>,
}

impl Intent {
    /// Whether the session goes by the request. `is_remembered` is the outcome's, and `applied`
    /// what its effects came to: memory that could not be set up is as before.
    pub fn is_taken(&self, is_remembered: bool, applied: &Applied) -> bool {
        let sets_memory = matches!(self.what, What::Table(_) | What::Add { is_new: true, .. });
        let is_undone = sets_memory && !applied.ok && !applied.is_set_up;
        is_remembered && !is_undone
    }
}

impl Keeper {
    /// The change that the request would make. Asked before the session has it; `len` are its
    /// bytes, with its header.
    ///
    /// # Errors
    /// It could not be kept: it is to be refused instead.
    pub fn intend(&self, request: &Request, len: usize) -> Result<Intent, NotKept> {
        let (what, slot) = self.placed(request)?;
        // 32 at most.
        let fds = u8::try_from(request.fds().len()).unwrap_or(u8::MAX);
        let keep = slot.map(|slot| Keep { slot, fds });
        keep.map_or(Ok(()), |keep| self.check(keep, len))?;
        Ok(Intent { what, keep, len })
    }

    fn placed(&self, request: &Request) -> Result<(What, Option<u16>), NotKept> {
        let put = |slot| Ok((What::Put, Some(slot)));
        // Of one with an impossible index the session thinks as much.
        let of_ring = |first: u16, index: u64| {
            let ring = u16::try_from(index).ok().filter(|ring| *ring < slot::RINGS_MAX);
            Ok(ring.map_or((What::Nothing, None), |ring| (What::Put, Some(first + ring))))
        };
        match request {
            Request::SetOwner => put(slot::OWNER),
            Request::SetProtocolFeatures(_) => put(slot::PROTOCOL_FEATURES),
            Request::SetBackendReqFd(_) => put(slot::CHANNEL),
            Request::SetFeatures(bits) => Ok((What::Features(*bits), Some(slot::FEATURES))),
            Request::SetLogBase(_) => Ok((What::Log, Some(slot::LOG))),
            Request::SetStatus(0) | Request::ResetDevice => Ok((What::Reset, None)),
            Request::SetStatus(_) => put(slot::STATUS),
            Request::ResetOwner => Ok((What::ResetOwner, Some(slot::RESET_OWNER))),
            Request::SetMemTable(regions) => {
                let ranges = regions.iter().map(|region| region.range()).collect();
                Ok((What::Table(ranges), Some(slot::TABLE)))
            }
            Request::AddMemReg(region) => {
                let mut slots = slot::ADDED..slot::LOG;
                let free = slots.find(|slot| !self.additions.contains_key(slot));
                let range = region.range();
                let is_new = self.added(&range).is_none() && !self.table.contains(&range);
                Ok((What::Add { range, is_new }, Some(free.ok_or(NotKept::Full)?)))
            }
            Request::RemMemReg(range) => {
                let is_of_table = self.added(range).is_none() && self.table.contains(range);
                let slot = is_of_table.then_some(slot::REMOVED + self.removals);
                Ok((What::Remove(*range), slot))
            }
            Request::SetVringNum { index, .. } => of_ring(slot::SIZE, (*index).into()),
            Request::SetVringAddr(at) => of_ring(slot::ADDRESSES, at.index.into()),
            Request::SetVringBase { index, .. } => of_ring(slot::BASE, (*index).into()),
            Request::SetVringEnable { index, .. } => of_ring(slot::ENABLE, (*index).into()),
            Request::SetVringKick(vring) => of_ring(slot::KICK, vring.index),
            Request::SetVringCall(vring) => of_ring(slot::CALL, vring.index),
            Request::SetVringErr(vring) => of_ring(slot::ERROR, vring.index),
            Request::GetVringBase { index } => {
                let ring = u16::try_from(*index).ok().filter(|ring| *ring < slot::RINGS_MAX);
                let asked = ring.map(|ring| (What::Ask { ring }, Some(slot::ASKED + ring)));
                Ok(asked.unwrap_or((What::Nothing, None)))
            }
            _ => Ok((What::Nothing, None)),
        }
    }

    fn check(&self, keep: Keep, len: usize) -> Result<(), NotKept> {
        let held = self.held.iter().map(|(&slot, &(len, fds))| (slot, len, fds.into()));
        check(held, keep, len)
    }

    /// The slot of the latest addition of this region.
    fn added(&self, range: &MemoryRange) -> Option<u16> {
        self.additions.iter().rfind(|(_, added)| *added == range).map(|(&slot, _)| slot)
    }

    /// The request was carried out, or not: what changes. `is_taken` comes from
    /// [`Intent::is_taken`].
    pub fn settle(&mut self, intent: Intent, is_taken: bool, session: &Session) -> Changes {
        let Intent { what, keep, len } = intent;
        let mut changes = Changes::default();
        if is_taken {
            let is_kept = self.take(what, keep, session, &mut changes.drops);
            changes.keep = keep.filter(|_| is_kept);
        }
        if let Some(keep) = changes.keep {
            self.held.insert(keep.slot, (len, keep.fds));
        }
        if session.log_len().is_none() {
            self.forget(slot::LOG, slot::LOG, &mut changes.drops);
        }
        self.drop_kicks(session, &mut changes.drops);
        changes
    }

    /// `true`: if there is a slot for the request, it goes there.
    fn take(
        &mut self,
        what: What,
        keep: Option<Keep>,
        session: &Session,
        drops: &mut Vec<SlotRange>,
    ) -> bool {
        match what {
            What::Nothing | What::Put => {}
            What::Log => return session.log_len().is_some(),
            // Undone where it could not be carried out.
            What::Features(bits) => return session.accepted() == Some(bits),
            What::Table(ranges) => {
                self.forget(slot::REMOVED, slot::LOG - 1, drops);
                (self.table, self.removals) = (ranges, 0);
                self.additions.clear();
            }
            What::Add { range, .. } => {
                self.additions.extend(keep.map(|keep| (keep.slot, range)));
            }
            What::Remove(range) => self.remove(&range, drops),
            What::ResetOwner => self.forget(slot::ENABLE, slot::KICK - 1, drops),
            What::Reset => self.forget(slot::SIZE, slot::STATUS, drops),
            What::Ask { ring } => {
                return session.ring_view(ring).is_some_and(|ring| ring.is_suspended);
            }
        }
        true
    }

    fn remove(&mut self, range: &MemoryRange, drops: &mut Vec<SlotRange>) {
        if let Some(slot) = self.added(range) {
            self.additions.remove(&slot);
            self.forget(slot, slot, drops);
        } else if let Some(at) = self.table.iter().position(|other| other == range) {
            self.table.remove(at);
            self.removals += 1;
        }
    }

    fn forget(&mut self, first: u16, last: u16, drops: &mut Vec<SlotRange>) {
        let range = SlotRange { first, last };
        if range.extract(&mut self.held).count() > 0 {
            drops.push(range);
        }
    }

    /// Rings have gone on by themselves, outside of any request: what is not needed any more.
    pub fn went_on(&mut self, session: &Session) -> Vec<SlotRange> {
        let mut drops = Vec::new();
        self.drop_kicks(session, &mut drops);
        drops
    }

    /// Kicks that the session has forgotten, and stops that are over.
    fn drop_kicks(&mut self, session: &Session, drops: &mut Vec<SlotRange>) {
        let rings = 0..session.ring_count().min(slot::RINGS_MAX);
        let views = || rings.clone().filter_map(|ring| Some((ring, session.ring_view(ring)?)));
        let kicks = views().filter(|(_, ring)| !ring.has_kick).map(|(ring, _)| slot::KICK + ring);
        let asked = views().filter(|(_, ring)| !ring.is_suspended);
        for slot in kicks.chain(asked.map(|(ring, _)| slot::ASKED + ring)) {
            if self.held.remove(&slot).is_none() {
                continue;
            }
            match drops.last_mut() {
                Some(range) if range.last + 1 == slot => range.last = slot,
                _ => drops.push(SlotRange { first: slot, last: slot }),
            }
        }
    }

    /// A successor notes what is replayed to it.
    ///
    /// # Errors
    /// The slot holds something that is never kept there.
    pub fn restore(&mut self, slot: u16, request: &Request, len: usize) -> Result<(), NotKept> {
        let fds = u8::try_from(request.fds().len()).unwrap_or(u8::MAX);
        let keep = Keep { slot, fds };
        self.check(keep, len)?;
        match request {
            Request::SetMemTable(regions) => {
                self.table = regions.iter().map(|region| region.range()).collect();
            }
            Request::AddMemReg(region) => drop(self.additions.insert(slot, region.range())),
            Request::RemMemReg(range) => self.remove(range, &mut Vec::new()),
            _ => {}
        }
        self.held.insert(slot, (len, fds));
        Ok(())
    }
}
