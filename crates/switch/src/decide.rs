//! Where a packet goes when policies have a say: one judgement per packet, in order of what costs
//! the sender least to be told.
//!
//! Everything is decided on one copy of the packet's first bytes, and that copy is what receivers
//! must be given: the sender may rewrite its memory at any time.

use ringway_net::{DropReason, MacAddress};

use crate::entry::Tick;
use crate::frame::Frame;
use crate::groups::{Group, GroupTick};
use crate::guard::{self, FalseClaim};
use crate::ip_table::StationKey;
use crate::notes::{Notes, Step};
use crate::own_ip::own_ip;
use crate::snoop::{Heard, Message, listen};
use crate::vlan::TagChange;
use crate::{Learned, PortId, Switch, VlanId, WhenFull};

const NS_PER_MS: u64 = 1_000_000;

/// The decision about a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It goes to that port, after that change.
    One(PortId, TagChange),
    /// It goes to every other port for which [`Switch::goes_to`] gives a change.
    Flood(Flood),
    /// It goes nowhere.
    Drop(DropReason),
    /// It stays where it is until then, in nanoseconds of the clock that was given.
    Wait(u64),
}

/// A packet for several ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flood {
    from: PortId,
    traits: Traits,
    audience: Audience,
}

/// The receivers of a packet for several ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Audience {
    Everybody,
    /// Every port that may have this station behind it.
    Station(MacAddress),
    /// Members and routers.
    Group(Group, GroupTick),
    /// Routers of that group's family.
    Routers(GroupTick),
}

/// Traits of a packet that its delivery depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Traits {
    vlan: VlanId,
    tci: Option<u16>,
    has_more_tags: bool,
}

/// The answer of a port to one more packet now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// It may have it.
    Yes,
    /// Not before then, in nanoseconds.
    At(u64),
}

impl Switch {
    /// Where a packet goes that came in on port `from`. `head` is a copy of its first
    /// [`PEEK_LEN`](crate::PEEK_LEN) bytes, or of all if it is shorter.
    ///
    /// Asking again about the same packet is harmless; nothing is counted before
    /// [`taken`](Self::taken) and [`delivered`](Self::delivered).
    ///
    /// # Panics
    /// When `from` is not one of the ports.
    pub fn decide(&mut self, from: PortId, head: &[u8], now_ns: u64) -> Decision {
        self.decide_noted(from, head, now_ns, &mut ())
    }

    /// The same, and each thing that was found on the way is noted.
    ///
    /// # Panics
    /// As [`decide`](Self::decide).
    #[inline]
    pub fn decide_noted(
        &mut self,
        from: PortId,
        head: &[u8],
        now_ns: u64,
        notes: &mut impl Notes,
    ) -> Decision {
        assert!(self.ports.contains(from), "a packet from port {from}, which was not added");
        let rules = &self.rules[from.index()];
        let meters = &self.shared.meters[from.index()];
        let rate = meters.from_guest.check(&rules.from_guest, now_ns);
        notes.note(Step::Rate(rate));
        if let Err(at_ns) = rate {
            return Decision::Wait(at_ns);
        }
        let decision = match Frame::parse(head) {
            Some(frame) => self.judge(from, &frame, now_ns, notes),
            None => Err(DropReason::Malformed),
        };
        let decision = decision.unwrap_or_else(Decision::Drop);
        if !matches!(decision, Decision::Flood(_)) {
            return decision;
        }
        let storm = &self.rules[from.index()].storm;
        let storm = self.shared.meters[from.index()].storm.check(storm, now_ns);
        let storm = storm.map_err(|_| DropReason::Storm);
        notes.note(Step::Storm(storm));
        storm.map_or_else(Decision::Drop, |()| decision)
    }

    fn judge(
        &mut self,
        from: PortId,
        frame: &Frame<'_>,
        now_ns: u64,
        notes: &mut impl Notes,
    ) -> Result<Decision, DropReason> {
        let policy = &self.rules[from.index()].policy;
        let vlan = policy.vlan.admit(frame).ok_or(DropReason::Vlan);
        notes.note(Step::Vlan(vlan.map(|vlan| VlanId::new(vlan.raw()))));
        let vlan = vlan?;
        let addresses = guard::check(policy, frame);
        notes.note(Step::Addresses(addresses));
        addresses.map_err(FalseClaim::reason)?;
        self.now = Tick::of_ms(now_ns / NS_PER_MS);
        let learned = self.shared.macs.learn(from, vlan, frame.source, self.now);
        notes.note(Step::Source(learned));
        if learned == Learned::Fixed && !self.may_be_behind(from, vlan, frame.source) {
            return Err(DropReason::SpoofedMac);
        }
        let is_here = matches!(learned, Learned::Known | Learned::New | Learned::Moved);
        if self.notes_ips && is_here {
            self.note_ip(from, vlan, frame, now_ns / NS_PER_MS);
        }
        let (tci, has_more_tags) = (frame.tci, frame.has_more_tags);
        let traits = Traits { vlan, tci, has_more_tags };
        if frame.destination.is_for_bridges() {
            notes.note(Step::Reserved);
            return Err(DropReason::NoRoute);
        }
        if frame.destination.is_multicast() {
            let audience = self.audience(from, vlan, frame, now_ns);
            notes.note(Step::Group { is_snooped: audience != Audience::Everybody });
            return Ok(Decision::Flood(Flood { from, traits, audience }));
        }
        let station = self.place_of(vlan, frame.destination);
        notes.note(Step::Station(station));
        match station {
            Some(to) if to == from => Err(DropReason::NoRoute),
            Some(to) => {
                let change = self.change_for(from, to, traits);
                notes.note(Step::Way(to, change));
                change.map(|change| Decision::One(to, change))
            }
            None => {
                let audience = Audience::Station(frame.destination);
                Ok(Decision::Flood(Flood { from, traits, audience }))
            }
        }
    }

    /// The IP address that a station says is its own, if it says so here.
    #[inline(never)]
    fn note_ip(&self, from: PortId, vlan: VlanId, frame: &Frame<'_>, now_ms: u64) {
        if self.uplinks.contains(from) || self.noting.contains(from) {
            return;
        }
        let station = StationKey { vlan, address: frame.source };
        if let Some(own) = own_ip(frame)
            && self.shared.ips.note(from, station, own, now_ms)
        {
            self.shared.macs.note_change();
        }
    }

    fn audience(&self, from: PortId, vlan: VlanId, frame: &Frame<'_>, now_ns: u64) -> Audience {
        if !self.snoops_multicast {
            return Audience::Everybody;
        }
        let now = GroupTick::of_ms(now_ns / NS_PER_MS);
        let groups = &self.shared.groups;
        let mut is_news = false;
        let heard = listen(vlan, frame, |message| {
            is_news |= match message {
                Message::Join(group) => groups.join(from, group, now),
                Message::Leave(group) => groups.leave(from, group, now),
                Message::TooMany => groups.overflow(from, now),
            };
        });
        if let Heard::Query(family) = heard
            && self.believes_queries(from)
        {
            is_news = groups.hear_query(from, vlan, family, now);
        }
        if is_news {
            self.shared.macs.note_change();
        }
        match heard {
            Heard::Query(_) => Audience::Everybody,
            Heard::Report(family) if groups.has_querier(vlan, family, now) => {
                Audience::Routers(now)
            }
            Heard::Report(_) => Audience::Everybody,
            Heard::Nothing => match Group::of_mac(vlan, frame.destination) {
                Some(group) if groups.has_querier(vlan, group.family(), now) => {
                    Audience::Group(group, now)
                }
                _ => Audience::Everybody,
            },
        }
    }

    /// A guest that plays the router would hear everything, and could end the memberships of all
    /// others by not asking for them: where there are uplinks, routers are behind them.
    fn believes_queries(&self, from: PortId) -> bool {
        let policy = &self.rules[from.index()].policy;
        let is_locked = policy.locked_mac.is_some() || !policy.locked_ips.is_empty();
        policy.is_uplink || self.uplinks.is_empty() && !policy.isolated && !is_locked
    }

    /// How a packet for several ports goes to `to`, and why not, for notes; `None`: it is not for
    /// it.
    pub fn way_to(&self, flood: &Flood, to: PortId) -> Option<Step> {
        let is_for_it = to != flood.from && self.is_audience(flood, to);
        is_for_it.then(|| Step::Way(to, self.change_for(flood.from, to, flood.traits)))
    }

    /// How a packet for several ports goes to `to`; `None`: not at all.
    pub fn goes_to(&self, flood: &Flood, to: PortId) -> Option<TagChange> {
        if to == flood.from || !self.is_audience(flood, to) {
            return None;
        }
        self.change_for(flood.from, to, flood.traits).ok()
    }

    fn is_audience(&self, flood: &Flood, to: PortId) -> bool {
        let groups = &self.shared.groups;
        match flood.audience {
            Audience::Everybody => true,
            Audience::Station(mac) => {
                self.rules[to.index()].policy.locked_mac.is_none_or(|locked| locked == mac)
            }
            Audience::Group(group, now) => {
                self.uplinks.contains(to) || groups.wants(to, group, now)
            }
            Audience::Routers(now) => self.uplinks.contains(to) || groups.has_router(to, now),
        }
    }

    /// Whether, and how, a packet may go from one port to another.
    fn change_for(
        &self,
        from: PortId,
        to: PortId,
        traits: Traits,
    ) -> Result<TagChange, DropReason> {
        // Static addresses may belong to a port that is not there yet.
        if !self.ports.contains(to) {
            return Err(DropReason::NoRoute);
        }
        let (source, target) = (&self.rules[from.index()].policy, &self.rules[to.index()].policy);
        if source.isolated && !target.is_uplink || target.isolated && !source.is_uplink {
            return Err(DropReason::Isolated);
        }
        let change = target.vlan.deliver(traits.vlan, traits.tci).ok_or(DropReason::Vlan)?;
        // The inner tag would become the outer one, and choose a VLAN that was not checked.
        if change == TagChange::Strip && traits.has_more_tags {
            return Err(DropReason::Vlan);
        }
        Ok(change)
    }

    /// Whether `to` may have another packet now.
    pub fn room_at(&self, to: PortId, now_ns: u64) -> Room {
        let pace = &self.rules[to.index()].to_guest;
        match self.shared.meters[to.index()].to_guest.check(pace, now_ns) {
            Ok(()) => Room::Yes,
            Err(at_ns) => Room::At(at_ns),
        }
    }

    /// The rule for packets to `to` when there is no room.
    pub fn when_full(&self, to: PortId) -> WhenFull {
        self.rules[to.index()].policy.when_full
    }

    /// A packet of `len` bytes was delivered to `to`.
    pub fn delivered(&self, to: PortId, len: u32, now_ns: u64) {
        let pace = &self.rules[to.index()].to_guest;
        self.shared.meters[to.index()].to_guest.charge(pace, len, now_ns);
    }

    /// A packet of `len` bytes was taken from `from`, whatever became of it.
    pub fn taken(&self, from: PortId, len: u32, decision: &Decision, now_ns: u64) {
        self.charge(from, len, decision, now_ns);
        if matches!(decision, Decision::Flood(_)) {
            self.shared.hear(from);
        }
    }

    /// The same of a packet that was sent in the name of the port's guest.
    pub fn charge(&self, from: PortId, len: u32, decision: &Decision, now_ns: u64) {
        let (rules, meters) = (&self.rules[from.index()], &self.shared.meters[from.index()]);
        meters.from_guest.charge(&rules.from_guest, len, now_ns);
        if matches!(decision, Decision::Flood(_)) {
            meters.storm.charge(&rules.storm, len, now_ns);
        }
    }
}
