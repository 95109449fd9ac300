//! The guest's side, as loops that sleep when there is nothing to do.
//!
//! Limits: packets of one length; contents are not looked at.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Instant;

use ringway_driver::{NetDriver, Sent};
use ringway_net::Nanos;
use ringway_net::{NetHeader, PACKET_LEN_MAX};
use ringway_virtq::{Arm, DriverQueue};

use super::sides::{BATCH, Common, broken};
use super::technique::Pace;
use super::wake::sleep;

/// Bytes of a page: what a buffer is assumed to be where descriptors are counted.
const PAGE_LEN: usize = 4096;

/// What Linux keeps about a packet, about.
type Descriptor = Box<[u8; 256]>;

/// The guest.
#[derive(Debug)]
pub(super) struct Guest<'a, D> {
    pub common: &'a Common<'a>,
    pub driver: &'a mut NetDriver<D>,
    packet: Vec<u8>,
    received: Vec<u8>,
    /// Of buffers that wait, where they are allocated early.
    early: VecDeque<Descriptor>,
    /// Packets put in the transmitq.
    sent: u64,
}

impl<'a, D: DriverQueue> Guest<'a, D> {
    pub fn new(common: &'a Common<'a>, driver: &'a mut NetDriver<D>) -> Self {
        let early = if common.technique.early { common.technique.queue_size } else { 0 };
        let early = (0..early).map(|_| Box::new([0; 256])).collect();
        driver.tx.set_policy(common.policy());
        let packet = vec![0x5a; common.packet_len];
        Self { common, driver, packet, received: vec![0; PACKET_LEN_MAX as usize], early, sent: 0 }
    }

    /// Asks for calls as the technique has it. `true`: some are due already.
    fn arm(&mut self, waits_for_room: bool) -> bool {
        let asks = waits_for_room || !self.common.technique.notify_on_empty;
        self.driver.tx.arm_calls(if asks { Arm::Next } else { Arm::Never })
    }

    /// Sends all it can until told to stop.
    ///
    /// # Errors
    /// The host breaks the ring.
    pub fn stream(&mut self) -> anyhow::Result<()> {
        let Common { bells, technique, .. } = *self.common;
        let _ = self.arm(false);
        while self.common.goes_on() {
            let mut sent = 0;
            while sent < BATCH && self.send()? {
                sent += 1;
            }
            let wake_at = self.kick(sent == BATCH);
            if !technique.notify_on_empty {
                // The calls that were asked for are interrupts: each is handled.
                bells.call_transmitq.drain();
            }
            if sent > 0 {
                continue;
            }
            // Wanted or not, as virtio's driver then did when it found no room.
            if technique.when_full && matches!(technique.pace, Pace::Timer(_)) {
                bells.kick_transmitq.notify();
            }
            if !self.arm(true) {
                sleep(&[&bells.call_transmitq], self.common.instant(wake_at));
            }
            let _ = self.arm(false);
        }
        Ok(())
    }

    fn send(&mut self) -> anyhow::Result<bool> {
        let sent = self.driver.tx.send(&NetHeader::default(), &self.packet).map_err(broken)?;
        self.sent += u64::from(sent == Sent::Done);
        Ok(sent == Sent::Done)
    }

    /// Publishes what was sent, and kicks if it is time; when to do so again, with or without packets.
    fn kick(&mut self, more: bool) -> Option<Nanos> {
        // Before the kick, so that whoever hears it knows.
        self.common.sent.store(self.sent, Ordering::Release);
        let flushed = self.driver.tx.flush_at(self.common.now(), more);
        if flushed.kick {
            self.common.locked(|| self.common.bells.kick_transmitq.notify());
        }
        flushed.wake_at
    }

    /// Receives what is there; returns how many packets.
    fn receive(&mut self) -> anyhow::Result<u32> {
        let mut received = 0;
        while received < BATCH
            && let Some(packet) = self.driver.rx.receive().map_err(broken)?
        {
            packet.copy_to(&mut self.received);
            let buffers = (packet.len as usize).div_ceil(PAGE_LEN).max(1);
            if self.common.technique.early {
                self.early.drain(..buffers.min(self.early.len()));
                self.early.extend((0..buffers).map(|_| Box::new([0; 256])));
            } else {
                std::hint::black_box(Box::new([0_u8; 256]));
            }
            received += 1;
        }
        if self.driver.rx.flush() {
            self.common.locked(|| self.common.bells.kick_receiveq.notify());
        }
        Ok(received)
    }

    /// Receives until told to stop; sends every packet back if `echo`.
    ///
    /// # Errors
    /// The host breaks the ring.
    pub fn sink(&mut self, echo: bool) -> anyhow::Result<()> {
        let mut wake_at = None;
        while self.common.goes_on() {
            let received = self.receive()?;
            if echo && (received > 0 || wake_at.is_some()) {
                for _ in 0..received {
                    self.send()?;
                }
                wake_at = self.kick(false);
            }
            if received == 0 && !self.driver.rx.arm_calls(Arm::Next) {
                sleep(&[&self.common.bells.call_receiveq], self.common.instant(wake_at));
                let _ = self.driver.rx.arm_calls(Arm::Never);
            }
        }
        Ok(())
    }

    /// Sends one packet at a time and waits until it is back; the times in ms.
    ///
    /// # Errors
    /// The host breaks the ring.
    pub fn ping(&mut self) -> anyhow::Result<Vec<f64>> {
        let mut times = Vec::new();
        while self.common.goes_on() {
            let began = Instant::now();
            self.send()?;
            let mut wake_at = self.kick(false);
            while self.receive()? == 0 && self.common.goes_on() {
                if !self.driver.rx.arm_calls(Arm::Next) {
                    sleep(&[&self.common.bells.call_receiveq], self.common.instant(wake_at));
                }
                if wake_at.is_some() {
                    wake_at = self.kick(false);
                }
                let _ = self.driver.rx.arm_calls(Arm::Never);
            }
            if self.common.goes_on() && self.common.count(began, 1) {
                times.push(began.elapsed().as_secs_f64() * 1e3);
            }
        }
        Ok(times)
    }
}
