//! The stations that a router knows, which outlive data planes.

use std::net::IpAddr;

use ringway_supervisor::wire::KnownStation;

/// The stations that a router knows.
#[derive(Debug, Default)]
pub struct Stations {
    pub list: Vec<KnownStation>,
    pub news: News,
}

/// Those of them that the file does not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum News {
    #[default]
    None,
    /// Some that have no lease.
    Used,
    Leases,
}

impl Stations {
    pub fn follow(&mut self, list: Vec<KnownStation>) {
        let leased = |list: &[KnownStation]| -> Vec<KnownStation> {
            list.iter().filter(|it| it.is_leased).cloned().collect()
        };
        let has_leased = leased(&list) != leased(&self.list);
        self.news = self.news.max(if has_leased { News::Leases } else { News::Used });
        self.list = list;
    }

    /// Those that another supervisor has written down: port, MAC address, address, with a lease.
    pub fn of_record(record: &[Recorded]) -> Self {
        let known = |&(port, address, ip, is_leased): &Recorded| KnownStation {
            port,
            address,
            ip,
            is_leased,
        };
        let list: Vec<KnownStation> = record.iter().map(known).collect();
        // Perhaps it had not written them into the file.
        let news = if list.is_empty() { News::None } else { News::Leases };
        Self { list, news }
    }

    pub fn record(&self) -> Vec<Recorded> {
        self.list.iter().map(|it| (it.port, it.address, it.ip, it.is_leased)).collect()
    }
}

/// As it is in a record.
pub type Recorded = (u16, [u8; 6], IpAddr, bool);
