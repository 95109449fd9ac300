//! Stations that have left ringway are taken out of the bridges behind taps that ask for it.
//!
//! Limits: so many times a second; what does not fit, or cannot be done, is forgotten by the bridge
//! after 300 s.

use std::time::{Duration, Instant};

use ringway_supervisor::wire::Station;
use ringway_switch::VlanId;
use tracing::{debug, warn};

use crate::bridge_fdb::{self, Netlink, TapPort};
use crate::chatter::Chatter;
use crate::config::PortSpec;
use crate::supervisor::ports::Ports;
use crate::supervisor::ports::port::SupervisedPort;

/// Stations that wait.
const WAITING_MAX: usize = 4096;

/// Bridges are tidied this often in a row, and then once in this time: a guest cannot keep the
/// supervisor busy by coming and going.
const BURST: u32 = 10;
const EVERY: Duration = Duration::from_millis(100);

/// After a failure.
const RETRY_AFTER: Duration = Duration::from_secs(1);
const ATTEMPTS_MAX: u32 = 5;

/// Stations that are still to be taken out of bridges.
#[derive(Debug)]
pub struct LeftStations {
    stations: Vec<Station>,
    due: Option<Instant>,
    /// When the next one in a row may be, as if there had been no burst.
    rate: Instant,
    failures: u32,
    chatter: Chatter,
}

impl LeftStations {
    pub fn new() -> Self {
        let (stations, chatter) = (Vec::new(), Chatter::new());
        Self { stations, due: None, rate: Instant::now(), failures: 0, chatter }
    }

    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    pub fn add(&mut self, stations: Vec<Station>, now: Instant) {
        let room = WAITING_MAX - self.stations.len();
        self.stations.extend(stations.into_iter().take(room));
        let earliest = self.rate.checked_sub(EVERY * BURST).unwrap_or(now);
        self.due.get_or_insert(now.max(earliest));
    }

    /// All that are to go now.
    fn take(&mut self, now: Instant) -> Option<Vec<Station>> {
        self.due.filter(|due| *due <= now)?;
        (self.due, self.rate) = (None, self.rate.max(now) + EVERY);
        Some(std::mem::take(&mut self.stations))
    }

    fn has_failed(&mut self, stations: Vec<Station>, why: &anyhow::Error, now: Instant) {
        self.chatter.say_of(None, || warn!("what bridges have learned stays: {why:#}"));
        self.failures += 1;
        if self.failures < ATTEMPTS_MAX {
            self.add(stations, now);
            self.due = Some(now + RETRY_AFTER);
        } else {
            self.failures = 0;
        }
    }

    /// Asks the kernel, if the time has come.
    pub fn tidy(&mut self, ports: &Ports) {
        let now = Instant::now();
        let Some(mut stations) = self.take(now) else { return };
        let taps = taps(ports, |spec| spec.syncs_fdb);
        stations.retain(|station| !is_here(ports, station));
        if taps.is_empty() || stations.is_empty() {
            return;
        }
        match Netlink::open().and_then(|mut netlink| netlink.remove(&taps, &stations)) {
            Ok(count) => {
                self.failures = 0;
                debug!("{} stations have left, {count} entries of bridges", stations.len());
            }
            Err(why) => self.has_failed(stations, &why, now),
        }
    }
}

impl SupervisedPort {
    /// The address of a guest that is here, and its VLAN: what it was told, or has to use.
    pub fn station(&self) -> Option<(VlanId, [u8; 6])> {
        let vm = self.vm.as_ref().filter(|_| self.is_here())?;
        let policy = self.spec.rules.policy();
        let address = policy.locked_mac.unwrap_or(vm.mac).0;
        Some((policy.vlan.of_untagged()?, address))
    }
}

/// It has come back while it waited. Limits: the address that a guest was told, or has to use.
fn is_here(ports: &Ports, station: &Station) -> bool {
    let its = |(vlan, address): (VlanId, [u8; 6])| Station { vlan: vlan.raw(), address };
    ports.values().any(|port| port.station().map(its) == Some(*station))
}

/// Taps that ask for something and are there. One that is gone has taken its entries along.
pub fn taps(ports: &Ports, asks: impl Fn(&PortSpec) -> bool) -> Vec<TapPort> {
    let asking = ports.values().filter(|port| asks(&port.spec) && !port.is_leaving());
    let tap = |port: &SupervisedPort| {
        let interface = bridge_fdb::interface(port.tap.name()?).ok()?;
        Some(TapPort { interface, vlan: port.spec.rules.policy().vlan })
    };
    asking.filter_map(tap).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_go_at_once_and_then_so_many_a_second() {
        let start = Instant::now();
        let mut departed = LeftStations { rate: start, ..LeftStations::new() };
        let station = Station { vlan: 0, address: [2; 6] };
        let mut count = 0;
        for ms in 0..2000 {
            let now = start + Duration::from_millis(ms);
            departed.add(vec![station], now);
            count += u32::from(departed.take(now).is_some());
        }
        assert!((28..=32).contains(&count), "{count}");
        assert!(departed.stations.len() < 200);
        departed.add(vec![station; 2 * WAITING_MAX], start);
        assert_eq!(departed.stations.len(), WAITING_MAX);
    }

    #[test]
    fn what_fails_is_tried_again_for_a_while() {
        let (now, why) = (Instant::now(), anyhow::anyhow!("no"));
        let mut departed = LeftStations { rate: now, ..LeftStations::new() };
        let stations = vec![Station { vlan: 0, address: [2; 6] }];
        departed.add(stations.clone(), now);
        let mut attempts = 0;
        while let Some(due) = departed.due() {
            attempts += 1;
            let taken = departed.take(due).expect("it is due");
            assert_eq!(taken, stations);
            departed.has_failed(taken, &why, due);
        }
        assert_eq!(attempts, ATTEMPTS_MAX);
    }
}
