//! A row of the tables, and its guest with a tap behind it.

use std::path::Path;

use ringway_guests::Side;
use ringway_net::Features;

use super::super::figures::{flood_of, pings, tcp};
use super::super::pairing::{GuestOptions, Pairing};
use super::super::rig::{Carrier, Rig, RigPlan};
use super::super::turns::{Compared, Figures};
use super::rows::Technique;
use super::{PINGS, STREAMS};

/// The number of the first row's plan.
const FIRST: u8 = 100;

/// The features that QEMU offers its guest by itself, whatever the device does.
const OF_THE_MACHINE: Features = Features::MAC.union(Features::STATUS);

#[derive(Debug)]
pub(super) struct TechniqueRig {
    /// MTU-sized packets that the receive ring held when nothing had been received.
    pub capacity: Option<f64>,
    /// Features that were offered for the row and not accepted.
    pub refused: Features,
    rig: Rig,
}

impl TechniqueRig {
    pub fn boot(
        number: u8,
        technique: Technique,
        pairing: Pairing,
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let plan = RigPlan { pairing, carrier: Carrier::Row(technique), number: FIRST + number };
        let mut rig = Rig::boot(plan, directory)?;
        let state = rig.device().map(|device| device.state()).transpose()?;
        let capacity = state.map(|state| f64::from(state.capacity));
        let refused = state.map(|state| technique.features - state.accepted - OF_THE_MACHINE);
        Ok(Self { capacity, refused: refused.unwrap_or(Features::empty()), rig })
    }
}

impl Compared for TechniqueRig {
    fn commands(&self) -> Vec<String> {
        self.rig.commands()
    }

    fn take(&mut self, options: &GuestOptions) -> Figures {
        let mut figures = Figures::nothing(&STREAMS, &PINGS);
        let (here, there) = (self.rig.address(), self.rig.guest_address());
        let warm_up = format!("ping -c 2 -i 0.1 -W 10 {here}");
        let ready = self.rig.work().and_then(|()| self.rig.side().must(&warm_up));
        if figures.note("before anything", ready).is_none() {
            return figures;
        }
        let seconds = options.seconds();
        for (way, option) in ["", "-R"].into_iter().enumerate() {
            let rate = tcp(&mut self.rig.side(), &here, seconds, option, Default::default);
            figures.rates[way] =
                figures.note(&format!("TCP {option}"), rate).map(|(rate, ..)| rate);
        }
        for (at, mut side, to) in [(0, self.rig.side(), &here), (4, Side::Here, &there)] {
            let flood = pings(&mut side, &flood_of(options.pings() / 10), to);
            if let Some(times) = figures.note("flood", flood) {
                figures.costs[at..][..4].copy_from_slice(&times.map(Some));
            }
        }
        figures.note("afterwards", self.rig.work());
        figures
    }
}
