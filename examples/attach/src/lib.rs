//! A guest in user space with a TCP/IP stack on ringway's driver.
//!
//! How: the device is brought up over vhost-user; each turn lets the stack work, kicks the device
//! where it wants to be kicked, and then waits for the device's call, not longer than the stack
//! allows.
//!
//! Limits: one queue pair, one thread.
#![forbid(unsafe_code)]

use std::time::Duration;

use ringway_driver::phy::SmoltcpDevice;
use ringway_driver::{
    Doorbell, DriverOptions, NetDriver, QueueSet, RxOptions, RxScheme, TxOptions,
};
use ringway_testkit::{GuestError, UserDevice};
use ringway_vhost_user::EventfdDoorbell;
use ringway_virtq::{Arm, DriverQueue};

/// The receiveq of the only queue pair.
const RECEIVEQ: u16 = 0;

/// Longest wait for the device: also how late a stop is noticed.
const WAIT_MAX_US: u64 = 50_000;

/// A guest whose device is up.
#[derive(Debug)]
pub struct StackGuest<Q> {
    /// The device as the stack sees it.
    pub stack: SmoltcpDevice<Q>,
    device: UserDevice,
    receiveq: EventfdDoorbell,
    transmitq: EventfdDoorbell,
}

impl<Q: DriverQueue> StackGuest<Q> {
    /// Starts the driver on the queues of a device that was brought up.
    ///
    /// # Errors
    /// The memory is not enough.
    pub fn new(
        mut device: UserDevice,
        queues: QueueSet<Q, EventfdDoorbell>,
    ) -> Result<Self, GuestError> {
        let options = DriverOptions {
            rx: RxOptions::negotiated(RxScheme::Adaptive, &device.negotiated),
            tx: TxOptions::negotiated(&device.negotiated),
        };
        let pair = queues.pairs.into_iter().next();
        let pair = pair.ok_or(GuestError::NotNegotiated("a queue pair"))?;
        let (receiveq, transmitq) = (pair.receiveq, pair.transmitq);
        let driver = NetDriver::new(receiveq.queue, transmitq.queue, &mut device.arena, &options)?;
        let stack = SmoltcpDevice::new(driver, &device.negotiated, &device.config);
        Ok(Self { stack, device, receiveq: receiveq.doorbell, transmitq: transmitq.doorbell })
    }

    /// One turn: `poll` lets the stack work and says in how many microseconds it wants to be asked
    /// again at the latest.
    ///
    /// # Errors
    /// The device broke the rules, or went away.
    pub fn turn(
        &mut self,
        poll: impl FnOnce(&mut SmoltcpDevice<Q>) -> Option<u64>,
    ) -> Result<(), GuestError> {
        let wait_us = poll(&mut self.stack).unwrap_or(WAIT_MAX_US).min(WAIT_MAX_US);
        let kicks = self.stack.flush();
        if kicks.transmitq {
            self.transmitq.kick();
        }
        if kicks.receiveq {
            self.receiveq.kick();
        }
        if let Some(broken) = self.stack.broken() {
            return Err(GuestError::Broken(broken));
        }
        if wait_us > 0 && !self.stack.driver().rx.arm_calls(Arm::Next) {
            self.device.wait_call(std::iter::once(RECEIVEQ), Duration::from_micros(wait_us))?;
        }
        Ok(())
    }
}
