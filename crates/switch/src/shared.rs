//! What the switches of all workers have in common.

use alloc::boxed::Box;
use alloc::sync::Arc;

use crate::PORTS_MAX;
use crate::groups::GroupTable;
use crate::mac_table::MacTable;
use crate::meter::PortMeters;

/// Learned addresses, multicast memberships and the state of rate limits, for as many
/// [`Switch`](crate::Switch)es as there are workers.
pub struct Shared {
    pub(crate) macs: MacTable,
    pub(crate) groups: GroupTable,
    pub(crate) meters: Box<[PortMeters]>,
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
}
