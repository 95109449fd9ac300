//! Verified traffic between two user-space guests: every byte of every packet is checked, and
//! packets must arrive in order and once.
//!
//! How: bursts of stamped packets both ways; after each burst everything has to have arrived
//! before the next one starts, so no receiver is ever asked to hold more than a burst.
//!
//! Limits: one thread drives both guests; every wait ends after [`ARRIVAL_LIMIT`].

use std::fmt;
use std::time::{Duration, Instant};

use ringway_driver::Sent;

use crate::attachment::GuestError;
use crate::frames::{self, Link, Mac, STAMPED_LEN_MIN, Stamp};
use crate::rng::Rng;
use crate::user_guest::AnyUserGuest;

/// Longest wait for packets that are on their way.
pub const ARRIVAL_LIMIT: Duration = Duration::from_secs(5);

/// Most packets on their way at once, per direction.
const BURST_PACKETS: u64 = 16;

/// The flow of packets that only find out whether the other guest is there.
const HELLO: u64 = u64::MAX;

/// Why traffic is not as it should be.
#[derive(Debug)]
pub enum TrafficError {
    /// A guest's device broke the rules or went away.
    Guest(GuestError),
    /// Packets did not arrive: the first one missing.
    Lost(Stamp),
    /// A packet arrived twice, or too late.
    OutOfOrder(Stamp),
    /// A packet for us with other contents than were sent; its length.
    Corrupt(usize),
    /// The guests cannot reach each other.
    Unreachable,
}

impl fmt::Display for TrafficError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Guest(error) => write!(f, "{error}"),
            Self::Lost(stamp) => write!(f, "lost from {stamp:?} on"),
            Self::OutOfOrder(stamp) => write!(f, "twice or out of order: {stamp:?}"),
            Self::Corrupt(len) => write!(f, "contents of a packet of {len} bytes changed"),
            Self::Unreachable => f.write_str("the guests cannot reach each other"),
        }
    }
}

impl std::error::Error for TrafficError {}

impl From<GuestError> for TrafficError {
    fn from(error: GuestError) -> Self {
        Self::Guest(error)
    }
}

/// The packets of one direction.
#[derive(Debug)]
struct Stream {
    link: Link,
    flow: u64,
    sent: u64,
    /// The next sequence number that may arrive.
    next: u64,
    lost: u64,
}

/// Traffic between two guests that stay attached.
#[derive(Debug)]
pub struct Traffic {
    /// First guest to second, second to first.
    streams: [Stream; 2],
    rng: Rng,
    len_max: usize,
    loss_allowed: bool,
    /// Tells hellos from those of earlier times, which may have waited for a guest.
    hellos: u64,
}

impl Traffic {
    /// Between guests with these addresses; packets are up to `len_max` bytes long. `flow`
    /// tells this traffic from all other, also from that of the same guests earlier.
    pub fn new(macs: [Mac; 2], flow: u64, len_max: usize) -> Self {
        let [first, second] = macs;
        let stream =
            |from, to, flow| Stream { link: Link { from, to }, flow, sent: 0, next: 0, lost: 0 };
        Self {
            streams: [stream(first, second, flow * 2), stream(second, first, flow * 2 + 1)],
            rng: Rng::new(flow),
            len_max,
            loss_allowed: false,
            hellos: 0,
        }
    }

    /// From now on, packets may be missing (they are counted): the receivers share the switch
    /// with a port that floods it.
    #[must_use]
    pub(crate) fn allow_loss(mut self) -> Self {
        self.loss_allowed = true;
        self
    }

    /// Packets that arrived, both ways together.
    pub fn arrived(&self) -> u64 {
        self.streams.iter().map(|stream| stream.next - stream.lost).sum()
    }

    /// Packets that did not, both ways together.
    pub fn lost(&self) -> u64 {
        self.streams.iter().map(|stream| stream.lost).sum()
    }

    /// Waits until both guests hear each other: rings start some time after attaching.
    ///
    /// # Errors
    /// [`TrafficError::Unreachable`], [`TrafficError::Guest`].
    pub fn settle(&mut self, guests: &mut [AnyUserGuest; 2]) -> Result<(), TrafficError> {
        let deadline = Instant::now() + ARRIVAL_LIMIT;
        let mut heard = [false; 2];
        self.hellos += 1;
        let numbers = self.streams.each_ref().map(|stream| self.hellos << 32 | stream.flow);
        while heard != [true; 2] {
            if Instant::now() > deadline {
                return Err(TrafficError::Unreachable);
            }
            for (at, guest) in guests.iter_mut().enumerate() {
                let stamp = Stamp { flow: HELLO, sequence: numbers[at] };
                let _ = guest.send(&frames::udp(self.streams[at].link, stamp, STAMPED_LEN_MIN))?;
                guest.flush();
            }
            for (at, guest) in guests.iter_mut().enumerate() {
                let hello = Stamp { flow: HELLO, sequence: numbers[1 - at] };
                guest.wait_call(Duration::from_millis(20))?;
                while let Some((_, packet)) = guest.receive()? {
                    heard[at] |= frames::read_stamp(&packet) == Some(hello);
                }
                guest.flush();
            }
        }
        Ok(())
    }

    /// Sends `packets` packets each way and verifies every one of them.
    ///
    /// # Errors
    /// See [`TrafficError`].
    pub fn exchange(
        &mut self,
        guests: &mut [AnyUserGuest; 2],
        packets: u64,
    ) -> Result<(), TrafficError> {
        let mut left = packets;
        while left > 0 {
            let burst = left.min(self.rng.between(1, BURST_PACKETS));
            for (at, guest) in guests.iter_mut().enumerate() {
                self.send_burst(at, guest, burst)?;
            }
            self.collect(guests)?;
            left -= burst;
        }
        Ok(())
    }

    fn send_burst(
        &mut self,
        at: usize,
        guest: &mut AnyUserGuest,
        burst: u64,
    ) -> Result<(), TrafficError> {
        for _ in 0..burst {
            let len = self.rng.between(STAMPED_LEN_MIN as u64, self.len_max as u64);
            let stream = &mut self.streams[at];
            let stamp = Stamp { flow: stream.flow, sequence: stream.sent };
            let packet = frames::udp(stream.link, stamp, usize::try_from(len).unwrap_or(0));
            send_surely(guest, &packet)?;
            stream.sent += 1;
        }
        guest.flush();
        Ok(())
    }

    /// Takes in everything that is on its way.
    fn collect(&mut self, guests: &mut [AnyUserGuest; 2]) -> Result<(), TrafficError> {
        let limit = if self.loss_allowed { Duration::from_millis(200) } else { ARRIVAL_LIMIT };
        let deadline = Instant::now() + limit;
        loop {
            for (at, guest) in guests.iter_mut().enumerate() {
                while let Some((_, packet)) = guest.receive()? {
                    self.accept(1 - at, &packet)?;
                }
                guest.flush();
            }
            let Some(missing) = self.streams.iter().position(|stream| stream.next < stream.sent)
            else {
                return Ok(());
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return self.give_up(missing);
            }
            guests[1 - missing].wait_call(left)?;
        }
    }

    fn give_up(&mut self, missing: usize) -> Result<(), TrafficError> {
        if !self.loss_allowed {
            let stream = &self.streams[missing];
            return Err(TrafficError::Lost(Stamp { flow: stream.flow, sequence: stream.next }));
        }
        for stream in &mut self.streams {
            stream.lost += stream.sent - stream.next;
            stream.next = stream.sent;
        }
        Ok(())
    }

    fn accept(&mut self, stream: usize, packet: &[u8]) -> Result<(), TrafficError> {
        let stream = &mut self.streams[stream];
        // Packets that are flooded to all ports are not counted here.
        let ours = packet.len() >= 12
            && packet[..6] == stream.link.to
            && packet[6..12] == stream.link.from;
        if !ours {
            return Ok(());
        }
        let stamp = frames::read_stamp(packet).ok_or(TrafficError::Corrupt(packet.len()))?;
        if stamp.flow != stream.flow {
            // Late packets of `settle`, or of earlier traffic that was allowed to be lost.
            return Ok(());
        }
        if stamp.sequence < stream.next && self.loss_allowed {
            // Counted as lost when it was late.
            return Ok(());
        }
        if stamp.sequence < stream.next || stamp.sequence >= stream.sent {
            return Err(TrafficError::OutOfOrder(stamp));
        }
        if stamp.sequence > stream.next && !self.loss_allowed {
            return Err(TrafficError::Lost(Stamp { sequence: stream.next, ..stamp }));
        }
        stream.lost += stamp.sequence - stream.next;
        stream.next = stamp.sequence + 1;
        Ok(())
    }
}

/// Sends, waiting for room as often as it takes.
fn send_surely(guest: &mut AnyUserGuest, packet: &[u8]) -> Result<(), TrafficError> {
    let deadline = Instant::now() + ARRIVAL_LIMIT;
    while guest.send(packet)? == Sent::NoRoom {
        guest.flush();
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(TrafficError::Unreachable);
        }
        guest.wait_room(left)?;
    }
    Ok(())
}
