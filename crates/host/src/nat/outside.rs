//! Datagrams from outside into guests: several clients send to one socket, so the next datagram in
//! it decides whose turn it is. It stays there until its guest has room.

use ringway_nat::{Actions, Event, Failure, Guest};

use crate::nat::NatPort;

/// Datagrams that no guest can have, dropped in one go; the others are with the next visit.
const DROPPED_MAX: usize = 64;

impl NatPort {
    /// Finds the flow of the next datagram of each listener that has one.
    pub(crate) fn look_at_datagrams(&mut self) {
        self.sockets.forget_ended_clients();
        for number in self.sockets.listeners.readable() {
            for _ in 0..DROPPED_MAX {
                if !self.look_at_datagram(number) {
                    break;
                }
            }
        }
    }

    /// Ends flows of clients whose place is not listened at any more: it is free at once.
    pub(crate) fn end_strangers(&mut self) {
        for flow in self.sockets.strangers() {
            self.tell_one(flow, Event::Failed(Failure::Reset));
        }
    }

    /// `true`: it was dropped, and there may be more behind it.
    fn look_at_datagram(&mut self, number: usize) -> bool {
        let Some((client, forward)) = self.sockets.listeners.next(number) else { return false };
        let (to, name) = (forward.to, &forward.guest);
        let is_it = |guest: &&Guest| self.nat.name_of(**guest) == Some(name);
        let guest = self.guests.iter().find(is_it).copied();
        let mut actions = Actions::new();
        let now = self.now;
        let flow =
            guest.and_then(|it| self.nat.accept_datagram(it, (to, client), now, &mut actions));
        self.carry_out(&mut actions, None);
        let flow = flow.filter(|flow| self.sockets.share(*flow, number, &client));
        self.sockets.listeners.set_flow(number, flow);
        flow.is_none()
    }
}
