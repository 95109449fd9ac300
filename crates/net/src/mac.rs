//! MAC addresses.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

/// Bytes of a MAC address.
pub const MAC_ADDRESS_LEN: usize = 6;

/// A MAC address, as it lies in a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct MacAddress(pub [u8; MAC_ADDRESS_LEN]);

impl MacAddress {
    /// ff:ff:ff:ff:ff:ff
    pub const BROADCAST: Self = Self([0xff; MAC_ADDRESS_LEN]);
    /// 00:00:00:00:00:00, which no station has.
    pub const ZERO: Self = Self([0; MAC_ADDRESS_LEN]);

    /// The `n`-th address of a fixed series of locally administered ones: 52:54 and `n`
    /// big-endian, so the first 16 million look like QEMU's 52:54:00:….
    pub const fn local(n: u32) -> Self {
        let [a, b, c, d] = n.to_be_bytes();
        Self([0x52, 0x54, a, b, c, d])
    }

    /// Whether it addresses a group of stations (broadcast included).
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether it addresses everybody.
    #[inline]
    pub const fn is_broadcast(self) -> bool {
        matches!(self.0, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff])
    }

    /// Whether it is one of those that a bridge does not pass on: `01:80:c2:00:00:00` to `:0f`
    /// (IEEE 802.1Q table 8-1).
    #[inline]
    pub const fn is_for_bridges(self) -> bool {
        matches!(self.0, [0x01, 0x80, 0xc2, 0, 0, 0..=0x0f])
    }

    /// Whether one station can have it: neither a group address nor all zero.
    #[inline]
    pub const fn is_station(self) -> bool {
        !self.is_multicast() && self.to_u64() != 0
    }

    /// From the lower 48 bits of a number, highest byte first.
    pub const fn from_u64(number: u64) -> Self {
        let [_, _, a, b, c, d, e, f] = number.to_be_bytes();
        Self([a, b, c, d, e, f])
    }

    /// The 48 bits as a number, first byte highest.
    #[inline]
    pub const fn to_u64(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for MacAddress {
    type Err = MacAddressError;

    /// Parses six two-digit hexadecimal numbers separated by colons.
    fn from_str(text: &str) -> Result<Self, MacAddressError> {
        parse(text).ok_or_else(|| MacAddressError { text: text.into() })
    }
}

fn parse(text: &str) -> Option<MacAddress> {
    let mut address = MacAddress::ZERO;
    let mut parts = text.split(':');
    for byte in &mut address.0 {
        let part = parts.next()?;
        // `from_str_radix` alone would take "+5".
        if part.len() != 2 || !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(address)
}

/// A text that is no MAC address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MacAddressError {
    text: String,
}

impl fmt::Display for MacAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.text;
        write!(
            f,
            "{text:?} is not a MAC address: write six two-digit hexadecimal numbers separated by \
             colons, such as 52:54:00:12:34:56"
        )
    }
}

impl core::error::Error for MacAddressError {}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn text_survives_the_round_trip() {
        let text = "52:54:00:ab:0c:f1";
        let address: MacAddress = text.parse().unwrap();
        assert_eq!(address, MacAddress([0x52, 0x54, 0, 0xab, 0x0c, 0xf1]));
        assert_eq!(address.to_string(), text);
        assert_eq!("52:54:00:AB:0C:F1".parse(), Ok(address));
    }

    #[test]
    fn anything_else_is_refused_with_the_text_and_an_example() {
        let texts = [
            "",
            "52:54:00:12:34",
            "52:54:00:12:34:56:78",
            "52:54:00:12:34:5",
            "52:54:00:12:34:567",
            "52:54:00:12:34:5g",
            "52:54:00:12:34:+5",
            "52-54-00-12-34-56",
            " 52:54:00:12:34:56",
            "52:54:00:12:34:é",
        ];
        for text in texts {
            let error = text.parse::<MacAddress>().unwrap_err().to_string();
            assert!(error.starts_with(&std::format!("{text:?} is not a MAC address")), "{error}");
            assert!(error.ends_with("52:54:00:12:34:56"), "{error}");
        }
    }

    #[test]
    fn kinds() {
        let multicast = MacAddress([0x33, 0x33, 0, 0, 0, 1]);
        assert!(multicast.is_multicast() && !multicast.is_broadcast() && !multicast.is_station());
        assert!(MacAddress::BROADCAST.is_multicast() && MacAddress::BROADCAST.is_broadcast());
        assert!(!MacAddress::ZERO.is_multicast() && !MacAddress::ZERO.is_station());
        let bridges = |last| MacAddress([1, 0x80, 0xc2, 0, 0, last]).is_for_bridges();
        assert!(bridges(0) && bridges(0x0f) && !bridges(0x10) && !multicast.is_for_bridges());
        let address = MacAddress([1, 2, 3, 4, 5, 6]);
        assert_eq!(address.to_u64(), 0x0102_0304_0506);
        assert_eq!(MacAddress::from_u64(0xffff_0102_0304_0506), address);
    }

    #[test]
    fn local_addresses_are_different_stations() {
        assert_eq!(MacAddress::local(0x12_3456).to_string(), "52:54:00:12:34:56");
        assert_eq!(MacAddress::local(u32::MAX).to_string(), "52:54:ff:ff:ff:ff");
        let first = MacAddress::local(0);
        assert!(first.is_station() && first != MacAddress::local(1));
        assert_eq!(first.0[0] & 2, 2, "locally administered");
    }
}
