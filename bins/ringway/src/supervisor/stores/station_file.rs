//! The stations that routers know outlive this supervisor by a file.
//!
//! The file is JSON, in the [state directory](state_file). Each ringway has its own, named after
//! where it takes orders.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringway_net::MacAddress;
use ringway_supervisor::wire::{KNOWN_STATIONS_MAX, KnownStation};
use ringway_switch::PortId;
use serde::{Deserialize, Serialize};

use super::state_file;
use super::stations::{News, Stations};
use crate::config::PortKind;
use crate::identity::Identity;
use crate::supervisor::ports::Ports;

/// Longest file that is read, in bytes.
const FILE_LEN_MAX: u64 = 4 << 20;

/// How often it is written for addresses that are only used: guests use another one as often as
/// they like.
const WRITE_EVERY: Duration = Duration::from_secs(60);

/// When the file was written last, and whether it was said that it cannot be.
#[derive(Debug, Default)]
pub struct StationFile {
    written: Option<Instant>,
    is_told: bool,
}

impl StationFile {
    fn is_due(&self, news: News, now: Instant) -> bool {
        let rests = self.written.is_some_and(|at| now < at + WRITE_EVERY);
        news == News::Leases || news == News::Used && !rests
    }

    /// Reads what the ringway before has left.
    pub fn recall(ports: &mut Ports, identity: &Identity) {
        let Some(path) = file(identity) else { return };
        let content = match read(&path) {
            Ok(content) => content,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return,
            Err(why) => {
                let path = path.display();
                return tracing::warn!(
                    "leases of the ringway before cannot be read: {path}: {why}"
                );
            }
        };
        for router in content.routers {
            let known = router.stations.iter().filter_map(|it| recalled(it, ports));
            let list: Vec<KnownStation> = known.take(KNOWN_STATIONS_MAX).collect();
            if let Some(id) = ports.named(&router.port)
                && let Some(port) = ports.get_mut(&id)
                && port.spec.kind == PortKind::Nat
                && port.stations.list.is_empty()
            {
                port.stations = Stations { list, news: News::None };
            }
        }
    }

    /// Writes down what is new, if it is time; at the end it is.
    pub fn write(&mut self, ports: &mut Ports, identity: &Identity, is_last: bool) {
        let now = Instant::now();
        let news = ports.values().map(|port| port.stations.news).max().unwrap_or_default();
        if !self.is_due(news, now) && (news == News::None || !is_last) {
            return;
        }
        let Some(path) = file(identity) else { return };
        let written = serde_json::to_vec(&content(ports)).map_err(io::Error::from);
        match written.and_then(|text| state_file::replace(&path, &text)) {
            Ok(()) => {
                let all = ports.values_mut();
                all.for_each(|port| port.stations.news = News::None);
                *self = StationFile { written: Some(now), is_told: false };
            }
            // It is tried again.
            Err(why) if !std::mem::replace(&mut self.is_told, true) => {
                let path = path.display();
                tracing::warn!(
                    "leases do not outlive this ringway: {path} cannot be written: {why}"
                );
            }
            Err(_) => {}
        }
    }
}

/// The file.
#[derive(Debug, Serialize, Deserialize)]
struct FileContent {
    version: u32,
    routers: Vec<Router>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Router {
    port: String,
    stations: Vec<StationRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StationRecord {
    port: String,
    mac: String,
    address: IpAddr,
    leased: bool,
}

const VERSION: u32 = 1;

/// A station of the file, as far as its port is there.
fn recalled(station: &StationRecord, ports: &Ports) -> Option<KnownStation> {
    let port = ports.named(&station.port)?;
    let address: MacAddress = station.mac.parse().ok()?;
    let (ip, is_leased) = (station.address, station.leased);
    Some(KnownStation { port: port.0, address: address.0, ip, is_leased })
}

fn content(ports: &Ports) -> FileContent {
    let named = |known: &KnownStation| {
        Some(StationRecord {
            port: ports.get(&PortId(known.port))?.spec.name.clone(),
            mac: MacAddress(known.address).to_string(),
            address: known.ip,
            leased: known.is_leased,
        })
    };
    let routers = ports.values().filter(|port| port.spec.kind == PortKind::Nat);
    let routers = routers.map(|port| Router {
        port: port.spec.name.clone(),
        stations: port.stations.list.iter().filter_map(named).collect(),
    });
    FileContent { version: VERSION, routers: routers.collect() }
}

fn file(identity: &Identity) -> Option<PathBuf> {
    let name = format!("routers-{:016x}.json", identity.number_of(""));
    Some(state_file::directory()?.join(name))
}

/// # Errors
/// There is no such file, or another one than this program writes.
fn read(path: &Path) -> io::Result<FileContent> {
    let mut options = OpenOptions::new();
    // Whatever is there, to open it keeps nothing waiting.
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = options.read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut text = Vec::new();
    file.take(FILE_LEN_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > FILE_LEN_MAX {
        return Err(io::Error::other(format!("it has more than {FILE_LEN_MAX} bytes")));
    }
    let content: FileContent = serde_json::from_slice(&text)?;
    if content.version != VERSION {
        return Err(io::Error::other(format!("version {} is not known here", content.version)));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn station(last: u8, is_leased: bool) -> KnownStation {
        KnownStation { port: 1, address: [2; 6], ip: [10, 0, 2, last].into(), is_leased }
    }

    #[test]
    fn leases_are_written_at_once_and_what_is_used_once_a_minute() {
        let (mut stations, mut file) = (Stations::default(), StationFile::default());
        let begin = Instant::now();
        assert!(!file.is_due(stations.news, begin));
        stations.follow(vec![station(15, true)]);
        assert!(file.is_due(stations.news, begin));
        (stations.news, file.written) = (News::None, Some(begin));
        stations.follow(vec![station(15, true), station(40, false)]);
        assert!(!file.is_due(stations.news, begin + WRITE_EVERY / 2));
        assert!(file.is_due(stations.news, begin + WRITE_EVERY));
        stations.follow(vec![station(40, false)]);
        assert!(file.is_due(stations.news, begin), "a lease is over");
        stations.follow(vec![station(41, false)]);
        assert!(file.is_due(stations.news, begin), "that is not written yet");
    }

    #[test]
    fn what_another_supervisor_had_is_written_also_if_it_had_not() {
        let (file, now) = (StationFile::default(), Instant::now());
        let record = Stations { list: vec![station(15, true)], news: News::None }.record();
        assert!(file.is_due(Stations::of_record(&record).news, now));
        assert!(!file.is_due(Stations::of_record(&[]).news, now));
    }

    #[test]
    fn only_a_short_regular_file_is_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        let refused = |name: &str| read(&at(name)).expect_err("not for us").to_string();
        let good =
            serde_json::to_vec(&FileContent { version: VERSION, routers: vec![] }).expect("JSON");
        std::fs::write(at("good"), &good).expect("room");
        assert!(read(&at("good")).is_ok());
        std::os::unix::fs::symlink(at("good"), at("link")).expect("a link");
        assert!(read(&at("link")).is_err(), "another program may have made it");
        let long = std::fs::File::create(at("long")).expect("room");
        long.set_len(FILE_LEN_MAX + 1).expect("room");
        assert_eq!(refused("long"), "it has more than 4194304 bytes");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, mode, 0)
            .expect("a pipe");
        assert_eq!(refused("pipe"), "it is no regular file");
        std::fs::write(at("newer"), br#"{"version":9,"routers":[]}"#).expect("room");
        assert_eq!(refused("newer"), "version 9 is not known here");
    }
}
