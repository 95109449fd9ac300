//! The routers, each with its guest's other end.
//!
//! Limits: what cannot be had for a kind of guest is an error that says why.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use ringway_guests::{Console, Process, Ringway, Side, Stage, nat_lab, net, qemu, uml};

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
    /// The router that QEMU has built in: libslirp.
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
    fn fixed(self, pairing: Pairing) -> Option<[String; 2]> {
        let network = 1 + pairing as u8;
        (self == Self::Tap).then(|| [2, 1].map(|end| format!("10.90.{network}.{end}")))
    }

    pub fn configure(self, guest: &mut Side<'_>, pairing: Pairing) -> anyhow::Result<()> {
        if let Some([address, gateway]) = self.fixed(pairing) {
            guest.must("ip link set eth0 up").context("the guest has no device")?;
            guest.must(&format!("ip addr add {address}/24 dev eth0"))?;
            return guest.must(&format!("ip route add default via {gateway}")).map(drop);
        }
        nat_lab::lease(guest).map(drop)
    }

    /// Starts it for guests whose sockets are in a directory each: one of ours for all, or one for
    /// each.
    pub fn start(self, stages: &[Stage], pairing: Pairing) -> anyhow::Result<Vec<Beside>> {
        let is_uml = pairing == Pairing::UmlHost;
        let is_ours = matches!(self, Self::Nat | Self::Tap);
        ensure!(is_ours || !is_uml, "User Mode Linux cannot use it: {}", self.not_for_uml());
        match self {
            Self::User => Ok(Vec::new()),
            Self::Nat => start_ringway(stages, pairing, "net=nat:"),
            Self::Tap => {
                let tap = format!("rwn{}", pairing as u8);
                let beside = start_ringway(stages, pairing, &format!("up=tap:{tap}"))?;
                net::wait_exists(&tap, true, LIMIT)?;
                let [_, gateway] = self.fixed(pairing).unwrap_or_default();
                net::set_up(&tap, &gateway, MTU)?;
                Ok(beside)
            }
            Self::PasstVhost => {
                stages.iter().map(|stage| start_passt(stage, &["--vhost-user"])).collect()
            }
            Self::PasstStream => stages.iter().map(|stage| start_passt(stage, &[])).collect(),
            Self::Gvproxy => stages.iter().map(start_gvproxy).collect(),
        }
    }

    fn not_for_uml(self) -> &'static str {
        match self {
            Self::User => "it is a part of QEMU",
            Self::PasstVhost => "its vhost-user has no BACKEND_REQ",
            _ => "there is no such transport",
        }
    }

    pub fn start_guest(
        self,
        stage: &Stage,
        pairing: Pairing,
        number: usize,
    ) -> anyhow::Result<Console> {
        let (socket, device_options) = (socket(stage), &mac_option(pairing, number));
        match self {
            _ if pairing == Pairing::UmlHost => uml::start(stage, self.guest(), &socket),
            Self::Nat | Self::Tap | Self::PasstVhost => {
                let machine = qemu::Machine { device_options, ..qemu::Machine::default() };
                qemu::boot(stage, &socket, &machine)
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

fn socket(stage: &Stage) -> PathBuf {
    stage.file("vm.sock")
}

/// Each guest of QEMU has an address of its own: they may be on one switch.
fn mac_option(pairing: Pairing, number: usize) -> String {
    match pairing {
        Pairing::QemuHost => format!(",mac=52:54:00:12:34:0{number}"),
        _ => String::new(),
    }
}

fn start_ringway(stages: &[Stage], pairing: Pairing, up: &str) -> anyhow::Result<Vec<Beside>> {
    let guest = |(number, stage)| {
        format!("vm{number}=vm:{}{}", socket(stage).display(), mac_option(pairing, number))
    };
    let ports: Vec<String> = (1..).zip(stages).map(guest).chain([up.to_string()]).collect();
    Ok(vec![Beside::Ringway(Ringway::start(&stages[0], &ports)?)])
}

fn start_gvproxy(stage: &Stage) -> anyhow::Result<Beside> {
    let mut command = programs::peer("gvproxy")?.command();
    command.args(["-listen-qemu", &format!("unix://{}", socket(stage).display())]);
    start(stage, "gvproxy", command)
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
