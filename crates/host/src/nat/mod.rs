//! A port of kind `nat:`: the router of `ringway_nat`, and the sockets in which it ends the flows
//! of guests.
//!
//! How: a guest's packet is put here like into any port: its head is copied and judged, and its
//! data goes from the guest's memory into a socket ([`NatPort::put`]). What sockets have for guests
//! is read straight into their buffers when the port is visited ([`visit`]). All sockets are in a
//! poller of the port's own, which the worker watches.
//!
//! Limits: the port belongs to the first worker. Without room in a guest's queue nothing is read:
//! its data stays in the sockets, and the other guests go on.

pub(crate) mod by_port;
pub(crate) mod calls;
pub(crate) mod clients;
pub(crate) mod connection_info;
pub(crate) mod counts;
pub(crate) mod datagram_options;
pub(crate) mod error_queue;
pub(crate) mod fill;
pub(crate) mod give;
pub(crate) mod guest_ports;
pub(crate) mod listeners;
pub(crate) mod one_by_one;
pub(crate) mod open_sockets;
pub(crate) mod opening;
pub(crate) mod options;
pub(crate) mod own_addresses;
pub(crate) mod part;
pub(crate) mod peek;
pub(crate) mod questions;
pub(crate) mod queue_len;
pub(crate) mod reports;
pub(crate) mod resolvers;
pub(crate) mod shared_fd;
pub(crate) mod snapshot;
pub(crate) mod socket;
pub(crate) mod socket_name;
pub(crate) mod sockets;
pub(crate) mod visit;

use std::collections::hash_map::RandomState;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use ringway_nat::{Action, Actions, ArrivalError, Event, FlowId, Forward, FromGuest, Guest};
use ringway_nat::{HEAD_LEN, Limits, Nat, Refusal, Rings, StationState, Verdict, WHOLE_LEN_MAX};
use ringway_net::{
    Counters, DropReason, Nanos, NetHeader, PACKET_LEN_MAX, Packet, PacketSink, Put,
};
use ringway_switch::{PORTS_MAX, PortId};

use crate::memory::scratch::Scratch;
use crate::nat::calls::{SKIPPED_LEN_MAX, Skipped};
use crate::nat::listeners::Listener;
use crate::nat::options::NatOptions;
use crate::nat::sockets::Sockets;
use crate::os::poller::Events;

/// The router as a worker owns it.
pub struct NatPort {
    pub(crate) nat: Nat,
    options: NatOptions,
    sockets: Sockets,
    events: Events,
    /// The ports that guests are behind.
    guests: Vec<Guest>,
    /// The guest whose packets are put here now.
    sender: Option<Guest>,
    now: Nanos,
    /// The guest whose turn it is, by its place.
    turn: usize,
    /// Packets were put here since the last visit.
    has_news: bool,
    /// There was no room: when it is tried again, and how long that was last.
    retry_at: Option<Nanos>,
    silent_ns: u64,
    /// Frames that do not go straight into a guest's buffers.
    scratch: Scratch,
    pub(crate) to_nat: Counters,
    pub(crate) from_nat: Counters,
    refused: [u64; Refusal::ALL.len()],
    /// The last guest that sent from an address that is not its own, that address, and when.
    pub(crate) spoofed: Option<(Guest, IpAddr, Nanos)>,
    /// Another process had a router here.
    is_successor: bool,
    /// It was told that there are news of stations.
    has_told: bool,
}

/// How long connections that another process had are reset without a limit, in nanoseconds.
const RESET_FREELY_NS: u64 = 60_000_000_000;

impl NatPort {
    /// A router without guests.
    ///
    /// # Errors
    /// The operating system has no epoll instance left.
    pub fn new(options: NatOptions) -> io::Result<Self> {
        let has_offsets = peek::has_offsets();
        let in_flight = if has_offsets { u32::MAX } else { SKIPPED_LEN_MAX };
        let limits = Limits { guests: ports_max(), in_flight, ..Limits::default() };
        // Where there are fewer sockets than flows, guests share those.
        let limits = Limits { flows: limits.flows.min(options.sockets_max), ..limits };
        let max = options.sockets_max as usize;
        let skipped = Skipped::new(has_offsets);
        let mut sockets = Sockets::new(limits.flows as usize, max, skipped)?;
        sockets.resolvers.set(&options.resolvers);
        Ok(Self {
            nat: Nat::new(options.plan.clone(), limits, RandomState::new()),
            options,
            sockets,
            events: Sockets::events(),
            guests: Vec::with_capacity(PORTS_MAX),
            sender: None,
            now: Nanos(0),
            turn: 0,
            has_news: true,
            retry_at: None,
            silent_ns: 0,
            scratch: Scratch::new(PACKET_LEN_MAX as usize),
            to_nat: Counters::default(),
            from_nat: Counters::default(),
            refused: [0; Refusal::ALL.len()],
            spoofed: None,
            is_successor: false,
            has_told: false,
        })
    }

    /// Another process had a router here: its connections are reset as soon as they show.
    pub fn succeeds(&mut self) {
        self.is_successor = true;
    }

    /// It is visited from now on.
    pub(crate) fn begin_at(&mut self, now: Nanos) {
        if self.is_successor {
            self.nat.reset_freely_until(now.plus(RESET_FREELY_NS));
        }
    }

    /// Whether this kernel can peek at an offset. If not, each read copies again what is on the way
    /// to the guest, which is then 256 KiB of a connection at most.
    pub fn peeks_at_offsets(&self) -> bool {
        self.nat.limits().in_flight > SKIPPED_LEN_MAX
    }

    /// Other options; other addresses make another router, and end all flows.
    pub(crate) fn set_options(&mut self, options: NatOptions) {
        self.sockets.resolvers.set(&options.resolvers);
        let host = self.nat.plan().host.filter(|host| options.plan.host != Some(*host));
        if !self.nat.set_plan(&options.plan) {
            let limits = *self.nat.limits();
            let nat = Nat::new(options.plan.clone(), limits, RandomState::new());
            let before = std::mem::replace(&mut self.nat, nat);
            self.sockets.clear();
            for guest in self.guests.iter().copied() {
                if let Some(name) = before.name_of(guest) {
                    self.nat.add_guest(guest, name);
                    let rings = if before.runs(guest) { Rings::Run } else { Rings::Stop };
                    self.nat.note_rings(guest, rings, self.now, &mut Actions::new());
                }
            }
            self.nat.remember(&before.notes(self.now), self.now);
            self.nat.retire(before.plan());
        }
        // Guests do not reach this machine's loopback there any more.
        let mut actions = Actions::new();
        for flow in host.map_or_else(Vec::new, |host| self.nat.flows_to(host)) {
            self.nat.end_flow(flow, &mut actions);
            self.carry_out(&mut actions, None);
        }
        self.options = options;
        self.has_news = true;
    }

    /// The guest behind that port has come from another router; `only_asks`: it will come.
    ///
    /// # Errors
    /// It cannot have the addresses here that it had there.
    pub fn accept_guest(
        &mut self,
        port: PortId,
        state: &[StationState],
        only_asks: bool,
        now: Nanos,
    ) -> Result<(), ArrivalError> {
        let guest = Guest(port.0);
        if only_asks {
            return self.nat.check_guest(guest, state, now);
        }
        let mut actions = Actions::new();
        let accepted = self.nat.accept_guest(guest, state, now, &mut actions);
        self.follow_guests(&mut actions);
        accepted
    }

    /// Says what the rings of a port do.
    pub fn note_rings(&mut self, port: PortId, rings: Rings, now: Nanos) {
        let mut actions = Actions::new();
        self.nat.note_rings(Guest(port.0), rings, now, &mut actions);
        self.follow_guests(&mut actions);
    }

    /// Guests have moved perhaps, and have something to get where they are now.
    fn follow_guests(&mut self, actions: &mut Actions) {
        self.carry_out(actions, None);
        self.has_news = true;
    }

    /// Listens for connections into guests where it did for those in `kept`, and with `added`; the
    /// other listeners are closed.
    pub fn listen(&mut self, kept: &[Forward], added: Vec<Listener>) {
        self.sockets.listen(kept, added);
        self.end_strangers();
    }

    /// A port that guests may be behind.
    pub(crate) fn add_guest(&mut self, port: PortId, name: &str) {
        let guest = Guest(port.0);
        if !self.guests.contains(&guest) {
            self.guests.push(guest);
        }
        self.nat.add_guest(guest, name);
    }

    /// The port is gone: its flows end.
    pub(crate) fn remove_guest(&mut self, port: PortId) {
        let guest = Guest(port.0);
        self.guests.retain(|other| *other != guest);
        let mut actions = Actions::new();
        while self.nat.remove_guest(guest, &mut actions) {
            self.carry_out(&mut actions, None);
        }
    }

    /// Notes the guest whose packets are put here next, and the time.
    pub(crate) fn note_sender(&mut self, port: PortId, now: Nanos) {
        (self.sender, self.now) = (Some(Guest(port.0)), now);
    }

    /// Whether packets were put here since the last visit.
    pub(crate) fn takes_visit(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// When it has to be visited, whatever else happens.
    pub(crate) fn wake_at(&self) -> Option<Nanos> {
        let asked = self.sockets.asked.front().map(|(at, _)| *at);
        self.nat.deadline().into_iter().chain(self.retry_at).chain(asked).min()
    }

    fn judge(&mut self, packet: &Packet<'_>, guest: Guest) {
        let verdict = self.decide(packet, guest);
        if !matches!(verdict, Verdict::Refused(_)) {
            self.to_nat.count(packet.len);
        }
        if verdict == Verdict::Assembled
            && let Some(frame) = self.nat.take_assembled()
            && let Some(bytes) = self.scratch.bytes().slice(0, frame.len())
        {
            bytes.write(0, &frame);
            let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
            // Its parts were counted.
            self.decide(&Packet { header: &NetHeader::default(), payload: &[bytes], len }, guest);
        }
        self.has_news = true;
    }

    fn decide(&mut self, packet: &Packet<'_>, guest: Guest) -> Verdict {
        let mut actions = Actions::new();
        let verdict = match self.judge_by::<HEAD_LEN>(packet, guest, &mut actions) {
            Verdict::Whole => self.judge_by::<WHOLE_LEN_MAX>(packet, guest, &mut actions),
            verdict => verdict,
        };
        if let Verdict::Refused(why) = verdict {
            self.refused[why as usize] += 1;
            self.to_nat.count_drop(drop_reason(why));
        }
        self.carry_out(&mut actions, Some(packet));
        verdict
    }

    /// By a copy of its first bytes: the guest may change its own at any time.
    fn judge_by<const LEN: usize>(
        &mut self,
        packet: &Packet<'_>,
        guest: Guest,
        actions: &mut Actions,
    ) -> Verdict {
        let mut head = [0; LEN];
        let copied = packet.copy_out(&mut head);
        let packet = FromGuest { guest, head: &head[..copied], len: packet.len };
        let verdict = self.nat.from_guest(packet, self.now, actions);
        if verdict == Verdict::Refused(Refusal::SpoofedSource)
            && let Some(ip) = source(&head[..copied])
        {
            self.spoofed = Some((guest, ip, self.now));
        }
        verdict
    }

    /// Carries out what is to be done about sockets, and what follows from that.
    fn carry_out(&mut self, actions: &mut Actions, packet: Option<&Packet<'_>>) {
        for action in actions.drain() {
            self.carry_out_one(action, packet);
        }
        self.tell();
    }

    fn carry_out_one(&mut self, action: Action, packet: Option<&Packet<'_>>) {
        self.sockets.carry_out(action, packet, self.now);
        match action {
            Action::Open { flow, .. } => self.limit_buffers(flow),
            Action::FollowGuests => self.sockets.ports.follow(|flow| self.nat.guest_of(flow)),
            _ => {}
        }
    }

    /// A guest with many connections gets less of the kernel's memory for each new one.
    fn limit_buffers(&mut self, flow: FlowId) {
        let guest = self.nat.guest_of(flow);
        let len_max = guest.and_then(|guest| self.nat.buffer_len_max(guest));
        if let Some((socket, _)) = self.sockets.table.of(flow) {
            socket.limit_buffers(len_max);
        }
    }

    /// Tells the router all news of sockets, and carries out what follows from them.
    fn tell(&mut self) {
        let mut actions = Actions::new();
        while let Some((flow, event)) = self.sockets.table.news.pop_front() {
            if let Some(why) = self.nat.on_socket(flow, event, self.now, &mut actions) {
                self.refused[why as usize] += 1;
            }
            for action in actions.drain() {
                self.carry_out_one(action, None);
            }
        }
    }

    fn tell_one(&mut self, flow: FlowId, event: Event) {
        self.sockets.table.note(flow, event);
        self.tell();
    }
}

fn ports_max() -> u16 {
    u16::try_from(PORTS_MAX).unwrap_or(u16::MAX)
}

/// The address that a packet comes from.
fn source(frame: &[u8]) -> Option<IpAddr> {
    match *frame.get(12..14)? {
        [0x08, 0x00] => Some(IpAddr::from(*frame.get(26..)?.first_chunk::<4>()?)),
        [0x86, 0xdd] => Some(IpAddr::from(*frame.get(22..)?.first_chunk::<16>()?)),
        _ => None,
    }
}

/// As which of the reasons that all ports have it is counted.
fn drop_reason(why: Refusal) -> DropReason {
    match why {
        Refusal::Malformed | Refusal::Fragment => DropReason::Malformed,
        Refusal::NotForUs => DropReason::Filtered,
        Refusal::SpoofedSource => DropReason::SpoofedIp,
        Refusal::FlowRate => DropReason::RateLimit,
        Refusal::FlowLimit | Refusal::NoPort => DropReason::NoRoom,
        Refusal::Denied | Refusal::Hops | Refusal::NoFlow => DropReason::NoRoute,
    }
}

impl PacketSink for NatPort {
    /// Always takes it: a slow remote is felt by the flow's window, and by nothing else.
    fn put(&mut self, packet: &Packet<'_>) -> Put {
        match self.sender {
            Some(guest) => self.judge(packet, guest),
            None => self.to_nat.count_drop(DropReason::NoRoute),
        }
        Put::Done
    }
}

impl AsFd for NatPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sockets.as_fd()
    }
}

impl std::fmt::Debug for NatPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NatPort").field("options", &self.options).finish_non_exhaustive()
    }
}
