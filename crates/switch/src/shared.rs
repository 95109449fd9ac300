//! What the switches of all workers have in common.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::copy::Copied;
use crate::entry::Tick;
use crate::groups::GroupTable;
use crate::mac_table::MacTable;
use crate::meter::PortMeters;
use crate::{AddressPage, KnownAddress, PORTS_MAX, PortId};

/// Learned addresses, multicast memberships and the state of rate limits, for as many
/// [`Switch`](crate::Switch)es as there are workers.
pub struct Shared {
    pub(crate) macs: MacTable,
    pub(crate) groups: GroupTable,
    pub(crate) meters: Box<[PortMeters]>,
    /// Packets of each port for all others.
    pub(crate) heard: Box<[AtomicU64]>,
}

impl core::fmt::Debug for Shared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    /// Nothing learned yet. `seed` should be secret and different for each.
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            macs: MacTable::new(seed),
            groups: GroupTable::new(seed),
            meters: (0..PORTS_MAX).map(|_| PortMeters::default()).collect(),
            heard: (0..PORTS_MAX).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// The same as it is now, for a [`Switch::beside`]. Not for the data path.
    pub fn copy(&self) -> Arc<Self> {
        Arc::new(Self {
            macs: self.macs.copied(),
            groups: self.groups.copied(),
            meters: self.meters.copied(),
            heard: self.heard.copied(),
        })
    }

    /// How many packets of a port have gone to all others of its VLAN, those behind uplinks among
    /// them: broadcasts, multicasts, and packets to unknown stations. What goes through a cable is
    /// not counted.
    pub fn heard(&self, port: PortId) -> u64 {
        self.heard.get(port.index()).map_or(0, |count| count.load(Relaxed))
    }

    /// One of several workers may lose a count: it is asked only whether there are more.
    #[inline]
    pub(crate) fn hear(&self, port: PortId) {
        let count = &self.heard[port.index()];
        count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// At most `max` addresses that are `wanted`, from place `from` on, which is 0 or `next` of the
    /// page before. `now_ms`: the switches' clock. Not for the data path.
    pub fn addresses(
        &self,
        from: usize,
        max: usize,
        now_ms: u64,
        wanted: impl Fn(&KnownAddress) -> bool,
    ) -> AddressPage {
        self.macs.list(from, max, Tick::of_ms(now_ms), wanted)
    }
}
