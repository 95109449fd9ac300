//! A row of the tables, and its guest with a tap behind it.

use std::path::Path;

use anyhow::Context;
use ringway_guests::traffic::{self, Side};
use ringway_net::Features;

use super::super::pairing::{Options, Pairing};
use super::super::rig::{Carrier, Plan, Rig};
use super::rows::Technique;

/// The number of the first row's plan.
const FIRST: u8 = 100;

/// What QEMU offers its guest by itself, whatever the device does.
const OF_THE_MACHINE: Features = Features::MAC.union(Features::STATUS);

/// TCP out and in; pings from the guest and to it, with least, mean, greatest and deviation.
pub(super) type Figures = ([Option<f64>; 2], [Option<f64>; 8]);

#[derive(Debug)]
pub(super) struct Row {
    pub name: &'static str,
    /// MTU-sized packets that the receive ring held when nothing had been received.
    pub capacity: Option<f64>,
    /// Features that were offered for the row and not accepted.
    pub refused: Features,
    pub rig: Rig,
}

impl Row {
    pub fn boot(
        (number, name, technique): (u8, &'static str, Technique),
        pairing: Pairing,
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let plan = Plan { pairing, carrier: Carrier::Row(technique), number: FIRST + number };
        let mut rig = Rig::boot(plan, directory)?;
        let found = rig.device().map(|device| device.found()).transpose()?;
        let capacity = found.map(|found| f64::from(found.capacity));
        let refused = found.map(|found| technique.features - found.accepted - OF_THE_MACHINE);
        Ok(Self { name, capacity, refused: refused.unwrap_or(Features::empty()), rig })
    }

    pub fn take(&mut self, options: &Options) -> anyhow::Result<Figures> {
        let (seconds, pings) = (u32::try_from(options.seconds())?, options.pings() / 10);
        let (here, there) = (self.rig.address(), self.rig.guest_address());
        self.rig.work()?;
        let mut guest = self.rig.side();
        guest.must(&format!("ping -c 2 -i 0.1 -W 10 {here}"))?;
        let rate = |guest: &mut Side<'_>, option| {
            anyhow::Ok(Some(traffic::tcp(guest, &here, seconds, option)?.gigabits()))
        };
        let rates = [rate(&mut guest, "")?, rate(&mut guest, "-R")?];
        let flood = |side: &mut Side<'_>, to: &str| {
            let text = side.run(&format!("ping -f -q -w 20 -c {pings} {to}"))?.1;
            traffic::round_trips_ms(&text).with_context(|| format!("ping: {text}"))
        };
        let times = [flood(&mut guest, &here)?, flood(&mut Side::Here, &there)?].concat();
        let mut pings = [None; 8];
        pings.iter_mut().zip(times).for_each(|(to, time)| *to = Some(time));
        self.rig.work()?;
        Ok((rates, pings))
    }
}
