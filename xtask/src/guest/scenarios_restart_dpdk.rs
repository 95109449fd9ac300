//! The data plane is killed and replaced under DPDK's virtio-user, which would never connect again:
//! numbered packets go there and come back all the while.
//!
//! How: `testpmd` is started with what `ringway attach` prints. It sends each packet back; what it
//! has counted must agree with what came.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use ringway_guests::{Ringway, Stage, Testpmd, net};

use super::scenarios_restart::{self as restart, Outage, What};
use super::scene::{MTU, Scene, TAP};

const HERE: &str = "10.94.0.1";
const THERE: &str = "10.94.0.2";
const MAC: &str = "52:54:00:94:00:02";

/// The number of packets, each time.
const BURST: u32 = 4;
const BURST_EVERY: Duration = Duration::from_millis(1);
const PACKET_LEN: usize = 200;

/// Longest time until the last ones are back.
const LAST: Duration = Duration::from_millis(500);

/// One that testpmd has in hand when its counts are asked for.
const IN_HAND_MAX: u64 = 64;

pub fn dpdk(stage: &Stage) -> anyhow::Result<()> {
    let scene = Scene::with_tap(stage, &format!(",mac={MAC}"), HERE, MTU)?;
    net::ip(&format!("neigh add {THERE} lladdr {MAC} dev {TAP} nud permanent"))?;
    let words = scene.ringway.attach("vm0", "dpdk")?;
    stage.step(&words.join(" "));
    let testpmd = Testpmd::start_with(stage, &words, "--forward-mode=5tswap")?;
    let mut came = 0;
    for (what, times) in restart::each() {
        stage.step(&format!("{times} times {what:?}"));
        let (outage, distinct) = stream(&scene.ringway, what, times)?;
        outage.check(stage, what, times)?;
        came += distinct;
    }
    restart::check_stayed(&scene.ringway)?;
    let counted = testpmd.finish_up()?;
    stage.note(&format!("{came} packets came back, {counted:?}"));
    let is_all = counted.received <= counted.sent + IN_HAND_MAX && counted.sent >= came;
    ensure!(is_all && counted.missed == 0, "{came} packets came back, {counted:?}");
    scene.finish()
}

/// Numbered packets live through it; also how many different ones came back.
fn stream(ringway: &Ringway, what: What, times: u32) -> anyhow::Result<(Outage, u64)> {
    let socket = UdpSocket::bind((HERE, 7000)).context("UDP socket")?;
    socket.connect((THERE, 7001))?;
    socket.set_read_timeout(Some(LAST))?;
    let is_over = AtomicBool::new(false);
    let (sent, (numbers, gap)) = thread::scope(|scope| {
        let sender = scope.spawn(|| send(&socket, &is_over));
        let receiver = scope.spawn(|| receive(&socket, &is_over));
        let disturbed = restart::disturb(ringway, what, times);
        is_over.store(true, Ordering::Relaxed);
        disturbed.context("the data plane")?;
        let sent = sender.join().map_err(|_| anyhow::anyhow!("it panicked"))??;
        Ok::<_, anyhow::Error>((sent, receiver.join().unwrap_or_default()))
    })?;
    let came = u32::try_from(numbers.len())?;
    Ok((Outage { lost: sent.saturating_sub(came), gap }, came.into()))
}

fn send(socket: &UdpSocket, is_over: &AtomicBool) -> anyhow::Result<u32> {
    let mut sent = 0_u32;
    let mut packet = [0; PACKET_LEN];
    while !is_over.load(Ordering::Relaxed) {
        for _ in 0..BURST {
            packet[..4].copy_from_slice(&sent.to_le_bytes());
            socket.send(&packet).context("sending")?;
            sent += 1;
        }
        thread::sleep(BURST_EVERY);
    }
    Ok(sent)
}

/// The numbers that came back until it is over and none comes any more, and the longest time
/// between two.
fn receive(socket: &UdpSocket, is_over: &AtomicBool) -> (BTreeSet<u32>, Duration) {
    let (mut numbers, mut gap) = (BTreeSet::new(), Duration::ZERO);
    let mut packet = [0; PACKET_LEN];
    let mut last = None;
    loop {
        match socket.recv(&mut packet) {
            Ok(_) => {
                let now = Instant::now();
                gap = gap.max(last.map_or(Duration::ZERO, |last| now - last));
                last = Some(now);
                numbers.extend(packet.first_chunk().map(|number| u32::from_le_bytes(*number)));
            }
            Err(why) if why.kind() == ErrorKind::WouldBlock && !is_over.load(Ordering::Relaxed) => {
            }
            Err(_) => return (numbers, gap),
        }
    }
}
