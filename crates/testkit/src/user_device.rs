//! A vhost-user device brought up by the driver library itself, for guests in user space.
//!
//! How: memory as [`TestMemory`] has it, a [`FrontendTransport`] on the socket, and the driver's
//! own [`bring_up`]. Rings and buffers lie in one arena.
//!
//! Limits: the queue pairs of the options, plus the control queue if negotiated.

use std::io;
use std::path::Path;
use std::time::Duration;

use ringway_driver::{Arena, BringUpError, BroughtUp, Queues, Transport, Wanted, bring_up};
use ringway_net::{CONFIG_LEN, Features, Negotiated, NetConfig};
use ringway_vhost_user::{EventfdDoorbell, Frontend, FrontendError, FrontendTransport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::arena::TestMemory;
use crate::attachment::{ANSWER_LIMIT, GuestError, GuestOptions, memory_table};
use crate::frames::Mac;

/// Where the memory is, as the guest counts.
const MEMORY_AT: u64 = 0x1_4000_0000;
/// Bytes of buffer memory per queue entry and direction: the longest packet, rounded up.
const BUFFER_LEN: u64 = 66_048;
/// Bytes beside the buffers: rings, and control commands.
const EXTRA_LEN: u64 = 4 << 20;
/// Bytes of the configuration space that are read: up to and including the MTU.
const CONFIG_READ_LEN: usize = 12;
/// Entries of the control queue.
const CONTROL_QUEUE_SIZE: u16 = 64;

/// A device that is live.
#[derive(Debug)]
pub struct UserDevice {
    transport: FrontendTransport,
    /// The negotiated features and lengths.
    pub negotiated: Negotiated,
    /// The configuration as it was when the device came up.
    pub config: NetConfig,
    /// The guest's address.
    pub mac: Mac,
    /// Memory for buffers.
    pub arena: Arena,
    /// Of the configuration, when it was last asked whether it changed.
    generation: u32,
    /// Keeps the memory mapped.
    _memory: TestMemory,
}

impl UserDevice {
    /// Brings up the device that listens on `socket`, and hands its queues over.
    ///
    /// # Errors
    /// The device is not there, or does not come up.
    pub fn bring_up(
        socket: &Path,
        options: &GuestOptions,
    ) -> Result<(Self, Queues<EventfdDoorbell>), GuestError> {
        let frontend = Frontend::connect(socket, ANSWER_LIMIT)?;
        let pairs = u64::from(options.queue_pairs);
        let spare_len = u64::from(options.rx_spare_len).next_multiple_of(BUFFER_LEN);
        let queues_len = 2 * u64::from(options.queue_size) * BUFFER_LEN + spare_len;
        let buffers_len = pairs * queues_len + EXTRA_LEN;
        let memory = TestMemory::new(&[(MEMORY_AT, buffers_len.next_multiple_of(4096))])?;
        let mut transport = FrontendTransport::new(frontend, memory_table(&memory)?);
        let mut arena = Arena::new(memory.region(0), MEMORY_AT);
        // OFFERED is also all that this driver knows, but for several pairs.
        let several = if options.queue_pairs > 1 { Features::MQ } else { Features::empty() };
        let accept = options.accept.intersection(Features::OFFERED) | several;
        if !accept.contains(Features::VERSION_1) {
            return Err(GuestError::NotNegotiated("VERSION_1"));
        }
        let wanted = Wanted {
            accept,
            queue_pairs: options.queue_pairs,
            queue_size: options.queue_size,
            control_queue_size: CONTROL_QUEUE_SIZE,
            ..Wanted::DEFAULT
        };
        let BroughtUp { negotiated, config, queues } =
            bring_up(&mut transport, &mut arena, &wanted).map_err(GuestError::from)?;
        let mac = if config.mac.is_station() { config.mac.0 } else { options.mac };
        let _memory = memory;
        let generation = transport.config_generation()?;
        Ok((Self { transport, negotiated, config, mac, arena, generation, _memory }, queues))
    }

    /// The device's configuration, read now: also the fields whose feature was not negotiated.
    ///
    /// # Errors
    /// The device went away.
    pub fn config(&mut self) -> Result<NetConfig, GuestError> {
        let mut bytes = [0; CONFIG_LEN];
        self.transport.read_config(0, &mut bytes[..CONFIG_READ_LEN])?;
        Ok(NetConfig::decode(&bytes))
    }

    /// Whether the device has said since the last time asked that the configuration changed.
    ///
    /// # Errors
    /// The device went away.
    pub fn config_changed(&mut self) -> Result<bool, GuestError> {
        let now = self.transport.config_generation()?;
        Ok(std::mem::replace(&mut self.generation, now) != now)
    }

    /// Waits for a call on any of these queues and takes it. `false`: none within `timeout`.
    ///
    /// # Errors
    /// From the operating system.
    pub fn wait_call(
        &self,
        queues: impl Iterator<Item = u16> + Clone,
        timeout: Duration,
    ) -> Result<bool, GuestError> {
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        let calls = queues.clone().filter_map(|queue| self.transport.call_fd(queue));
        let mut waiting: Vec<PollFd<'_>> =
            calls.map(|call| PollFd::from_borrowed_fd(call, PollFlags::IN)).collect();
        match poll(&mut waiting, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {
                Ok(queues.filter(|&queue| self.transport.take_call(queue)).count() > 0)
            }
            Err(error) => Err(GuestError::Io(error.into())),
        }
    }

    /// Stops all queues and stays connected, as a VM monitor does whose guest goes on elsewhere.
    ///
    /// # Errors
    /// The device went away before, or refuses.
    pub fn stop(&mut self) -> Result<(), GuestError> {
        Ok(self.transport.set_status(0)?)
    }

    /// Stops all queues and disconnects.
    ///
    /// # Errors
    /// The device went away before, or refuses.
    pub fn detach(mut self) -> Result<(), GuestError> {
        self.stop()
    }
}

impl From<BringUpError<FrontendError>> for GuestError {
    fn from(error: BringUpError<FrontendError>) -> Self {
        match error {
            BringUpError::Transport(error) => Self::Frontend(error),
            BringUpError::Features(error) => Self::Features(error),
            BringUpError::Legacy => Self::NotNegotiated("VERSION_1"),
            BringUpError::ArenaFull => Self::ArenaFull,
            other => Self::BringUp(other.to_string()),
        }
    }
}
