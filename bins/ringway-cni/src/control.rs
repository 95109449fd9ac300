//! Asking a running ringway (`docs/control-protocol.md`).

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::answer::{Code, Failure};

/// Longest wait for an answer, and its most bytes.
const LIMIT: Duration = Duration::from_secs(60);
const REPLY_LEN_MAX: u64 = 16 << 20;

/// A port of ringway, as far as this plugin looks at it.
#[derive(Debug, Clone)]
pub struct Port {
    pub name: String,
    pub labels: Vec<String>,
    pub state: String,
    pub mac: Option<String>,
    pub socket: Option<String>,
    pub mtu: Option<u64>,
}

/// A ringway that may run.
#[derive(Debug)]
pub struct Control<'a> {
    pub socket: &'a str,
}

impl Control<'_> {
    /// All ports.
    ///
    /// # Errors
    /// No ringway answers.
    pub fn ports(&self) -> Result<Vec<Port>, Failure> {
        let reply = self.ask(json!({ "version": 1, "command": "port_list" }))?;
        Ok(reply["ports"].as_array().into_iter().flatten().filter_map(port).collect())
    }

    /// The same; none where no ringway listens, because ports that were added end with it. One that
    /// goes on with them after a kill is awaited: its service manager keeps the socket listening.
    ///
    /// # Errors
    /// A ringway may be there, and does not answer.
    pub fn ports_left(&self) -> Result<Vec<Port>, Failure> {
        match UnixStream::connect(self.socket).map_err(|why| why.kind()) {
            Err(ErrorKind::NotFound | ErrorKind::ConnectionRefused) => Ok(Vec::new()),
            _ => self.ports(),
        }
    }

    /// Adds a port.
    ///
    /// # Errors
    /// No ringway answers, or it refuses.
    pub fn add(&self, port: Map<String, Value>) -> Result<(), Failure> {
        self.ask(json!({ "version": 1, "command": "port_add", "port": port })).map(drop)
    }

    /// Removes a port.
    ///
    /// # Errors
    /// No ringway answers, or there is no such port.
    pub fn remove(&self, name: &str) -> Result<(), Failure> {
        self.ask(json!({ "version": 1, "command": "port_remove", "name": name })).map(drop)
    }

    fn ask(&self, request: Value) -> Result<Value, Failure> {
        let failure = |code, why| Failure::new(code, format!("ringway at {}: {why}", self.socket));
        let line = exchange(self.socket, &request)
            .map_err(|why| failure(Code::TryAgain, why.to_string()))?;
        let reply: Value = serde_json::from_str(&line)
            .map_err(|why| failure(Code::Ringway, format!("not an answer: {why}")))?;
        match reply["ok"].as_bool() {
            Some(true) => Ok(reply),
            _ => {
                let why = reply["error"].as_str().unwrap_or("refused").to_string();
                Err(failure(Code::Ringway, why))
            }
        }
    }
}

fn exchange(socket: &str, request: &Value) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    stream.write_all(format!("{request}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream.take(REPLY_LEN_MAX)).read_line(&mut line)?;
    Ok(line)
}

fn port(listed: &Value) -> Option<Port> {
    let (options, text) = (&listed["port"], |value: &Value| value.as_str().map(str::to_owned));
    Some(Port {
        name: text(&options["name"])?,
        labels: options["label"].as_array().into_iter().flatten().filter_map(text).collect(),
        state: text(&listed["state"]).unwrap_or_default(),
        mac: text(&listed["mac"]),
        socket: text(&listed["socket"]),
        mtu: options["mtu"].as_u64(),
    })
}
