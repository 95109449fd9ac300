//! The pause between two turns of the worker: poll, or sleep.
//!
//! Theory of operation: a transmitq that has run empty is not armed at once, so that its guest need
//! not kick while the worker polls. When a turn leaves nothing to do, [`Polling`] decides. To poll
//! means to visit these queues again; file descriptors are polled only every [`POLL_FDS_PAUSE_NS`],
//! because that is a system call. To sleep means, in this order: arm every such queue, check each
//! once more, tell the other workers that this one sleeps, check once more for what they handed
//! over, and only then wait. A packet that comes at any moment either is found by the second check,
//! or its sender finds the queue armed and kicks.
//!
//! A thread that runs on the same processor and is woken by the worker has to wait while the worker
//! polls. Where [`Polling`] says so, the worker offers it the processor each time before it polls
//! file descriptors.
//!
//! Limits: a queue is left unarmed only while its worker has nothing else to do; a worker that
//! always has something to do arms every idle queue. A visit with more work than one unit per
//! packet counts as one of long packets: a short packet that goes to several ports, or that could
//! not be read, makes the worker offer the processor, too.

use std::time::Duration;

use ringway_net::{Nanos, Next, PollOptions, Polling};
use ringway_switch::{PORTS_MAX, PortId};
use rustix::thread::sched_yield;

use crate::os::clock::{self, now};
use crate::os::system_calls::count_system_call;
use crate::peers::WorkerPeers;
use crate::port::table::PortTable;
use crate::worker::schedule::Schedule;

/// Between two polls of the file descriptors without sleeping, in nanoseconds: twenty times what
/// one takes, and a sixth of what a wake-up takes.
const POLL_FDS_PAUSE_NS: u64 = 5_000;

/// The pause before the next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    /// Nothing: only rings are polled.
    None,
    /// A wait of at most this long; `None`: as long as it takes.
    Wait(Option<Duration>),
}

impl Pause {
    /// A poll of the file descriptors.
    const POLL_FDS: Self = Self::Wait(Some(Duration::ZERO));

    /// Whether the worker may sleep in it.
    pub(crate) fn is_sleep(self) -> bool {
        matches!(self, Self::Wait(at_most) if at_most != Some(Duration::ZERO))
    }
}

/// Whether the worker polls, and what it has left unarmed meanwhile.
#[derive(Debug)]
pub(crate) struct IdlePolling {
    pub(crate) policy: Polling,
    /// Slots whose transmitq has run empty and was not armed yet.
    pub(crate) unarmed: Vec<PortId>,
    /// Something was moved in this turn.
    pub(crate) has_found: bool,
    /// When file descriptors were last polled without sleeping.
    polled_fds_at: Nanos,
}

impl IdlePolling {
    pub(crate) fn new(options: PollOptions) -> Self {
        Self {
            policy: Polling::new(options, now()),
            unarmed: Vec::with_capacity(PORTS_MAX),
            has_found: false,
            polled_fds_at: Nanos(0),
        }
    }

    /// A turn is over: what comes before the next one.
    pub(crate) fn pause(
        &mut self,
        schedule: &mut Schedule,
        ports: &mut PortTable,
        peers: &WorkerPeers,
    ) -> Pause {
        let has_found = std::mem::take(&mut self.has_found);
        if has_found {
            self.policy.found(schedule.turn_at);
        }
        if !schedule.ready.is_empty() {
            self.arm_idle_queues(schedule, ports);
            return self.poll_fds(schedule.turn_at);
        }
        if has_found {
            self.polled_fds_at = Nanos(0);
        }
        if !self.policy.may_look() {
            self.arm_idle_queues(schedule, ports);
            return Pause::Wait(schedule.sleep_at_most(ports, peers));
        }
        let now = now();
        if self.policy.idle(now) == Next::Look && self.keeps_the_processor(now) {
            self.leave_unarmed(schedule, ports);
            return self.poll_fds(now);
        }
        self.arm_idle_queues(schedule, ports);
        Pause::Wait(schedule.sleep_at_most(ports, peers))
    }

    /// Offers the processor to others, if that is to be done and it is time to poll the file
    /// descriptors; `false`: another thread has taken it.
    fn keeps_the_processor(&mut self, now: Nanos) -> bool {
        if now.since(self.polled_fds_at) < POLL_FDS_PAUSE_NS || !self.policy.should_yield(now) {
            return true;
        }
        count_system_call();
        sched_yield();
        self.policy.yielded(now, clock::now()) == Next::Look
    }

    /// Without sleeping, and not too often.
    fn poll_fds(&mut self, now: Nanos) -> Pause {
        if now.since(self.polled_fds_at) < POLL_FDS_PAUSE_NS {
            return Pause::None;
        }
        self.polled_fds_at = now;
        Pause::POLL_FDS
    }

    /// A visit has moved so many packets, which were so many units of work: short ones are one
    /// each.
    pub(crate) fn note_visit(&mut self, now: Nanos, units: u32, packets: u64) {
        if u64::from(units) > packets {
            self.policy.stream_passed(now);
        }
        self.has_found |= packets > 0;
    }

    /// Polls the queues that have run empty again, without arming them.
    fn leave_unarmed(&mut self, schedule: &mut Schedule, ports: &mut PortTable) {
        while let Some(slot) = self.unarmed.pop() {
            if let Some(guest) = ports.guest(slot) {
                guest.keep_polling(schedule.turn_at);
            }
            schedule.ready.add(slot);
        }
    }

    fn arm_idle_queues(&mut self, schedule: &mut Schedule, ports: &mut PortTable) {
        while let Some(slot) = self.unarmed.pop() {
            if !ports.at(slot).arm_idle() {
                schedule.ready.add(slot);
            }
        }
    }
}
