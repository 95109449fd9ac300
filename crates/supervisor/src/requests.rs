//! Requests of front-ends: which of them wait, and which one of each the data plane has.
//!
//! One request of each front-end is whole at a time. It is handed over when a data plane runs that
//! knows the front-end's port, comes back when that data plane ends before it is done, and waits
//! for a moment where the kernel refused its file descriptors. While a fault is looked for they are
//! handed over one by one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::restart::RequestId;

/// Until a request whose file descriptors could not be sent is handed over again.
pub const HAND_OVER_AGAIN: Duration = Duration::from_millis(20);

/// All requests that are whole and not done, by the number of their front-end.
#[derive(Debug, Clone, Default)]
pub struct Requests {
    open: BTreeMap<u32, Request>,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    port: u16,
    number: u32,
    stage: RequestStage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestStage {
    /// It is handed over as soon as there is a data plane, or another one is done.
    InLine,
    /// The data plane does not know its port.
    Waits,
    /// It could not be sent, and waits until then.
    WaitsUntil(Instant),
    /// The data plane has it, or will have as soon as there is room for it.
    InHand,
}

impl Requests {
    /// A request of that front-end, at that port, is whole.
    pub fn add(&mut self, link: u32, port: u16, number: u32) {
        self.open.insert(link, Request { port, number, stage: RequestStage::InLine });
    }

    /// Its request is done, or it has gone.
    pub fn remove(&mut self, link: u32) {
        self.open.remove(&link);
    }

    /// Whether the data plane has this request of that front-end, and may say that it is done.
    #[must_use]
    pub fn is_in_hand(&self, link: u32, number: u32) -> bool {
        let is_it = |it: &Request| it.stage == RequestStage::InHand && it.number == number;
        self.open.get(&link).is_some_and(is_it)
    }

    /// It could not be sent.
    pub fn give_back(&mut self, link: u32, now: Instant) {
        if let Some(it) = self.open.get_mut(&link).filter(|it| it.stage == RequestStage::InHand) {
            it.stage = RequestStage::WaitsUntil(now + HAND_OVER_AGAIN);
        }
    }

    /// The data plane has ended: all wait for the next one. Those that it had.
    pub fn take_back(&mut self) -> Vec<RequestId> {
        let mut in_hand = Vec::new();
        for (&link, it) in &mut self.open {
            if it.stage == RequestStage::InHand {
                in_hand.push((link, it.number));
            }
            it.stage = RequestStage::InLine;
        }
        in_hand
    }

    /// The front-ends, with their ports, whose requests are handed over now: the data plane has
    /// them from now on. It knows some ports; `is_one_by_one`: it takes one, and no other before
    /// that is done.
    #[must_use]
    pub fn hand_over(
        &mut self,
        is_one_by_one: bool,
        knows: impl Fn(u16) -> bool,
        now: Instant,
    ) -> Vec<(u32, u16)> {
        let mut taken = Vec::new();
        let mut has_one = self.is_any_in_hand();
        for (&link, it) in &mut self.open {
            let is_ready = match it.stage {
                RequestStage::InLine | RequestStage::Waits => true,
                RequestStage::WaitsUntil(at) => at <= now,
                RequestStage::InHand => false,
            };
            if !is_ready {
                continue;
            }
            it.stage = match knows(it.port) {
                false => RequestStage::Waits,
                true if is_one_by_one && has_one => RequestStage::InLine,
                true => RequestStage::InHand,
            };
            if it.stage == RequestStage::InHand {
                has_one = true;
                taken.push((link, it.port));
            }
        }
        taken
    }

    /// When one that could not be sent is handed over again. Not one whose time has come: it goes
    /// in the next turn in which a data plane can take it.
    #[must_use]
    pub fn wake_at(&self, now: Instant) -> Option<Instant> {
        let at = |it: &Request| match it.stage {
            RequestStage::WaitsUntil(at) => Some(at).filter(|at| *at > now),
            RequestStage::InLine | RequestStage::Waits | RequestStage::InHand => None,
        };
        self.open.values().filter_map(at).min()
    }

    /// Whether the data plane has a request, or is about to get one.
    #[must_use]
    pub fn is_any_owed(&self) -> bool {
        self.open.values().any(|it| it.stage != RequestStage::Waits)
    }

    /// Whether the data plane has a request.
    #[must_use]
    pub fn is_any_in_hand(&self) -> bool {
        self.open.values().any(|it| it.stage == RequestStage::InHand)
    }

    /// Whether no front-end waits for an answer.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As while the data plane that could not be sent it ends, or does not know its port.
    #[test]
    fn a_request_whose_time_has_come_wakes_the_supervisor_once() {
        let (now, mut requests) = (Instant::now(), Requests::default());
        requests.add(1, 2, 3);
        assert_eq!(requests.hand_over(false, |_| true, now), [(1, 2)]);
        requests.give_back(1, now);
        let again = now + HAND_OVER_AGAIN;
        assert_eq!((requests.wake_at(now), requests.wake_at(again)), (Some(again), None));
        assert_eq!(requests.hand_over(false, |_| true, again), [(1, 2)]);
    }
}
