//! Who asks and who answers, when packets go to a peer and come from it by turns.
//!
//! In a long exchange without pauses questions and answers look the same, and so it counts who began. One
//! pause is no new beginning: an answer that comes late makes one as well. But who speaks again behind a pause,
//! having had the last word, asks; and so does who lets a pause pass each time before he speaks.

use super::Nanos;

/// After so long without a packet either way, in nanoseconds, the next one is a question: hardly an
/// answer takes a tenth of a second.
pub const SILENCE_NS: u64 = 100_000_000;

/// Shortest pause in nanoseconds that says something: longer than nearly all answers take.
pub const PAUSE_NS: u64 = 1_000_000;

/// Who is taken for the one that answers, and has let a pause pass so many times in a row, asks. Answers
/// that come late by chance come one by one.
const PAUSES: u32 = 8;

/// Whose turn it was first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Turns {
    /// When somebody last spoke, and whether it was to the peer.
    last: Option<(Nanos, bool)>,
    /// The peer is the one that answers.
    is_asked: bool,
    /// Times in a row that the one who does not ask has spoken behind a pause.
    pauses: u32,
    /// Packets that went to the peer since it last sent one.
    given: u32,
}

impl Turns {
    /// Packets have gone to the peer.
    pub fn to_peer(&mut self, now: Nanos, packets: u32) {
        self.spoke(now, true);
        self.given = self.given.saturating_add(packets);
    }

    /// Packets have come from the peer; `true`: as far as is known, it is one and answers a question.
    pub fn from_peer(&mut self, now: Nanos, packets: u32) -> bool {
        self.spoke(now, false);
        let given = core::mem::take(&mut self.given);
        self.is_asked && given == 1 && packets == 1
    }

    fn spoke(&mut self, now: Nanos, is_to_peer: bool) {
        let last = self.last.replace((now, is_to_peer));
        let (pause_ns, had_last_word) =
            last.map_or((SILENCE_NS, true), |(at, who)| (now.since(at), who == is_to_peer));
        let is_pause = pause_ns >= PAUSE_NS;
        if is_to_peer != self.is_asked {
            self.pauses = if is_pause { self.pauses + 1 } else { 0 };
        }
        let begins = had_last_word || pause_ns >= SILENCE_NS || self.pauses >= PAUSES;
        if is_pause && begins {
            (self.is_asked, self.pauses) = (is_to_peer, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The peer is asked and answers, or asks and is answered, by turns, with such a pause before each.
    /// How many of its packets were taken for answers.
    fn answers(turns: &mut Turns, now: &mut Nanos, rounds: u32, pauses_ns: [u64; 2]) -> u32 {
        let round = |_| {
            *now = now.plus(pauses_ns[0]);
            turns.to_peer(*now, 1);
            *now = now.plus(pauses_ns[1]);
            u32::from(turns.from_peer(*now, 1))
        };
        (0..rounds).map(round).sum()
    }

    #[test]
    fn who_breaks_a_silence_asks() {
        let (mut turns, mut now) = (Turns::default(), Nanos(7));
        assert_eq!(answers(&mut turns, &mut now, 100, [20_000, 30_000]), 100, "the first ever");
        now = now.plus(SILENCE_NS);
        assert!(!turns.from_peer(now, 1));
        assert_eq!(answers(&mut turns, &mut now, 100, [20_000, 30_000]), 0, "the peer has asked");
        assert_eq!(answers(&mut turns, &mut now, 100, [SILENCE_NS, 30_000]), 100);
    }

    #[test]
    fn who_speaks_again_asks() {
        let (mut turns, mut now) = (Turns::default(), Nanos(7));
        assert!(!turns.from_peer(now, 1));
        assert_eq!(answers(&mut turns, &mut now, 1, [20_000, 30_000]), 0, "the peer has begun");
        turns.to_peer(now, 1);
        assert_eq!(answers(&mut turns, &mut now, 1, [PAUSE_NS - 1, 30_000]), 0, "in one go");
        turns.to_peer(now, 1);
        now = now.plus(PAUSE_NS);
        turns.to_peer(now, 1);
        turns.from_peer(now, 1);
        assert_eq!(answers(&mut turns, &mut now, 100, [20_000, 30_000]), 100);
    }

    #[test]
    fn an_answer_that_is_late_is_no_question() {
        let (mut turns, mut now) = (Turns::default(), Nanos(7));
        for _ in 0..100 {
            assert_eq!(answers(&mut turns, &mut now, 100, [20_000, 30_000]), 100);
            assert_eq!(answers(&mut turns, &mut now, PAUSES - 1, [20_000, PAUSE_NS]), PAUSES - 1);
        }
    }

    #[test]
    fn who_lets_a_pause_pass_each_time_asks() {
        let (mut turns, mut now) = (Turns::default(), Nanos(7));
        assert!(!turns.from_peer(now, 1), "the peer has begun");
        let asked = answers(&mut turns, &mut now, 100, [SILENCE_NS - 1, 30_000]);
        assert_eq!(asked, 100 - PAUSES + 1);
        let asked = answers(&mut turns, &mut now, 100, [20_000, SILENCE_NS - 1]);
        assert_eq!(asked, PAUSES - 1);
    }

    #[test]
    fn only_one_packet_behind_one_packet_is_an_answer() {
        let (mut turns, now) = (Turns::default(), Nanos(7));
        turns.to_peer(now, 2);
        assert!(!turns.from_peer(now, 1), "two questions");
        turns.to_peer(now, 1);
        assert!(!turns.from_peer(now, 2), "two answers");
        turns.to_peer(now, 1);
        assert!(turns.from_peer(now, 1));
        assert!(!turns.from_peer(now, 1), "one more than was asked for");
    }
}
