//! The Debian package: installed, used, upgraded and purged in a copy of this machine's root that
//! goes away.

use std::path::Path;
use std::process::Command;

/// Below a directory, as root of a mount namespace: makes the copy, and runs the rest in it.
const ENTER: &str = r#"
set -eu
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount --rbind /dev "$1/root/dev"
mount -t proc proc "$1/root/proc"
mount -t tmpfs none "$1/root/run"
mkdir "$1/root/packages"
mount --bind "$2" "$1/root/packages"
exec chroot "$1/root" sh -c "$3" sh "$4"
"#;

/// Two guests on the ringway of the package: they are seen, ping each other, and the ping is read.
const GUESTS: &str = r#"
set -eu
cd /
ringway port add vm1=vm:
for guest in 0 1; do
    cat >/guest$guest.sh <<END
#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
modules=/usr/lib/uml/modules/\$(uname -r)/kernel
for module in net/core/failover drivers/net/net_failover drivers/net/virtio_net; do
    insmod \$modules/\$module.ko
done
ip addr add 10.0.0.$guest/24 dev eth0
ip link set eth0 up
[ $guest = 1 ] || while :; do ping -c 1 -W 1 10.0.0.1; sleep 0.2; done
while :; do sleep 60; done
END
    chmod +x /guest$guest.sh
    eval env -u TMPDIR LD_PRELOAD=/packages/xstate.so linux.uml \
        root=/dev/root rootfstype=hostfs rootflags=/ ro init=/guest$guest.sh quiet \
        con=null con0=null,fd:1 uml_dir=/run/ umid=vm$guest \
        "$(ringway attach vm$guest --for uml --memory 64)" \
        '>/guest$guest.log 2>&1 </dev/null &'
done
# Until the address of the other one is known, and a while longer if the machine is busy.
timeout 30 ringway capture vm0 /ping.pcapng --filter icmp --count 6
ringway why vm0 vm1
ringway top --once
tshark -r /ping.pcapng -Y 'icmp.type == 0' 2>/log
"#;

/// The steps of a newcomer, and of an administrator after that.
const USE: &str = r#"
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin
cd /
dpkg -i /packages/ringway_0.1.0_*.deb
getent passwd ringway
systemctl is-enabled ringway
for page in ringway ringway-run ringway-port-add; do gzip -t /usr/share/man/man1/$page.1.gz; done
bash -n /usr/share/bash-completion/completions/ringway
# Completions are loaded as an interactive shell does, and know a command and an option.
bash -c '. /usr/share/bash-completion/completions/ringway
    COMP_WORDS=(ringway cap); COMP_CWORD=1; _ringway ringway cap ringway
    echo "bash: ${COMPREPLY[*]}"'
zsh -fc 'autoload -U compinit; compinit -u -d /tmp/zcompdump; echo "zsh: $_comps[ringway]"
    autoload +X _ringway && whence -w _ringway'
for page in ringway ringway-capture; do man -l /usr/share/man/man1/$page.1.gz >/page; done
apparmor_parser --skip-kernel-load --skip-cache /etc/apparmor.d/usr.bin.ringway
echo a good profile
back_end=$(sed -n 's/.*"binary": "\(.*\)".*/\1/p' /usr/share/qemu/vhost-user/50-ringway.json)
$back_end --print-capabilities
unit=/lib/systemd/system/ringway.service
install -d -o ringway -g ringway /run/ringway
start=$(sed -n 's/^ExecStart=//p' $unit)
export $(sed -n 's/^Environment=//p' $unit)
setpriv --reuid ringway --regid ringway --init-groups $start 2>/log & ringway=$!
unset XDG_RUNTIME_DIR
until grep -q ready /log; do kill -0 $ringway || { cat /log; exit 1; }; sleep 0.1; done
ringway stats
cni() { echo '{"cniVersion":"1.1.0","name":"blue"}' | CNI_COMMAND=$1 /usr/lib/cni/ringway-cni; }
cni VERSION
cni STATUS && echo containers too
ringway port add vm0=vm:
ringway attach vm0 --for qemu
ringway metrics | grep 'ringway_port_state{port="vm0",state="waiting"} 1'
[ -z "$1" ] || sh -c "$1" || tail /guest?.log /log
for line in 15:$unit 13:/lib/systemd/system/ringway-metrics.service; do
    systemd-analyze security --offline=true --threshold=${line%%:*} ${line#*:} >/dev/null
done
test -f /usr/share/ringway/wide.conf
test -f /usr/lib/systemd/user/ringway.service
for link in $(grep -o '](docs/[^)#]*' /usr/share/doc/ringway/README.md | cut -c3-); do
    [ -e "/usr/share/doc/ringway/$link" ] || echo "$link is missing"
done
ls /usr/share/doc/ringway/docs/guide/service.md
touch /etc/ringway/libvirt
install -D -m 644 -t /etc/systemd/system/ringway.service.d /usr/share/ringway/strict.conf
systemd-analyze security --offline=true --threshold=10 ringway.service | tail -1
echo '# mine' >>/etc/ringway/ringway.toml
systemctl disable ringway
# As where systemd runs; what it is told does nothing here.
export SYSTEMD_OFFLINE=1
mkdir -p /run/systemd/system
dpkg -i /packages/ringway_0.2.0_*.deb
systemctl is-enabled ringway || echo "as its user wants it"
kill -0 $ringway && tail -1 /etc/ringway/ringway.toml
ringway port list
kill $ringway
wait $ringway
systemctl enable ringway ringway-metrics
dpkg -r ringway
dpkg -i /packages/ringway_0.2.0_*.deb
systemctl is-enabled ringway && echo "as before it was removed"
dpkg -P ringway
if getent passwd ringway; then exit 1; fi
for left in /usr/bin/ringway /etc/ringway $unit /etc/systemd/system/*.wants/ringway*; do
    if [ -e "$left" ] || [ -L "$left" ]; then echo "$left is left"; exit 1; fi
done
echo all of it is gone
"#;

#[test]
fn a_package_is_installed_used_upgraded_and_purged() {
    if !rustix::process::geteuid().is_root() || Command::new("dpkg-deb").output().is_err() {
        return println!("skipped: needs root, and dpkg-deb");
    }
    if !Path::new(env!("CARGO_BIN_EXE_ringway")).with_file_name("ringway-cni").is_file() {
        return println!("skipped: ringway-cni is not built");
    }
    let packages = tempfile::tempdir().expect("a directory");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/build-deb");
    for version in ["0.1.0", "0.2.0"] {
        let mut build = Command::new(&script);
        build.arg(env!("CARGO_BIN_EXE_ringway")).arg(version).arg(packages.path());
        // How small it is does not matter here, and takes ten seconds.
        build.env("DPKG_DEB_COMPRESSOR_LEVEL", "0");
        assert!(build.status().expect("it starts").success());
    }
    check_with_lintian(packages.path());
    let preload = ringway_guests::uml::PRELOAD;
    std::fs::write(packages.path().join("xstate.so"), preload).expect("written");
    let place = tempfile::tempdir().expect("a directory");
    let mut shell = Command::new("unshare");
    shell
        .args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, "sh"])
        .arg(place.path())
        .arg(packages.path());
    let has = |program| Path::new("/usr/bin").join(program).exists();
    let has_guests = has("linux.uml") && has("tshark");
    let guests = if has_guests { GUESTS } else { "" };
    let output = shell.args([USE, guests]).output().expect("it starts");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let wanted = [
        "running for 0 s, 0 ports",
        "path=/run/ringway/vm0.sock",
        "docs/guide/service.md\n",
        "bash: capture\n",
        "containers too\n",
        "zsh: _ringway\n",
        "enabled\n",
        "as its user wants it\n",
        "as before it was removed\n",
        "a good profile\n{\"type\":\"net\"}\n",
        "exposure level for ringway.service: 0.5 SAFE",
        "upgraded: packets waited ",
        "# mine\n",
        "all of it is gone\n",
    ];
    let of_guests = ["Echo (ping) reply", "vm0 → vm1: nothing holds it back", " running "];
    if !has_guests {
        println!("skipped: two guests, whose ping is read: no User Mode Linux, or no tshark");
    }
    for words in wanted.into_iter().chain(of_guests.into_iter().filter(|_| has_guests)) {
        assert!(said.contains(words), "{words} in\n{said}");
    }
    assert!(!said.contains(" is missing\n"), "{said}");
    assert!(output.status.success(), "{said}");
    println!("{said}");
}

/// Errors that Debian's own checker finds fail the test.
fn check_with_lintian(packages: &Path) {
    let package = packages.join("ringway_0.1.0_amd64.deb");
    let mut lintian = Command::new("lintian");
    let lintian = lintian.args(["--allow-root", "--fail-on", "error"]).arg(package);
    let Ok(output) = lintian.output() else { return println!("skipped: lintian") };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
