//! Seven days of a busy network in virtual time: no flow, timer, socket or lease is left over.
#![allow(clippy::cast_possible_truncation, reason = "small numbers that the test chooses")]

mod lab;

use std::collections::{BTreeMap, VecDeque};
use std::hash::RandomState;

use lab::plan;
use lab::wire::Random;
use ringway_nat::{Accepts, Action, Actions, Due, Event, Failure, FlowId, FromGuest, Guest};
use ringway_nat::{Limits, Nat, Protocol, REPLIES_MAX, Read, Verdict};
use ringway_net::Nanos;

const GUESTS: u16 = 4;
const DAYS: u64 = 7;
const SECOND_NS: u64 = 1_000_000_000;
const DAY_NS: u64 = 86_400 * SECOND_NS;

const ACK: u8 = 0x10;
const SYN: u8 = 0x02;
const FIN: u8 = 0x01;
const RST: u8 = 0x04;

/// A guest's end of a connection: where both are.
#[derive(Debug, Clone, Copy)]
struct End {
    port: u16,
    seq: u32,
    ack: u32,
}

#[derive(Debug, Default)]
struct Station {
    /// The connections that it knows of, newest last.
    ends: VecDeque<End>,
    next_port: u16,
}

#[derive(Debug, Default)]
struct Counts {
    opened: u64,
    closed: u64,
    open_max: usize,
    refused: u64,
    frames: u64,
}

struct Network {
    nat: Nat,
    sockets: BTreeMap<u64, Protocol>,
    stations: Vec<Station>,
    random: Random,
    now: Nanos,
    counts: Counts,
}

impl Network {
    fn new(seed: u64) -> Self {
        let limits = Limits { flows: 256, flows_per_guest: 100, ..Limits::default() };
        let mut nat = Nat::new(plan(), limits, RandomState::new());
        let mut stations = Vec::new();
        for guest in 0..GUESTS {
            nat.add_guest(Guest(guest), &format!("vm{guest}"));
            stations.push(Station { next_port: 1024, ..Station::default() });
        }
        let (sockets, counts) = (BTreeMap::new(), Counts::default());
        let now = Nanos(SECOND_NS);
        Self { nat, sockets, stations, random: Random(seed), now, counts }
    }

    /// One thing happens.
    fn step(&mut self) {
        let guest = self.random.below(u64::from(GUESTS)) as u16;
        match self.random.below(16) {
            0..4 => self.connect(guest),
            4..9 => self.go_on(guest),
            9..11 => self.datagram(guest),
            11 => self.echo(guest),
            12 => self.ask_for_lease(guest),
            13 => self.come_and_go(guest),
            _ => self.socket_says(),
        }
        self.receive();
    }

    fn connect(&mut self, guest: u16) {
        let station = &mut self.stations[usize::from(guest)];
        let end = End { port: station.next_port, seq: 1000, ack: 0 };
        station.next_port = station.next_port.checked_add(1).unwrap_or(1024);
        station.ends.push_back(End { seq: end.seq + 1, ..end });
        if station.ends.len() > 30 {
            // The guest forgets one without a word.
            station.ends.pop_front();
        }
        self.segment(guest, end, SYN, 0);
    }

    /// A connection of the guest has data, ends, or is reset.
    fn go_on(&mut self, guest: u16) {
        let count = self.stations[usize::from(guest)].ends.len().max(1) as u64;
        let which = self.random.below(count) as usize;
        let Some(end) = self.stations[usize::from(guest)].ends.get(which).copied() else { return };
        let (flags, len) = match self.random.below(8) {
            0 => (ACK | FIN, 0),
            1 => (RST, 0),
            2 => (ACK, 0),
            _ => (ACK, 1 + self.random.below(1400) as u32),
        };
        self.segment(guest, end, flags, len);
        let ends = &mut self.stations[usize::from(guest)].ends;
        ends[which].seq = end.seq.wrapping_add(len + u32::from(flags & FIN));
        if flags & RST != 0 {
            ends.remove(which);
        }
    }

    fn segment(&mut self, guest: u16, end: End, flags: u8, len: u32) {
        let mut segment = [end.port, 80].map(u16::to_be_bytes).as_flattened().to_vec();
        segment.extend([end.seq, end.ack].map(u32::to_be_bytes).as_flattened());
        segment.extend([0x50, flags, 0x40, 0, 0, 0, 0, 0]);
        segment.resize(20 + len as usize, 7);
        self.packet(guest, 6, [198, 51, 100, 7], &segment);
    }

    fn datagram(&mut self, guest: u16) {
        let (to, port) = match self.random.below(3) {
            0 => (plan().dns4().octets(), 53),
            1 => ([198, 51, 100, 8], 123),
            _ => ([198, 51, 100, 9], 4000),
        };
        let from = 2000 + self.random.below(500) as u16;
        let udp = [from, port, 12, 0].map(u16::to_be_bytes);
        self.packet(guest, 17, to, &[udp.as_flattened(), &[1; 4]].concat());
    }

    fn echo(&mut self, guest: u16) {
        let identifier = self.random.below(100) as u8;
        let message = [8, 0, 0xf7, 0xff - identifier, 0, identifier, 0, 0];
        self.packet(guest, 1, [198, 51, 100, 10], &message);
    }

    fn ask_for_lease(&mut self, guest: u16) {
        let mut message = vec![1, 1, 6, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        message.resize(28, 0);
        message.extend(mac(guest));
        message.resize(236, 0);
        message.extend([0x63, 0x82, 0x53, 0x63, 53, 1, 1, 255]);
        let len = 8 + message.len() as u16;
        let udp = [68, 67, len, 0].map(u16::to_be_bytes);
        let mut frame = [&[0xff; 6][..], &mac(guest), &[8, 0]].concat();
        let len = (20 + len).to_be_bytes();
        frame.extend([0x45, 0, len[0], len[1], 0, 0, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0]);
        frame.extend([255; 4]);
        self.send(guest, &[&frame[..], udp.as_flattened(), &message].concat());
    }

    /// Once in a while a port goes and comes back.
    fn come_and_go(&mut self, guest: u16) {
        if !self.random.percent(1) {
            return;
        }
        let mut actions = Actions::new();
        while self.nat.remove_guest(Guest(guest), &mut actions) {
            self.carry_out(&mut actions);
        }
        self.carry_out(&mut actions);
        assert_eq!(self.nat.flows_of(Guest(guest)), 0);
        self.stations[usize::from(guest)].ends.clear();
        self.nat.add_guest(Guest(guest), &format!("vm{guest}"));
    }

    fn packet(&mut self, guest: u16, protocol: u8, to: [u8; 4], payload: &[u8]) {
        let mut frame = [&plan().mac().0[..], &mac(guest), &[8, 0]].concat();
        let len = (20 + payload.len() as u16).to_be_bytes();
        frame.extend([0x45, 0, len[0], len[1], 0, 0, 0, 0, 64, protocol, 0, 0]);
        frame.extend([10, 0, 2, 200 + guest as u8]);
        frame.extend(to);
        frame.extend(payload);
        self.send(guest, &frame);
    }

    fn send(&mut self, guest: u16, frame: &[u8]) {
        let mut actions = Actions::new();
        let packet = FromGuest { guest: Guest(guest), head: frame, len: frame.len() as u32 };
        let verdict = self.nat.from_guest(packet, self.now, &mut actions);
        self.counts.refused += u64::from(matches!(verdict, Verdict::Refused(_)));
        self.carry_out(&mut actions);
    }

    fn carry_out(&mut self, actions: &mut Actions) {
        for action in actions.drain() {
            let Some((flow, event)) = self.act(action) else { continue };
            let mut more = Actions::new();
            self.nat.on_socket(flow, event, self.now, &mut more);
            for action in more.drain() {
                assert_eq!(self.act(action), None);
            }
        }
    }

    fn act(&mut self, action: Action) -> Option<(FlowId, Event)> {
        match action {
            Action::Open { flow, protocol, .. } => {
                assert!(self.sockets.insert(flow.to_u64(), protocol).is_none());
                self.counts.opened += 1;
                self.counts.open_max = self.counts.open_max.max(self.sockets.len());
            }
            Action::Close { flow, .. } => {
                assert!(self.sockets.remove(&flow.to_u64()).is_some(), "closed once");
                self.counts.closed += 1;
            }
            Action::Send { flow, len, .. } => return Some((flow, Event::Sent(len))),
            Action::AskRoom { flow } => return Some((flow, Event::Room(60_000))),
            Action::Consume { .. }
            | Action::SendDatagram { .. }
            | Action::AskEnd { .. }
            | Action::FollowGuests
            | Action::Shutdown { .. } => {}
        }
        None
    }

    /// A connection is answered, fails, or has something; a datagram comes.
    fn socket_says(&mut self) {
        let which = self.random.below(self.sockets.len().max(1) as u64) as usize;
        let Some((flow, _)) = self.sockets.iter().nth(which) else { return };
        let flow = FlowId::from_u64(*flow);
        let event = match self.random.below(12) {
            0 => Event::Failed(Failure::Reset),
            1 => Event::Failed(Failure::TimedOut),
            2..7 => Event::Connected { room: 60_000 },
            _ => Event::Readable,
        };
        let mut actions = Actions::new();
        self.nat.on_socket(flow, event, self.now, &mut actions);
        self.carry_out(&mut actions);
    }

    /// Each guest takes what is due; one of them often sleeps.
    fn receive(&mut self) {
        for guest in 0..GUESTS {
            if guest == 3 && self.random.percent(90) {
                continue;
            }
            for _ in 0..REPLIES_MAX + 400 {
                if !self.receive_one(guest) {
                    break;
                }
            }
        }
    }

    fn receive_one(&mut self, guest: u16) -> bool {
        let accepts = Accepts { tso4: true, tso6: true, uso4: true, uso6: true, len_max: 65_535 };
        let emit = match self.nat.due(Guest(guest), accepts) {
            None => return false,
            Some(Due::Reply(_)) => {
                self.nat.replied(Guest(guest));
                return true;
            }
            Some(Due::Flow(emit)) => emit,
        };
        let read = match emit.source {
            None => Read::Bytes(0),
            Some(source) if source.peek_at == Some(0) => match self.random.below(3) {
                0 => Read::Empty,
                1 => Read::End,
                _ => Read::Bytes(source.len_max.min(100)),
            },
            Some(source) if source.peek_at.is_none() && self.random.percent(50) => {
                Read::Bytes(source.len_max.min(100))
            }
            Some(_) => Read::Empty,
        };
        let mut emit = emit;
        if let Read::Bytes(len) = read
            && emit.finish(len).is_some()
        {
            self.note(guest, emit.head(), len);
        }
        let mut actions = Actions::new();
        self.nat.emitted(&emit, read, self.now, &mut actions);
        self.carry_out(&mut actions);
        true
    }

    /// The guest keeps what it has to acknowledge.
    fn note(&mut self, guest: u16, head: &[u8], len: u32) {
        self.counts.frames += 1;
        if head[23] != 6 {
            return;
        }
        let port = u16::from_be_bytes([head[36], head[37]]);
        let seq = u32::from_be_bytes([head[38], head[39], head[40], head[41]]);
        let flags = head[47];
        let ends = &mut self.stations[usize::from(guest)].ends;
        if let Some(end) = ends.iter_mut().find(|end| end.port == port) {
            let more = u32::from(flags & FIN) + u32::from(flags & SYN != 0);
            end.ack = seq.wrapping_add(len + more);
        }
    }

    /// Time goes on to `until`, from one deadline to the next.
    fn pass(&mut self, until: Nanos) {
        while let Some(at) = self.nat.deadline().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            let mut actions = Actions::new();
            while self.nat.timer(self.now, &mut actions) {
                self.carry_out(&mut actions);
            }
            self.receive();
        }
        self.now = until;
    }
}

fn mac(guest: u16) -> [u8; 6] {
    [2, 0, 0, 0, 1, guest as u8]
}

#[test]
fn seven_days_leave_nothing_over() {
    let mut network = Network::new(7);
    let end = network.now.plus(DAYS * DAY_NS);
    while network.now < end {
        network.step();
        // Mostly busy, sometimes an hour of nothing.
        let pause_ns = match network.random.below(20_000) {
            0 => network.random.below(3600 * SECOND_NS),
            1..10_000 => 0,
            _ => network.random.below(SECOND_NS),
        };
        network.pass(network.now.plus(pause_ns));
    }
    // Connections that both ends forgot are asked after, and end.
    network.pass(network.now.plus(2 * DAY_NS));
    network.receive();
    network.pass(network.now.plus(DAY_NS));
    let flows: usize = (0..GUESTS).map(|guest| network.nat.flows_of(Guest(guest))).sum();
    println!("{:?}; flows at the end: {flows}", network.counts);
    assert_eq!((flows, network.sockets.len()), (0, 0), "nothing is left");
    assert_eq!(network.counts.opened, network.counts.closed);
    assert!(network.counts.opened > 100_000 && network.counts.open_max > 60, "it was busy");
    // The table is as good as new: as many flows as ever fit.
    for port in 0..100 {
        let udp = [3000 + port, 4000, 8, 0].map(u16::to_be_bytes);
        network.packet(0, 17, [198, 51, 100, 9], udp.as_flattened());
    }
    assert_eq!(network.nat.flows_of(Guest(0)), 100);
    assert_eq!(network.nat.services().leases().all().count(), usize::from(GUESTS));
}
