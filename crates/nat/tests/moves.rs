//! Guests that move from one port of a router to another one, with their addresses and flows.

mod lab;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use lab::packets::{REMOTE, REMOTE_6, dhcp, packet, packet6, segment, udp};
use lab::wire::Random;
use lab::{GUEST, Lab, MAC};
use ringway_extent::Extent;
use ringway_nat::{Actions, Close, Guest, Refusal, Rings, Verdict};
use ringway_net::MacAddress;

const OTHER: Guest = Guest(4);
const REQUEST: u8 = 3;
const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;

const MOVES: Extent = Extent::new("RINGWAY_NAT_MOVES", 2_000, 200_000);

fn two_guests() -> Lab {
    let mut lab = Lab::scripted();
    lab.nat.add_guest(OTHER, "vm1");
    lab
}

/// Rings of a port start, or have all stopped.
fn rings(lab: &mut Lab, guest: Guest, run: bool, mac: [u8; 6]) {
    note(lab, guest, if run { Rings::Start(MacAddress(mac)) } else { Rings::Stop });
}

fn note(lab: &mut Lab, guest: Guest, rings: Rings) {
    let mut actions = Actions::new();
    lab.nat.note_rings(guest, rings, lab.now, &mut actions);
    let _ = actions.drain();
}

fn says(lab: &mut Lab, guest: Guest, frame: &[u8]) -> Verdict {
    lab.sender = guest;
    lab.send(frame);
    *lab.verdicts.last().expect("a verdict")
}

/// A connection to port 80 of [`REMOTE`]: what the router sends next has that number.
fn connect(lab: &mut Lab) -> u32 {
    assert_eq!(says(lab, GUEST, &segment(1000, 0, SYN, &[], &[])), Verdict::Done);
    lab.step();
    let answer = lab.seen.last().expect("an answer").clone();
    let next = u32::from_be_bytes(answer[38..42].try_into().unwrap()).wrapping_add(1);
    assert_eq!(says(lab, GUEST, &segment(1001, next, ACK, &[], &[])), Verdict::Done);
    next
}

const SPOOFED: Verdict = Verdict::Refused(Refusal::SpoofedSource);

#[test]
fn a_connection_follows_its_guest_once_the_old_port_has_stopped() {
    let mut lab = two_guests();
    lab.send(&dhcp(REQUEST, 9, Some([10, 0, 2, 15])));
    let next = connect(&mut lab);
    assert!(says(&mut lab, GUEST, &packet6(REMOTE_6, 17, &udp(1, 2, b"x"))) == Verdict::Done);
    let data = segment(1001, next, ACK, &[], b"hello");
    assert_eq!(says(&mut lab, OTHER, &data), SPOOFED, "the other port runs");
    rings(&mut lab, OTHER, true, [2, 0, 0, 0, 0, 8]);
    rings(&mut lab, GUEST, false, MAC);
    let mut of_another = data.clone();
    of_another[11] = 8;
    assert_eq!(says(&mut lab, OTHER, &of_another), SPOOFED, "another station");
    assert_eq!(says(&mut lab, OTHER, &data), Verdict::Done);
    assert_eq!((lab.nat.flows_of(GUEST), lab.nat.flows_of(OTHER)), (0, 2));
    lab.host.fakes.values_mut().next().unwrap().outgoing.extend(b"and back");
    lab.step();
    let back = lab.frames_for(OTHER);
    assert!(back.iter().any(|frame| frame.ends_with(b"and back")), "{back:?}");
    assert_eq!(lab.host.fakes.values().next().unwrap().received, b"hello");
    // All else that it had came along.
    let state = lab.nat.guest_state(OTHER, lab.now);
    assert_eq!(state[0].lease.map(|lease| lease.address), Some([10, 0, 2, 15].into()));
    assert!(state[0].addresses.contains(&lab::guest6().into()));
    assert_eq!(lab.nat.guest_state(GUEST, lab.now), []);
    let before = lab.host.fakes.len();
    says(&mut lab, OTHER, &packet6(REMOTE_6, 17, &udp(1, 2, b"x")));
    assert_eq!(lab.host.fakes.len(), before, "the flow is known");
    // And now it is the old port that is refused.
    rings(&mut lab, GUEST, true, [2, 0, 0, 0, 0, 7]);
    assert_eq!(says(&mut lab, GUEST, &data), SPOOFED);
}

/// It is silent, or asks for an address, as one does that was started anew.
#[test]
fn a_guest_that_says_no_address_gets_its_own() {
    for asks in [false, true] {
        let mut lab = two_guests();
        lab.send(&dhcp(REQUEST, 9, Some([10, 0, 2, 40])));
        connect(&mut lab);
        rings(&mut lab, GUEST, false, MAC);
        rings(&mut lab, OTHER, true, if asks { [2, 0, 0, 0, 0, 8] } else { MAC });
        assert_eq!(lab.nat.flows_of(OTHER), usize::from(!asks));
        if asks {
            says(&mut lab, OTHER, &dhcp(1, 9, None));
            assert_eq!(lab.nat.flows_of(OTHER), 1);
        }
        let state = lab.nat.guest_state(OTHER, lab.now);
        assert_eq!(state[0].lease.map(|lease| lease.address), Some([10, 0, 2, 40].into()));
    }
}

#[test]
fn forwards_and_names_lead_to_a_guest_that_has_moved_until_another_one_runs_there() {
    let third = Guest(5);
    let mut lab = two_guests();
    lab.nat.add_guest(third, "vm2");
    [OTHER, third].into_iter().for_each(|guest| rings(&mut lab, guest, false, [2; 6]));
    lab.send(&dhcp(REQUEST, 9, Some([10, 0, 2, 40])));
    let mut goes = |from, to| {
        rings(&mut lab, from, false, MAC);
        rings(&mut lab, to, true, MAC);
        [GUEST, OTHER, third].map(|guest| lab.nat.whereabouts(guest).0)
    };
    assert_eq!(goes(GUEST, OTHER), [4, 4, 5]);
    assert_eq!(goes(OTHER, third), [5, 4, 5], "its first port counts");
    assert_eq!(goes(third, GUEST), [3, 4, 5]);
    assert_eq!(goes(GUEST, third), [5, 4, 5]);
    let another = [2, 0, 0, 0, 0, 7];
    rings(&mut lab, GUEST, true, another);
    assert_eq!(lab.nat.whereabouts(GUEST), GUEST);
    rings(&mut lab, GUEST, false, another);
    assert_eq!(lab.nat.whereabouts(GUEST), GUEST);
    rings(&mut lab, GUEST, true, another);
    says(&mut lab, GUEST, &dhcp(REQUEST, 7, None));
    rings(&mut lab, GUEST, false, another);
    rings(&mut lab, OTHER, true, another);
    assert_eq!(lab.nat.whereabouts(GUEST), OTHER);
    note(&mut lab, OTHER, Rings::End);
    lab.now = lab.now.plus(2_000_000_000);
    lab.step();
    assert_eq!(lab.nat.whereabouts(GUEST), GUEST, "its guest is gone");
}

/// All that a router knows of one address: behind which port it is, and of which station.
type Owners = BTreeMap<IpAddr, (Guest, MacAddress)>;

fn owners(lab: &Lab) -> Owners {
    let mut owners = Owners::new();
    for note in lab.nat.notes(lab.now) {
        // Leases come first.
        let owner = *owners.entry(note.address).or_insert((note.guest, note.mac));
        assert!(owner.0 == note.guest || !note.is_leased, "{} is of two guests", note.address);
    }
    owners
}

struct Simulation {
    lab: Lab,
    running: BTreeSet<Guest>,
    moved: u32,
    refused: u32,
}

const PORTS: u64 = 4;
const STATIONS: u64 = 3;

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut lab = Lab::scripted();
        lab.random = Random(seed);
        for port in 1..PORTS {
            let guest = Guest(3 + u16::try_from(port).unwrap());
            lab.nat.add_guest(guest, &format!("vm{port}"));
        }
        let mut simulation = Self { lab, running: BTreeSet::new(), moved: 0, refused: 0 };
        (0..PORTS).for_each(|port| simulation.stops(port));
        simulation
    }

    fn stops(&mut self, port: u64) {
        let guest = Guest(3 + u16::try_from(port).unwrap());
        self.running.remove(&guest);
        rings(&mut self.lab, guest, false, MAC);
    }

    /// One thing happens, of which one port and one station are the reason.
    fn step(&mut self) {
        let [port, station, address, kind] =
            [PORTS, STATIONS, STATIONS, 10].map(|most| self.lab.random.below(most));
        let guest = Guest(3 + u16::try_from(port).unwrap());
        let [station, address] = [station, address].map(|it| u8::try_from(it).unwrap());
        let mac = [2, 0, 0, 0, 0, station];
        self.lab.now = self.lab.now.plus(1 + self.lab.random.below(1_000_000_000));
        let before = owners(&self.lab);
        if kind < 2 && self.running.contains(&guest) {
            self.stops(port);
        } else if kind < 5 {
            self.running.insert(guest);
            rings(&mut self.lab, guest, true, mac);
        } else if self.running.contains(&guest) {
            let at = [10, 0, 2, 50 + address];
            let mut frame = match kind {
                5 => dhcp(REQUEST, u16::from(station), None),
                6 => packet6(REMOTE_6, 17, &udp(7, 7, b"x")),
                _ => packet(REMOTE, 17, &udp(7, 7, b"x")),
            };
            frame[6..12].copy_from_slice(&mac);
            match kind {
                5 => {}
                6 => frame[36..38].copy_from_slice(&[1, address]),
                _ => frame[26..30].copy_from_slice(&at),
            }
            let verdict = says(&mut self.lab, guest, &frame);
            if kind > 5 {
                let mut six = lab::guest6().octets();
                six[14..16].copy_from_slice(&[1, address]);
                let address = if kind == 6 { IpAddr::from(six) } else { IpAddr::from(at) };
                self.judge(before.get(&address), (guest, MacAddress(mac)), verdict);
            }
        }
        self.check(&before, (guest, MacAddress(mac)));
    }

    /// A station may use what it has here, what no guest has, and what it had where nothing runs.
    fn judge(
        &mut self,
        owner: Option<&(Guest, MacAddress)>,
        who: (Guest, MacAddress),
        it: Verdict,
    ) {
        let may = owner.is_none_or(|(guest, mac)| {
            *guest == who.0 || (!self.running.contains(guest) && *mac == who.1)
        });
        assert_eq!(it, if may { Verdict::Done } else { SPOOFED }, "{owner:?} {who:?}");
        self.refused += u32::from(!may);
    }

    /// No address has left a port that runs, or gone to another station; flows are where their
    /// addresses are.
    fn check(&mut self, before: &Owners, who: (Guest, MacAddress)) {
        let after = owners(&self.lab);
        for (address, was) in before {
            let Some(is) = after.get(address) else {
                assert_eq!(*was, who, "{address}: it has another lease now");
                continue;
            };
            if is.0 != was.0 {
                assert!(!self.running.contains(&was.0), "{address} of {was:?} is {is:?}'s");
                assert_eq!((was.1, *is), (who.1, who), "{address}");
                self.moved += 1;
            }
        }
        for port in 0..PORTS {
            let guest = Guest(3 + u16::try_from(port).unwrap());
            for flow in self.lab.nat.flows(guest, self.lab.now) {
                assert_eq!(after[&flow.key.from.ip()].0, guest, "{flow:?}");
            }
        }
    }
}

#[test]
fn no_address_is_ever_of_two_ports_that_run() {
    let (mut moved, mut refused) = (0, 0);
    for seed in 0..MOVES.announced() / 100 {
        let mut simulation = Simulation::new(seed);
        (0..100).for_each(|_| simulation.step());
        (moved, refused) = (moved + simulation.moved, refused + simulation.refused);
    }
    println!("{moved} addresses moved, {refused} packets were refused");
    assert!(moved > 50 && refused > 50, "{moved} {refused}");
}

/// A flow that ends later is the new port's.
#[test]
fn a_flow_that_has_moved_ends_as_any_other() {
    let mut lab = two_guests();
    let next = connect(&mut lab);
    rings(&mut lab, GUEST, false, MAC);
    rings(&mut lab, OTHER, true, MAC);
    assert_eq!(says(&mut lab, OTHER, &segment(1001, next, ACK | FIN, &[], &[])), Verdict::Done);
    assert!(lab.host.one().shutdown);
    let mut actions = Actions::new();
    assert!(!lab.nat.remove_guest(GUEST, &mut actions), "the old port has none");
    assert!(lab.nat.end_a_flow(OTHER, &mut actions));
    assert!(!lab.nat.end_a_flow(OTHER, &mut actions));
}

/// A guest that migrates from one port of a ringway to another comes with what it has here.
#[test]
fn what_a_guest_brings_may_be_what_it_has_left_here() {
    let mut lab = two_guests();
    rings(&mut lab, OTHER, false, MAC);
    lab.send(&dhcp(REQUEST, 9, Some([10, 0, 2, 15])));
    connect(&mut lab);
    let state = lab.nat.guest_state(GUEST, lab.now);
    let why = lab.nat.check_guest(OTHER, &state, lab.now).expect_err("its old port runs");
    assert_eq!(why.to_string(), "10.0.2.15 is another guest's: vm0");
    rings(&mut lab, GUEST, false, MAC);
    assert_eq!(lab.nat.check_guest(OTHER, &state, lab.now), Ok(()));
    assert_eq!(lab.nat.flows_of(GUEST), 1, "it was only asked");
    let mut actions = Actions::new();
    assert_eq!(lab.nat.accept_guest(OTHER, &state, lab.now, &mut actions), Ok(()));
    assert_eq!((lab.nat.flows_of(GUEST), lab.nat.flows_of(OTHER)), (0, 1));
    let here = lab.nat.guest_state(OTHER, lab.now);
    assert_eq!((here[0].lease, &here[0].addresses), (state[0].lease, &state[0].addresses));
    assert_eq!(lab.nat.guest_state(GUEST, lab.now), []);
}

/// Until it is sure that the guest does not come back, and is not heard at another port.
#[test]
fn flows_are_reset_outside_when_their_guest_is_gone() {
    for what in ["back", "elsewhere", "gone"] {
        let mut lab = two_guests();
        connect(&mut lab);
        assert!(says(&mut lab, GUEST, &packet6(REMOTE_6, 17, &udp(1, 2, b"x"))) == Verdict::Done);
        rings(&mut lab, GUEST, false, MAC);
        lab.now = lab.now.plus(20_000_000_000);
        lab.step();
        note(&mut lab, GUEST, Rings::End);
        lab.now = lab.now.plus(1_990_000_000);
        lab.step();
        assert_eq!(lab.nat.flows_of(GUEST), 2);
        match what {
            "back" => rings(&mut lab, GUEST, true, MAC),
            "elsewhere" => rings(&mut lab, OTHER, true, MAC),
            _ => {}
        }
        lab.now = lab.now.plus(10_000_000);
        lab.step();
        let left = [GUEST, OTHER].map(|guest| lab.nat.flows_of(guest));
        let golden = if what == "back" { [2, 0] } else { [0, 2 * usize::from(what != "gone")] };
        assert_eq!(left, golden, "{what}");
        let closed = lab.host.fakes.values().filter(|fake| fake.closed == Some(Close::Reset));
        assert_eq!(closed.count(), 2 * usize::from(what == "gone"), "{what}");
        assert!(lab.nat.deadline().is_none_or(|at| at > lab.now));
    }
}

/// Segments of connections that the router does not know, and how many it answers with a reset.
fn resets(lab: &mut Lab, ports: std::ops::Range<u16>) -> usize {
    let mut resets = 0;
    for port in ports {
        let tcp = lab::packets::tcp((port, 80), (7, 7), ACK, &[&[], &[]]);
        says(lab, GUEST, &packet(REMOTE, 6, &tcp));
        if port % 16 == 0 {
            resets += lab.frames_for(GUEST).len();
        }
    }
    loop {
        match lab.frames_for(GUEST).len() {
            0 => return resets,
            more => resets += more,
        }
    }
}

/// It had a thousand connections elsewhere, all of which say something at once.
#[test]
fn the_old_connections_of_a_guest_that_has_just_come_are_reset_at_once() {
    let mut lab = two_guests();
    assert_eq!(resets(&mut lab, 10_000..11_000), 200, "a guest that has been here");
    rings(&mut lab, GUEST, false, MAC);
    rings(&mut lab, GUEST, true, MAC);
    lab.now = lab.now.plus(9_000_000_000);
    assert_eq!(resets(&mut lab, 10_000..11_000), 1000);
    assert_eq!(resets(&mut lab, 10_000..12_000), 1000 + 200, "as many as may be");
    rings(&mut lab, GUEST, false, MAC);
    rings(&mut lab, GUEST, true, MAC);
    lab.now = lab.now.plus(10_000_000_000);
    assert_eq!(resets(&mut lab, 10_000..11_000), 200, "only at first");
}
