//! ringway's driver as an end: what goes in is sent to the device, what the device sends comes out.
//!
//! Limits: one queue pair, polled: the device is asked never to call.

use std::path::Path;

use ringway_driver::{DriverOptions, NetDriver, RxOptions, TxOptions};
use ringway_net::{Features, NetHeader};
use ringway_testkit::{Attachment, GuestError, GuestOptions};
use ringway_virtq::{Arm, Broken, DriverQueue, Format, PackedDriver, SplitDriver};

use super::end::{End, Template};

const RECEIVEQ: usize = 0;
const TRANSMITQ: usize = 1;

/// A driver of one ring format on a device that is up.
#[derive(Debug)]
pub(super) struct DriverEnd<Q> {
    driver: NetDriver<Q>,
    attachment: Attachment,
}

/// A driver of either format.
#[derive(Debug)]
pub(super) enum AnyDriverEnd {
    Split(DriverEnd<SplitDriver>),
    Packed(DriverEnd<PackedDriver>),
}

impl AnyDriverEnd {
    /// Attaches to the device that listens on `socket`.
    ///
    /// # Errors
    /// It is not there, or does not offer the format.
    pub fn attach(socket: &Path, format: Format, queue_size: u16) -> Result<Self, GuestError> {
        let unwanted = Features::CTRL_VQ | Features::MTU;
        let mut accept = (Features::OFFERED - unwanted).drop_unmet();
        if format == Format::Split {
            accept -= Features::RING_PACKED;
        }
        let options = GuestOptions { accept, queue_size, ..GuestOptions::default() };
        let attachment = Attachment::new(socket, &options)?;
        match (format, attachment.format()) {
            (Format::Split, Format::Split) => Ok(Self::Split(DriverEnd::start(attachment)?)),
            (Format::Packed, Format::Packed) => Ok(Self::Packed(DriverEnd::start(attachment)?)),
            _ => Err(GuestError::NotNegotiated("RING_PACKED")),
        }
    }
}

impl<Q: DriverQueue> DriverEnd<Q> {
    fn start(mut attachment: Attachment) -> Result<Self, GuestError> {
        let mergeable = attachment.negotiated.mergeable;
        let options = DriverOptions {
            rx: if mergeable { RxOptions::MERGEABLE } else { RxOptions::BIG },
            tx: TxOptions::default(),
        };
        let queue_options = attachment.negotiated.options;
        let receiveq = attachment.queues[RECEIVEQ].ring.start(queue_options);
        let transmitq = attachment.queues[TRANSMITQ].ring.start(queue_options);
        let mut driver = NetDriver::new(receiveq, transmitq, &mut attachment.arena, &options)?;
        // Nobody waits for calls; what is there already is found by looking.
        let _ = driver.rx.arm_calls(Arm::Never);
        let _ = driver.tx.arm_calls(Arm::Never);
        let _ = driver.rx.flush();
        // A vhost-user ring starts with its first kick, wanted or not.
        attachment.queues.iter().for_each(ringway_testkit::AttachedQueue::kick);
        Ok(Self { driver, attachment })
    }
}

impl<Q: DriverQueue> End for DriverEnd<Q> {
    #[inline]
    fn send(&mut self, packet: &Template) -> Result<bool, Broken> {
        let sent = self.driver.tx.send(&NetHeader::default(), packet.bytes())?;
        Ok(sent == ringway_driver::Sent::Done)
    }

    #[inline]
    fn flush_sent(&mut self) {
        if self.driver.tx.flush() {
            self.attachment.queues[TRANSMITQ].kick();
        }
    }

    #[inline]
    fn receive(&mut self, into: &mut [u8]) -> Result<Option<usize>, Broken> {
        let Some(received) = self.driver.rx.receive()? else { return Ok(None) };
        received.copy_to(into);
        Ok(Some(received.len as usize))
    }

    #[inline]
    fn flush_received(&mut self) {
        if self.driver.rx.flush() {
            self.attachment.queues[RECEIVEQ].kick();
        }
    }
}
