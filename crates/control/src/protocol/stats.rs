//! The answer to `stats`: what there is to know about ports, workers and the daemon itself.
//!
//! Limits: a field that was added later has a default, for daemons that do not send it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The answer to `stats`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatsReply {
    /// [`PROTOCOL_VERSION`](super::PROTOCOL_VERSION) of the daemon.
    pub version: u32,
    /// Always `true`; a refusal has `false` and an error.
    pub ok: bool,
    /// Time since the daemon has started, in milliseconds.
    pub uptime_ms: u64,
    /// The sandbox of the daemon; older ones do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxStats>,
    /// The process that carries packets; older daemons are one process, and do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_plane: Option<DataPlaneStats>,
    /// The daemon itself; older ones do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon: Option<DaemonStats>,
    /// All ports, in the order of the command line.
    pub ports: Vec<PortStats>,
    /// How each worker spends its time.
    #[serde(default)]
    pub workers: Vec<WorkerStats>,
}

impl StatsReply {
    /// The names of all ports.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.ports.iter().map(|port| port.name.as_str())
    }

    /// The port of that name.
    pub fn port(&self, name: &str) -> Option<&PortStats> {
        self.ports.iter().find(|port| port.name == name)
    }
}

/// The daemon itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonStats {
    /// As `ringway --version` tells it.
    pub release: String,
    /// How often its file was to be read again, and could not be carried out as a whole.
    pub failed_reloads: u64,
    /// Each of its processes: `supervisor`, `data_plane`.
    pub processes: BTreeMap<String, ProcessStats>,
}

/// Memory and descriptors that a process uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStats {
    /// Memory that it has in use, with that of guests.
    pub resident_bytes: u64,
    /// Open file descriptors, where this user may see them.
    pub open_fds: Option<u64>,
}

/// The process that carries packets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataPlaneStats {
    /// Its number.
    pub pid: Option<u32>,
    /// How often one has ended and another one was started.
    pub deaths: u64,
    /// How often one has taken over from another one that worked.
    pub upgrades: u64,
    /// It ends again and again.
    pub failing: bool,
    /// The sandbox of the data plane.
    #[serde(default)]
    pub sandbox: String,
    /// The system call by which the last one has ended that used one that it may not use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forbidden_call: Option<String>,
    /// Packets that may have come twice when it followed one that had ended.
    #[serde(default)]
    pub replayed: u64,
}

/// Whether the daemon is in its sandbox, and what it may do there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxStats {
    /// It gains no rights, leaves no core dump, and has these capabilities only.
    pub on: bool,
    /// Their names (capabilities(7)), in lower case and without `CAP_`.
    pub capabilities: Vec<String>,
}

impl fmt::Display for SandboxStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.on, self.capabilities.as_slice()) {
            (false, _) => f.write_str("off"),
            (true, []) => f.write_str("on (no_new_privs, no core, no capabilities)"),
            (true, names) => {
                write!(f, "on (no_new_privs, no core, capabilities: {})", names.join(", "))
            }
        }
    }
}

/// How one worker spends its time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStats {
    /// Its number.
    pub worker: u16,
    /// The worker's mode when it has nothing to do: `sleeping`, or `polling` first.
    pub mode: String,
    /// When it may poll: `auto`, `always` or `never`.
    pub poll: String,
    /// Share of one processor that it may spend on polls that find nothing, in percent.
    pub poll_budget_percent: u8,
    /// Looks that found something.
    pub poll_hits: u64,
    /// Looks that ended in sleep.
    pub poll_misses: u64,
    /// Time of polls that found nothing, in nanoseconds.
    pub in_vain_ns: u64,
    /// Processor time that its thread has used, in nanoseconds.
    #[serde(default)]
    pub cpu_ns: u64,
    /// Time for which it had nothing to do and slept, in nanoseconds; an older ringway does not
    /// tell.
    #[serde(default)]
    pub slept_ns: Option<u64>,
    /// The sum up to now, with what workers of its number did in data planes before this one.
    pub total: EffortStats,
    /// In the last full second.
    pub last_second: EffortStats,
}

/// The work of a worker in some time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffortStats {
    /// Packets taken from guests and taps.
    pub packets: u64,
    /// System calls on the data path.
    pub system_calls: u64,
    /// Sleeps that ended, other than for a command.
    pub wakeups: u64,
    /// Time spent looking for work, in nanoseconds.
    pub polled_ns: u64,
}

/// The state and counters of one port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStats {
    /// Its name.
    pub name: String,
    /// Its kind as on the command line: `vm`, `vm-connect`, `tap`, `tap-fd`, `nat`.
    pub kind: String,
    /// Socket path, interface name or file descriptor.
    pub address: String,
    /// The labels of the port.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The guest's MAC address.
    pub mac: Option<String>,
    /// The MTU that was configured, in bytes.
    pub mtu: Option<u16>,
    /// Whether a front-end is connected, or the tap is open.
    pub connected: bool,
    /// Whether its link is up (`link=`); older daemons do not say.
    #[serde(default)]
    pub link_up: Option<bool>,
    /// `waiting`, `connected`, `running`, `migrating`, `broken`, `failed` or `quarantined`.
    pub state: String,
    /// Why the port failed, or its last front-end was not to be served any more.
    pub error: Option<String>,
    /// A notice about the port although it works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// Its number in the switch; older daemons do not say.
    #[serde(default)]
    pub number: Option<u16>,
    /// The process that is connected, as the kernel knows it.
    #[serde(default)]
    pub front_end: Option<FrontEndStats>,
    /// The process that waits until that one has gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_front_end: Option<FrontEndStats>,
    /// Front-ends that came while another one was connected and one waited.
    #[serde(default)]
    pub refused_front_ends: u64,
    /// Guests that came here by migration: a new connection goes on where no new ring begins.
    #[serde(default)]
    pub migrations_in: u64,
    /// Guests that left by migration: they stopped while pages were marked, and did not go on.
    #[serde(default)]
    pub migrations_out: u64,
    /// Visits of it in which a data plane ended: in each a packet may have come twice.
    #[serde(default)]
    pub replayed: u64,
    /// Names of the negotiated features.
    pub features: Vec<String>,
    /// The negotiated ring format: `split` or `packed`.
    pub format: Option<String>,
    /// To the guest, or into the tap.
    pub to_guest: DirectionStats,
    /// From the guest, or out of the tap.
    pub from_guest: DirectionStats,
    /// Packets of each queue pair, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<PairStats>,
    /// Queues that were stopped because the guest broke them, each with the reason.
    pub broken: Vec<String>,
    /// The state of each of a guest's queues that runs.
    #[serde(default)]
    pub queues: Vec<QueueStats>,
    /// How notifications are paced, for each direction of a guest's queues.
    #[serde(default)]
    pub pacing: Vec<PacingStats>,
    /// Commands of the guest that were answered with an error.
    #[serde(default)]
    pub refused_commands: u64,
    /// Addresses that have moved to this port from another one.
    #[serde(default)]
    pub moved_addresses: u64,
    /// How long packets of its guest wait, with `histograms=on`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<WaitStats>,
    /// Milliseconds since its queues were stopped after they had run; none where they run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_ms: Option<u64>,
    /// The front-end copies the guest's memory, and no queue runs before it has given a log in
    /// which written pages can be marked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits_for_log: bool,
    /// A MAC address that its guest uses, where nothing came from the one that the port has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_mac: Option<String>,
    /// IP addresses that its guest was seen to use, where a tap asks for that (`neighbours=sync`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen_ips: Vec<String>,
    /// Of a router: what it does for its guests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nat: Option<NatStats>,
}

/// How long packets of a guest wait.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitStats {
    /// From when a packet was visible to the guest until the guest was called about it.
    pub call_delay: HistogramStats,
    /// From when the worker woke up for packets of the guest until it took them.
    pub visit_delay: HistogramStats,
    /// How long a packet of the guest was held: for room at its receiver, or for its rate.
    pub packet_hold: HistogramStats,
}

/// How often something took how long.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistogramStats {
    /// Up to where each count goes, in nanoseconds; the last count is of all that is longer.
    pub bounds_ns: Vec<u64>,
    /// How many were between two bounds; one more than there are bounds.
    pub counts: Vec<u64>,
    /// All times together, in nanoseconds.
    pub sum_ns: u64,
}

/// The state and counters of a router.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NatStats {
    /// The guests' networks.
    #[serde(default)]
    pub networks: Vec<String>,
    /// The one of them that overlaps with a network of this machine, and that network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<String>,
    /// Flows by the port that the guest is behind; ports without any are left out.
    pub flows: BTreeMap<String, u64>,
    /// Leased addresses, by the port that the guest is behind.
    pub leases: BTreeMap<String, Vec<String>>,
    /// Where the machine listens, and for which port of which guest.
    pub forwards: Vec<String>,
    /// Where it is to listen and cannot yet, and why; tried again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_forwards: Vec<String>,
    /// Sockets that are open.
    pub sockets: u64,
    /// Packets of guests that were refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// The port whose guest was the last one to send from an address that is not its own, and that
    /// address; nothing if that was long ago.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub spoofed: BTreeMap<String, String>,
    /// Features of this machine that guests need and it lacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<String>,
}

/// The process that connected to a port, or to which the port connected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrontEndStats {
    /// Its number; none if it is in a PID namespace that ringway does not see.
    pub pid: Option<u32>,
    /// The user that it ran as.
    pub uid: u32,
    /// That user's name.
    pub user: Option<String>,
    /// The name of the program, as it calls itself.
    pub program: Option<String>,
}

impl fmt::Display for FrontEndStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "pid {pid}")?,
            None => f.write_str("pid unknown")?,
        }
        if let Some(program) = &self.program {
            write!(f, " ({program})")?;
        }
        match &self.user {
            Some(user) => write!(f, ", user {user} ({})", self.uid),
            None => write!(f, ", user {}", self.uid),
        }
    }
}

/// The state of one queue at this moment, and its counters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStats {
    /// Its name in the specification: `receiveq1`, `transmitq1`, `controlq`, …
    pub queue: String,
    /// The mode of the worker for it: `sleeping`, `polling` or `held`.
    pub mode: String,
    /// Packets so far; none for the controlq.
    pub packets: u64,
    /// Notifications from the guest so far: each has woken or interrupted the worker.
    pub kicks: u64,
    /// Notifications to the guest so far.
    pub calls: u64,
    /// Kicks in the last full second.
    pub wakeups_last_second: u64,
}

/// How the notifications of one direction are paced at this moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacingStats {
    /// The queue by its name in the specification: `receiveq1`, `transmitq1`, …
    #[serde(default)]
    pub queue: String,
    /// `calls` (packets to the guest), `returns` (used transmit buffers) or `kicks`.
    pub direction: String,
    /// Packets so far that these notifications are about.
    #[serde(default)]
    pub packets: u64,
    /// Notifications so far.
    #[serde(default)]
    pub notifications: u64,
    /// Packets that may pass before the other side is told.
    pub window: u32,
    /// How long at most one waits for that, in nanoseconds.
    pub timer_ns: u64,
    /// Why the window was last changed.
    pub cause: String,
}

/// Packets of one queue pair of one port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairStats {
    /// The number of the pair, counted from 0.
    pub pair: u16,
    /// To the guest, or into the tap.
    pub to_guest: u64,
    /// From the guest, or out of the tap.
    pub from_guest: u64,
}

/// One direction of one port, counted since the daemon has started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectionStats {
    /// Packets that went through.
    pub packets: u64,
    /// Their bytes, with the Ethernet header, without the virtio-net header.
    pub bytes: u64,
    /// Notifications from the guest.
    pub kicks: u64,
    /// Notifications to the guest.
    pub calls: u64,
    /// Dropped packets by reason; an older ringway leaves reasons out that never happened.
    pub drops: BTreeMap<String, u64>,
}

impl DirectionStats {
    /// Packets dropped for that reason.
    pub fn dropped(&self, reason: &str) -> u64 {
        self.drops.get(reason).copied().unwrap_or(0)
    }
}
