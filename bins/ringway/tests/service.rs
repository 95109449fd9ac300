//! The units of the package under a real systemd, in a copy of this machine's root that goes away:
//! what the service may do as it is, and what `wide.conf` and `strict.conf` change.
//!
//! How: systemd is the first process of namespaces, and has a control group of its own; it runs a
//! script as a service, and ends with it. A newer one is unpacked over the copy of the root
//! (`RINGWAY_SYSTEMD`: its files, from `./x setup`).

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use common::wait_for;

/// As root of a mount namespace: makes the copy below a directory, and starts systemd in it.
const ENTER: &str = r#"
set -eu
echo $$ >"$2/cgroup.procs"
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
install "$3" "$1/root/usr/bin/ringway"
install -D -m 644 -t "$1/root/lib/systemd/system" "$4"/*.service
install -D -m 644 -t "$1/root/usr/share/ringway" "$4"/*.conf
install -D -m 644 "$4/ringway.toml" "$1/root/etc/ringway/ringway.toml"
cd "$1/root"
# Where /lib is a link it stays one.
[ -z "${6-}" ] || tar -C "$6" -c . | tar -x --keep-directory-symlink
printf '%s\n' "$5" >script
printf '%s\n' '[Unit]' 'Description=Test' >etc/systemd/system/default.target
cat >etc/systemd/system/script.service <<END
[Unit]
SuccessAction=exit
FailureAction=exit
[Service]
Type=oneshot
ExecStart=/bin/sh -eu /script
StandardOutput=append:/said
StandardError=append:/said
END
for place in run tmp dev; do mount -t tmpfs none $place; done
mkdir dev/net dev/shm dev/pts
ln -s pts/ptmx dev/ptmx
for device in null zero full random urandom tty; do
    touch dev/$device
    mount --bind /dev/$device dev/$device
done
mknod -m 666 dev/net/tun c 10 200
touch "$1/console" dev/console
mount --bind "$1/console" dev/console
export container=other
unshare --mount --cgroup --pid --ipc --uts --net --fork --kill-child sh -c '
    mount -t proc proc proc
    mount -t sysfs -o ro none sys
    mount -t tmpfs none sys/fs/cgroup
    mount -t cgroup2 none sys/fs/cgroup
    pivot_root . mnt
    umount -l mnt
    exec /lib/systemd/systemd --unit=script.service' || echo "systemd: $?"
cat said "$1/console"
"#;

/// The steps of an administrator, one after the other.
const SCRIPT: &str = r#"
export LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin
unit=ringway.service
adduser --quiet --system --group --no-create-home --home /nonexistent ringway
addgroup --quiet --system guests
adduser --quiet ringway guests
widen() { install -D -m 644 -t /etc/systemd/system/ringway.service.d /usr/share/ringway/$1.conf; }
again() { systemctl daemon-reload; systemctl restart $unit || journalctl --no-pager -u $unit; }

systemctl --version | head -1
systemctl start $unit
systemd-analyze --no-pager security --threshold=15 $unit | tail -1
systemd-analyze --no-pager security --threshold=13 ringway-metrics | tail -1
ringway port add vm0=vm:,socket_group=guests
stat -c '%G may open %n' /run/ringway/vm0.sock
ringway port add net=nat:
ip tuntap add tap1 mode tap user ringway vnet_hdr
ringway port add own=tap:tap1
ip link set lo up
printf 'COLLECTOR=127.0.0.1:6343\n' >/etc/ringway/sflow
systemctl start ringway-sflow
heard() { awk '/^Udp: [0-9]/ { exit !$3 }' /proc/net/snmp; }
until heard; do sleep 0.1; done
echo the collector of sflow would hear
systemctl stop ringway-sflow
systemd-analyze --no-pager security --threshold=15 ringway-sflow | tail -1
ip addr add 10.77.0.1/24 dev tap1
ip link set tap1 up
ringway port add other=nat:,range=10.77.0.0/24 || echo its range was refused
ringway port add up=tap:tap0 || echo that was refused
touch /run/ringway/of-others
systemctl kill --signal=KILL --kill-who=main $unit
until ringway stats; do sleep 0.1; done
test -f /run/ringway/of-others && echo its directory stayed
systemctl restart $unit
names=$(ringway port list --json | grep -o '"name":"[a-z0-9]*"' | tr '\n' ' ')
echo "after a restart: $names"
ringway port remove net && ringway port remove own
echo 'nonsense' >/etc/ringway/ringway.toml
systemctl reload $unit || echo a wrong file was refused

printf '[ringway]\npin = "0"\n[port.up]\ntap = "tap0"\n' >/etc/ringway/ringway.toml
setpriv --reuid ringway --regid ringway --init-groups \
    ringway doctor --config /etc/ringway/ringway.toml || echo the doctor says so
widen wide
again
cat /sys/class/net/tap0/operstate
ringway stats

rm -r /etc/systemd/system/ringway.service.d
widen strict
printf '[port.vm1]\nvm = "/run/ringway/vm1.sock"\n' >/etc/ringway/ringway.toml
again
systemd-analyze --no-pager security --threshold=5 $unit | tail -1
ringway port list --control /run/ringway/ringway.sock
echo all of it was done
"#;

/// A control group for a systemd, below the one of all; it goes away with the value.
struct Group(PathBuf);

impl Group {
    /// `None`: there can be none here.
    fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mounts = fs::read_to_string("/proc/mounts").ok()?;
        let mut fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let top = fields.find(|fields| fields.get(2) == Some(&"cgroup2"))?[1].to_owned();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let group = Path::new(&top).join(format!("ringway-test-{}-{count}", std::process::id()));
        fs::create_dir(&group).is_ok().then_some(Self(group))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Processes that a systemd that hangs has left; each of them is gone a moment later.
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        let events = || fs::read_to_string(self.0.join("cgroup.events"));
        wait_for("an empty group", || events().ok()?.contains("populated 0").then_some(()));
        let find = ["-depth", "-type", "d", "-exec", "rmdir", "{}", ";"];
        let _ = Command::new("find").arg(&self.0).args(find).status();
    }
}

#[test]
fn the_service_may_do_what_its_unit_says() {
    try_service(None);
}

/// Other distributions have other ones than this machine.
#[test]
fn the_service_may_do_the_same_under_a_newer_systemd() {
    let Some(files) = std::env::var_os("RINGWAY_SYSTEMD") else {
        return println!("skipped: no newer systemd is unpacked: ./x setup");
    };
    try_service(Some(Path::new(&files)));
}

fn try_service(newer: Option<&Path>) {
    let has_systemd = Path::new("/lib/systemd/systemd").exists();
    let is_root = rustix::process::geteuid().is_root();
    let Some(group) = Group::new().filter(|_| is_root && has_systemd) else {
        return println!("skipped: needs root, systemd, and control groups (version 2)");
    };
    let place = tempfile::tempdir().expect("a directory");
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let mut shell = Command::new("timeout");
    shell.args(["--signal=KILL", "60", "unshare", "--mount", "sh", "-c", ENTER, "sh"]);
    shell.args([place.path(), &group.0, Path::new(env!("CARGO_BIN_EXE_ringway")), &packaging]);
    let output = shell.arg(SCRIPT).args(newer).output().expect("it starts");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let wanted = [
        "exposure level for ringway.service: 1.5 ",
        "guests may open /run/ringway/vm0.sock",
        "net: added",
        "own: added",
        "the collector of sflow would hear",
        "exposure level for ringway-sflow.service: 1.",
        "or let the service make taps: sudo install -D -m 644",
        "this machine reaches 10.77.0.0/24 by tap1",
        "its range was refused",
        "that was refused",
        "its directory stayed",
        "after a restart: \"name\":\"vm0\" \"name\":\"net\" \"name\":\"own\" ",
        "a wrong file was refused",
        "the doctor says so",
        "no core, no capabilities)",
        "capabilities: net_admin",
        "exposure level for ringway.service: 0.5 ",
        "vm:/run/ringway/vm1.sock",
        "all of it was done",
    ];
    let version = said.lines().find_map(|line| line.strip_prefix("systemd ")?.split(' ').next());
    let version: u32 = version.and_then(|it| it.parse().ok()).expect("it says its version");
    assert!(newer.is_none() || version >= 254, "{version}");
    let missing = wanted.iter().find(|words| !said.contains(*words));
    assert_eq!(missing, None, "in\n{said}");
    println!("{said}");
}
