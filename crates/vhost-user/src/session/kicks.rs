//! The consequences of kicks of rings that do not run.
//!
//! Two kinds of them are kicked. `GET_VRING_BASE` stops a ring, and one that is stopped starts when
//! it is kicked (vhost-user, "Ring states"): a monitor that only wants to show where a ring stands
//! asks so. A ring that nothing is posted in any more is not kicked, so a kick of any ring of the
//! device is enough. A front-end that really stops a device goes on to say so: its rings wait until
//! it is quiet. Where it tells the device's status, no kick is needed: a device that really stops
//! has another one than `DRIVER_OK` by then. While pages are logged no ring goes on so: once the
//! last of its guest's memory is copied, nothing may be written there. A transmitq that is started
//! and disabled is processed, and its packets are discarded.

use super::{Plan, STATUS_DRIVER_OK, Session};
use crate::effect::{Answer, Effect, Outcome};
use crate::refusal::Refusal;
use crate::ring_state::{Kick, Running};

impl Session {
    /// The guest has kicked these queues, of those that [`Effect::WatchKicks`] has named last, or
    /// none. `is_quiet`: and its front-end has sent nothing for a while. What it leads to has to be
    /// carried out, as of [`handle`](Self::handle), and [`complete`](Self::complete) replies
    /// nothing.
    pub fn kicked(&mut self, queues: &[u16], is_quiet: bool) -> Outcome {
        let mut plan = Plan::default();
        let goes_on = !queues.is_empty() || self.status & STATUS_DRIVER_OK != 0;
        if is_quiet && goes_on && !self.is_logging() {
            for ring in self.rings.iter_mut().filter(|ring| ring.is_suspended) {
                (ring.is_suspended, ring.went_on) = (false, true);
            }
        }
        let settled = queues
            .iter()
            .try_for_each(|&index| self.discard(index, is_quiet, &mut plan))
            .and_then(|()| self.settle(&mut plan));
        plan.outcome(0, false, Answer::Ack, settled.err())
    }

    /// Whether kicks lead to something only when the front-end is quiet.
    pub fn waits_for_quiet(&self) -> bool {
        self.rings.iter().any(|ring| ring.is_suspended || ring.discards && ring.enabled.is_none())
    }

    /// Whether rings go on without a kick when the front-end is quiet.
    pub fn goes_on_when_quiet(&self) -> bool {
        let is_any_suspended = self.rings.iter().any(|ring| ring.is_suspended);
        self.status & STATUS_DRIVER_OK != 0 && !self.is_logging() && is_any_suspended
    }

    /// A front-end that has not told yet whether the ring is enabled may be about to.
    fn discard(&mut self, index: u16, is_quiet: bool, plan: &mut Plan) -> Result<(), Refusal> {
        let Some(ring) = self.rings.get(usize::from(index)) else { return Ok(()) };
        if ring.discards && (ring.enabled.is_some() || is_quiet) {
            self.discard_packets(index, plan)?;
        }
        Ok(())
    }

    fn discard_packets(&mut self, index: u16, plan: &mut Plan) -> Result<(), Refusal> {
        let (format, options) = (self.format(), self.options());
        let ring = &self.rings[usize::from(index)];
        let Some(areas) = self.started_areas(ring) else { return Ok(()) };
        let ring = &mut self.rings[usize::from(index)];
        plan.effects.extend(ring.discard(index, Running { areas, format }, options)?);
        Ok(())
    }

    /// A transmitq has an odd index. What is in it when it is disabled is discarded at once.
    pub(super) fn settle_discarding(&mut self, index: u16, plan: &mut Plan) -> Result<(), Refusal> {
        let ring = &self.rings[usize::from(index)];
        let discards =
            index % 2 == 1 && !self.is_enabled(ring) && self.started_areas(ring).is_some();
        let is_new = discards && !ring.discards && ring.enabled.is_some();
        self.rings[usize::from(index)].discards = discards;
        if is_new { self.discard_packets(index, plan) } else { Ok(()) }
    }

    /// Names the rings whose kicks lead to something, if they are others than before.
    pub(super) fn settle_watch(&mut self, plan: &mut Plan) -> Result<(), Refusal> {
        let is_any_suspended = self.rings.iter().any(|ring| ring.is_suspended);
        let rings = (0u16..).zip(&self.rings).filter_map(|(index, ring)| match &ring.kick {
            Kick::Fd(fd) if is_any_suspended || ring.discards => {
                Some((index, ring.kick_number, fd))
            }
            _ => None,
        });
        let rings: Vec<_> = rings.collect();
        let watched: Vec<_> = rings.iter().map(|&(index, number, _)| (index, number)).collect();
        if watched == self.watched {
            return Ok(());
        }
        let fds = rings.into_iter().map(|(index, _, fd)| Ok((index, fd.try_clone()?)));
        plan.watch = Some(Effect::WatchKicks(fds.collect::<std::io::Result<_>>()?));
        self.watched = watched;
        Ok(())
    }
}
