//! `ringway vhost-user-net`.

use clap::Args;

/// `ringway vhost-user-net`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("socket").required(true))]
pub struct BackEndArgs {
    /// Listen here for the front-end
    #[arg(long, value_name = "PATH", group = "socket")]
    pub socket_path: Option<String>,
    /// Use this file descriptor: a socket that listens; or one that is connected, and it ends with
    /// the front-end
    #[arg(long, value_name = "NUMBER", group = "socket")]
    pub fd: Option<i32>,
    /// Print what the back-end can do, as JSON; all else is ignored
    #[arg(long)]
    print_capabilities: bool,
    /// Options of the guest's port, as behind its socket for `ringway run`; may be given many times
    #[arg(long = "option", value_name = "KEY=VALUE[,KEY=VALUE…]")]
    pub options: Vec<String>,
    /// Where the guest's packets go, as for `ringway run`; may be given many times [default:
    /// net=nat:, the internet by way of this machine's sockets]
    #[arg(long = "port", value_name = "NAME=KIND:ARG[,KEY=VALUE…]")]
    pub ports: Vec<String>,
    /// Where other commands ask [default: PATH.control; with --fd vhost-user-net-PID.sock where
    /// `ringway run` has its own]
    #[arg(long, value_name = "SOCKET")]
    pub control: Option<String>,
}
