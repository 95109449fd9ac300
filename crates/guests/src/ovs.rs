//! Open vSwitch without its kernel module (datapath `netdev`). It reads and writes interfaces of
//! the host with raw sockets, or, with DPDK, it is the device of virtual machines.
//!
//! Limits: one in a directory.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::ovs_files::{
    ASK, CONTROL, CONTROLLER, DATABASE, DPDK_SWITCH, NETWORK_SCHEMAS, NORTHBOUND, NORTHD, OvsFiles,
    SCHEMA, SWITCH, TOOL,
};
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
        let command = ovs.files.command(&stage.directory, DPDK_SWITCH);
        ovs.start_switch(stage, dpdk.lend_to(command, &ovs.files.libraries()))?;
        // Its MTU is without the Ethernet header.
        let mtu = setting.packet_len_max - 14;
        let ports = setting.ports.iter().map(|port| {
            let kind = format!("type=dpdkvhostuser mtu_request={mtu}");
            format!("add-port {bridge} {port} -- set interface {port} {kind}")
        });
        ovs.add_bridge(stage, bridge, ports)?;
        Ok(ovs)
    }

    /// The answer to a command of `ovs-appctl`.
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
        let daemons = vec![database(stage, &files, "db", SCHEMA)?];
        Ok(Self { files, control: place(stage, "switch.ctl"), daemons })
    }

    fn start_switch(&mut self, stage: &Stage, mut command: Command) -> anyhow::Result<()> {
        command.arg(at(stage, "db"));
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
        command.arg(format!("--db={}", at(stage, "db")));
        command.arg(format!("--timeout={LIMIT_S}"));
        command
    }

    /// Starts it with OVN on this host alone, and `interface` as a port of that name in OVN.
    ///
    /// # Errors
    /// It does not come up: the text has what it printed.
    pub fn start_ovn(stage: &Stage, interface: &str) -> anyhow::Result<Self> {
        let mut ovs = Self::start_database(stage)?;
        let command = ovs.files.command(&stage.directory, SWITCH);
        ovs.start_switch(stage, command)?;
        for (name, schema) in ["north", "south"].iter().zip(NETWORK_SCHEMAS) {
            ovs.daemons.push(database(stage, &ovs.files, name, schema)?);
        }
        let [north, south] = ["north", "south"].map(|name| at(stage, name));
        let mut command = ovs.files.command(&stage.directory, NORTHD);
        command.arg(format!("--ovnnb-db={north}")).arg(format!("--ovnsb-db={south}"));
        command.arg(format!("--unixctl={}", place(stage, "northd.ctl")));
        ovs.daemons.push(Process::start(stage, "ovn-northd", command)?);
        let ids = format!(
            "external_ids:system-id=here external_ids:ovn-remote={south} \
             external_ids:ovn-encap-type=geneve external_ids:ovn-encap-ip=127.0.0.1 \
             external_ids:ovn-bridge-datapath-type=netdev"
        );
        let ids: Vec<&str> =
            ["set", "Open_vSwitch", "."].into_iter().chain(ids.split(' ')).collect();
        shell::output(ovs.command(stage).args(ids))?;
        let line = format!(
            "add-br br-int -- set bridge br-int datapath_type=netdev fail_mode=secure -- add-port \
             br-int {interface} -- set interface {interface} external_ids:iface-id={interface}"
        );
        shell::output(ovs.command(stage).args(line.split(' ')))?;
        let mut command = ovs.files.command(&stage.directory, CONTROLLER);
        command.arg(at(stage, "db"));
        ovs.daemons.push(Process::start(stage, "ovn-controller", command)?);
        Ok(ovs)
    }

    /// Changes OVN's networks, and waits until all switches follow.
    ///
    /// # Errors
    /// It refuses, or they do not follow.
    pub fn network(&self, stage: &Stage, words: &[&str]) -> anyhow::Result<()> {
        let mut command = self.files.command(&stage.directory, NORTHBOUND);
        command.arg(format!("--db={}", at(stage, "north"))).args(["--timeout=20", "--wait=hv"]);
        shell::output(command.args(words)).map(drop)
    }
}

fn place(stage: &Stage, name: &str) -> String {
    stage.file(name).display().to_string()
}

/// How the database of that name is reached.
fn at(stage: &Stage, name: &str) -> String {
    format!("unix:{}", place(stage, &format!("{name}.sock")))
}

fn database(stage: &Stage, files: &OvsFiles, name: &str, schema: &str) -> anyhow::Result<Process> {
    let file = place(stage, &format!("{name}.database"));
    let schema = files.place(schema);
    shell::output(files.command(&stage.directory, TOOL).arg("create").arg(&file).arg(schema))?;
    let mut command = files.command(&stage.directory, DATABASE);
    command.arg(&file).arg(format!("--remote=p{}", at(stage, name)));
    command.arg(format!("--unixctl={}", place(stage, &format!("{name}.ctl"))));
    let mut database = Process::start(stage, &format!("ovsdb-server-{name}"), command)?;
    let socket = stage.file(&format!("{name}.sock"));
    let limit = Duration::from_secs(LIMIT_S);
    database.wait_until("listening", limit, |_| Path::new(&socket).exists())?;
    Ok(database)
}
