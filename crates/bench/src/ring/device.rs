//! ringway's device as an end, behind a vhost-user back-end ([`Backend`]).
//!
//! How: one thread does both, as nothing else runs on its core: between some thousand rounds of
//! packets it looks for messages of the front-end and carries them out at once.
//!
//! Limits: one queue pair, no control queue, polled: the driver is asked never to kick, and as it
//! polls, too, it is never called.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use ringway_device::{AnyGuestPort, FromGuest, GuestPort, ToGuest};
use ringway_net::{Features, NetHeader, Packet, PacketSink, PacketSource, Put};
use ringway_virtq::{Arm, Broken, DeviceQueue};

use super::end::{End, Template, Work};
use crate::backend::Backend;

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

/// `is_logged`: it marks the pages that it writes.
pub(super) fn bind(socket: &Path, is_logged: bool) -> anyhow::Result<Backend> {
    let unwanted = Features::CTRL_VQ | Features::MTU;
    let backend = Backend::bind(socket, Features::OFFERED - unwanted, Arm::Never)?;
    Ok(if is_logged { backend.logged() } else { backend })
}

/// Works with a started device for some rounds; one whose queues do not run yet does nothing.
pub(super) fn rounds(
    backend: &mut Backend,
    work: &mut Work<'_>,
    rounds: u32,
    stop: &AtomicBool,
) -> Result<(), Broken> {
    match &mut backend.port {
        AnyGuestPort::Split(port) => {
            DeviceEnd::of(port).map_or(Ok(()), |mut end| work.rounds(&mut end, rounds, stop))
        }
        AnyGuestPort::Packed(port) => {
            DeviceEnd::of(port).map_or(Ok(()), |mut end| work.rounds(&mut end, rounds, stop))
        }
    }
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
