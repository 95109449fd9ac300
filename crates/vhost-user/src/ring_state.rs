//! The settings of a front-end for one ring, and where the ring stands while it does not run.
//!
//! The position travels in a 32-bit word, the "base". For a split ring it is the next available
//! index; what a front-end tells there only goes back to it, because the ring starts at the used
//! index that stands in it. For a packed ring it holds both positions: bits 0 to 14 and 15 the next
//! available offset and its wrap counter, bits 16 to 30 and 31 the same for the next used one.

use std::io;

use ringway_foreign::UntrustedFd;
use ringway_virtq::{Areas, Format, Position, QueueOptions, QueueSetup};

use crate::effect::Effect;
use crate::message::VringAddress;
use crate::refusal::Refusal;

/// Largest queue (virtio 1.2 §2.7, §2.8).
const QUEUE_SIZE_MAX: u32 = 32768;

const OFFSET_MASK: u32 = 0x7fff;
const WRAP_BIT: u32 = 0x8000;

/// A position as it is told in `GET_VRING_BASE` (vhost-user, "Vring state").
pub fn base_from_position(position: Position, format: Format) -> u32 {
    let packed = |offset: u16, wrap: bool| {
        (u32::from(offset) & OFFSET_MASK) | if wrap { WRAP_BIT } else { 0 }
    };
    match format {
        Format::Split => u32::from(position.available),
        Format::Packed => {
            packed(position.available, position.available_wrap)
                | packed(position.used, position.used_wrap) << 16
        }
    }
}

/// The position that a `SET_VRING_BASE` means, taken literally.
pub fn position_from_base(base: u32, format: Format) -> Position {
    let low = low_half(base);
    match format {
        Format::Split => Position { available: low, used: low, ..Position::FRESH },
        Format::Packed => {
            let high = low_half(base >> 16);
            Position {
                available: low & 0x7fff,
                available_wrap: low & 0x8000 != 0,
                used: high & 0x7fff,
                used_wrap: high & 0x8000 != 0,
            }
        }
    }
}

fn low_half(word: u32) -> u16 {
    let [a, b, ..] = word.to_le_bytes();
    u16::from_le_bytes([a, b])
}

/// How the driver kicks.
#[derive(Debug, Default)]
pub(crate) enum Kick {
    /// No `SET_VRING_KICK` since the ring was last stopped: it may not run.
    #[default]
    Missing,
    /// Explicitly without an fd: the device polls.
    Poll,
    /// Through this fd.
    Fd(UntrustedFd),
}

/// Where a ring continues when it starts next.
#[derive(Debug, Clone, Copy, Default)]
enum Base {
    /// Nothing was said: at the beginning.
    #[default]
    Unset,
    /// The base that the front-end told; its meaning depends on the format.
    Told(u32),
    /// Where it stood when it was stopped.
    Stood,
}

/// A ring that was told to stop, and whose position is still to come.
#[derive(Debug, Clone, Copy)]
struct Stopping {
    format: Format,
    /// The ring goes on there. Otherwise the position is only told, to a front-end that asks for
    /// it.
    goes_on: bool,
}

/// A ring that runs: how it was started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Running {
    pub areas: Areas,
    pub format: Format,
}

/// One ring.
#[derive(Debug, Default)]
pub(crate) struct RingState {
    pub size: Option<u16>,
    /// In the front-end's address space.
    pub addresses: Option<VringAddress>,
    pub kick: Kick,
    pub call: Option<UntrustedFd>,
    pub error: Option<UntrustedFd>,
    /// The front-end's wish, if it has told one: it may come long before the ring can run.
    pub enabled: Option<bool>,
    /// Stopped by `GET_VRING_BASE`: the ring goes on when the guest kicks.
    pub is_suspended: bool,
    /// It has gone on so, and the front-end, which takes it for stopped, may tell everything anew.
    pub went_on: bool,
    /// Started and disabled, and what is sent in it is discarded.
    pub discards: bool,
    /// Counts kick fds that were set.
    pub kick_number: u32,
    pub running: Option<Running>,
    /// A start was tried and failed: the next one is tried when something is different.
    pub has_failed: bool,
    base: Base,
    /// Where it stood when it was stopped last.
    pub stood: Option<(Position, Format)>,
    /// The last answer to `GET_VRING_BASE`.
    answered: Option<u32>,
    stopping: Option<Stopping>,
}

impl RingState {
    /// The effect that starts this ring; fds are duplicated, because it may have to start again.
    pub fn start(
        &mut self,
        index: u16,
        running: Running,
        options: QueueOptions,
    ) -> io::Result<Option<Effect>> {
        let Some(size) = self.size else { return Ok(None) };
        let kick = match &self.kick {
            Kick::Missing => return Ok(None),
            Kick::Poll => None,
            Kick::Fd(fd) => Some(fd.try_clone()?),
        };
        let Running { areas, format } = running;
        let setup = QueueSetup { size, areas, position: self.position(format), options };
        let call = duplicate(self.call.as_ref())?;
        let error = duplicate(self.error.as_ref())?;
        self.running = Some(running);
        let is_told = format == Format::Packed && !matches!(self.base, Base::Stood);
        Ok(Some(Effect::StartQueue { index, format, setup, is_told, kick, call, error }))
    }

    /// The effect that discards what is available in this ring, which does not run.
    pub fn discard(
        &mut self,
        index: u16,
        Running { areas, format }: Running,
        options: QueueOptions,
    ) -> io::Result<Option<Effect>> {
        let Some(size) = self.size else { return Ok(None) };
        let setup = QueueSetup { size, areas, position: self.position(format), options };
        let call = duplicate(self.call.as_ref())?;
        self.stopping = Some(Stopping { format, goes_on: true });
        Ok(Some(Effect::DiscardPackets { index, setup, call }))
    }

    /// A kick fd, or none, was set.
    pub fn set_kick(&mut self, kick: Kick) {
        self.kick = kick;
        self.kick_number = self.kick_number.wrapping_add(1);
        (self.is_suspended, self.went_on) = (false, false);
    }

    /// The ring has to stop until it is kicked, or a new kick is set. `false`: it did not run.
    pub fn suspend(&mut self) -> bool {
        self.is_suspended = !matches!(self.kick, Kick::Missing);
        self.pause()
    }

    /// The front-end tells anew where the ring is: it sets a kick when it has told all.
    pub fn describe_anew(&mut self) {
        if self.is_suspended || self.went_on {
            self.set_kick(Kick::Missing);
        }
    }

    /// The ring has to stop, but keeps its kick: it goes on when the reason is gone.
    /// `false`: it did not run.
    pub fn pause(&mut self) -> bool {
        let Some(Running { format, .. }) = self.running.take() else { return false };
        self.stopping = Some(Stopping { format, goes_on: true });
        true
    }

    /// The ring has to stop until a new kick is set. `false`: it did not run.
    pub fn stop(&mut self) -> bool {
        self.set_kick(Kick::Missing);
        self.pause()
    }

    /// The start could not be carried out; the ring stands where it stood.
    pub fn start_failed(&mut self) {
        self.pause();
        self.has_failed = true;
    }

    /// As in the beginning, but for the call and error fds: front-ends do not send them again.
    pub fn reset(&mut self) {
        let (call, error) = (self.call.take(), self.error.take());
        *self =
            Self { call, error, kick_number: self.kick_number.wrapping_add(1), ..Self::default() };
    }

    /// The same by a device status of 0. QEMU 7.2 stops a device so, and asks only then where its
    /// rings stood; it tells that again when the device goes on.
    pub fn reset_by_status(&mut self) {
        let stopping = self.stopping.map(|stopping| Stopping { goes_on: false, ..stopping });
        let (stood, answered) = (self.stood, self.answered);
        self.reset();
        *self = Self { stood, answered, stopping, ..std::mem::take(self) };
    }

    /// Where the ring stood when it was stopped.
    pub fn stopped_at(&mut self, position: Position) {
        let Some(Stopping { format, goes_on }) = self.stopping else { return };
        self.stood = Some((position, format));
        if goes_on {
            self.base = Base::Stood;
        }
    }

    /// Whether it goes on where it stood when it was stopped.
    pub fn goes_on_there(&self) -> bool {
        matches!(self.base, Base::Stood)
    }

    /// A predecessor of this process had stopped the ring there, and may have said so.
    pub fn stood_at(&mut self, base: u32, goes_on: bool, format: Format) {
        self.stood = Some((position_from_base(base, format), format));
        self.answered = Some(base);
        if goes_on {
            self.base = Base::Stood;
        }
    }

    /// The front-end says where to continue. If it says what it was told, the ring knows better: a
    /// base holds not all of a position, and the ring may have gone on since.
    pub fn continue_at(&mut self, base: u32) {
        let is_ours = self.answered == Some(base) && self.stood.is_some();
        self.base = if is_ours { Base::Stood } else { Base::Told(base) };
        self.stood = self.stood.filter(|_| is_ours);
    }

    /// The answer to `GET_VRING_BASE`.
    pub fn answer_base(&mut self, format: Format) -> u32 {
        let (position, format) = self.stood.unwrap_or((self.position(format), format));
        let base = base_from_position(position, format);
        self.answered = Some(base);
        base
    }

    fn position(&self, format: Format) -> Position {
        match (self.base, self.stood) {
            (Base::Told(base), _) => self.position_told(base, format),
            (Base::Stood, Some((position, stood_in))) if stood_in == format => position,
            (Base::Unset | Base::Stood, _) => Position::FRESH,
        }
    }

    /// Two front-ends do not say what they mean for packed rings, unless it is what they were told:
    /// User Mode Linux sends 0 for a fresh ring (wrap counters are 1 there), and DPDK's virtio-user
    /// sends only the half for the available position.
    fn position_told(&self, base: u32, format: Format) -> Position {
        let literal = position_from_base(base, format);
        if format == Format::Split || self.answered == Some(base) || base >> 16 != 0 {
            return literal;
        }
        if base == 0 {
            return Position::FRESH;
        }
        Position { used: literal.available, used_wrap: literal.available_wrap, ..literal }
    }
}

pub(crate) fn duplicate(fd: Option<&UntrustedFd>) -> io::Result<Option<UntrustedFd>> {
    fd.map(UntrustedFd::try_clone).transpose()
}

/// A size that some format can have.
pub(crate) fn queue_size(index: u16, size: u32, maybe_packed: bool) -> Result<u16, Refusal> {
    let refusal = Refusal::BadQueueSize { index, size };
    if size == 0 || size > QUEUE_SIZE_MAX || !(maybe_packed || size.is_power_of_two()) {
        return Err(refusal);
    }
    u16::try_from(size).map_err(|_| refusal)
}

/// Bytes of the descriptor, driver and device area (virtio 1.2 §2.7, §2.8).
pub(crate) fn area_lens(size: u16, format: Format, event_idx: bool) -> (u64, u64, u64) {
    let size = u64::from(size);
    let event = if event_idx { 2 } else { 0 };
    match format {
        Format::Split => (16 * size, 4 + 2 * size + event, 4 + 8 * size + event),
        Format::Packed => (16 * size, 4, 4),
    }
}
