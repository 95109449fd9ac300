//! The router as one value.

mod arrivals;
mod from_guest;
mod gates;
mod outside;
mod verdict;

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ringway_net::Nanos;

use crate::actions::Actions;
use crate::addresses::Plan;
use crate::datagrams::is_question;
use crate::emit::Emit;
use crate::errors::error;
use crate::flows::{Accepts, FlowLook, Flows};
use crate::frame::{Stations, udp};
use crate::guests::{Guests, Note, REPLIES_MAX, Station};
use crate::leases::{Holder, Lessee};
use crate::policy::Policy;
use crate::policy::guest::{Policies, decision, opens};
use crate::policy::question::Denial;
use crate::refusal::Refusal;
use crate::services::Services;
use crate::socket::{Close, Event, Read};
use crate::table::{FlowId, FlowKey, Guest, Limits};

pub use arrivals::Rings;
pub use from_guest::FromGuest;
pub use outside::{Caller, Destination};
pub use verdict::{Verdict, WHOLE_LEN_MAX};

/// Between two advertisements: at least, and so much more by chance (RFC 4861 §6.2.1).
const ADVERTISE_NS: u64 = 200_000_000_000;
const ADVERTISE_NS_MORE: u64 = 400_000_000_000;

/// Least MTU of a network, in bytes: that of IPv6.
pub const MTU_MIN: u16 = 1280;

/// A frame for a guest.
#[derive(Debug)]
pub enum Due<'a> {
    /// A whole frame, plain; [`Nat::replied`] takes it away.
    Reply(&'a [u8]),
    /// A frame of a flow; [`Nat::emitted`] tells what became of it.
    Flow(Emit),
}

/// A router for the guests of a switch.
#[derive(Debug)]
pub struct Nat {
    services: Services,
    guests: Guests,
    flows: Flows,
    keys: RandomState,
    advertise_at: Nanos,
    policies: Policies,
    /// A datagram whose last part has just come, or that takes the place of another one.
    assembled: Option<Vec<u8>>,
    /// Until when connections that are not known are reset without a limit.
    reset_freely_until: Nanos,
}

impl Nat {
    /// A router without guests; everything that grows is allocated here. `keys` are what guests
    /// must not know: sequence numbers and places in the table depend on them.
    ///
    /// # Panics
    /// If the plan's MTU is below [`MTU_MIN`].
    pub fn new(plan: Plan, limits: Limits, keys: RandomState) -> Self {
        assert!(plan.mtu >= MTU_MIN, "an MTU of {} is below {MTU_MIN}", plan.mtu);
        Self {
            guests: Guests::new(&limits, low_half(keys.hash_one(0))),
            flows: Flows::new(plan.clone(), limits, keys.clone()),
            services: Services::new(plan),
            keys,
            advertise_at: Nanos(0),
            policies: Policies::default(),
            assembled: None,
            reset_freely_until: Nanos(0),
        }
    }

    /// This router goes on for another one, whose connections have ended with it: until then each
    /// is reset at its first segment, however many there are.
    pub fn reset_freely_until(&mut self, at: Nanos) {
        self.reset_freely_until = at;
    }

    /// The addresses, and what guests are told.
    pub fn plan(&self) -> &Plan {
        self.services.plan()
    }

    /// Follows another plan from now on; flows stay. `false`: it does not, because the networks are
    /// others; then another [`Nat`] is needed, which [retires](Self::retire) them.
    pub fn set_plan(&mut self, plan: &Plan) -> bool {
        let parts = |plan: &Plan| (plan.prefix4, plan.prefix6);
        let is_same = parts(plan) == parts(self.plan());
        if is_same && plan != self.plan() {
            self.services.set_plan(plan.clone());
            self.flows.set_plan(plan.clone());
            self.advertise_at = Nanos(0);
        }
        is_same
    }

    /// Guests had the networks of that plan before: they are told that the one of IPv6 is over.
    pub fn retire(&mut self, before: &Plan) {
        self.services.retire(before.prefix6);
    }

    /// The flows to that address that guests began: clients from outside may be shown as it.
    pub fn flows_to(&self, to: IpAddr) -> Vec<FlowId> {
        self.flows.to(to)
    }

    /// Ends a flow.
    pub fn end_flow(&mut self, flow: FlowId, actions: &mut Actions) {
        self.flows.end(flow, Close::Reset, actions);
    }

    /// Leases and what else the router answers itself.
    pub fn services(&self) -> &Services {
        &self.services
    }

    /// Its upper limits.
    pub fn limits(&self) -> &Limits {
        self.flows.limits()
    }

    /// The name of the port that the guest is behind.
    pub fn name_of(&self, guest: Guest) -> Option<&str> {
        self.guests.name_of(guest)
    }

    /// A port of the switch that guests are behind. One whose number is not below
    /// [`Limits::guests`] is ignored.
    pub fn add_guest(&mut self, guest: Guest, name: &str) {
        self.guests.add(guest, name, self.flows.limits().errors_per_second);
        self.flows.add_guest(guest);
    }

    /// Ends one flow of a port that goes; to be called until it returns `false`: there is none.
    pub fn end_a_flow(&mut self, guest: Guest, actions: &mut Actions) -> bool {
        self.flows.end_one(guest, actions)
    }

    /// Ends one flow of a port that goes, or forgets the port; to be called until it returns
    /// `false`: the port is forgotten.
    pub fn remove_guest(&mut self, guest: Guest, actions: &mut Actions) -> bool {
        let has_flows = self.flows.end_one(guest, actions);
        if !has_flows && let Some(name) = self.guests.remove(guest) {
            self.services.forget_port(&name);
        }
        has_flows
    }

    /// How many flows a guest has.
    pub fn flows_of(&self, guest: Guest) -> usize {
        self.flows.count_of(guest)
    }

    /// The flows of a guest, in no particular order.
    pub fn flows(&self, guest: Guest, now: Nanos) -> impl Iterator<Item = FlowLook> {
        self.flows.look(guest, now)
    }

    /// All stations, first those with the oldest leases. Behind a port that is gone there are
    /// leases too.
    pub fn stations(&self, now: Nanos) -> Vec<Station> {
        self.guests.stations(self.services.leases(), now)
    }

    /// Whether there is another answer to [`Self::notes`] than when this was asked last.
    pub fn takes_news(&mut self, now: Nanos) -> bool {
        let has_leased = self.services.take_news(now);
        self.guests.take_news() || has_leased
    }

    /// The addresses of all stations, the oldest leases first. A lease that is over is none of
    /// them: it would hold again.
    pub fn notes(&self, now: Nanos) -> Vec<Note> {
        self.guests.notes(self.services.leases(), now)
    }

    /// Knows what another router has [noted](Self::notes), as far as it fits to this one: each
    /// lease holds as long as one that begins now.
    pub fn remember(&mut self, notes: &[Note], now: Nanos) {
        for Note { guest, mac, address, is_leased } in notes.iter().copied() {
            let is_here = self.plan().is_for_guests(address) && mac.is_station();
            let Some(name) = self.guests.name_of(guest).filter(|_| is_here) else { continue };
            match address {
                IpAddr::V4(address) if is_leased => {
                    self.services.remember_lease(Lessee { port: name, mac }, address, now);
                }
                _ if self.is_of_another(guest, address, now) => {}
                _ => _ = self.guests.learn(guest, address, mac, now),
            }
        }
    }

    /// Most bytes that the kernel may hold in each direction of a new connection of that guest: the
    /// more flows it has, the fewer. `None`: the kernel decides.
    pub fn buffer_len_max(&self, guest: Guest) -> Option<u32> {
        match self.flows.count_of(guest) {
            0..=64 => None,
            65..=512 => Some(256 << 10),
            _ => Some(64 << 10),
        }
    }

    /// The guest reaches only what that policy allows from now on; `None`: all that is not denied
    /// to all guests. Flows that it has stay: [`Self::end_a_denied_flow`].
    pub fn set_policy(&mut self, guest: Guest, policy: Option<(Arc<Policy>, Denial)>) {
        self.policies.set(guest, policy);
    }

    /// Takes a resolver's message; `false`: the guest may have it as it is. The answer that it
    /// becomes waits for the guest.
    pub fn on_answer(&mut self, flow: FlowId, message: &[u8], now: Nanos) -> bool {
        let Some((key, mac)) = self.flows.station_of(flow) else { return false };
        let plan = self.services.plan();
        let Some(policy) = self.policies.of(key.guest) else { return false };
        if !is_question(&key) || !plan.is_name_server(key.to) {
            return false;
        }
        if let Some(answer) = policy.answer(message, |address| opens(plan, address), now) {
            let stations = Stations { from: plan.mac(), to: mac };
            let frame = udp(stations, key.to, key.from, &answer);
            self.guests.reply_up_to(REPLIES_MAX, key.guest, frame);
        }
        true
    }

    /// Ends a flow of a guest that its policy does not allow any more; to be called until it
    /// returns `false`: there is none.
    pub fn end_a_denied_flow(&mut self, guest: Guest, now: Nanos, actions: &mut Actions) -> bool {
        let Some(policy) = self.policies.of(guest) else { return false };
        let plan = self.services.plan();
        let is_denied = |key: &FlowKey| {
            let is_own = plan.is_name_server(key.to) || plan.host == Some(key.to.ip());
            !is_own && !decision(policy, key, now).is_open()
        };
        self.flows.end_where(guest, is_denied, actions)
    }

    /// The guest of a flow.
    pub fn guest_of(&self, flow: FlowId) -> Option<Guest> {
        self.flows.guest_of(flow)
    }

    /// A socket has an event; one of a flow that is over is ignored. `Some`: its flow is given up
    /// for that reason.
    pub fn on_socket(
        &mut self,
        flow: FlowId,
        event: Event,
        now: Nanos,
        actions: &mut Actions,
    ) -> Option<Refusal> {
        let plan = self.services.plan();
        let news = self.flows.on_socket(flow, event, now, actions);
        if let Some(lost) = news.lost
            && let Some(from) = lost.shown_from(plan)
        {
            let (to, stations) = (lost.key.from.ip(), Stations { from: plan.mac(), to: lost.mac });
            let frame = || error(stations, from, to, lost.problem, &lost.quote());
            self.guests.refuse(lost.key.guest, now, frame);
        }
        news.refusal
    }

    /// The next frame for that guest; the same one again until it is told what became of it.
    pub fn due(&mut self, guest: Guest, accepts: Accepts) -> Option<Due<'_>> {
        match self.guests.first_reply(guest) {
            Some(frame) => Some(Due::Reply(frame)),
            None => self.flows.due(guest, accepts).map(Due::Flow),
        }
    }

    /// Whether [`Self::due`] may have something.
    pub fn is_due(&self, guest: Guest) -> bool {
        self.guests.first_reply(guest).is_some() || self.flows.is_due(guest)
    }

    /// The guest has the reply, or will not get it.
    pub fn replied(&mut self, guest: Guest) {
        self.guests.replied(guest);
    }

    /// The flow's frame is in the guest's memory, or there is none, as `read` tells.
    pub fn emitted(&mut self, emit: &Emit, read: Read, now: Nanos, actions: &mut Actions) {
        self.flows.emitted(emit, read, now, actions);
    }

    /// Whether the guest's window is full: nothing more goes to it in this flow before it
    /// acknowledges.
    pub fn waits_for_guest(&self, flow: FlowId) -> bool {
        self.flows.waits_for_guest(flow)
    }

    /// Whose datagram it is that was read for that flow and came from there: another flow may have
    /// the same port of the host. From an address that the guest has sent to all ports are heard
    /// (RFC 4787 §5, address-dependent filtering). `None`: no flow's.
    pub fn came_from(&self, flow: FlowId, from: SocketAddr) -> Option<FlowId> {
        self.flows.came_from(flow, from)
    }

    /// Takes a message that was read for a frame and is not put behind its head: it goes to the
    /// guest as a whole, or in parts if it is longer than a packet.
    pub fn cut(&mut self, emit: &Emit, message: &[u8]) {
        if let Some(frame) = emit.whole(message) {
            self.guests.reply(emit.guest(), frame, self.services.plan().mtu);
        }
    }

    /// When [`Self::timer`] has something to do.
    pub fn deadline(&self) -> Option<Nanos> {
        let advertise_at = Some(self.advertise_at).filter(|_| self.services.has_advertisement());
        let of_guests = self.guests.deadline().into_iter().chain(self.guests.end_at());
        let others = advertise_at.into_iter().chain(of_guests);
        let others = others.chain(self.policies.deadline());
        self.flows.deadline().into_iter().chain(others).min()
    }

    /// Does one thing whose time has come; to be called until it returns `false`: there is none.
    pub fn timer(&mut self, now: Nanos, actions: &mut Actions) -> bool {
        if self.services.has_advertisement() && self.advertise_at <= now {
            let more = self.keys.hash_one(now.0) % ADVERTISE_NS_MORE;
            self.advertise_at = now.plus(ADVERTISE_NS + more);
            let frame = self.services.advertisement();
            frame.into_iter().for_each(|frame| self.guests.reply_to_all(&frame));
            return true;
        }
        if self.guests.deadline().is_some_and(|at| at <= now) {
            self.guests.forget_parts(now);
            return true;
        }
        if self.guests.end_at().is_some_and(|at| at <= now) && self.end_one_of_gone(now, actions) {
            return true;
        }
        if self.policies.deadline().is_some_and(|at| at <= now) {
            match self.policies.take_late(now) {
                Some(flow) => self.flows.end(flow, Close::Reset, actions),
                None => self.policies.look(now, |guest| self.flows.places_of(guest)),
            }
            return true;
        }
        self.flows.timer(now, actions)
    }

    /// Whether another guest has that address.
    fn is_of_another(&self, guest: Guest, address: IpAddr, now: Nanos) -> bool {
        self.other_with(guest, address, now).is_some()
    }

    /// The name of the port behind which another guest has that address.
    fn other_with(&self, guest: Guest, address: IpAddr, now: Nanos) -> Option<&str> {
        let name = self.guests.name_of(guest).unwrap_or_default();
        match self.services.holder(name, address) {
            Holder::This if address.is_ipv4() => None,
            // That of a port that is gone is only kept for it.
            Holder::Other(name) if self.guests.has_port(name) => Some(name),
            Holder::Other(_) | Holder::This | Holder::None => {
                self.guests.other_that_uses(guest, address, self.plan().held_ns(), now)
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "half of it is meant")]
fn low_half(word: u64) -> u32 {
    word as u32
}
