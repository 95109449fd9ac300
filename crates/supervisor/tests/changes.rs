//! Changes of one port number by clients and by the file, answered in every way, through removals
//! and through data planes that end: the supervisor and the data plane agree in the end.

mod search;

use std::collections::{BTreeMap, VecDeque};

use ringway_supervisor::changes::Change;
use search::search;

/// Steps from the start that are tried in every order.
const STEPS: usize = 12;
const NUMBER: u16 = 0;

/// Options: of that port, with that value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Spec {
    name: String,
    value: u8,
}

#[derive(Debug, Clone, Copy)]
enum Act {
    /// A client sets another value.
    Set,
    /// The file is read again, with another value.
    Reload,
    /// The data plane answers the oldest order.
    Accept,
    Refuse,
    /// The port goes, and another one gets its number.
    Replace,
}

/// An order as the data plane gets it.
#[derive(Debug, Clone)]
enum Order {
    Change(Spec),
    Replace(Spec),
}

#[derive(Debug, Clone)]
struct World {
    spec: Spec,
    from_file: Option<Spec>,
    /// The file's own value, the order that it was asked for with, and whether that was refused.
    file: u8,
    file_order: u32,
    file_is_refused: bool,
    pending: BTreeMap<u32, Change<Spec>>,
    sent: VecDeque<(u32, Order)>,
    /// The port as the data plane has it.
    served: Spec,
    last_order: u32,
    last_value: u8,
}

impl World {
    fn new() -> Self {
        let spec = Spec { name: "a".into(), value: 0 };
        Self {
            spec: spec.clone(),
            from_file: Some(spec.clone()),
            file: 0,
            file_order: 0,
            file_is_refused: false,
            pending: BTreeMap::new(),
            sent: VecDeque::new(),
            served: spec,
            last_order: 0,
            last_value: 0,
        }
    }

    fn order(&mut self, order: Order) -> u32 {
        self.last_order += 1;
        self.sent.push_back((self.last_order, order));
        self.last_order
    }

    fn change(&mut self, is_of_file: bool) {
        self.last_value += 1;
        let spec = Spec { value: self.last_value, ..self.spec.clone() };
        let from_file = self.from_file.clone();
        if is_of_file {
            self.file = self.last_value;
            self.from_file = Some(spec.clone());
        }
        let before = std::mem::replace(&mut self.spec, spec.clone());
        let number = self.order(Order::Change(spec));
        if is_of_file {
            (self.file_order, self.file_is_refused) = (number, false);
        }
        let name = before.name.clone();
        let change = Change { port: NUMBER, name, before, from_file, is_of_file };
        self.pending.insert(number, change);
    }

    fn replace(&mut self) {
        let name = format!("{}+", self.spec.name);
        self.spec = Spec { name, value: 0 };
        self.from_file = None;
        self.order(Order::Replace(self.spec.clone()));
    }

    fn answer(&mut self, is_refused: bool) {
        let Some((number, order)) = self.sent.pop_front() else { return };
        match order {
            Order::Replace(spec) => self.served = spec,
            Order::Change(spec) => {
                if !is_refused {
                    self.served = spec;
                }
                self.finish(number, is_refused);
            }
        }
    }

    fn finish(&mut self, number: u32, is_refused: bool) {
        let change = self.pending.remove(&number).expect("it was ordered");
        self.file_is_refused |= is_refused && number == self.file_order;
        if !is_refused {
            return;
        }
        let (port, name) = (change.port, change.name.clone());
        let later = self.pending.values_mut().filter(|later| later.is_of(port, &name));
        let undo = change.is_refused(later);
        if self.spec.name == name {
            undo.apply(&mut self.spec, &mut self.from_file);
        }
    }
}

impl search::World for World {
    type Act = Act;

    fn acts(&self) -> Vec<Act> {
        let mut acts = vec![];
        if self.sent.len() < 5 {
            acts.push(Act::Set);
            acts.extend(self.from_file.is_some().then_some(Act::Reload));
            acts.extend((self.spec.name.len() < 2).then_some(Act::Replace));
        }
        match self.sent.front() {
            Some((_, Order::Change(_))) => acts.extend([Act::Accept, Act::Refuse]),
            Some(_) => acts.push(Act::Accept),
            None => {}
        }
        acts
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Set => self.change(false),
            Act::Reload => self.change(true),
            Act::Accept => self.answer(false),
            Act::Refuse => self.answer(true),
            Act::Replace => self.replace(),
        }
    }

    fn settle(mut self) {
        while !self.sent.is_empty() {
            self.answer(false);
        }
        assert_eq!(self.spec, self.served, "the data plane has other options than the supervisor");
        assert!(self.pending.is_empty());
        if let Some(in_file) = &self.from_file {
            let says_no_more = in_file.value == self.file;
            assert_eq!(says_no_more, !self.file_is_refused, "the next reload tries it again");
        }
    }

    fn key(&self) -> String {
        format!("{self:?}")
    }
}

#[test]
fn the_supervisor_and_the_data_plane_agree_in_the_end() {
    println!("{} states", search(World::new(), STEPS));
}
