//! The flows of all guests: what becomes of their packets and of what their sockets tell.
//!
//! Limits: [`Limits`]; a new flow may take the place of an older one.

mod errors;
mod from_guest;
mod from_outside;
mod lost;
mod room;
mod state;
mod to_guest;
mod way;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use ringway_net::{MacAddress, Nanos};

use crate::actions::{Action, Actions};
use crate::addresses::Plan;
use crate::socket::Close;
use crate::table::{Entry, FlowId, FlowKey, Guest, Limits, Rate, Table};
use crate::tcp::{Phase, Seq, Todo};
use state::State;

pub(crate) use from_outside::FromOutside;
pub use state::FlowLook;
pub use to_guest::Accepts;

/// By how much a nanosecond's count is shifted for sequence numbers: one each 32 ns.
const ISN_SHIFT: u32 = 5;

/// All flows.
#[derive(Debug)]
pub(crate) struct Flows {
    table: Table<State>,
    plan: Plan,
    limits: Limits,
    /// Guests must not know them: sequence numbers depend on them.
    keys: RandomState,
    /// The new flows of each guest.
    new: Vec<NewFlows>,
}

/// The new flows of a guest, of which there may not be many.
#[derive(Debug)]
struct NewFlows {
    rate: Rate,
    /// Connections whose other end has not answered.
    connecting: u32,
}

impl NewFlows {
    fn new(limits: &Limits) -> Self {
        Self { rate: Rate::new(limits.new_flows_per_second), connecting: 0 }
    }
}

impl Flows {
    /// No flows; everything that grows is allocated here.
    pub fn new(plan: Plan, limits: Limits, keys: RandomState) -> Self {
        let table = Table::new(limits, keys.clone());
        let new = (0..limits.guests).map(|_| NewFlows::new(&limits)).collect();
        Self { table, plan, limits, keys, new }
    }

    /// Guests are behind that port from now on.
    pub fn add_guest(&mut self, guest: Guest) {
        if let Some(new) = self.new.get_mut(usize::from(guest.0)) {
            *new = NewFlows::new(&self.limits);
        }
    }

    /// Where flows go by another plan from now on.
    pub fn set_plan(&mut self, plan: Plan) {
        self.plan = plan;
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The flows of a guest as they are shown, in no particular order.
    pub fn look(&self, guest: Guest, now: Nanos) -> impl Iterator<Item = FlowLook> {
        self.table.of_guest(guest).map(move |(_, entry)| FlowLook::of(entry, now))
    }

    /// Those to that address that guests began.
    pub fn to(&self, to: IpAddr) -> Vec<FlowId> {
        let all = (0..self.limits.guests).map(Guest);
        let flows = all.flat_map(|guest| self.table.of_guest(guest));
        let goes_there =
            |entry: &Entry<State>| entry.key.to.ip() == to && !entry.state.is_from_outside();
        flows.filter(|(_, entry)| goes_there(entry)).map(|(id, _)| id).collect()
    }

    /// The flow with that key.
    pub fn find(&self, key: &FlowKey) -> Option<FlowId> {
        self.table.find(key)
    }

    /// The next sequence number that a connection expects of its guest.
    pub fn expected(&self, flow: FlowId) -> Option<Seq> {
        match &self.table.entry(flow)?.state {
            State::Tcp(tcp) => Some(tcp.expected()),
            State::Datagrams(_) => None,
        }
    }

    /// The key of a flow, and the station that is its guest.
    pub fn station_of(&self, flow: FlowId) -> Option<(FlowKey, MacAddress)> {
        self.table.entry(flow).map(|entry| (entry.key, entry.mac))
    }

    /// The addresses to which a guest has flows.
    pub fn places_of(&self, guest: Guest) -> BTreeSet<IpAddr> {
        self.table.of_guest(guest).map(|(_, entry)| entry.key.to.ip()).collect()
    }

    /// How many flows a guest has.
    pub fn count_of(&self, guest: Guest) -> usize {
        self.table.count_of(guest)
    }

    /// The guest of a flow.
    pub fn guest_of(&self, flow: FlowId) -> Option<Guest> {
        self.table.entry(flow).map(|entry| entry.key.guest)
    }

    /// Whether nothing more goes to the guest in this flow before it acknowledges.
    pub fn waits_for_guest(&self, flow: FlowId) -> bool {
        let state = self.table.entry(flow).map(|entry| &entry.state);
        matches!(state, Some(State::Tcp(tcp)) if tcp.waits_for_guest())
    }

    /// Ends one flow of a guest with such a key that it began; `false`: there is none.
    pub fn end_where(
        &mut self,
        guest: Guest,
        is_one: impl Fn(&FlowKey) -> bool,
        actions: &mut Actions,
    ) -> bool {
        let those = self.table.of_guest(guest);
        let mut those = those.filter(|(_, it)| !it.state.is_from_outside() && is_one(&it.key));
        let one = those.next().map(|(id, _)| id);
        drop(those);
        if let Some(id) = one {
            self.end(id, Close::Reset, actions);
        }
        one.is_some()
    }

    /// Ends one flow of a guest; `false`: there is none.
    pub fn end_one(&mut self, guest: Guest, actions: &mut Actions) -> bool {
        let first = self.table.of_guest(guest).map(|(id, _)| id).next();
        if let Some(id) = first {
            self.end(id, Close::Reset, actions);
        }
        first.is_some()
    }

    /// The flows of a station behind a port, with its address in each.
    pub fn of_station(
        &self,
        guest: Guest,
        mac: MacAddress,
    ) -> impl Iterator<Item = (FlowId, IpAddr)> {
        let its = self.table.of_guest(guest).filter(move |(_, entry)| entry.mac == mac);
        its.map(|(id, entry)| (id, entry.key.from.ip()))
    }

    /// The flow is that guest's from now on, if there is room.
    pub fn hand_over(&mut self, id: FlowId, to: Guest) {
        let Some(entry) = self.table.entry(id) else { return };
        let (from, phase) = (entry.key.guest, entry.state.phase());
        if self.table.hand_over(id, to) && phase == Some(Phase::Connecting) {
            self.count_connecting(from, true, false);
            self.count_connecting(to, false, true);
        }
    }

    /// When [`Self::timer`] has something to do.
    pub fn deadline(&self) -> Option<Nanos> {
        self.table.deadline()
    }

    /// Does one thing whose time has come; `false`: there is none.
    pub fn timer(&mut self, now: Nanos, actions: &mut Actions) -> bool {
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

    /// `None`: there is no room, or such a flow exists.
    fn insert(
        &mut self,
        key: FlowKey,
        mac: MacAddress,
        state: State,
        now: Nanos,
    ) -> Option<FlowId> {
        let deadline = match &state {
            State::Tcp(tcp) => tcp.deadline(),
            State::Datagrams(datagrams) => Some(datagrams.end(&key, now)),
        };
        let flow = self.table.insert(key, mac, state, now)?;
        self.table.set_deadline(flow, deadline);
        Some(flow)
    }

    /// Removes a flow and closes its socket.
    pub fn end(&mut self, id: FlowId, how: Close, actions: &mut Actions) {
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

    /// Whether there is room for one more flow of a guest, perhaps in the place of another guest's.
    fn has_its_share(&mut self, guest: Guest, actions: &mut Actions) -> bool {
        if let Some(id) = self.table.gives_way(guest, &self.limits) {
            self.end(id, Close::Gracefully, actions);
        }
        self.table.has_room(guest)
    }

    /// Ends the guest's flow of those that was not used for longest. `false`: there is no room all
    /// the same.
    fn evict(
        &mut self,
        guest: Guest,
        is_one: impl Fn(&Entry<State>) -> bool,
        actions: &mut Actions,
    ) -> bool {
        let oldest = self.table.oldest(guest, is_one);
        self.end_for_room(guest, oldest, actions)
    }

    fn end_for_room(
        &mut self,
        guest: Guest,
        oldest: Option<FlowId>,
        actions: &mut Actions,
    ) -> bool {
        if let Some(id) = oldest {
            self.end(id, Close::Gracefully, actions);
        }
        oldest.is_some() && self.table.has_room(guest)
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
        let new = self.new.get_mut(usize::from(guest.0));
        if let Some(new) = new.filter(|_| was_connecting != is_connecting) {
            let count = new.connecting;
            new.connecting = if is_connecting { count + 1 } else { count.saturating_sub(1) };
        }
    }

    fn datagram_readable(&mut self, flow: FlowId) {
        if let Some(entry) = self.table.entry_mut(flow)
            && let State::Datagrams(datagrams) = &mut entry.state
        {
            datagrams.is_readable = true;
            self.table.set_ready(flow);
        }
    }

    /// A first sequence number that other guests cannot guess (RFC 6528).
    #[expect(clippy::cast_possible_truncation, reason = "as many bits as there are")]
    fn isn(&self, key: &FlowKey, now: Nanos) -> Seq {
        let clock = (now.0 >> ISN_SHIFT) as u32;
        Seq(clock.wrapping_add(self.keys.hash_one(key) as u32))
    }
}
