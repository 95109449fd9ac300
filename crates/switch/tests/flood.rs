//! Guests that invent addresses harm only themselves.

use ringway_net::MacAddress;
use ringway_switch::{
    AGE_MAX_MS, Learned, MACS_MAX, MACS_PER_PORT_MAX, PORTS_MAX, PortId, Route, Switch,
};

const HOSTILE: PortId = PortId(0);
const VICTIM: PortId = PortId(1);
const OBSERVER: PortId = PortId(2);
const SEED: u64 = 0x5eed;

fn switch(ports: u16) -> Switch {
    let mut switch = Switch::new(SEED);
    for port in 0..ports {
        switch.add_port(PortId(port)).unwrap();
    }
    switch
}

/// The `n`-th address of port `port`; no two are the same.
fn address(port: PortId, n: u32) -> MacAddress {
    MacAddress::local(u32::from(port.0) << 24 | n)
}

#[test]
fn a_flooding_port_evicts_only_its_own_addresses() {
    let mut switch = switch(3);
    for n in 0..500 {
        assert_eq!(switch.learn(VICTIM, address(VICTIM, n), 0), Learned::New);
    }
    // The victim stays silent for all that time, but less than the maximum age.
    let packets = 200_000;
    for n in 0..packets {
        let now_ms = u64::from(n) * AGE_MAX_MS / u64::from(packets);
        switch.learn(HOSTILE, address(HOSTILE, n), now_ms);
    }
    assert_eq!(switch.addresses_of(HOSTILE), MACS_PER_PORT_MAX);
    assert_eq!(switch.addresses_of(VICTIM), 500);
    for n in 0..500 {
        assert_eq!(switch.route(OBSERVER, address(VICTIM, n)), Route::One(VICTIM));
    }
}

#[test]
fn a_flooding_port_does_not_keep_others_from_being_learned() {
    let mut switch = switch(3);
    for n in 0..200_000 {
        switch.learn(HOSTILE, address(HOSTILE, n), 0);
    }
    for n in 0..500 {
        assert_eq!(switch.learn(VICTIM, address(VICTIM, n), 0), Learned::New);
        assert_eq!(switch.route(OBSERVER, address(VICTIM, n)), Route::One(VICTIM));
    }
}

#[test]
fn all_other_ports_flooding_leave_room_for_one() {
    let ports = u16::try_from(PORTS_MAX).unwrap();
    let mut switch = switch(ports);
    for port in (0..ports).map(PortId).filter(|port| *port != VICTIM) {
        for n in 0..2000 {
            switch.learn(port, address(port, n), 0);
        }
    }
    let total: usize = switch.ports().map(|port| switch.addresses_of(port)).sum();
    assert!(total > MACS_MAX * 9 / 10, "the flood filled only {total} entries");
    assert!(total <= MACS_MAX, "{total} entries");
    for n in 0..8 {
        assert_eq!(switch.learn(VICTIM, address(VICTIM, n), 0), Learned::New);
        assert_eq!(switch.route(OBSERVER, address(VICTIM, n)), Route::One(VICTIM));
    }
}

#[test]
fn a_port_over_its_share_still_learns_by_giving_up_its_own() {
    let mut switch = switch(3);
    let packets = 20_000;
    let learned = (0..packets)
        .filter(|n| switch.learn(HOSTILE, address(HOSTILE, *n), 0) != Learned::Refused)
        .count();
    assert!(learned > 19_900, "{learned} of {packets}");
}

#[test]
fn more_ports_mean_smaller_shares_at_once() {
    let mut switch = switch(2);
    for n in 0..5000 {
        switch.learn(HOSTILE, address(HOSTILE, n), 0);
    }
    assert_eq!(switch.addresses_of(HOSTILE), MACS_PER_PORT_MAX);
    for port in 2..PORTS_MAX {
        switch.add_port(PortId(u16::try_from(port).unwrap())).unwrap();
    }
    assert_eq!(switch.addresses_of(HOSTILE), MACS_MAX / PORTS_MAX);
    let routed = (0..5000)
        .filter(|n| switch.route(VICTIM, address(HOSTILE, *n)) == Route::One(HOSTILE))
        .count();
    assert_eq!(routed, MACS_MAX / PORTS_MAX, "the count agrees with what is there");
}

#[test]
fn expired_addresses_of_others_make_room() {
    let mut switch = switch(3);
    for n in 0..2000 {
        switch.learn(HOSTILE, address(HOSTILE, n), 0);
    }
    let later_ms = 2 * AGE_MAX_MS;
    for n in 0..1000 {
        assert_eq!(switch.learn(VICTIM, address(VICTIM, n), later_ms), Learned::New);
    }
    for n in 0..2000 {
        assert_eq!(switch.route(OBSERVER, address(HOSTILE, n)), Route::Flood);
    }
}
