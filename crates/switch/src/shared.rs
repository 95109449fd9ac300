//! What the switches of all workers have in common.

use alloc::boxed::Box;
use alloc::sync::Arc;

use crate::copy::Copied;
use crate::entry::Tick;
use crate::groups::GroupTable;
use crate::mac_table::MacTable;
use crate::meter::PortMeters;
use crate::{AddressPage, KnownAddress, PORTS_MAX};

/// Learned addresses, multicast memberships and the state of rate limits, for as many
/// [`Switch`](crate::Switch)es as there are workers.
pub struct Shared {
    pub(crate) macs: MacTable,
    pub(crate) groups: GroupTable,
    pub(crate) meters: Box<[PortMeters]>,
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
        })
    }

    /// The same as it is now, for a [`Switch::beside`]. Not for the data path.
    pub fn copy(&self) -> Arc<Self> {
        Arc::new(Self {
            macs: self.macs.copied(),
            groups: self.groups.copied(),
            meters: self.meters.copied(),
        })
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
