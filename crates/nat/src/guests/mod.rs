//! The ports that guests are behind: what the router remembers of each, and what waits for it.

mod addresses;
mod moves;
mod names;
mod notes;
mod state;

use ringway_net::{ETHERNET_HEADER_LEN, Nanos};

use crate::fragments::{Assembly, cut};
use crate::packet::{Fragment, Ip};
use crate::table::{Guest, Limits};
use state::GuestState;

pub(crate) use names::GuestNames;
pub use notes::{Note, Station};
pub(crate) use state::ADDRESSES_MAX;
pub use state::REPLIES_MAX;

/// All guests.
#[derive(Debug)]
pub(crate) struct Guests {
    all: Vec<Option<GuestState>>,
    /// When parts of datagrams have waited for too long.
    parts_until: Option<Nanos>,
    /// When the first guest is gone for good.
    ends_at: Option<Nanos>,
    /// How many datagrams were cut, from a number that others do not know.
    cut_count: u32,
    /// A guest has used an address, or uses one no more, since that was asked.
    has_news: bool,
}

impl Guests {
    /// Room for as many as there may be.
    pub fn new(limits: &Limits, cut_count: u32) -> Self {
        let all = (0..limits.guests).map(|_| None).collect();
        Self { all, parts_until: None, ends_at: None, cut_count, has_news: false }
    }

    /// Guests are behind that port from now on. One that there is no room for is ignored.
    pub fn add(&mut self, guest: Guest, name: &str, errors_per_second: u32) {
        if let Some(place) = self.all.get_mut(usize::from(guest.0)) {
            *place = Some(GuestState::new(name, errors_per_second));
        }
    }

    /// Forgets a port, whose name it was.
    pub fn remove(&mut self, guest: Guest) -> Option<String> {
        let gone = self.all.get_mut(usize::from(guest.0))?.take()?;
        self.forget_moves(guest);
        self.has_news = true;
        Some(gone.name)
    }

    fn one(&self, guest: Guest) -> Option<&GuestState> {
        self.all.get(usize::from(guest.0))?.as_ref()
    }

    fn one_mut(&mut self, guest: Guest) -> Option<&mut GuestState> {
        self.all.get_mut(usize::from(guest.0))?.as_mut()
    }

    /// All that are there, with their numbers.
    fn numbered(&self) -> impl Iterator<Item = (Guest, &GuestState)> {
        (0..).map(Guest).zip(&self.all).filter_map(|(guest, state)| Some((guest, state.as_ref()?)))
    }

    /// The name of the port that the guest is behind.
    pub fn name_of(&self, guest: Guest) -> Option<&str> {
        self.one(guest).map(|guest| guest.name.as_str())
    }

    /// Whether guests are behind a port with that name.
    pub fn has_port(&self, name: &str) -> bool {
        self.all.iter().flatten().any(|guest| guest.name == name)
    }

    /// Whether an address was used for the first time, or a guest has gone, since that was asked.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// A frame for a guest, cut if its packet is longer than the network's MTU.
    pub fn reply(&mut self, guest: Guest, frame: Vec<u8>, mtu: u16) {
        self.cut_count = self.cut_count.wrapping_add(1);
        let id = self.cut_count;
        if let Some(guest) = self.one_mut(guest) {
            let is_long = frame.len() > ETHERNET_HEADER_LEN + usize::from(mtu);
            guest.reply_all(if is_long { cut(&frame, mtu, id) } else { vec![frame] });
        }
    }

    /// A frame for all guests.
    pub fn reply_to_all(&mut self, frame: &[u8]) {
        let all = self.all.iter_mut().flatten();
        all.for_each(|guest| guest.reply_up_to(REPLIES_MAX, frame.to_vec()));
    }

    /// A frame for a guest of which more may wait than otherwise.
    pub fn reply_up_to(&mut self, most: usize, guest: Guest, frame: Vec<u8>) {
        if let Some(guest) = self.one_mut(guest) {
            guest.reply_up_to(most, frame);
        }
    }

    /// An error or a reset for a guest, if it has not had too many.
    pub fn refuse(&mut self, guest: Guest, now: Nanos, frame: impl FnOnce() -> Option<Vec<u8>>) {
        if let Some(guest) = self.one_mut(guest)
            && guest.errors.take(now)
            && let Some(frame) = frame()
        {
            guest.reply_up_to(REPLIES_MAX, frame);
        }
    }

    /// The frame that waits for the guest, besides those of its flows.
    pub fn first_reply(&self, guest: Guest) -> Option<&[u8]> {
        self.one(guest)?.replies.front().map(Vec::as_slice)
    }

    /// The guest has that frame, or will not get it.
    pub fn replied(&mut self, guest: Guest) {
        if let Some(guest) = self.one_mut(guest) {
            guest.replies.pop_front();
        }
    }

    /// A fragment of a datagram came from a guest, all of which is here.
    pub fn put_fragment(
        &mut self,
        guest: Guest,
        ip: &Ip<'_>,
        fragment: Fragment,
        now: Nanos,
    ) -> Assembly {
        let Some(guest) = self.one_mut(guest) else { return Assembly::Refused };
        let assembly = guest.assembler.put(ip, fragment, now);
        let deadline = guest.assembler.deadline();
        // One that is too early does no harm.
        self.parts_until = self.parts_until.into_iter().chain(deadline).min();
        assembly
    }

    /// When [`Self::forget_parts`] has something to do.
    pub fn deadline(&self) -> Option<Nanos> {
        self.parts_until
    }

    /// Parts whose others did not come are dropped.
    pub fn forget_parts(&mut self, now: Nanos) {
        let guests = self.all.iter_mut().flatten();
        let deadline = |guest: &mut GuestState| {
            guest.assembler.forget(now);
            guest.assembler.deadline()
        };
        self.parts_until = guests.filter_map(deadline).min();
    }
}
