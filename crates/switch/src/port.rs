//! Ports by number, and the set of those that exist.

use core::fmt;

/// Most ports of one switch; their numbers are below this.
pub const PORTS_MAX: usize = 256;

/// The number of a port, below [`PORTS_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortId(pub u16);

impl PortId {
    /// The number, as an index of per-port tables.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a port cannot be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortError {
    /// The number is not below [`PORTS_MAX`].
    TooHigh(PortId),
    /// There is a port with that number.
    Exists(PortId),
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooHigh(port) => {
                write!(f, "port {port}: too many ports: a switch has at most {PORTS_MAX}")
            }
            Self::Exists(port) => write!(f, "port {port}: there is one with that number already"),
        }
    }
}

impl core::error::Error for PortError {}

const WORD_BITS: usize = u64::BITS as usize;
const WORDS: usize = PORTS_MAX / WORD_BITS;

/// A set of ports, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PortSet {
    words: [u64; WORDS],
}

impl PortSet {
    /// Whether `port` is in the set; a number that is too high never is.
    #[inline]
    pub fn contains(&self, port: PortId) -> bool {
        let word = self.words.get(port.index() / WORD_BITS);
        word.is_some_and(|word| word & bit(port) != 0)
    }

    /// Puts `port`, whose number must be below [`PORTS_MAX`], in.
    pub fn insert(&mut self, port: PortId) {
        self.words[port.index() / WORD_BITS] |= bit(port);
    }

    /// Takes `port`, whose number must be below [`PORTS_MAX`], out.
    pub fn remove(&mut self, port: PortId) {
        self.words[port.index() / WORD_BITS] &= !bit(port);
    }

    /// Puts `port` in or takes it out.
    pub fn set(&mut self, port: PortId, is_in: bool) {
        if is_in {
            self.insert(port);
        } else {
            self.remove(port);
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.words == [0; WORDS]
    }

    /// All of them, lowest number first.
    pub fn iter(&self) -> impl Iterator<Item = PortId> + use<> {
        let mut words = self.words;
        let mut at = 0;
        core::iter::from_fn(move || {
            while words.get(at)? == &0 {
                at += 1;
            }
            let word = &mut words[at];
            let lowest = word.trailing_zeros();
            *word &= *word - 1;
            u16::try_from(at * WORD_BITS + lowest as usize).ok().map(PortId)
        })
    }
}

const fn bit(port: PortId) -> u64 {
    1 << (port.index() % WORD_BITS)
}
