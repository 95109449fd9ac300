//! The internet without root: Linux guests on a router (`nat:`) of a ringway that may do nothing,
//! and servers behind it.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use ringway_control::protocol::{PortShowReply, StatsReply};
use ringway_extent::Extent;
use ringway_guests::nat_lab::{ECHO, KEEPER, NAME, NARROW, RESET, SERVER, SERVER6, SINK, SOURCE};
use ringway_guests::{Console, Ringway, Side, Stage, iperf, nat_lab, qemu, traffic, uml};

use super::scene::{port, rates};

const BOOT_LIMIT: Duration = Duration::from_secs(60);

/// Traffic goes on for so long, and is done once in any case.
const MINUTES: Extent = Extent::new("RINGWAY_NAT_MINUTES", 0, 30);

/// A stream of so many MiB each way, and short connections.
const STRESS_MIB: Extent = Extent::new("RINGWAY_NAT_MIB", 256, 1024);
const CONNECTIONS: Extent = Extent::new("RINGWAY_NAT_CONNECTIONS", 2_000, 10_000);

/// One segment of more than so many may be sent again; mostly none is.
const AGAIN_MIN: u64 = 5_000;

/// Segments that a guest got, sent, sent again, and got again.
const COUNTS: &str = r#"busybox awk '/^Tcp:/ {n = $11 " " $12 " " $13} \
/^TcpExt:/ && at {m = $at} /^TcpExt:/ \
{for (i = 1; i <= NF; i++) if ($i == "DelayedACKLost") at = i} \
END {print n, m}' /proc/net/snmp /proc/net/netstat"#;

/// A file that a guest runs for its lease of IPv6.
const LEASE6_SCRIPT: &str = r#"printf '%s\n' '#!/bin/sh' '[ "$reason" = BOUND6 ] || exit 0' \
'echo "$new_ip6_address $new_dhcp6_name_servers $new_dhcp6_domain_search" > given6' \
> lease6 && chmod +x lease6"#;

/// Lengths of transfers, in bytes.
const LEN_UML: usize = 8 << 20;
const LEN_QEMU: usize = 4 << 20;

pub(super) fn must(guest: &mut Console, line: &str) -> anyhow::Result<String> {
    Side::Guest(guest).must(line)
}

pub(super) fn ports(stage: &Stage, guests: &[&str], options: &str) -> Vec<String> {
    let mut ports: Vec<String> = guests.iter().map(|name| port(stage, name, "")).collect();
    ports.push(format!("net=nat:,dns={SERVER}{options}"));
    ports
}

/// One User Mode Linux guest, on a cable to the router.
pub fn uml(stage: &Stage) -> anyhow::Result<()> {
    let stage = &nat_lab::without_rights(stage)?;
    let ringway = nat_lab::start(stage, &ports(stage, &["vm0"], ",domain=lab.internal"))?;
    let mut guest = boot_uml(stage, "vm0")?;
    configure(stage, &mut guest, "10.0.2.15", "lab.internal")?;
    rounds(stage, &ringway, || check(stage, &mut guest, LEN_UML))?;
    little_is_sent_again(stage, &mut guest)?;
    stateful(stage, &mut guest)?;
    shown(stage, &ringway)?;
    finish(stage, ringway)
}

/// Until its minutes have passed, at least once.
fn rounds(
    stage: &Stage,
    ringway: &Ringway,
    mut round: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    MINUTES.announced();
    let until = Instant::now() + minutes();
    for number in 1.. {
        round()?;
        let stats: StatsReply = ringway.told_json(&["stats", "net"])?;
        let nat = stats.port("net").and_then(|port| port.nat.as_ref()).context("a router")?;
        let (sockets, flows) = (nat.sockets, &nat.flows);
        stage.note(&format!("round {number}: {sockets} sockets, flows {flows:?}"));
        // Those of datagrams of the last two minutes, and of connections that are over.
        ensure!(sockets < 1200, "{nat:?}");
        if Instant::now() >= until {
            break;
        }
    }
    Ok(())
}

pub fn minutes() -> Duration {
    Duration::from_secs(MINUTES.amount() * 60)
}

/// Of all segments so far, both ways: a window that is not kept shows here. What came to the guest
/// and was there already is counted there.
fn little_is_sent_again(stage: &Stage, guest: &mut Console) -> anyhow::Result<()> {
    let text = must(guest, &COUNTS.replace("\\\n", ""))?;
    let numbers: Result<Vec<u64>, _> = text.split_whitespace().map(str::parse).collect();
    let [got, sent, sent_again, got_again] = numbers?[..] else { bail!("{text:?}") };
    for (way, all, again) in [("out", sent, sent_again), ("in", got, got_again)] {
        stage.note(&format!("{way}: {again} of {all} segments were sent again"));
        ensure!(all > 20_000 && again * AGAIN_MIN < all, "{way}: {again} of {all} sent again");
    }
    Ok(())
}

/// An address of IPv6 by DHCP, with the number of the other one, and names.
fn stateful(stage: &Stage, guest: &mut Console) -> anyhow::Result<()> {
    stage.step("a lease of IPv6");
    must(guest, &LEASE6_SCRIPT.replace("\\\n", ""))?;
    let files = "-cf /dev/null -sf $PWD/lease6 -lf $PWD/leases6 -pf $PWD/pid6";
    must(guest, &format!(": > leases6; dhclient -6 -1 {files} eth0 2>&1"))?;
    let given = must(guest, "busybox killall dhclient; cat given6")?;
    let words: Vec<&str> = given.split_whitespace().collect();
    let is_right = words.len() == 3 && words[0].starts_with("fd") && words[0].ends_with("::f");
    ensure!(is_right && words[1].ends_with("::3") && words[2] == "lab.internal.", "{given:?}");
    Ok(())
}

/// The guest and its flows, as `ringway port show` tells.
fn shown(stage: &Stage, ringway: &Ringway) -> anyhow::Result<()> {
    let shown: PortShowReply = ringway.told_json(&["port", "show", "net"])?;
    let guest = shown.guests.first().context("no guest")?;
    stage.note(&format!("shown: {guest:?}, {} flows", shown.flows_count));
    let is_right = guest.addresses.len() > 1 && guest.addresses[0] == "10.0.2.15";
    ensure!(is_right, "{shown:?}");
    let echo = shown.flows.iter().find(|flow| flow.protocol == "echo");
    let echo = echo.context("the pings' flow")?;
    ensure!(echo.from_guest_bytes > 0, "{echo:?}");
    Ok(())
}

/// With IPv6, which is a module there.
pub(super) fn boot_uml(stage: &Stage, name: &str) -> anyhow::Result<Console> {
    let mut guest = uml::start(stage, name, &stage.socket(name))?;
    guest.wait_ready(0, BOOT_LIMIT)?;
    let modules = uml::files(stage)?.modules;
    for module in ["lib/crc-ccitt", "net/ipv6/ipv6"] {
        must(&mut guest, &format!("insmod {}/{module}.ko", modules.display()))?;
    }
    Ok(guest)
}

/// A QEMU guest, beside another port.
pub fn qemu(stage: &Stage) -> anyhow::Result<()> {
    let stage = &nat_lab::without_rights(stage)?;
    let ringway = nat_lab::start(stage, &ports(stage, &["vm0", "vm1"], ",domain=lab.internal"))?;
    let mut guest = qemu::boot(stage, &stage.socket("vm0"), &qemu::Machine::default())?;
    configure(stage, &mut guest, "10.0.2.15", "lab.internal")?;
    check(stage, &mut guest, LEN_QEMU)?;
    finish(stage, ringway)
}

/// A long stream each way with its sum, short connections, and many at once.
pub fn stress(stage: &Stage) -> anyhow::Result<()> {
    let stage = &nat_lab::without_rights(stage)?;
    let ringway = nat_lab::start(stage, &ports(stage, &["vm0"], ""))?;
    let mut guest = boot_uml(stage, "vm0")?;
    configure(stage, &mut guest, "10.0.2.15", "internal")?;
    rounds(stage, &ringway, || stress_once(stage, &mut guest))?;
    little_is_sent_again(stage, &mut guest)?;
    finish(stage, ringway)
}

fn stress_once(stage: &Stage, guest: &mut Console) -> anyhow::Result<()> {
    let (mib, connections) = (STRESS_MIB.announced(), CONNECTIONS.announced());
    stage.step(&format!("{mib} MiB out"));
    let make = format!("(dd if=/dev/zero bs=1M count={mib} 2>/dev/null; echo end)");
    let expected = run(guest, &format!("{make} | sha256sum"))?;
    run(guest, &format!("{make} | bash -c 'cat >/dev/tcp/{SERVER}/{KEEPER}'"))?;
    let mut got = String::new();
    while got.is_empty() {
        std::thread::sleep(Duration::from_millis(50));
        got = nat_lab::kept_sum();
    }
    ensure!(got == expected, "the server got {got:?}, not {expected:?}");
    stage.step(&format!("{mib} MiB in"));
    let len = usize::try_from(mib << 20)?;
    let got = run(guest, &format!("curl -s http://{SERVER}:{SOURCE}/{len} | sha256sum"))?;
    ensure!(got == nat_lab::source_sum(len)?, "the guest got {got:?}");
    stage.step(&format!("{connections} short connections"));
    let begun = Instant::now();
    let one = format!("exec 3<>/dev/tcp/{SERVER}/{ECHO}; echo $i >&3; read -u 3 r; exec 3<&-");
    let all = format!("for i in $(seq {connections}); do {one}; [ $r = $i ] || exit 1; done");
    run(guest, &format!("bash -c '{all}'"))?;
    let seconds = begun.elapsed().as_secs_f64();
    stage.note(&format!("{connections} connections in {seconds:.1} s"));
    stage.step("1,000 connections at once");
    let open = format!("exec {{fd}}<>/dev/tcp/{SERVER}/{ECHO} || exit 1; all+=($fd)");
    let use_all = "for fd in ${all[@]}; do echo $fd >&$fd; done; \
                   for fd in ${all[@]}; do read -u $fd r; [ $r = $fd ] || exit 1; done";
    let script = format!("for i in $(seq 1000); do {open}; done; {use_all}");
    run(guest, &format!("bash -c 'ulimit -n 4096; {script}'")).map(drop)
}

pub(super) fn finish(stage: &Stage, ringway: Ringway) -> anyhow::Result<()> {
    let port = ringway.port("net")?;
    stage.note(&format!("net: {port}"));
    ringway.finish()
}

fn check(stage: &Stage, guest: &mut Console, len: usize) -> anyhow::Result<()> {
    names(stage, guest)?;
    speed(stage, guest)?;
    streams(stage, guest, len)?;
    ends(stage, guest)?;
    datagrams(stage, guest)
}

/// The output of a command that must succeed has all of these parts.
pub(super) fn shows(guest: &mut Console, line: &str, parts: &[&str]) -> anyhow::Result<()> {
    let text = must(guest, line)?;
    ensure!(parts.iter().all(|part| text.contains(part)), "{line}: {text:?}, not {parts:?}");
    Ok(())
}

/// A command fails, and says why.
fn fails(guest: &mut Console, line: &str, why: &[&str]) -> anyhow::Result<()> {
    let (status, text) = guest.run(&format!("{line} 2>&1"), BOOT_LIMIT)?;
    let is_said = why.iter().all(|part| text.contains(part));
    ensure!(status != 0 && is_said, "{line}: {status}: {text:?}, not {why:?}");
    Ok(())
}

/// A lease, and addresses by advertisement.
pub(super) fn configure(
    stage: &Stage,
    guest: &mut Console,
    address: &str,
    domain: &str,
) -> anyhow::Result<()> {
    stage.step("a lease");
    let given = nat_lab::lease(&mut Side::Guest(guest))?;
    let expected = format!("lease {address} 10.0.2.2 10.0.2.3 1500 {domain}");
    ensure!(given.trim() == expected.trim(), "{given:?}, not {expected:?}");
    let has_global = "until ip -6 addr show dev eth0 scope global | grep -qv tentative; do \
                      sleep 0.2; done; ip -6 addr show dev eth0; ip -6 route";
    let shown = must(guest, has_global)?;
    ensure!(shown.contains("default via fe80::2"), "no route:\n{shown}");
    must(guest, "ping -c 3 -i 0.2 10.0.2.2").map(drop)
}

fn names(stage: &Stage, guest: &mut Console) -> anyhow::Result<()> {
    stage.step("names");
    shows(guest, &format!("busybox nslookup {NAME} 10.0.2.3"), &[SERVER, SERVER6])?;
    fails(guest, "busybox nslookup b.test 10.0.2.3", &["NXDOMAIN"])
}

/// How fast it is; the sums below are slow themselves.
fn speed(stage: &Stage, guest: &mut Console) -> anyhow::Result<()> {
    let _server = iperf::start_server_at(stage, SERVER)?;
    let [out, back] = rates(&mut Side::Guest(guest), SERVER, 1, "")?;
    stage.note(&format!("TCP out: {out:.2} Gb/s, in: {back:.2} Gb/s"));
    for option in ["", "-R"] {
        let line = format!("iperf3 -c {SERVER} -u -b 20M -l 1400 -t 1 {option} --forceflush");
        let text = traffic::iperf(&mut Side::Guest(guest), &line)?;
        ensure!(text.contains("receiver"), "{text}");
        let lost = text.lines().filter(|line| line.contains("receiver")).collect::<String>();
        stage.note(&format!("UDP {option}: {lost}"));
    }
    Ok(())
}

/// Both ways, both families, with sums.
fn streams(stage: &Stage, guest: &mut Console, len: usize) -> anyhow::Result<()> {
    for server in [SERVER, SERVER6] {
        stage.step(&format!("{len} bytes to {server}"));
        let begun = Instant::now();
        let make = format!("dd if=/dev/zero bs=1M count={} 2>/dev/null", len >> 20);
        let sent = format!("({make}; echo end)");
        let expected = run(guest, &format!("{sent} | sha256sum"))?;
        let made = begun.elapsed();
        let begun = Instant::now();
        let got = run(guest, &format!("{sent} | busybox nc {server} {SINK}"))?;
        ensure!(got == expected, "the server got {got:?}, not {expected:?}");
        rate(stage, "out", len, begun.elapsed());
        stage.step(&format!("{len} bytes from {server} (sums took {made:?})"));
        let begun = Instant::now();
        let got = run(guest, &format!("echo {len} | busybox nc {server} {SOURCE} | sha256sum"))?;
        let expected = nat_lab::source_sum(len)?;
        ensure!(got == expected, "the guest got {got:?}, not {expected:?}");
        rate(stage, "in, with a sum", len, begun.elapsed());
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn rate(stage: &Stage, way: &str, len: usize, time: Duration) {
    let megabits = len as f64 * 8e-6 / time.as_secs_f64();
    stage.note(&format!("{way}: {megabits:.0} Mb/s"));
}

fn run(guest: &mut Console, line: &str) -> anyhow::Result<String> {
    let (status, text) = guest.run(line, Duration::from_secs(300))?;
    ensure!(status == 0, "{line}: status {status}:\n{text}");
    Ok(format!("{}\n", text.trim()))
}

/// Connections that are refused, reset, and out of reach.
fn ends(stage: &Stage, guest: &mut Console) -> anyhow::Result<()> {
    stage.step("ends of connections");
    let nc = |to: &str, port: u16| format!("busybox nc -w 10 {to} {port} </dev/null");
    fails(guest, &nc(SERVER, 9), &["Connection refused"])?;
    fails(guest, &nc(SERVER6, 9), &["Connection refused"])?;
    // The machine's own addresses.
    fails(guest, &nc(nat_lab::MACHINE, 80), &["o route to host"])?;
    fails(guest, &nc("10.0.2.2", 80), &["o route to host"])?;
    // Busybox's programs take a reset for an end.
    let script = format!("exec 3<>/dev/tcp/{SERVER}/{RESET}; echo two >&3; cat <&3");
    if guest.run("command -v bash", BOOT_LIMIT)?.0 == 0 {
        fails(guest, &format!("bash -c '{script}'"), &["reset"])?;
    }
    Ok(())
}

fn datagrams(stage: &Stage, guest: &mut Console) -> anyhow::Result<()> {
    stage.step("datagrams and echo");
    for server in [SERVER, SERVER6] {
        let answer = must(guest, &format!("echo hello | busybox nc {server} {ECHO}"))?;
        ensure!(answer.trim() == "hello", "{answer:?} from {server}");
        must(guest, &format!("ping -c 3 -i 0.2 -W 5 {server}"))?;
        must(guest, &format!("ping -c 2 -i 0.2 -W 5 -s 4000 {server}"))?;
    }
    must(guest, "ping -c 2 -i 0.2 -W 5 -s 4000 10.0.2.2")?;
    shows(guest, &format!("ping -c 2 -s 1252 -M do -W 5 {NARROW}"), &["2 received"])?;
    fails(guest, &format!("ping -c 2 -s 1400 -M do -W 2 {NARROW}"), &["mtu", "1280"])?;
    fails(guest, &format!("ping -c 1 -t 1 -W 2 {SERVER}"), &["From 10.0.2.2", "exceeded"])
}
