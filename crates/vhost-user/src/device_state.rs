//! The state of a device that goes along where its guest goes, as bytes that a front-end carries.
//!
//! Eight bytes that say what it is and a version (u16), then items: kind (u16), version (u16), how
//! many bytes follow (u32), and these; little endian. Items of a kind that is not known are passed
//! over, so that a newer program may add some; a known kind in a version that is not known is
//! refused, because its guest would miss what it says. The bytes may come from anyone: everything
//! has a limit.
//!
//! Limits: counters, flows and learned addresses do not travel; nor does how long calls were held
//! back lately, which is learned anew within tens of milliseconds.

use std::net::{IpAddr, Ipv4Addr};

use ringway_net::control_record::COMMANDS_LEN_MAX;
use thiserror::Error;

/// Most bytes of a state.
pub const STATE_LEN_MAX: usize = 1 << 20;
/// Most leases in one.
pub const LEASES_MAX: usize = 256;
/// Most bytes of a name.
pub const NAME_LEN_MAX: usize = 255;
/// Most further addresses of a lease.
pub const ADDRESSES_MAX: usize = 64;

const MAGIC: [u8; 8] = *b"ringwayS";
const VERSION: u16 = 1;

const LEASE: ItemKind = ItemKind { number: 1, name: "lease", version: 1 };
const CONTROL: ItemKind = ItemKind { number: 2, name: "control", version: 1 };

/// A kind of item, and the version of it that is written and the newest that is read.
#[derive(Debug, Clone, Copy)]
struct ItemKind {
    number: u16,
    name: &'static str,
    version: u16,
}

/// All that travels with a guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceState {
    /// The addresses that routers have given the port's stations, or have seen them use.
    pub leases: Vec<Lease>,
    /// The commands that lead to what the guest has set through its controlq, as the journal notes
    /// them; none where it has no controlq.
    pub control: Vec<u8>,
}

/// The addresses of one station behind a router.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lease {
    /// The station's MAC address.
    pub mac: [u8; 6],
    /// The address that it was given by DHCP.
    pub ip: Option<Ipv4Addr>,
    /// Seconds for which it still has that.
    pub left_s: u32,
    /// The name by which other guests know it; empty: none of its own.
    pub name: String,
    /// Further addresses that it uses.
    pub others: Vec<IpAddr>,
}

/// Why bytes are no state.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadState {
    /// Of another program, or none at all.
    #[error("it does not begin as a state of ringway does")]
    NotOurs,
    /// Of another version as a whole.
    #[error("version {version}: this program knows up to {VERSION}")]
    Version {
        /// As written.
        version: u16,
    },
    /// An item of another version.
    #[error("item `{item}`, version {version}: this program knows up to {known}")]
    ItemVersion {
        /// Its name.
        item: &'static str,
        /// As written.
        version: u16,
        /// The newest that is known.
        known: u16,
    },
    /// It ends within an item.
    #[error("it ends within an item")]
    Short,
    /// Longer than any.
    #[error("it has more than {STATE_LEN_MAX} bytes")]
    TooLong,
    /// An item that is none, or one too many.
    #[error("item `{item}` says what it cannot say")]
    BadItem {
        /// Its name.
        item: &'static str,
    },
}

impl BadState {
    /// Written by another version of ringway.
    #[must_use]
    pub fn is_of_another_version(&self) -> bool {
        matches!(self, Self::Version { .. } | Self::ItemVersion { .. })
    }
}

impl DeviceState {
    /// The bytes. Leases, names and addresses beyond the limits are left out.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
        for lease in self.leases.iter().take(LEASES_MAX) {
            put_item(&mut out, LEASE, &lease.encode());
        }
        if !self.control.is_empty() && self.control.len() <= COMMANDS_LEN_MAX {
            put_item(&mut out, CONTROL, &self.control);
        }
        out
    }

    /// The state of these bytes.
    ///
    /// # Errors
    /// They are none, and what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadState> {
        if bytes.len() > STATE_LEN_MAX {
            return Err(BadState::TooLong);
        }
        let rest = bytes.strip_prefix(&MAGIC).ok_or(BadState::NotOurs)?;
        let mut reader = Reader(rest);
        let version = reader.u16().ok_or(BadState::Short)?;
        if version != VERSION {
            return Err(BadState::Version { version });
        }
        let mut state = Self::default();
        while !reader.0.is_empty() {
            let (kind, version, content) = reader.item().ok_or(BadState::Short)?;
            state.take(kind, version, content)?;
        }
        Ok(state)
    }

    fn take(&mut self, kind: u16, version: u16, content: &[u8]) -> Result<(), BadState> {
        let Some(kind) = [LEASE, CONTROL].into_iter().find(|it| it.number == kind) else {
            return Ok(());
        };
        let ItemKind { name: item, version: known, .. } = kind;
        if version != known {
            return Err(BadState::ItemVersion { item, version, known });
        }
        let bad = BadState::BadItem { item };
        if kind.number == CONTROL.number {
            let is_good = self.control.is_empty() && content.len() <= COMMANDS_LEN_MAX;
            self.control = content.to_vec();
            return is_good.then_some(()).ok_or(bad);
        }
        let lease = Lease::decode(content).filter(|_| self.leases.len() < LEASES_MAX);
        self.leases.push(lease.ok_or(bad)?);
        Ok(())
    }
}

impl Lease {
    fn encode(&self) -> Vec<u8> {
        let mut out = self.mac.to_vec();
        put_addresses(&mut out, self.ip.map(IpAddr::V4).as_slice());
        out.extend(self.left_s.to_le_bytes());
        let len = u8::try_from(self.name.len()).unwrap_or(0);
        out.push(len);
        out.extend(&self.name.as_bytes()[..len.into()]);
        put_addresses(&mut out, &self.others[..self.others.len().min(ADDRESSES_MAX)]);
        out
    }

    fn decode(content: &[u8]) -> Option<Self> {
        let mut reader = Reader(content);
        let mac = reader.array()?;
        let ip = match reader.addresses(1)?[..] {
            [] => None,
            [IpAddr::V4(ip)] => Some(ip),
            _ => return None,
        };
        let left_s = u32::from_le_bytes(reader.array()?);
        let [len] = reader.array()?;
        let name = std::str::from_utf8(reader.bytes(len.into())?).ok()?.to_owned();
        let others = reader.addresses(ADDRESSES_MAX)?;
        reader.0.is_empty().then_some(Self { mac, ip, left_s, name, others })
    }
}

fn put_item(out: &mut Vec<u8>, kind: ItemKind, content: &[u8]) {
    let len = u32::try_from(content.len()).unwrap_or(u32::MAX);
    out.extend(kind.number.to_le_bytes());
    out.extend(kind.version.to_le_bytes());
    out.extend(len.to_le_bytes());
    out.extend(content);
}

/// How many, and each with its bytes in front: 4 or 16.
fn put_addresses(out: &mut Vec<u8>, addresses: &[IpAddr]) {
    out.push(u8::try_from(addresses.len()).unwrap_or(u8::MAX));
    for address in addresses {
        match address {
            IpAddr::V4(ip) => out.extend([&[4], &ip.octets()[..]].concat()),
            IpAddr::V6(ip) => out.extend([&[16], &ip.octets()[..]].concat()),
        }
    }
}

/// The rest of some bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// ItemKind, version, content.
    fn item(&mut self) -> Option<(u16, u16, &'a [u8])> {
        let (kind, version) = (self.u16()?, self.u16()?);
        let len = u32::from_le_bytes(self.array()?);
        Some((kind, version, self.bytes(usize::try_from(len).ok()?)?))
    }

    fn addresses(&mut self, most: usize) -> Option<Vec<IpAddr>> {
        let [count] = self.array()?;
        let count = usize::from(count);
        let address = |_| match self.array()? {
            [4_u8] => self.array::<4>().map(IpAddr::from),
            [16] => self.array::<16>().map(IpAddr::from),
            _ => None,
        };
        (count <= most).then(|| (0..count).map(address).collect())?
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn lease()(
            mac in any::<[u8; 6]>(),
            ip in proptest::option::of(any::<Ipv4Addr>()),
            left_s in any::<u32>(),
            name in "[-a-z0-9.ä]{0,40}",
            others in proptest::collection::vec(any::<IpAddr>(), 0..=ADDRESSES_MAX),
        ) -> Lease {
            Lease { mac, ip, left_s, name, others }
        }
    }

    prop_compose! {
        fn state()(
            leases in proptest::collection::vec(lease(), 0..4),
            control in proptest::collection::vec(any::<u8>(), 0..200),
        ) -> DeviceState {
            DeviceState { leases, control }
        }
    }

    fn head() -> Vec<u8> {
        DeviceState::default().encode()
    }

    fn with_item(number: u16, version: u16, content: &[u8]) -> Vec<u8> {
        let mut bytes = head();
        put_item(&mut bytes, ItemKind { number, name: "", version }, content);
        bytes
    }

    proptest! {
        #[test]
        fn a_state_is_read_as_it_was_written_and_no_shorter(state in state()) {
            let bytes = state.encode();
            prop_assert_eq!(DeviceState::decode(&bytes), Ok(state.clone()));
            for len in 0..bytes.len() {
                // At the end of an item, it is a state with less in it.
                match DeviceState::decode(&bytes[..len]) {
                    Ok(less) => {
                        prop_assert!(less != state && bytes.starts_with(&less.encode()));
                    }
                    Err(why) => prop_assert!(matches!(why, BadState::NotOurs | BadState::Short)),
                }
            }
            prop_assert_eq!(
                DeviceState::decode(&[&bytes[..], &with_item(9, 7, &bytes)[10..]].concat()),
                Ok(state)
            );
        }

        #[test]
        fn any_bytes_are_a_state_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(DeviceState::decode(&bytes).is_err());
            for kind in [LEASE, CONTROL] {
                let _ = DeviceState::decode(&with_item(kind.number, kind.version, &bytes));
            }
            if let Ok(state) = DeviceState::decode(&[head(), bytes].concat()) {
                prop_assert_eq!(DeviceState::decode(&state.encode()), Ok(state));
            }
        }
    }

    #[test]
    fn another_version_is_named() {
        let why = DeviceState::decode(&with_item(1, 3, &[])).unwrap_err();
        assert_eq!(why.to_string(), "item `lease`, version 3: this program knows up to 1");
        assert!(why.is_of_another_version());
        let newer = [&MAGIC[..], &[2, 0]].concat();
        let why = DeviceState::decode(&newer).unwrap_err();
        assert_eq!(why.to_string(), "version 2: this program knows up to 1");
        assert!(why.is_of_another_version() && !BadState::Short.is_of_another_version());
    }

    #[test]
    fn everything_has_a_limit() {
        let mut longest = with_item(9, 1, &vec![0; STATE_LEN_MAX - 18]);
        assert_eq!((longest.len(), DeviceState::decode(&longest).is_ok()), (STATE_LEN_MAX, true));
        longest.push(0);
        assert_eq!(DeviceState::decode(&longest), Err(BadState::TooLong));
        let leases = vec![Lease::default(); LEASES_MAX + 1];
        let many = DeviceState { leases, ..DeviceState::default() };
        let read = DeviceState::decode(&many.encode()).expect("a state");
        assert_eq!(read.leases.len(), LEASES_MAX);
        let again = &read.encode()[10..][..8 + 13];
        let one_more = [&read.encode()[..], again].concat();
        assert_eq!(DeviceState::decode(&one_more), Err(BadState::BadItem { item: "lease" }));
        let control = DeviceState { control: vec![0; 9], ..DeviceState::default() }.encode();
        let twice = [&control[..], &control[10..]].concat();
        assert_eq!(DeviceState::decode(&twice), Err(BadState::BadItem { item: "control" }));
        let long = with_item(2, 1, &vec![0; COMMANDS_LEN_MAX + 1]);
        assert_eq!(DeviceState::decode(&long), Err(BadState::BadItem { item: "control" }));
    }
}
