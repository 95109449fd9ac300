//! A guest that lives in this process: a driver on a vhost-user connection of its own, with memory
//! that the device maps too.
//!
//! Limits: one queue pair on a split ring; one packet is looked at after the other.

use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use ringway_driver::{
    Arena, Doorbell, DriverOptions, NetDriver, Queues, RxOptions, RxScheme, Sent, TxOptions,
    Wanted, bring_up,
};
use ringway_host::{GuestMemory, MemoryRequest};
use ringway_net::{Features, NetHeader};
use ringway_vhost_user::{EventfdDoorbell, Frontend, FrontendTransport, MemoryRegion};
use ringway_virtq::{Arm, Broken, SplitDriver};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;

/// Entries of each queue.
const QUEUE_SIZE: u16 = 256;

/// Bytes of memory: the longest packet for each entry, both ways, and the rings.
const MEMORY_LEN: u32 = 2 * 256 * 66_048 + (4 << 20);

/// Where it begins, as the device is told.
const MEMORY_AT: u64 = 0x1_0000_0000;

/// The receiveq of the only queue pair.
const RECEIVEQ: u16 = 0;

/// Longest wait for an answer on the vhost-user socket.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// The driver, and what wakes the device.
pub struct EmbeddedGuest {
    driver: NetDriver<SplitDriver>,
    receiveq: EventfdDoorbell,
    transmitq: EventfdDoorbell,
    transport: FrontendTransport,
    mac: [u8; 6],
    /// Keeps the memory mapped.
    _memory: GuestMemory,
}

impl EmbeddedGuest {
    /// Attaches to the device that listens on `socket`.
    ///
    /// # Errors
    /// The device is not there, or does not come up.
    pub fn attach(socket: &Path) -> anyhow::Result<Self> {
        let frontend = Frontend::connect(socket, ANSWER_LIMIT)?;
        let file = memfd_create(c"ringway-demo", MemfdFlags::CLOEXEC)?;
        let size = u64::from(MEMORY_LEN);
        ftruncate(&file, size)?;
        let fd = file.try_clone()?.into();
        let request = MemoryRequest { guest_address: MEMORY_AT, size, mmap_offset: 0, fd };
        let memory = GuestMemory::map(vec![request]).map_err(io::Error::other)?;
        let bytes = memory.regions().slice(MEMORY_AT, MEMORY_LEN).context("guest memory")?;
        let mut arena = Arena::new(bytes, MEMORY_AT);
        let (guest_address, fd) = (MEMORY_AT, file.into());
        let user_address = MEMORY_AT;
        let region = MemoryRegion { guest_address, size, user_address, mmap_offset: 0, fd };
        let mut transport = FrontendTransport::new(frontend, vec![region]);
        let accept = Features::OFFERED - Features::RING_PACKED;
        let wanted = Wanted { accept, queue_size: QUEUE_SIZE, ..Wanted::DEFAULT };
        let up = bring_up(&mut transport, &mut arena, &wanted).map_err(|why| anyhow!("{why}"))?;
        let Queues::Split(queues) = up.queues else { bail!("a packed ring was not asked for") };
        let pair = queues.pairs.into_iter().next().context("no queue pair")?;
        let (receiveq, transmitq) = (pair.receiveq, pair.transmitq);
        let options = DriverOptions {
            rx: RxOptions::negotiated(RxScheme::Page, &up.negotiated),
            tx: TxOptions::negotiated(&up.negotiated),
        };
        let driver = NetDriver::new(receiveq.queue, transmitq.queue, &mut arena, &options);
        let mut guest = Self {
            driver: driver.map_err(|_| anyhow!("the guest's memory is full"))?,
            receiveq: receiveq.doorbell,
            transmitq: transmitq.doorbell,
            transport,
            mac: up.config.mac.0,
            _memory: memory,
        };
        guest.flush();
        Ok(guest)
    }

    /// Its address, which the device has chosen.
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Stages a packet. `false`: there is no room for it now.
    ///
    /// # Errors
    /// The device broke the rules.
    pub fn send(&mut self, header: &NetHeader, packet: &[u8]) -> anyhow::Result<bool> {
        Ok(self.driver.tx.send(header, packet).map_err(broke_the_ring)? == Sent::Done)
    }

    /// Publishes sent packets and emptied buffers, and kicks where the device wants it.
    pub fn flush(&mut self) {
        if self.driver.tx.flush() {
            self.transmitq.kick();
        }
        if self.driver.rx.flush() {
            self.receiveq.kick();
        }
    }

    /// Copies the next packet that has arrived into `packet`. `false`: there is none.
    ///
    /// # Errors
    /// The device broke the rules.
    pub fn receive(&mut self, packet: &mut Vec<u8>) -> anyhow::Result<bool> {
        let Some(received) = self.driver.rx.receive().map_err(broke_the_ring)? else {
            return Ok(false);
        };
        packet.resize(received.len as usize, 0);
        received.copy_to(packet);
        Ok(true)
    }

    /// Waits until the device calls about packets, or `limit` is over.
    ///
    /// # Errors
    /// From the operating system.
    pub fn wait_call(&mut self, limit: Duration) -> anyhow::Result<()> {
        if !self.driver.rx.arm_calls(Arm::Next) {
            let call = self.transport.call_fd(RECEIVEQ).context("no call descriptor")?;
            let mut waiting = [PollFd::from_borrowed_fd(call, PollFlags::IN)];
            match poll(&mut waiting, Some(&Timespec::try_from(limit)?)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let _ = self.transport.take_call(RECEIVEQ);
        }
        let _ = self.driver.rx.arm_calls(Arm::Never);
        Ok(())
    }
}

fn broke_the_ring(broken: Broken) -> anyhow::Error {
    anyhow!("the device broke the ring: {}", broken.0)
}
