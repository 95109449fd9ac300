//! Whether ringway may tell bridges of the guests that are here, where taps ask for that.

use crate::config::PortSpec;
use crate::places::how_to_tell_bridges;

/// Why no bridge hears of guests by this port; `is_allowed`: it may administer networks.
pub fn missing(spec: &PortSpec, is_allowed: bool) -> Option<String> {
    let keys = [(spec.syncs_fdb, "fdb=sync"), (spec.syncs_neighbours, "neighbours=sync")];
    let asked: Vec<&str> = keys.iter().filter(|(asks, _)| *asks).map(|(_, key)| *key).collect();
    (!asked.is_empty() && !is_allowed).then(|| {
        let mend = how_to_tell_bridges();
        format!("{}: ringway may not tell bridges (CAP_NET_ADMIN): {mend}", asked.join(","))
    })
}
