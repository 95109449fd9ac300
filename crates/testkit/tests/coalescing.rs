//! Notification coalescing as a guest or a user sets it, on a running ringway: when the guest is
//! called, what the statistics say about it, and what is refused.

use std::error::Error;
use std::time::{Duration, Instant};

use ringway_net::Features;
use ringway_net::moderation::CoalesceLimits;
use ringway_testkit::beside::{
    FRAME_LEN_MAX, Outcome, SHOWN_LIMIT, accepting, attach_two, verify_exchange,
};
use ringway_testkit::frames::{self, Link, Stamp};
use ringway_testkit::{AnyUserGuest, GuestOptions, RingwayProcess};

/// `VIRTIO_NET_CTRL_NOTF_COAL` and its commands.
const CLASS: u8 = 6;
const TX_SET: u8 = 0;
const RX_SET: u8 = 1;
const VQ_SET: u8 = 2;
/// The one queue pair's numbers.
const RECEIVEQ: u16 = 0;
const TRANSMITQ: u16 = 1;
const OK: u8 = 0;
const ERR: u8 = 1;
/// Attempts at what a busy machine may spoil.
const ATTEMPTS: u32 = 20;

const LIMITS: CoalesceLimits = CoalesceLimits { max_packets: 16, max_usecs: 50 };

fn guests_of(format: Features) -> GuestOptions {
    let mut accept = Features::OFFERED;
    accept.set(Features::RING_PACKED, format.contains(Features::RING_PACKED));
    accepting(accept)
}

fn formats() -> [Features; 2] {
    [Features::empty(), Features::RING_PACKED]
}

fn vq_set(queue: u16, limits: CoalesceLimits) -> Vec<u8> {
    [&queue.to_le_bytes()[..], &[0; 2], &limits.encode()].concat()
}

/// Window, microseconds and reason of one direction of the port `b`.
fn pace(ringway: &RingwayProcess, direction: &str) -> Result<(u64, u64, String), Box<dyn Error>> {
    let stats = ringway.port_stats("b")?;
    let mut all = stats.pacing.into_iter();
    let one = all.find(|pace| pace.direction == direction).ok_or("no such direction")?;
    Ok((one.window.into(), one.timer_ns / 1000, one.cause))
}

#[test]
fn what_a_guest_sets_counts_for_its_queues_and_is_shown() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", ""), ("b", "")])?;
    let shown = |packets, usecs, cause: &str| (packets, usecs, cause.to_string());
    for format in formats() {
        let options = guests_of(format);
        let mut guests = attach_two(&ringway, [&GuestOptions::default(), &options])?;
        let started = [pace(&ringway, "calls")?.2, pace(&ringway, "returns")?.2];
        assert_eq!(started, ["one by one", "one by one"], "nothing is left of the guest before");
        let kicks = pace(&ringway, "kicks")?;
        assert_eq!(guests[1].command(CLASS, RX_SET, &LIMITS.encode())?, OK);
        assert_eq!(pace(&ringway, "calls")?, shown(16, 50, "set by the guest"));
        assert_eq!(pace(&ringway, "returns")?.2, "one by one", "the other kind is as it was");
        assert_eq!(guests[1].command(CLASS, TX_SET, &LIMITS.encode())?, OK);
        assert_eq!(pace(&ringway, "returns")?, shown(16, 50, "set by the guest"));
        let others = CoalesceLimits { max_packets: 8, max_usecs: 20 };
        for queue in [RECEIVEQ, TRANSMITQ] {
            assert_eq!(guests[1].command(CLASS, VQ_SET, &vq_set(queue, others))?, OK);
        }
        for direction in ["calls", "returns"] {
            assert_eq!(pace(&ringway, direction)?, shown(8, 20, "set by the guest for this queue"));
        }
        assert_eq!(guests[1].command(CLASS, RX_SET, &LIMITS.encode())?, OK);
        assert_eq!(pace(&ringway, "calls")?, shown(16, 50, "set by the guest"), "the last one");
        assert_eq!(pace(&ringway, "returns")?, shown(8, 20, "set by the guest for this queue"));
        assert_eq!(pace(&ringway, "kicks")?, kicks, "how it kicks is not concerned");
        verify_exchange(&mut guests, 500, FRAME_LEN_MAX)?;
        let [one, two] = guests;
        one.detach()?;
        two.detach()?;
    }
    Ok(())
}

#[test]
fn what_makes_no_sense_is_refused_and_counted() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", ""), ("b", "")])?;
    let all = GuestOptions::default();
    let mut guests = attach_two(&ringway, [&all, &all])?;
    let before = pace(&ringway, "calls")?;
    let many = CoalesceLimits { max_packets: CoalesceLimits::PACKETS_MAX + 1, max_usecs: 0 };
    let long = CoalesceLimits { max_packets: 0, max_usecs: CoalesceLimits::USECS_MAX + 1 };
    let refused = [
        (RX_SET, many.encode().to_vec()),
        (RX_SET, long.encode().to_vec()),
        (TX_SET, vec![0xff; 8]),
        (VQ_SET, vq_set(RECEIVEQ, long)),
        (VQ_SET, vq_set(2, LIMITS)),
        (VQ_SET, vq_set(u16::MAX, LIMITS)),
        (RX_SET, LIMITS.encode()[..7].to_vec()),
        (4, vec![]),
    ];
    for (number, data) in &refused {
        assert_eq!(guests[1].command(CLASS, *number, data)?, ERR, "{number} {data:?}");
    }
    let stats = ringway.port_stats("b")?;
    assert_eq!(stats.refused_commands, refused.len() as u64, "{stats:?}");
    assert_eq!(pace(&ringway, "calls")?, before);
    verify_exchange(&mut guests, 100, FRAME_LEN_MAX)
}

/// Three packets wait for the fourth, or for the longest time that can be set: a second.
#[test]
fn a_guest_is_called_when_its_limit_is_reached_and_not_before() -> Outcome {
    const PACKETS: u64 = 4;
    let limits = CoalesceLimits { max_packets: 4, max_usecs: CoalesceLimits::USECS_MAX };
    let ringway = RingwayProcess::start(&[("a", ""), ("b", "")])?;
    for format in formats() {
        let all = GuestOptions::default();
        let mut guests = attach_two(&ringway, [&all, &guests_of(format)])?;
        verify_exchange(&mut guests, 10, FRAME_LEN_MAX)?;
        assert_eq!(guests[1].command(CLASS, RX_SET, &limits.encode())?, OK);
        before_a_timer_ends(|| {
            empty(&mut guests[1])?;
            let before = counted(&ringway)?;
            for number in 1..PACKETS {
                send_one(&mut guests, number)?;
                wait_for_packets(&ringway, before.0 + number)?;
            }
            let waiting = counted(&ringway)?.1;
            send_one(&mut guests, PACKETS)?;
            wait_for_packets(&ringway, before.0 + PACKETS)?;
            Ok((waiting, counted(&ringway)?.1) == (before.1, before.1 + 1))
        })?;
        let [one, two] = guests;
        one.detach()?;
        two.detach()?;
    }
    Ok(())
}

/// A packet is held for a second at most; another policy, and the guest is told of it.
#[test]
fn another_policy_is_felt_at_once_and_nothing_is_lost_between_two() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", ""), ("b", "")])?;
    let set = |policy: &str| ringway.port(&["set", "b", &format!("notify={policy}")]);
    for format in formats() {
        let options = [&GuestOptions::default(), &guests_of(format)];
        let mut guests = attach_two(&ringway, options)?;
        before_a_timer_ends(|| {
            set("coalesce:64/1000000us")?;
            assert_eq!(pace(&ringway, "calls")?, (64, 1_000_000, "fixed".to_string()));
            empty(&mut guests[1])?;
            let before = counted(&ringway)?;
            send_one(&mut guests, 1)?;
            wait_for_packets(&ringway, before.0 + 1)?;
            let waiting = counted(&ringway)?.1;
            assert!(set("every")?.contains("b: changed"));
            Ok((waiting, counted(&ringway)?.1) == (before.1, before.1 + 1))
        })?;
        empty(&mut guests[1])?;
        for policy in ["timer:1000000us", "on-empty", "coalesce:64/1000000us", "adaptive"] {
            set(policy)?;
            verify_exchange(&mut guests, 50, FRAME_LEN_MAX)?;
        }
        let [one, two] = guests;
        one.detach()?;
        two.detach()?;
    }
    Ok(())
}

/// A guest that was told not to kick for a second is heard as soon as another policy holds.
#[test]
fn what_a_guest_need_not_tell_is_found_when_the_policy_changes() -> Outcome {
    let ringway = RingwayProcess::start_with(&[("a", ""), ("b", "")], &["--poll", "never"])?;
    let set = |policy: &str| ringway.port(&["set", "b", &format!("notify={policy}")]);
    for format in formats() {
        let options = [&guests_of(format), &GuestOptions::default()];
        let mut guests = attach_two(&ringway, options)?;
        guests.reverse();
        let sent =
            || -> Result<u64, Box<dyn Error>> { Ok(ringway.port_stats("b")?.from_guest.packets) };
        before_a_timer_ends(|| {
            set("timer:1000000us")?;
            let before = sent()?;
            // The next send starts the timer, and need not kick while it runs.
            send_one(&mut guests, 1)?;
            wait_until("the first", || Ok(sent()? > before))?;
            send_one(&mut guests, 2)?;
            let waiting = sent()?;
            set("every")?;
            wait_until("the second", || Ok(sent()? > before + 1))?;
            Ok(waiting == before + 1)
        })?;
        for guest in guests {
            guest.detach()?;
        }
    }
    Ok(())
}

/// Repeats what has to be seen within a second, the longest time of any timer here, until a busy
/// machine lets it be; what was then seen must be right.
fn before_a_timer_ends(mut attempt: impl FnMut() -> Result<bool, Box<dyn Error>>) -> Outcome {
    for _ in 0..ATTEMPTS {
        let start = Instant::now();
        let is_right = attempt()?;
        if start.elapsed() < Duration::from_secs(1) {
            assert!(is_right, "told too early, or not at all");
            return Ok(());
        }
    }
    Err(format!("{ATTEMPTS} attempts took more than a second each").into())
}

fn send_one(guests: &mut [AnyUserGuest; 2], sequence: u64) -> Outcome {
    let link = Link { from: guests[0].mac(), to: guests[1].mac() };
    let _ = guests[0].send(&frames::udp(link, Stamp { flow: 0, sequence }, 100))?;
    guests[0].flush();
    Ok(())
}

/// Takes what is there, and asks to be called about the next packet.
fn empty(guest: &mut AnyUserGuest) -> Outcome {
    loop {
        while guest.receive()?.is_some() {}
        guest.flush();
        if !guest.ask_for_calls() {
            return Ok(());
        }
    }
}

/// Packets to the port `b`, and calls about them.
fn counted(ringway: &RingwayProcess) -> Result<(u64, u64), Box<dyn Error>> {
    let to_guest = ringway.port_stats("b")?.to_guest;
    Ok((to_guest.packets, to_guest.calls))
}

fn wait_for_packets(ringway: &RingwayProcess, packets: u64) -> Outcome {
    wait_until("packets for the guest", || Ok(counted(ringway)?.0 >= packets))
}

fn wait_until(what: &str, is_so: impl Fn() -> Result<bool, Box<dyn Error>>) -> Outcome {
    let deadline = Instant::now() + SHOWN_LIMIT;
    while !is_so()? {
        if Instant::now() > deadline {
            return Err(format!("{what}: never seen").into());
        }
    }
    Ok(())
}
