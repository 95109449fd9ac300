//! The pairs of guests that talk with each other, and how much of it is measured.

use std::time::Duration;

use anyhow::ensure;
use clap::{Args, ValueEnum};
use ringway_guests::{qemu, uml};

use crate::{options, programs};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Pairing {
    /// Linux under QEMU, and this machine
    #[value(name = "qemu")]
    QemuHost,
    /// User Mode Linux, and this machine
    #[value(name = "uml")]
    UmlHost,
    /// Two User Mode Linux guests
    UmlPair,
}

/// Each number is measured for so long at most.
const LONGEST: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Args)]
pub struct GuestOptions {
    #[command(flatten)]
    pub amount: options::Options,
    /// Who talks with whom
    #[arg(long, value_delimiter = ',', value_name = "WHO", default_value = "qemu,uml,uml-pair")]
    pub pairs: Vec<Pairing>,
}

impl Pairing {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::QemuHost => "Linux under QEMU ↔ this machine",
            Self::UmlHost => "User Mode Linux ↔ this machine",
            Self::UmlPair => "User Mode Linux ↔ User Mode Linux",
        }
    }

    pub(super) fn why_not(self) -> Option<String> {
        match self {
            Self::QemuHost => qemu::missing(&programs::root(), &programs::kernel()),
            Self::UmlHost | Self::UmlPair => uml::missing(&programs::root()),
        }
    }
}

impl GuestOptions {
    pub(super) fn pings(&self) -> u32 {
        if self.amount.quick { 2000 } else { 10_000 }
    }

    /// Whole seconds, as iperf3 takes them.
    pub(super) fn seconds(&self) -> u64 {
        self.amount.duration.as_secs()
    }

    /// Whether they make sense where each number is measured for a whole number of steps.
    pub(super) fn check(&self, step: Duration) -> anyhow::Result<()> {
        let duration = self.amount.duration;
        let is_whole = duration.as_millis().is_multiple_of(step.as_millis());
        let is_possible = is_whole && duration >= step && duration <= LONGEST;
        ensure!(is_possible, "{duration:?}: {step:?} to {LONGEST:?}, in steps of {step:?}");
        ensure!(self.amount.repeats > 0 && !self.pairs.is_empty(), "nothing to measure");
        Ok(())
    }
}
