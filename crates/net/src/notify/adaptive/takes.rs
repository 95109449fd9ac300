//! The side that takes: after how many it wants to hear, and when it looks by itself.

use super::super::linger::{ANSWER_NS, ASKED_NS, TAKER_WAIT};
use super::super::{Cause, NOTHING, Nanos, Plan, Visit, arm_after};
use super::{Adaptive, Company};

impl Adaptive {
    /// Decides for the side that takes.
    pub(super) fn take(&mut self, visit: Visit) -> Plan {
        if visit.more {
            self.wake_at = None;
            return Plan::COME_BACK;
        }
        let beside = self.look_beside(visit.now);
        // Where waiting spares little, nobody who asks waits: neither for an answer nor for the guest to wake up again.
        let answer_ns = if self.linger.is_slow() { ASKED_NS } else { ANSWER_NS };
        self.is_held_off = self.lingers() && self.is_asked(visit.now, answer_ns);
        if self.is_held_off {
            self.linger.forget();
            self.wake_at = None;
            let long = u32::try_from(core::mem::take(&mut self.long)).unwrap_or(u32::MAX);
            if self.linger.is_slow() && long > 0 {
                // Answers between them do not make it faster.
                self.linger.told(visit.now, long);
                self.linger.measure();
            }
            return NOTHING;
        }
        let due = self.wake_at.take();
        let is_timer = due.is_some_and(|wake_at| visit.now >= wake_at);
        let is_long = 2 * core::mem::take(&mut self.long) >= u64::from(visit.moved);
        let is_long = is_long && visit.moved > 0;
        let is_lingering = self.lingers();
        match visit.moved {
            moved if is_lingering => {
                let waited_ns = is_timer.then(|| self.linger.wait_ns());
                // Where no timer ran they were told of, not waited for.
                let is_gathered = is_long && due.is_some();
                self.linger_on(if is_gathered { moved } else { 0 }, waited_ns);
            }
            _ if is_long && self.lingers_from_now(visit, TAKER_WAIT) => {
                (self.window, self.cause) = (self.window_max, Cause::Long);
            }
            moved if beside != Company::None && (moved > 0 || self.cause == Cause::AwakeAnyway) => {
                self.keep_company(beside);
            }
            // What is found now need not have been told of; if nothing is, the next one is told of.
            0 if is_timer && self.cause == Cause::AwakeAnyway => return NOTHING,
            _ if is_timer && self.cause == Cause::AwakeAnyway => {}
            moved if is_timer && moved < self.window => self.ran_out(moved),
            0 => {}
            moved => self.filled(moved),
        }
        if self.window == 1 {
            return NOTHING;
        }
        // A look before its time does not put the next one off.
        let due = due.filter(|_| is_lingering && !is_timer);
        let wake_at = due.unwrap_or_else(|| visit.now.plus(self.patience_ns()));
        self.wake_at = Some(wake_at);
        Plan { arm: arm_after(self.window), ..Plan::hold(wake_at) }
    }

    /// Whose looks are counted on: not those beside long packets while somebody asks, or the answer would wait.
    fn look_beside(&mut self, now: Nanos) -> Company {
        let beside = core::mem::replace(&mut self.beside, Company::None);
        if beside == Company::Long {
            self.long_at = Some(now);
        } else if !self.is_stream(now) {
            self.long_at = None;
        }
        if !self.is_asked(now, ASKED_NS) {
            if self.cause == Cause::Asked {
                self.cause = Cause::Slower;
            }
            return beside;
        }
        if self.counts_on_looks() {
            self.wake_at = None;
            self.change(1, Cause::Asked);
        }
        if beside == Company::Long { Company::None } else { beside }
    }

    /// The owner was awake for a stream the other way, and is to look here as long as something is found.
    fn keep_company(&mut self, company: Company) {
        if self.caution > 0 || self.window_max == 1 {
            return;
        }
        (self.window, self.cause) = (self.window_max, Cause::AwakeAnyway);
        self.company = company;
    }
}
