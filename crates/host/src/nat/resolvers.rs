//! The choice of the resolver that is asked, among those of the host.
//!
//! Limits: of one socket [`MESSAGES_MAX`] questions are remembered that were not answered, of
//! [`MESSAGE_LEN_MAX`] bytes each; others are asked again only when the guest does.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use ringway_nat::Guest;
use ringway_net::Nanos;

/// After so long without an answer the next resolver is asked, and is the guest's first one from
/// then on; in nanoseconds.
pub(crate) const SILENT_NS: u64 = 2_000_000_000;

const MESSAGES_MAX: usize = 4;
const MESSAGE_LEN_MAX: usize = 1232;

/// Where a message of DNS has what it is (RFC 1035 §4.1.1).
const FLAGS_AT: usize = 2;
const CODE_AT: usize = 3;
const IS_ANSWER: u8 = 0x80;
const CODE: u8 = 0x0f;

/// The resolver failed, does not do that, or does not do it for us.
const NOT_MY_ANSWERS: [u8; 3] = [2, 4, 5];

/// The resolvers, in the order in which they are asked.
#[derive(Debug, Default)]
pub(crate) struct Resolvers {
    list: Vec<SocketAddr>,
    /// The resolver that a guest asks first, if it is not the first one: a guest may ask what a
    /// resolver does not answer, which is no reason for the others.
    first: BTreeMap<Guest, usize>,
}

/// A question of a socket to a resolver.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    guest: Guest,
    /// The resolver it goes to, and how many were tried since the guest has asked.
    at: usize,
    tried: usize,
    asked: Nanos,
    /// Questions that were not answered.
    pub(crate) messages: Vec<Vec<u8>>,
    /// It is looked at when its time has come.
    pub(crate) is_watched: bool,
}

impl Resolvers {
    pub(crate) fn set(&mut self, list: &[SocketAddr]) {
        if self.list != list {
            (self.list, self.first) = (list.to_vec(), BTreeMap::new());
        }
    }

    /// Where that question goes; `None`: the host has no resolver.
    pub(crate) fn place(&self, question: &Question) -> Option<SocketAddr> {
        self.list.get(question.at).copied()
    }

    /// A question goes to the one that its guest asks first.
    pub(crate) fn question(&self, guest: Guest, now: Nanos) -> Question {
        let (at, messages) = (self.first_of(guest), Vec::new());
        Question { guest, at, tried: 1, asked: now, messages, is_watched: false }
    }

    /// The question goes to the next one now; `false`: all were tried.
    pub(crate) fn move_on(&self, question: &mut Question, now: Nanos) -> bool {
        if question.tried >= self.list.len() {
            return false;
        }
        question.at = (question.at + 1) % self.list.len();
        (question.tried, question.asked) = (question.tried + 1, now);
        true
    }

    fn first_of(&self, guest: Guest) -> usize {
        self.first.get(&guest).copied().unwrap_or(0)
    }

    /// It cannot be reached, or is silent: that guest asks others before it from now on.
    pub(crate) fn failed(&mut self, question: &Question) {
        if question.at == self.first_of(question.guest) && !self.list.is_empty() {
            self.first.insert(question.guest, (question.at + 1) % self.list.len());
        }
    }
}

impl Question {
    /// The guest asks that, of whichever resolver is asked by now.
    pub(crate) fn ask(&mut self, message: Vec<u8>, now: Nanos) {
        (self.tried, self.asked) = (1, now);
        self.messages.retain(|known| *known != message);
        if self.messages.len() < MESSAGES_MAX && message.len() <= MESSAGE_LEN_MAX {
            self.messages.push(message);
        }
    }

    /// When it has waited for too long.
    pub(crate) fn late_at(&self) -> Nanos {
        self.asked.plus(SILENT_NS)
    }

    /// Whether that message is none of an answer to what is remembered: the next resolver may know
    /// more. Otherwise the guest gets it, and what it answers is not asked any more.
    pub(crate) fn is_no_answer(&mut self, message: &[u8]) -> bool {
        let code = message.get(CODE_AT).map_or(0, |byte| byte & CODE);
        let is_answer = message.get(FLAGS_AT).is_some_and(|byte| byte & IS_ANSWER != 0);
        let number = message.get(..FLAGS_AT);
        let is_known = self.messages.iter().any(|asked| asked.get(..FLAGS_AT) == number);
        if is_answer && is_known && NOT_MY_ANSWERS.contains(&code) {
            return true;
        }
        self.messages.retain(|asked| asked.get(..FLAGS_AT) != number);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUEST: Guest = Guest(1);

    fn resolvers() -> Resolvers {
        let mut all = Resolvers::default();
        all.set(&[([10, 0, 0, 1], 53).into(), ([10, 0, 0, 2], 53).into()]);
        all
    }

    #[test]
    fn each_is_tried_once_for_a_question_and_the_one_that_failed_last_from_then_on() {
        let mut all = resolvers();
        let [one, two] = [all.list[0], all.list[1]];
        let mut question = all.question(GUEST, Nanos(0));
        assert_eq!(all.place(&question), Some(one));
        assert!(all.move_on(&mut question, Nanos(1)));
        assert_eq!(all.place(&question), Some(two));
        assert!(!all.move_on(&mut question, Nanos(2)), "all were tried");
        let late = all.question(GUEST, Nanos(9));
        all.failed(&late);
        all.failed(&late);
        assert_eq!(all.place(&all.question(GUEST, Nanos(9))), Some(two), "once for each");
        let other = all.question(Guest(2), Nanos(9));
        assert_eq!(all.place(&other), Some(one), "another guest has heard no silence");
        question.ask(vec![0; 12], Nanos(9));
        assert!(all.move_on(&mut question, Nanos(10)), "the guest asks again");
        all.set(&[one]);
        assert_eq!(all.place(&all.question(GUEST, Nanos(0))), Some(one));
        all.set(&[]);
        assert_eq!(all.place(&all.question(GUEST, Nanos(0))), None);
    }

    #[test]
    fn answers_are_known_by_their_number_and_refusals_by_their_code() {
        let mut question = resolvers().question(GUEST, Nanos(0));
        let ask = |number: u8| [&[number, number, 1, 0][..], &[0; 8]].concat();
        let answer =
            |number: u8, code: u8| [&[number, number, 0x81, 0x80 | code][..], &[0; 8]].concat();
        for number in 0..6 {
            question.ask(ask(number), Nanos(0));
            question.ask(ask(number), Nanos(0));
        }
        question.ask(vec![9; 1233], Nanos(0));
        assert_eq!(question.messages.len(), MESSAGES_MAX);
        for code in [2, 4, 5] {
            assert!(question.is_no_answer(&answer(1, code)));
            let is_moved = question.is_no_answer(&answer(5, code));
            assert!(!is_moved, "it cannot be asked again: its guest hears that");
        }
        assert_eq!(question.messages.len(), MESSAGES_MAX);
        // No such name, and one that was cut.
        for (number, code) in [(1, 3), (2, 0)] {
            assert!(!question.is_no_answer(&answer(number, code)));
        }
        assert_eq!(question.messages, [ask(0), ask(3)]);
        assert!(!question.is_no_answer(&[]) && !question.is_no_answer(&[0, 0]));
    }
}
