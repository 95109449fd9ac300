//! Commands on the control queue (virtio 1.2 §5.1.6.5), one at a time.
//!
//! How: [`Control::command`] makes a command available, [`Control::poll`] says what became of it
//! and when to look again; time is an argument. A device that does not answer for
//! [`ANSWER_LIMIT_US`] counts as dead: no caller waits for ever.
//!
//! Limits: one command in flight; the caller kicks and waits.

use ringway_net::Features;
use ringway_net::moderation::CoalesceLimits;
use ringway_virtq::{Broken, BufferId, DriverQueue};

use crate::{Arena, ArenaFull, ControlCommand, Part};

/// Longest command data in bytes: a MAC table of a few hundred entries fits.
const DATA_LEN_MAX: u32 = 4096;
/// Class and command.
const HEAD_LEN: u32 = 2;
/// Where the device writes the result of a command that has one.
const RESULT_AT: u32 = HEAD_LEN + DATA_LEN_MAX;
/// Bytes of the only result there is.
const RESULT_LEN: u32 = 8;
/// Where the device writes its answer, right behind the result.
const ACK_AT: u32 = RESULT_AT + RESULT_LEN;
/// A command and its number: `VIRTIO_NET_CTRL_NOTF_COAL_VQ_GET`, the only one with a result.
const HAS_RESULT: (u8, u8) = (6, 3);
/// The value of the answer byte until the device has written it; neither OK (0) nor error (1).
const ACK_UNWRITTEN: u8 = 0xff;
/// Longest wait for an answer, in microseconds.
pub const ANSWER_LIMIT_US: u64 = 5_000_000;

/// Why a command could not be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlFailure {
    /// The command before has not been answered.
    InFlight,
    /// More than 4096 bytes of data.
    TooLong,
    /// The device does not know this command.
    NotNegotiated,
}

/// The state of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandState {
    /// There is none in flight.
    Idle,
    /// Not answered yet; it counts as lost at this time, in microseconds.
    Waiting {
        /// The time to look again at the latest.
        until_us: u64,
    },
    /// Done.
    Ok,
    /// Refused; nothing was changed.
    Refused,
    /// No answer in time: the device must be reset. No further command can be started.
    TimedOut,
}

/// The controlq of a driver.
#[derive(Debug)]
pub struct Control<Q> {
    queue: Q,
    part: Part,
    in_flight: bool,
    /// When the command in flight counts as lost, in microseconds.
    deadline_us: u64,
}

impl<Q: DriverQueue> Control<Q> {
    /// Takes one command's memory. The queue must be fresh and have at least 4 entries.
    ///
    /// # Errors
    /// [`ArenaFull`].
    pub fn new(queue: Q, arena: &mut Arena) -> Result<Self, ArenaFull> {
        let part = arena.carve(ACK_AT as usize + 1, 64)?;
        Ok(Self { queue, part, in_flight: false, deadline_us: u64::MAX })
    }

    /// Makes a command available at the time `now_us` on a device with these features. `true`: the
    /// device wants to be kicked. Then [`poll`](Self::poll).
    ///
    /// # Errors
    /// [`ControlFailure`]; nothing changed.
    pub fn command(
        &mut self,
        command: &ControlCommand<'_>,
        features: Features,
        now_us: u64,
    ) -> Result<bool, ControlFailure> {
        if !features.contains(command.needs()) {
            return Err(ControlFailure::NotNegotiated);
        }
        self.check_idle()?;
        let (memory, mut at) = (self.part.memory, HEAD_LEN as usize);
        let mut fits = true;
        let counted = command.data(|piece| {
            fits &= at + piece.len() <= RESULT_AT as usize;
            if fits {
                memory.write(at, piece);
                at += piece.len();
            }
        });
        if counted.is_none() || !fits {
            return Err(ControlFailure::TooLong);
        }
        self.deadline_us = now_us.saturating_add(ANSWER_LIMIT_US);
        let (class, number) = command.code();
        // At most RESULT_AT.
        let len = u32::try_from(at).unwrap_or(RESULT_AT) - HEAD_LEN;
        Ok(self.add(class, number, len))
    }

    /// The state of the command at the time `now_us`.
    ///
    /// # Errors
    /// [`Broken`]: the device broke the rules; the queue must be set up again.
    pub fn poll(&mut self, now_us: u64) -> Result<CommandState, Broken> {
        if !self.in_flight {
            return Ok(CommandState::Idle);
        }
        Ok(match self.finish()? {
            Some(0) => CommandState::Ok,
            Some(_) => CommandState::Refused,
            None if now_us >= self.deadline_us => CommandState::TimedOut,
            None => CommandState::Waiting { until_us: self.deadline_us },
        })
    }

    /// Makes one command available from its bytes. `true`: the device wants to be kicked.
    ///
    /// # Errors
    /// [`ControlFailure`]; nothing changed.
    pub fn start(&mut self, class: u8, command: u8, data: &[u8]) -> Result<bool, ControlFailure> {
        self.check_idle()?;
        let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        if len > DATA_LEN_MAX {
            return Err(ControlFailure::TooLong);
        }
        self.part.memory.write(HEAD_LEN as usize, data);
        self.deadline_us = u64::MAX;
        Ok(self.add(class, command, len))
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

    /// The answer of the device to [`ControlCommand::ReadCoalescing`]; only after
    /// [`CommandState::Ok`], and until the next command.
    pub fn coalescing(&self) -> CoalesceLimits {
        let mut bytes = [0; CoalesceLimits::LEN];
        self.part.memory.read(RESULT_AT as usize, &mut bytes);
        CoalesceLimits::decode(bytes)
    }

    fn check_idle(&self) -> Result<(), ControlFailure> {
        if self.in_flight { Err(ControlFailure::InFlight) } else { Ok(()) }
    }

    /// Adds the command whose data of `len` bytes is in its place, and publishes it.
    fn add(&mut self, class: u8, command: u8, len: u32) -> bool {
        self.part.memory.write(0, &[class, command]);
        self.part.memory.write(ACK_AT as usize, &[ACK_UNWRITTEN]);
        let at = self.part.device_address;
        let readable = [(at, HEAD_LEN), (at + u64::from(HEAD_LEN), len)];
        let readable = if len == 0 { &readable[..1] } else { &readable[..] };
        let (result_at, writable_len) = match (class, command) == HAS_RESULT {
            true => (RESULT_AT, RESULT_LEN + 1),
            false => (ACK_AT, 1),
        };
        let writable = [(at + u64::from(result_at), writable_len)];
        let added = self.queue.add(readable, &writable, BufferId(0));
        assert!(added.is_ok(), "an empty control queue has room for one command");
        self.in_flight = true;
        self.queue.publish();
        self.queue.must_kick()
    }
}
