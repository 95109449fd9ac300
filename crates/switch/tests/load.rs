//! A full switch under load, in virtual time: 64 ports, two workers that both learn all the time,
//! stations that fall silent, move, and lose their port.
//!
//! Limits: the two workers take turns packet by packet; real threads are in `shared.rs`.

use ringway_net::MacAddress;
use ringway_switch::{PortId, Route, Shared, Switch};

const PORTS: u16 = 64;
/// Of each port.
const STATIONS: u32 = 16;
/// Between two packets of a station that talks, in milliseconds.
const TALK_EVERY_MS: u64 = 1000;
const MINUTE_MS: u64 = 60_000;

struct Load {
    switches: [Switch; 2],
    now_ms: u64,
}

fn station(port: u16, number: u32) -> MacAddress {
    MacAddress::local(u32::from(port) * STATIONS + number)
}

fn ports() -> impl Iterator<Item = PortId> {
    (0..PORTS).map(PortId)
}

impl Load {
    fn new() -> Self {
        let shared = Shared::new(42);
        let mut switches = [Switch::over(shared.clone()), Switch::over(shared)];
        for switch in &mut switches {
            ports().for_each(|port| switch.add_port(port).expect("a new port"));
        }
        Self { switches, now_ms: 0 }
    }

    /// For that long, all stations talk but those that are left out; each port's on either worker.
    fn talk(&mut self, duration_ms: u64, is_silent: impl Fn(PortId, u32) -> bool) {
        let until = self.now_ms + duration_ms;
        while self.now_ms < until {
            for (port, number) in ports().flat_map(|port| (0..STATIONS).map(move |n| (port, n))) {
                if !is_silent(port, number) {
                    let worker = (u64::from(number) + self.now_ms / TALK_EVERY_MS) % 2;
                    let switch = &mut self.switches[usize::from(worker == 1)];
                    switch.learn(port, station(port.0, number), self.now_ms);
                }
            }
            self.now_ms += TALK_EVERY_MS;
        }
    }

    /// Where both workers say that the station is.
    fn seen(&self, station: MacAddress) -> Route {
        let asker = PortId(PORTS - 1);
        let [one, other] = self.switches.each_ref().map(|switch| switch.route(asker, station));
        assert_eq!(one, other, "{station}");
        one
    }
}

#[test]
fn a_silent_station_is_forgotten_and_no_other() {
    let mut load = Load::new();
    load.talk(2 * MINUTE_MS, |_, _| false);
    let is_silent =
        |port: PortId, number: u32| port.0.is_multiple_of(3) && number.is_multiple_of(4);
    load.talk(4 * MINUTE_MS, is_silent);
    for (port, number) in ports().flat_map(|port| (0..STATIONS).map(move |n| (port, n))) {
        let expected = if port.0 == PORTS - 1 { Route::Drop } else { Route::One(port) };
        assert_eq!(load.seen(station(port.0, number)), expected, "not yet five minutes");
    }
    load.talk(2 * MINUTE_MS, is_silent);
    for (port, number) in ports().flat_map(|port| (0..STATIONS).map(move |n| (port, n))) {
        let expected = match is_silent(port, number) {
            true => Route::Flood,
            false if port.0 == PORTS - 1 => Route::Drop,
            false => Route::One(port),
        };
        assert_eq!(load.seen(station(port.0, number)), expected, "{port} {number}");
    }
    // A station that speaks again is known again.
    load.talk(TALK_EVERY_MS, |_, _| false);
    assert_eq!(load.seen(station(0, 0)), Route::One(PortId(0)));
}

#[test]
fn who_moves_is_followed_and_a_removed_port_is_forgotten() {
    let mut load = Load::new();
    load.talk(MINUTE_MS, |_, _| false);
    let moving = station(5, 3);
    for to in [PortId(9), PortId(20), PortId(5)] {
        let switch = &mut load.switches[usize::from(to.0 % 2)];
        switch.learn(to, moving, load.now_ms);
        load.talk(2 * TALK_EVERY_MS, |port, number| (port.0, number) == (5, 3));
        assert_eq!(load.seen(moving), Route::One(to));
    }
    for switch in &mut load.switches {
        switch.remove_port(PortId(7));
    }
    load.talk(MINUTE_MS, |port, _| port.0 == 7);
    for number in 0..STATIONS {
        assert_eq!(load.seen(station(7, number)), Route::Flood);
        assert_eq!(load.seen(station(8, number)), Route::One(PortId(8)));
    }
    // Its stations turn up elsewhere.
    load.switches[1].learn(PortId(8), station(7, 0), load.now_ms);
    assert_eq!(load.seen(station(7, 0)), Route::One(PortId(8)));
}
