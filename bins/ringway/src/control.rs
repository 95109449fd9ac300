//! The control protocol: one JSON object per line, question and answer, with a version.
//!
//! ```text
//! {"version":1,"command":"stats"}
//! {"version":1,"ok":true,"uptime_ms":5000,"ports":[…]}
//! {"version":1,"ok":false,"error":"…"}
//! ```
//!
//! Both sides are here: [`answer`] is a pure function for the daemon, which does the input and
//! output in its own loop; [`request_stats`] asks.
//!
//! Limits: a question has at most [`LINE_LEN_MAX`] bytes, an answer at most [`REPLY_LEN_MAX`], and
//! an answer is waited for at most [`REPLY_LIMIT`]. Unknown fields are ignored on both sides, so
//! fields may be added without a new version.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Version of the protocol.
pub const PROTOCOL_VERSION: u32 = 1;

/// Bytes of a question, without the newline.
pub const LINE_LEN_MAX: usize = 4096;

/// Bytes of an answer: a few thousand per port, and room for many ports.
pub const REPLY_LEN_MAX: u64 = 16 << 20;

/// Longest wait for an answer.
pub const REPLY_LIMIT: Duration = Duration::from_secs(5);

/// The answer to `stats`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatsReply {
    /// [`PROTOCOL_VERSION`] of the daemon.
    pub version: u32,
    /// Always `true`; a refusal has `false` and an error.
    pub ok: bool,
    /// Time since the daemon has started, in milliseconds.
    pub uptime_ms: u64,
    /// All ports, in the order of the command line.
    pub ports: Vec<PortStats>,
}

/// What there is to know about one port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStats {
    /// Its name.
    pub name: String,
    /// Its kind as on the command line: `vm`, `vm-connect`, `tap`, `tap-fd`.
    pub kind: String,
    /// Socket path, interface name or file descriptor.
    pub address: String,
    /// The guest's MAC address.
    pub mac: Option<String>,
    /// The MTU that was configured, in bytes.
    pub mtu: Option<u16>,
    /// Whether a front-end is connected, or the tap is open.
    pub connected: bool,
    /// `waiting`, `connected`, `running`, `broken` or `failed`.
    pub state: String,
    /// Why the port failed.
    pub error: Option<String>,
    /// Names of the negotiated features.
    pub features: Vec<String>,
    /// The negotiated ring format: `split` or `packed`.
    pub format: Option<String>,
    /// To the guest, or into the tap.
    pub to_guest: DirectionStats,
    /// From the guest, or out of the tap.
    pub from_guest: DirectionStats,
    /// Queues that were stopped because the guest broke them, each with the reason.
    pub broken: Vec<String>,
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
    /// Dropped packets by reason; reasons that never happened may be left out.
    pub drops: BTreeMap<String, u64>,
}

#[derive(Serialize, Deserialize)]
struct Request {
    version: u32,
    command: String,
}

#[derive(Serialize)]
struct Refusal {
    version: u32,
    ok: bool,
    error: String,
}

/// Answers one line with one line, both without the newline; `snapshot` is taken if it is needed.
pub fn answer(line: &str, snapshot: impl FnOnce() -> StatsReply) -> String {
    let reply = match check(line) {
        Ok(()) => serde_json::to_string(&snapshot()),
        Err(error) => {
            serde_json::to_string(&Refusal { version: PROTOCOL_VERSION, ok: false, error })
        }
    };
    // Plain structs of numbers and text always have a JSON form; say so rather than end.
    reply.unwrap_or_else(|_| r#"{"version":1,"ok":false,"error":"no JSON form"}"#.to_string())
}

/// Whether the line asks for statistics, which is all there is to ask for.
fn check(line: &str) -> Result<(), String> {
    if line.len() > LINE_LEN_MAX {
        return Err(format!("{} bytes are too long: at most {LINE_LEN_MAX}", line.len()));
    }
    let request: Request =
        serde_json::from_str(line).map_err(|why| format!("not a request: {why}"))?;
    if request.version != PROTOCOL_VERSION {
        let version = request.version;
        return Err(format!("version {version} is not spoken here: use {PROTOCOL_VERSION}"));
    }
    match request.command.as_str() {
        "stats" => Ok(()),
        other => Err(format!("there is no command {other:?}: use \"stats\"")),
    }
}

/// Why there is no answer. Each text starts with the socket and ends with what to do.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No socket, or nobody behind it.
    #[error("{0}: no ringway is listening here: start one with: ringway run --control {0} …")]
    Nobody(String),
    /// The socket belongs to another user.
    #[error("{0}: permission denied: ask as the user who started this ringway, or as root")]
    Denied(String),
    /// It did not answer in time.
    #[error("{0}: no answer within {limit} s: this ringway hangs or is not one", limit = REPLY_LIMIT.as_secs())]
    Silent(String),
    /// What came is not an answer.
    #[error("{0}: not an answer of ringway ({1}): is this its control socket?")]
    NotAnAnswer(String, String),
    /// It refused.
    #[error("{0}: refused: {1}")]
    Refused(String, String),
    /// Anything else the operating system says.
    #[error("{0}: {1}: check the path, or choose another with --control")]
    Io(String, io::Error),
}

/// Asks the ringway behind a control socket for its statistics.
///
/// # Errors
/// [`ControlError`], with the path in front.
pub fn request_stats(path: &Path) -> Result<StatsReply, ControlError> {
    let line = exchange(path).map_err(|why| io_error(path, why))?;
    parse_reply(&path.display().to_string(), &line)
}

fn exchange(path: &Path) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(REPLY_LIMIT))?;
    stream.set_write_timeout(Some(REPLY_LIMIT))?;
    let request = Request { version: PROTOCOL_VERSION, command: "stats".to_string() };
    let mut line = serde_json::to_string(&request)?;
    line.push('\n');
    stream.write_all(line.as_bytes())?;
    let mut reply = String::new();
    BufReader::new(stream.take(REPLY_LEN_MAX)).read_line(&mut reply)?;
    Ok(reply)
}

fn io_error(path: &Path, why: io::Error) -> ControlError {
    let shown = path.display().to_string();
    match why.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ControlError::Nobody(shown),
        io::ErrorKind::PermissionDenied => ControlError::Denied(shown),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ControlError::Silent(shown),
        io::ErrorKind::InvalidData => ControlError::NotAnAnswer(shown, why.to_string()),
        _ => ControlError::Io(shown, why),
    }
}

fn parse_reply(shown: &str, line: &str) -> Result<StatsReply, ControlError> {
    let not_an_answer = |why: String| ControlError::NotAnAnswer(shown.to_string(), why);
    if line.is_empty() {
        return Err(not_an_answer("it hung up".to_string()));
    }
    let value: Value = serde_json::from_str(line).map_err(|why| not_an_answer(why.to_string()))?;
    if value.get("ok") == Some(&Value::Bool(false)) {
        let error = value.get("error").and_then(Value::as_str).unwrap_or("no reason given");
        return Err(ControlError::Refused(shown.to_string(), error.to_string()));
    }
    let version = value.get("version").and_then(Value::as_u64);
    if version != Some(u64::from(PROTOCOL_VERSION)) {
        return Err(not_an_answer(format!("version {version:?}, not {PROTOCOL_VERSION}")));
    }
    serde_json::from_value(value).map_err(|why| not_an_answer(why.to_string()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::thread;

    /// A reply with one running guest, for tests.
    pub(crate) fn example() -> StatsReply {
        let direction = |packets, drops: &[(&str, u64)]| DirectionStats {
            packets,
            bytes: packets * 1000,
            kicks: 1,
            calls: 2,
            drops: drops.iter().map(|&(name, count)| (name.to_string(), count)).collect(),
        };
        let port = PortStats {
            name: "vm0".to_string(),
            kind: "vm".to_string(),
            address: "/run/vm0.sock".to_string(),
            mac: Some("52:54:00:00:00:01".to_string()),
            mtu: None,
            connected: true,
            state: "running".to_string(),
            error: None,
            features: vec!["CSUM".to_string(), "MRG_RXBUF".to_string()],
            format: Some("packed".to_string()),
            to_guest: direction(1_000_000, &[("no_room", 7)]),
            from_guest: direction(20, &[]),
            broken: Vec::new(),
        };
        StatsReply { version: PROTOCOL_VERSION, ok: true, uptime_ms: 5000, ports: vec![port] }
    }

    fn refused(line: &str) -> String {
        let reply = answer(line, || panic!("no snapshot for a refusal"));
        match parse_reply("s", &reply) {
            Err(ControlError::Refused(_, why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_question_is_answered_on_one_line() {
        let reply = answer(r#"{"version":1,"command":"stats"}"#, example);
        assert!(!reply.contains('\n'));
        assert_eq!(parse_reply("s", &reply).expect("reply"), example());
    }

    #[test]
    fn nonsense_is_refused_without_a_snapshot() {
        assert!(refused("").starts_with("not a request"));
        assert!(refused("{}").contains("version"));
        assert!(refused("[1,2").starts_with("not a request"));
        assert!(refused(&"[".repeat(LINE_LEN_MAX)).starts_with("not a request"));
        assert!(refused(r#"{"version":2,"command":"stats"}"#).contains("version 2"));
        assert!(refused(r#"{"version":1,"command":"stop"}"#).contains("\"stop\""));
        assert!(refused(&" ".repeat(LINE_LEN_MAX + 1)).contains("too long"));
    }

    #[test]
    fn what_is_not_an_answer_is_said_to_be_none() {
        for line in
            ["", "hello\n", "{}", r#"{"version":9,"ok":true}"#, r#"{"version":1,"ok":true}"#]
        {
            let outcome = parse_reply("s", line);
            assert!(matches!(outcome, Err(ControlError::NotAnAnswer(..))), "{line:?}");
        }
    }

    #[test]
    fn a_running_daemon_is_asked_over_its_socket() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("control.sock");
        let listener = UnixListener::bind(&path).expect("bind");
        let server = thread::spawn(move || {
            let (stream, _) = listener.accept().expect("accept");
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).expect("line");
            let reply = answer(line.trim_end(), example) + "\n";
            (&stream).write_all(reply.as_bytes()).expect("write");
        });
        assert_eq!(request_stats(&path).expect("stats"), example());
        server.join().expect("server");
        // The listener is gone, its file is not.
        let error = request_stats(&path).expect_err("nobody").to_string();
        assert!(error.contains("no ringway is listening here"), "{error}");
        let missing = directory.path().join("missing.sock");
        let error = request_stats(&missing).expect_err("missing").to_string();
        assert!(error.starts_with(&missing.display().to_string()), "{error}");
        assert!(error.contains("ringway run --control"), "{error}");
    }
}
