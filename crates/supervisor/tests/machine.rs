//! The supervisor's values composed as the program composes them, in virtual time: scripts of
//! outages that users have seen, and random events by seed (`RINGWAY_SEED=n` replays one).

#[path = "machine/mod.rs"]
mod shell;

use std::time::{Duration, Instant};

use ringway_supervisor::restart::{Busy, HELD_FOR, HELD_FROM, PlaneExit, RELEASED_EVERY};
use ringway_supervisor::watch::KILL_AFTER;
use shell::chance::{Chance, Seed};
use shell::{KILL, Machine, Note, SEGV};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn has_ended_any(machine: &Machine, since: Instant) -> bool {
    machine
        .since(since)
        .any(|(_, note)| matches!(note, Note::Aborts(_) | Note::Condemns(_) | Note::Ended(..)))
}

/// When the last request of the port's front-end was answered.
fn answered_at(machine: &Machine, port: u16, since: Instant) -> Option<Instant> {
    let link = machine.ports.get(&port)?.link.as_ref()?.number;
    machine.since(since).find(|(_, note)| *note == Note::Answers(link)).map(|(at, _)| at)
}

/// A machine that serves two ports with traffic, and two more front-ends; the kernel takes no
/// descriptors for 20 s.
fn with_descriptors_refused() -> (Machine, Instant) {
    let mut machine = Machine::new([1, 2, 3, 4]);
    assert!([1, 2, 3, 4].iter().all(|port| machine.is_served(*port)));
    machine.kernel.descriptors = machine.now + 20 * SECOND;
    let since = machine.now;
    (machine, since)
}

#[test]
fn a_data_plane_that_works_outlives_a_refusal_of_descriptors() {
    let (mut machine, since) = with_descriptors_refused();
    assert!(machine.asks(3, true));
    let client = machine.client();
    machine.open(5, true, Some(client));
    let question = machine.asks_whether(true);
    for second in 0..19 {
        assert!(machine.asks(4, false), "{second}: its last request was not read");
        let other = machine.client();
        machine.change_port(4, 2, Some(other));
        let asked = machine.now;
        machine.runs(SECOND);
        let at = answered_at(&machine, 4, asked);
        assert!(at.is_some_and(|at| at < asked + 50 * MS), "{second}: it needs no descriptor");
        assert!(!machine.waiting.contains(&other), "{second}: nor does a change");
        assert!([1, 2, 4].iter().all(|port| machine.is_served(*port)));
    }
    assert!(!has_ended_any(&machine, since), "it works");
    assert_eq!((answered_at(&machine, 3, since), machine.waiting.contains(&client)), (None, true));
    assert!(!machine.waiting.contains(&question), "its client was told that there is no answer");
    machine.runs(SECOND + 25 * MS);
    let at = answered_at(&machine, 3, since);
    assert!(at.is_some_and(|at| at >= since + 20 * SECOND), "as soon as there are descriptors");
    machine.settles();
    assert!(!has_ended_any(&machine, since));
}

#[test]
fn a_data_plane_that_is_killed_while_descriptors_are_refused_is_followed_once() {
    // One that was started with all that there is, and one that must be sent it.
    for is_old in [false, true] {
        let (mut machine, since) = with_descriptors_refused();
        machine.kernel.descriptors = machine.now;
        assert!(machine.asks(1, true));
        machine.runs(SECOND);
        machine.kernel.descriptors = since + 9 * SECOND;
        assert!(machine.asks(3, true));
        machine.runs(SECOND);
        (machine.is_next_old, machine.has_traffic) = (is_old, true);
        let killed = machine.now;
        machine.faults(KILL, &[]);
        machine.runs(9 * SECOND);
        let starts = machine.since(killed).filter(|(_, it)| matches!(it, Note::Starts(_))).count();
        assert_eq!(starts, 1 + usize::from(is_old));
        let served = machine.since(killed).find(|(_, it)| matches!(it, Note::Serves(_)));
        let at_most = if is_old { since + 9 * SECOND + 50 * MS } else { killed + 50 * MS };
        assert!(served.is_some_and(|(at, _)| at < at_most), "{is_old} {served:?}");
        let kills = machine
            .since(killed)
            .filter(|(_, it)| matches!(it, Note::Aborts(_) | Note::Condemns(_)));
        assert_eq!(kills.count(), 0);
        machine.settles();
    }
}

#[test]
fn a_request_does_not_go_past_the_order_that_brings_its_front_end() {
    let (mut machine, since) = with_descriptors_refused();
    // The port's number was that of a tap of which the data plane has not heard yet.
    let clients = [(); 3].map(|()| machine.client());
    machine.open(5, true, Some(clients[0]));
    machine.remove_port(5, Some(clients[1]));
    machine.open(5, false, Some(clients[2]));
    machine.comes(5);
    machine.runs(MS);
    assert!(machine.asks(5, false));
    machine.runs(21 * SECOND);
    assert!(!has_ended_any(&machine, since), "it was not told");
    assert!(answered_at(&machine, 5, since).is_some());
    machine.settles();
}

fn delivers(visited: u16, into: u16) -> Busy {
    Busy { visited, into: Some(into) }
}

/// Ports that are quarantined after these faults, one every 200 ms of service.
fn blamed_for(machine: &mut Machine, faults: &[Busy]) -> Vec<u16> {
    let since = machine.now;
    for busy in faults {
        assert!(machine.runs_until(20 * SECOND, |it| it.is_served(busy.visited)));
        machine.runs(200 * MS);
        machine.faults(SEGV, &[*busy]);
        machine.runs(MS);
    }
    machine.runs(SECOND);
    let notes = machine.since(since).filter_map(|(_, note)| match note {
        Note::Quarantines(port) => Some(port),
        _ => None,
    });
    notes.collect()
}

#[test]
fn a_receiver_that_each_fault_delivers_into_is_quarantined_and_who_sends_to_it_is_served() {
    let mut machine = Machine::new([1, 2, 3]);
    assert_eq!(blamed_for(&mut machine, &[delivers(1, 2); 3]), [2]);
    assert_eq!([1, 2, 3].map(|port| machine.is_served(port)), [true, false, true]);
}

#[test]
fn a_sender_whose_faults_are_each_in_another_receiver_is_quarantined() {
    let mut machine = Machine::new([1, 2, 3, 4]);
    let faults = [delivers(1, 2), delivers(1, 3), delivers(1, 4)];
    assert_eq!(blamed_for(&mut machine, &faults), [1]);
    assert_eq!([1, 2, 3, 4].map(|port| machine.is_served(port)), [false, true, true, true]);
}

#[test]
fn a_data_plane_that_is_stopped_while_its_worker_sleeps_is_replaced_within_five_seconds() {
    // Its debts when it is stopped; whether its guests send, and whether the kernel says so.
    for owed in ["nothing", "an order", "a request"] {
        for (has_traffic, is_said) in [(true, false), (true, true), (false, true)] {
            for after in [0, 700, 1999, 2000, 2400] {
                let mut machine = Machine::new([1, 2]);
                machine.has_traffic = has_traffic;
                machine.faults(KILL, &[]);
                machine.runs(3 * SECOND + after * MS);
                let (stopped, serving) = (machine.now, machine.serving().unwrap());
                machine.processes.get_mut(&serving).unwrap().visit(stopped);
                machine.processes.get_mut(&serving).unwrap().is_stopped = true;
                is_said.then(|| machine.doubts());
                match owed {
                    "an order" => machine.change_port(1, 2, None),
                    "a request" => assert!(machine.asks(1, true)),
                    _ => {}
                }
                let is_replaced = machine.runs_until(7 * SECOND, |it| {
                    it.since(stopped).any(|(_, note)| matches!(note, Note::Serves(_)))
                });
                let past = machine.now - stopped;
                let case = format!("{owed} {has_traffic} {is_said} {after}: {past:?}");
                assert!(is_replaced && past <= 5 * SECOND + KILL_AFTER + 50 * MS, "{case}");
                machine.settles();
            }
        }
    }
}

/// Front-ends that were disconnected connect again.
fn front_ends_return(machine: &mut Machine, ports: &[u16]) {
    for &port in ports {
        let is_gone = machine.ports[&port].link.is_none() && machine.ports[&port].queue == 0;
        if is_gone {
            machine.comes(port);
        }
    }
}

#[test]
fn while_faults_go_on_ports_that_have_no_part_in_them_are_served() {
    let idle = [3, 4];
    for seed in Seed::all(100) {
        let mut chance = Chance::new(seed.0);
        let mut machine = Machine::new([1, 2, 3, 4]);
        for fault in 0..12 {
            let is_any = |it: &Machine| it.is_served(1) || it.is_served(2);
            front_ends_return(&mut machine, &[1, 2]);
            if !machine.runs_until(20 * SECOND, is_any) {
                // Both are quarantined.
                break;
            }
            machine.runs(chance.up_to_ms(400));
            let served: Vec<u16> = [1, 2].into_iter().filter(|it| machine.is_served(*it)).collect();
            let Some(visited) = chance.of(&served) else { continue };
            let into = chance.of(&served).filter(|into| *into != visited);
            machine.faults(Some([6, 11][chance.below(2)]), &[Busy { visited, into }]);
            let begun = machine.now;
            machine.runs(MS);
            let others = |it: &Machine| idle.iter().all(|port| it.is_served(*port));
            assert!(machine.runs_until(10 * SECOND, others), "they are never served");
            let past = machine.now - begun;
            assert!(fault < HELD_FROM || past <= 200 * MS, "fault {fault}: {past:?}");
        }
        all_are_served_in_the_end(&mut machine);
    }
}

fn all_are_served_in_the_end(machine: &mut Machine) {
    let quarantined = machine.ports_of(|port| port.admission.is_quarantined());
    let others: Vec<u16> = (1..=4).filter(|port| !quarantined.contains(port)).collect();
    let all_served = |it: &Machine| others.iter().all(|port| it.is_served(*port));
    assert!(machine.runs_until(20 * SECOND, all_served), "those that were held back");
    machine.runs(700 * SECOND);
    front_ends_return(machine, &[1, 2, 3, 4]);
    machine.runs(SECOND);
    assert!((1..=4).all(|port| machine.is_served(port)), "and those that were quarantined");
    machine.settles();
}

#[test]
fn ports_that_are_held_back_are_served_again_one_after_the_other() {
    let mut machine = Machine::new(1..=7);
    // No port is in three of them, and the last three hold theirs back.
    let faults = [(1, 2), (1, 2), (3, 4), (1, 2), (3, 4), (5, 6)];
    let faults = faults.map(|(visited, into)| delivers(visited, into));
    assert_eq!(blamed_for(&mut machine, &faults), Vec::<u16>::new());
    let mut back: Vec<(u16, Instant)> = Vec::new();
    let end = machine.now + HELD_FOR + 6 * RELEASED_EVERY;
    while machine.now < end {
        machine.runs(10 * MS);
        let new = (1..=7).filter(|port| machine.is_served(*port));
        let new = new.filter(|port| back.iter().all(|(its, _)| its != port));
        back.extend(new.map(|port| (port, machine.now)).collect::<Vec<_>>());
    }
    assert_eq!((back.len(), back[0].0), (7, 7), "one had no part in them");
    let held = &back[1..];
    // The time of the first ones may have come together.
    let is_apart = |two: &[(u16, Instant)]| two[1].1 - two[0].1 >= RELEASED_EVERY - 20 * MS;
    assert!(held.windows(2).all(is_apart), "{held:?}");
    machine.settles();
}

/// Random events of each seed.
const EVENTS: u32 = 2000;
const SEEDS: u64 = 200;

#[test]
fn whatever_happens_each_request_and_order_has_its_end() {
    let begun = Instant::now();
    let mut halves = [vec![], vec![]];
    Seed::all(SEEDS).enumerate().for_each(|(at, seed)| halves[at % 2].push(seed));
    let is_all = halves.iter().all(|half| half.len() > 1);
    let halves = std::thread::scope(|scope| {
        let halves = halves.map(|seeds| scope.spawn(|| happens_at_random(seeds)));
        halves.map(|half| half.join().expect("nothing has gone wrong"))
    });
    println!("{halves:?} in {:?}", begun.elapsed());
    let has_all = halves.iter().flatten().all(|count| *count > 10);
    assert!(!is_all || has_all, "everything has happened");
}

/// How often data planes were ended, died of a fault, or served; ports were quarantined; requests
/// were answered, and clients.
fn happens_at_random(seeds: Vec<Seed>) -> [usize; 6] {
    let mut counts = [0; 6];
    for seed in seeds {
        let mut machine = Machine::new([0, 1, 2]);
        machine.chance = Chance::new(seed.0 + 1);
        for _ in 0..EVENTS {
            machine.happens_at_random();
        }
        machine.settles();
        for (_, note) in machine.notes.drain(..) {
            match note {
                Note::Aborts(_) | Note::Condemns(_) => counts[0] += 1,
                Note::Ended(_, PlaneExit::Signal(11)) => counts[1] += 1,
                Note::Serves(_) => counts[2] += 1,
                Note::Quarantines(_) => counts[3] += 1,
                Note::Answers(_) => counts[4] += 1,
                Note::Tells(_) => counts[5] += 1,
                _ => {}
            }
        }
    }
    counts
}
