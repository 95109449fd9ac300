//! The stations that routers know outlive data planes, and, by a file, this supervisor.
//!
//! The file is JSON, in the [state directory](state_file). Each ringway has its own, named after
//! where it takes orders.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use ringway_net::MacAddress;
use ringway_supervisor::wire::{KNOWN_STATIONS_MAX, KnownStation, List, ToData};
use ringway_switch::PortId;
use serde::{Deserialize, Serialize};

use super::Supervisor;
use super::plane::Plane;
use super::state_file;
use super::telling::NEWER;
use crate::config::PortKind;

/// Longest file that is read, in bytes.
const FILE_LEN_MAX: u64 = 4 << 20;

/// The stations that a router knows, and whether the file has them.
#[derive(Debug, Default)]
pub(super) struct Stations {
    pub(super) list: Vec<KnownStation>,
    is_new: bool,
}

impl Stations {
    /// Those that another supervisor has written down: port, MAC address, address, with a lease.
    pub(super) fn of_record(record: &[Recorded]) -> Self {
        let known = |&(port, address, ip, is_leased): &Recorded| KnownStation {
            port,
            address,
            ip,
            is_leased,
        };
        Self { list: record.iter().map(known).collect(), is_new: false }
    }

    pub(super) fn record(&self) -> Vec<Recorded> {
        self.list.iter().map(|it| (it.port, it.address, it.ip, it.is_leased)).collect()
    }
}

/// As it is in a record.
pub(super) type Recorded = (u16, [u8; 6], IpAddr, bool);

/// The file.
#[derive(Debug, Serialize, Deserialize)]
struct Known {
    version: u32,
    routers: Vec<Router>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Router {
    port: String,
    stations: Vec<Station>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Station {
    port: String,
    mac: String,
    address: IpAddr,
    leased: bool,
}

const VERSION: u32 = 1;

impl Supervisor {
    /// A router knows something else of its stations.
    pub(super) fn know(&mut self, router: u16, stations: List<KnownStation, KNOWN_STATIONS_MAX>) {
        if let Some(port) = self.ports.get_mut(&PortId(router)) {
            port.stations = Stations { list: stations.into_inner(), is_new: true };
        }
    }

    /// That port is gone, with what routers know of the stations behind it.
    pub(super) fn forget_stations(&mut self, gone: PortId) {
        for stations in self.ports.values_mut().map(|port| &mut port.stations) {
            let before = stations.list.len();
            stations.list.retain(|known| known.port != gone.0);
            stations.is_new |= stations.list.len() != before;
        }
    }

    /// A data plane goes on with what is known, unless it is too old to hear of that.
    pub(super) fn tell_of_stations(&self, plane: &mut Plane) {
        if plane.speaks < NEWER {
            return;
        }
        for (id, port) in self.ports.iter().filter(|(_, port)| !port.stations.list.is_empty()) {
            let stations = List::new(port.stations.list.clone()).unwrap_or_default();
            plane.tell(&ToData::Stations { port: id.0, stations }, vec![]);
        }
    }

    /// Reads what the ringway before has left.
    pub(super) fn recall_stations(&mut self) {
        let Some(text) = self.file_of_stations().and_then(|path| {
            let is_short = fs::metadata(&path).is_ok_and(|file| file.len() <= FILE_LEN_MAX);
            is_short.then(|| fs::read(path).ok()).flatten()
        }) else {
            return;
        };
        let known = serde_json::from_slice::<Known>(&text).ok();
        let Some(known) = known.filter(|known| known.version == VERSION) else {
            return tracing::warn!("what was known of routers' stations cannot be read");
        };
        for router in known.routers {
            let known = router.stations.iter().filter_map(|it| self.recalled(it));
            let list: Vec<KnownStation> = known.take(KNOWN_STATIONS_MAX).collect();
            if let Some(id) = self.id_of(&router.port)
                && let Some(port) = self.ports.get_mut(&id)
                && port.spec.kind == PortKind::Nat
                && port.stations.list.is_empty()
            {
                port.stations = Stations { list, is_new: false };
            }
        }
    }

    fn recalled(&self, station: &Station) -> Option<KnownStation> {
        let port = self.id_of(&station.port)?;
        let address: MacAddress = station.mac.parse().ok()?;
        let (ip, is_leased) = (station.address, station.leased);
        Some(KnownStation { port: port.0, address: address.0, ip, is_leased })
    }

    fn id_of(&self, name: &str) -> Option<PortId> {
        self.ports.iter().find(|(_, port)| port.spec.name == name).map(|(id, _)| *id)
    }

    /// Writes down what is new.
    pub(super) fn write_stations(&mut self) {
        if !self.ports.values().any(|port| port.stations.is_new) {
            return;
        }
        for port in self.ports.values_mut() {
            port.stations.is_new = false;
        }
        let Some(path) = self.file_of_stations() else { return };
        let named = |known: &KnownStation| {
            Some(Station {
                port: self.ports.get(&PortId(known.port))?.spec.name.clone(),
                mac: MacAddress(known.address).to_string(),
                address: known.ip,
                leased: known.is_leased,
            })
        };
        let routers = self.ports.values().filter(|port| port.spec.kind == PortKind::Nat);
        let routers = routers.map(|port| Router {
            port: port.spec.name.clone(),
            stations: port.stations.list.iter().filter_map(named).collect(),
        });
        let known = Known { version: VERSION, routers: routers.collect() };
        let written = serde_json::to_vec(&known).map_err(std::io::Error::from);
        if let Err(why) = written.and_then(|text| state_file::replace(&path, &text)) {
            let path = path.display();
            tracing::warn!("leases do not outlive this ringway: {path} cannot be written: {why}");
        }
    }

    fn file_of_stations(&self) -> Option<PathBuf> {
        let name = format!("routers-{:016x}.json", self.identity.number_of(""));
        Some(state_file::directory()?.join(name))
    }
}
