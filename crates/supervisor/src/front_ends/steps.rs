//! From an event to what is to be done.

use std::mem;
use std::time::Instant;

use super::{
    Admission, Effect, Event, GRACE, HOLD_OFF, HOLD_OFF_DOUBLED_MAX, LinkedFrontEnd, Newcomer,
    OFFENCE_FORGOTTEN, RETRY_AFTER, SLOW_AFTER, SocketMode,
};
use crate::wire::Offence;

/// An event's time, and what follows from it.
struct Turn<'a> {
    now: Instant,
    effects: &'a mut Vec<Effect>,
}

impl Admission {
    /// Takes an event.
    pub fn on(&mut self, event: Event, now: Instant, effects: &mut Vec<Effect>) {
        let mut turn = Turn { now, effects };
        self.take(event, &mut turn);
        self.settle(&mut turn);
    }

    fn take(&mut self, event: Event, turn: &mut Turn<'_>) {
        match event {
            Event::Connected => self.connected(turn),
            Event::NotAccepted { why } => self.not_accepted(why, turn),
            Event::NotLinked => self.link = None,
            Event::Linked => self.link = Some(LinkedFrontEnd { has_room: true, is_read: false }),
            Event::Gone { link, offence, is_closing_here, is_plane_closing } => {
                self.history.last_link = Some(link);
                self.closing.is_here = is_closing_here;
                self.closing.is_in_plane |= is_plane_closing;
                self.gone(offence, turn);
            }
            Event::Offence { offence, why } => self.hold_off(offence, why, turn),
            Event::Refused => {
                self.refuse_at = None;
                self.history.refused += 1;
            }
            Event::NextHasGone => self.move_up(turn),
            Event::Room(has_room) => self.link.iter_mut().for_each(|it| it.has_room = has_room),
            Event::Closing { is_here } => self.closing(is_here, turn),
            Event::PlaneCloses(is_closing) => self.closing.is_in_plane = is_closing,
            Event::Hold(is_held) => self.is_held = is_held,
            Event::Quarantine { why } => self.quarantine(why, turn),
            Event::Release => {
                if mem::take(&mut self.is_quarantined) {
                    self.history.last_offence = None;
                }
            }
            Event::Close => self.mode = SocketMode::Closed,
            Event::Due => self.due(turn),
        }
    }

    /// Behind each event: a wait begins where something is being closed, the newcomer is linked if
    /// its turn has come, and exactly that is watched which has a use.
    fn settle(&mut self, turn: &mut Turn<'_>) {
        let is_closing = self.closing.is_here || self.closing.is_in_plane;
        if is_closing {
            self.closing.since.get_or_insert(turn.now);
        }
        let is_barred = self.is_quarantined || self.mode == SocketMode::Closed;
        if is_barred && self.next.take().is_some() {
            self.refuse_at = None;
            turn.effects.push(Effect::Drop);
        }
        if self.is_newcomers_turn() {
            self.link(turn);
        }
        let listens = self.wants_front_end();
        if mem::replace(&mut self.is_listening, listens) != listens {
            turn.effects.push(Effect::Listen(listens));
        }
        let may_read = self.may_read();
        let Some(link) = &mut self.link else { return };
        let reads = may_read && link.has_room;
        if mem::replace(&mut link.is_read, reads) != reads {
            turn.effects.push(Effect::Read(reads));
        }
    }

    fn connected(&mut self, turn: &Turn<'_>) {
        match &self.next {
            None => self.next = Some(Newcomer::new(turn.now)),
            Some(_) => self.refuse_at = Some(turn.now + GRACE),
        }
    }

    /// The one that came third is the next one.
    fn move_up(&mut self, turn: &Turn<'_>) {
        self.next = self.refuse_at.take().map(|_| Newcomer::new(turn.now));
    }

    fn link(&mut self, turn: &mut Turn<'_>) {
        self.move_up(turn);
        self.link = Some(LinkedFrontEnd { has_room: true, is_read: false });
        self.is_failure_told = false;
        self.history.last_offence = None;
        turn.effects.push(Effect::Link);
    }

    fn not_accepted(&mut self, why: String, turn: &mut Turn<'_>) {
        self.next_try = Some(turn.now + RETRY_AFTER);
        if !mem::replace(&mut self.is_failure_told, true) {
            turn.effects.push(Effect::CannotAccept { why });
        }
    }

    fn gone(&mut self, offence: Option<(Offence, String)>, turn: &mut Turn<'_>) {
        self.link = None;
        match offence {
            _ if self.mode == SocketMode::Closed => turn.effects.push(Effect::Free),
            Some((offence, why)) => self.hold_off(offence, why, turn),
            None => {}
        }
    }

    /// After an offence the port accepts no front-end, and connects to none, for some time.
    fn hold_off(&mut self, offence: Offence, why: String, turn: &mut Turn<'_>) {
        let (count, last) = self.offences;
        let is_soon = last.is_some_and(|at| turn.now.duration_since(at) < OFFENCE_FORGOTTEN);
        let count = if is_soon { (count + 1).min(HOLD_OFF_DOUBLED_MAX) } else { 0 };
        self.offences = (count, Some(turn.now));
        self.history.last_offence = Some(why.clone());
        let pause = if offence == Offence::Stalled { HOLD_OFF * (1 << count) } else { HOLD_OFF };
        if matches!(self.mode, SocketMode::Listen | SocketMode::Connect) {
            self.next_try = Some(turn.now + pause);
        }
        turn.effects.push(Effect::HoldOff { pause, why });
    }

    fn closing(&mut self, is_here: bool, turn: &mut Turn<'_>) {
        self.closing.is_here = is_here;
        if is_here || self.closing.is_in_plane {
            return self.say_if_slow(turn);
        }
        let since = self.closing.since.take();
        if let Some(since) = since.filter(|_| mem::take(&mut self.closing.is_slow)) {
            turn.effects.push(Effect::IsOver { took: turn.now - since });
        }
    }

    fn say_if_slow(&mut self, turn: &mut Turn<'_>) {
        let is_due = self.closing.since.is_some_and(|since| since + SLOW_AFTER <= turn.now);
        if is_due && !mem::replace(&mut self.closing.is_slow, true) {
            turn.effects.push(Effect::IsSlow);
        }
    }

    fn quarantine(&mut self, why: String, turn: &mut Turn<'_>) {
        self.history.last_offence = Some(why);
        self.is_quarantined = true;
        if self.is_linked() {
            turn.effects.push(Effect::Disconnect);
        }
    }

    fn due(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        let is_due = |at: &mut Instant| *at <= now;
        if self.mode == SocketMode::Listen {
            self.next_try.take_if(is_due);
        } else if self.may_connect() && self.next_try.take_if(is_due).is_some() {
            self.next_try = (self.mode == SocketMode::Connect).then_some(now + RETRY_AFTER);
            turn.effects.push(Effect::Connect);
        }
        if self.is_linked() {
            let next = self.next.as_mut();
            if next.is_some_and(|next| next.say_at.take_if(is_due).is_some()) {
                turn.effects.push(Effect::SayItWaits);
            }
            if self.refuse_at.take_if(is_due).is_some() {
                // If it cannot be refused now.
                self.refuse_at = Some(now + RETRY_AFTER);
                turn.effects.push(Effect::Refuse);
            }
        }
        self.say_if_slow(turn);
    }
}
