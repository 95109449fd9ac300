//! What both end-to-end tests do: attach two good guests and have them exchange verified traffic.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ringway_net::Features;
use ringway_testkit::{AnyUserGuest, GuestOptions, RingwayProcess, Traffic};

pub type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Longest frame with the MTU that ports have by default.
pub const FRAME_LEN_MAX: usize = 1514;

/// Longest wait until statistics show what happened.
pub const SHOWN_LIMIT: Duration = Duration::from_secs(5);

/// Each exchange has its own flow number, so that a late packet is never taken for a new one.
pub fn new_flow() -> u64 {
    static FLOW: AtomicU32 = AtomicU32::new(1);
    u64::from(FLOW.fetch_add(1, Ordering::Relaxed))
}

pub fn accepting(features: Features) -> GuestOptions {
    GuestOptions { accept: features, ..GuestOptions::default() }
}

pub fn attach_two(
    ringway: &RingwayProcess,
    options: [&GuestOptions; 2],
) -> Result<[AnyUserGuest; 2], Box<dyn std::error::Error>> {
    Ok([
        AnyUserGuest::attach(&ringway.socket("a"), options[0])?,
        AnyUserGuest::attach(&ringway.socket("b"), options[1])?,
    ])
}

pub fn verify_exchange(guests: &mut [AnyUserGuest; 2], packets: u64, len_max: usize) -> Outcome {
    let macs = [guests[0].mac(), guests[1].mac()];
    let mut traffic = Traffic::new(macs, new_flow(), len_max);
    traffic.settle(guests)?;
    traffic.exchange(guests, packets)?;
    assert_eq!(traffic.arrived(), packets * 2);
    Ok(())
}
