//! Good guests beside something bad: what both end-to-end tests and hostile tests do.
//!
//! How: [`beside_good_guests`] has two guests exchange verified traffic while a test misbehaves on
//! a third port, and afterwards wants that port to serve a good guest again, and ringway to hold
//! no more than before.

use std::error::Error;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringway_net::Features;

use crate::{AnyUserGuest, Footprint, GuestOptions, RingwayProcess, Traffic};

/// Of a test.
pub type Outcome = Result<(), Box<dyn Error>>;

/// Longest frame with the MTU that ports have by default.
pub const FRAME_LEN_MAX: usize = 1514;

/// Longest wait until statistics show what happened.
pub const SHOWN_LIMIT: Duration = Duration::from_secs(5);

/// Each exchange has its own flow number, so that a late packet is never taken for a new one.
pub fn new_flow() -> u64 {
    static FLOW: AtomicU32 = AtomicU32::new(1);
    u64::from(FLOW.fetch_add(1, Ordering::Relaxed))
}

/// A guest that accepts these features.
pub fn accepting(features: Features) -> GuestOptions {
    GuestOptions { accept: features, ..GuestOptions::default() }
}

/// Good guests at the ports `a` and `b`.
///
/// # Errors
/// One of them cannot attach.
pub fn attach_two(
    ringway: &RingwayProcess,
    options: [&GuestOptions; 2],
) -> Result<[AnyUserGuest; 2], Box<dyn Error>> {
    Ok([
        AnyUserGuest::attach(&ringway.socket("a"), options[0])?,
        AnyUserGuest::attach(&ringway.socket("b"), options[1])?,
    ])
}

/// Has two guests exchange `packets` packets of up to `len_max` bytes each way.
///
/// # Errors
/// Anything is lost, changed, or out of order.
pub fn verify_exchange(guests: &mut [AnyUserGuest; 2], packets: u64, len_max: usize) -> Outcome {
    let macs = [guests[0].mac(), guests[1].mac()];
    let mut traffic = Traffic::new(macs, new_flow(), len_max);
    traffic.settle(guests)?;
    traffic.exchange(guests, packets)?;
    assert_eq!(traffic.arrived(), packets * 2);
    Ok(())
}

/// The queues that statistics show as broken on a port, with the reasons.
///
/// # Errors
/// No statistics.
pub fn broken_queues(ringway: &RingwayProcess, port: &str) -> Result<Vec<String>, io::Error> {
    ringway.port_stats(port).map(|stats| stats.broken)
}

/// Waits until a queue is shown as broken; it must be the only one.
///
/// # Errors
/// It is not, or another one is.
pub fn wait_for_broken(ringway: &RingwayProcess, port: &str, queue: &str) -> Outcome {
    let deadline = Instant::now() + SHOWN_LIMIT;
    loop {
        let broken = broken_queues(ringway, port)?;
        match &broken[..] {
            [only] if only.starts_with(queue) => return Ok(()),
            [] if Instant::now() < deadline => thread::sleep(Duration::from_millis(10)),
            _ => return Err(format!("not {queue}, but {broken:?} is shown as broken").into()),
        }
    }
}

/// The names of the queues in statistics, by their index.
pub const QUEUE_NAMES: [&str; 3] = ["receiveq1", "transmitq1", "controlq"];

/// Ends the good guests' loop, also when the hostile one's check panics.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does `act` while a thread repeats `step`, which it does once more after that; what became of
/// both.
fn while_repeating<T>(
    mut step: impl FnMut() -> Result<(), String> + Send,
    act: impl FnOnce() -> T,
) -> (thread::Result<Result<(), String>>, T) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let repeated = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                step()?;
            }
            step()
        });
        let stop = StopOnDrop(&over);
        let acted = act();
        drop(stop);
        (repeated.join(), acted)
    })
}

/// Runs `hostile` while two other guests, at `a` and `b`, exchange verified traffic. `hostile` may
/// do what it likes at `h` and `p`, and closes everything before it returns. Then nothing of
/// it may be left, and the port `h` must serve a good guest again.
///
/// # Errors
/// `hostile` failed, the good guests lost something, something leaked, or the port does not
/// recover.
pub fn beside_good_guests(
    loss_allowed: bool,
    hostile: impl FnOnce(&RingwayProcess) -> Outcome,
) -> Outcome {
    let mut ringway = RingwayProcess::start(&[("a", ""), ("b", ""), ("h", ""), ("p", "")])?;
    let all = GuestOptions::default();
    let mut guests = attach_two(&ringway, [&all, &all])?;
    let mut traffic = Traffic::new([guests[0].mac(), guests[1].mac()], new_flow(), FRAME_LEN_MAX);
    if loss_allowed {
        traffic = traffic.allow_loss();
    }
    traffic.settle(&mut guests)?;
    let before = Footprint::of(ringway.pid())?;
    let exchange = || traffic.exchange(&mut guests, 100).map_err(|error| error.to_string());
    let (good, bad) = while_repeating(exchange, || hostile(&ringway));
    assert!(ringway.is_running()?, "{}", ringway.log());
    bad?;
    before.wait_until_again(ringway.pid())?;
    good.map_err(|_| "the good guests panicked")??;
    println!("{} packets arrived, {} lost", traffic.arrived(), traffic.lost());
    assert!(traffic.arrived() > traffic.lost() * 4, "others were disturbed");
    // Undisturbed from here on, and the hostile guest's port is usable again.
    verify_exchange(&mut guests, 500, FRAME_LEN_MAX)?;
    let [one, two] = guests;
    two.detach()?;
    let mut guests = [one, AnyUserGuest::attach(&ringway.socket("h"), &all)?];
    verify_exchange(&mut guests, 500, FRAME_LEN_MAX)?;
    assert_eq!(broken_queues(&ringway, "h")?, [""; 0]);
    assert!(ringway.stop()?.success(), "{}", ringway.log());
    Ok(())
}
