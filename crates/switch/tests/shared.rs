//! Several switches over one table, each in a thread of its own, as workers are.

use std::sync::Barrier;
use std::thread;

use ringway_net::MacAddress;
use ringway_switch::{Learned, MACS_PER_PORT_MAX, PortId, Route, Shared, Switch};

const WORKERS: u16 = 4;
const STATIONS: u32 = 300;
const ROUNDS: u32 = 600;

/// The `n`-th station of a port; no two are the same.
fn station(port: u16, n: u32) -> MacAddress {
    MacAddress::local(u32::from(port) << 24 | n)
}

fn switches() -> Vec<Switch> {
    let shared = Shared::new(3);
    let make = |_| {
        let mut switch = Switch::over(shared.clone());
        (0..WORKERS).for_each(|port| switch.add_port(PortId(port)).unwrap());
        switch
    };
    (0..WORKERS).map(make).collect()
}

#[test]
fn no_lookup_finds_a_station_where_it_is_not() {
    let barrier = Barrier::new(usize::from(WORKERS));
    let mut switches = switches();
    let worker = |own: u16, switch: &mut Switch| {
        barrier.wait();
        let mut found = 0;
        for round in 0..ROUNDS {
            for n in 0..STATIONS {
                // Far more stations than a port may own: entries are replaced all the time.
                let changing = STATIONS + round * STATIONS + n;
                switch.learn(PortId(own), station(own, n), u64::from(round) * 100);
                switch.learn(PortId(own), station(own, changing), u64::from(round) * 100);
                let owner = (own + 1) % WORKERS;
                match switch.route(PortId(own), station(owner, n)) {
                    Route::One(port) => assert_eq!(port, PortId(owner)),
                    Route::Flood => continue,
                    Route::Drop => panic!("the station of another port is here"),
                }
                found += 1;
            }
        }
        found
    };
    let found: u32 = thread::scope(|scope| {
        let spawn = |(own, switch)| scope.spawn(move || worker(own, switch));
        let threads: Vec<_> = (0..WORKERS).zip(&mut switches).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(found > 0, "no thread has ever found anything");
    // The table is as consistent afterwards as if one thread had done it all.
    for port in 0..WORKERS {
        let all = 0..STATIONS + ROUNDS * STATIONS + STATIONS;
        let elsewhere = PortId((port + 1) % WORKERS);
        let there =
            |n: &u32| switches[0].route(elsewhere, station(port, *n)) == Route::One(PortId(port));
        let count = all.filter(there).count();
        assert_eq!(switches[0].addresses_of(PortId(port)), count, "port {port}");
        assert!(count <= MACS_PER_PORT_MAX);
    }
}

#[test]
fn what_one_has_learned_all_know_and_what_one_forgets_all_forget() {
    let mut switches = switches();
    assert_eq!(switches[0].learn(PortId(0), station(0, 1), 0), Learned::New);
    assert_eq!(switches[1].learn(PortId(1), station(1, 1), 0), Learned::New);
    assert_eq!(switches[3].route(PortId(3), station(0, 1)), Route::One(PortId(0)));
    assert_eq!(switches[2].learn(PortId(2), station(0, 1), 0), Learned::Moved);
    assert_eq!(switches[3].route(PortId(3), station(0, 1)), Route::One(PortId(2)));
    // The other switches still have the port; its stations are gone for all of them.
    switches[0].remove_port(PortId(2));
    assert_eq!(switches[3].route(PortId(3), station(0, 1)), Route::Flood);
    assert_eq!(switches[3].route(PortId(3), station(1, 1)), Route::One(PortId(1)));
}

#[test]
fn ports_that_come_and_go_disturb_no_lookup() {
    let mut switches = switches();
    switches[0].learn(PortId(0), station(0, 0), 0);
    let (first, rest) = switches.split_at_mut(1);
    let barrier = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            barrier.wait();
            for _ in 0..50 {
                rest[0].remove_port(PortId(1));
                rest[0].add_port(PortId(1)).unwrap();
                rest[0].learn(PortId(1), station(1, 0), 0);
            }
        });
        barrier.wait();
        for _ in 0..200_000 {
            assert_eq!(first[0].route(PortId(3), station(0, 0)), Route::One(PortId(0)));
            let route = first[0].route(PortId(3), station(1, 0));
            assert!(matches!(route, Route::Flood | Route::One(PortId(1))), "{route:?}");
        }
    });
    assert_eq!(first[0].addresses_of(PortId(1)), 1);
}
