//! Two workers: guests with two queue pairs among guests with one, verified byte by byte, and ports
//! that come and go while both workers carry traffic.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ringway_net::Features;
use ringway_testkit::beside::{FRAME_LEN_MAX, Outcome, accepting, new_flow};
use ringway_testkit::{AnyUserGuest, Footprint, GuestOptions, RingwayProcess, Traffic};

const TWO_WORKERS: [&str; 2] = ["--workers", "2"];

/// Ports that are added, used and removed.
const CYCLES: usize = 20;

/// Exchanges after which both pairs of a receiver must have been used: a sender with one pair
/// spreads its conversations.
const CONVERSATIONS_MAX: usize = 64;

fn attach(
    ringway: &RingwayProcess,
    port: &str,
    (queue_pairs, format): (u16, Features),
) -> Result<AnyUserGuest, Box<dyn Error>> {
    let accept = Features::OFFERED.difference(Features::RING_PACKED) | format;
    let options = GuestOptions { queue_pairs, queue_size: 64, ..accepting(accept) };
    Ok(AnyUserGuest::attach(&ringway.socket(port), &options)?)
}

fn exchange(guests: &mut [AnyUserGuest; 2], packets: u64) -> Outcome {
    let macs = [guests[0].mac(), guests[1].mac()];
    let mut traffic = Traffic::new(macs, new_flow(), FRAME_LEN_MAX);
    traffic.settle(guests)?;
    Ok(traffic.exchange(guests, packets)?)
}

/// Packets so far to and from each pair of a port.
fn pairs(ringway: &RingwayProcess, port: &str) -> Result<Vec<[u64; 2]>, Box<dyn Error>> {
    let pairs = ringway.port_stats(port)?.pairs;
    Ok(pairs.iter().map(|pair| [pair.to_guest, pair.from_guest]).collect())
}

#[test]
fn guests_with_two_pairs_and_with_one_reach_each_other_on_every_pair() -> Outcome {
    let ports = [("a", "queues=2"), ("b", ""), ("c", "queues=2"), ("d", "")];
    for formats in [[false, false], [true, true], [false, true]] {
        let ringway = RingwayProcess::start_with(&ports, &TWO_WORKERS)?;
        let [one, other] =
            formats.map(|packed| if packed { Features::RING_PACKED } else { Features::empty() });
        let mut two_and_one =
            [attach(&ringway, "a", (2, one))?, attach(&ringway, "b", (1, other))?];
        for pair in [0, 1, 0] {
            two_and_one[0].send_on(pair);
            exchange(&mut two_and_one, 100)?;
        }
        let mut conversations = 0;
        while pairs(&ringway, "a")?.iter().any(|[to_guest, _]| *to_guest < 20) {
            exchange(&mut two_and_one, 20)?;
            conversations += 1;
            assert!(conversations < CONVERSATIONS_MAX, "{:?}", pairs(&ringway, "a"));
        }
        let mut two_and_two = [attach(&ringway, "c", (2, other))?, {
            let [two, _one] = two_and_one;
            two
        }];
        for (here, there) in [(0, 0), (1, 1), (0, 1), (1, 0)] {
            two_and_two[0].send_on(here);
            two_and_two[1].send_on(there);
            exchange(&mut two_and_two, 100)?;
        }
        for port in ["a", "c"] {
            let used = pairs(&ringway, port)?;
            assert!(used.len() == 2 && used.iter().flatten().all(|count| *count > 50), "{used:?}");
        }
        for port in ["a", "b", "c"] {
            assert_eq!(ringway.port_stats(port)?.broken, [""; 0]);
        }
    }
    Ok(())
}

#[test]
fn a_guest_may_use_fewer_pairs_than_it_is_offered() -> Outcome {
    let ports = [("a", "queues=2"), ("b", "queues=2")];
    let ringway = RingwayProcess::start_with(&ports, &TWO_WORKERS)?;
    for queue_pairs in [1, 2, 1] {
        let format = Features::RING_PACKED;
        let mut guests =
            [attach(&ringway, "a", (queue_pairs, format))?, attach(&ringway, "b", (2, format))?];
        guests[1].send_on(1);
        exchange(&mut guests, 100)?;
    }
    Ok(())
}

/// Exchanges packets until told to stop; how many arrived.
fn keep_talking(guests: &mut [AnyUserGuest; 2], over: &AtomicBool) -> Result<u64, String> {
    let macs = [guests[0].mac(), guests[1].mac()];
    let mut traffic = Traffic::new(macs, new_flow(), FRAME_LEN_MAX);
    traffic.settle(guests).map_err(|error| error.to_string())?;
    while !over.load(Ordering::Relaxed) {
        traffic.exchange(guests, 50).map_err(|error| error.to_string())?;
    }
    Ok(traffic.arrived())
}

fn come_and_go(ringway: &RingwayProcess) -> Outcome {
    let socket = ringway.socket("x");
    for cycle in 0..CYCLES {
        let queues = 1 + cycle % 2;
        ringway.port(&["add", &format!("x=vm:{},queues={queues}", socket.display())])?;
        let queue_pairs = u16::try_from(queues)?;
        let guest = attach(ringway, "x", (queue_pairs, Features::RING_PACKED))?;
        if cycle % 3 == 0 {
            guest.detach()?;
        }
        // Else it is still there when its port goes.
        ringway.port(&["remove", "x"])?;
    }
    Ok(())
}

#[test]
fn ports_come_and_go_while_both_workers_carry_traffic() -> Outcome {
    let ports = [("a", "queues=2"), ("b", "queues=2"), ("c", ""), ("d", "")];
    let ringway = RingwayProcess::start_with(&ports, &TWO_WORKERS)?;
    let format = Features::RING_PACKED;
    let mut on_second = [attach(&ringway, "a", (2, format))?, attach(&ringway, "b", (2, format))?];
    let mut on_first = [attach(&ringway, "c", (1, format))?, attach(&ringway, "d", (1, format))?];
    on_second.iter_mut().for_each(|guest| guest.send_on(1));
    exchange(&mut on_second, 10)?;
    exchange(&mut on_first, 10)?;
    let before = Footprint::of(ringway.pid())?;
    let over = AtomicBool::new(false);
    let (arrived, changed) = thread::scope(|scope| {
        let talking = [&mut on_first, &mut on_second];
        let talking = talking.map(|guests| scope.spawn(|| keep_talking(guests, &over)));
        let changed = come_and_go(&ringway).map_err(|error| error.to_string());
        over.store(true, Ordering::Relaxed);
        (talking.map(|thread| thread.join()), changed)
    });
    changed?;
    for arrived in arrived {
        let arrived = arrived.map_err(|_| "the guests panicked")??;
        assert!(arrived > 100, "{arrived} packets: not much of a load");
    }
    before.wait_until_again(ringway.pid())?;
    let used = pairs(&ringway, "a")?;
    assert!(used[1].iter().all(|count| *count > 100), "the second worker carried {used:?}");
    Ok(())
}
