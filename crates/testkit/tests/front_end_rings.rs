//! The rings of a front-end, as it negotiated them: with the control queue kept to itself, with one
//! that it passes on, and with fewer rings than the device offers.
//!
//! How: a front-end of single messages starts rings and sends packets on each transmit queue; what
//! ringway says about queues and pairs is compared.

use std::error::Error;
use std::time::Instant;

use ringway_net::Features;
use ringway_testkit::beside::{Outcome, SHOWN_LIMIT, broken_queues};
use ringway_testkit::{RAW_FEATURES, REGIONS, RawFrontEnd, RingwayProcess, pair};
use rustix::io::write;

const SET_VRING_ENABLE: u32 = 18;

/// Bytes between two rings, and where the parts of one are (see `RawFrontEnd::addresses`).
const RING_LEN: usize = 0x1000;
const AVAILABLE_AT: usize = 0x800;
/// Where a packet is, and its bytes with the header.
const PACKET_AT: usize = 0x4_0000;
const PACKET_LEN: u32 = 12 + 60;

fn start() -> Result<(RingwayProcess, RawFrontEnd), Box<dyn Error>> {
    let ports = [("a", "queues=2,rss=on"), ("b", "")];
    let ringway = RingwayProcess::start_with(&ports, &["--workers", "2"])?;
    let front_end = RawFrontEnd::connect(&ringway.socket("a"))?;
    Ok((ringway, front_end))
}

/// The names of the queues that run.
fn queues(ringway: &RingwayProcess) -> Result<Vec<String>, Box<dyn Error>> {
    let queues = ringway.port_stats("a")?.queues.into_iter();
    let mut names: Vec<_> = queues.map(|queue| queue.queue).collect();
    names.sort();
    Ok(names)
}

/// Packets from the guest, by pair where there are several.
fn received(ringway: &RingwayProcess) -> Result<Vec<u64>, Box<dyn Error>> {
    let stats = ringway.port_stats("a")?;
    Ok(match stats.pairs.as_slice() {
        [] => vec![stats.from_guest.packets],
        pairs => pairs.iter().map(|pair| pair.from_guest).collect(),
    })
}

/// Sends one packet as the first of a split ring, and waits until it is counted.
fn send(ringway: &RingwayProcess, front_end: &RawFrontEnd, index: usize) -> Outcome {
    let before: u64 = received(ringway)?.iter().sum();
    let memory = front_end.memory.region(0);
    memory.write(PACKET_AT, &[0; PACKET_LEN as usize]);
    let address = REGIONS[0].0 + PACKET_AT as u64;
    let descriptor = [&address.to_le_bytes()[..], &PACKET_LEN.to_le_bytes(), &[0; 4]].concat();
    memory.write(index * RING_LEN, &descriptor);
    // Flags, index, and the first entry.
    memory.write(index * RING_LEN + AVAILABLE_AT, &[0, 0, 1, 0, 0, 0]);
    write(&front_end.kicks[index % 2], &1_u64.to_ne_bytes())?;
    let deadline = Instant::now() + SHOWN_LIMIT;
    while received(ringway)?.iter().sum::<u64>() == before {
        if Instant::now() > deadline {
            return Err(format!("nothing came from ring {index}: {}", ringway.log()).into());
        }
    }
    Ok(())
}

#[test]
fn without_a_control_queue_on_the_wire_all_rings_are_data_rings() -> Outcome {
    for features in [Features::MQ, Features::RSS, Features::MQ | Features::RSS] {
        let (ringway, mut front_end) = start()?;
        front_end.bring_up_with(RAW_FEATURES | features.bits(), 4)?;
        assert_eq!(queues(&ringway)?, ["receiveq1", "receiveq2", "transmitq1", "transmitq2"]);
        send(&ringway, &front_end, 1)?;
        send(&ringway, &front_end, 3)?;
        assert_eq!((received(&ringway)?, broken_queues(&ringway, "a")?), (vec![1, 1], vec![]));
        // No ring comes behind them.
        assert!(front_end.start_queue(4).is_err(), "{:?}", queues(&ringway));
    }
    Ok(())
}

/// Cloud Hypervisor accepts CTRL_VQ and answers the control queue itself all the same.
#[test]
fn a_control_queue_that_never_starts_limits_nothing() -> Outcome {
    let (ringway, mut front_end) = start()?;
    let features = Features::MQ | Features::CTRL_VQ;
    front_end.bring_up_with(RAW_FEATURES | features.bits(), 4)?;
    send(&ringway, &front_end, 3)?;
    assert_eq!(received(&ringway)?, [0, 1]);
    front_end.start_queue(4)?;
    assert_eq!(queues(&ringway)?[0], "controlq");
    Ok(())
}

/// A guest changes how many pairs it uses; its front-end only enables and disables rings.
#[test]
fn pairs_come_and_go_with_their_rings() -> Outcome {
    let (ringway, mut front_end) = start()?;
    front_end.bring_up_with(RAW_FEATURES | Features::MQ.bits(), 4)?;
    for round in 0..3 {
        for (enable, running) in [(0, 2), (1, 4)] {
            for index in [2, 3] {
                let answer = front_end.request(SET_VRING_ENABLE, &pair(index, enable), &[])?;
                assert!(answer.is_done(), "round {round}: {answer:?}");
            }
            assert_eq!(queues(&ringway)?.len(), running, "round {round}");
        }
    }
    send(&ringway, &front_end, 3)?;
    assert_eq!(broken_queues(&ringway, "a")?, Vec::<String>::new());
    Ok(())
}

#[test]
fn without_several_pairs_a_second_one_does_not_start() -> Outcome {
    let (ringway, mut front_end) = start()?;
    front_end.bring_up_with(RAW_FEATURES, 2)?;
    assert!(front_end.start_queue(2).is_err() && front_end.start_queue(3).is_err());
    send(&ringway, &front_end, 1)?;
    let stats = ringway.port_stats("a")?;
    assert_eq!(queues(&ringway)?, ["receiveq1", "transmitq1"], "{stats:?}");
    Ok(())
}
