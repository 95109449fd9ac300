//! A guest with a real TCP/IP stack, a lossy way to the router, and made-up sockets of a host.
#![allow(dead_code, reason = "each test uses some of it")]

pub mod host;
pub mod packets;
pub mod wire;

use std::collections::VecDeque;
use std::hash::RandomState;
use std::net::SocketAddr;

use ringway_nat::{Accepts, Actions, Caller, Destination, Due, Event, FlowId, FromGuest, Guest};
use ringway_nat::{HEAD_LEN, Limits, Nat, Plan, Read, Verdict};
use ringway_net::{Nanos, offload};
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};

use host::Host;
use wire::{Random, Wire};

pub const GUEST: Guest = Guest(3);
pub const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// Everything of a test.
pub struct Lab {
    pub nat: Nat,
    pub host: Host,
    pub now: Nanos,
    pub interface: Interface,
    pub sockets: SocketSet<'static>,
    pub wire: Wire,
    pub random: Random,
    pub accepts: Accepts,
    pub verdicts: Vec<Verdict>,
    /// The guest whose frames [`Lab::send`] sends.
    pub sender: Guest,
    /// Frames to the guest, before anything happened to them.
    pub seen: Vec<Vec<u8>>,
    /// Frames both ways, and news of sockets.
    pub events: u64,
}

/// A port of a guest that clients outside may use.
pub fn port(guest: Guest, port: u16) -> Destination {
    Destination { guest, port }
}

/// A client whose connection takes so many bytes.
pub fn caller(from: SocketAddr, room: u32) -> Caller {
    Caller { from, room }
}

pub fn plan() -> Plan {
    let prefix6 = Some(ringway_nat::Prefix6::local(77));
    Plan { prefix6, routes6: true, ..Plan::default() }
}

impl Lab {
    pub fn new(seed: u64) -> Self {
        let mut nat = Nat::new(plan(), Limits::default(), RandomState::new());
        nat.add_guest(GUEST, "vm0");
        let mut wire = Wire::default();
        let config = Config::new(HardwareAddress::Ethernet(EthernetAddress(MAC)));
        let mut interface = Interface::new(config, &mut wire, Instant::ZERO);
        let guest6 = guest6();
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(IpAddress::v4(10, 0, 2, 15), 24)).unwrap();
            addresses.push(IpCidr::new(guest6.into(), 64)).unwrap();
        });
        interface.routes_mut().add_default_ipv4_route([10, 0, 2, 2].into()).unwrap();
        let gateway6 = plan().gateway6().unwrap();
        interface.routes_mut().add_default_ipv6_route(gateway6).unwrap();
        let mut lab = Self {
            nat,
            host: Host::default(),
            now: Nanos(1_000_000_000),
            interface,
            sockets: SocketSet::new(Vec::new()),
            wire,
            random: Random(seed),
            accepts: Accepts { tso4: true, tso6: true, uso4: true, uso6: true, len_max: 65_535 },
            verdicts: Vec::new(),
            sender: GUEST,
            seen: Vec::new(),
            events: 0,
        };
        // The first advertisement is of no interest.
        lab.step();
        lab.seen.clear();
        lab
    }

    /// The same with a guest whose frames the test makes: its own stack hears nothing.
    pub fn scripted() -> Self {
        let mut lab = Self::new(1);
        lab.interface.update_ip_addrs(|addresses| addresses.clear());
        lab
    }

    /// One millisecond.
    pub fn step(&mut self) {
        self.now = self.now.plus(1_000_000);
        let instant = Instant::from_micros(i64::try_from(self.now.0 / 1000).unwrap());
        self.interface.poll(instant, &mut self.wire, &mut self.sockets);
        let frames: Vec<Vec<u8>> = self.wire.from_guest.drain(..).collect();
        for frame in self.wire.impair(frames, &mut self.random) {
            self.send(&frame);
        }
        let mut actions = Actions::new();
        let mut is_over = false;
        for _ in 0..10_000 {
            is_over = !self.nat.timer(self.now, &mut actions);
            if is_over {
                break;
            }
            self.carry_out(&mut actions, &[]);
        }
        assert!(is_over && self.nat.deadline().is_none_or(|at| at > self.now), "timers end");
        for (flow, event) in self.host.news(&mut self.random) {
            self.tell(flow, event);
        }
        self.receive();
    }

    /// Where nothing is under way: to the moment at which the guest or the router does something.
    pub fn leap(&mut self) {
        let instant = Instant::from_micros(i64::try_from(self.now.0 / 1000).unwrap());
        let guest = self.interface.poll_at(instant, &self.sockets);
        let guest = guest.map(|at| Nanos(u64::try_from(at.total_micros()).unwrap() * 1000));
        let next = guest.into_iter().chain(self.nat.deadline()).min();
        if self.host.is_idle() && self.wire.to_guest.is_empty() && self.wire.from_guest.is_empty() {
            let before = next.map_or(0, |at| at.0.saturating_sub(1_000_000));
            self.now = self.now.max(Nanos(before));
        }
    }

    /// A frame of the guest reaches the router.
    pub fn send(&mut self, frame: &[u8]) {
        self.events += 1;
        let mut actions = Actions::new();
        let len = u32::try_from(frame.len()).unwrap();
        let head = &frame[..frame.len().min(HEAD_LEN)];
        let packet = FromGuest { guest: self.sender, head, len };
        let mut verdict = self.nat.from_guest(packet, self.now, &mut actions);
        if verdict == Verdict::Whole {
            let packet = FromGuest { head: frame, ..packet };
            verdict = self.nat.from_guest(packet, self.now, &mut actions);
            assert_ne!(verdict, Verdict::Whole);
        }
        self.verdicts.push(verdict);
        self.carry_out(&mut actions, frame);
        if verdict == Verdict::Assembled {
            let whole = self.nat.take_assembled().expect("a frame");
            self.send(&whole);
        }
    }

    pub fn tell(&mut self, flow: FlowId, event: Event) {
        self.events += 1;
        let mut actions = Actions::new();
        self.nat.on_socket(flow, event, self.now, &mut actions);
        self.carry_out(&mut actions, &[]);
    }

    fn carry_out(&mut self, actions: &mut Actions, frame: &[u8]) {
        let mut events = VecDeque::new();
        for action in actions.drain() {
            events.extend(self.host.carry_out(action, frame, &mut self.random));
        }
        while let Some((flow, event)) = events.pop_front() {
            self.nat.on_socket(flow, event, self.now, actions);
            for action in actions.drain() {
                events.extend(self.host.carry_out(action, frame, &mut self.random));
            }
        }
    }

    /// Frames of the router reach the guest.
    fn receive(&mut self) {
        let frames = self.frames_for(GUEST);
        self.events += frames.len() as u64;
        self.seen.extend(frames.iter().cloned());
        let frames = self.wire.impair(frames, &mut self.random);
        self.wire.to_guest.extend(frames);
    }

    /// The frames that the router has for a guest, as segments.
    pub fn frames_for(&mut self, guest: Guest) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for _ in 0..64 {
            let Some(due) = self.nat.due(guest, self.accepts) else { break };
            match due {
                Due::Reply(frame) => {
                    frames.push(frame.to_vec());
                    self.nat.replied(guest);
                }
                Due::Flow(mut emit) => {
                    let (mut read, payload) = self.host.read(&mut emit);
                    if let (Read::TooLong, Some(message)) = (read, &payload) {
                        self.nat.cut(&emit, message);
                        read = Read::Bytes(u32::try_from(message.len()).unwrap());
                    } else if let Some(payload) = payload {
                        let len = u32::try_from(payload.len()).unwrap();
                        let header = emit.finish(len).expect("long enough");
                        let mut frame = emit.head().to_vec();
                        frame.extend(&payload);
                        let mut segments = offload::complete(&header, &mut frame, false).unwrap();
                        while let Some(segment) = segments.cut() {
                            frames.push(segment.bytes.to_vec());
                        }
                    }
                    let mut actions = Actions::new();
                    self.nat.emitted(&emit, read, self.now, &mut actions);
                    self.carry_out(&mut actions, &[]);
                }
            }
        }
        frames
    }
}

/// The guest asks for its address, and gets it.
pub fn lease(lab: &mut Lab) {
    lab.send(&packets::dhcp(1, 9, None));
    lab.step();
}

pub fn guest6() -> std::net::Ipv6Addr {
    let network = plan().prefix6.unwrap().network();
    std::net::Ipv6Addr::from_bits(network.to_bits() | 0x99)
}
