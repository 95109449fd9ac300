//! Open vSwitch without its kernel module (datapath `netdev`). It reads and writes interfaces of
//! the host with raw sockets.
//!
//! Limits: one per scenario.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;

use crate::ovs_files::{CONTROL, DATABASE, SCHEMA, SWITCH, TOOL};
use crate::process::Process;
use crate::shell;
use crate::stage::Stage;

/// Longest wait until a daemon answers.
const LIMIT: Duration = Duration::from_secs(20);

/// The running switch and its database.
#[derive(Debug)]
pub struct Ovs {
    _daemons: [Process; 2],
}

impl Ovs {
    /// Starts it with one bridge, which is an interface of this host too, and these others at it.
    ///
    /// # Errors
    /// It does not come up: the text has what it printed.
    pub fn start(stage: &Stage, bridge: &str, interfaces: &[&str]) -> anyhow::Result<Self> {
        let files = stage.programs.ovs.clone().context("Open vSwitch is not unpacked")?;
        let place = |name: &str| stage.file(name).display().to_string();
        let (file, socket) = (place("ovs.database"), place("db.sock"));
        let schema = files.place(SCHEMA);
        shell::output(files.command(&stage.directory, TOOL).arg("create").arg(&file).arg(schema))?;
        let mut command = files.command(&stage.directory, DATABASE);
        command.arg(&file).arg(format!("--remote=punix:{socket}"));
        command.arg(format!("--unixctl={}", place("db.ctl")));
        let mut database = Process::start(stage, "ovsdb-server", command)?;
        database.wait_until("listening", LIMIT, |_| Path::new(&socket).exists())?;
        let mut command = files.command(&stage.directory, SWITCH);
        command.arg(format!("unix:{socket}")).arg(format!("--unixctl={}", place("switch.ctl")));
        let switch = Process::start(stage, "ovs-vswitchd", command)?;
        let mut command = files.command(&stage.directory, CONTROL);
        command.arg(format!("--db=unix:{socket}")).arg("--timeout=20").args(["add-br", bridge]);
        command.args(["--", "set", "bridge", bridge, "datapath_type=netdev"]);
        for interface in interfaces {
            command.args(["--", "add-port", bridge, interface]);
        }
        shell::output(&mut command)?;
        Ok(Self { _daemons: [database, switch] })
    }
}
