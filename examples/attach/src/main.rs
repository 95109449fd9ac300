//! `ringway-attach SOCKET ADDRESS/PREFIX`: serves TCP on a vhost-user device, until it goes away.
#![forbid(unsafe_code)]

use std::fmt;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow, bail};
use ringway_attach::StackGuest;
use ringway_driver::{QueueSet, Queues};
use ringway_net::{Counters, MacAddress};
use ringway_services::{Addressing, Services};
use ringway_testkit::{GuestOptions, UserDevice};
use ringway_vhost_user::EventfdDoorbell;
use ringway_virtq::DriverQueue;

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [socket, address] = &words[..] else {
        bail!("usage: ringway-attach SOCKET ADDRESS/PREFIX");
    };
    let address = address.parse().map_err(|()| anyhow!("{address}: no address/prefix"))?;
    let device = UserDevice::bring_up(Path::new(socket), &GuestOptions::default());
    let (device, queues) = device.with_context(|| socket.clone())?;
    println!("{:?} rings, {}", device.negotiated.format, device.negotiated.features);
    let addressing = Addressing::Fixed(address, None);
    match queues {
        Queues::Split(queues) => serve(device, queues, addressing),
        Queues::Packed(queues) => serve(device, queues, addressing),
    }
}

fn serve<Q: DriverQueue>(
    device: UserDevice,
    queues: QueueSet<Q, EventfdDoorbell>,
    addressing: Addressing,
) -> anyhow::Result<()> {
    let mac = MacAddress(device.mac);
    let started = Instant::now();
    let now_us = || u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_secs());
    let mut guest = StackGuest::new(device, queues)?;
    let mut services = Services::new(&mut guest.stack, mac, addressing, seed, now_us());
    loop {
        let driver = guest.stack.driver();
        let report = StatisticsPage { rx: *driver.rx.counters(), tx: *driver.tx.counters() };
        guest.turn(|stack| services.poll(stack, now_us(), &report))?;
    }
}

/// The statistics page.
struct StatisticsPage {
    rx: Counters,
    tx: Counters,
}

impl fmt::Display for StatisticsPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, counters) in [("rx", &self.rx), ("tx", &self.tx)] {
            writeln!(f, "{name}_packets {}\n{name}_bytes {}", counters.packets, counters.bytes)?;
        }
        Ok(())
    }
}
