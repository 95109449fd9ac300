//! Messages that wait to be sent to a data plane, and since when it owes answers.
//!
//! The kernel may have no room for a message, or take no file descriptors because too many of this
//! user are on their way between processes. Neither is the data plane's fault, so an answer is owed
//! from the moment that the message has left. While descriptors are refused, only what must not go
//! past their message waits with it; a front-end's request is given back.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use crate::wire::ToData;

/// An answer that is owed: to an order, to a question, to the request of a front-end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owed {
    /// The order's number.
    Order(u32),
    /// The question's number.
    Ask(u32),
    /// The front-end's number: it has one request at a time.
    Frame(u32),
}

/// Messages of one lane keep their order; those of others may go past them while descriptors are
/// refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Nothing goes past such a message.
    All,
    /// About one port.
    Port(u16),
    /// The same, and brings a front-end: what is about that one does not go past it.
    Link {
        /// The port's number.
        port: u16,
        /// The front-end's number.
        link: u32,
    },
    /// One question.
    Ask(u32),
    /// About one front-end: its request, or that it has gone.
    Frame(u32),
}

impl Lane {
    /// Lanes whose messages wait while one of this lane does.
    fn held(self) -> impl Iterator<Item = Self> {
        let lanes = match self {
            Self::Link { port, link } => [Self::Port(port), Self::Frame(link)].map(Some),
            lane => [Some(lane), None],
        };
        lanes.into_iter().flatten()
    }

    fn waits_behind(self, held: &[Self]) -> bool {
        held.contains(&match self {
            Self::Link { port, .. } => Self::Port(port),
            lane => lane,
        })
    }
}

/// The outcome of sending a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sending {
    /// It is on its way.
    Left,
    /// There is no room for any message.
    NoRoom,
    /// Its file descriptors are refused.
    NoDescriptors,
    /// The other end is closed.
    Ended,
}

/// A message, with whatever belongs to it.
#[derive(Debug)]
struct OutgoingMessage<M> {
    message: M,
    lane: Lane,
    owed: Vec<Owed>,
}

/// See the module.
#[derive(Debug)]
pub struct Outbox<M> {
    waiting: VecDeque<OutgoingMessage<M>>,
    owed: BTreeMap<Owed, Instant>,
    given_back: Vec<u32>,
}

impl<M> Default for Outbox<M> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), owed: BTreeMap::new(), given_back: Vec::new() }
    }
}

impl<M> Outbox<M> {
    /// Appends a message; `owed`: the answers that it asks for.
    pub fn push(&mut self, message: M, lane: Lane, owed: Vec<Owed>) {
        self.waiting.push_back(OutgoingMessage { message, lane, owed });
    }

    /// Sends what can be sent.
    pub fn flush(&mut self, now: Instant, mut send: impl FnMut(&M) -> Sending) {
        let (mut at, mut held) = (0, Vec::new());
        while let Some(outgoing) = self.waiting.get(at) {
            if outgoing.lane.waits_behind(&held) {
                held.extend(outgoing.lane.held());
                at += 1;
                continue;
            }
            match (send(&outgoing.message), outgoing.lane) {
                (Sending::Left, _) => {
                    let outgoing = self.waiting.remove(at);
                    let owed = outgoing.into_iter().flat_map(|outgoing| outgoing.owed);
                    self.owed.extend(owed.map(|owed| (owed, now)));
                }
                (Sending::NoRoom, _) | (Sending::NoDescriptors, Lane::All) => return,
                (Sending::NoDescriptors, Lane::Frame(link)) => {
                    self.waiting.remove(at);
                    self.given_back.push(link);
                }
                (Sending::NoDescriptors, lane) => {
                    held.extend(lane.held());
                    at += 1;
                }
                (Sending::Ended, _) => return self.waiting.clear(),
            }
        }
    }

    /// Front-ends whose requests could not be sent, since this was called last.
    pub fn take_given_back(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.given_back)
    }

    /// It has answered.
    pub fn is_answered(&mut self, owed: Owed) {
        self.owed.remove(&owed);
    }

    /// The front-end is gone: its request is not sent any more, and no answer is waited for.
    pub fn forget_frame(&mut self, link: u32) {
        self.waiting.retain(|outgoing| outgoing.lane != Lane::Frame(link));
        self.owed.remove(&Owed::Frame(link));
    }

    /// Since when the oldest answer is owed.
    pub fn oldest(&self) -> Option<Instant> {
        self.owed.values().min().copied()
    }

    /// Whether everything has left.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Nothing is sent any more.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }
}

impl ToData {
    /// The lane whose messages it must not overtake.
    pub fn lane(&self) -> Lane {
        match self {
            Self::Port { port, .. } | Self::Remove { port, .. } | Self::Change { port, .. } => {
                Lane::Port(*port)
            }
            Self::Link { port, link, .. } => Lane::Link { port: *port, link: *link },
            Self::Ask { ask, .. } => Lane::Ask(*ask),
            Self::Frame { link, .. } | Self::Unlink { link, .. } => Lane::Frame(*link),
            _ => Lane::All,
        }
    }

    /// The answer that it asks for.
    pub fn owed(&self) -> Option<Owed> {
        match self {
            Self::Port { order, .. }
            | Self::Remove { order, .. }
            | Self::Change { order, .. }
            | Self::Link { order, .. }
            | Self::Unlink { order, .. }
            | Self::LinksDown { order } => Some(Owed::Order(*order)),
            Self::Ask { ask, .. } => Some(Owed::Ask(*ask)),
            Self::Frame { link, .. } => Some(Owed::Frame(*link)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Sends to a kernel that takes no descriptors, in which odd messages are those with some.
    fn refusing(sent: &mut Vec<u32>) -> impl FnMut(&u32) -> Sending + '_ {
        |message| match message % 2 {
            1 => Sending::NoDescriptors,
            _ => {
                sent.push(*message);
                Sending::Left
            }
        }
    }

    #[test]
    fn an_answer_is_owed_from_the_moment_the_message_has_left() {
        let (start, mut outbox) = (Instant::now(), Outbox::default());
        outbox.push(1, Lane::Port(3), vec![Owed::Order(7)]);
        outbox.push(2, Lane::Ask(8), vec![Owed::Ask(8)]);
        outbox.flush(start, |_| Sending::NoRoom);
        assert_eq!((outbox.oldest(), outbox.is_empty()), (None, false));
        let minute = start + Duration::from_secs(60);
        outbox.flush(minute, refusing(&mut Vec::new()));
        assert_eq!((outbox.oldest(), outbox.is_empty()), (Some(minute), false));
        outbox.is_answered(Owed::Ask(8));
        assert_eq!(outbox.oldest(), None, "of the order that is still here");
        outbox.flush(minute, |_| Sending::Left);
        assert_eq!((outbox.oldest(), outbox.is_empty()), (Some(minute), true));
    }

    #[test]
    fn only_what_must_not_go_past_refused_descriptors_waits() {
        let (now, mut outbox) = (Instant::now(), Outbox::default());
        let lanes = [
            (1, Lane::Port(1)),
            (2, Lane::Port(1)),
            (4, Lane::Port(2)),
            (3, Lane::Frame(5)),
            (6, Lane::Frame(6)),
            (8, Lane::All),
            (5, Lane::All),
            (10, Lane::Port(2)),
        ];
        lanes.into_iter().for_each(|(message, lane)| outbox.push(message, lane, vec![]));
        let mut sent = Vec::new();
        outbox.flush(now, refusing(&mut sent));
        assert_eq!(sent, [4, 6, 8]);
        assert_eq!((outbox.take_given_back(), outbox.take_given_back()), (vec![5], vec![]));
        sent.clear();
        outbox.flush(now, |message| {
            sent.push(*message);
            Sending::Left
        });
        assert_eq!((sent, outbox.is_empty()), (vec![1, 2, 5, 10], true));
    }

    /// The port's number was that of a tap, which was removed before its descriptors could be sent.
    #[test]
    fn nothing_about_a_front_end_goes_past_the_message_that_brings_it() {
        let (now, mut outbox) = (Instant::now(), Outbox::default());
        let link = Lane::Link { port: 1, link: 5 };
        let lanes = [
            (1, Lane::Port(1)),
            (2, link),
            (4, Lane::Frame(5)),
            (6, Lane::Frame(6)),
            (8, Lane::Link { port: 2, link: 7 }),
            (10, Lane::Frame(7)),
        ];
        lanes.into_iter().for_each(|(message, lane)| outbox.push(message, lane, vec![]));
        let mut sent = Vec::new();
        outbox.flush(now, refusing(&mut sent));
        assert_eq!(sent, [6, 8, 10]);
        outbox.flush(now, |message| {
            sent.push(*message);
            Sending::Left
        });
        assert_eq!((sent, outbox.is_empty()), (vec![6, 8, 10, 1, 2, 4], true));
    }

    #[test]
    fn a_front_end_that_has_gone_is_owed_nothing() {
        let (now, mut outbox) = (Instant::now(), Outbox::default());
        outbox.push(2, Lane::Frame(1), vec![Owed::Frame(1)]);
        outbox.flush(now, |_| Sending::Left);
        outbox.push(4, Lane::Frame(2), vec![Owed::Frame(2)]);
        outbox.forget_frame(1);
        outbox.forget_frame(2);
        assert_eq!((outbox.oldest(), outbox.is_empty()), (None, true));
        outbox.push(6, Lane::All, vec![]);
        outbox.flush(now, |_| Sending::Ended);
        assert!(outbox.is_empty());
    }
}
