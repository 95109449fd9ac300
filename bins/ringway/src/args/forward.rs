//! `ringway forward`

use clap::Subcommand;

use super::AskArgs;

/// `ringway forward`
#[derive(Debug, Subcommand)]
pub enum ForwardCommand {
    /// Show where this machine listens for guests, and what came of it
    #[command(visible_alias = "ls")]
    List {
        /// Only those of this router
        #[arg(value_name = "ROUTER")]
        router: Option<String>,
        /// The ringway that is asked, and how to print.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Let more places lead into guests, such as tcp:2222:vm0:22
    Add {
        /// The router's port
        router: String,
        /// tcp:[ADDRESS:]PORT[-PORT]:GUEST:PORT, udp: the same, or unix:/PATH:GUEST:PORT
        #[arg(required = true, value_name = "FORWARD")]
        forwards: Vec<String>,
        /// The ringway that is asked, and how to print.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Let places lead into guests no more
    #[command(visible_alias = "rm", aliases = ["del", "delete"])]
    Remove {
        /// The router's port
        router: String,
        /// As it was added, or its place alone, such as tcp:2222
        #[arg(required = true, value_name = "FORWARD")]
        forwards: Vec<String>,
        /// The ringway that is asked, and how to print.
        #[command(flatten)]
        ask: AskArgs,
    },
}

impl ForwardCommand {
    pub(super) fn ask(&self) -> &AskArgs {
        match self {
            Self::List { ask, .. } | Self::Add { ask, .. } | Self::Remove { ask, .. } => ask,
        }
    }
}
