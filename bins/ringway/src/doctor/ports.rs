//! Whether `ringway run` could open what a configuration names, without opening it.
//!
//! Limits: what another process does in between is not known.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::process::geteuid;

use super::finding::Finding;
use super::machine::{TUN, make_tap, may_administer_networks};
use crate::config::{PortKind, PortSpec, RunConfig};
use crate::places;
use crate::port_command::ports;

pub fn findings(config: &RunConfig) -> Vec<Finding> {
    let path = &config.settings.control;
    let own = own_sockets(path);
    let control = listened_at("control socket", path, path, &own);
    let ports = config.ports.iter().map(|it| port(it, path, &own));
    std::iter::once(control).chain(ports).collect()
}

/// The sockets at which a ringway listens that runs with that file: it counts front-ends that
/// connect to a port in use.
fn own_sockets(control: &Path) -> Vec<PathBuf> {
    let Ok(reply) = ports(control) else { return vec![] };
    let sockets = reply.ports.into_iter().filter_map(|port| port.socket).map(PathBuf::from);
    std::path::absolute(control).into_iter().chain(sockets).collect()
}

fn port(port: &PortSpec, control: &Path, own: &[PathBuf]) -> Finding {
    let what = format!("port {}", port.name);
    match &port.kind {
        PortKind::Vm { socket } => listened_at(&what, socket, control, own),
        PortKind::VmConnect { socket } if socket.exists() => {
            Finding::fine(what, format!("{} is there", socket.display()))
        }
        PortKind::VmConnect { socket } => {
            let found = format!("{}: not there yet; ringway keeps trying", socket.display());
            Finding::fine(what, found)
        }
        PortKind::Tap { name } => tap(what, name),
        other => Finding::fine(what, format!("{}: shows when it runs", other.name())),
    }
}

/// Whether a ringway with that control socket, which may run and have these sockets, can make one
/// there.
fn listened_at(what: &str, socket: &Path, control: &Path, own: &[PathBuf]) -> Finding {
    let shown = socket.display();
    if std::path::absolute(socket).is_ok_and(|socket| own.contains(&socket)) {
        return Finding::fine(what, format!("{shown}: the ringway that runs listens there"));
    }
    if UnixStream::connect(socket).is_ok() {
        let mend = "end that process, or choose another path";
        return Finding::wrong(what, format!("{shown}: a process listens there already"), mend);
    }
    let parent = match socket.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    if places::is_made(socket, control) {
        return Finding::fine(what, format!("{shown}: ringway makes the directory"));
    }
    let directory = parent.display();
    if !parent.is_dir() {
        let mend = format!("mkdir -p {directory}");
        return Finding::wrong(what, format!("{directory}: no such directory"), mend);
    }
    if access(parent, Access::WRITE_OK).is_err() {
        let user = geteuid().as_raw();
        let mend = format!("sudo install -d -o {user} {directory}, or choose another one");
        return Finding::wrong(what, format!("{directory}: this user may not write there"), mend);
    }
    Finding::fine(what, format!("{shown} can be made"))
}

fn tap(what: String, name: &str) -> Finding {
    if let Err(why) = access(TUN, Access::READ_OK | Access::WRITE_OK) {
        return Finding::wrong(what, format!("{TUN}: {why}"), "see taps above");
    }
    let interface = Path::new("/sys/class/net").join(name);
    let read = |file: &str| fs::read_to_string(interface.join(file)).ok();
    let user = geteuid().as_raw();
    if !interface.exists() {
        if may_administer_networks() {
            return Finding::fine(what, format!("{name} will be made"));
        }
        let found = format!("{name}: this user may not make it");
        return Finding::wrong(what, found, make_tap(name));
    }
    let Some(owner) = read("owner") else {
        let mend = "choose the name of a tap, or one that is free";
        return Finding::wrong(what, format!("{name} is an interface, but no tap"), mend);
    };
    if may_administer_networks() || owner.trim() == user.to_string() {
        return Finding::fine(what, format!("{name} is there"));
    }
    let mend = format!("sudo ip tuntap del dev {name} mode tap; {}", make_tap(name));
    Finding::wrong(what, format!("{name}: not this user's"), mend)
}
