//! A data plane as the supervisor has it, and what is sent to it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ringway_supervisor::changes::Change;
use ringway_supervisor::outbox::{Lane, Outbox, Owed, Sending};
use ringway_supervisor::restart::{Busy, PlaneExit, RequestId};
use ringway_supervisor::succession::PlaneNumber;
use ringway_supervisor::watch::{Act, Look, Watch};
use ringway_supervisor::wire::ToData;

use super::ports::Spec;
use super::process::Delivery;
use super::{Machine, Note};

const SEND_AGAIN: Duration = Duration::from_millis(1);
const LOOK_AT_WORKERS: Duration = Duration::from_secs(10);
/// Messages in one batch.
const BATCH_LEN: usize = 5;

#[derive(Debug, Clone)]
pub enum Order {
    Open { port: u16, client: Option<u32> },
    Change { change: Change<Spec>, client: Option<u32> },
    Remove { port: u16, client: Option<u32> },
    Link { port: u16 },
    Unlink { port: u16 },
}

impl Order {
    pub fn unasked(mut self) -> Self {
        match &mut self {
            Self::Open { client, .. }
            | Self::Change { client, .. }
            | Self::Remove { client, .. } => {
                *client = None;
            }
            Self::Link { .. } | Self::Unlink { .. } => {}
        }
        self
    }
}

pub struct Plane {
    pub outbox: Outbox<Vec<Delivery>>,
    pub given: BTreeSet<u32>,
    pub batch: Option<(Vec<Delivery>, Vec<Owed>)>,
    pub watch: Watch,
    pub look_at: Option<Instant>,
    pub is_killed: bool,
    pub is_hung: bool,
    pub is_condemned: bool,
    pub orders: BTreeMap<u32, Order>,
    pub asks: BTreeSet<u32>,
    pub suspects: Option<(Vec<Busy>, Vec<RequestId>)>,
    pub without: BTreeSet<u16>,
    pub renew_at: Option<Instant>,
}

impl Plane {
    pub fn new(given: BTreeSet<u32>) -> Self {
        Self {
            outbox: Outbox::default(),
            given,
            batch: None,
            watch: Watch::default(),
            look_at: None,
            is_killed: false,
            is_hung: false,
            is_condemned: false,
            orders: BTreeMap::new(),
            asks: BTreeSet::new(),
            suspects: None,
            without: BTreeSet::new(),
            renew_at: None,
        }
    }

    pub fn next_flush(&self, now: Instant) -> Option<Instant> {
        (!self.outbox.is_empty()).then(|| now + SEND_AGAIN)
    }

    /// Appends it, to a batch if everything that it needs was given.
    fn appends(&mut self, message: ToData, fds: Vec<u32>) {
        let (lane, owed) = (message.lane(), Vec::from_iter(message.owed()));
        let is_named = fds.iter().all(|fd| self.given.contains(fd));
        if is_named {
            fds.iter().for_each(|fd| _ = self.given.remove(fd));
        }
        let told = Delivery { message, is_named: is_named && !fds.is_empty(), fds };
        match &mut self.batch {
            Some((batch, all_owed)) if is_named => {
                batch.push(told);
                all_owed.extend(owed);
                if batch.len() >= BATCH_LEN {
                    self.sends_batch();
                }
            }
            _ => {
                self.sends_batch();
                self.outbox.push(vec![told], lane, owed);
            }
        }
    }

    fn sends_batch(&mut self) {
        let Some((batch, owed)) = &mut self.batch else { return };
        let (batch, owed) = (std::mem::take(batch), std::mem::take(owed));
        if !batch.is_empty() {
            self.outbox.push(batch, Lane::All, owed);
        }
    }

    pub fn is_filled(&mut self) {
        self.sends_batch();
        self.batch = None;
    }
}

impl Machine {
    /// Sends it, now or when that is possible.
    pub fn tell(&mut self, number: PlaneNumber, message: ToData, fds: Vec<u32>) {
        if let Some(plane) = self.planes.get_mut(&number) {
            plane.appends(message, fds);
        }
        self.flush(number);
    }

    pub fn flush(&mut self, number: PlaneNumber) {
        let Self { planes, processes, kernel, now, .. } = self;
        let Some(plane) = planes.get_mut(&number) else { return };
        let mut process = processes.get_mut(&number);
        plane.outbox.flush(*now, |packet| {
            let Some(process) = process.as_mut().filter(|it| it.ending.is_none()) else {
                return Sending::Ended;
            };
            let travels = packet.iter().any(|told| !told.is_named && !told.fds.is_empty());
            if kernel.room > *now {
                return Sending::NoRoom;
            }
            if travels && kernel.descriptors > *now {
                return Sending::NoDescriptors;
            }
            match process.receives(packet.clone(), *now) {
                true => Sending::Left,
                false => Sending::NoRoom,
            }
        });
    }

    /// Gives an order to the data plane that runs, and to the one that is to follow it.
    pub fn order(&mut self, order: Order, message: impl Fn(u32) -> ToData, fds: &[u32]) -> bool {
        let numbers = [self.next_number(), self.next_number()];
        if let Some(next) = self.succession.next().filter(|_| self.succession.is_next_loaded()) {
            let numbered = (numbers[0], order.clone().unasked());
            self.gives(next, numbered, message(numbers[0]), fds);
        }
        let serving = self.serving().filter(|_| self.succession.is_loaded());
        let Some(serving) = serving else { return false };
        self.gives(serving, (numbers[1], order), message(numbers[1]), fds);
        true
    }

    pub fn gives(
        &mut self,
        plane: PlaneNumber,
        (number, order): (u32, Order),
        message: ToData,
        fds: &[u32],
    ) {
        self.note(Note::Orders(number));
        if let Some(it) = self.planes.get_mut(&plane) {
            it.orders.insert(number, order);
        }
        self.tell(plane, message, fds.to_vec());
    }

    /// Looks whether it answers, and whether its workers go on.
    pub fn look_at(&mut self, number: PlaneNumber) {
        let now = self.now;
        let is_running = self.succession.is_running();
        let process = self.processes.get_mut(&number).filter(|_| is_running);
        let beats = process.map(|it| it.beats(now)).unwrap_or_default();
        let Some(plane) = self.planes.get_mut(&number) else { return };
        let Look { act, asks, again } = plane.watch.look(now, plane.outbox.oldest(), &beats);
        plane.look_at = again.into_iter().chain(Some(now + LOOK_AT_WORKERS)).min();
        if asks {
            self.tell(number, ToData::DoesItGoOn {}, vec![]);
        }
        let signal = match act {
            Some(Act::Abort) => {
                self.note(Note::Aborts(number));
                assert!(self.is_doubtful(number), "it works, and is ended");
                self.planes.get_mut(&number).expect("it is there").is_hung = true;
                6
            }
            Some(Act::Kill) => 9,
            None => return,
        };
        let process = self.processes.get_mut(&number);
        // One that is stopped, or whose worker goes round, does not end by the first.
        if let Some(process) = process.filter(|it| signal == 9 || !(it.is_stopped || it.is_hung)) {
            process.dies(Some(signal), now, Duration::from_millis(2));
        }
    }

    /// Whether there was a reason to end it: it, or everything, may have stood still.
    fn is_doubtful(&self, number: PlaneNumber) -> bool {
        let process = self.processes.get(&number);
        let is_still = process.is_some_and(|it| it.is_stopped || it.is_hung || it.ending.is_some());
        is_still || self.now < self.doubtful_until
    }

    /// How it has ended.
    pub fn end_of(&self, number: PlaneNumber, signal: Option<i32>) -> Option<PlaneExit> {
        let plane = self.planes.get(&number)?;
        Some(match signal {
            _ if plane.is_hung => PlaneExit::Hung,
            Some(9) if plane.is_condemned => PlaneExit::Condemned,
            Some(signal) => PlaneExit::Signal(signal),
            None => PlaneExit::Exit(1),
        })
    }
}
