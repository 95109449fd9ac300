//! The state that the router remembers of a port that guests are behind.

use std::collections::VecDeque;
use std::net::IpAddr;

use ringway_net::{MacAddress, Nanos};

use crate::fragments::Assembler;
use crate::table::{Guest, Rate};

/// Most frames that wait for one guest besides those of its flows; more are dropped.
pub const REPLIES_MAX: usize = 32;

/// Most addresses of one guest and family that are remembered; the one that was used longest ago
/// goes.
pub(crate) const ADDRESSES_MAX: usize = 16;

/// How often all stations are asked whether they have what the guest is offered, in a second; twice
/// as often at once.
const QUESTIONS_PER_SECOND: u32 = 1;

/// How many connections that the router does not know are reset of a guest that has just come, in
/// its first seconds: it has had them elsewhere.
const RESETS_AT_ARRIVAL: u32 = 2_000;
const ARRIVAL_NS: u64 = 10_000_000_000;

#[derive(Debug)]
pub(super) struct GuestState {
    pub name: String,
    pub assembler: Assembler,
    pub replies: VecDeque<Vec<u8>>,
    /// Errors and resets.
    pub errors: Rate,
    /// Questions for addresses that it is offered.
    pub questions: Rate,
    /// It was offered an address itself.
    pub asks_by_dhcp: bool,
    /// Addresses that it has used, the last one first.
    pub uses: Vec<AddressUse>,
    /// A ring of its port runs. Others than ports of virtual machines have no rings, and run.
    pub runs: bool,
    /// Where its station is that has moved away, until another guest runs here.
    pub moved_to: Option<Guest>,
    /// When it is taken for granted that its guest does not come back.
    pub ends_at: Option<Nanos>,
    /// The guest has come so lately that so many of its old connections are reset until then.
    arrival: Option<(Nanos, u32)>,
}

/// An address of a guest, with the station that has used it last, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct AddressUse {
    pub address: IpAddr,
    pub mac: MacAddress,
    pub used: Nanos,
}

impl GuestState {
    pub fn new(name: &str, errors_per_second: u32) -> Self {
        Self {
            name: name.to_owned(),
            assembler: Assembler::default(),
            replies: VecDeque::with_capacity(REPLIES_MAX),
            errors: Rate::new(errors_per_second),
            questions: Rate::new(QUESTIONS_PER_SECOND),
            asks_by_dhcp: false,
            uses: Vec::with_capacity(2 * ADDRESSES_MAX),
            runs: true,
            moved_to: None,
            ends_at: None,
            arrival: None,
        }
    }

    /// A guest has come.
    pub fn arrives(&mut self, now: Nanos) {
        self.arrival = Some((now.plus(ARRIVAL_NS), RESETS_AT_ARRIVAL));
    }

    /// Whether it has just come, and one more of its old connections is to be reset at once.
    pub fn takes_arrival(&mut self, now: Nanos) -> bool {
        let left = self.arrival.filter(|(until, left)| now < *until && *left > 0);
        self.arrival = left.map(|(until, left)| (until, left - 1));
        left.is_some()
    }

    /// A frame, unless so many wait.
    pub fn reply_up_to(&mut self, most: usize, frame: Vec<u8>) {
        if self.replies.len() < most {
            self.replies.push_back(frame);
        }
    }

    /// All parts of one datagram: none of them is of use without the others.
    pub fn reply_all(&mut self, parts: Vec<Vec<u8>>) {
        if self.replies.len() < REPLIES_MAX {
            self.replies.extend(parts);
        }
    }

    /// It has used that address, which is one of its network and no other guest's.
    pub fn learn(&mut self, address: IpAddr, mac: MacAddress, used: Nanos) {
        let uses = &mut self.uses;
        let now = AddressUse { address, mac, used };
        if let Some(place) = uses.iter().position(|it| it.address == address) {
            uses[..=place].rotate_right(1);
            uses[0] = now;
            return;
        }
        let is_like = |it: &AddressUse| it.address.is_ipv4() == address.is_ipv4();
        if uses.iter().filter(|it| is_like(it)).count() == ADDRESSES_MAX
            && let Some(oldest) = uses.iter().rposition(is_like)
        {
            uses.remove(oldest);
        }
        uses.insert(0, now);
    }

    /// Another guest has it now.
    pub fn forget(&mut self, address: IpAddr) {
        self.uses.retain(|it| it.address != address);
    }

    /// When it has used that address last, if it has.
    pub fn used(&self, address: IpAddr) -> Option<Nanos> {
        let uses = self.uses.iter().find(|it| it.address == address);
        uses.map(|it| it.used)
    }
}
