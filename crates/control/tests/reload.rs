//! A file that is read again, from every state of three ports to every other: each port ends where
//! the file says if that is possible, and a guest is lost only where there is no other way.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ringway_control::config::flags::parse_port;
use ringway_control::config::reload::{Reload, ReloadStep, RunningPort};
use ringway_control::config::{PortSpec, resolve_beside};

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Place 3 is place 0, spelled in another way.
const PLACES: usize = 4;
/// A reload has fewer steps.
const STEPS_MAX: usize = 20;

type File = BTreeMap<&'static str, usize>;

fn path(place: usize) -> PathBuf {
    let name = PathBuf::from(format!("{}.sock", place % 3));
    if place < 3 { name } else { std::path::absolute(name).expect("a directory") }
}

fn spec(name: &str, place: usize) -> PortSpec {
    let low = parse_port(&format!("{name}=vm:{}", path(place).display())).expect("a port");
    resolve_beside(&low, std::iter::empty(), "/x/control".as_ref()).expect("a port")
}

fn is_same(one: usize, other: usize) -> bool {
    one % 3 == other % 3
}

/// All files: each port at a place of its own, or not at all.
fn files(places: usize) -> Vec<File> {
    let mut files = vec![File::new()];
    for name in NAMES {
        for file in files.clone() {
            for place in (0..places).filter(|&place| !file.values().any(|&it| is_same(it, place))) {
                let mut file = file.clone();
                file.insert(name, place);
                files.push(file);
            }
        }
    }
    files
}

/// A port as it is: where, whether its guest was there all the time, whether it works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    place: usize,
    is_kept: bool,
    works: bool,
}

struct World {
    ports: BTreeMap<u16, (PortSpec, State)>,
    /// Places where nothing can be opened.
    broken: [bool; 3],
    last: u16,
}

impl World {
    fn new(file: &File, broken: [bool; 3]) -> Self {
        let mut world = Self { ports: BTreeMap::new(), broken, last: 0 };
        for (name, &place) in file {
            world.insert(name, State { place, is_kept: true, works: true });
        }
        world
    }

    fn insert(&mut self, name: &str, state: State) {
        self.last += 1;
        self.ports.insert(self.last, (spec(name, state.place), state));
    }

    fn running(&self) -> Vec<RunningPort<'_>> {
        let ports = self.ports.iter();
        ports
            .map(|(&number, (spec, state))| {
                let (from_file, has_failed) = (Some(spec), !state.works);
                RunningPort { number, spec, from_file, has_failed }
            })
            .collect()
    }

    fn can_open(&self, place: usize) -> bool {
        let is_there = |state: &State| state.works && is_same(state.place, place);
        !self.broken[place % 3] && !self.ports.values().any(|(_, state)| is_there(state))
    }

    fn carry_out(&mut self, step: ReloadStep) {
        match step {
            ReloadStep::Remove(number) => {
                assert!(self.ports.remove(&number).is_some(), "it is there")
            }
            ReloadStep::GiveUp { .. } => panic!("no port is a router"),
            ReloadStep::BringAbout(spec) => self.bring_about(&spec),
        }
    }

    fn bring_about(&mut self, wanted: &PortSpec) {
        let place = (0..PLACES).find(|&place| wanted.kind.socket() == Some(&path(place)));
        let place = place.expect("a place");
        let there = self.ports.iter().find(|(_, (spec, _))| spec.name == wanted.name);
        let there = there.map(|(&number, (spec, _))| (number, spec.kind == wanted.kind));
        let works = self.can_open(place);
        let moved = State { place, is_kept: false, works };
        match there {
            Some((_, true)) => {}
            Some((number, false)) if works => {
                self.ports.remove(&number);
                self.insert(&wanted.name, moved);
            }
            Some(_) => {}
            None => self.insert(&wanted.name, moved),
        }
    }

    fn end(&self) -> BTreeMap<&str, State> {
        self.ports.values().map(|(spec, state)| (spec.name.as_str(), *state)).collect()
    }
}

/// Where each port has to end: only ports that wait for each other, or for themselves, are closed
/// before it is known whether they can be opened.
fn expected(before: &File, after: &File, broken: [bool; 3]) -> BTreeMap<&'static str, State> {
    let state = |(&name, &place): (&&'static str, &usize)| {
        (name, outcome(name, place, before, after, broken))
    };
    after.iter().map(state).collect()
}

fn outcome(
    name: &'static str,
    place: usize,
    before: &File,
    after: &File,
    broken: [bool; 3],
) -> State {
    let is_broken = broken[place % 3];
    let Some(&old) = before.get(name) else {
        // It is opened last, when all others are where they end.
        let is_taken = before.keys().any(|other| {
            after.contains_key(other)
                && is_same(outcome(other, after[other], before, after, broken).place, place)
        });
        return State { place, is_kept: false, works: !is_broken && !is_taken };
    };
    if old == place {
        return State { place, is_kept: true, works: true };
    }
    match is_free_in_the_end(name, before, after, broken, &mut Vec::new()) {
        Some(true) => State { place, is_kept: false, works: true },
        Some(false) => State { place: old, is_kept: true, works: true },
        None => State { place, is_kept: false, works: !is_broken },
    }
}

/// Whether the place to which that port is to move can be opened; `None`: ports in front of it wait
/// for each other.
fn is_free_in_the_end(
    name: &'static str,
    before: &File,
    after: &File,
    broken: [bool; 3],
    seen: &mut Vec<&'static str>,
) -> Option<bool> {
    if seen.contains(&name) {
        return None;
    }
    seen.push(name);
    let place = after[name];
    let there =
        before.iter().find(|(other, it)| is_same(**it, place) && after.contains_key(*other));
    let is_free = match there {
        Some((&other, _)) => is_free_in_the_end(other, before, after, broken, seen)?,
        None => true,
    };
    Some(is_free && !broken[place % 3])
}

#[test]
fn each_port_ends_where_the_file_says_and_no_guest_is_lost_without_need() {
    let all_broken = (0..8).map(|bits| [bits & 1 != 0, bits & 2 != 0, bits & 4 != 0]);
    let mut count = 0;
    for broken in all_broken {
        for before in files(3) {
            for after in files(PLACES) {
                let mut world = World::new(&before, broken);
                let wanted = after.iter().map(|(name, &place)| spec(name, place)).collect();
                let mut reload = Reload::new(wanted);
                let mut steps = Vec::new();
                while let Some(step) = reload.next(&world.running()) {
                    steps.push(format!("{step:.60?}"));
                    assert!(steps.len() < STEPS_MAX, "{before:?} {after:?}: {steps:?}");
                    world.carry_out(step);
                }
                let expected = expected(&before, &after, broken);
                assert_eq!(world.end(), expected, "{before:?} {after:?} {broken:?}: {steps:#?}");
                count += 1;
            }
        }
    }
    println!("{count} files");
}

#[test]
fn a_port_that_has_failed_is_opened_anew() {
    let mut world = World::new(&File::from([("a", 0)]), [false; 3]);
    world.ports.values_mut().for_each(|(_, state)| state.works = false);
    let mut reload = Reload::new(vec![spec("a", 0)]);
    while let Some(step) = reload.next(&world.running()) {
        world.carry_out(step);
    }
    let opened = State { place: 0, is_kept: false, works: true };
    assert_eq!(world.end(), BTreeMap::from([("a", opened)]));
}
