//! The effects that a session wants, and what came of them.
//!
//! Plain values: the code that carries the effects out needs to know nothing about vhost-user.

use ringway_foreign::UntrustedFd;
use ringway_virtq::{Areas, Format, Position, QueueSetup};

use crate::memory_table::MemoryTable;
use crate::message::{LogArea, MemoryRange, MemoryRegion, Reply};
use crate::refusal::Refusal;

/// One thing that has to happen. Effects are carried out in the order in which they come: which
/// kicks are watched, then queues that have to stop, then what changes memory or features. After
/// the first failure only queues that have to stop still do, and those that the same outcome has
/// started are stopped again.
#[derive(Debug)]
pub enum Effect {
    /// A queue stops; where it stood is reported in [`Applied::stopped`]. The ring is not touched
    /// any more when the report is made.
    StopQueue {
        /// The index of the queue.
        index: u16,
    },
    /// The device is reset: forget what was negotiated and what the driver has set. Memory stays.
    Reset,
    /// From now on pages that are written are marked there, and nowhere else. Where that is not
    /// possible, [`Session::log_failed`](crate::Session::log_failed) says which queues have to
    /// stop, before the log before goes; and no other effect of this outcome is carried out.
    SetLog(LogArea),
    /// From now on no page is marked: the log is unmapped.
    DropLog,
    /// The front-end begins to copy memory while queues run, or has ended; for people.
    Logging(bool),
    /// The driver has accepted these features (virtio bits only). No queue runs.
    Features(u64),
    /// The whole memory table, replacing the one before. Queues that run are bound to it.
    SetMemory(Vec<MemoryRegion>),
    /// One more region.
    AddMemory(MemoryRegion),
    /// One region less. No running queue has its ring there.
    RemoveMemory(MemoryRange),
    /// A queue starts.
    StartQueue {
        /// The index of the queue.
        index: u16,
        /// The format of the ring.
        format: Format,
        /// Where it is and where to continue.
        setup: QueueSetup,
        /// The position is what the front-end has told of a packed ring. It tells one also where it
        /// does not know: what the ring shows counts more.
        is_told: bool,
        /// Driver → device; `None`: the device has to poll.
        kick: Option<UntrustedFd>,
        /// Device → driver; `None`: the driver polls.
        call: Option<UntrustedFd>,
        /// Device → front-end, when the queue breaks.
        error: Option<UntrustedFd>,
    },
    /// The ring of a running queue is somewhere else now (or its memory is); the position stays.
    /// Behind one of the memory effects: in that memory, so both belong into one step.
    RebindQueue {
        /// The index of the queue.
        index: u16,
        /// Where.
        areas: Areas,
    },
    /// A transmitq that does not run because it is disabled: what is available in it becomes used,
    /// and goes nowhere. Where it stands then is reported in [`Applied::stopped`].
    DiscardPackets {
        /// The index of the queue.
        index: u16,
        /// Where it is and where to continue; if this outcome has stopped it, where it stood.
        setup: QueueSetup,
        /// Device → driver.
        call: Option<UntrustedFd>,
    },
    /// Kicks of these queues, and no others, are to be told from now on:
    /// [`Session::kicked`](crate::Session::kicked). Comes before queues stop.
    WatchKicks(Vec<(u16, UntrustedFd)>),
    /// Another kick fd for a running queue.
    SetKick {
        /// The index of the queue.
        index: u16,
        /// The fd.
        fd: Option<UntrustedFd>,
    },
    /// Another call fd for a running queue.
    SetCall {
        /// The index of the queue.
        index: u16,
        /// The fd.
        fd: Option<UntrustedFd>,
    },
    /// Another error fd for a running queue.
    SetError {
        /// The index of the queue.
        index: u16,
        /// The fd.
        fd: Option<UntrustedFd>,
    },
    /// The channel on which the back-end may send requests.
    BackendChannel(UntrustedFd),
    /// The guest with this MAC address has moved here: tell the network.
    AnnounceMac([u8; 6]),
    /// The front-end gives the guest this MTU, in bytes.
    SetMtu(u16),
    /// A transfer of the device's state begins when the reply is on its way. Fails where it cannot
    /// begin: another one runs, or the file is neither a pipe nor a Unix stream socket.
    TransferState {
        /// The direction.
        direction: StateDirection,
        /// A pipe, or a socket, or something else.
        fd: UntrustedFd,
    },
    /// The last transfer has ended well; otherwise this fails. Not to be asked for before it has
    /// ended.
    CheckState,
}

/// The direction in which a device's state goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateDirection {
    /// The back-end writes it: the guest leaves.
    Save,
    /// The back-end reads it: the guest comes.
    Load,
}

/// The consequences of a request.
#[derive(Debug)]
#[must_use = "the effects have to be carried out and the reply has to be completed"]
pub struct Outcome {
    /// To be carried out, in this order.
    pub effects: Vec<Effect>,
    /// For [`Session::complete`](crate::Session::complete), after the effects.
    pub pending: PendingReply,
    /// The request was refused, for the log. The reply says so by itself.
    pub refused: Option<Refusal>,
    /// The session goes by what was asked, also where it is refused: because it cannot be carried
    /// out now, or because the addresses of a ring may come before the memory that they are in.
    pub is_remembered: bool,
}

/// The result of the effects of one outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Whether all of them succeeded. If not, no queue of this outcome has started: one that had
    /// started already was stopped again, and is among [`stopped`](Self::stopped).
    pub ok: bool,
    /// Whether the effects before those that move and start rings were carried out: memory,
    /// features. Counts only if not all succeeded.
    pub is_set_up: bool,
    /// Where each queue stood that was stopped. A queue that did not run is left out.
    pub stopped: Vec<(u16, Position)>,
}

impl Applied {
    /// All went well and no queue was stopped.
    pub const OK: Self = Self { ok: true, is_set_up: true, stopped: Vec::new() };
    /// The first of them failed, and no queue was stopped.
    pub const FAILED: Self = Self { ok: false, is_set_up: false, stopped: Vec::new() };
}

/// A reply that waits for its effects.
#[derive(Debug)]
#[must_use = "the front-end may wait for this reply"]
pub struct PendingReply {
    pub(crate) code: u32,
    pub(crate) reply_wanted: bool,
    pub(crate) answer: Answer,
    pub(crate) before: Before,
}

/// The state to go back to where effects fail.
#[derive(Debug, Default)]
pub(crate) struct Before {
    /// When the features cannot be used.
    pub accepted: Option<u64>,
    pub is_accepting: bool,
    /// When the new memory cannot be mapped.
    pub memory: Option<MemoryTable>,
    /// Then also where these rings were.
    pub rebound: Vec<(u16, Areas)>,
    /// Rings that did not run.
    pub started: Vec<u16>,
}

/// The answer to be given, as far as it is known before the effects.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Acknowledge, if that is wanted.
    Ack,
    /// Refuse, if an answer is wanted.
    Nack,
    /// Known already.
    Reply(Reply),
    /// If the effects succeed, and if they do not.
    Either { done: Reply, failed: Reply },
    /// The position of this ring, known when it has stopped.
    Base { index: u16 },
}
