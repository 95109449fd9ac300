//! `ringway why` between real guests: what holds a port or a flow back is brought about, and is
//! what the command names first.
//!
//! How: two User Mode Linux guests that ping each other; one of them pings all stations, too. A
//! third port waits. A question takes a second, so those about different ports are asked at once.
//!
//! Limits: what no Linux guest does (a broken ring) and what takes a processor (a saturated worker)
//! is tested with guests in user space.

use std::os::unix::net::UnixStream;
use std::thread;

use anyhow::{Context, ensure};
use ringway_guests::{Ringway, Stage, shell};
use serde_json::Value;

use super::scene::{ADDRESSES, Scene, port};

/// How often something is asked that comes about slowly: a receive ring has to be full.
const QUESTIONS_MAX: usize = 5;

const NOTHING: &str = "nothing";
const SAME_MAC: &str = "another port has the same MAC address";

/// Options of ports, and what is found first then.
type Situation = (&'static [(&'static str, &'static str)], &'static [(&'static str, &'static str)]);

const SITUATIONS: [Situation; 5] = [
    (&[], &[("vm0 vm1", NOTHING), ("vm2", "no front-end is connected")]),
    (
        &[("vm1", "packets_to_guest=10"), ("vm1", "when_full=drop")],
        &[("vm1", "the rate limit to the guest"), ("vm0 vm1", "the rate limit to the guest")],
    ),
    (
        &[("vm0", "packets_from_guest=50"), ("vm1", "storm=10")],
        &[("vm0", "the rate limit from the guest"), ("vm1", "the storm limit")],
    ),
    (
        &[("vm0", "isolated=on"), ("vm1", "locked_ips=10.99.0.9")],
        &[("vm0", "isolation"), ("vm1", "locked addresses")],
    ),
    (
        &[("vm0", "trunk=5"), ("vm1", "link=down")],
        &[("vm0", "the VLAN"), ("vm1", "the link is down"), ("vm0 vm1", "the VLAN")],
    ),
];

pub fn why(stage: &Stage) -> anyhow::Result<()> {
    let mut scene = Scene::two_guests(stage, [""; 2], &[port(stage, "vm2", "")], &[])?;
    for (guest, peer) in [(0, ADDRESSES[1]), (1, ADDRESSES[0])] {
        scene.must(guest, &format!("ping -q -i 0.002 {peer} >/dev/null & sleep 0.2"))?;
    }
    scene.must(1, "ping -b -q -i 0.005 10.99.0.255 >/dev/null & sleep 0.1")?;
    for (options, wanted) in SITUATIONS {
        for (port, option) in options {
            scene.ringway.set(port, option)?;
        }
        expect(&scene.ringway, wanted)?;
        for (port, option) in options {
            let key = option.split('=').next().unwrap_or_default();
            scene.ringway.set(port, &format!("{key}=default"))?;
        }
    }
    same_address(&mut scene)?;
    without_buffers(&mut scene)?;
    scene.ringway.finish()
}

/// The second guest takes the first one's address.
fn same_address(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let address = "cat /sys/class/net/eth0/address";
    let [first, second] = [scene.must(0, address)?, scene.must(1, address)?];
    scene.must(1, &format!("ip link set eth0 address {}", first.trim()))?;
    expect(&scene.ringway, &[("vm0", SAME_MAC), ("vm1", SAME_MAC)])?;
    scene.must(1, &format!("ip link set eth0 address {}", second.trim())).map(drop)
}

/// The second guest is stopped; a front-end without a guest is connected to the third port.
fn without_buffers(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    let _front_end = UnixStream::connect(scene.stage.socket("vm2"))?;
    shell::run(shell::command(&["kill", "-STOP"]).arg(scene.guests[1].id().to_string()))?;
    expect(
        &scene.ringway,
        &[("vm1", "the guest posts no buffers"), ("vm2", "the guest has not started its queues")],
    )
}

/// Asks everything at once, and again if the answer is another one.
fn expect(ringway: &Ringway, wanted: &[(&str, &str)]) -> anyhow::Result<()> {
    for question in 1..=QUESTIONS_MAX {
        let found: Vec<anyhow::Result<Value>> = thread::scope(|scope| {
            let begin = |(words, _): &(&str, &str)| {
                let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
                scope.spawn(move || ask(ringway, &words))
            };
            let asked: Vec<_> = wanted.iter().map(begin).collect();
            asked.into_iter().map(|asked| asked.join().expect("no panic")).collect()
        });
        let found = found.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        let all = wanted.iter().zip(&found);
        let missed = all.clone().find(|((_, what), found)| first(found) != *what);
        let Some(((words, what), found)) = missed else {
            all.for_each(|((words, _), found)| println!("why {words}: {}", shown(found)));
            return Ok(());
        };
        ensure!(question < QUESTIONS_MAX, "why {words}: {found} instead of {what:?}");
    }
    Ok(())
}

fn ask(ringway: &Ringway, words: &[String]) -> anyhow::Result<Value> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let told = ringway.told(&[&["why", "--json"], words.as_slice()].concat())?;
    serde_json::from_str(&told).with_context(|| told.clone())
}

fn first(reply: &Value) -> &str {
    reply["findings"][0]["what"].as_str().unwrap_or(NOTHING)
}

fn shown(reply: &Value) -> String {
    format!("{}: {}", first(reply), reply["findings"][0]["figure"].as_str().unwrap_or("–"))
}
