//! controlq: every command is answered, because a guest that gets no answer waits for ever.

use crate::from_guest::count_of;
use crate::ring::GuestRing;
use ringway_net::{Ack, Answer, CONTROL_LEN_MAX, ControlState, Negotiated, answer, copy_command};
use ringway_virtq::{Areas, Arm, Broken, DeviceQueue, Elements, Regions, Why};

/// Commands answered in one visit; one of many elements counts for several. Arming kicks afterwards
/// says whether there are more.
const COMMANDS_MAX: u32 = 16;

/// The device side of the controlq.
#[derive(Debug)]
pub struct ControlQueue<Q> {
    ring: GuestRing<Q>,
    negotiated: Negotiated,
    elements: Elements,
    refused: u64,
}

impl<Q: DeviceQueue> ControlQueue<Q> {
    /// Wraps a started queue.
    pub fn new(queue: Q, regions: Regions, negotiated: Negotiated) -> Self {
        Self {
            ring: GuestRing::new(queue, regions),
            negotiated,
            elements: Elements::new(),
            refused: 0,
        }
    }

    /// Answers waiting commands, at most [`COMMANDS_MAX`]; `true`: the guest wants a call. `note`
    /// gets the new state before the answers are published.
    pub fn visit(&mut self, state: &mut ControlState, note: impl FnOnce(&ControlState)) -> bool {
        if self.ring.broken.is_some() {
            return false;
        }
        let mut answered = 0;
        while answered < COMMANDS_MAX {
            match self.answer_next(state) {
                Ok(true) => answered += self.count(),
                Ok(false) => break,
                Err(why) => {
                    self.ring.broken = Some(why);
                    break;
                }
            }
        }
        if answered == 0 {
            return false;
        }
        note(state);
        self.ring.queue.publish();
        self.ring.queue.must_call()
    }

    /// See [`DeviceQueue::driver_event`]; `None` if the ring is not in the guest's memory.
    pub fn driver_event(&self) -> Option<u32> {
        self.ring.driver_event()
    }

    /// Tells the guest when to kick; `true`: commands are already there, look again.
    pub fn arm_kicks(&mut self, arm: Arm) -> bool {
        self.ring.arm_kicks(arm)
    }

    /// Why the queue stopped, if the guest broke it.
    pub fn broken(&self) -> Option<Why> {
        self.ring.broken
    }

    /// Commands that were answered with an error.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The ring itself, to ask for its position.
    pub fn queue(&mut self) -> &mut Q {
        &mut self.ring.queue
    }

    /// From now on the ring is at `areas` in `regions`. If it is not in that memory the queue is
    /// broken; a queue that was broken for that reason alone goes on once it is.
    ///
    /// # Errors
    /// [`Broken`]: the areas are not in that memory.
    pub fn rebind(&mut self, areas: &Areas, regions: &Regions) -> Result<(), Broken> {
        self.ring.rebind(areas, regions)
    }

    /// The number of commands that the last answered one counts for.
    fn count(&self) -> u32 {
        count_of(self.elements.readable()) + count_of(self.elements.writable()) - 1
    }

    fn answer_next(&mut self, state: &mut ControlState) -> Result<bool, Why> {
        let mut next = self.ring.queue.cursor();
        let found = self.ring.queue.peek(&mut next, &self.ring.regions, &mut self.elements);
        let Some(head) = found.map_err(|broken| broken.0)? else { return Ok(false) };
        if self.elements.writable().is_empty() {
            return Err(Why::WrongDirection);
        }
        let mut command = [0; CONTROL_LEN_MAX];
        let mut answer = match self.copy_command(&mut command) {
            Some(len) => answer(&command[..len], state, &self.negotiated),
            None => Answer { result: None, ack: Ack::Err },
        };
        let room: usize = self.elements.writable().iter().map(|piece| piece.len()).sum();
        if room <= answer.result.map_or(0, |result| result.len()) {
            answer = Answer { result: None, ack: Ack::Err };
        }
        self.refused += u64::from(answer.ack == Ack::Err);
        let written = self.write_answer(answer);
        self.ring.queue.pop(head);
        self.ring.queue.add_used(head, written);
        Ok(true)
    }

    /// Writes the result, if there is one, and the acknowledgement behind it; how many bytes.
    fn write_answer(&self, Answer { result, ack }: Answer) -> u32 {
        let bytes = result.iter().flatten().copied().chain([ack.raw()]);
        let pieces = self.elements.writable().iter();
        let places = pieces.flat_map(|piece| (0..piece.len()).map(move |at| (piece, at)));
        let mut written = 0;
        for ((piece, at), byte) in places.zip(bytes) {
            piece.write(at, &[byte]);
            written += 1;
        }
        written
    }

    /// Copies what was read of a command; `None` when it is longer than any we know.
    fn copy_command(&self, into: &mut [u8; CONTROL_LEN_MAX]) -> Option<usize> {
        let len = self.elements.readable().iter().map(|piece| piece.len()).sum();
        copy_command(len, |at, bytes| self.read(at, bytes), into)
    }

    /// Copies readable bytes from `skip` on.
    fn read(&self, mut skip: usize, mut into: &mut [u8]) {
        for piece in self.elements.readable() {
            let from = skip.min(piece.len());
            let (here, behind) = into.split_at_mut(into.len().min(piece.len() - from));
            piece.read(from, here);
            (into, skip) = (behind, skip - from);
        }
    }
}
