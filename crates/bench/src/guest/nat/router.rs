//! The routers, each with its guest's other end.
//!
//! Limits: what cannot be had for a kind of guest is an error that says why.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{bail, ensure};
use ringway_guests::{Console, Process, Ringway, Stage, net, qemu, uml};

use super::super::pairing::Pairing;
use super::super::sides::Beside;
use crate::programs;

const LIMIT: Duration = Duration::from_secs(10);

const MTU: u32 = 1500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Router {
    /// Ringway's own: what the others are compared with.
    Nat,
    /// Ringway with a tap, and the kernel behind it: needs root.
    Tap,
    /// What QEMU has built in: libslirp.
    User,
    PasstVhost,
    PasstStream,
    Gvproxy,
}

impl Router {
    pub const ALL: [Self; 6] =
        [Self::Nat, Self::PasstVhost, Self::PasstStream, Self::User, Self::Gvproxy, Self::Tap];

    pub fn name(self) -> &'static str {
        match self {
            Self::Nat => "ringway nat:",
            Self::Tap => "ringway tap:, routed by the kernel",
            Self::User => "QEMU user (libslirp)",
            Self::PasstVhost => "passt, vhost-user",
            Self::PasstStream => "passt, stream",
            Self::Gvproxy => "gvproxy, stream",
        }
    }

    /// The address and the gateway of its guest, where they are not leased.
    pub fn fixed(self, pairing: Pairing) -> Option<[String; 2]> {
        let network = 1 + pairing as u8;
        (self == Self::Tap).then(|| [2, 1].map(|end| format!("10.90.{network}.{end}")))
    }

    pub fn start(self, stage: &Stage, pairing: Pairing) -> anyhow::Result<Beside> {
        let is_uml = pairing == Pairing::UmlHost;
        let is_ours = matches!(self, Self::Nat | Self::Tap);
        ensure!(is_ours || !is_uml, "User Mode Linux cannot use it: {}", self.not_for_uml());
        match self {
            Self::User => Ok(Beside::None),
            Self::Nat => start_ringway(stage, pairing, "net=nat:"),
            Self::Tap => {
                let tap = format!("rwn{}", pairing as u8);
                let beside = start_ringway(stage, pairing, &format!("up=tap:{tap}"))?;
                net::wait_exists(&tap, true, LIMIT)?;
                let [_, gateway] = self.fixed(pairing).unwrap_or_default();
                net::set_up(&tap, &gateway, MTU)?;
                Ok(beside)
            }
            Self::PasstVhost => start_passt(stage, &["--vhost-user"]),
            Self::PasstStream => start_passt(stage, &[]),
            Self::Gvproxy => {
                let mut command = programs::peer("gvproxy")?.command();
                let socket = format!("unix://{}", socket(stage).display());
                command.args(["-listen-qemu", &socket]);
                start(stage, "gvproxy", command)
            }
        }
    }

    /// Starts it for several guests, whose sockets are in a directory each: one of ours for all, or
    /// one for each.
    pub fn start_for(self, stages: &[Stage]) -> anyhow::Result<Vec<Beside>> {
        match (self, stages) {
            (Self::Nat, [first, ..]) => {
                let guest = |(at, stage)| format!("vm{at}=vm:{}", socket(stage).display());
                let guests = stages.iter().enumerate().map(guest);
                let ports: Vec<String> = guests.chain(["net=nat:".to_string()]).collect();
                Ok(vec![Beside::Ringway(Ringway::start(first, &ports)?)])
            }
            (Self::PasstVhost, _) => {
                stages.iter().map(|stage| start_passt(stage, &["--vhost-user"])).collect()
            }
            _ => bail!("{}: not for several guests", self.name()),
        }
    }

    fn not_for_uml(self) -> &'static str {
        match self {
            Self::User => "it is a part of QEMU",
            Self::PasstVhost => "its vhost-user has no BACKEND_REQ",
            _ => "there is no such transport",
        }
    }

    pub fn start_guest(self, stage: &Stage, pairing: Pairing) -> anyhow::Result<Console> {
        let socket = socket(stage);
        match self {
            _ if pairing == Pairing::UmlHost => uml::start(stage, self.guest(), &socket),
            Self::Nat | Self::Tap | Self::PasstVhost => {
                qemu::boot(stage, &socket, &qemu::Machine::default())
            }
            Self::User => qemu::boot_on(stage, "user,id=n0"),
            Self::PasstStream | Self::Gvproxy => {
                let path = socket.display();
                let at = format!("server=off,addr.type=unix,addr.path={path}");
                qemu::boot_on(stage, &format!("stream,id=n0,{at}"))
            }
        }
    }

    fn guest(self) -> &'static str {
        if self == Self::Nat { "uml-nat" } else { "uml-tap" }
    }
}

pub(super) fn socket(stage: &Stage) -> std::path::PathBuf {
    stage.file("vm.sock")
}

fn start_ringway(stage: &Stage, pairing: Pairing, up: &str) -> anyhow::Result<Beside> {
    let mac = match pairing {
        Pairing::QemuHost => format!(",mac={}", qemu::MAC),
        _ => String::new(),
    };
    let guest = format!("vm=vm:{}{mac}", socket(stage).display());
    Ok(Beside::Ringway(Ringway::start(stage, &[guest, up.to_string()])?))
}

/// In the foreground, IPv4 only.
fn start_passt(stage: &Stage, options: &[&str]) -> anyhow::Result<Beside> {
    let mut command = programs::peer("passt")?.command();
    command.args(["-f", "-4", "-s"]).arg(socket(stage)).args(options);
    start(stage, "passt", command)
}

fn start(stage: &Stage, name: &str, command: Command) -> anyhow::Result<Beside> {
    let mut process = Process::start(stage, name, command)?;
    let socket = socket(stage);
    process.wait_until("listening", LIMIT, |_| Path::exists(&socket))?;
    if let Some(status) = process.has_ended()? {
        bail!("{name}: {status}: {}", process.printed());
    }
    Ok(Beside::Program(process))
}
