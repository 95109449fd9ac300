//! The router as one value.

mod errors;
mod from_guest;
mod guests;
mod look;
mod names;
mod notes;
mod offers;
mod open;
mod outside;
mod parts;
mod sockets;
mod sources;
mod to_guest;

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use ringway_net::Nanos;

use crate::actions::{Action, Actions};
use crate::addresses::Plan;
use crate::datagrams::Datagrams;
use crate::frame::{IPV4_HEADER_LEN, IPV6_HEADER_LEN, low_word};
use crate::services::Services;
use crate::socket::Close;
use crate::table::{Entry, FlowId, Guest, Limits, Table};
use crate::tcp::{Phase, Tcp, Todo};
use guests::GuestState;

pub use from_guest::{FromGuest, Refusal, Verdict, WHOLE_LEN_MAX};
pub use guests::REPLIES_MAX;
pub use look::{FlowLook, Station};
pub use notes::Note;
pub use to_guest::{Accepts, Due};

/// Between two advertisements: at least, and so much more by chance (RFC 4861 §6.2.1).
const ADVERTISE_NS: u64 = 200_000_000_000;
const ADVERTISE_NS_MORE: u64 = 400_000_000_000;

/// Least MTU of a network, in bytes: that of IPv6.
pub const MTU_MIN: u16 = 1280;

const TCP_HEADER_LEN: usize = 20;

/// The state of a flow besides its ends.
#[derive(Debug)]
enum State {
    Tcp(Tcp),
    Datagrams(Datagrams),
}

impl State {
    /// Whether a client of the host began it, by a socket that listens.
    fn is_from_outside(&self) -> bool {
        match self {
            Self::Tcp(tcp) => tcp.is_from_outside(),
            Self::Datagrams(datagrams) => datagrams.client.is_some(),
        }
    }
}

/// A router for the guests of a switch.
#[derive(Debug)]
pub struct Nat {
    services: Services,
    limits: Limits,
    keys: RandomState,
    table: Table<State>,
    guests: Vec<Option<GuestState>>,
    advertise_at: Nanos,
    /// When parts of datagrams have waited for too long.
    parts_until: Option<Nanos>,
    /// A datagram whose last part has just come.
    assembled: Option<Vec<u8>>,
    /// How many datagrams were cut, from a number that others do not know.
    cut_count: u32,
    /// Until when connections that are not known are reset without a limit.
    reset_freely_until: Nanos,
    /// A guest has used an address, or uses one no more, since that was asked.
    has_news: bool,
}

impl Nat {
    /// A router without guests; everything that grows is allocated here. `keys` are what guests
    /// must not know: sequence numbers and places in the table depend on them.
    ///
    /// # Panics
    /// If the plan's MTU is below [`MTU_MIN`].
    pub fn new(plan: Plan, limits: Limits, keys: RandomState) -> Self {
        assert!(plan.mtu >= MTU_MIN, "an MTU of {} is below {MTU_MIN}", plan.mtu);
        let guests = (0..limits.guests).map(|_| None).collect();
        let table = Table::new(limits, keys.clone());
        let services = Services::new(plan);
        let cut_count = low_half(keys.hash_one(0));
        Self {
            services,
            limits,
            keys,
            table,
            guests,
            advertise_at: Nanos(0),
            parts_until: None,
            assembled: None,
            cut_count,
            reset_freely_until: Nanos(0),
            has_news: false,
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
        let all = (0..self.limits.guests).map(Guest);
        let flows = all.flat_map(|guest| self.table.of_guest(guest));
        let goes_there =
            |entry: &Entry<State>| entry.key.to.ip() == to && !entry.state.is_from_outside();
        flows.filter(|(_, entry)| goes_there(entry)).map(|(id, _)| id).collect()
    }

    /// Ends a flow.
    pub fn end_flow(&mut self, flow: FlowId, actions: &mut Actions) {
        self.end(flow, Close::Reset, actions);
    }

    /// Leases and what else the router answers itself.
    pub fn services(&self) -> &Services {
        &self.services
    }

    /// Its upper limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The name of the port that the guest is behind.
    pub fn name_of(&self, guest: Guest) -> Option<&str> {
        let state = self.guests.get(usize::from(guest.0))?.as_ref()?;
        Some(&state.name)
    }

    /// A port of the switch that guests are behind. One whose number is not below
    /// [`Limits::guests`] is ignored.
    pub fn add_guest(&mut self, guest: Guest, name: &str) {
        if let Some(place) = self.guests.get_mut(usize::from(guest.0)) {
            *place = Some(GuestState::new(name, &self.limits));
        }
    }

    /// Ends one flow of a port that goes; to be called until it returns `false`: there is none.
    pub fn end_a_flow(&mut self, guest: Guest, actions: &mut Actions) -> bool {
        let first = self.table.of_guest(guest).map(|(id, _)| id).next();
        if let Some(id) = first {
            self.end(id, Close::Reset, actions);
        }
        first.is_some()
    }

    /// Ends one flow of a port that goes, or forgets the port; to be called until it returns
    /// `false`: the port is forgotten.
    pub fn remove_guest(&mut self, guest: Guest, actions: &mut Actions) -> bool {
        let has_flows = self.end_a_flow(guest, actions);
        let place = self.guests.get_mut(usize::from(guest.0)).filter(|_| !has_flows);
        if let Some(gone) = place.and_then(Option::take) {
            self.services.forget_port(&gone.name);
            self.has_news = true;
        }
        has_flows
    }

    /// How many flows a guest has.
    pub fn flows_of(&self, guest: Guest) -> usize {
        self.table.count_of(guest)
    }

    /// Most bytes that the kernel may hold in each direction of a new connection of that guest: the
    /// more flows it has, the fewer. `None`: the kernel decides.
    pub fn buffer_len_max(&self, guest: Guest) -> Option<u32> {
        match self.table.count_of(guest) {
            0..=64 => None,
            65..=512 => Some(256 << 10),
            _ => Some(64 << 10),
        }
    }

    /// The guest of a flow.
    pub fn guest_of(&self, flow: FlowId) -> Option<Guest> {
        self.table.entry(flow).map(|entry| entry.key.guest)
    }

    /// Whether the guest's window is full: nothing more goes to it in this flow before it
    /// acknowledges.
    pub fn waits_for_guest(&self, flow: FlowId) -> bool {
        let state = self.table.entry(flow).map(|entry| &entry.state);
        matches!(state, Some(State::Tcp(tcp)) if tcp.waits_for_guest())
    }

    /// When [`Self::timer`] has something to do.
    pub fn deadline(&self) -> Option<Nanos> {
        let advertise_at = Some(self.advertise_at).filter(|_| self.services.has_advertisement());
        self.table.deadline().into_iter().chain(advertise_at).chain(self.parts_until).min()
    }

    /// Does one thing whose time has come; to be called until it returns `false`: there is none.
    pub fn timer(&mut self, now: Nanos, actions: &mut Actions) -> bool {
        if self.services.has_advertisement() && self.advertise_at <= now {
            self.advertise(now);
            return true;
        }
        if self.parts_until.is_some_and(|at| at <= now) {
            self.forget_parts(now);
            return true;
        }
        let Some(id) = self.table.due(now) else { return false };
        let Some(entry) = self.table.entry_mut(id) else { return false };
        match &mut entry.state {
            State::Tcp(tcp) => {
                let was_connecting = tcp.phase() == Phase::Connecting;
                let todo = tcp.timer(now);
                let deadline = tcp.deadline();
                self.table.set_deadline(id, deadline);
                self.apply(id, todo, 0, actions);
                self.note_connecting(id, was_connecting);
            }
            State::Datagrams(datagrams) => {
                let end = datagrams.end(&entry.key, entry.used);
                if end <= now {
                    self.end(id, Close::Gracefully, actions);
                } else {
                    self.table.set_deadline(id, Some(end));
                }
            }
        }
        true
    }

    fn advertise(&mut self, now: Nanos) {
        let more = self.keys.hash_one(now.0) % ADVERTISE_NS_MORE;
        self.advertise_at = now.plus(ADVERTISE_NS + more);
        let Some(frame) = self.services.advertisement() else { return };
        for guest in self.guests.iter_mut().flatten() {
            guest.reply(frame.clone());
        }
    }

    /// Most bytes of data in one segment.
    fn mss(&self, is_ipv4: bool) -> u16 {
        let ip_len = if is_ipv4 { IPV4_HEADER_LEN } else { IPV6_HEADER_LEN };
        self.plan().mtu - low_word(ip_len + TCP_HEADER_LEN)
    }

    fn guest_mut(&mut self, guest: Guest) -> Option<&mut GuestState> {
        self.guests.get_mut(usize::from(guest.0))?.as_mut()
    }

    /// Removes a flow and closes its socket.
    fn end(&mut self, id: FlowId, how: Close, actions: &mut Actions) {
        let Some(entry) = self.table.remove(id) else { return };
        let has_socket = match &entry.state {
            State::Tcp(tcp) => {
                let is_connecting = tcp.phase() == Phase::Connecting;
                self.count_connecting(entry.key.guest, is_connecting, false);
                tcp.has_socket()
            }
            State::Datagrams(_) => true,
        };
        if has_socket {
            actions.push(Action::Close { flow: id, how });
        }
    }

    /// Turns what a connection wants into actions; `skip`: where its TCP header is in the frame.
    fn apply(&mut self, id: FlowId, todo: Todo, skip: u32, actions: &mut Actions) {
        let flow = id;
        if todo.consume > 0 {
            actions.push(Action::Consume { flow, len: todo.consume });
        }
        if let Some((at, len)) = todo.send {
            actions.push(Action::Send { flow, skip: skip + at, len });
        }
        if todo.shutdown {
            actions.push(Action::Shutdown { flow });
        }
        if todo.asks_room {
            actions.push(Action::AskRoom { flow });
        }
        if let Some(how) = todo.close {
            actions.push(Action::Close { flow, how });
        }
        let Some(entry) = self.table.entry_mut(id) else { return };
        entry.to_guest += u64::from(todo.consume);
        let State::Tcp(tcp) = &entry.state else { return };
        let (deadline, is_due) = (tcp.deadline(), tcp.next(u32::MAX).is_some());
        if tcp.is_gone() {
            self.table.remove(id);
            return;
        }
        self.table.set_deadline_at_most(id, deadline);
        if is_due {
            self.table.set_ready(id);
        }
    }

    /// Keeps count after a connection's phase may have changed.
    fn note_connecting(&mut self, id: FlowId, was_connecting: bool) {
        let Some(entry) = self.table.entry(id) else { return };
        let State::Tcp(tcp) = &entry.state else { return };
        let (guest, is_connecting) = (entry.key.guest, tcp.phase() == Phase::Connecting);
        self.count_connecting(guest, was_connecting, is_connecting);
    }

    fn count_connecting(&mut self, guest: Guest, was_connecting: bool, is_connecting: bool) {
        if let Some(state) = self.guest_mut(guest).filter(|_| was_connecting != is_connecting) {
            let count = state.connecting;
            state.connecting = if is_connecting { count + 1 } else { count.saturating_sub(1) };
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "half of it is meant")]
fn low_half(word: u64) -> u32 {
    word as u32
}
