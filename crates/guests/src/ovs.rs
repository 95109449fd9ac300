//! Open vSwitch without its kernel module (datapath `netdev`). It reads and writes interfaces of
//! the host with raw sockets, or, with DPDK, it is the device of virtual machines.
//!
//! Limits: one in a directory.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::ovs_files::{ASK, CONTROL, DATABASE, DPDK_SWITCH, OvsFiles, SCHEMA, SWITCH, TOOL};
use crate::process::Process;
use crate::shell;
use crate::stage::Stage;

/// Longest wait until a daemon answers, in seconds.
const LIMIT_S: u64 = 20;

/// DPDK's own options: ordinary memory, in MB, and nothing that is found by itself.
const DPDK: &str = "--no-huge --legacy-mem -m 512 --no-pci --no-telemetry --no-shconf";

/// The running switch and its database.
#[derive(Debug)]
pub struct Ovs {
    files: OvsFiles,
    /// How it is asked.
    control: String,
    daemons: Vec<Process>,
}

/// How it is started with DPDK.
#[derive(Debug, Clone, Copy)]
pub struct DpdkSetting<'a> {
    /// Names of its ports, which are sockets of the same name in the stage's directory.
    pub ports: &'a [&'a str],
    /// Where it polls.
    pub processor: usize,
    /// Longest packet, in bytes.
    pub packet_len_max: usize,
}

impl Ovs {
    /// Starts it with one bridge, which is an interface of this host too, and these others at it.
    ///
    /// # Errors
    /// It does not come up: the text has what it printed.
    pub fn start(stage: &Stage, bridge: &str, interfaces: &[&str]) -> anyhow::Result<Self> {
        let mut ovs = Self::start_database(stage)?;
        let command = ovs.files.command(&stage.directory, SWITCH);
        ovs.start_switch(stage, command)?;
        let ports = interfaces.iter().map(|interface| format!("add-port {bridge} {interface}"));
        ovs.add_bridge(stage, bridge, ports)?;
        Ok(ovs)
    }

    /// Starts it with DPDK and one bridge, which is an interface of this host too, and ports for
    /// virtual machines at it.
    ///
    /// # Errors
    /// It, or DPDK, is not there or does not come up: the text has what it printed.
    pub fn start_dpdk(
        stage: &Stage,
        bridge: &str,
        setting: &DpdkSetting<'_>,
    ) -> anyhow::Result<Self> {
        let mut ovs = Self::start_database(stage)?;
        ensure!(ovs.files.has_dpdk(), "Open vSwitch is there without DPDK");
        let dpdk = stage.programs.dpdk.clone().context("DPDK is not there")?;
        let mask = format!("{:#x}", 1_u64 << setting.processor);
        let mut command = ovs.command(stage);
        command.args(["--no-wait", "init", "--", "set", "Open_vSwitch", "."]);
        command.arg("other_config:dpdk-init=true");
        command.arg(format!("other_config:dpdk-extra=\"{DPDK}\""));
        command.arg(format!("other_config:pmd-cpu-mask={mask}"));
        command.arg(format!("other_config:dpdk-lcore-mask={mask}"));
        shell::output(&mut command)?;
        let mut command = ovs.files.command(&stage.directory, DPDK_SWITCH);
        dpdk.lend_to(&mut command, &ovs.files.libraries());
        ovs.start_switch(stage, command)?;
        // What it calls an MTU is without the Ethernet header.
        let mtu = setting.packet_len_max - 14;
        let ports = setting.ports.iter().map(|port| {
            let kind = format!("type=dpdkvhostuser mtu_request={mtu}");
            format!("add-port {bridge} {port} -- set interface {port} {kind}")
        });
        ovs.add_bridge(stage, bridge, ports)?;
        Ok(ovs)
    }

    /// What it says to a command of `ovs-appctl`.
    ///
    /// # Errors
    /// It does not answer.
    pub fn ask(&self, stage: &Stage, words: &str) -> anyhow::Result<String> {
        let mut command = self.files.command(&stage.directory, ASK);
        command.arg("--timeout=5").arg(format!("--target={}", self.control));
        shell::output(command.args(words.split(' ')))
    }

    fn start_database(stage: &Stage) -> anyhow::Result<Self> {
        let files = stage.programs.ovs.clone().context("Open vSwitch is not there")?;
        let place = |name: &str| stage.file(name).display().to_string();
        let (file, socket) = (place("ovs.database"), place("db.sock"));
        let schema = files.place(SCHEMA);
        shell::output(files.command(&stage.directory, TOOL).arg("create").arg(&file).arg(schema))?;
        let mut command = files.command(&stage.directory, DATABASE);
        command.arg(&file).arg(format!("--remote=punix:{socket}"));
        command.arg(format!("--unixctl={}", place("db.ctl")));
        let mut database = Process::start(stage, "ovsdb-server", command)?;
        let limit = Duration::from_secs(LIMIT_S);
        database.wait_until("listening", limit, |_| Path::new(&socket).exists())?;
        Ok(Self { files, control: place("switch.ctl"), daemons: vec![database] })
    }

    fn start_switch(&mut self, stage: &Stage, mut command: Command) -> anyhow::Result<()> {
        command.arg(format!("unix:{}", stage.file("db.sock").display()));
        command.arg(format!("--unixctl={}", self.control));
        self.daemons.push(Process::start(stage, "ovs-vswitchd", command)?);
        Ok(())
    }

    fn add_bridge(
        &self,
        stage: &Stage,
        bridge: &str,
        ports: impl Iterator<Item = String>,
    ) -> anyhow::Result<()> {
        let mut command = self.command(stage);
        command.args(["add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev"]);
        for words in ports {
            command.arg("--").args(words.split(' '));
        }
        shell::output(&mut command).map(drop)
    }

    /// A command to the database, without arguments yet.
    fn command(&self, stage: &Stage) -> Command {
        let mut command = self.files.command(&stage.directory, CONTROL);
        command.arg(format!("--db=unix:{}", stage.file("db.sock").display()));
        command.arg(format!("--timeout={LIMIT_S}"));
        command
    }
}
