//! A full switch: 64 guests in user space, of both ring formats, at one running ringway.
//!
//! Limits: one thread drives all guests, or three where others keep the switch busy; every wait
//! ends after a few seconds. That stations are forgotten takes minutes, and so is tested in virtual
//! time (`crates/switch/tests/load.rs`).

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringway_net::Features;
use ringway_testkit::beside::{Outcome, SHOWN_LIMIT, accepting, new_flow};
use ringway_testkit::frames::{self, BROADCAST, Link, Mac, Stamp};
use ringway_testkit::{AnyUserGuest, GuestOptions, RingwayProcess, Traffic, Usage};

const GUESTS: usize = 64;
/// Packets each way per pair.
const PACKETS: u64 = 2;
/// Resident memory of ringway per attached port, beyond guest memory.
const IDLE_PORT_KIB_MAX: f64 = 2048.0;

type Guests = Vec<Option<AnyUserGuest>>;

fn name(at: usize) -> String {
    format!("g{at}")
}

fn start() -> std::io::Result<RingwayProcess> {
    let names: Vec<String> = (0..GUESTS).map(name).collect();
    let ports: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "")).collect();
    RingwayProcess::start(&ports)
}

/// Every other guest has packed rings, every third no mergeable buffers.
fn attach(ringway: &RingwayProcess, at: usize) -> Result<AnyUserGuest, Box<dyn Error>> {
    let mut accept = Features::OFFERED;
    accept.set(Features::RING_PACKED, at.is_multiple_of(2));
    accept.set(Features::MRG_RXBUF, !at.is_multiple_of(3));
    let options = GuestOptions { queue_size: 64, ..accepting(accept) };
    Ok(AnyUserGuest::attach(&ringway.socket(&name(at)), &options)?)
}

fn at(guests: &mut Guests, at: usize) -> &mut AnyUserGuest {
    guests[at].as_mut().expect("every guest is in its place between two exchanges")
}

fn exchange(guests: &mut Guests, one: usize, other: usize, packets: u64) -> Outcome {
    let (Some(first), Some(second)) = (guests[one].take(), guests[other].take()) else {
        return Err("a guest is missing".into());
    };
    let mut pair = [first, second];
    let mut traffic = Traffic::new([pair[0].mac(), pair[1].mac()], new_flow(), 200);
    let result = traffic.exchange(&mut pair, packets);
    let [first, second] = pair;
    (guests[one], guests[other]) = (Some(first), Some(second));
    result.map_err(|error| format!("guests {one} and {other}: {error}").into())
}

/// Everybody says where he is, and hears all the others.
fn introduce(guests: &mut Guests) -> Outcome {
    for speaker in 0..guests.len() {
        say(at(guests, speaker), None, BROADCAST)?;
        for listener in (0..guests.len()).filter(|&listener| listener != speaker) {
            hear(at(guests, listener))?;
        }
    }
    Ok(())
}

/// Sends a packet; `from`: the address of another guest.
fn say(guest: &mut AnyUserGuest, from: Option<Mac>, to: Mac) -> Outcome {
    let link = Link { from: from.unwrap_or(guest.mac()), to };
    let _ = guest.send(&frames::udp(link, Stamp { flow: 0, sequence: 0 }, 100))?;
    guest.flush();
    Ok(())
}

/// Waits for one packet; others may be behind it.
fn hear(guest: &mut AnyUserGuest) -> Outcome {
    let deadline = Instant::now() + SHOWN_LIMIT;
    while guest.receive()?.is_none() {
        if Instant::now() > deadline {
            return Err("nothing arrives".into());
        }
        guest.wait_call(Duration::from_millis(100))?;
    }
    guest.flush();
    Ok(())
}

fn hears_nothing(guest: &mut AnyUserGuest) -> Outcome {
    guest.wait_call(Duration::from_millis(50))?;
    match guest.receive()? {
        None => Ok(()),
        Some(_) => Err("a packet for another guest arrived".into()),
    }
}

#[test]
fn sixty_four_guests_exchange_traffic_in_all_pairs() -> Outcome {
    let ringway = start()?;
    let alone = Usage::look(ringway.pid())?;
    let mut guests: Guests = Vec::new();
    for at in 0..GUESTS {
        guests.push(Some(attach(&ringway, at)?));
    }
    introduce(&mut guests)?;
    let per_port = Usage::look(ringway.pid())?.since(&alone).memory_kib / GUESTS as f64;
    println!("{per_port:.0} KiB of private memory per attached idle port");
    assert!(per_port <= IDLE_PORT_KIB_MAX, "{per_port:.0} KiB per port");
    for one in 0..GUESTS {
        for other in one + 1..GUESTS {
            exchange(&mut guests, one, other, PACKETS)?;
        }
    }
    for at in 0..GUESTS {
        let stats = ringway.port_stats(&name(at))?;
        let sent = 1 + PACKETS * (GUESTS as u64 - 1);
        assert_eq!(stats.from_guest.packets, sent, "{stats:?}");
        assert_eq!(stats.to_guest.dropped("no_room"), 0, "{stats:?}");
    }
    Ok(())
}

#[test]
fn a_station_moves_and_comes_back_while_others_talk() -> Outcome {
    let ringway = start()?;
    let mut guests: Guests = Vec::new();
    for at in 0..8 {
        guests.push(Some(attach(&ringway, at)?));
    }
    introduce(&mut guests)?;
    let busy = at(&mut guests, 2).mac();
    // Behind a bridge of a guest: the address of a guest itself stays at its port.
    let moving = [0x52, 0x54, 0, 0xaa, 0, 1];
    // More moves within a second would count as a fight over the address.
    for round in 0..2 {
        // Guest 1 speaks in the station's name: that is where packets go now.
        say(at(&mut guests, 1), Some(moving), busy)?;
        hear(at(&mut guests, 2))?;
        say(at(&mut guests, 3), None, moving)?;
        hear(at(&mut guests, 1)).map_err(|error| format!("round {round}: {error}"))?;
        hears_nothing(at(&mut guests, 0))?;
        exchange(&mut guests, 4, 5, 50)?;
        // Guest 0 does, and has them back.
        say(at(&mut guests, 0), Some(moving), busy)?;
        hear(at(&mut guests, 2))?;
        say(at(&mut guests, 3), None, moving)?;
        hear(at(&mut guests, 0)).map_err(|error| format!("round {round}: {error}"))?;
        hears_nothing(at(&mut guests, 1))?;
        exchange(&mut guests, 6, 7, 50)?;
    }
    Ok(())
}

#[test]
fn guests_come_and_go_while_others_talk() -> Outcome {
    let ringway = start()?;
    let mut guests: Guests = Vec::new();
    for at in 0..GUESTS {
        guests.push(Some(attach(&ringway, at)?));
    }
    introduce(&mut guests)?;
    for round in 0..GUESTS {
        let leaves = round;
        drop(guests[leaves].take());
        let (one, other) = ((round + 1) % GUESTS, (round + 2) % GUESTS);
        exchange(&mut guests, one, other, 20)?;
        guests[leaves] = Some(attach(&ringway, leaves)?);
        // No guest asked for it: it has to say where it is first.
        let neighbour = at(&mut guests, one).mac();
        say(at(&mut guests, leaves), None, neighbour)?;
        hear(at(&mut guests, one)).map_err(|error| format!("round {round}: {error}"))?;
        exchange(&mut guests, leaves, other, 20)?;
    }
    Ok(())
}

/// Guests of which every two keep the switch busy while others do something.
const BUSY: usize = 16;

/// Lets the first guests exchange packets, each with its neighbour, from two threads, until `work`
/// with the others is done; none of their packets may be lost.
fn under_load(guests: &mut Guests, work: impl FnOnce(&mut Guests) -> Outcome) -> Outcome {
    let mut halves: [Guests; 2] =
        [0..BUSY / 2, BUSY / 2..BUSY].map(|half| half.map(|at| guests[at].take()).collect());
    let over = AtomicBool::new(false);
    let (carried, worked) = thread::scope(|scope| {
        let threads = halves.each_mut().map(|half| scope.spawn(|| keep_busy(half, &over)));
        let worked = work(guests).map_err(|error| error.to_string());
        over.store(true, Ordering::Relaxed);
        (threads.map(|thread| thread.join()), worked)
    });
    for (at, guest) in halves.into_iter().flatten().enumerate() {
        guests[at] = guest;
    }
    for carried in carried {
        let packets = carried.map_err(|_| "the busy guests panicked")??;
        assert!(packets > 100, "{packets} packets: not much of a load");
    }
    Ok(worked?)
}

fn keep_busy(guests: &mut Guests, over: &AtomicBool) -> Result<u64, String> {
    let mut packets = 0;
    while !over.load(Ordering::Relaxed) {
        for one in (0..guests.len()).step_by(2) {
            exchange(guests, one, one + 1, 10).map_err(|error| error.to_string())?;
            packets += 20;
        }
    }
    Ok(packets)
}

fn attach_all(ringway: &RingwayProcess) -> Result<Guests, Box<dyn Error>> {
    let mut guests: Guests = Vec::new();
    for at in 0..GUESTS {
        guests.push(Some(attach(ringway, at)?));
    }
    introduce(&mut guests)?;
    Ok(guests)
}

/// Takes everything that is there.
fn clear(guest: &mut AnyUserGuest) -> Outcome {
    while guest.receive()?.is_some() {}
    guest.flush();
    Ok(())
}

#[test]
fn stations_are_learned_and_move_under_load() -> Outcome {
    let ringway = start()?;
    let mut guests = attach_all(&ringway)?;
    under_load(&mut guests, |guests| {
        let neighbour = at(guests, 20).mac();
        for number in 0..40 {
            // A station behind guest 21 speaks, and is answered there alone.
            let station: Mac = [2, 1, 1, 1, 1, number];
            say(at(guests, 21), Some(station), neighbour)?;
            hear(at(guests, 20))?;
            say(at(guests, 20), None, station)?;
            hear(at(guests, 21)).map_err(|error| format!("station {number}: {error}"))?;
            // It moves behind guest 22.
            say(at(guests, 22), Some(station), neighbour)?;
            hear(at(guests, 20))?;
            say(at(guests, 20), None, station)?;
            hear(at(guests, 22)).map_err(|error| format!("moved station {number}: {error}"))?;
        }
        for silent in [21, 22, 23] {
            hears_nothing(at(guests, silent))?;
        }
        Ok(())
    })
}

#[test]
fn ports_are_removed_and_added_under_load() -> Outcome {
    let ringway = start()?;
    let mut guests = attach_all(&ringway)?;
    under_load(&mut guests, |guests| {
        for leaves in 30..40 {
            let gone = at(guests, leaves).mac();
            let socket = ringway.socket(&name(leaves));
            ringway.port(&["remove", &name(leaves)])?;
            // The table no longer says where its station is.
            say(at(guests, 40), None, gone)?;
            hear(at(guests, 41)).map_err(|error| format!("{leaves}: not flooded: {error}"))?;
            drop(guests[leaves].take());
            ringway.port(&["add", &format!("{}=vm:{}", name(leaves), socket.display())])?;
            guests[leaves] = Some(attach(&ringway, leaves)?);
            let neighbour = at(guests, 40).mac();
            say(at(guests, leaves), None, neighbour)?;
            exchange(guests, leaves, 40, 20)?;
            for others in 30..GUESTS {
                clear(at(guests, others))?;
            }
        }
        Ok(())
    })
}
