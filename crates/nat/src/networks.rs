//! Networks of any length, as `allow` and `deny` name them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A network, or a single address, that guests may or may not reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    pub(crate) len: u8,
}

impl Network {
    pub(crate) const fn v4(a: u8, b: u8, c: u8, d: u8, len: u8) -> Self {
        Self { address: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), len }
    }

    pub(crate) const fn v6([a, b, c, d, e, f, g, h]: [u16; 8], len: u8) -> Self {
        Self { address: IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h)), len }
    }

    /// Its first address.
    pub(crate) fn first(self) -> IpAddr {
        self.address
    }

    /// The network of that length in which an address is; `None`: it has not so many bits.
    pub(crate) fn around(address: IpAddr, len: u8) -> Option<Self> {
        let bits = u32::from(len);
        let address = match address {
            IpAddr::V4(it) => {
                let mask = u32::MAX.checked_shl(32u32.checked_sub(bits)?).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(it.to_bits() & mask))
            }
            IpAddr::V6(it) => {
                let mask = u128::MAX.checked_shl(128u32.checked_sub(bits)?).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(it.to_bits() & mask))
            }
        };
        Some(Self { address, len })
    }

    pub(crate) fn contains(self, address: IpAddr) -> bool {
        let (differ, width) = match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (u128::from(own.to_bits() ^ other.to_bits()), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => (own.to_bits() ^ other.to_bits(), 128),
            _ => return false,
        };
        differ.checked_shr(width - u32::from(self.len)).unwrap_or(0) == 0
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, len) = text.split_once('/').map_or((text, None), |it| (it.0, Some(it.1)));
        let address: IpAddr = address.parse().map_err(|_| NetworkError)?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let len = len.map_or(Ok(width), str::parse).map_err(|_| NetworkError)?;
        // Packets to addresses of IPv4 that are written as IPv6 are looked at as IPv4.
        if address != address.to_canonical() {
            return Err(NetworkError);
        }
        // Its own address is the first one in it.
        let first = match address {
            IpAddr::V4(it) => u128::from(it.to_bits()) << 96,
            IpAddr::V6(it) => it.to_bits(),
        };
        let is_first = first.checked_shl(len.into()).unwrap_or(0) == 0;
        if len <= width && is_first { Ok(Self { address, len }) } else { Err(NetworkError) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

/// The text is not a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkError;

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a network of IPv4 or IPv6 without bits behind its prefix")
    }
}

impl std::error::Error for NetworkError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_as_they_are_written() {
        for text in ["0.0.0.0/0", "10.0.0.0/8", "10.1.2.3/32", "::/0", "fd00::/8", "fd00::1/128"] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), text);
        }
        assert_eq!("10.1.2.3".parse::<Network>().unwrap().to_string(), "10.1.2.3/32");
        let mapped = ["::ffff:0:0/96", "::ffff:10.0.0.0/104", "::ffff:10.0.0.1"];
        let wrong = ["", "10.0.0.1/8", "10.0.0.0/33", "::1/64", "fd00::/129", "10.0.0.0/", "a/8"];
        for text in wrong.into_iter().chain(mapped) {
            assert_eq!(text.parse::<Network>(), Err(NetworkError), "{text}");
        }
    }
}
