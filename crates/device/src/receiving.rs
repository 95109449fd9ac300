//! Questions about a port's receiveq: whether requests are among its packets, and what its buffers
//! are like.

use crate::port::either;
use crate::{AnyGuestPort, ToGuest};

impl AnyGuestPort {
    /// Looks for requests ([`ringway_net::is_request`]) among packets to the guest, or no more.
    pub fn watch_requests(&mut self, is_watching: bool) {
        either!(self, port => if let Some(to_guest) = &mut port.to_guest {
            to_guest.requests.watch(is_watching);
        });
    }

    /// Whether there was a request since the last time asked; `None`: it is not known.
    #[inline]
    pub fn take_request(&mut self) -> Option<bool> {
        either!(self, port => port.to_guest.as_mut().and_then(|to| to.requests.take()))
    }

    /// See [`ToGuest::never_fits`].
    pub fn never_fits(&self) -> bool {
        either!(self, port => port.to_guest.as_ref().is_some_and(ToGuest::never_fits))
    }

    /// Units of work that buffers of many elements took in addition, since this was last called.
    #[inline]
    pub fn take_extra_units(&mut self) -> u32 {
        either!(self, port => match &mut port.to_guest {
            Some(to_guest) => std::mem::take(&mut to_guest.lists.window.extra_units),
            None => 0,
        })
    }
}
