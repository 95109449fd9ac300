//! The processors that each process keeps to while guests are measured.
//!
//! How: a guest and what runs beside it have a processor each. Left to the scheduler, both and the
//! other end of the traffic change places all the time: a User Mode Linux guest then moves half as
//! many bytes, and two rounds differ by more than what is compared.
//!
//! Limits: with one processor everything shares it.

use ringway_guests::{Process, Ringway, Testpmd};

use super::history::device::Device;
use super::pairing::Pairing;
use crate::machine::keeping_to;

pub(super) const METHOD: &str = "A guest keeps to one processor, what runs beside it to the \
     others; what is between two guests, one processor each, goes where the scheduler puts it.";

/// The process or thread beside a guest.
#[derive(Debug)]
pub(super) enum Beside {
    None,
    Ringway(Ringway),
    Testpmd(Testpmd),
    Program(Process),
    /// A thread of this program.
    Device(Device),
}

impl Beside {
    /// How it was started, and its number.
    pub fn process(&self) -> Option<(&str, u32)> {
        match self {
            Self::None | Self::Device(_) => None,
            Self::Ringway(ringway) => Some((ringway.command(), ringway.id())),
            Self::Testpmd(testpmd) => Some((testpmd.command(), testpmd.id())),
            Self::Program(process) => Some((process.command(), process.id())),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sides {
    /// Of the first guest and of the second.
    guests: [Vec<usize>; 2],
    pub rest: Vec<usize>,
}

impl Sides {
    /// A guest has a processor of its own. The rest has another one, unless guests have them all.
    pub fn of(pairing: Pairing, processors: &[usize]) -> Self {
        let all = processors.to_vec();
        let [one, other, ..] = *processors else {
            return Self { guests: [all.clone(), all.clone()], rest: all };
        };
        let rest = if pairing == Pairing::UmlPair { all } else { processors[1..].to_vec() };
        Self { guests: [vec![one], vec![other]], rest }
    }

    /// Starts the guest of this number (0 or 1) on its side.
    pub fn guest<T, F>(&self, number: usize, start: F) -> anyhow::Result<T>
    where
        F: FnOnce() -> anyhow::Result<T>,
    {
        keeping_to(&self.guests[number], start)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_shares_its_processor_only_if_it_must() {
        for pairing in [Pairing::QemuHost, Pairing::UmlHost] {
            let Sides { guests, rest } = Sides::of(pairing, &[2, 5, 7]);
            assert_eq!((&guests[0], rest), (&vec![2], vec![5, 7]));
        }
        let Sides { guests, rest } = Sides::of(Pairing::UmlPair, &[2, 5]);
        assert_eq!((guests, rest), ([vec![2], vec![5]], vec![2, 5]));
        let Sides { guests, rest } = Sides::of(Pairing::UmlHost, &[3]);
        assert_eq!((guests, rest), ([vec![3], vec![3]], vec![3]));
    }
}
