//! The way between the guest and the router.

use std::collections::VecDeque;

use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;

/// A small generator (splitmix64).
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % limit.max(1)
    }

    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

#[derive(Debug, Default)]
pub struct Wire {
    pub to_guest: VecDeque<Vec<u8>>,
    pub from_guest: VecDeque<Vec<u8>>,
    /// The number of frames of 100 that are lost, that come twice, and that come late.
    pub lost: u64,
    pub doubled: u64,
    pub late: u64,
    held: Vec<Vec<u8>>,
}

impl Wire {
    /// Loses, doubles and reorders.
    pub fn impair(&mut self, frames: Vec<Vec<u8>>, random: &mut Random) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        for frame in frames {
            if random.percent(self.lost) {
                continue;
            }
            if random.percent(self.doubled) {
                out.push(frame.clone());
            }
            out.push(frame);
            if out.len() > 1 && random.percent(self.late) {
                let other = usize::try_from(random.below(out.len() as u64)).unwrap();
                let last = out.len() - 1;
                out.swap(other, last);
            }
        }
        out
    }
}

pub struct Received(Vec<u8>);
pub struct Sent<'a>(&'a mut VecDeque<Vec<u8>>);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Sent<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let result = f(&mut frame);
        self.0.push_back(frame);
        result
    }
}

impl Device for Wire {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sent<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sent<'_>)> {
        let frame = self.to_guest.pop_front()?;
        Some((Received(frame), Sent(&mut self.from_guest)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sent<'_>> {
        (self.from_guest.len() < 64).then_some(Sent(&mut self.from_guest))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}
