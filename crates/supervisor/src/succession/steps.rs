//! From an event to what is to be done.

use std::mem;
use std::time::{Duration, Instant};

use super::{
    CHECKED_WITHIN, Effect, Event, GOES_ON_WITHIN, Handover, HandoverStep, PlaneNumber, Program,
    READY_WITHIN, Replacement, START_AGAIN, Stage, State, Succession,
};

/// An event's time, and what follows from it.
struct Turn<'a, C> {
    now: Instant,
    effects: &'a mut Vec<Effect<C>>,
}

impl<C> Turn<'_, C> {
    fn push(&mut self, effect: Effect<C>) {
        self.effects.push(effect);
    }
}

/// Said to the client who asked.
const OLD_ENDED: &str = "the old one ended meanwhile: try again";
const OVERTAKEN: &str = "a guest changed its rings meanwhile: try again";

impl<C: Copy> Succession<C> {
    /// Takes an event.
    pub fn on(&mut self, event: Event<C>, now: Instant, effects: &mut Vec<Effect<C>>) {
        let could_read = self.may_read();
        let mut turn = Turn { now, effects };
        self.take(event, &mut turn);
        if self.may_read() != could_read {
            turn.push(Effect::Hold(could_read));
        }
    }

    fn take(&mut self, event: Event<C>, turn: &mut Turn<'_, C>) {
        match event {
            Event::Begin => self.start(turn),
            Event::HandOver { by } => self.hand_over(by, turn),
            Event::NotStarted { plane, why } => self.not_started(plane, why, turn),
            Event::Hello { plane, needs_bare } => self.hello(plane, needs_bare, turn),
            Event::Ready { plane } => self.ready(plane, turn),
            Event::Running { plane } => self.running(plane, turn),
            Event::Positions { plane, bytes } => self.positions(plane, bytes, turn),
            Event::Refuses { plane, why } => self.refuses(plane, why, turn),
            Event::Lost { plane, is_condemned } => self.lost(plane, is_condemned, turn),
            Event::WorkersEnded { plane, may_start } => {
                self.workers_ended(plane, may_start, turn);
            }
            Event::Ended { plane, how, start_at } => {
                self.ended(plane, &how, start_at, turn);
            }
            Event::AtRest => self.at_rest(turn),
            Event::Overtaken => self.overtaken(turn),
            Event::Checked(Ok(())) => {
                if let Some(replacement) = &mut self.replacement {
                    (replacement.is_checked, replacement.since) = (true, turn.now);
                }
            }
            Event::Checked(Err(why)) | Event::NotReplaced { why } => self.stays(Some(why), turn),
            Event::Due => self.due(turn),
        }
    }

    /// A number that was not used before.
    fn number(&mut self) -> PlaneNumber {
        self.last += 1;
        self.last
    }

    fn start(&mut self, turn: &mut Turn<'_, C>) {
        let plane = self.number();
        self.state = State::Coming { plane, stage: Stage::Starting, since: turn.now };
        turn.push(Effect::Start { plane, program: Program::Own, is_bare: false });
    }

    fn hand_over(&mut self, by: Option<C>, turn: &mut Turn<'_, C>) {
        let State::Serving { plane: from } = self.state else { return };
        let to = self.number();
        self.state =
            State::Handover(Handover { from, to, by, begun: turn.now, step: HandoverStep::Start });
        turn.push(Effect::Start { plane: to, program: program_of(by), is_bare: false });
    }

    fn not_started(&mut self, number: PlaneNumber, why: String, turn: &mut Turn<'_, C>) {
        match &self.state {
            State::Coming { plane, .. } if *plane == number => {
                self.state = State::Down { start_at: Some(turn.now + START_AGAIN) };
            }
            State::Handover(it) if it.to == number => self.fails(why, turn),
            _ => {}
        }
        // There is no process that could end.
        self.ending.retain(|ending| *ending != number);
    }

    fn hello(&mut self, number: PlaneNumber, needs_bare: bool, turn: &mut Turn<'_, C>) {
        let program = match &mut self.state {
            State::Coming { plane, stage, since }
                if *plane == number && *stage == Stage::Starting =>
            {
                if !needs_bare {
                    (*stage, *since) = (Stage::Loading, turn.now);
                    return turn.push(Effect::Load { plane: number });
                }
                Program::Own
            }
            State::Handover(it) if it.to == number && it.step == HandoverStep::Start => {
                if !needs_bare {
                    it.step = HandoverStep::Rest;
                    return;
                }
                program_of(it.by)
            }
            _ => return self.out_of_turn(number, turn),
        };
        self.start_bare(number, program, turn);
    }

    /// One that cannot be told what it was started with would keep it open, whatever guests do: its
    /// program is started once more, with nothing.
    fn start_bare(&mut self, instead_of: PlaneNumber, program: Program, turn: &mut Turn<'_, C>) {
        self.kill(instead_of, turn);
        let number = self.number();
        match &mut self.state {
            State::Handover(it) => it.to = number,
            state => {
                *state = State::Coming { plane: number, stage: Stage::Starting, since: turn.now };
            }
        }
        turn.push(Effect::Start { plane: number, program, is_bare: true });
    }

    fn at_rest(&mut self, turn: &mut Turn<'_, C>) {
        if let State::Handover(it) = &mut self.state
            && it.step == HandoverStep::Rest
        {
            it.step = HandoverStep::Load;
            turn.push(Effect::Load { plane: it.to });
        }
    }

    fn ready(&mut self, number: PlaneNumber, turn: &mut Turn<'_, C>) {
        let is_alone = self.others_are_gone();
        match &mut self.state {
            State::Coming { plane, stage, since }
                if *plane == number && *stage == Stage::Loading =>
            {
                (*stage, *since) = (Stage::Going, turn.now);
                turn.push(Effect::Go { plane: number, positions: Vec::new(), is_alone });
            }
            State::Handover(it) if it.to == number && it.step == HandoverStep::Load => {
                it.step = HandoverStep::Stop { since: turn.now };
                turn.push(Effect::Quiesce { plane: it.from });
            }
            _ => self.out_of_turn(number, turn),
        }
    }

    fn positions(&mut self, number: PlaneNumber, bytes: Vec<u8>, turn: &mut Turn<'_, C>) {
        match &mut self.state {
            State::Handover(it) if it.from == number => {
                let HandoverStep::Stop { since } = it.step else {
                    return self.out_of_turn(number, turn);
                };
                it.step = HandoverStep::Go { since };
                // The old one has said that it uses nothing any more.
                let is_alone = self.ending.is_empty();
                turn.push(Effect::Go { plane: it.to, positions: bytes, is_alone });
            }
            _ => self.out_of_turn(number, turn),
        }
    }

    fn running(&mut self, number: PlaneNumber, turn: &mut Turn<'_, C>) {
        match &self.state {
            State::Coming { plane, stage: Stage::Going, .. } if *plane == number => {
                self.state = State::Serving { plane: number };
                turn.push(Effect::Serves { plane: number });
            }
            State::Handover(it) if it.to == number => {
                let (HandoverStep::Go { since }, from, by) = (it.step, it.from, it.by) else {
                    return self.out_of_turn(number, turn);
                };
                self.kill(from, turn);
                turn.push(Effect::Settle { plane: from });
                let stall = turn.now - since;
                turn.push(Effect::Succeeds { plane: number, by, stall });
                self.state = State::Serving { plane: number };
                if let Some(by) = by {
                    turn.push(Effect::SwapPrograms);
                    self.state = State::Proving { plane: number, by, since: turn.now, stall };
                }
            }
            _ => self.out_of_turn(number, turn),
        }
    }

    /// It says a step that is not its turn's: each would begin its time limit anew.
    fn out_of_turn(&mut self, number: PlaneNumber, turn: &mut Turn<'_, C>) {
        self.lost(number, true, turn);
    }

    fn refuses(&mut self, number: PlaneNumber, why: String, turn: &mut Turn<'_, C>) {
        match self.next() == Some(number) {
            true => self.fails(why, turn),
            false => self.lost(number, true, turn),
        }
    }

    fn lost(&mut self, number: PlaneNumber, is_condemned: bool, turn: &mut Turn<'_, C>) {
        if self.stage(number).is_none_or(|stage| stage == Stage::Ending) {
            return;
        }
        turn.push(Effect::Kill { plane: number, is_condemned });
        // The one that is to follow fails when it has ended: it is known only then how.
        if self.serving() == Some(number) {
            let before = mem::replace(&mut self.state, State::Dying { plane: number });
            self.give_up(before, turn);
        }
    }

    /// The one that served has ended, or will.
    fn give_up(&mut self, before: State<C>, turn: &mut Turn<'_, C>) {
        match before {
            State::Handover(it) => {
                self.kill(it.to, turn);
                if it.by.is_some() {
                    turn.push(Effect::Fails { by: it.by, why: OLD_ENDED.to_owned() });
                }
            }
            State::Proving { by, .. } => {
                turn.push(Effect::SwapPrograms);
                turn.push(Effect::Fails { by: Some(by), why: "it has ended".to_owned() });
            }
            _ => {}
        }
    }

    fn workers_ended(&mut self, number: PlaneNumber, may_start: bool, turn: &mut Turn<'_, C>) {
        match &self.state {
            State::Serving { plane } if *plane == number && may_start => {
                self.kill(number, turn);
                turn.push(Effect::NoteDeath { plane: number });
                self.start(turn);
                turn.push(Effect::Settle { plane: number });
            }
            _ => self.lost(number, false, turn),
        }
    }

    fn ended(&mut self, number: PlaneNumber, how: &str, start_at: Instant, turn: &mut Turn<'_, C>) {
        if let Some(at) = self.ending.iter().position(|ending| *ending == number) {
            self.ending.swap_remove(at);
            return;
        }
        if self.next() == Some(number) {
            self.fails(format!("it ended: {how}"), turn);
            return self.ending.retain(|ending| *ending != number);
        }
        if self.serving() == Some(number) {
            let down = State::Down { start_at: Some(start_at) };
            let before = mem::replace(&mut self.state, down);
            self.give_up(before, turn);
        }
    }

    fn overtaken(&mut self, turn: &mut Turn<'_, C>) {
        if matches!(&self.state, State::Handover(it) if it.step == HandoverStep::Load) {
            self.fails(OVERTAKEN.to_owned(), turn);
        }
    }

    /// The next one cannot follow: the old one goes on, or, if it has stopped, its program is
    /// started again, and goes on where the rings themselves show.
    fn fails(&mut self, why: String, turn: &mut Turn<'_, C>) {
        let State::Handover(Handover { from, to, by, step, .. }) = self.state else { return };
        self.kill(to, turn);
        match step {
            HandoverStep::Start | HandoverStep::Rest | HandoverStep::Load => {
                self.state = State::Serving { plane: from }
            }
            HandoverStep::Stop { .. } | HandoverStep::Go { .. } => {
                self.kill(from, turn);
                self.start(turn);
                turn.push(Effect::Settle { plane: from });
            }
        }
        turn.push(Effect::Fails { by, why });
    }

    fn kill(&mut self, plane: PlaneNumber, turn: &mut Turn<'_, C>) {
        turn.push(Effect::Kill { plane, is_condemned: false });
        self.ending.push(plane);
    }

    fn stays(&mut self, why: Option<String>, turn: &mut Turn<'_, C>) {
        if let Some(Replacement { by, .. }) = self.replacement.take() {
            turn.push(Effect::Stays { by, why });
        }
    }

    fn due(&mut self, turn: &mut Turn<'_, C>) {
        self.replacement_is_due(turn);
        if self.wake_at().is_none_or(|at| at > turn.now) {
            return;
        }
        match &self.state {
            State::Down { start_at: Some(at) } if *at <= turn.now => self.start(turn),
            State::Coming { plane, .. } => {
                let plane = *plane;
                self.lost(plane, true, turn);
            }
            State::Handover(it) => {
                let why = match it.step {
                    HandoverStep::Stop { .. } | HandoverStep::Go { .. } => {
                        format!("it did not go on within {GOES_ON_WITHIN:?}")
                    }
                    _ => format!("it was not ready within {READY_WITHIN:?}"),
                };
                self.fails(why, turn);
            }
            State::Proving { plane, by, stall, .. } => {
                let (plane, by, stall) = (*plane, *by, *stall);
                self.proved(plane, by, stall, turn);
            }
            _ => {}
        }
    }

    fn proved(&mut self, plane: PlaneNumber, by: C, stall: Duration, turn: &mut Turn<'_, C>) {
        self.state = State::Serving { plane };
        self.replacement = Some(Replacement { by, stall, since: turn.now, is_checked: false });
        turn.push(Effect::Check { by, stall });
    }

    fn replacement_is_due(&mut self, turn: &mut Turn<'_, C>) {
        let Some(it) = self.replacement.take_if(|it| it.ends_at() <= turn.now) else { return };
        let by = it.by;
        if it.is_checked {
            return turn.push(Effect::Stays { by, why: None });
        }
        turn.push(Effect::StopCheck);
        let why = Some(format!("it did not say within {CHECKED_WITHIN:?} whether it can"));
        turn.push(Effect::Stays { by, why });
    }
}

fn program_of<C>(by: Option<C>) -> Program {
    by.map_or(Program::Own, |_| Program::Other)
}
