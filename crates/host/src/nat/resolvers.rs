//! Which of the host's resolvers is asked.

use std::net::{IpAddr, SocketAddr};

use ringway_net::Nanos;

const DNS_PORT: u16 = 53;

/// A resolver that does not answer for so long is not asked again before the others, in
/// nanoseconds.
const SILENT_NS: u64 = 2_000_000_000;

/// The resolvers, in the order in which they are asked.
#[derive(Debug, Default)]
pub(crate) struct Resolvers {
    list: Vec<IpAddr>,
    /// Which one is asked now.
    at: usize,
}

/// A question that was not answered yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question {
    /// Which resolver it went to.
    at: usize,
    asked: Nanos,
    is_answered: bool,
}

impl Resolvers {
    pub(crate) fn set(&mut self, list: &[IpAddr]) {
        if self.list != list {
            (self.list, self.at) = (list.to_vec(), 0);
        }
    }

    /// Whom to ask; `None`: the host has no resolver.
    pub(crate) fn current(&self) -> Option<SocketAddr> {
        Some(SocketAddr::new(*self.list.get(self.at)?, DNS_PORT))
    }

    pub(crate) fn count(&self) -> usize {
        self.list.len()
    }

    /// A question goes to the current one.
    pub(crate) fn question(&self, now: Nanos) -> Question {
        Question { at: self.at, asked: now, is_answered: false }
    }

    /// The guest asks again on the same socket; `true`: the resolver was silent, so the question
    /// goes to [the one that is asked now](Self::current).
    pub(crate) fn asks_again(&mut self, question: &mut Question, now: Nanos) -> bool {
        let is_silent = !question.is_answered && now.since(question.asked) >= SILENT_NS;
        if question.is_answered || is_silent {
            let before = question.at;
            if is_silent {
                self.failed(question);
            }
            *question = Question { at: before, ..self.question(now) };
        }
        let is_moved = is_silent && question.at != self.at;
        if is_moved {
            question.at = self.at;
        }
        is_moved
    }

    /// It cannot be reached, or is silent.
    pub(crate) fn failed(&mut self, question: &Question) {
        if question.at == self.at && !self.list.is_empty() {
            self.at = (self.at + 1) % self.list.len();
        }
    }
}

impl Question {
    pub(crate) fn answered(&mut self) {
        self.is_answered = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_resolver_makes_room_for_the_next() {
        let mut all = Resolvers::default();
        assert_eq!(all.current(), None);
        let list: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        all.set(&list);
        let mut question = all.question(Nanos(0));
        assert!(!all.asks_again(&mut question, Nanos(1_000_000_000)), "it may still answer");
        assert!(all.asks_again(&mut question, Nanos(3_000_000_000)));
        assert_eq!(all.current(), Some(SocketAddr::new(list[1], 53)));
        question.answered();
        assert!(!all.asks_again(&mut question, Nanos(9_000_000_000)), "it does answer");
        assert!(!all.asks_again(&mut question, Nanos(10_000_000_000)));
        let late = all.question(Nanos(9));
        all.failed(&late);
        all.failed(&late);
        assert_eq!(all.current(), Some(SocketAddr::new(list[0], 53)), "once for each");
        all.set(&list[..1]);
        assert_eq!(all.current(), Some(SocketAddr::new(list[0], 53)));
    }
}
