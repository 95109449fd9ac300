//! Messages of data planes.

use ringway_supervisor::front_ends;
use ringway_supervisor::outbox::Owed;
use ringway_supervisor::succession::{Event, PlaneNumber, Stage};
use ringway_supervisor::wire::{ToSupervisor, Versions, WIRE_VERSION, WIRE_VERSION_MIN};
use ringway_switch::PortId;

use super::Supervisor;
use super::journal::Watched;
use super::order::OrderOutcome;
use super::plane::MESSAGES_PER_TURN;
use super::telling::NEWER;

/// Most bytes of an answer: a thousand ports have fewer.
const ANSWER_LEN_MAX: usize = 16 << 20;

/// Most bytes of positions.
const POSITIONS_LEN_MAX: usize = 1 << 20;

impl Supervisor {
    /// Takes what a data plane has sent.
    pub(super) fn hear_plane(&mut self, number: u32) {
        for _ in 0..MESSAGES_PER_TURN {
            let Some(plane) = self.planes.get(number).filter(|it| !it.is_killed) else {
                return;
            };
            match plane.receive() {
                Ok(None) => return,
                Ok(Some(message)) => {
                    if let Err(why) = self.take(number, message) {
                        return self.end_plane(number, &format!("says what cannot be ({why:#})"));
                    }
                }
                // Its end of the socket is closed when it ends: there is no more to say about it.
                Err(_) => return self.end_plane(number, ""),
            }
        }
    }

    fn take(&mut self, number: u32, message: ToSupervisor) -> anyhow::Result<()> {
        let is_serving = self.planes.is_serving(number);
        match message {
            ToSupervisor::Hello { wire, journal } => self.hello(number, wire, journal),
            ToSupervisor::Ready { refusal: Some(why) } => {
                self.plane_refuses(number, why.as_str());
            }
            ToSupervisor::Ready { refusal: None } => self.happens(Event::Ready { plane: number }),
            ToSupervisor::Running {} => self.happens(Event::Running { plane: number }),
            ToSupervisor::Finished { order, is_told, is_closing, refusal } => {
                let refusal = refusal.map(|why| why.as_str().to_owned());
                self.is_finished(number, order, OrderOutcome { is_told, is_closing, refusal })?;
            }
            ToSupervisor::Done { link, number, is_closing, reply, keep, drops } if is_serving => {
                let done = (number, drops.into_inner(), keep);
                let reply = reply.map(ringway_supervisor::wire::List::into_inner);
                self.frame_is_done(link, done, reply, is_closing)?;
            }
            ToSupervisor::Forget { link, drops } if is_serving => {
                self.forget(link, &drops.into_inner());
                self.happens(Event::Overtaken);
            }
            ToSupervisor::Closed { port } if is_serving => {
                self.happens_at(PortId(port), front_ends::Event::PlaneCloses(false));
            }
            ToSupervisor::Export { is_last, positions } if is_serving => {
                let stage = self.planes.succession.stage(number);
                let plane = self.planes.get(number).filter(|_| stage == Some(Stage::Quiescing));
                let plane = plane.ok_or_else(|| anyhow::anyhow!("positions are not asked for"))?;
                plane.export.extend(positions.into_inner());
                anyhow::ensure!(plane.export.len() <= POSITIONS_LEN_MAX, "too many positions");
                if is_last {
                    let bytes = std::mem::take(&mut plane.export);
                    self.happens(Event::Positions { plane: number, bytes });
                }
            }
            ToSupervisor::Answer { ask, is_last, bytes } if is_serving => {
                let plane = self.planes.serving();
                let asked = plane.and_then(|plane| plane.asks.get_mut(&ask));
                let text = asked.ok_or_else(|| anyhow::anyhow!("it was not asked"))?;
                text.extend(bytes.into_inner());
                anyhow::ensure!(text.len() <= ANSWER_LEN_MAX, "a longer answer than any");
                if is_last {
                    self.answered(ask);
                }
            }
            ToSupervisor::LetGo { link, offence, why } if is_serving => {
                self.let_go(link, offence, why.as_str());
                self.happens(Event::Overtaken);
            }
            ToSupervisor::TapGone { port } if is_serving => self.on_tap_gone(PortId(port)),
            ToSupervisor::Forbidden { .. } | ToSupervisor::GoesOn {} => {
                self.planes.get(number).into_iter().for_each(|plane| plane.notes(&message));
            }
            ToSupervisor::Departed { stations } if is_serving => self.departed(stations),
            ToSupervisor::Stations { port, stations } if is_serving => self.know(port, stations),
            ToSupervisor::SeenIps { port, ips } if is_serving => self.see_ips(PortId(port), ips),
            _ => anyhow::bail!("it does not serve"),
        }
        Ok(())
    }

    fn is_finished(&mut self, number: u32, order: u32, done: OrderOutcome) -> anyhow::Result<()> {
        let plane = self.planes.get(number);
        let order = plane.and_then(|plane| {
            plane.is_answered(Owed::Order(order));
            plane.orders.remove(&order)
        });
        let order = order.ok_or_else(|| anyhow::anyhow!("no such order"))?;
        match done.refusal {
            _ if self.planes.is_serving(number) => self.finish(order, &done),
            Some(why) => self.plane_refuses(number, &why),
            None => {}
        }
        Ok(())
    }

    fn hello(&mut self, number: u32, wire: Versions, journal: Versions) {
        let ours = Versions { first: WIRE_VERSION_MIN, last: WIRE_VERSION };
        let layout = Versions { first: Watched::LAYOUT, last: Watched::LAYOUT };
        let common = ours.common(wire);
        if let Some((plane, speaks)) = self.planes.get(number).zip(common) {
            plane.speaks = speaks;
        }
        match common {
            Some(_) if layout.common(journal).is_none() => {
                let (Versions { first, last }, ours) = (journal, Watched::LAYOUT);
                let why = format!("it knows journals of layouts {first} to {last}, and not {ours}");
                self.plane_refuses(number, &why);
            }
            Some(speaks) => {
                let has_any = self.planes.get(number).is_some_and(|it| !it.given.is_empty());
                let needs_bare = speaks < NEWER && has_any;
                self.happens(Event::Hello { plane: number, needs_bare });
            }
            None => {
                let Versions { first, last } = wire;
                let why = format!("it speaks versions {first} to {last}, and not {WIRE_VERSION}");
                self.plane_refuses(number, &why);
            }
        }
    }

    /// A data plane cannot serve, and says why.
    fn plane_refuses(&mut self, plane: PlaneNumber, why: &str) {
        let why = why.to_owned();
        match self.planes.is_begun() {
            _ if self.planes.is_next(plane) => {}
            true => tracing::error!("the data plane cannot start: {why}"),
            false => self.planes.why_ended = Some(why.clone()),
        }
        self.planes.get(plane).into_iter().for_each(|it| it.is_condemned = true);
        self.happens(Event::Refuses { plane, why });
    }
}
