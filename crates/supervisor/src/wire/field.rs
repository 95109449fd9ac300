//! The fields that messages are made of, each with its limit.

use std::net::{IpAddr, Ipv6Addr};

use super::{BadMessage, Flaw, KnownStation, Offence, SeenIp, Station, Versions};
use crate::frame::FDS_MAX;
use crate::slots::{Keep, SLOTS_MAX, SlotRange};

/// At most `MAX` bytes of UTF-8.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text<const MAX: usize>(String);

/// At most `MAX` entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List<T, const MAX: usize>(Vec<T>);

impl<T, const MAX: usize> Default for List<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// At most `MAX` bytes that are not understood here.
pub type Bytes<const MAX: usize> = List<u8, MAX>;

impl<const MAX: usize> Text<MAX> {
    /// The text, or as much of its beginning as fits.
    pub fn cut(text: &str) -> Self {
        Self(text[..text.floor_char_boundary(MAX)].to_owned())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T, const MAX: usize> List<T, MAX> {
    /// All of them. `None`: too many.
    pub fn new(entries: Vec<T>) -> Option<Self> {
        (entries.len() <= MAX).then_some(Self(entries))
    }

    /// The entries, which stay.
    pub fn as_slice(&self) -> &[T] {
        &self.0
    }

    /// The entries.
    pub fn into_inner(self) -> Vec<T> {
        self.0
    }
}

/// Bytes in as many pieces as they need, at least one; `true` with the last one.
pub fn pieces<const MAX: usize>(bytes: &[u8]) -> impl Iterator<Item = (bool, Bytes<MAX>)> {
    let count = bytes.len().div_ceil(MAX).max(1);
    (0..count).map(move |at| {
        let piece = &bytes[at * MAX..bytes.len().min((at + 1) * MAX)];
        (at + 1 == count, List(piece.to_vec()))
    })
}

/// The rest of a message that is still to be read.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], BadMessage> {
        let (array, rest) = self.0.split_first_chunk().ok_or(BadMessage::Short)?;
        self.0 = rest;
        Ok(*array)
    }
}

/// One field: how it is written, how it is read.
pub(super) trait Field: Sized {
    /// Most bytes that it is written in.
    const LEN_MAX: usize;
    fn put(&self, out: &mut Vec<u8>);
    fn take(reader: &mut Reader<'_>) -> Result<Self, BadMessage>;
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Field for $number {
            const LEN_MAX: usize = size_of::<Self>();
            fn put(&self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }
            fn take(reader: &mut Reader<'_>) -> Result<Self, BadMessage> {
                reader.array().map(Self::from_le_bytes)
            }
        }
    )*};
}
numbers!(u8 u16 u32 u64);

impl Field for [u8; 6] {
    const LEN_MAX: usize = 6;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self);
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, BadMessage> {
        reader.array()
    }
}

/// IPv4 addresses as IPv6 writes them (RFC 4291 §2.5.5.2).
impl Field for IpAddr {
    const LEN_MAX: usize = 16;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend(match self {
            Self::V4(ip) => ip.to_ipv6_mapped().octets(),
            Self::V6(ip) => ip.octets(),
        });
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, BadMessage> {
        reader.array::<16>().map(|octets| Ipv6Addr::from(octets).to_canonical())
    }
}

impl Field for bool {
    const LEN_MAX: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        out.push((*self).into());
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, BadMessage> {
        match u8::take(reader)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(BadMessage::Value),
        }
    }
}

impl Field for Flaw {
    const LEN_MAX: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        (*self == Self::OwnSocket).put(out);
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, BadMessage> {
        Ok(if bool::take(reader)? { Self::OwnSocket } else { Self::LostFds })
    }
}

impl Field for Offence {
    const LEN_MAX: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        (*self == Self::Stalled).put(out);
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, BadMessage> {
        Ok(if bool::take(reader)? { Self::Stalled } else { Self::Blocked })
    }
}

impl<T: Field> Field for Option<T> {
    const LEN_MAX: usize = 1 + T::LEN_MAX;
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.iter().for_each(|value| value.put(out));
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, BadMessage> {
        bool::take(reader)?.then(|| T::take(reader)).transpose()
    }
}

impl<T: Field, const MAX: usize> Field for List<T, MAX> {
    const LEN_MAX: usize = 2 + MAX * T::LEN_MAX;
    fn put(&self, out: &mut Vec<u8>) {
        // No field is longer than a message.
        u16::try_from(self.0.len()).unwrap_or(u16::MAX).put(out);
        self.0.iter().for_each(|entry| entry.put(out));
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, BadMessage> {
        let len = usize::from(u16::take(reader)?);
        if len > MAX {
            return Err(BadMessage::Length { len, limit: MAX });
        }
        (0..len).map(|_| T::take(reader)).collect::<Result<_, _>>().map(Self)
    }
}

impl<const MAX: usize> Field for Text<MAX> {
    const LEN_MAX: usize = 2 + MAX;
    fn put(&self, out: &mut Vec<u8>) {
        List::<u8, MAX>(self.0.as_bytes().to_vec()).put(out);
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, BadMessage> {
        let bytes = List::<u8, MAX>::take(reader)?;
        String::from_utf8(bytes.0).map(Self).map_err(|_| BadMessage::Text)
    }
}

macro_rules! records {
    ($($name:ident { $($field:ident: $type:ty),* } if $check:expr;)*) => {$(
        impl Field for $name {
            const LEN_MAX: usize = 0 $(+ <$type>::LEN_MAX)*;
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }
            fn take(reader: &mut Reader<'_>) -> Result<Self, BadMessage> {
                let record = Self { $($field: Field::take(reader)?),* };
                let check: fn(&Self) -> bool = $check;
                if check(&record) { Ok(record) } else { Err(BadMessage::Value) }
            }
        }
    )*};
}
records! {
    Versions { first: u16, last: u16 } if |_| true;
    Station { vlan: u16, address: [u8; 6] } if |_| true;
    KnownStation { port: u16, address: [u8; 6], ip: IpAddr, is_leased: bool } if |_| true;
    SeenIp { vlan: u16, address: [u8; 6], ip: IpAddr } if |_| true;
    SlotRange { first: u16, last: u16 } if |it| it.first <= it.last && it.last < SLOTS_MAX;
    Keep { slot: u16, fds: u8 } if |it| it.slot < SLOTS_MAX && usize::from(it.fds) <= FDS_MAX;
}
