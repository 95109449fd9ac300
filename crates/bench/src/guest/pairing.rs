//! Who talks with whom, and how much of it is measured.

use std::time::Duration;

use anyhow::ensure;
use clap::ValueEnum;
use ringway_guests::{qemu, uml};

use crate::{options, programs};

/// Who talks with whom.
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

#[derive(Debug, Clone)]
pub struct Options {
    /// How long each number is measured, how often, and by which command.
    pub amount: options::Options,
    pub pings: u32,
    /// Who talks with whom.
    pub pairings: Vec<Pairing>,
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

impl Options {
    /// Whole seconds, as iperf3 takes them.
    pub(super) fn seconds(&self) -> u64 {
        self.amount.duration.as_secs()
    }

    pub(super) fn check(&self) -> anyhow::Result<()> {
        let duration = self.amount.duration;
        let is_whole = duration.subsec_nanos() == 0 && duration <= Duration::from_secs(20);
        ensure!(is_whole && !duration.is_zero(), "{duration:?}: 1 to 20 whole seconds");
        ensure!(self.amount.repeats > 0 && !self.pairings.is_empty(), "nothing to measure");
        Ok(())
    }
}
