//! Bridges of this machine, as far as guests are behind them.

pub mod departed;
pub mod neighbours;

use departed::LeftStations;
use neighbours::Neighbours;

pub struct Bridges {
    pub departed: LeftStations,
    pub neighbours: Neighbours,
}
