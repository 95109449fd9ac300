//! The command line as typed. Values with a meaning of their own (ports) stay text here and are
//! checked in [`config`](crate::config), so that all mistakes can be told at once.

mod back_end;
mod foreground;
mod forward;
mod questions;

use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand};

use crate::attach_host::AttachHostCommand;
use crate::config::{LowConfig, LowOption, RunConfig, SpecError, flags, settings};
use crate::data_plane::sandbox::attempt::Attempt;
use crate::outcome::EXIT_HELP;
use crate::places;
use crate::run_help::{WIDTH, run_help};
pub use back_end::BackEndArgs;
pub use forward::ForwardCommand;
pub use questions::{
    AttachArgs, CaptureArgs, Dropped, FdbAction, FdbArgs, FlowsArgs, LogArgs, MetricsArgs,
    ReloadArgs, SflowArgs, StatsArgs, StopArgs, Switch, TopArgs, TraceArgs, WhyArgs,
};
use questions::{FIELDS_HELP, FILTER_HELP};

/// A virtio-net device and switch for virtual machines, in user space.
#[derive(Debug, Parser)]
#[command(name = "ringway", version = env!("RINGWAY_VERSION"), arg_required_else_help = true)]
#[command(after_help = EXIT_HELP, max_term_width = WIDTH)]
pub struct Arguments {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Carry the traffic of virtual machines until SIGINT or SIGTERM
    #[command(after_long_help = run_help())]
    Run(Box<RunArgs>),
    /// Say whether a configuration file is fine, and what is not
    CheckConfig(CheckConfigArgs),
    /// Say what this machine can do, what is missing, and what mends it
    Doctor(DoctorArgs),
    /// Show what a running ringway negotiated, moved and dropped
    #[command(visible_alias = "show")]
    Stats(StatsArgs),
    /// Watch the ports of a running ringway, second by second
    Top(TopArgs),
    /// Print what a running ringway has counted as OpenMetrics, or serve it to Prometheus
    Metrics(MetricsArgs),
    /// Send samples of packets, and counters, to a collector of sFlow
    Sflow(SflowArgs),
    /// Add, remove, change and list the ports of a running ringway (also `ls`, `rm`)
    #[command(subcommand)]
    Port(PortCommand),
    /// Add, remove and list places of this machine that lead into guests, of a router (nat:)
    #[command(subcommand)]
    Forward(ForwardCommand),
    /// Show which addresses the switch knows, and behind which ports
    Fdb(FdbArgs),
    /// Say what holds a port or a flow back, with the figure that says so and what to do
    Why(WhyArgs),
    /// List who talks how much through a port, from samples of its packets
    Flows(FlowsArgs),
    /// Write the packets of ports to a file, as pcapng, or into a pipe
    #[command(after_long_help = FILTER_HELP)]
    Capture(CaptureArgs),
    /// Say what would become of a packet, rule by rule, without sending it
    #[command(after_long_help = FIELDS_HELP)]
    Trace(TraceArgs),
    /// Read the file of a running ringway again, and say what has changed from what to what
    Reload(ReloadArgs),
    /// Log more or less from now on, as RINGWAY_LOG does at the start
    Log(LogArgs),
    /// End a running ringway; guests see their links go down
    Stop(StopArgs),
    /// Replace the program of a running ringway; guests see nothing
    Upgrade(UpgradeArgs),
    /// Print what a virtual machine needs to be given to use a port
    Attach(AttachArgs),
    /// Print what a host needs so that its guests and those of other hosts form common networks
    #[command(subcommand)]
    AttachHost(AttachHostCommand),
    /// Say how to let two Linux guests talk through ringway: no root, no KVM, under a minute
    Demo,
    /// Measure ringway beside its peers and beside the limit of this machine (`ringway-bench`)
    Bench(crate::bench::BenchArgs),
    /// Be the back-end of one guest, as the programs are started that QEMU's manual describes
    VhostUserNet(BackEndArgs),
    /// Print completions for a shell: source them, or put them where it looks
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a directory (for packages)
    #[command(hide = true)]
    Manual {
        /// Where to.
        directory: PathBuf,
    },
    /// Carry packets for the ringway that starts this (internal)
    #[command(hide = true)]
    DataPlane(DataPlaneArgs),
    /// Go on where the ringway in this process has stopped (internal)
    #[command(hide = true)]
    TakeOver {
        /// The file descriptor with the record; without it: whether one at standard input is fine
        record: Option<i32>,
    },
}

/// `ringway run`
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("which").required(true).args(["ports", "config"])))]
pub struct RunArgs {
    /// A port: its name, its kind and where it leads; may be given many times
    #[arg(long = "port", value_name = "NAME=KIND:ARG[,KEY=VALUE…]")]
    ports: Vec<String>,
    /// The file with the ports and settings
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where other commands ask [default: ringway.sock in $XDG_RUNTIME_DIR, as root in /run,
    /// otherwise in /tmp/ringway-UID]
    #[arg(long, value_name = "SOCKET")]
    control: Option<String>,
    /// Permissions of the control socket's file, as octal digits [default: 0600]
    #[arg(long, value_name = "MODE")]
    control_mode: Option<String>,
    /// A group whose members may use the control socket
    #[arg(long, value_name = "GROUP")]
    control_group: Option<String>,
    /// Whether multicast goes only to ports that asked for it: on or off [default: off]
    #[arg(long, value_name = "ON|OFF")]
    snoop_multicast: Option<String>,
    /// How many threads carry packets [default: 1]; auto: as many as ports have queues and the
    /// machine has processors
    #[arg(long, value_name = "N|auto")]
    workers: Option<String>,
    /// The processor of each worker
    #[arg(long, value_name = "CPU,…")]
    pin: Option<String>,
    /// Whether a worker looks for packets for a while before it sleeps [default: auto]
    #[arg(long, value_name = "auto|always|never")]
    poll: Option<String>,
    /// Share of one processor for packets that do not come, with --poll auto [default: 10%]
    #[arg(long, value_name = "PERCENT")]
    poll_budget: Option<String>,
    /// How packets are written to taps [default: auto, what is measured to be faster]
    #[arg(long, value_name = "auto|plain|io_uring")]
    tap_writes: Option<String>,
    /// How packets are read from taps while many short ones wait [default: auto, what
    /// is measured to be faster]
    #[arg(long, value_name = "auto|plain|io_uring")]
    tap_reads: Option<String>,
    /// Whether rights are given up that are of no use; off: for debuggers [default: on]
    #[arg(long, value_name = "ON|OFF")]
    sandbox: Option<String>,
    #[command(flatten)]
    pub foreground: foreground::ForegroundArgs,
}

/// `ringway check-config`
#[derive(Debug, Args)]
pub struct CheckConfigArgs {
    /// The file to check
    #[arg(required_unless_present_any = ["keys", "schema"])]
    pub file: Option<PathBuf>,
    /// Print every key that a file may have, with its values and default, as Markdown
    #[arg(long, conflicts_with_all = ["file", "json"])]
    pub keys: bool,
    /// Print the keys as a JSON Schema, for editors
    #[arg(long, conflicts_with_all = ["file", "json", "keys"])]
    pub schema: bool,
    /// Print what the file says as JSON, every option that is no default
    #[arg(long)]
    pub json: bool,
}

/// `ringway doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Also say whether `ringway run --config FILE` would work
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `ringway port`
#[derive(Debug, Subcommand)]
pub enum PortCommand {
    /// Show how each port is configured
    #[command(visible_alias = "ls")]
    List {
        /// Only this port
        #[arg(value_name = "PORT")]
        name: Option<String>,
        /// Print the ports as a configuration file has them
        #[arg(long, conflicts_with = "json")]
        toml: bool,
        /// Only ports with this label; several: with all of them
        #[arg(long, value_name = "KEY:VALUE")]
        label: Vec<String>,
        /// The ringway that is asked, and how to print.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Add a port, written as after `ringway run --port`
    Add {
        /// Its name, its kind, where it leads, and options
        #[arg(value_name = "NAME=KIND:ARG[,KEY=VALUE…]")]
        port: String,
        /// Not to be there any more when the service is started again
        #[arg(long)]
        until_restart: bool,
        /// The ringway that is asked, and how to print.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Remove a port; a guest sees its link go down first
    #[command(visible_alias = "rm", aliases = ["del", "delete"])]
    Remove {
        /// Its name
        name: String,
        /// The ringway that is asked, and how to print.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Show one port; of a router (nat:) who is behind it, where it listens for them, their flows
    Show {
        /// The port's name
        name: String,
        /// Of a router: only what is behind this port
        #[arg(long, value_name = "PORT")]
        guest: Option<String>,
        /// The ringway that is asked, and how to print.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Change options of a port; the value `default` takes one back
    Set {
        /// Its name
        name: String,
        /// Options to change
        #[arg(required = true, value_name = "KEY=VALUE")]
        options: Vec<String>,
        /// The ringway that is asked, and how to print.
        #[command(flatten)]
        ask: AskArgs,
    },
}

/// `ringway upgrade`
#[derive(Debug, Args)]
pub struct UpgradeArgs {
    /// The new program [default: the file that is now where the running one was started from]
    #[arg(value_name = "BINARY")]
    pub program: Option<PathBuf>,
    /// The ringway that is asked, and how to print.
    #[command(flatten)]
    pub ask: AskArgs,
}

/// `ringway data-plane`: internal, see `data_plane`.
#[derive(Debug, Args)]
pub struct DataPlaneArgs {
    /// Try something in the sandbox that must fail, and do nothing else
    #[arg(long = "try", value_name = "WHAT")]
    pub attempt: Option<Attempt>,
    /// Without the filter of system calls
    #[arg(long, requires = "attempt")]
    pub unfiltered: bool,
}

/// The ringway to ask, and how its answer is printed.
#[derive(Debug, Clone, Args)]
pub struct AskArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The control socket of the ringway to ask [default: as for `ringway run`]
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
}

impl Command {
    /// Whether it was given `--json`.
    pub fn is_json(&self) -> bool {
        match self {
            Self::CheckConfig(args) => args.json,
            Self::Doctor(args) => args.json,
            Self::Stats(args) => args.ask.json,
            Self::Port(command) => command.ask().json,
            Self::Forward(command) => command.ask().json,
            Self::Top(args) => args.ask.json,
            Self::Attach(args) => args.ask.json,
            Self::AttachHost(command) => command.is_json(),
            Self::Fdb(args) => args.ask.json,
            Self::Flows(args) => args.ask.json,
            Self::Why(args) => args.ask.json,
            Self::Reload(args) => args.ask.json,
            Self::Log(args) => args.ask.json,
            Self::Stop(args) => args.ask.json,
            Self::Trace(args) => args.ask.json,
            Self::Upgrade(args) => args.ask.json,
            Self::Bench(args) => args.is_json(),
            Self::Run(_)
            | Self::Demo
            | Self::VhostUserNet(_)
            | Self::Capture(_)
            | Self::Metrics(_)
            | Self::Sflow(_)
            | Self::Completions { .. }
            | Self::Manual { .. }
            | Self::DataPlane(_)
            | Self::TakeOver { .. } => false,
        }
    }
}

impl PortCommand {
    fn ask(&self) -> &AskArgs {
        match self {
            Self::List { ask, .. }
            | Self::Add { ask, .. }
            | Self::Remove { ask, .. }
            | Self::Show { ask, .. }
            | Self::Set { ask, .. } => ask,
        }
    }
}

impl RunArgs {
    /// The configuration, from the file or from the flags.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn config(&self) -> Result<RunConfig, Vec<SpecError>> {
        if let Some(file) = &self.config {
            return RunConfig::load(file, &self.over(), places::control_socket(), None);
        }
        let mut errors = Vec::new();
        let mut ports = Vec::new();
        for typed in &self.ports {
            match flags::parse_port(typed) {
                Ok(port) => ports.push(port),
                Err(error) => errors.push(error),
            }
        }
        let low = LowConfig { settings: self.over(), ports };
        match RunConfig::resolve(&low, places::control_socket()) {
            Ok(config) if errors.is_empty() => Ok(config),
            Ok(_) => Err(errors),
            Err(others) => Err(errors.into_iter().chain(others).collect()),
        }
    }

    /// Settings given as flags; they count more than a file's.
    pub fn over(&self) -> Vec<LowOption> {
        let flags = [
            ("control", &self.control),
            ("control_mode", &self.control_mode),
            ("control_group", &self.control_group),
            ("snoop_multicast", &self.snoop_multicast),
            ("workers", &self.workers),
            ("pin", &self.pin),
            ("poll", &self.poll),
            ("poll_budget", &self.poll_budget),
            ("tap_writes", &self.tap_writes),
            ("tap_reads", &self.tap_reads),
            ("sandbox", &self.sandbox),
        ];
        let given = flags.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
        given.map(|(key, value)| settings::flag(key, value)).collect()
    }
}

impl AskArgs {
    /// The control socket that was asked for, or the usual one.
    pub fn control_or_default(&self) -> PathBuf {
        self.control.clone().unwrap_or_else(places::control_socket_to_ask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn run_takes_many_ports_and_needs_one() {
        let parsed = Arguments::try_parse_from(["ringway", "run", "--port", "a", "--port", "b"]);
        let Ok(Arguments { command: Command::Run(args) }) = parsed else { panic!("{parsed:?}") };
        assert_eq!(args.ports, ["a", "b"]);
        let bare = Arguments::try_parse_from(["ringway", "run"]).expect_err("no ports");
        let says = |word: &str| bare.to_string().contains(word);
        assert!(says("--port") && says("--config"), "{bare}");
    }

    #[test]
    fn a_file_and_ports_exclude_each_other() {
        let parse =
            |words: &[&str]| Arguments::try_parse_from([&["ringway", "run"], words].concat());
        assert!(parse(&["--config", "f"]).is_ok());
        assert!(parse(&["--config", "f", "--port", "a"]).is_err());
    }
}
