//! A file that is read again: steps by which running ports become those of the file, in the order
//! in which places become free.
//!
//! A port whose place is another one's waits until that one has moved, and is not closed before it
//! is known whether that works. Only ports that wait for each other, or for themselves because
//! their place is only spelled in another way, are closed first.

use std::collections::VecDeque;

use super::forward::ForwardSpec;
use super::port::PortSpec;

/// A port as it is now.
#[derive(Debug, Clone, Copy)]
pub struct RunningPort<'a> {
    /// No other port has it.
    pub number: u16,
    /// Its options.
    pub spec: &'a PortSpec,
    /// As the file has had it, if it is the file's.
    pub from_file: Option<&'a PortSpec>,
    /// It does not work, and is nowhere.
    pub has_failed: bool,
}

/// The next thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum ReloadStep {
    /// The port of that number goes.
    Remove(u16),
    /// A router gives up places that other ports get. `from_file`: as the file says that it is from
    /// then on, so that the next step finds a difference again.
    GiveUp {
        /// Of the port.
        number: u16,
        /// Its options without them.
        spec: Box<PortSpec>,
        /// As the file has it from then on.
        from_file: Option<Box<PortSpec>>,
    },
    /// A port of that name moves there, or gets these options; if there is none it is opened.
    BringAbout(Box<PortSpec>),
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    Surplus,
    GivingUp,
    Parting,
    Moving,
    Done,
}

/// The steps that are left.
#[derive(Debug, Clone)]
pub struct Reload {
    /// Ports that are still to be brought about.
    wanted: Vec<PortSpec>,
    /// Those of them that lead elsewhere than the running ones of their names.
    moves: Vec<PortSpec>,
    next: VecDeque<ReloadStep>,
    stage: Stage,
}

impl Reload {
    /// `wanted`: the ports of the file.
    pub fn new(wanted: Vec<PortSpec>) -> Self {
        Self { wanted, moves: Vec::new(), next: VecDeque::new(), stage: Stage::Surplus }
    }

    /// The next step, when the one before is done, or has failed. `running`: without ports that are
    /// about to go.
    pub fn next(&mut self, running: &[RunningPort<'_>]) -> Option<ReloadStep> {
        loop {
            if let Some(step) = self.next.pop_front() {
                return Some(step);
            }
            self.stage = match self.stage {
                Stage::Surplus => {
                    self.remove(running, |it, wanted| it.has_failed || !has(wanted, it));
                    Stage::GivingUp
                }
                Stage::GivingUp => {
                    self.next
                        .extend(running.iter().filter_map(|it| give_up(it, &self.wanted, running)));
                    Stage::Parting
                }
                Stage::Parting => {
                    let wanted = std::mem::take(&mut self.wanted);
                    (self.moves, self.wanted) =
                        wanted.into_iter().partition(|spec| leads_elsewhere(spec, running));
                    Stage::Moving
                }
                Stage::Moving => {
                    let waits = |spec: &PortSpec| waits(spec, &self.moves, running);
                    if let Some(at) = self.moves.iter().position(|spec| !waits(spec)) {
                        return Some(ReloadStep::BringAbout(Box::new(self.moves.remove(at))));
                    }
                    let moves = std::mem::take(&mut self.moves);
                    self.remove(running, |it, _| has(&moves, it));
                    let rest = moves.into_iter().chain(std::mem::take(&mut self.wanted));
                    self.next.extend(rest.map(|spec| ReloadStep::BringAbout(Box::new(spec))));
                    Stage::Done
                }
                Stage::Done => return None,
            };
        }
    }

    /// Ports of the file that go.
    fn remove(
        &mut self,
        running: &[RunningPort<'_>],
        goes: impl Fn(&RunningPort<'_>, &[PortSpec]) -> bool,
    ) {
        let of_file = running.iter().filter(|it| it.from_file.is_some());
        let going = of_file.filter(|it| goes(it, &self.wanted));
        self.next.extend(going.map(|it| ReloadStep::Remove(it.number)));
    }
}

fn has(specs: &[PortSpec], running: &RunningPort<'_>) -> bool {
    specs.iter().any(|spec| spec.name == running.spec.name)
}

fn leads_elsewhere(spec: &PortSpec, running: &[RunningPort<'_>]) -> bool {
    running.iter().any(|it| it.spec.name == spec.name && it.spec.kind != spec.kind)
}

/// Whether a port that is still to move is where this one leads: another one, or itself.
fn waits(spec: &PortSpec, moves: &[PortSpec], running: &[RunningPort<'_>]) -> bool {
    running.iter().any(|it| it.spec.kind.is_same_place(&spec.kind) && has(moves, it))
}

/// A router without the places that other ports get.
fn give_up(
    it: &RunningPort<'_>,
    wanted: &[PortSpec],
    running: &[RunningPort<'_>],
) -> Option<ReloadStep> {
    let own = wanted.iter().find(|spec| spec.name == it.spec.name)?;
    let moves = |forward: &ForwardSpec| {
        let mut others = wanted.iter().filter(|spec| spec.name != it.spec.name);
        !own.nat.forwards.contains(forward) && others.any(|it| gains(it, forward, running))
    };
    let (mut spec, mut from_file) = (it.spec.clone(), it.from_file.cloned());
    spec.nat.forwards.retain(|forward| !moves(forward));
    from_file.iter_mut().for_each(|it| it.nat.forwards.retain(|forward| !moves(forward)));
    let (spec, from_file) = (Box::new(spec), from_file.map(Box::new));
    (*spec != *it.spec).then_some(ReloadStep::GiveUp { number: it.number, spec, from_file })
}

/// Whether the port of that name gets a place that this forward is in the way of.
fn gains(wanted: &PortSpec, forward: &ForwardSpec, running: &[RunningPort<'_>]) -> bool {
    let own = running.iter().find(|it| it.spec.name == wanted.name);
    let has = |it: &&ForwardSpec| own.is_some_and(|own| own.spec.nat.forwards.contains(it));
    wanted.nat.forwards.iter().filter(|it| !has(it)).any(|it| it.is_in_way_of(forward))
}
