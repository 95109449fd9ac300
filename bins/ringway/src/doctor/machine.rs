//! Checks of this machine: what it can do for virtual machines and their networks.
//!
//! Limits: it looks and changes nothing; programs are only asked for their version.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Resource, geteuid, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use super::finding::Finding;
use crate::config::PortSpec;
use crate::control::{PortStats, request_stats};
use crate::guests_needs::{self, Need};
use crate::places::{self, WIDE_SERVICE};
use crate::port_command::{ports, spec_of};

/// File descriptors that ten guests with some memory regions and queue pairs bring along.
const FDS_WANTED: u64 = 4096;

pub const TUN: &str = "/dev/net/tun";

pub const SERVICE_OF_PACKAGE: &str = "/lib/systemd/system/ringway.service";

pub fn findings() -> Vec<Finding> {
    let mut findings = vec![taps(), new_taps(), kvm(), files(), io_uring(), huge_pages()];
    findings.extend(PROGRAMS.iter().map(program));
    findings.extend(guests());
    findings.extend(forwards());
    findings.push(labels());
    findings.extend(service_manager());
    findings
}

/// The needs of guests behind a router.
fn guests() -> impl Iterator<Item = Finding> {
    let lacking = guests_needs::lacking();
    Need::ALL.into_iter().map(move |need| match lacking.contains(&need) {
        true => Finding::absent(need.name(), need.lack(), need.mend()),
        false => Finding::fine(need.name(), need.fine()),
    })
}

/// Forwards of a ringway that runs which lead into guests without an address.
fn forwards() -> Vec<Finding> {
    let control = places::control_socket_to_ask();
    let (Ok(stats), Ok(listed)) = (request_stats(&control), ports(&control)) else {
        return vec![];
    };
    let specs: Vec<PortSpec> = listed.ports.iter().filter_map(spec_of).collect();
    let of_router = |port: &PortStats| {
        let spec = specs.iter().find(|spec| spec.name == port.name)?;
        let leases = &port.nat.as_ref()?.leases;
        let lost = spec.nat.forwards.iter().filter(|it| !leases.contains_key(it.guest()));
        Some(
            lost.map(|it| lost_forward(&port.name, &it.to_string(), it.guest()))
                .collect::<Vec<_>>(),
        )
    };
    stats.ports.iter().filter_map(of_router).flatten().collect()
}

fn lost_forward(router: &str, forward: &str, guest: &str) -> Finding {
    let found = format!("{forward}: {guest} has no lease");
    let mend = format!("see whether it runs, and asks for an address: ringway why {guest}");
    Finding::absent(format!("forward of {router}"), found, mend)
}

/// The first systemd that keeps a service's descriptors when its process was killed.
const STORE_SINCE: u32 = 254;

/// The consequence of a kill of the service, where systemd runs.
fn service_manager() -> Option<Finding> {
    let output = Command::new("systemctl").arg("--version").output();
    let said = output.ok().filter(|_| Path::new("/run/systemd/system").exists())?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let version: u32 = said.split_whitespace().nth(1)?.parse().ok()?;
    let what = match version >= STORE_SINCE {
        true => "front-ends stay connected when the service is killed",
        false => "when the service is killed it has the same ports, and front-ends connect again",
    };
    Some(Finding::fine(format!("systemd {version}"), what))
}

/// Whether this process may make and change network interfaces.
pub fn may_administer_networks() -> bool {
    let held = capabilities(None).map(|sets| sets.effective);
    held.is_ok_and(|held| held.contains(CapabilitySet::NET_ADMIN))
}

fn is_open(path: &str) -> Result<(), std::io::Error> {
    OpenOptions::new().read(true).write(true).open(path).map(drop)
}

fn taps() -> Finding {
    const WHAT: &str = "taps";
    match is_open(TUN) {
        Ok(()) => Finding::fine(WHAT, format!("{TUN} opens")),
        Err(why) if why.kind() == ErrorKind::PermissionDenied => {
            let mend = format!("sudo chmod 0666 {TUN} (what most distributions have)");
            Finding::absent(WHAT, format!("{TUN}: {why}"), mend)
        }
        Err(why) => Finding::absent(WHAT, format!("{TUN}: {why}"), "sudo modprobe tun"),
    }
}

fn new_taps() -> Finding {
    const WHAT: &str = "new taps";
    if may_administer_networks() {
        return Finding::fine(WHAT, "this user may make them");
    }
    Finding::absent(WHAT, "this user may only use a tap that is its own", make_tap("tap0"))
}

/// How this user gets that tap. A package that is installed has a service, too.
pub fn make_tap(name: &str) -> String {
    let user = geteuid().as_raw();
    let service = match Path::new(SERVICE_OF_PACKAGE).exists() {
        true => format!("; or, for the service: {WIDE_SERVICE}"),
        false => String::new(),
    };
    format!("sudo ip tuntap add dev {name} mode tap user {user}{service}")
}

fn kvm() -> Finding {
    const KVM: &str = "/dev/kvm";
    match is_open(KVM) {
        Ok(()) => Finding::fine("KVM", format!("{KVM} opens")),
        Err(why) if why.kind() == ErrorKind::PermissionDenied => Finding::absent(
            "KVM",
            format!("{KVM}: {why}"),
            "sudo usermod -aG kvm $USER; log in again",
        ),
        Err(why) => {
            let mend =
                "enable virtualization in the firmware; without it QEMU emulates in software";
            Finding::absent("KVM", format!("{KVM}: {why}"), mend)
        }
    }
}

fn files() -> Finding {
    const WHAT: &str = "file descriptors";
    match getrlimit(Resource::Nofile).maximum {
        Some(most) if most < FDS_WANTED => {
            let mend = format!("LimitNOFILE={FDS_WANTED} in the unit, or ulimit -Hn {FDS_WANTED}");
            Finding::absent(WHAT, format!("{most} at most: few guests"), mend)
        }
        Some(most) => Finding::fine(WHAT, format!("{most} at most")),
        None => Finding::fine(WHAT, "without limit"),
    }
}

fn io_uring() -> Finding {
    const SWITCH: &str = "/proc/sys/kernel/io_uring_disabled";
    match fs::read_to_string(SWITCH).as_deref().map(str::trim) {
        Ok("2") => {
            let mend = "sudo sysctl kernel.io_uring_disabled=0 (ringway also works without)";
            Finding::absent("io_uring", format!("{SWITCH} is 2"), mend)
        }
        _ => Finding::fine("io_uring", "not disabled"),
    }
}

fn huge_pages() -> Finding {
    let information = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = information.lines().find_map(|line| line.strip_prefix("HugePages_Total:"));
    match total.map(str::trim) {
        None | Some("0") => {
            let mend = "sudo sysctl vm.nr_hugepages=N (only for guests that ask for them)";
            Finding::absent("huge pages", "none reserved", mend)
        }
        Some(total) => Finding::fine("huge pages", format!("{total} reserved")),
    }
}

/// A program, what it is for, and the package that has it.
struct Program {
    name: &'static str,
    about: &'static str,
    package: &'static str,
}

const PROGRAMS: [Program; 4] = [
    Program { name: "qemu-system-x86_64", about: "QEMU", package: "qemu-system-x86" },
    Program { name: "linux", about: "User Mode Linux", package: "user-mode-linux" },
    Program { name: "virsh", about: "libvirt", package: "libvirt-clients" },
    Program { name: "passt", about: "passt", package: "passt" },
];

fn program(program: &Program) -> Finding {
    let Program { name, about, package } = *program;
    let output = Command::new(name).arg("--version").stdin(Stdio::null()).output();
    match output {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            Finding::fine(about, text.lines().next().unwrap_or(name))
        }
        Err(_) => Finding::absent(
            about,
            format!("{name} is not installed"),
            format!("apt install {package}"),
        ),
    }
}

/// Security modules that may keep other programs from sockets, in spite of their permissions.
fn labels() -> Finding {
    const WHAT: &str = "AppArmor, SELinux";
    let is = |path: &str, value: &str| {
        fs::read_to_string(path).is_ok_and(|text| text.trim().eq_ignore_ascii_case(value))
    };
    if is("/sys/fs/selinux/enforce", "1") {
        let mend = "sockets under /run need a label that svirt_t may use: see audit2allow";
        return Finding::absent(WHAT, "SELinux is enforced", mend);
    }
    if is("/sys/module/apparmor/parameters/enabled", "Y") {
        let mend = "libvirt's profile allows sockets named in the domain; see aa-status";
        return Finding::absent(WHAT, "AppArmor is enabled", mend);
    }
    Finding::fine(WHAT, "neither is on")
}
