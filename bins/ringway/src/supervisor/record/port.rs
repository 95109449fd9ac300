//! A port in a record.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use ringway_vhost_user::{Connection, Listener, Made};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::os::fd::AsFd;

use super::{FdAt, Fds};
use crate::config::{PortSpec, json};
use crate::supervisor::ports::guest_moves::GuestMoves;
use crate::supervisor::setup::source::PortSource;
use crate::supervisor::stores::stations::Recorded;

/// A port, without its front-end.
#[derive(Debug, Serialize, Deserialize)]
pub struct PortRecord {
    pub id: u16,
    spec: Map<String, Value>,
    from_file: Option<Map<String, Value>>,
    /// `None`: an older supervisor did not say.
    #[serde(default)]
    pub source: Option<PortSource>,
    pub failure: Option<String>,
    pub is_served: bool,
    #[serde(default)]
    pub replayed: u64,
    /// IP addresses that were seen to be used behind it: VLAN, station, address.
    #[serde(default)]
    pub seen_ips: Vec<(u16, [u8; 6], IpAddr)>,
    /// The stations that a router knows.
    #[serde(default)]
    pub stations: Vec<Recorded>,
    /// The IPv4 network of a router that is given none.
    #[serde(default)]
    pub network: Option<String>,
    pub vm: Option<VmRecord>,
    pub tap: Option<TapRecord>,
    /// Unix sockets that lead into guests.
    #[serde(default)]
    pub sockets: Vec<ListenerRecord>,
    /// Its tap is to be opened again.
    pub reopens: bool,
}

/// The part that only ports for virtual machines have.
#[derive(Debug, Serialize, Deserialize)]
pub struct VmRecord {
    /// `None`: it connects.
    pub listener: Option<ListenerRecord>,
    pub last_link: Option<u32>,
    pub last_offence: Option<String>,
    pub refused: u64,
    #[serde(default)]
    pub moves: GuestMoves,
    /// A front-end that waits until the one that is linked has gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NewcomerRecord>,
}

/// A front-end that has connected, of which nothing was read.
#[derive(Debug, Serialize, Deserialize)]
pub struct NewcomerRecord {
    pub connection: FdAt,
    /// The socket's number, so that another one makes another record.
    pub inode: u64,
}

/// A socket that listens.
#[derive(Debug, Serialize, Deserialize)]
pub struct ListenerRecord {
    pub fd: FdAt,
    pub path: PathBuf,
    /// Device and inode of its file.
    pub file: (u64, u64),
    /// Its owner and group.
    pub made_for: (u32, u32),
}

/// A tap that is open.
#[derive(Debug, Serialize, Deserialize)]
pub struct TapRecord {
    pub name: String,
    pub queues: Vec<FdAt>,
    /// A socket to ask about the interface with.
    pub interfaces: Option<FdAt>,
}

impl NewcomerRecord {
    /// `None`: the kernel does not know it any more.
    pub fn of<'a>(connection: &'a Connection, fds: &mut Fds<'a>) -> Option<Self> {
        let inode = rustix::fs::fstat(connection).ok()?.st_ino;
        Some(Self { connection: fds.put(connection.as_fd()), inode })
    }
}

impl ListenerRecord {
    pub fn of<'a>(listener: &'a Listener, fds: &mut Fds<'a>) -> Self {
        let Made { file, made_for } = listener.made();
        let fd = fds.put(listener.as_fd());
        Self { fd, path: listener.path().to_owned(), file, made_for }
    }

    pub fn made(&self) -> Made {
        Made { file: self.file, made_for: self.made_for }
    }
}

impl PortRecord {
    /// A port that has nothing open.
    pub fn new(id: u16, spec: &PortSpec, from_file: Option<&PortSpec>) -> Self {
        Self {
            id,
            spec: json::write_port(spec),
            from_file: from_file.map(json::write_port),
            source: None,
            failure: None,
            is_served: false,
            replayed: 0,
            seen_ips: vec![],
            stations: vec![],
            network: None,
            vm: None,
            tap: None,
            sockets: vec![],
            reopens: false,
        }
    }

    /// # Errors
    /// It is none.
    pub fn spec(&self) -> anyhow::Result<PortSpec> {
        read_spec(&self.spec)
    }

    /// As the file had it, if it is from there.
    ///
    /// # Errors
    /// It is none.
    pub fn as_in_file(&self) -> anyhow::Result<Option<PortSpec>> {
        self.from_file.as_ref().map(read_spec).transpose()
    }
}

fn read_spec(object: &Map<String, Value>) -> anyhow::Result<PortSpec> {
    let low = json::read_port(object).map_err(|errors| errors.into_iter().next());
    let spec =
        low.and_then(|low| PortSpec::resolve(&low).map_err(|errors| errors.into_iter().next()));
    spec.map_err(|why| why.map_or_else(|| anyhow!("it is none"), |why| anyhow!("{why}")))
        .context("a port")
}
