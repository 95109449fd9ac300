//! How much work one visit of a queue pair may be.

use ringway_net::Packet;

/// Work per visit: a unit for each copy of a packet, for each [`UNIT_LEN`] bytes of it, and for
/// each [`UNIT_ELEMENTS`] elements of a buffer that it is in or goes to. Counting packets alone
/// would give a port that sends to all others, or long packets, many times the share of one that
/// does not. What the last packet of a visit takes beyond it is taken off the next one.
pub(crate) const BUDGET_UNITS: u32 = 64;
/// In bytes.
pub(crate) const UNIT_LEN: u32 = 8192;
/// Elements of a packet that cost a unit: as many as take about the time of so many bytes.
const UNIT_ELEMENTS: usize = 64;

/// The units that one packet takes of the budget.
#[inline]
pub(crate) fn units(packet: &Packet<'_>) -> u32 {
    1 + packet.len / UNIT_LEN + units_of_pieces(packet)
}

#[inline]
pub(crate) fn units_of_pieces(packet: &Packet<'_>) -> u32 {
    u32::try_from(packet.payload.len() / UNIT_ELEMENTS).unwrap_or(BUDGET_UNITS)
}
