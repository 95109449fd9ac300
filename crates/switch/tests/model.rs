//! The switch against a map of addresses: the same operations on both, the same answers.

use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;
use ringway_net::MacAddress;
use ringway_switch::{AGE_MAX_MS, FLAPS_MAX, Learned, PortError, PortId, Route, Switch};

/// Ages are rounded: around the limit both answers are right.
const AGE_ROUNDING_MS: u64 = 1100;
/// So few addresses that no bucket is ever full: the model knows no refusals.
const ADDRESSES: u32 = 8;
const PORTS: u16 = 4;

#[derive(Debug, Clone)]
enum Operation {
    AddPort(PortId),
    RemovePort(PortId),
    Packet { from: PortId, source: MacAddress, destination: MacAddress },
    Wait { ms: u64 },
}

fn port() -> impl Strategy<Value = PortId> {
    (0..PORTS).prop_map(PortId)
}

fn address() -> impl Strategy<Value = MacAddress> {
    prop_oneof![
        8 => (0..ADDRESSES).prop_map(MacAddress::local),
        1 => Just(MacAddress::BROADCAST),
        1 => Just(MacAddress([0x33, 0x33, 0, 0, 0, 1])),
        1 => Just(MacAddress::ZERO),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        2 => port().prop_map(Operation::AddPort),
        1 => port().prop_map(Operation::RemovePort),
        20 => (port(), address(), address()).prop_map(|(from, source, destination)| {
            Operation::Packet { from, source, destination }
        }),
        2 => prop_oneof![0..5000_u64, 0..2 * AGE_MAX_MS].prop_map(|ms| Operation::Wait { ms }),
    ]
}

/// What a switch does, written down as simply as possible.
#[derive(Default)]
struct Model {
    ports: BTreeSet<PortId>,
    seen: HashMap<MacAddress, (PortId, u64)>,
    /// When it moved.
    moves_ms: HashMap<MacAddress, Vec<u64>>,
    now_ms: u64,
}

impl Model {
    /// Not an exact one: an age at the limit allows two answers.
    fn may_answer(&self, from: PortId, destination: MacAddress, route: Route) -> bool {
        let known = self.seen.get(&destination).filter(|_| !destination.is_multicast());
        let Some((port, seen_ms)) = known else { return route == Route::Flood };
        let age_ms = self.now_ms - seen_ms;
        let remembered = if *port == from { Route::Drop } else { Route::One(*port) };
        match age_ms {
            0..=AGE_MAX_MS => route == remembered,
            age_ms if age_ms < AGE_MAX_MS + AGE_ROUNDING_MS => {
                route == remembered || route == Route::Flood
            }
            _ => route == Route::Flood,
        }
    }

    fn learn(&mut self, from: PortId, source: MacAddress) {
        if !source.is_station() {
            return;
        }
        let old = self.seen.insert(source, (from, self.now_ms));
        if old.is_some_and(|(port, _)| port != from) {
            self.moves_ms.entry(source).or_default().push(self.now_ms);
        }
    }

    /// Whether the address has moved so often lately that it may stay where it is.
    fn may_flap(&self, source: MacAddress) -> bool {
        let since_ms = self.now_ms.saturating_sub(AGE_ROUNDING_MS);
        let moves = self.moves_ms.get(&source).into_iter().flatten();
        moves.filter(|at_ms| **at_ms >= since_ms).count() >= usize::from(FLAPS_MAX)
    }

    fn add_port(&mut self, port: PortId) -> Result<(), PortError> {
        if self.ports.insert(port) { Ok(()) } else { Err(PortError::Exists(port)) }
    }

    fn remove_port(&mut self, port: PortId) -> bool {
        self.seen.retain(|_, (on, _)| *on != port);
        self.ports.remove(&port)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn answers_like_a_map(
        seed: u64,
        operations in prop::collection::vec(operation(), 1..300),
    ) {
        let mut switch = Switch::new(seed);
        let mut model = Model::default();
        for operation in operations {
            match operation {
                Operation::AddPort(port) => {
                    prop_assert_eq!(switch.add_port(port), model.add_port(port));
                }
                Operation::RemovePort(port) => {
                    prop_assert_eq!(switch.remove_port(port), model.remove_port(port));
                }
                Operation::Wait { ms } => model.now_ms += ms,
                Operation::Packet { from, source, destination } => {
                    if !model.ports.contains(&from) {
                        continue;
                    }
                    let learned = switch.learn(from, source, model.now_ms);
                    prop_assert_eq!(learned == Learned::Refused, !source.is_station());
                    if learned == Learned::Flapping {
                        prop_assert!(model.may_flap(source));
                    } else {
                        model.learn(from, source);
                    }
                    let route = switch.route(from, destination);
                    prop_assert!(
                        model.may_answer(from, destination, route),
                        "{from} to {destination}: {route:?}, seen {:?} at {}",
                        model.seen.get(&destination),
                        model.now_ms,
                    );
                }
            }
            prop_assert!(switch.ports().eq(model.ports.iter().copied()));
        }
    }
}
