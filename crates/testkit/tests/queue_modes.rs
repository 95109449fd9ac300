//! The output of `ringway stats` for each queue while guests do something and while they do
//! nothing: whether it is polled, and how often its kicks have woken the worker.
//!
//! Limits: what is shown is looked at again and again until it is as expected, for
//! [`SHOWN_LIMIT`] at most.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringway_control::protocol::QueueStats;
use ringway_net::Features;
use ringway_testkit::beside::{
    FRAME_LEN_MAX, Outcome, SHOWN_LIMIT, accepting, attach_two, new_flow,
};
use ringway_testkit::frames::{self, Link, Stamp};
use ringway_testkit::{AnyUserGuest, RingwayProcess, Traffic};

/// Packets that a guest sends one by one, each with a kick of its own.
const PACKETS: u64 = 20;

/// After a packet, an idle transmitq is looked at once more (within 2 ms).
const LATE_LOOK_MAX: Duration = Duration::from_millis(10);

/// Every packet has a notification of its own, at once.
const PORTS: [(&str, &str); 2] = [("a", "notify=every"), ("b", "notify=every")];

fn attach(ringway: &RingwayProcess, format: Features) -> Result<[AnyUserGuest; 2], Box<dyn Error>> {
    let mut accept = Features::OFFERED;
    accept.set(Features::RING_PACKED, format.contains(Features::RING_PACKED));
    attach_two(ringway, [&accepting(accept), &accepting(accept)])
}

/// The statistics of one queue.
fn queue(ringway: &RingwayProcess, port: &str, name: &str) -> Result<QueueStats, Box<dyn Error>> {
    let mut queues = ringway.port_stats(port)?.queues.into_iter();
    Ok(queues.find(|queue| queue.queue == name).ok_or_else(|| format!("no {name}"))?)
}

/// Waits until the transmitq of `a` is in this mode.
fn wait_for_mode(ringway: &RingwayProcess, mode: &str) -> Outcome {
    let deadline = Instant::now() + SHOWN_LIMIT;
    loop {
        let shown = queue(ringway, "a", "transmitq1")?;
        if shown.mode == mode {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("never {mode}: {shown:?}").into());
        }
    }
}

#[test]
fn a_queue_is_polled_under_a_stream_if_the_worker_always_polls() -> Outcome {
    for format in [Features::empty(), Features::RING_PACKED] {
        let ringway = RingwayProcess::start_with(&PORTS, &["--poll", "always"])?;
        let mut guests = attach(&ringway, format)?;
        let macs = [guests[0].mac(), guests[1].mac()];
        let mut traffic = Traffic::new(macs, new_flow(), FRAME_LEN_MAX);
        traffic.settle(&mut guests)?;
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let stream = scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    traffic.exchange(&mut guests, 100).map_err(|error| error.to_string())?;
                }
                Ok::<(), String>(())
            });
            let shown = wait_for_mode(&ringway, "polling").map_err(|error| error.to_string());
            over.store(true, Ordering::Relaxed);
            shown.and(stream.join().map_err(|_| "the guests panicked".to_string())?)
        })?;
        assert_eq!(queue(&ringway, "a", "controlq")?.mode, "sleeping");
    }
    Ok(())
}

#[test]
fn an_idle_queue_sleeps_and_each_kick_that_wakes_its_worker_is_counted() -> Outcome {
    for format in [Features::empty(), Features::RING_PACKED] {
        let ringway = RingwayProcess::start_with(&PORTS, &["--poll", "never"])?;
        let mut guests = attach(&ringway, format)?;
        let before = send_one_by_one(&ringway, &mut guests)?;
        let (kicks, others) = (before.0.kicks, before.1.kicks);
        let deadline = Instant::now() + SHOWN_LIMIT;
        let mut batches = 0;
        loop {
            let (sender, receiver) = send_one_by_one(&ringway, &mut guests)?;
            batches += 1;
            assert_eq!(sender.kicks, kicks + batches * PACKETS);
            assert_eq!(receiver.kicks, others, "the other guest sent nothing");
            let shown = sender.wakeups_last_second;
            assert!(shown <= batches * PACKETS + kicks, "{sender:?}");
            if shown > 0 {
                break;
            }
            assert!(Instant::now() < deadline, "no wake-up was shown: {sender:?}");
        }
        wait_until_quiet(&ringway)?;
    }
    Ok(())
}

/// The transmitqs of both guests, after `a` has sent some packets, each while its queue slept.
fn send_one_by_one(
    ringway: &RingwayProcess,
    guests: &mut [AnyUserGuest; 2],
) -> Result<(QueueStats, QueueStats), Box<dyn Error>> {
    let link = Link { from: guests[0].mac(), to: guests[1].mac() };
    for sequence in 0..PACKETS {
        wait_for_mode(ringway, "sleeping")?;
        // A look meanwhile would find the packet without its kick.
        thread::sleep(LATE_LOOK_MAX);
        let _ = guests[0].send(&frames::udp(link, Stamp { flow: 0, sequence }, 100))?;
        guests[0].flush();
        let deadline = Instant::now() + SHOWN_LIMIT;
        while guests[1].receive()?.is_none() {
            assert!(Instant::now() < deadline, "a packet did not arrive");
            thread::yield_now();
        }
        guests[1].flush();
    }
    wait_for_mode(ringway, "sleeping")?;
    Ok((queue(ringway, "a", "transmitq1")?, queue(ringway, "b", "transmitq1")?))
}

/// A guest that does nothing wakes no thread: soon there is a second without a wake-up.
fn wait_until_quiet(ringway: &RingwayProcess) -> Outcome {
    let deadline = Instant::now() + SHOWN_LIMIT;
    loop {
        let shown = queue(ringway, "a", "transmitq1")?;
        if shown.wakeups_last_second == 0 {
            assert_eq!(shown.mode, "sleeping");
            return Ok(());
        }
        assert!(Instant::now() < deadline, "still woken up: {shown:?}");
    }
}
