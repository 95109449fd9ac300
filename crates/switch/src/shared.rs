//! What the switches of all workers have in common.

use alloc::sync::Arc;

use crate::mac_table::MacTable;

/// The learned addresses, for as many [`Switch`](crate::Switch)es as there are workers.
pub struct Shared {
    pub(crate) macs: MacTable,
}

impl Shared {
    /// Nothing learned yet. `seed` should be secret and different for each.
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self { macs: MacTable::new(seed) })
    }
}
