//! A full switch: 64 guests in user space, of both ring formats, at one running ringway.
//!
//! Limits: one thread drives all guests; every wait ends after a few seconds.

use std::error::Error;
use std::time::{Duration, Instant};

use ringway_net::Features;
use ringway_testkit::beside::{Outcome, SHOWN_LIMIT, accepting, new_flow, resident_private_kib};
use ringway_testkit::frames::{self, BROADCAST, Link, Mac, Stamp};
use ringway_testkit::{AnyUserGuest, GuestOptions, RingwayProcess, Traffic};

const GUESTS: usize = 64;
/// Packets each way per pair.
const PACKETS: u64 = 2;
/// Resident memory of ringway per attached port, beyond guest memory.
const IDLE_PORT_KIB_MAX: u64 = 2048;

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

/// Sends a packet; `from`: in somebody else's name.
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
        Some(_) => Err("a packet for somebody else arrived".into()),
    }
}

#[test]
fn sixty_four_guests_exchange_traffic_in_all_pairs() -> Outcome {
    let ringway = start()?;
    let alone = resident_private_kib(ringway.pid())?;
    let mut guests: Guests = Vec::new();
    for at in 0..GUESTS {
        guests.push(Some(attach(&ringway, at)?));
    }
    introduce(&mut guests)?;
    let per_port = (resident_private_kib(ringway.pid())? - alone) / GUESTS as u64;
    println!("{per_port} KiB of private memory per attached idle port");
    assert!(per_port <= IDLE_PORT_KIB_MAX, "{per_port} KiB per port");
    for one in 0..GUESTS {
        for other in one + 1..GUESTS {
            exchange(&mut guests, one, other, PACKETS)?;
        }
    }
    for at in 0..GUESTS {
        let stats = ringway.port_stats(&name(at))?;
        let sent = stats["from_guest"]["packets"].as_u64();
        assert_eq!(sent, Some(1 + PACKETS * (GUESTS as u64 - 1)), "{stats}");
        assert!(stats["to_guest"]["drops"]["no_room"].is_null(), "{stats}");
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
    let [moving, busy] = [at(&mut guests, 0).mac(), at(&mut guests, 2).mac()];
    // More moves within a second would count as a fight over the address.
    for round in 0..2 {
        // Guest 1 speaks in guest 0's name: that is where packets go now.
        say(at(&mut guests, 1), Some(moving), busy)?;
        hear(at(&mut guests, 2))?;
        say(at(&mut guests, 3), None, moving)?;
        hear(at(&mut guests, 1)).map_err(|error| format!("round {round}: {error}"))?;
        hears_nothing(at(&mut guests, 0))?;
        exchange(&mut guests, 4, 5, 50)?;
        // Guest 0 speaks again, and has them back.
        say(at(&mut guests, 0), None, busy)?;
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
        // Nobody asked: it has to say where it is first.
        let neighbour = at(&mut guests, one).mac();
        say(at(&mut guests, leaves), None, neighbour)?;
        hear(at(&mut guests, one)).map_err(|error| format!("round {round}: {error}"))?;
        exchange(&mut guests, leaves, other, 20)?;
    }
    Ok(())
}
