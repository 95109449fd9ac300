//! ringway's device as an end, with the vhost-user back-end that brings it up.
//!
//! How: one thread does both, as nothing else runs on its core: between some thousand rounds of
//! packets it looks for messages of the front-end and carries them out at once.
//!
//! Limits: one queue pair, no control queue, polled: the driver is asked never to kick, and as it
//! polls, too, it is never called.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, anyhow};
use ringway_device::{AnyGuestPort, FromGuest, GuestPort, Queue, ToGuest};
use ringway_host::{GuestMemory, MemoryRequest};
use ringway_net::{
    ControlState, Counters, Features, MacAddress, Negotiated, NetConfig, NetHeader, Packet,
    PacketSink, PacketSource, Put,
};
use ringway_vhost_user::{
    Applied, Connection, Effect, Listener, MemoryRegion, Offer, Received, Session,
};
use ringway_virtq::{Arm, Broken, DeviceQueue};

use super::end::{End, Template, Work};

const MAC: MacAddress = MacAddress([2, 0x72, 0x77, 0, 0, 2]);

struct DeviceEnd<'a, Q> {
    to_guest: &'a mut ToGuest<Q>,
    from_guest: &'a mut FromGuest<Q>,
}

impl<'a, Q> DeviceEnd<'a, Q> {
    fn of(port: &'a mut GuestPort<Q>) -> Option<Self> {
        let (to_guest, from_guest) = (port.to_guest.as_mut()?, port.from_guest.as_mut()?);
        Some(Self { to_guest, from_guest })
    }
}

/// The back-end: its socket, its front-end, and the device.
pub(super) struct Backend {
    listener: Listener,
    link: Option<(Connection, Session)>,
    features: Features,
    memory: GuestMemory,
    port: AnyGuestPort,
}

impl Backend {
    pub fn bind(socket: &Path) -> anyhow::Result<Self> {
        let unwanted = Features::CTRL_VQ | Features::MTU;
        Ok(Self {
            listener: Listener::bind(socket)?,
            link: None,
            features: (Features::OFFERED - unwanted).drop_unmet(),
            memory: GuestMemory::empty(),
            port: empty_port(Negotiated::NOTHING),
        })
    }

    /// Works with a started device for some rounds; one whose queues do not run yet does nothing.
    pub fn rounds(
        &mut self,
        work: &mut Work<'_>,
        rounds: u32,
        stop: &AtomicBool,
    ) -> Result<(), Broken> {
        match &mut self.port {
            AnyGuestPort::Split(port) => {
                DeviceEnd::of(port).map_or(Ok(()), |mut end| work.rounds(&mut end, rounds, stop))
            }
            AnyGuestPort::Packed(port) => {
                DeviceEnd::of(port).map_or(Ok(()), |mut end| work.rounds(&mut end, rounds, stop))
            }
        }
    }

    /// Carries out what the front-end has asked for meanwhile.
    pub fn serve(&mut self) -> anyhow::Result<()> {
        if self.link.is_none()
            && let Some(connection) = self.listener.accept()?
        {
            self.link = Some((connection, Session::new(self.offer())));
        }
        while let Some((mut connection, mut session)) = self.link.take() {
            match connection.receive()? {
                Received::Request(message) => {
                    let outcome = session.handle(message);
                    let applied = self.apply(outcome.effects)?;
                    if let Some(reply) = session.complete(outcome.pending, applied) {
                        connection.send(&reply)?;
                    }
                    self.link = Some((connection, session));
                }
                Received::Nothing => {
                    self.link = Some((connection, session));
                    break;
                }
                Received::Closed => self.port = empty_port(Negotiated::NOTHING),
            }
        }
        Ok(())
    }

    fn offer(&self) -> Offer {
        let config =
            NetConfig { mac: MAC, link_up: true, announce: false, max_queue_pairs: 1, mtu: 1500 };
        Offer {
            features: self.features.bits(),
            queue_pairs_max: 1,
            has_control_queue: false,
            config: config.encode().to_vec(),
            memory_slots_max: ringway_virtq::REGIONS_MAX as u64,
        }
    }

    fn apply(&mut self, effects: Vec<Effect>) -> anyhow::Result<Applied> {
        let mut applied = Applied::OK;
        for effect in effects {
            match effect {
                Effect::StopQueue { index } => {
                    let stopped = Queue::from_index(index).and_then(|queue| self.port.stop(queue));
                    applied.stopped.extend(stopped.map(|position| (index, position)));
                }
                other => self.apply_one(other)?,
            }
        }
        Ok(applied)
    }

    fn apply_one(&mut self, effect: Effect) -> anyhow::Result<()> {
        match effect {
            Effect::Features(bits) => {
                let accepted = Features::from_bits_retain(bits) - Features::PROTOCOL_FEATURES;
                let negotiated = Negotiated::new(accepted.drop_unmet());
                self.port = empty_port(negotiated.map_err(|why| anyhow!("features: {why}"))?);
            }
            Effect::SetMemory(regions) => {
                self.memory = GuestMemory::map(regions.into_iter().map(request).collect())?;
            }
            Effect::AddMemory(region) => self.memory = self.memory.with(request(region))?,
            Effect::RemoveMemory(range) => {
                self.memory = self.memory.without(range.guest_address, range.size);
            }
            Effect::StartQueue { index, setup, .. } => {
                let queue = Queue::from_index(index).context("queue")?;
                let started = self.port.start(queue, &setup, &self.memory.regions());
                started.map_err(|broken| anyhow!("{}: {}", queue.name(), broken.0))?;
                self.port.arm_kicks(queue, Arm::Never);
            }
            Effect::RebindQueue { index, areas } => {
                let queue = Queue::from_index(index).context("queue")?;
                let bound = self.port.rebind(queue, &areas, &self.memory.regions());
                bound.map_err(|broken| anyhow!("{}: {}", queue.name(), broken.0))?;
            }
            Effect::Reset => self.port = empty_port(Negotiated::NOTHING),
            // This device neither sleeps nor calls nor learns addresses nor reports.
            _ => {}
        }
        Ok(())
    }
}

fn empty_port(negotiated: Negotiated) -> AnyGuestPort {
    AnyGuestPort::new(negotiated, ControlState::new(MAC, &negotiated), [Counters::default(); 2])
}

fn request(region: MemoryRegion) -> MemoryRequest {
    let MemoryRegion { guest_address, size, mmap_offset, fd, .. } = region;
    MemoryRequest { guest_address, size, mmap_offset, fd }
}

impl<Q: DeviceQueue> End for DeviceEnd<'_, Q> {
    #[inline]
    fn send(&mut self, packet: &Template) -> Result<bool, Broken> {
        let len = u32::try_from(packet.bytes().len()).unwrap_or(u32::MAX);
        let header = NetHeader::default();
        match self.to_guest.put(&Packet { header: &header, payload: packet.shared(), len }) {
            Put::Done => Ok(true),
            Put::NoRoom | Put::Unfinished => Ok(false),
            Put::Refused => self.to_guest.broken().map_or(Ok(false), |why| Err(Broken(why))),
        }
    }

    #[inline]
    fn flush_sent(&mut self) {
        let _ = self.to_guest.flush();
    }

    #[inline]
    fn receive(&mut self, into: &mut [u8]) -> Result<Option<usize>, Broken> {
        let Some(packet) = self.from_guest.peek() else {
            return self.from_guest.broken().map_or(Ok(None), |why| Err(Broken(why)));
        };
        let len = packet.copy_out(into);
        self.from_guest.pop();
        Ok(Some(len))
    }

    #[inline]
    fn flush_received(&mut self) {
        let _ = self.from_guest.flush();
    }
}
