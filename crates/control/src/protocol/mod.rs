//! The control protocol: one JSON object per line, question and answer, with a version.
//!
//! ```text
//! {"version":1,"command":"stats"}
//! {"version":1,"ok":true,"uptime_ms":5000,"ports":[…]}
//! {"version":1,"ok":false,"error":"…"}
//! ```
//!
//! The questions and answers are here, for both sides; the daemon does the input and output in its
//! own loop, and [`client`] asks. `docs/control-protocol.md` is for those who write another client.
//!
//! Limits: a question has at most [`LINE_LEN_MAX`] bytes, an answer at most [`REPLY_LEN_MAX`].
//! Unknown fields are ignored on both sides, so fields may be added without a new version.

mod capture;
mod changes;
pub mod client;
#[doc(hidden)]
pub mod examples;
mod fdb;
pub mod fds;
mod negotiated;
mod router;
mod stats;
mod trace;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::config::error::nearest;

pub use capture::{CaptureQuestion, CaptureReply, Direction};
pub use changes::{ConfigChange, LogQuestion, LogReply, ReloadReply};
pub use client::request_stats;
pub use fdb::{FDB_PAGE_MAX, FdbEntry, FdbFlushQuestion, FdbFlushReply, FdbQuestion, FdbReply};
pub use router::{PortShowQuestion, PortShowReply, ShownFlow, ShownForward, ShownGuest};
pub use stats::{
    DaemonStats, DataPlaneStats, DirectionStats, EffortStats, FrontEndStats, HistogramStats,
    NatStats, PacingStats, PairStats, PortStats, ProcessStats, QueueStats, SandboxStats,
    StatsReply, WaitStats, WorkerStats,
};
pub use trace::{TraceQuestion, TraceReceiver, TraceReply, TraceStep};

/// Version of the protocol.
pub const PROTOCOL_VERSION: u32 = 1;

/// Bytes of a question, without the newline.
pub const LINE_LEN_MAX: usize = 16 << 10;

/// Bytes of an answer: a few thousand per port, and room for many ports.
pub const REPLY_LEN_MAX: u64 = 16 << 20;

/// The commands, in the order of the documentation.
const COMMANDS: [&str; 14] = [
    "stats",
    "port_list",
    "port_add",
    "port_remove",
    "port_set",
    "port_show",
    "fdb",
    "fdb_flush",
    "capture",
    "trace",
    "log",
    "reload",
    "upgrade",
    "stop",
];

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Statistics: each port's negotiation, packets and drops.
    Stats,
    /// The configuration of each port.
    PortList,
    /// A new port: its name, kind and options, as in [`config::json`](crate::config::json).
    PortAdd {
        /// The port.
        port: Map<String, Value>,
        /// It ends with ringway, also where others come back after a restart.
        until_restart: bool,
    },
    /// The port of that name goes.
    PortRemove(String),
    /// Options of a port change; `null` is the default.
    PortSet {
        /// Its name.
        name: String,
        /// The options that change.
        options: Map<String, Value>,
    },
    /// The state of a router, and the flows through it.
    PortShow(PortShowQuestion),
    /// The addresses behind ports.
    Fdb(FdbQuestion),
    /// Learned addresses are forgotten.
    FdbFlush(FdbFlushQuestion),
    /// Copies of packets of a port, from now on.
    Capture(CaptureQuestion),
    /// The way that a packet would take.
    Trace(TraceQuestion),
    /// The level of the log from now on.
    Log(LogQuestion),
    /// The file is read again.
    Reload,
    /// Another program becomes the data plane.
    Upgrade {
        /// Its absolute path; `None`: the one that is now where the running one was.
        program: Option<String>,
    },
    /// It ends, and guests see their links go down.
    Stop,
}

#[derive(Deserialize)]
struct Envelope {
    version: u32,
    command: String,
    name: Option<String>,
    port: Option<Map<String, Value>>,
    options: Option<Map<String, Value>>,
    program: Option<String>,
    #[serde(default)]
    until_restart: bool,
}

impl Request {
    /// Reads one line, without the newline.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn parse(line: &str) -> Result<Self, String> {
        if line.len() > LINE_LEN_MAX {
            return Err(format!("{} bytes are too long: at most {LINE_LEN_MAX}", line.len()));
        }
        let request: Envelope =
            serde_json::from_str(line).map_err(|why| format!("not a request: {why}"))?;
        if request.version != PROTOCOL_VERSION {
            let version = request.version;
            return Err(format!("version {version} is not spoken here: use {PROTOCOL_VERSION}"));
        }
        let missing = |field: &str| format!("{}: {field:?} is missing: add it", request.command);
        let name = || request.name.clone().ok_or_else(|| missing("name"));
        match request.command.as_str() {
            "stats" => Ok(Self::Stats),
            "port_list" => Ok(Self::PortList),
            "port_add" => {
                let port = request.port.ok_or_else(|| missing("port"))?;
                Ok(Self::PortAdd { port, until_restart: request.until_restart })
            }
            "port_remove" => Ok(Self::PortRemove(name()?)),
            "port_set" => {
                let name = name()?;
                Ok(Self::PortSet {
                    name,
                    options: request.options.ok_or_else(|| missing("options"))?,
                })
            }
            "port_show" => question(line).map(Self::PortShow),
            "fdb" => question(line).map(Self::Fdb),
            "fdb_flush" => question(line).map(Self::FdbFlush),
            "capture" => question(line).map(Self::Capture),
            "trace" => question(line).map(Self::Trace),
            "log" => question(line).map(Self::Log),
            "reload" => Ok(Self::Reload),
            "upgrade" => Ok(Self::Upgrade { program: request.program }),
            "stop" => Ok(Self::Stop),
            other => Err(unknown_command(other)),
        }
    }

    /// One line, without the newline.
    pub fn to_line(&self) -> String {
        let version = PROTOCOL_VERSION;
        let request = match self {
            Self::Stats => json!({ "version": version, "command": "stats" }),
            Self::PortList => json!({ "version": version, "command": "port_list" }),
            Self::PortAdd { port, until_restart } => {
                let mut request =
                    json!({ "version": version, "command": "port_add", "port": port });
                if *until_restart {
                    request["until_restart"] = true.into();
                }
                request
            }
            Self::PortRemove(name) => {
                json!({ "version": version, "command": "port_remove", "name": name })
            }
            Self::PortSet { name, options } => json!({
                "version": version, "command": "port_set", "name": name, "options": options,
            }),
            Self::PortShow(question) => with_command("port_show", question),
            Self::Fdb(question) => with_command("fdb", question),
            Self::FdbFlush(question) => with_command("fdb_flush", question),
            Self::Log(question) => with_command("log", question),
            Self::Reload => json!({ "version": version, "command": "reload" }),
            Self::Stop => json!({ "version": version, "command": "stop" }),
            Self::Trace(question) => with_command("trace", question),
            Self::Capture(question) => with_command("capture", question),
            Self::Upgrade { program } => {
                json!({ "version": version, "command": "upgrade", "program": program })
            }
        };
        request.to_string()
    }
}

/// The fields of a request.
fn question<Q: DeserializeOwned>(line: &str) -> Result<Q, String> {
    serde_json::from_str(line).map_err(|why| format!("not a request: {why}"))
}

/// A request with these fields.
fn with_command(command: &str, question: &impl Serialize) -> Value {
    let mut request = json!({ "version": PROTOCOL_VERSION, "command": command });
    if let (Value::Object(request), Ok(Value::Object(fields))) =
        (&mut request, serde_json::to_value(question))
    {
        request.extend(fields);
    }
    request
}

fn unknown_command(typed: &str) -> String {
    let advice = match nearest(typed, COMMANDS) {
        Some(word) => format!("did you mean {word:?}?"),
        None => format!("use one of {}", COMMANDS.join(" ")),
    };
    format!("there is no command {typed:?}: {advice}")
}

/// The answer to `port_list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortListReply {
    /// [`PROTOCOL_VERSION`] of the daemon.
    pub version: u32,
    /// Always `true`.
    pub ok: bool,
    /// All ports, by number.
    pub ports: Vec<ListedPort>,
}

/// How a port is configured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedPort {
    /// Name, kind with place, and every option that is no default, as in the file.
    pub port: Map<String, Value>,
    /// As in the statistics.
    pub state: String,
    /// The MAC address that the guest is given.
    pub mac: Option<String>,
    /// Absolute path of its vhost-user socket.
    pub socket: Option<String>,
    /// It was added while ringway ran, and is not in its file.
    #[serde(default)]
    pub added: bool,
}

impl ListedPort {
    /// Its name.
    pub fn name(&self) -> &str {
        self.port.get("name").and_then(Value::as_str).unwrap_or_default()
    }

    /// The texts of an option that is a list; none if it is the default.
    pub fn texts(&self, option: &str) -> impl Iterator<Item = &str> + use<'_> {
        let list = self.port.get(option).and_then(Value::as_array).into_iter().flatten();
        list.filter_map(Value::as_str)
    }
}

/// The answer to a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeReply {
    /// [`PROTOCOL_VERSION`] of the daemon.
    pub version: u32,
    /// Always `true`.
    pub ok: bool,
    /// Whether a guest was sent a notice that its configuration has changed.
    pub guest_told: bool,
    /// Options that only the next guest that connects will see.
    pub at_next_connection: Vec<String>,
    /// Warnings of values that are probably not meant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The answer to `upgrade`, when the new program has served for a second.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpgradeReply {
    /// [`PROTOCOL_VERSION`] of the daemon.
    pub version: u32,
    /// Always `true`.
    pub ok: bool,
    /// The new data plane's process.
    pub pid: Option<u32>,
    /// For how long packets waited, in microseconds.
    pub stall_us: u64,
}

/// The answer to `stop`: from now on it ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopReply {
    /// [`PROTOCOL_VERSION`] of the daemon.
    pub version: u32,
    /// Always `true`.
    pub ok: bool,
    /// The process that ends.
    pub pid: u32,
}

/// The line for a question that is refused, with every reason.
pub fn refusal(errors: &[String]) -> String {
    let error = errors.join("; ");
    json!({ "version": PROTOCOL_VERSION, "ok": false, "error": error, "errors": errors })
        .to_string()
}

/// The line for an answer.
pub fn reply_line(reply: &impl Serialize) -> String {
    // Plain structs of numbers and text always have a JSON form; say so rather than end.
    serde_json::to_string(reply).unwrap_or_else(|_| refusal(&["no JSON form".to_string()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> String {
        Request::parse(line).expect_err(line)
    }

    #[test]
    fn a_request_survives_the_line() {
        let object = |text: &str| serde_json::from_str(text).expect("an object");
        let requests = [
            Request::Stats,
            Request::PortList,
            Request::PortAdd {
                port: object(r#"{"name":"a","vm":"/a.sock","mtu":9000}"#),
                until_restart: true,
            },
            Request::PortRemove("a".into()),
            Request::PortSet { name: "a".into(), options: object(r#"{"mtu":null}"#) },
            Request::PortShow(PortShowQuestion { name: "a".into(), guest: Some("b".into()) }),
            Request::Fdb(FdbQuestion::default()),
            Request::Fdb(FdbQuestion { name: Some("a".into()), vlan: Some(7), after: 9 }),
            Request::FdbFlush(FdbFlushQuestion { name: Some("a".into()), vlan: Some(7) }),
            Request::Capture(CaptureQuestion {
                name: "a".into(),
                direction: Some(Direction::ToGuest),
                names: vec!["b".into()],
                snap: Some(96),
                sample: Some(1000),
                filter: Some("tcp port 80".into()),
            }),
            Request::Trace(TraceQuestion::new("a", &[0xff; 14])),
            Request::Log(LogQuestion { level: "debug".into() }),
            Request::Reload,
            Request::Stop,
            Request::Upgrade { program: None },
            Request::Upgrade { program: Some("/usr/bin/ringway".into()) },
        ];
        for request in requests {
            let line = request.to_line();
            assert!(!line.contains('\n'));
            assert_eq!(Request::parse(&line), Ok(request));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(refused("").starts_with("not a request"));
        assert!(refused("{}").contains("version"));
        assert!(refused("[1,2").starts_with("not a request"));
        assert!(refused(&"[".repeat(LINE_LEN_MAX)).starts_with("not a request"));
        assert!(refused(r#"{"version":2,"command":"stats"}"#).contains("version 2"));
        assert!(refused(r#"{"version":1,"command":"halt"}"#).contains("use one of stats"));
        assert!(refused(r#"{"version":1,"command":"port-add"}"#).contains("\"port_add\"?"));
        assert!(refused(r#"{"version":1,"command":"port_set","name":"a"}"#).contains("options"));
        assert!(refused(&" ".repeat(LINE_LEN_MAX + 1)).contains("too long"));
    }
}
