//! One port's front-ends, in every order of events: each state that is reached within some steps is
//! visited once, and from each the port comes to serve the next one, or ends.

mod port_of_front_ends;
mod search;

use std::time::{Duration, Instant};

use port_of_front_ends::World;
use ringway_supervisor::front_ends::{Event, HOLD_OFF, RETRY_AFTER, SocketMode};
use ringway_supervisor::wire::Offence;
use search::search;

/// Steps from the start that are tried in every order.
const STEPS: usize = 11;
/// Front-ends that ever come.
const COMERS: u32 = 3;
const OFFENCES: u32 = 2;
/// A moment in which nothing happens.
const MOMENT: Duration = Duration::from_millis(60);
const MOMENTS: u32 = 2;
/// Steps after which everything must have come to its end by itself.
const SETTLES_WITHIN: usize = 40;

/// Something that may happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    /// A front-end connects to the socket, or is there to be connected to.
    Come,
    Accept,
    NotAccepted,
    /// The one that waits next has gone.
    EndNext,
    /// It is accepted, and cannot be linked.
    AcceptInVain,
    /// Whether the port's thread and the data plane have something to close.
    Leave(Option<Offence>, bool, bool),
    LateOffence,
    Ask,
    Answer(bool, bool),
    ThreadHasClosed,
    PlaneHasClosed,
    /// The data plane says so of one that has gone long ago.
    PlaneCloses,
    Hold(bool),
    Quarantine,
    Release,
    Remove,
    Pass,
    Wait,
    /// The same, while none can be refused.
    WaitBusy,
}

impl search::World for World {
    type Act = Act;

    fn acts(&self) -> Vec<Act> {
        if self.is_free {
            return vec![];
        }
        let mut acts = vec![Act::Wait, Act::WaitBusy, Act::Hold(!self.is_held), Act::Quarantine];
        let may_come = self.mode != SocketMode::Given && self.comers < COMERS;
        acts.extend(may_come.then_some(Act::Come));
        if self.is_listening && self.queue > 0 {
            acts.extend([Act::Accept, Act::NotAccepted, Act::AcceptInVain]);
        }
        let offends = self.offences < OFFENCES;
        let waits = self.waiting.front().is_some_and(|next| !next.has_ended);
        acts.extend(waits.then_some(Act::EndNext));
        if self.is_linked {
            let offence = if self.offences == 0 { Offence::Blocked } else { Offence::Stalled };
            let offence = offends.then_some(offence);
            for (here, plane) in [(false, false), (true, false), (false, true), (true, true)] {
                acts.push(Act::Leave(None, here, plane));
                acts.extend(offence.map(|it| Act::Leave(Some(it), here, plane)));
                acts.extend((!self.has_room).then_some(Act::Answer(here, plane)));
            }
        }
        acts.extend((offends && self.gone > 0).then_some(Act::LateOffence));
        acts.extend(self.is_reading.then_some(Act::Ask));
        acts.extend(self.closes_here.then_some(Act::ThreadHasClosed));
        let late = if self.plane_closes { Act::PlaneHasClosed } else { Act::PlaneCloses };
        acts.extend((self.plane_closes || self.gone > 0).then_some(late));
        acts.extend(self.is_quarantined.then_some(Act::Release));
        acts.extend((!self.is_removed).then_some(Act::Remove));
        let is_early = self.admission.wake_at().is_none_or(|at| at > self.now + MOMENT);
        acts.extend((is_early && self.moments < MOMENTS).then_some(Act::Pass));
        acts
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Come => (self.comers, self.queue) = (self.comers + 1, self.queue + 1),
            Act::Accept => self.accept(),
            Act::NotAccepted => {
                self.quiet_until = Some(self.now + RETRY_AFTER);
                self.happens(Event::NotAccepted { why: "why".to_owned() });
                assert!(self.is_failure_told);
            }
            Act::EndNext => self.waiting[0].has_ended = true,
            Act::AcceptInVain => {
                self.cannot_link = true;
                self.accept();
                self.cannot_link = false;
            }
            Act::Leave(offence, here, plane) => {
                let offence = offence.map(|_| self.offence());
                let event = self.leave(offence, here, plane);
                self.happens(event);
            }
            Act::LateOffence => {
                let offence = self.offence();
                self.happens(Event::Offence { offence, why: "why".to_owned() });
            }
            Act::Ask => {
                self.has_room = false;
                self.happens(Event::Room(false));
            }
            Act::Answer(here, plane) => {
                if plane {
                    self.plane_closes = true;
                    self.happens(Event::PlaneCloses(true));
                }
                self.closes_here |= here;
                self.happens(Event::Closing { is_here: self.closes_here });
                self.has_room = true;
                self.happens(Event::Room(true));
            }
            Act::ThreadHasClosed => self.closes_here = false,
            Act::PlaneHasClosed | Act::PlaneCloses => {
                self.plane_closes = act == Act::PlaneCloses;
                self.happens(Event::PlaneCloses(self.plane_closes));
            }
            Act::Hold(is_held) => {
                self.is_held = is_held;
                self.happens(Event::Hold(is_held));
            }
            Act::Quarantine => {
                self.is_quarantined = true;
                self.happens(Event::Quarantine { why: "why".to_owned() });
            }
            Act::Release => {
                self.is_quarantined = false;
                self.happens(Event::Release);
            }
            Act::Remove => {
                (self.is_removed, self.is_free) = (true, !self.is_linked);
                self.happens(Event::Close);
            }
            Act::Pass => (self.now, self.moments) = (self.now + MOMENT, self.moments + 1),
            Act::Wait => self.wait(),
            Act::WaitBusy => {
                self.cannot_refuse = true;
                self.wait();
                self.cannot_refuse = false;
            }
        }
        self.turn();
    }

    fn settle(mut self) {
        self.closes_here = false;
        if self.plane_closes {
            self.act(Act::PlaneHasClosed);
        }
        self.act(Act::Hold(false));
        self.act(Act::Release);
        for _ in 0..SETTLES_WITHIN {
            if self.is_listening && self.queue > 0 {
                self.act(Act::Accept);
            }
            self.act(Act::Wait);
        }
        let next = self.waiting.front();
        assert!(next.is_none_or(|next| self.is_linked && next.is_told), "none waits in silence");
        assert!(self.waiting.len() < 2, "a third one is refused");
        if next.is_some() {
            self.act(Act::Leave(None, false, false));
            assert!(self.is_linked && self.waiting.is_empty(), "it follows at once");
        }
        if self.is_removed {
            if self.is_linked {
                self.act(Act::Leave(None, false, false));
            }
            return assert!(self.is_free);
        }
        match self.mode {
            SocketMode::Listen => assert!(self.is_listening && self.queue == 0, "it listens"),
            SocketMode::Given => assert!(self.is_linked != (self.gone > 0)),
            SocketMode::Connect | SocketMode::Closed => {
                assert!(self.is_linked || self.queue == 0, "one came")
            }
        }
        if self.is_linked {
            self.act(Act::Answer(false, false));
            assert!(self.is_reading, "it is served");
        }
    }

    fn key(&self) -> String {
        let Self { admission, now, .. } = self;
        let left = |at: Option<Instant>| at.map(|at| at.saturating_duration_since(*now));
        let ago = |at: Option<Instant>| at.map(|at| (*now - at).min(HOLD_OFF));
        let flags = [
            self.is_linked,
            self.has_room,
            self.closes_here,
            self.plane_closes,
            self.is_slow,
            self.is_failure_told,
            self.is_held,
            self.is_quarantined,
            self.is_removed,
        ];
        // It remembers more than can be asked.
        let mut would_do = Vec::new();
        let mut copy = admission.clone();
        copy.on(Event::NotAccepted { why: String::new() }, *now, &mut would_do);
        let offence = Event::Offence { offence: Offence::Stalled, why: String::new() };
        copy.on(offence, *now, &mut would_do);
        format!(
            "{flags:?} {would_do:?} {:?} {:?} {:?} {:?} {:?} {} {} {} {} {}",
            left(admission.wake_at()),
            left(self.quiet_until),
            self.waiting
                .iter()
                .map(|it| (ago(Some(it.since)), it.is_told, it.has_ended))
                .collect::<Vec<_>>(),
            ago(self.closing_since),
            ago(self.connected_at),
            self.gone.min(1),
            self.queue,
            self.comers,
            self.offences,
            self.moments,
        )
    }
}

#[test]
fn a_port_that_listens_serves_one_front_end_at_a_time_and_the_next_one_in_the_end() {
    let states = search(World::new(SocketMode::Listen), STEPS);
    println!("{states} states");
    assert!(states > 10_000, "{states} states");
}

#[test]
fn a_port_that_connects_comes_to_the_next_front_end() {
    let states = search(World::new(SocketMode::Connect), STEPS);
    println!("{states} states");
    assert!(states > 1000, "{states} states");
}

#[test]
fn a_front_end_that_was_given_is_served_once() {
    let states = search(World::new(SocketMode::Given), STEPS);
    println!("{states} states");
    assert!(states > 1000, "{states} states");
}
