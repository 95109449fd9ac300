//! controlq: every command is answered, because a guest that gets no answer waits for ever.

use ringway_net::{Ack, CONTROL_LEN_MAX, ControlState, Negotiated, answer};
use ringway_virtq::{Arm, Broken, DeviceQueue, Elements, Regions, Why};

/// The device side of the controlq.
#[derive(Debug)]
pub struct ControlQueue<Q> {
    queue: Q,
    regions: Regions,
    negotiated: Negotiated,
    elements: Elements,
    broken: Option<Why>,
}

impl<Q: DeviceQueue> ControlQueue<Q> {
    /// Wraps a started queue.
    pub fn new(queue: Q, regions: Regions, negotiated: Negotiated) -> Self {
        Self { queue, regions, negotiated, elements: Elements::new(), broken: None }
    }

    /// Answers all waiting commands, at most one ring's worth; `true`: the guest wants a call.
    pub fn visit(&mut self, state: &mut ControlState) -> bool {
        if self.broken.is_some() {
            return false;
        }
        let mut answered = false;
        for _ in 0..self.queue.size() {
            match self.answer_next(state) {
                Ok(true) => answered = true,
                Ok(false) => break,
                Err(why) => {
                    self.broken = Some(why);
                    break;
                }
            }
        }
        if !answered {
            return false;
        }
        self.queue.publish();
        self.queue.must_call()
    }

    /// Tells the guest when to kick; `true`: commands are already there, look again.
    pub fn arm_kicks(&mut self, arm: Arm) -> bool {
        self.broken.is_none() && self.queue.arm_kicks(arm)
    }

    /// Why the queue stopped, if the guest broke it.
    pub fn broken(&self) -> Option<Why> {
        self.broken
    }

    /// The ring itself, to ask for its position or to rebind it.
    pub fn queue(&mut self) -> &mut Q {
        &mut self.queue
    }

    /// Uses another memory table from the next command on.
    pub fn set_regions(&mut self, regions: Regions) {
        self.regions = regions;
    }

    /// The ring was looked for in other memory: it stops if it is not there, and goes on if that
    /// was all that was wrong.
    pub fn rebound(&mut self, result: Result<(), Broken>) {
        match result {
            Err(Broken(why)) => self.broken = Some(why),
            Ok(()) if self.broken == Some(Why::BadArea) => self.broken = None,
            Ok(()) => {}
        }
    }

    fn answer_next(&mut self, state: &mut ControlState) -> Result<bool, Why> {
        let mut next = self.queue.cursor();
        let found = self.queue.peek(&mut next, &self.regions, &mut self.elements);
        let Some(head) = found.map_err(|broken| broken.0)? else { return Ok(false) };
        let Some(&ack_at) = self.elements.writable().first() else {
            return Err(Why::WrongDirection);
        };
        let mut command = [0; CONTROL_LEN_MAX];
        let ack = match self.copy_command(&mut command) {
            Some(len) => answer(&command[..len], state, &self.negotiated),
            None => Ack::Err,
        };
        ack_at.write(0, &[ack.raw()]);
        self.queue.pop_to(next);
        self.queue.add_used(head, 1);
        Ok(true)
    }

    /// Copies the readable bytes out; `None` when the command is longer than any we know.
    fn copy_command(&self, into: &mut [u8; CONTROL_LEN_MAX]) -> Option<usize> {
        let mut len = 0;
        for piece in self.elements.readable() {
            let room = into.get_mut(len..len + piece.len())?;
            piece.read(0, room);
            len += piece.len();
        }
        Some(len)
    }
}
