//! Limits on the log lines that a guest and its front-end cause.
//!
//! A front-end that connects a thousand times a second, or breaks a queue and sets it up again,
//! would fill the disk with lines that say the same.

use std::fmt::Display;
use std::time::{Duration, Instant};

use tracing::warn;

/// Lines about one port in a row.
const LINES_MAX: u32 = 64;

/// The time of one line: so long after each, one more may be said.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Between two lines about addresses at a port; statistics count all that move.
const ADDRESS_EVERY: Duration = Duration::from_secs(60);

/// Lines that were said about a port lately.
#[derive(Debug)]
pub(super) struct Chatter {
    /// Lines whose time is not over.
    spent: u32,
    /// When the time of the first of them began.
    since: Instant,
    left_out: u64,
    /// When an address was last spoken of.
    address_said: Option<Instant>,
}

/// The verdict on a line.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// It is said, and so many before it were not.
    Say {
        left_out: u64,
    },
    /// It is the first one that is left out.
    Stop,
    LeaveOut,
}

impl Chatter {
    pub(super) fn new() -> Self {
        Self { spent: 0, since: Instant::now(), left_out: 0, address_said: None }
    }

    /// Says a line about the port, unless too much was said about it.
    pub(super) fn say(&mut self, port: &str, line: impl FnOnce()) {
        self.say_of(Some(port), line);
    }

    /// The same for what is no port.
    pub(super) fn say_of(&mut self, port: Option<&str>, line: impl FnOnce()) {
        match self.judge(Instant::now()) {
            Decision::Say { left_out: 0 } => line(),
            Decision::Say { left_out } => {
                warn!(port, "{left_out} lines were left out");
                line();
            }
            Decision::Stop => {
                let pause = LINE_EVERY * (LINES_MAX / 2);
                warn!(port, "too many lines: the next ones are left out for {pause:?} or longer");
            }
            Decision::LeaveOut => {}
        }
    }

    /// Warns of what the port's front-end or guest has done, unless too much was said about it.
    pub(super) fn complain(&mut self, port: &str, why: impl Display) {
        self.say(port, || warn!(port, "{why:#}"));
    }

    /// Says a line about an address that turned up at the port, unless one was said lately: two
    /// ports that both use it move it all the time.
    pub(super) fn say_address(&mut self, port: &str, line: impl FnOnce()) {
        let now = Instant::now();
        let is_new = self.address_said.is_none_or(|at| now.duration_since(at) >= ADDRESS_EVERY);
        if is_new {
            self.address_said = Some(now);
            self.say(port, line);
        }
    }

    fn judge(&mut self, now: Instant) -> Decision {
        let over = now.saturating_duration_since(self.since).as_secs() / LINE_EVERY.as_secs();
        let over = u32::try_from(over).unwrap_or(u32::MAX).min(self.spent);
        self.spent -= over;
        self.since = if self.spent == 0 { now } else { self.since + LINE_EVERY * over };
        // Once it is too much, there is silence for a while, instead of a line now and then.
        let most = if self.left_out == 0 { LINES_MAX } else { LINES_MAX / 2 };
        if self.spent >= most {
            self.left_out += 1;
            return if self.left_out == 1 { Decision::Stop } else { Decision::LeaveOut };
        }
        self.spent += 1;
        Decision::Say { left_out: std::mem::take(&mut self.left_out) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: Decision = Decision::Say { left_out: 0 };

    #[test]
    fn a_line_every_now_and_then_is_always_said() {
        let mut chatter = Chatter::new();
        let start = Instant::now();
        for at in 0..1000 {
            assert_eq!(chatter.judge(start + LINE_EVERY * at), SAID);
        }
    }

    #[test]
    fn an_address_that_goes_on_is_left_out_until_half_of_it_is_forgotten() {
        let mut chatter = Chatter::new();
        let start = Instant::now();
        for _ in 0..LINES_MAX {
            assert_eq!(chatter.judge(start), SAID);
        }
        assert_eq!(chatter.judge(start), Decision::Stop);
        let half = LINE_EVERY * (LINES_MAX / 2);
        for at_ms in 0..500 {
            let at = start + Duration::from_millis(at_ms * 64);
            assert_eq!(chatter.judge(at), Decision::LeaveOut, "{at_ms}");
        }
        let later = start + half + LINE_EVERY;
        assert_eq!(chatter.judge(later), Decision::Say { left_out: 501 });
        let more = (0..LINES_MAX).filter(|_| chatter.judge(later) == SAID).count();
        assert_eq!(more, (LINES_MAX / 2) as usize);
    }

    #[test]
    fn a_day_of_lines_is_bounded() {
        let mut chatter = Chatter::new();
        let start = Instant::now();
        let said = (0..86_400 * 10)
            .map(|tenth| chatter.judge(start + Duration::from_millis(100 * tenth)))
            .filter(|verdict| *verdict != Decision::LeaveOut)
            .count();
        assert!((80_000..90_000).contains(&said), "{said}");
    }
}
