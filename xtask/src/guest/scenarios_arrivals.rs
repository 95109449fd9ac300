//! A guest comes to another host: its front-end gets another ringway, or it ends and is started
//! anew there.
//!
//! How: one that stays on the first host sends to it all the time, and knows its address: it would
//! ask for that once a second only. How long a guest boots is not counted: time begins when it
//! obeys and has sent nothing yet, and once more when it gets its IP address and its link.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use ringway_guests::fabric::{
    Fabric, FabricGuest, GUESTS, MOVED, REACHED_MAX_MS, mac, ms_until, options, wait,
};
use ringway_guests::{Console, Direction, Side, Stage, Testpmd, uml};

/// The guest that comes, on the one host and on the other.
const PLACES: [FabricGuest; 2] = [MOVED, GUESTS[2]];
const ADDRESS: &str = MOVED.ip;

const BOOT_LIMIT: Duration = Duration::from_secs(30);

/// The guest says nothing when its link comes up, or says what its address is.
const SILENT: &str =
    "test ! -e /proc/net/if_inet6 && echo 0 > /proc/sys/net/ipv4/conf/all/arp_notify";
const SPEAKS: &str = "echo 1 > /proc/sys/net/ipv4/conf/all/arp_notify";

pub fn arrivals(stage: &Stage) -> anyhow::Result<()> {
    let [a, b, _, d] = GUESTS;
    let mut fabric = Fabric::start(stage, &[a, b, d])?;
    fabric.must(0, &format!("ip neigh replace {ADDRESS} lladdr {} dev eth0", mac(3)))?;
    reconnect(&mut fabric, stage)?;
    for (what, prepare) in [("is silent", SILENT), ("speaks", SPEAKS)] {
        stage.step(&format!("a guest ends here, and is started anew there; it {what}"));
        let first = boot(&fabric, stage, 0)?;
        fabric.must(0, &format!("ping -c 3 -i 0.2 -W 5 {ADDRESS}"))?;
        drop(first);
        // The addresses that it was locked to are nowhere else before.
        fabric.hosts[0].ringway.remove(PLACES[0].name)?;
        starts_anew(&mut fabric, stage, what, prepare)?;
    }
    fabric.finish()
}

fn add(fabric: &Fabric, at: usize, place: &str) -> anyhow::Result<()> {
    let spec = format!("{}={place},{}", PLACES[at].name, options(&PLACES[at]));
    fabric.hosts[at].ringway.told(&["port", "add", &spec]).map(drop)
}

/// DPDK's front-end listens, and stays; it says nothing itself.
fn reconnect(fabric: &mut Fabric, stage: &Stage) -> anyhow::Result<()> {
    stage.step("a guest gets another ringway");
    let socket = stage.file("server.sock");
    let place = format!("vm-connect:{}", socket.display());
    add(fabric, 0, &place)?;
    let testpmd = Testpmd::start(stage, &socket, ",server=1", "--forward-mode=icmpecho")?;
    fabric.must(0, &format!("ping -c 3 -i 0.2 -W 5 {ADDRESS}"))?;
    for (what, from, to) in [("to the other host", 0, 1), ("back", 1, 0)] {
        let what = format!("a silent guest reconnected {what}, and was not heard");
        fabric.takes_less(stage, &what, REACHED_MAX_MS, |fabric| {
            fabric.silence_ms(|fabric| {
                fabric.hosts[from].ringway.remove(PLACES[from].name)?;
                add(fabric, to, &place)
            })
        })?;
    }
    testpmd.finish()?;
    fabric.hosts[0].ringway.remove(PLACES[0].name)
}

/// A new guest on that host, with its address.
fn boot(fabric: &Fabric, stage: &Stage, at: usize) -> anyhow::Result<Console> {
    let mut guest = boot_without_address(fabric, stage, at)?;
    uml::wait_booted(&mut guest, ADDRESS)?;
    Ok(guest)
}

fn boot_without_address(fabric: &Fabric, stage: &Stage, at: usize) -> anyhow::Result<Console> {
    let socket = stage.socket(PLACES[at].name);
    add(fabric, at, &format!("vm:{}", socket.display()))?;
    let guest = uml::start(stage, PLACES[at].name, &socket)?;
    guest.wait_ready(0, BOOT_LIMIT)?;
    Ok(guest)
}

/// On the second host.
fn starts_anew(
    fabric: &mut Fabric,
    stage: &Stage,
    what: &str,
    prepare: &str,
) -> anyhow::Result<()> {
    let mut guest = boot_without_address(fabric, stage, 1)?;
    let said = "a guest was started anew, and known on the other host after";
    fabric.takes_less(stage, said, REACHED_MAX_MS, |fabric| {
        ms_until(|| {
            wait("it is known", || Ok(fabric.hosts[0].ports_of(&mac(3))? == ["vxlan10"]))
                .with_context(|| fabric.tables(&mac(3)))
        })
    })?;
    let sent = fabric.hosts[1].ringway.port(PLACES[1].name)?.moved(Direction::FromGuest);
    ensure!(sent.packets == 0, "it has sent {} packets", sent.packets);
    uml::must(&mut guest, prepare)?;
    let said = format!("it {what}: from its address to its first answer");
    fabric
        .takes_less(stage, &said, REACHED_MAX_MS, |fabric| first_answer_ms(fabric, &mut guest))?;
    drop(guest);
    fabric.hosts[1].ringway.remove(PLACES[1].name)
}

/// From before it gets its address and its link to the first packet that comes back.
fn first_answer_ms(fabric: &mut Fabric, guest: &mut Console) -> anyhow::Result<f64> {
    let asking = &mut fabric.guests[0];
    thread::scope(|scope| {
        let ping = format!("ping -n -i 0.02 -c 1 -w 20 {ADDRESS}");
        let answer = scope.spawn(move || Side::Guest(asking).must(&ping).map(|_| Instant::now()));
        thread::sleep(Duration::from_millis(500));
        ensure!(!answer.is_finished(), "it answers without an address");
        let begun = Instant::now();
        uml::wait_booted(guest, ADDRESS)?;
        let answered = answer.join().map_err(|_| anyhow::anyhow!("ping"))??;
        Ok(answered.duration_since(begun).as_secs_f64() * 1e3)
    })
}
