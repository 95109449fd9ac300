//! A data plane gets everything that there is, and a word when its rings may start.

use std::time::Instant;

use ringway_supervisor::succession::PlaneNumber;
use ringway_supervisor::wire::{Bytes, ToData, WIRE_VERSION_LOGS};
use ringway_switch::PortId;

use super::Planes;
use super::order::Order;
use super::plane::{OutgoingFd, Plane};
use crate::spec_text;
use crate::supervisor::ports::Ports;
use crate::supervisor::ports::port::SupervisedPort;
use crate::supervisor::setup::Setup;

/// The line of the log about a port that is held back.
const HELD: &str = "its front-end waits a few seconds: data planes end again and again, the last \
                    one while it served this port";

/// The advice about a program that cannot serve a guest that is being migrated.
const MIGRATES: &str = "is being migrated, and this program cannot mark the pages that it writes: \
                        upgrade when the migration has ended, or cancel it first (QEMU: \
                        migrate_cancel)";

impl Planes {
    /// Whether the data plane that serves says which guests run.
    pub fn tells_of_guests(&self) -> bool {
        self.current().is_none_or(|plane| plane.socket.speaks >= WIRE_VERSION_LOGS)
    }

    /// Why a data plane that has said hello cannot be given what there is, if it cannot.
    fn why_not_load(&mut self, number: PlaneNumber, ports: &Ports) -> Option<String> {
        let plane = self.get(number).filter(|plane| plane.socket.speaks < WIRE_VERSION_LOGS)?;
        let port = ports.logging()?;
        let speaks = plane.socket.speaks;
        Some(format!("port {} {MIGRATES} (it speaks version {speaks})", port.spec.name))
    }

    /// All file descriptors that a data plane gets.
    pub fn all_descriptors(&self, ports: &Ports) -> Vec<OutgoingFd> {
        let served = ports.values().filter(|port| port.failure.is_none());
        let of_ports = served.flat_map(|port| {
            let slots = port.link().into_iter().flat_map(|link| link.kept.replay());
            let of_front_end = slots.flat_map(|(_, frame)| frame.fds.iter().cloned());
            port.sent().into_iter().chain(of_front_end.map(OutgoingFd::FrontEnd))
        });
        of_ports.chain([OutgoingFd::Own(self.journal.file().clone())]).collect()
    }

    /// Gives a data plane everything that there is: ports, front-ends and what was kept of them.
    ///
    /// # Errors
    /// It cannot serve a front-end, and why.
    pub fn load(
        &mut self,
        number: PlaneNumber,
        ports: &mut Ports,
        setup: &Setup,
    ) -> Result<(), String> {
        self.why_not_load(number, ports).map_or(Ok(()), Err)?;
        let has_routers = ports.has_routers();
        let settings = spec_text::settings(&setup.settings, setup.workers, has_routers);
        let is_next = self.is_next(number);
        let Some(mut plane) = self.remove(number) else { return Ok(()) };
        plane.may_route = has_routers;
        plane.begin_filling(&ToData::Config { settings });
        for (&id, port) in ports.iter_mut() {
            if port.failure.is_some() || port.is_leaving() {
                continue;
            }
            let asked = port.asked.take_if(|_| !is_next).unwrap_or_default();
            let Ok(spec) = spec_text::port(&port.spec, port.tap.name(), &setup.identity) else {
                continue;
            };
            let order = self.next_number();
            let message = ToData::Port { order, port: id.0, spec };
            plane.order(order, Order::Open { port: id, asked }, &message, port.sent());
            self.load_front_end(&mut plane, id, port);
        }
        ports.tell_of_stations(&mut plane);
        plane.tell(&ToData::Replayed {}, vec![]);
        plane.is_filled();
        for &id in &plane.debts.without {
            ports.complain(id, HELD);
        }
        self.insert(number, plane);
        Ok(())
    }

    fn load_front_end(&mut self, plane: &mut Plane, id: PortId, port: &SupervisedPort) {
        let Some(link) = port.link() else { return };
        if self.restarts.is_held(id.0, Instant::now()) {
            plane.debts.without.insert(id);
            return;
        }
        let (order, number) = (self.next_number(), link.number);
        let message = ToData::Link { order, port: id.0, link: number, spec: link.spec.clone() };
        plane.order(order, Order::Link { port: id }, &message, vec![]);
        for (slot, frame) in link.kept.replay() {
            let bytes = Bytes::new(frame.bytes.clone()).unwrap_or_default();
            let fds = frame.fds.iter().cloned().map(OutgoingFd::FrontEnd).collect();
            plane.tell(&ToData::Slot { link: number, slot, bytes }, fds);
        }
    }

    /// Rings may start, there where those positions say.
    pub fn go(&mut self, number: PlaneNumber, positions: &[u8], is_alone: bool, ports: &Ports) {
        self.journal.repair(is_alone);
        let Some(mut plane) = self.remove(number) else { return };
        if self.is_next(number) {
            // The old one has said what it knows by now.
            ports.tell_of_stations(&mut plane);
        }
        plane.go(positions, self.journal.file());
        self.insert(number, plane);
    }

    /// Whether a front-end that has just come has to wait, because its port is held back: it may be
    /// the one that was there when the data plane ended.
    pub fn holds_back(&mut self, id: PortId, ports: &mut Ports) -> bool {
        let is_held = self.restarts.is_held(id.0, Instant::now());
        let Some(plane) = self.loaded().filter(|_| is_held) else { return false };
        plane.debts.without.insert(id);
        ports.complain(id, HELD);
        true
    }
}
