//! Messages to a data plane: sent now, or as soon as that is possible.
//!
//! It is started with all file descriptors that there are, and told their numbers: what travels
//! counts against a limit of the user, which others of that user may have reached. What has changed
//! since its start travels.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringway_supervisor::outbox::{Lane, Owed, Sending};
use ringway_supervisor::wire::{Batch, GIVEN_MAX, List, ToData, WIRE_VERSION_LOGS, pieces};
use rustix::io::Errno;

use super::order::Order;
use super::plane::{OutgoingFd, Plane};

/// Until what could not be sent is tried again.
const SEND_AGAIN: Duration = Duration::from_millis(1);

/// The first version of what both speak that has batches and stations, and asks whether it goes on.
pub const NEWER: u16 = 2;

impl Plane {
    /// Says what it was started with, and its settings; what follows goes together until
    /// [`is_filled`](Self::is_filled).
    pub fn begin_filling(&mut self, config: &ToData) {
        if self.socket.speaks < NEWER {
            return self.tell(config, vec![]);
        }
        if self.socket.speaks >= WIRE_VERSION_LOGS {
            self.tell(&ToData::Speaks { version: self.socket.speaks }, vec![]);
        }
        let numbers: Vec<u32> =
            self.process.given.keys().map(|number| number.unsigned_abs()).collect();
        // Also if there are none: by that a data plane knows what its supervisor is told.
        for at in (0..numbers.len().max(1)).step_by(GIVEN_MAX) {
            let some = numbers[at..].iter().take(GIVEN_MAX).copied();
            let fds = List::new(some.collect()).unwrap_or_default();
            self.tell(&ToData::Given { fds }, vec![]);
        }
        self.tell(config, vec![]);
        self.socket.batch = Some((Batch::default(), vec![]));
    }

    /// Asks whether all workers go on.
    pub fn ask_whether_it_goes_on(&mut self) {
        match self.socket.speaks {
            NEWER.. => self.tell(&ToData::DoesItGoOn {}, vec![]),
            _ => self.watch.goes_on(),
        }
    }

    pub fn is_filled(&mut self) {
        self.send_batch();
        self.socket.batch = None;
    }

    /// Rings may start, there where those positions say. Descriptors that it was started with and
    /// does not have by now are closed.
    pub fn go(&mut self, positions: &[u8], journal: &Arc<OwnedFd>) {
        for (is_last, positions) in pieces(positions) {
            let fds = is_last.then(|| OutgoingFd::Own(journal.clone()));
            self.tell(&ToData::Go { is_last, positions }, fds.into_iter().collect());
        }
        self.process.given.clear();
    }

    /// Gives it an order of that number, which it answers.
    pub fn order(&mut self, number: u32, order: Order, message: &ToData, fds: Vec<OutgoingFd>) {
        self.debts.orders.insert(number, order);
        self.tell(message, fds);
    }

    /// Sends it, now or when that is possible.
    pub fn tell(&mut self, message: &ToData, fds: Vec<OutgoingFd>) {
        let (bytes, lane) = (message.encode(), message.lane());
        let owed: Vec<Owed> = message.owed().into_iter().collect();
        let numbers = self.take_numbers_of(&fds);
        if self.socket.batch.is_some() {
            for _ in 0..2 {
                if let Some(((batch, all_owed), numbers)) =
                    self.socket.batch.as_mut().zip(numbers.as_ref())
                    && batch.push(&bytes, numbers)
                {
                    return all_owed.extend(owed);
                }
                self.send_batch();
            }
        }
        let mut one = Batch::default();
        match numbers.filter(|numbers| !numbers.is_empty() && one.push(&bytes, numbers)) {
            Some(_) => {
                let bytes = one.take().map(|batch| batch.encode()).unwrap_or_default();
                self.socket.outbox.push((bytes, vec![]), lane, owed);
            }
            None => self.socket.outbox.push((bytes, fds), lane, owed),
        }
        self.flush();
    }

    /// The numbers under which it has them, if it was started with all of them. They are named
    /// once: what it has taken has no number any more.
    fn take_numbers_of(&mut self, fds: &[OutgoingFd]) -> Option<Vec<u32>> {
        let numbers: Vec<RawFd> = fds.iter().map(|fd| fd.as_fd().as_raw_fd()).collect();
        let has_all = numbers.iter().all(|number| self.process.given.contains_key(number));
        if self.socket.speaks < NEWER || !has_all {
            return None;
        }
        numbers.iter().for_each(|number| _ = self.process.given.remove(number));
        Some(numbers.into_iter().map(RawFd::unsigned_abs).collect())
    }

    fn send_batch(&mut self) {
        let Some((batch, owed)) = &mut self.socket.batch else { return };
        let (batch, owed) = (batch.take(), std::mem::take(owed));
        if let Some(batch) = batch {
            self.socket.outbox.push((batch.encode(), vec![]), Lane::All, owed);
        }
        self.flush();
    }

    /// Sends what waits, as far as that is possible.
    pub fn flush(&mut self) {
        let channel = &self.socket.channel;
        self.socket.outbox.flush(Instant::now(), |(bytes, fds)| {
            let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            match channel.try_send(bytes, &borrowed) {
                Ok(()) => Sending::Left,
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => Sending::NoRoom,
                Err(Errno::TOOMANYREFS) => Sending::NoDescriptors,
                // It has ended, which is noticed elsewhere.
                Err(_) => Sending::Ended,
            }
        });
    }

    /// Front-ends whose requests could not be sent: see [`Outbox::take_given_back`].
    pub fn take_given_back(&mut self) -> Vec<u32> {
        self.socket.outbox.take_given_back()
    }

    /// It has answered.
    pub fn is_answered(&mut self, owed: Owed) {
        self.socket.outbox.is_answered(owed);
    }

    /// See [`Outbox::forget_frame`].
    pub fn forget_frame(&mut self, link: u32) {
        self.socket.outbox.forget_frame(link);
    }

    /// Whether all that was to be sent is sent.
    pub fn is_told(&self) -> bool {
        self.socket.outbox.is_empty()
    }

    /// When to try again to send.
    pub fn next_flush(&self) -> Option<Instant> {
        (!self.socket.outbox.is_empty()).then(|| Instant::now() + SEND_AGAIN)
    }
}

#[cfg(test)]
mod tests {
    use ringway_supervisor::wire::Bytes;
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::process::getpid;

    use super::*;
    use crate::channel::{Channel, Packet};

    /// As a tap that is opened again while all that there is goes to the next data plane.
    #[test]
    fn a_descriptor_is_named_once_and_travels_from_then_on() {
        let (ours, theirs) = Channel::pair().expect("sockets");
        let theirs = Channel::over(theirs);
        let mut plane = Plane::of(getpid(), ours).expect("this process");
        let fd = OutgoingFd::Own(Arc::new(eventfd(0, EventfdFlags::CLOEXEC).expect("one")));
        let number = fd.as_fd().as_raw_fd();
        (plane.process.given, plane.socket.speaks) = ([(number, fd.clone())].into(), NEWER);
        let port = ToData::Port { order: 1, port: 2, spec: Bytes::default() };
        for is_filling in [true, false] {
            plane.socket.batch = is_filling.then(Default::default);
            plane.tell(&port, vec![fd.clone()]);
            plane.is_filled();
        }
        let next = || theirs.receive_with_fds(false).expect("a message");
        let Packet { bytes, fds, .. } = next();
        let Ok(ToData::Batch { parts }) = ToData::decode_with(&bytes, fds.len()) else {
            panic!("it is told of in a batch");
        };
        let named = Batch::parts(parts.as_slice()).expect("a part");
        assert_eq!(named, [(port.clone(), vec![number.unsigned_abs()])]);
        let Packet { bytes, fds, .. } = next();
        assert_eq!((ToData::decode_with(&bytes, fds.len()), fds.len()), (Ok(port), 1));
    }
}
