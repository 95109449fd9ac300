//! A guest's packets to a router, protocol by protocol, and what sockets say about its flows.

mod messages;

pub(crate) use messages::{
    arp, datagrams, dhcp, dhcp6, fragments, frames, icmp, names, neighbours, packets, segments,
};

use std::collections::BTreeMap;
use std::hash::RandomState;

use ringway_nat::{Accepts, Action, Actions, Due, Event, Failure, FlowId, FromGuest, Guest};
use ringway_nat::{Limits, Nat, Plan, Prefix6, Problem, REPLIES_MAX, Read, Verdict};
use ringway_net::Nanos;

const GUEST: Guest = Guest(1);
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// Most flows of the guest; few, so that inputs reach the bound.
const FLOWS_MAX: u32 = 16;

/// Longest frame that the guest takes, in bytes.
const FRAME_LEN_MAX: u32 = 9000;

/// A datagram that does not fit into one packet, in bytes.
const LONG_LEN: usize = 5000;

const TCP: u8 = 6;

/// A socket of the host, as far as the router may know it.
#[derive(Debug, Default)]
struct Socket {
    /// Bytes that were peeked and not consumed.
    peeked: u32,
    /// Datagrams that wait.
    datagrams: u8,
    is_shut_down: bool,
}

struct Router {
    nat: Nat,
    sockets: BTreeMap<u64, Socket>,
    now: Nanos,
    /// The last sequence number and acknowledgement that the guest got.
    told: (u32, u32),
}

impl Router {
    fn new() -> Self {
        let plan = Plan { prefix6: Some(Prefix6::local(77)), routes6: true, ..Plan::default() };
        let limits = Limits {
            guests: 2,
            flows: FLOWS_MAX * 2,
            flows_per_guest: FLOWS_MAX,
            ..Limits::default()
        };
        let mut nat = Nat::new(plan, limits, RandomState::new());
        nat.add_guest(GUEST, "vm0");
        nat.add_guest(Guest(0), "vm1");
        let now = Nanos(1_000_000_000);
        Self { nat, sockets: BTreeMap::new(), now, told: (0, 0) }
    }

    fn send(&mut self, frame: &[u8]) {
        let Ok(len) = u32::try_from(frame.len()) else { return };
        let mut actions = Actions::new();
        let head = &frame[..frame.len().min(ringway_nat::HEAD_LEN)];
        let packet = FromGuest { guest: GUEST, head, len };
        if self.nat.from_guest(packet, self.now, &mut actions) == Verdict::Whole {
            assert!(actions.is_empty() && frame.len() <= ringway_nat::WHOLE_LEN_MAX);
            let packet = FromGuest { head: frame, ..packet };
            let verdict = self.nat.from_guest(packet, self.now, &mut actions);
            assert_ne!(verdict, Verdict::Whole);
        }
        self.carry_out(&mut actions, frame);
        if let Some(whole) = self.nat.take_assembled() {
            let (head, len) = (&whole[..], u32::try_from(whole.len()).unwrap_or(u32::MAX));
            let packet = FromGuest { guest: GUEST, head, len };
            let verdict = self.nat.from_guest(packet, self.now, &mut actions);
            assert!(verdict != Verdict::Assembled && self.nat.take_assembled().is_none());
            self.carry_out(&mut actions, &whole);
        }
        self.receive();
        assert!(self.nat.flows_of(GUEST) <= FLOWS_MAX as usize);
        assert!(self.sockets.len() <= self.nat.flows_of(GUEST), "a socket without a flow");
    }

    /// One thing that a socket says.
    fn tell(&mut self, what: u8, which: u8) {
        let open = self.sockets.len().max(1);
        let Some(flow) = self.sockets.keys().nth(usize::from(which) % open) else { return };
        let flow = FlowId::from_u64(*flow);
        let event = match what % 10 {
            0 => Event::Connected { room: u32::from(which) * 500 },
            1 => Event::Failed(Failure::Reset),
            2 => Event::Failed(Failure::Unreachable(Problem::HostUnreachable)),
            3 => Event::Failed(Failure::NoRoom),
            4 => Event::Writable,
            5 => Event::Room(u32::from(which)),
            6 => Event::Sent(u32::from(which)),
            7 => Event::Report { from: None, problem: Problem::TooBig(576 + u16::from(which)) },
            8 => Event::HungUp,
            _ => Event::Readable,
        };
        if event == Event::Readable
            && let Some(socket) = self.sockets.get_mut(&flow.to_u64())
        {
            socket.datagrams = 2;
        }
        let mut actions = Actions::new();
        self.nat.on_socket(flow, event, self.now, &mut actions);
        self.carry_out(&mut actions, &[]);
        self.receive();
    }

    /// A write to a socket may lead to the question how much it takes; that answer leads to none.
    fn carry_out(&mut self, actions: &mut Actions, frame: &[u8]) {
        for action in actions.drain() {
            let mut answer = self.act(action, frame);
            while let Some((flow, event)) = answer.take() {
                let mut more = Actions::new();
                self.nat.on_socket(flow, event, self.now, &mut more);
                for action in more.drain() {
                    let next = self.act(action, &[]);
                    let may_answer = matches!(event, Event::Sent(_)) && answer.is_none();
                    assert!(next.is_none() || may_answer, "{event:?} leads to {action:?}");
                    answer = answer.or(next);
                }
            }
        }
    }

    fn act(&mut self, action: Action, frame: &[u8]) -> Option<(FlowId, Event)> {
        let open = "only a socket that is open is used";
        let is_inside = |skip: u32, len: u32| (skip + len) as usize <= frame.len();
        match action {
            Action::Open { flow, .. } => {
                assert!(self.sockets.insert(flow.to_u64(), Socket::default()).is_none());
            }
            Action::Consume { flow, len } => {
                let socket = self.sockets.get_mut(&flow.to_u64()).expect(open);
                socket.peeked = socket.peeked.checked_sub(len).expect("what was peeked");
            }
            Action::Send { flow, skip, len } => {
                assert!(!self.sockets.get(&flow.to_u64()).expect(open).is_shut_down);
                assert!(len > 0 && is_inside(skip, len));
                return Some((flow, Event::Sent(len - len / 3)));
            }
            Action::SendDatagram { flow, skip, len, .. } => {
                assert!(self.sockets.contains_key(&flow.to_u64()) && is_inside(skip, len));
            }
            Action::Shutdown { flow } => {
                self.sockets.get_mut(&flow.to_u64()).expect(open).is_shut_down = true;
            }
            Action::AskRoom { flow } => {
                assert!(self.sockets.contains_key(&flow.to_u64()), "{open}");
                return Some((flow, Event::Room(3000)));
            }
            Action::AskEnd { flow } => {
                assert!(self.sockets.contains_key(&flow.to_u64()), "{open}");
            }
            Action::FollowGuests => {}
            Action::Close { flow, .. } => {
                assert!(self.sockets.remove(&flow.to_u64()).is_some(), "{open}");
            }
        }
        None
    }

    /// The guest takes what is due.
    fn receive(&mut self) {
        let accepts =
            Accepts { tso4: true, tso6: false, uso4: true, uso6: false, len_max: FRAME_LEN_MAX };
        for _ in 0..REPLIES_MAX + 2 * FLOWS_MAX as usize {
            let Some(due) = self.nat.due(GUEST, accepts) else { return };
            let mut emit = match due {
                Due::Reply(frame) => {
                    assert!((14..=2048).contains(&frame.len()));
                    self.nat.replied(GUEST);
                    continue;
                }
                Due::Flow(emit) => emit,
            };
            let mut read = self.read(&emit);
            if read == Read::TooLong {
                self.nat.cut(&emit, &[7; LONG_LEN]);
                read = Read::Bytes(u32::try_from(LONG_LEN).unwrap_or(u32::MAX));
            } else if let Read::Bytes(len) = read
                && emit.finish(len).is_some()
            {
                assert!(emit.head().len() + len as usize <= FRAME_LEN_MAX as usize);
                self.note(emit.head(), len);
            }
            let mut actions = Actions::new();
            self.nat.emitted(&emit, read, self.now, &mut actions);
            self.carry_out(&mut actions, &[]);
        }
    }

    /// A connection has 4 KiB, then nothing.
    fn read(&mut self, emit: &ringway_nat::Emit) -> Read {
        const HAS: u32 = 4096;
        let Some(source) = emit.source else { return Read::Bytes(0) };
        let socket = self.sockets.get_mut(&emit.flow.to_u64()).expect("an open socket is read");
        let Some(at) = source.peek_at else {
            let Some(left) = socket.datagrams.checked_sub(1) else { return Read::Empty };
            socket.datagrams = left;
            return if left > 0 { Read::TooLong } else { Read::Bytes(source.len_max) };
        };
        if at >= HAS {
            return Read::Empty;
        }
        let len = source.len_max.min(HAS - at);
        socket.peeked = socket.peeked.max(at + len);
        Read::Bytes(len)
    }

    fn note(&mut self, head: &[u8], len: u32) {
        if head.get(12..14) == Some(&[8, 0]) && head.get(23) == Some(&TCP) && head.len() >= 54 {
            let word = |at: usize| head[at..].first_chunk().map_or(0, |w| u32::from_be_bytes(*w));
            let flags = u32::from(head[47]);
            self.told = (word(38).wrapping_add(len + (flags & 1) + (flags >> 1 & 1)), word(42));
        }
    }

    /// Time passes, and timers do what they have to.
    fn wait(&mut self, seconds: u64) {
        self.now = self.now.plus(seconds * 1_000_000_000);
        for _ in 0..100_000 {
            let mut actions = Actions::new();
            if !self.nat.timer(self.now, &mut actions) {
                return assert!(self.nat.deadline().is_none_or(|at| at > self.now));
            }
            self.carry_out(&mut actions, &[]);
            self.receive();
        }
        panic!("timers do not end");
    }

    /// From one deadline to the next.
    fn pass_six_hours(&mut self) {
        let end = self.now.plus(21_600 * 1_000_000_000);
        while let Some(at) = self.nat.deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.wait(0);
        }
    }
}
