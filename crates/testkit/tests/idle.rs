//! The cost of guests that do nothing, or nothing but notify: an idle daemon sleeps, and a guest
//! that kicks without end, or never takes anything, costs only itself.
//!
//! Limits: that no thread wakes up is looked at for two seconds; a stray wake-up of the machine's
//! making is given further chances, and so is a machine that has others to serve.

use std::error::Error;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use ringway_net::Features;
use ringway_testkit::beside::{
    FRAME_LEN_MAX, Outcome, accepting, beside_good_guests, verify_exchange,
};
use ringway_testkit::frames::{self, Link, Stamp};
use ringway_testkit::{AnyUserGuest, GuestOptions, HostileGuest, RingwayProcess, Usage};

const GUESTS: usize = 16;
/// How long no thread may wake up.
const IDLE: Duration = Duration::from_secs(2);
const CHANCES: usize = 5;
/// The timers that the last packets left behind, 10 ms long, have ended then.
const SETTLED: Duration = Duration::from_millis(100);
/// Half a percent of [`IDLE`] on one core.
const IDLE_NS_MAX: f64 = 10e6;
/// How long a guest misbehaves, or does not, in a row, and how often.
const TURN: Duration = Duration::from_millis(100);
const TURNS: usize = 5;
const TRANSMITQ: usize = 1;

fn packed(is_packed: bool) -> GuestOptions {
    let mut accept = Features::OFFERED;
    accept.set(Features::RING_PACKED, is_packed);
    GuestOptions { queue_size: 64, ..accepting(accept) }
}

/// No thread woke up, and all that took less than half a percent of one core.
fn is_idle(used: &Usage) -> bool {
    used.wakeups < 1.0 && used.processor_ns < IDLE_NS_MAX
}

#[test]
fn an_idle_daemon_with_sixteen_guests_never_wakes_up() -> Outcome {
    let names: Vec<String> = (0..GUESTS).map(|at| format!("g{at}")).collect();
    let ports: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "")).collect();
    let ringway = RingwayProcess::start(&ports)?;
    let mut pairs = Vec::new();
    for (at, names) in names.chunks(2).enumerate() {
        let attach =
            |name: &str| AnyUserGuest::attach(&ringway.socket(name), &packed(at.is_multiple_of(2)));
        pairs.push([attach(&names[0])?, attach(&names[1])?]);
    }
    for pair in &mut pairs {
        verify_exchange(pair, 200, FRAME_LEN_MAX)?;
    }
    thread::sleep(SETTLED);
    let mut seen = Vec::new();
    for _ in 0..CHANCES {
        let before = Usage::look(ringway.pid())?;
        thread::sleep(IDLE);
        seen.push(Usage::look(ringway.pid())?.since(&before));
        if seen.last().is_some_and(is_idle) {
            break;
        }
    }
    println!("used in {IDLE:?}: {seen:?}");
    assert!(seen.last().is_some_and(is_idle), "a thread always wakes up, or works: {seen:?}");
    for pair in &mut pairs {
        verify_exchange(pair, 200, FRAME_LEN_MAX)?;
    }
    Ok(())
}

/// Packets that the good guest at `a` has sent so far.
fn progress(ringway: &RingwayProcess) -> Result<u64, io::Error> {
    ringway.port_stats("a").map(|stats| stats.from_guest.packets)
}

/// Packets that others move while this is done again and again.
fn moved_beside(
    ringway: &RingwayProcess,
    mut act: impl FnMut() -> Outcome,
) -> Result<u64, Box<dyn Error>> {
    let (before, until) = (progress(ringway)?, Instant::now() + TURN);
    while Instant::now() < until {
        act()?;
    }
    Ok(progress(ringway)? - before)
}

/// Others move at least half as much beside `act` as beside a thread that needs the processor as
/// well, but leaves the switch alone; the two in turns.
fn costs_only_itself(ringway: &RingwayProcess, mut act: impl FnMut() -> Outcome) -> Outcome {
    let mut seen = Vec::new();
    for _ in 0..CHANCES {
        let mut moved = [0, 0];
        for _ in 0..TURNS {
            moved[0] += moved_beside(ringway, || {
                std::hint::spin_loop();
                Ok(())
            })?;
            moved[1] += moved_beside(ringway, &mut act)?;
        }
        seen.push(moved);
        if moved[1] > 100 && 2 * moved[1] >= moved[0] {
            println!("packets of others, undisturbed and beside it: {seen:?}");
            return Ok(());
        }
    }
    Err(format!("packets of others, undisturbed and beside it: {seen:?}").into())
}

#[test]
fn a_guest_that_kicks_without_end_costs_only_itself() -> Outcome {
    beside_good_guests(true, |ringway| {
        for is_packed in [false, true] {
            let guest = HostileGuest::attach(&ringway.socket("h"), &packed(is_packed))?;
            let mut kicks = 0u64;
            costs_only_itself(ringway, || {
                for queue in 0..guest.queue_count() {
                    guest.queue(queue).kick();
                    kicks += 1;
                }
                Ok(())
            })?;
            assert!(kicks > 1000, "{kicks} kicks are no storm");
            assert!(ringway.port_stats("h")?.from_guest.packets == 0);
            // The queue still works: nothing was stopped for being asked too often.
            guest.queue(TRANSMITQ).kick();
        }
        Ok(())
    })
}

/// A receiver that takes nothing, and a sender that sends to it all the same.
#[test]
fn a_guest_that_never_consumes_costs_only_who_talks_to_it() -> Outcome {
    beside_good_guests(true, |ringway| {
        for is_packed in [false, true] {
            let options = packed(is_packed);
            let mut stuck = AnyUserGuest::attach(&ringway.socket("h"), &options)?;
            let mut talker = AnyUserGuest::attach(&ringway.socket("p"), &options)?;
            // The switch learns where it is, and then it never moves again.
            let (here, there) = (stuck.mac(), talker.mac());
            let stamp = |sequence| Stamp { flow: 0, sequence };
            let _ = stuck.send(&frames::udp(Link { from: here, to: there }, stamp(0), 100))?;
            stuck.flush();
            let mut sent = 0;
            costs_only_itself(ringway, || {
                let link = Link { from: there, to: here };
                let _ = talker.send(&frames::udp(link, stamp(sent), 1000))?;
                talker.flush();
                sent += 1;
                Ok(())
            })?;
            println!("{sent} packets that no guest took");
            talker.detach()?;
            stuck.detach()?;
        }
        Ok(())
    })
}
