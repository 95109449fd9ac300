//! Commands on the control queue (virtio 1.2 §5.1.6.5), one at a time.
//!
//! Limits: one command in flight; the caller kicks and waits between `start` and `finish`.

use ringway_virtq::{Broken, BufferId, DriverQueue};

use crate::{Arena, ArenaFull, Part};

/// Longest command data in bytes: a MAC table of a few hundred entries fits.
const DATA_LEN_MAX: u32 = 4096;
/// Class and command.
const HEAD_LEN: u32 = 2;
/// Where the device writes its answer.
const ACK_AT: u32 = HEAD_LEN + DATA_LEN_MAX;
/// What the answer byte holds until the device has written it; neither OK (0) nor error (1).
const ACK_UNWRITTEN: u8 = 0xff;

/// Why a command could not be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlFailure {
    /// The command before has not been answered.
    InFlight,
    /// More than 4096 bytes of data.
    TooLong,
}

/// The controlq of a driver.
#[derive(Debug)]
pub struct Control<Q> {
    queue: Q,
    part: Part,
    in_flight: bool,
}

impl<Q: DriverQueue> Control<Q> {
    /// Takes one command's memory. The queue must be fresh and have at least 4 entries.
    ///
    /// # Errors
    /// [`ArenaFull`].
    pub fn new(queue: Q, arena: &mut Arena) -> Result<Self, ArenaFull> {
        let part = arena.carve(ACK_AT as usize + 1, 64)?;
        Ok(Self { queue, part, in_flight: false })
    }

    /// Makes one command available. `true`: the device wants to be kicked.
    ///
    /// # Errors
    /// [`ControlFailure`]; nothing changed.
    pub fn start(&mut self, class: u8, command: u8, data: &[u8]) -> Result<bool, ControlFailure> {
        if self.in_flight {
            return Err(ControlFailure::InFlight);
        }
        let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        if len > DATA_LEN_MAX {
            return Err(ControlFailure::TooLong);
        }
        self.part.memory.write(0, &[class, command]);
        self.part.memory.write(HEAD_LEN as usize, data);
        self.part.memory.write(ACK_AT as usize, &[ACK_UNWRITTEN]);
        let at = self.part.device_address;
        let readable = [(at, HEAD_LEN), (at + u64::from(HEAD_LEN), len)];
        let readable = if len == 0 { &readable[..1] } else { &readable[..] };
        let writable = [(at + u64::from(ACK_AT), 1)];
        let added = self.queue.add(readable, &writable, BufferId(0));
        assert!(added.is_ok(), "an empty control queue has room for one command");
        self.in_flight = true;
        self.queue.publish();
        Ok(self.queue.must_kick())
    }

    /// The device's answer to the command, once there is one: 0 is OK.
    ///
    /// # Errors
    /// [`Broken`]: the device broke the rules; the queue must be set up again.
    pub fn finish(&mut self) -> Result<Option<u8>, Broken> {
        if self.queue.pop_used()?.is_none() {
            return Ok(None);
        }
        self.in_flight = false;
        let mut ack = [0];
        self.part.memory.read(ACK_AT as usize, &mut ack);
        Ok(Some(ack[0]))
    }
}
