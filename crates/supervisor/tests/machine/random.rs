//! Events of all kinds at random.

use std::time::Duration;

use ringway_supervisor::restart::Busy;
use ringway_supervisor::succession::{Event, PlaneNumber};

use super::{KILL, Machine, SEGV};

/// Port numbers, so few that they are used again.
const PORTS: u16 = 6;
const SIGNALS: [Option<i32>; 8] = [KILL, KILL, SEGV, SEGV, Some(6), Some(7), Some(15), None];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Comes(u16),
    Leaves(u16),
    Asks(u16, bool),
    Dies(PlaneNumber, Option<i32>),
    Hangs(PlaneNumber),
    Stops(PlaneNumber),
    GoesOn(PlaneNumber),
    Descriptors(Duration),
    Room(Duration),
    Starts(Duration),
    Upgrade(bool),
    Opens(u16, bool),
    Removes(u16),
    Changes(u16, bool),
    Question(bool),
    Pauses(Duration),
}

impl Act {
    /// Clients are not read while front-ends are not.
    fn is_of_client(self) -> bool {
        let is_of_port = matches!(self, Self::Opens(..) | Self::Removes(_) | Self::Changes(..));
        is_of_port || matches!(self, Self::Upgrade(_) | Self::Question(_))
    }
}

impl Machine {
    /// Something happens, and then some time passes.
    pub fn happens_at_random(&mut self) {
        let act = self.choose().filter(|act| self.succession.may_read() || !act.is_of_client());
        if let Some(act) = act {
            self.note(super::Note::Acts(act));
            self.act(act);
        }
        let most = [6, 6, 6, 6, 6, 6, 300, 300, 300, 3000][self.chance.below(10)];
        let most = if self.chance.one_in(200) { 40_000 } else { most };
        let time = self.chance.up_to_ms(most);
        self.runs(time);
    }

    fn choose(&mut self) -> Option<Act> {
        let ports: Vec<u16> = self.ports_of(|port| port.leaves_at.is_none());
        let planes: Vec<PlaneNumber> = self.processes.keys().copied().collect();
        let chance = &mut self.chance;
        Some(match chance.below(100) {
            0..15 => Act::Comes(chance.of(&ports)?),
            15..20 => Act::Leaves(chance.of(&ports)?),
            20..50 => Act::Asks(chance.of(&ports)?, chance.one_in(2)),
            50..56 => Act::Dies(chance.of(&planes)?, chance.of(&SIGNALS)?),
            56 => Act::Hangs(chance.of(&planes)?),
            57 => Act::Stops(chance.of(&planes)?),
            58..62 => Act::GoesOn(chance.of(&planes)?),
            62..65 => Act::Descriptors(chance.up_to_ms(500)),
            65 => Act::Descriptors(chance.up_to_ms(4000)),
            66..68 => Act::Room(chance.up_to_ms(100)),
            68 => Act::Starts(chance.up_to_ms(3000)),
            69..72 => Act::Upgrade(chance.one_in(4)),
            72..80 => {
                let free: Vec<u16> = (0..PORTS).filter(|it| !self.ports.contains_key(it)).collect();
                Act::Opens(self.chance.of(&free)?, self.chance.one_in(3))
            }
            80..84 => Act::Removes(chance.of(&ports)?),
            84..92 => Act::Changes(chance.of(&ports)?, chance.one_in(3)),
            92..99 => Act::Question(chance.one_in(3)),
            _ => Act::Pauses(chance.up_to_ms(20_000)),
        })
    }

    fn act(&mut self, act: Act) {
        let now = self.now;
        match act {
            Act::Comes(port) => {
                if self.ports.get(&port).is_some_and(|it| it.queue < 2) {
                    self.comes(port);
                }
            }
            Act::Leaves(port) => self.drop_link(port, None),
            Act::Asks(port, has_fds) => drop(self.asks(port, has_fds)),
            Act::Dies(plane, signal) => self.dies_at_random(plane, signal),
            Act::Hangs(plane) => self.process(plane).is_hung = true,
            Act::Stops(plane) => {
                self.process(plane).visit(now);
                self.process(plane).is_stopped = true;
                self.doubts();
            }
            Act::GoesOn(plane) => {
                self.doubtful_until = self.doubtful_until.max(now + super::DOUBTED_FOR);
                let process = self.process(plane);
                process.skips(now);
                (process.is_stopped, process.is_hung) = (false, false);
                self.doubts();
            }
            Act::Descriptors(time) => self.kernel.descriptors = now + time,
            Act::Room(time) => self.kernel.room = now + time,
            Act::Starts(time) => self.kernel.starts = now + time,
            Act::Upgrade(is_old) => {
                if self.succession.may_hand_over().is_ok() {
                    self.is_next_old = is_old;
                    let by = Some(self.client());
                    self.happens(Event::HandOver { by });
                }
            }
            Act::Opens(port, is_tap) => {
                let client = self.client();
                self.open(port, is_tap, Some(client));
            }
            Act::Removes(port) => {
                let client = self.client();
                self.remove_port(port, Some(client));
            }
            Act::Changes(port, is_of_file) => {
                // Two may be on their way at once.
                for _ in 0..=self.chance.below(2) {
                    let value = u8::try_from(self.chance.below(256)).expect("a byte");
                    let client = (!is_of_file).then(|| self.client());
                    self.change_port(port, value, client);
                }
            }
            Act::Question(has_fds) => drop(self.asks_whether(has_fds)),
            Act::Pauses(time) => self.pauses(time),
        }
    }

    fn process(&mut self, number: PlaneNumber) -> &mut super::Process {
        self.processes.get_mut(&number).expect("it was chosen")
    }

    /// The kernel says that a child was stopped, or goes on.
    pub fn doubts(&mut self) {
        let serving = self.succession.serving();
        let plane = serving.and_then(|number| self.planes.get_mut(&number));
        plane.into_iter().for_each(|plane| plane.watch.doubts());
    }

    fn dies_at_random(&mut self, plane: PlaneNumber, signal: Option<i32>) {
        let now = self.now;
        let unmaps = self.chance.up_to_ms(20);
        let served: Vec<u16> = self.process(plane).links.values().map(|(port, _)| *port).collect();
        let visited = self.chance.of(&served);
        let into = self.chance.of(&served).filter(|into| Some(*into) != visited);
        let visits = visited.map(|visited| Busy { visited, into }).into_iter().collect();
        let process = self.process(plane);
        process.visits = visits;
        process.dies(signal, now, unmaps);
    }

    /// Nothing happens at random any more, and everything comes to its end.
    pub fn settles(&mut self) {
        let now = self.now;
        self.chance = super::Chance::default();
        (self.kernel.descriptors, self.kernel.room, self.kernel.starts) = (now, now, now);
        for process in self.processes.values_mut() {
            process.skips(now);
            (process.is_stopped, process.is_hung) = (false, false);
        }
        self.doubts();
        self.runs(Duration::from_secs(120));
        for port in self.ports_of(|port| port.admission.is_quarantined()) {
            self.release(port);
        }
        self.runs(Duration::from_secs(60));
        self.is_settled();
    }
}
