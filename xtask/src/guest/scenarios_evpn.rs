//! Guests of two ringways in two virtual networks, with bridges, VXLAN and FRR's EVPN between them.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, ensure};
use ringway_control::protocol::TraceReply;
use ringway_guests::fabric::{
    Fabric, FabricGuest, GUESTS, HOSTS, MOVED, REACHED_MAX_MS, mac, ms_until, wait,
};
use ringway_guests::{Side, Stage};
use serde_json::Value;

use super::scene::rates;

/// The MTU that VXLAN leaves of 1500: ringway finds it out.
const MTU: &str = "1450";

/// Longest time in milliseconds until an address is gone everywhere; and until all know where a
/// guest is that arrived before it had left, one announcement of which may be lost.
const GONE_MAX_MS: f64 = 1000.0;
const SETTLED_MAX_MS: f64 = 2000.0;

/// How often a guest moves to and fro: it ends where it was.
const MOVES: u32 = 20;

/// Between the arrival of a guest and its departure elsewhere, and until it moves again.
const OVERLAPS_MS: [u64; 7] = [0, 10, 40, 90, 0, 160, 250];

/// Addresses are known everywhere, also those of guests that have sent nothing; packets arrive in
/// their own network, and in no other.
pub fn networks(stage: &Stage) -> anyhow::Result<()> {
    let mut fabric = Fabric::start(stage, &GUESTS)?;
    stage.step("routes");
    // It asks for an address that there is not, and so says which one is its own.
    Side::Guest(&mut fabric.guests[3]).run("ping -c 1 -W 1 172.16.0.99")?;
    for (own, other) in [(0, 1), (1, 0)] {
        let flood = format!("[3]:[0]:[32]:[{}]", HOSTS[other]);
        fabric.wait_route(own, &flood, true).context("type 3")?;
        for FabricGuest { name, last, ip, .. } in
            GUESTS.into_iter().filter(|guest| guest.host == other)
        {
            let station = format!("[2]:[0]:[48]:[{}]", mac(last));
            fabric.wait_route(own, &station, true).with_context(|| format!("type 2: {name}"))?;
            let resident = format!("{station}:[32]:[{ip}]");
            fabric.wait_route(own, &resident, true).with_context(|| format!("its IP: {name}"))?;
        }
        end_floods(&fabric, own, HOSTS[other])?;
    }
    knows_the_way(&fabric, &GUESTS[0], &GUESTS[2], "up10")?;
    knows_the_way(&fabric, &GUESTS[3], &GUESTS[1], "up20")?;
    let mtu = fabric.must(0, "cat /sys/class/net/eth0/mtu")?;
    ensure!(mtu.trim() == MTU, "the guest's MTU is {mtu}");
    stage.step("pings");
    fabric.must(0, "ping -c 20 -i 0.05 -W 5 172.16.0.2")?;
    fabric.must(3, "ping -c 20 -i 0.05 -W 5 172.16.0.1")?;
    stage.step("two networks");
    for (guest, elsewhere) in [(0, "172.16.0.4"), (1, "172.16.0.2")] {
        let (status, text) = Side::Guest(&mut fabric.guests[guest])
            .run(&format!("ping -c 3 -i 0.2 -W 1 {elsewhere}"))?;
        ensure!(status != 0, "{elsewhere} is in the other network: {text}");
    }
    stage.step("TCP");
    fabric.must(2, "iperf3 -s -D")?;
    let [out, back] = rates(&mut Side::Guest(&mut fabric.guests[0]), "172.16.0.2", 2, "")?;
    stage.note(&format!("TCP between hosts: {out:.2} and {back:.2} Gb/s"));
    stage.step("a neighbour that others took away");
    let bridge = &fabric.hosts[1].network;
    bridge.run("ip neigh del 172.16.0.2 dev br10")?;
    wait("it is back", || Ok(bridge.run("ip neigh show dev br10 nud noarp")?.contains(&mac(3))))?;
    fabric.finish()
}

/// Guests move and leave, and a host is lost: the others hear of it, and go on.
pub fn moves(stage: &Stage) -> anyhow::Result<()> {
    let mut fabric = Fabric::start(stage, &[&GUESTS[..], &[MOVED]].concat())?;
    fabric.must(0, "ping -c 3 -i 0.2 -W 5 172.16.0.2")?;
    let moves = [("from the other host", (1, "c"), (0, "e")), ("to it", (0, "e"), (1, "c"))];
    for (what, from, to) in moves {
        stage.step(&format!("a silent guest moves {what}"));
        let what = format!("a silent guest moved {what}, and was not heard");
        fabric.takes_less(stage, &what, REACHED_MAX_MS, |fabric| {
            fabric.silence_ms(|fabric| {
                fabric.hosts[from.0].ringway.set(from.1, "link=down")?;
                fabric.hosts[to.0].ringway.set(to.1, "link=up")
            })
        })?;
    }
    stage.step("moves that overlap");
    move_to_and_fro(&fabric)?;
    let what = format!("after {MOVES} moves to and fro all tables were right");
    fabric.takes_less(stage, &what, SETTLED_MAX_MS, |fabric| {
        ms_until(|| wait_settled(fabric, &mac(3)))
    })?;
    stage.step("a guest leaves");
    let what = "an address was gone on the other host, after its port,";
    fabric.takes_less(stage, what, GONE_MAX_MS, |fabric| leave(fabric, &mac(3)))?;
    stage.step("a host is lost");
    fabric.hosts[0].ringway.set("e", "link=up")?;
    fabric.must(0, "ping -c 3 -i 0.2 -W 5 172.16.0.2")?;
    let lost = mac(4);
    wait("the other guest is known", || fabric.hosts[0].knows(&lost))?;
    let before = fabric.silence_ms(|_| Ok(()))?;
    let gap = fabric.silence_ms(|fabric| {
        fabric.hosts[1].ringway.kill();
        Ok(())
    })?;
    stage.note(&format!("when a host was lost, others heard nothing for {gap:.0} ms at most"));
    ensure!(gap < REACHED_MAX_MS + before, "{gap} ms, and {before} ms before that");
    wait("its guests are forgotten", || Ok(!fabric.hosts[0].knows(&lost)?))?;
    fabric.hosts.truncate(1);
    fabric.finish()
}

/// Nothing goes to all from now on: questions for addresses are lost unless the bridges answer
/// them, and other packets unless bridges and VXLAN know where their stations are.
fn end_floods(fabric: &Fabric, host: usize, other: &str) -> anyhow::Result<()> {
    let network = &fabric.hosts[host].network;
    for port in ["vxlan10", "vxlan20"] {
        network.run(&format!("bridge link set dev {port} flood off bcast_flood off"))?;
        network.run(&format!("bridge fdb del 00:00:00:00:00:00 dev {port} dst {other}"))?;
    }
    network.run("bridge link set dev up10 flood off && bridge link set dev up20 flood off")?;
    Ok(())
}

/// Packets from one guest to another go to that port of its ringway, and nowhere else.
fn knows_the_way(
    fabric: &Fabric,
    from: &FabricGuest,
    to: &FabricGuest,
    way: &str,
) -> anyhow::Result<()> {
    let dst = format!("dst={}", mac(to.last));
    let [src_ip, dst_ip] = [format!("src_ip={}", from.ip), format!("dst_ip={}", to.ip)];
    let question = ["trace", from.name, &dst, &src_ip, &dst_ip];
    let told: TraceReply = fabric.hosts[from.host].ringway.told_json(&question)?;
    let verdict = told.verdict;
    ensure!(verdict == format!("goes to {way}"), "a packet from {}: {verdict}", from.name);
    Ok(())
}

/// `c` arrives each time before it has left.
fn move_to_and_fro(fabric: &Fabric) -> anyhow::Result<()> {
    let mut pauses = OVERLAPS_MS.iter().cycle().map(|ms| Duration::from_millis(*ms));
    let (mut from, mut to) = ((1, "c"), (0, "e"));
    for _ in 0..MOVES {
        fabric.hosts[to.0].ringway.set(to.1, "link=up")?;
        sleep(pauses.next().unwrap_or_default());
        fabric.hosts[from.0].ringway.set(from.1, "link=down")?;
        sleep(pauses.next().unwrap_or_default());
        (from, to) = (to, from);
    }
    Ok(())
}

/// The bridges and daemons of both hosts know that a guest is on the second one.
fn wait_settled(fabric: &Fabric, mac: &str) -> anyhow::Result<()> {
    let [other, own] = [&fabric.hosts[0], &fabric.hosts[1]];
    let is_right = || {
        let is_far = other.ports_of(mac)? == ["vxlan10"]
            && other.place_of(mac)? == ["remote".into(), Value::from(HOSTS[1])];
        let is_near = own.ports_of(mac)? == ["up10"];
        Ok(is_far && is_near && own.place_of(mac)?[0] == "local")
    };
    wait("all know where it is", is_right).with_context(|| fabric.tables(mac))
}

/// `c` leaves; how long the other host knows it, in milliseconds.
fn leave(fabric: &Fabric, mac: &str) -> anyhow::Result<f64> {
    ensure!(fabric.hosts[0].knows(mac)?, "it was there");
    let resident = format!("[2]:[0]:[48]:[{mac}]:[32]:[{}]", MOVED.ip);
    fabric.wait_route(0, &resident, true)?;
    ms_until(|| {
        fabric.hosts[1].ringway.remove("c")?;
        fabric.wait_route(0, &resident, false)?;
        wait("its address is gone", || Ok(!fabric.hosts[0].knows(mac)?))
            .with_context(|| fabric.tables(mac))
    })
}
