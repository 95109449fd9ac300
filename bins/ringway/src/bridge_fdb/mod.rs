//! What bridges behind taps have learned: stations that have left ringway are taken out of it at
//! once. Otherwise a bridge, and a whole fabric behind it, would send to them for 300 s.
//!
//! Only what a bridge has learned itself at the port that the tap is; nothing that was configured,
//! or that another program has put there. Limits: bridges in this network namespace; the list of
//! all entries of all bridges is read, because older kernels know no shorter one.

pub mod messages;

use std::os::fd::OwnedFd;

use anyhow::{Context, bail};
use ringway_supervisor::wire::Station;
use ringway_switch::{Vlan, VlanId};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netdevice, recv, send,
    socket_with, sockopt,
};

use messages::{Entry, Link, Said};

/// Longest wait for an answer of the kernel, which gives it within the call that asks.
const ANSWER_MAX: std::time::Duration = std::time::Duration::from_secs(1);

/// The kernel fills at most 32 KiB.
const DATAGRAM_LEN_MAX: usize = 64 * 1024;

/// Most datagrams of a list: some 300 entries each.
const DATAGRAMS_MAX: usize = 4096;

/// How often a list is read again that has changed meanwhile.
const ATTEMPTS_MAX: usize = 3;

/// A tap that is a port of a bridge, perhaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TapPort {
    /// Its interface.
    pub interface: u32,
    pub vlan: Vlan,
}

/// The entries of these stations at these taps.
pub fn left(entries: &[Entry], taps: &[TapPort], stations: &[Station]) -> Vec<Entry> {
    let has_left = |entry: &Entry| {
        let mut at = taps.iter().filter(|tap| tap.interface == entry.interface);
        at.any(|tap| stations.iter().any(|station| is_it(entry, &tap.vlan, station)))
    };
    entries.iter().filter(|entry| entry.is_learned && has_left(entry)).copied().collect()
}

fn is_it(entry: &Entry, tap: &Vlan, station: &Station) -> bool {
    if entry.address != station.address {
        return false;
    }
    let is_tagged = |number| match (tap, VlanId::new(number)) {
        (Vlan::Trunk { tagged, .. }, Some(vlan)) => tagged.contains(vlan),
        _ => false,
    };
    if is_tagged(station.vlan) {
        // A bridge that does not tell VLANs apart has one entry for all.
        return [0, station.vlan].contains(&entry.vlan);
    }
    // What comes without a tag is in the bridge's own VLAN, whatever that is.
    let is_untagged = tap.of_untagged().is_some_and(|vlan| vlan.raw() == station.vlan);
    is_untagged && !is_tagged(entry.vlan)
}

/// The smallest MTU among these taps and what is in the same bridges.
pub fn smallest_mtu(links: &[Link], taps: &[u32]) -> Option<u32> {
    let own = links.iter().filter(|link| taps.contains(&link.interface));
    let bridges: Vec<u32> = own.clone().filter_map(|link| link.bridge).collect();
    let behind = links.iter().filter(|link| {
        bridges.contains(&link.interface) || link.bridge.is_some_and(|it| bridges.contains(&it))
    });
    own.chain(behind).map(|link| link.mtu).min()
}

/// The number of an interface.
///
/// # Errors
/// There is none of that name.
pub fn interface(name: &str) -> anyhow::Result<u32> {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::DGRAM, None)?;
    netdevice::name_to_index(socket, name).with_context(|| name.to_owned())
}

/// Asks the kernel.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    number: u32,
}

impl Netlink {
    /// Opens a socket.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn open() -> anyhow::Result<Self> {
        // Its first protocol, number 0: NETLINK_ROUTE.
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None);
        let socket = socket.context("netlink")?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER_MAX))?;
        Ok(Self { socket, number: 0 })
    }

    /// Takes all entries of stations out that have left; how many there were.
    ///
    /// # Errors
    /// The kernel refuses, or does not answer.
    pub fn remove(&mut self, taps: &[TapPort], stations: &[Station]) -> anyhow::Result<usize> {
        let left = left(&self.list()?, taps, stations);
        for entry in &left {
            self.remove_one(entry)?;
        }
        Ok(left.len())
    }

    /// All interfaces.
    ///
    /// # Errors
    /// The kernel refuses, or does not answer.
    pub fn links(&mut self) -> anyhow::Result<Vec<Link>> {
        let request = messages::links(self.next_number());
        let said = self.ask_for_all(&request)?;
        let link = |said| if let Said::Link(link) = said { Some(link) } else { None };
        Ok(said.0.into_iter().filter_map(link).collect())
    }

    fn list(&mut self) -> anyhow::Result<Vec<Entry>> {
        for attempt in 1..=ATTEMPTS_MAX {
            let (entries, is_torn) = self.list_once()?;
            if !is_torn || attempt == ATTEMPTS_MAX {
                return Ok(entries);
            }
        }
        bail!("no attempt")
    }

    fn list_once(&mut self) -> anyhow::Result<(Vec<Entry>, bool)> {
        let request = messages::list(self.next_number());
        let (said, is_torn) = self.ask_for_all(&request)?;
        let entry = |said| if let Said::Entry(entry) = said { Some(entry) } else { None };
        Ok((said.into_iter().filter_map(entry).collect(), is_torn))
    }

    /// Everything that is said about a request, and whether the tables have changed meanwhile.
    fn ask_for_all(&self, request: &[u8]) -> anyhow::Result<(Vec<Said>, bool)> {
        self.send(request)?;
        let mut all = Vec::new();
        for _ in 0..DATAGRAMS_MAX {
            for said in self.receive()? {
                match said {
                    Said::Done { is_torn } => return Ok((all, is_torn)),
                    Said::Refused(number) => return Err(refusal(number)),
                    said => all.push(said),
                }
            }
        }
        bail!("the kernel's list does not end")
    }

    /// One that is gone is no error: it was too old, or another host has the station now.
    fn remove_one(&mut self, entry: &Entry) -> anyhow::Result<()> {
        let request = messages::remove(entry, self.next_number());
        self.send(&request)?;
        for _ in 0..DATAGRAMS_MAX {
            for said in self.receive()? {
                match said {
                    Said::Acknowledged => return Ok(()),
                    Said::Refused(number) if number == Errno::NOENT.raw_os_error() => return Ok(()),
                    Said::Refused(number) => return Err(refusal(number)),
                    Said::Entry(_) | Said::Link(_) | Said::Done { .. } | Said::Other => {}
                }
            }
        }
        bail!("the kernel does not answer")
    }

    fn next_number(&mut self) -> u32 {
        self.number = self.number.wrapping_add(1);
        self.number
    }

    fn send(&self, request: &[u8]) -> anyhow::Result<()> {
        send(&self.socket, request, SendFlags::empty()).context("asking the kernel")?;
        Ok(())
    }

    fn receive(&self) -> anyhow::Result<Vec<Said>> {
        let mut datagram = vec![0; DATAGRAM_LEN_MAX];
        let (len, _) =
            recv(&self.socket, &mut datagram, RecvFlags::empty()).context("the kernel's answer")?;
        messages::read(&datagram[..len], self.number)
    }
}

fn refusal(number: i32) -> anyhow::Error {
    anyhow::Error::from(Errno::from_raw_os_error(number)).context("the kernel refuses")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn vlan(number: u16) -> VlanId {
        VlanId::new(number).expect("a VLAN")
    }

    #[test]
    fn what_a_bridge_has_learned_of_a_station_at_its_tap_goes() {
        let station = |vlan| Station { vlan, address: ADDRESS };
        let entry = |interface, vlan| Entry { interface, address: ADDRESS, vlan, is_learned: true };
        let plain = TapPort { interface: 1, vlan: Vlan::None };
        let ten = TapPort { interface: 2, vlan: Vlan::Access(vlan(10)) };
        let tagged = [vlan(10), vlan(20)].into_iter().collect();
        let trunk = TapPort { interface: 3, vlan: Vlan::Trunk { tagged, native: Some(vlan(7)) } };
        let taps = [plain, ten, trunk];
        let all = [entry(1, 0), entry(1, 1), entry(2, 0), entry(3, 0), entry(3, 10), entry(3, 20)];
        let left = |vlan| left(&all, &taps, &[station(vlan)]);
        assert_eq!(left(0), all[..2]);
        assert_eq!(left(10), all[2..5]);
        assert_eq!(left(20), [all[3], all[5]]);
        assert_eq!(left(7), all[3..4]);
        assert_eq!(left(8), []);
    }

    #[test]
    fn the_smallest_mtu_is_that_of_what_a_bridge_has() {
        let link = |interface, mtu, bridge| Link { interface, mtu, bridge };
        let links = [
            link(1, 1500, Some(9)),
            link(2, 1450, Some(9)),
            link(3, 1300, Some(8)),
            link(4, 1400, None),
            link(9, 1450, None),
        ];
        for (taps, mtu) in [(&[1][..], Some(1450)), (&[1, 4], Some(1400)), (&[7], None)] {
            assert_eq!(smallest_mtu(&links, taps), mtu, "{taps:?}");
        }
    }

    #[test]
    fn nothing_else_goes() {
        let taps = [TapPort { interface: 1, vlan: Vlan::None }];
        let stations = [Station { vlan: 0, address: ADDRESS }];
        let entry = Entry { interface: 1, address: ADDRESS, vlan: 0, is_learned: true };
        let other = [2, 0, 0, 0, 0, 2];
        let others = [
            Entry { interface: 2, ..entry },
            Entry { address: other, ..entry },
            Entry { is_learned: false, ..entry },
        ];
        assert_eq!(left(&others, &taps, &stations), []);
        assert_eq!(left(&[entry], &taps, &stations), [entry]);
    }
}
