//! The command line as typed. Values with a meaning of their own (ports) stay text here and are
//! checked in [`port_spec`](crate::port_spec), so that all mistakes can be told at once.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// A virtio-net device and switch for virtual machines, in user space.
#[derive(Debug, Parser)]
#[command(name = "ringway", version, arg_required_else_help = true)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Carry the traffic of virtual machines until SIGINT or SIGTERM
    #[command(after_long_help = RUN_HELP)]
    Run(RunArgs),
    /// Show what a running ringway negotiated, moved and dropped
    Stats(StatsArgs),
    /// Let two Linux guests talk through ringway: no root, no KVM, under a minute
    Demo(DemoArgs),
    /// Run a command that must not outlive the demonstration (internal)
    #[command(hide = true)]
    Keep(KeepArgs),
}

const RUN_HELP: &str = "\
Kinds of ports:
  vm:SOCKET          listen on this vhost-user socket; a virtual machine connects
  vm-connect:SOCKET  connect to this vhost-user socket, and keep trying
  tap:IFNAME         a tap of the host: used if it exists, otherwise created
  tap-fd:NUMBER      an open tap that was passed in as this file descriptor

Options, after the port and separated by commas (write ,, for a comma in a path):
  mac=ADDRESS        the guest's MAC address (default: one per port)
  mtu=BYTES          the MTU the guest is advised of, or the tap's: 68 to 65535
  FEATURE=on|off     whether a feature is offered to the guest (default: on), by QEMU's names:
                     packed mrg_rxbuf event_idx indirect_desc in_order notify_on_empty
                     csum guest_csum guest_tso4 guest_tso6 guest_ecn
                     host_tso4 host_tso6 host_ecn ctrl_vq ctrl_mac_addr ctrl_rx
                     ctrl_rx_extra ctrl_vlan ctrl_guest_offloads status

Example:
  ringway run --port vm0=vm:/run/vm0.sock,packed=off --port up=tap:tap0

The environment variable RINGWAY_LOG says what to log: error, warn, info, debug or trace.";

/// `ringway run`
#[derive(Debug, Args)]
pub struct RunArgs {
    /// A port: its name, its kind and where it leads; may be given many times
    #[arg(long = "port", value_name = "NAME=KIND:ARG[,KEY=VALUE…]", required = true)]
    pub ports: Vec<String>,
    /// Where `ringway stats` asks [default: ringway.sock in $XDG_RUNTIME_DIR; /run/ringway.sock as
    /// root; otherwise /tmp/ringway-UID.sock]
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
}

/// `ringway stats`
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Print JSON, one line per report
    #[arg(long)]
    pub json: bool,
    /// Report every second, with rates, until Ctrl-C
    #[arg(long)]
    pub watch: bool,
    /// The control socket of the ringway to ask [default: as for `ringway run`]
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
}

/// `ringway demo`
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
    /// Use two guests that live in this process, even where User Mode Linux is available
    #[arg(long)]
    pub embedded: bool,
    /// Leave the logs of the guests and of ringway behind, and say where
    #[arg(long)]
    pub keep_logs: bool,
}

/// `ringway keep`: internal, see `demo::keeper`.
#[derive(Debug, Args)]
pub struct KeepArgs {
    /// Remove this directory when the demonstration is gone
    #[arg(long, value_name = "DIRECTORY")]
    pub remove: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, last = true)]
    pub command: Vec<std::ffi::OsString>,
}

impl RunArgs {
    /// The control socket that was asked for, or the usual one.
    pub fn control_or_default(&self) -> PathBuf {
        self.control.clone().unwrap_or_else(default_control_socket)
    }
}

impl StatsArgs {
    /// The control socket that was asked for, or the usual one.
    pub fn control_or_default(&self) -> PathBuf {
        self.control.clone().unwrap_or_else(default_control_socket)
    }
}

/// Where `run` listens and `stats` asks if nothing else is said.
fn default_control_socket() -> PathBuf {
    let user = rustix::process::geteuid();
    control_socket_of(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from), user.as_raw())
}

fn control_socket_of(runtime_directory: Option<PathBuf>, user: u32) -> PathBuf {
    match runtime_directory.filter(|directory| directory.is_absolute()) {
        Some(directory) => directory.join("ringway.sock"),
        None if user == 0 => PathBuf::from("/run/ringway.sock"),
        None => PathBuf::from(format!("/tmp/ringway-{user}.sock")),
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
    fn the_control_socket_is_where_this_user_may_create_it() {
        let of = |directory: Option<&str>, user| {
            control_socket_of(directory.map(PathBuf::from), user).display().to_string()
        };
        assert_eq!(of(Some("/run/user/1000"), 1000), "/run/user/1000/ringway.sock");
        assert_eq!(of(None, 0), "/run/ringway.sock");
        assert_eq!(of(None, 1000), "/tmp/ringway-1000.sock");
        // An empty variable counts as unset.
        assert_eq!(of(Some(""), 1000), "/tmp/ringway-1000.sock");
    }

    #[test]
    fn run_takes_many_ports_and_needs_one() {
        let parsed = Arguments::try_parse_from(["ringway", "run", "--port", "a", "--port", "b"]);
        let Ok(Arguments { command: Command::Run(args) }) = parsed else { panic!("{parsed:?}") };
        assert_eq!(args.ports, ["a", "b"]);
        assert!(Arguments::try_parse_from(["ringway", "run"]).is_err());
    }

    #[test]
    fn the_help_names_every_option_of_a_port() {
        for key in crate::port_spec::keys() {
            assert!(RUN_HELP.contains(&format!(" {key}")) || RUN_HELP.contains(&format!("{key}=")));
        }
    }
}
