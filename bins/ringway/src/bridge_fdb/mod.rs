//! Entries that bridges behind taps have learned: stations that have left ringway are taken out at
//! once. Otherwise a bridge, and a whole fabric behind it, would send to them for 300 s. And what
//! they may answer for: IP addresses of guests, as neighbours of the bridge.
//!
//! Only what a bridge has learned itself at the port that the tap is; nothing that was configured,
//! or that another program has put there. Limits: bridges in this network namespace; the list of
//! all entries of all bridges is read, because older kernels know no shorter one.

mod decide;
pub mod messages;
pub mod neighbour;

use std::os::fd::OwnedFd;

use anyhow::{Context, bail};
use ringway_supervisor::wire::Station;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netdevice, recv, send,
    socket_with, sockopt,
};

pub use decide::{Objection, Resident, TapPort, bridge_of, neighbours, smallest_mtu};
use decide::{Wanted, differences, left};
use messages::{BridgeEntry, KernelLink, Said};
use neighbour::{Address, Neighbour, NeighbourEntry};

/// Longest wait for an answer of the kernel, which gives it within the call that asks.
const ANSWER_MAX: std::time::Duration = std::time::Duration::from_secs(1);

/// The kernel fills at most 32 KiB.
const DATAGRAM_LEN_MAX: usize = 64 * 1024;

/// Most datagrams of a list: some 300 entries each.
const DATAGRAMS_MAX: usize = 4096;

/// How often a list is read again that has changed meanwhile.
const ATTEMPTS_MAX: usize = 3;

/// The number of an interface.
///
/// # Errors
/// There is none of that name.
pub fn interface(name: &str) -> anyhow::Result<u32> {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::DGRAM, None)?;
    netdevice::name_to_index(socket, name).with_context(|| name.to_owned())
}

/// The outcome of changes to the neighbours of bridges.
#[derive(Debug)]
pub struct Synced {
    /// How many came and went.
    pub count: usize,
    /// There are some that may come later.
    pub is_waiting: bool,
    pub refused: Vec<(Neighbour, Objection)>,
    /// The kernel did not want one; all others are as wanted.
    pub failure: Option<anyhow::Error>,
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
            let request = messages::remove(entry, self.next_number());
            self.carry_out(&request)?;
        }
        Ok(left.len())
    }

    /// Makes the neighbours of these bridges those that are wanted, as far as nothing is there that
    /// is not a ringway's.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn sync(&mut self, bridges: &[u32], wanted: &[Wanted]) -> anyhow::Result<Synced> {
        // A list that is torn only leads to one change more, or later.
        let request = neighbour::list(self.next_number());
        let (said, _) = self.ask_for_all(&request)?;
        let neighbour =
            |said| if let Said::Neighbour(neighbour) = said { Some(neighbour) } else { None };
        let present: Vec<NeighbourEntry> = said.into_iter().filter_map(neighbour).collect();
        let request = neighbour::addresses(self.next_number());
        let (said, _) = self.ask_for_all(&request)?;
        let address = |said| if let Said::Address(address) = said { Some(address) } else { None };
        let addresses: Vec<Address> = said.into_iter().filter_map(address).collect();
        let differences = differences(bridges, &present, &addresses, wanted);
        // One that the kernel does not want keeps no other from its place.
        let mut failure = None;
        let changes = [
            (&differences.gone, neighbour::remove as fn(&Neighbour, u32) -> Vec<u8>),
            (&differences.new, neighbour::add),
            (&differences.other, neighbour::replace),
        ];
        let mut count = 0;
        for (neighbours, request) in changes {
            for neighbour in neighbours {
                let request = request(neighbour, self.next_number());
                failure = failure.or(self.carry_out(&request).err());
                count += 1;
            }
        }
        let is_waiting = differences.waiting > 0 || !differences.refused.is_empty();
        Ok(Synced { count, is_waiting, refused: differences.refused, failure })
    }

    /// All interfaces.
    ///
    /// # Errors
    /// The kernel refuses, or does not answer.
    pub fn links(&mut self) -> anyhow::Result<Vec<KernelLink>> {
        let request = messages::links(self.next_number());
        let said = self.ask_for_all(&request)?;
        let link = |said| if let Said::Link(link) = said { Some(link) } else { None };
        Ok(said.0.into_iter().filter_map(link).collect())
    }

    /// One interface, by its number, however many others there are.
    ///
    /// # Errors
    /// There is none, or the kernel does not answer.
    pub fn link(&mut self, interface: u32) -> anyhow::Result<KernelLink> {
        let request = messages::one_link(interface, self.next_number());
        self.send(&request)?;
        let mut found = None;
        for _ in 0..DATAGRAMS_MAX {
            for said in self.receive()? {
                match said {
                    Said::Link(link) => found = Some(link),
                    Said::Acknowledged => return found.context("no such interface"),
                    Said::Refused(number) => return Err(refusal(number)),
                    _ => {}
                }
            }
        }
        bail!("the kernel does not answer")
    }

    fn list(&mut self) -> anyhow::Result<Vec<BridgeEntry>> {
        let (mut entries, mut is_torn) = self.list_once()?;
        for _ in 1..ATTEMPTS_MAX {
            if !is_torn {
                break;
            }
            (entries, is_torn) = self.list_once()?;
        }
        Ok(entries)
    }

    fn list_once(&mut self) -> anyhow::Result<(Vec<BridgeEntry>, bool)> {
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

    /// An entry that is gone already is no error: it was too old, or another host has the station.
    /// Nor is one that has come meanwhile: the next look finds whose it is.
    fn carry_out(&self, request: &[u8]) -> anyhow::Result<()> {
        self.send(request)?;
        for _ in 0..DATAGRAMS_MAX {
            for said in self.receive()? {
                match said {
                    Said::Acknowledged => return Ok(()),
                    Said::Refused(number) if is_late(number) => return Ok(()),
                    Said::Refused(number) => return Err(refusal(number)),
                    Said::Entry(_) | Said::Link(_) | Said::Neighbour(_) | Said::Address(_) => {}
                    Said::Done { .. } | Said::Other => {}
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

fn is_late(number: i32) -> bool {
    [Errno::NOENT, Errno::EXIST].map(Errno::raw_os_error).contains(&number)
}

fn refusal(number: i32) -> anyhow::Error {
    anyhow::Error::from(Errno::from_raw_os_error(number)).context("the kernel refuses")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_interface_is_told_alone() {
        let Ok(number) = interface("lo") else { return println!("skipped: no interface lo here") };
        let mut netlink = match Netlink::open() {
            Ok(netlink) => netlink,
            Err(why) => return println!("skipped: {why:#}"),
        };
        let link = netlink.link(number).expect("it is there");
        assert_eq!((link.interface, link.name.as_str(), link.bridge), (number, "lo", None));
        assert!(netlink.link(i32::MAX.unsigned_abs()).is_err(), "there is none of that number");
        assert!(netlink.links().expect("a list").contains(&link), "the next answer is whole");
    }
}
