//! The first bytes of a TCP connection: the host that a TLS `ClientHello` names (RFC 6066 §3).
//!
//! How: the bytes so far are looked at again and again as they grow. A hello may be spread over
//! records, and a record over segments; it is read when it is whole, and refused as soon as it
//! cannot become one. What follows it (early data) is not looked at.
//!
//! Limits: the name is the outer one; what `encrypted_client_hello` hides counts for nothing. A
//! server may ask for a second hello (RFC 8446 §4.1.4), whose name only the server compares.

use std::net::IpAddr;

use super::name::HostName;

/// Most bytes of a connection in which a hello is looked for, the headers of its records included.
pub const HELLO_LEN_MAX: usize = 16 << 10;

/// The answer to a client whose hello is refused: a fatal alert, `unrecognized_name` (RFC 6066 §3).
pub const UNRECOGNIZED_NAME: [u8; 7] = [21, MAJOR_VERSION, 3, 0, 2, 2, 112];

const MAJOR_VERSION: u8 = 3;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// The header of a record: type, version, and length.
const RECORD_HEADER_LEN: usize = 5;
const RECORD_LEN_MAX: usize = 1 << 14;
/// The header of a handshake message: type, and length in three bytes.
const MESSAGE_HEADER_LEN: usize = 4;
const RANDOM_LEN: usize = 32;
const SESSION_ID_LEN_MAX: usize = 32;
const SERVER_NAME: usize = 0;
const HOST_NAME: usize = 0;

/// The meaning of a connection's first bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hello {
    /// The beginning of a hello.
    More,
    /// A hello for that host.
    Name(HostName),
    /// No hello, or one that names no host.
    Refused(HelloRefusal),
}

/// Why a hello is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HelloRefusal {
    /// The bytes are not TLS, or do not begin with a hello.
    NotTls,
    /// The hello names no host.
    NoName,
    /// It names an address.
    Literal,
    /// It names more than one host.
    TwoNames,
    /// It is not whole after [`HELLO_LEN_MAX`] bytes.
    TooLong,
    /// A length in it is wrong, or no host can have the name.
    Malformed,
}

/// How far the first bytes of a connection were looked at.
#[derive(Debug, Clone, Copy, Default)]
pub struct HelloReader {
    /// Bytes that were looked at, and how many more the record has.
    at: usize,
    left: usize,
    /// The header of the message, and how much of the message there is.
    header: [u8; MESSAGE_HEADER_LEN],
    message_len: usize,
}

impl HelloReader {
    /// Looks at all bytes so far: those of the last call, and what has come since.
    pub fn read(&mut self, bytes: &[u8]) -> Hello {
        let bytes = &bytes[..bytes.len().min(HELLO_LEN_MAX)];
        match self.is_whole(bytes) {
            Ok(true) => match message(bytes, self.message_len).and_then(|it| name(&it)) {
                Ok(name) => Hello::Name(name),
                Err(why) => Hello::Refused(why),
            },
            Ok(false) if bytes.len() < HELLO_LEN_MAX => Hello::More,
            Ok(false) => Hello::Refused(HelloRefusal::TooLong),
            Err(why) => Hello::Refused(why),
        }
    }

    /// Goes through the records as far as they have come, at most to the end of the hello.
    fn is_whole(&mut self, bytes: &[u8]) -> Result<bool, HelloRefusal> {
        loop {
            if let Some(wanted) = self.wanted_len()? {
                match (self.message_len + self.left).cmp(&wanted) {
                    // Another message begins in the same record.
                    std::cmp::Ordering::Greater => return Err(HelloRefusal::Malformed),
                    std::cmp::Ordering::Equal if self.left == 0 => return Ok(true),
                    _ => {}
                }
            }
            let rest = bytes.get(self.at..).unwrap_or_default();
            if self.left == 0 {
                let Some(len) = record_len(rest)? else { return Ok(false) };
                (self.at, self.left) = (self.at + RECORD_HEADER_LEN, len);
            } else if rest.is_empty() {
                return Ok(false);
            } else {
                self.take(&rest[..rest.len().min(self.left)]);
            }
        }
    }

    fn take(&mut self, piece: &[u8]) {
        let header = self.header.iter_mut().skip(self.message_len);
        header.zip(piece).for_each(|(to, from)| *to = *from);
        self.message_len += piece.len();
        self.at += piece.len();
        self.left -= piece.len();
    }

    /// The length of the hello with its header, if that has come.
    fn wanted_len(&self) -> Result<Option<usize>, HelloRefusal> {
        let [kind, high, middle, low] = self.header;
        if self.message_len > 0 && kind != CLIENT_HELLO {
            return Err(HelloRefusal::NotTls);
        }
        if self.message_len < MESSAGE_HEADER_LEN {
            return Ok(None);
        }
        let len = u32::from_be_bytes([0, high, middle, low]) as usize + MESSAGE_HEADER_LEN;
        let is_short = len + RECORD_HEADER_LEN <= HELLO_LEN_MAX;
        if is_short { Ok(Some(len)) } else { Err(HelloRefusal::TooLong) }
    }
}

/// The length of the record that begins there, if its header is whole.
fn record_len(bytes: &[u8]) -> Result<Option<usize>, HelloRefusal> {
    let is_good = |at: usize, value: u8| bytes.get(at).is_none_or(|byte| *byte == value);
    if !is_good(0, HANDSHAKE) || !is_good(1, MAJOR_VERSION) {
        return Err(HelloRefusal::NotTls);
    }
    let Some(&[_, _, _, high, low]) = bytes.first_chunk() else { return Ok(None) };
    let len = usize::from(u16::from_be_bytes([high, low]));
    if (1..=RECORD_LEN_MAX).contains(&len) { Ok(Some(len)) } else { Err(HelloRefusal::Malformed) }
}

/// The message without its header, taken out of the records.
fn message(bytes: &[u8], len: usize) -> Result<Vec<u8>, HelloRefusal> {
    let (mut message, mut rest) = (Vec::with_capacity(len), HelloBytes(bytes));
    while message.len() < len {
        rest.take(RECORD_HEADER_LEN - 2)?;
        message.extend(rest.list(2)?.0);
    }
    message.drain(..MESSAGE_HEADER_LEN.min(message.len()));
    Ok(message)
}

/// The host that a hello names (RFC 8446 §4.1.2).
fn name(message: &[u8]) -> Result<HostName, HelloRefusal> {
    let mut hello = HelloBytes(message);
    if hello.take(2)?[0] != MAJOR_VERSION {
        return Err(HelloRefusal::Malformed);
    }
    hello.take(RANDOM_LEN)?;
    let (session_id, suites, compressions) = (hello.list(1)?, hello.list(2)?, hello.list(1)?);
    let has_all = !suites.0.is_empty() && suites.0.len() % 2 == 0 && !compressions.0.is_empty();
    if !has_all || session_id.0.len() > SESSION_ID_LEN_MAX {
        return Err(HelloRefusal::Malformed);
    }
    if hello.0.is_empty() {
        return Err(HelloRefusal::NoName);
    }
    let mut extensions = hello.list(2)?;
    let mut found = None;
    while !extensions.0.is_empty() {
        let (kind, content) = (extensions.number(2)?, extensions.list(2)?);
        if kind == SERVER_NAME && found.replace(content).is_some() {
            return Err(HelloRefusal::TwoNames);
        }
    }
    hello.end()?;
    host(found.ok_or(HelloRefusal::NoName)?)
}

/// The host of a `server_name`.
fn host(mut content: HelloBytes<'_>) -> Result<HostName, HelloRefusal> {
    let mut names = content.list(2)?;
    content.end()?;
    let (kind, name) = (names.number(1)?, names.list(2)?);
    if kind != HOST_NAME {
        return Err(HelloRefusal::Malformed);
    }
    if !names.0.is_empty() {
        return Err(HelloRefusal::TwoNames);
    }
    let name = std::str::from_utf8(name.0).map_err(|_| HelloRefusal::Malformed)?;
    // As in rules: what ends in a number is no name (127.1).
    let last = name.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    let is_number = !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit());
    if is_number || name.parse::<IpAddr>().is_ok() {
        return Err(HelloRefusal::Literal);
    }
    HostName::parse(name).ok_or(HelloRefusal::Malformed)
}

/// Bytes of a message that were not read yet.
#[derive(Debug, Clone, Copy)]
struct HelloBytes<'a>(&'a [u8]);

impl<'a> HelloBytes<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], HelloRefusal> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(HelloRefusal::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// A number of one or two bytes.
    fn number(&mut self, len: usize) -> Result<usize, HelloRefusal> {
        Ok(self.take(len)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// The bytes behind their own length, which has one or two bytes.
    fn list(&mut self, len: usize) -> Result<Self, HelloRefusal> {
        let len = self.number(len)?;
        self.take(len).map(Self)
    }

    fn end(self) -> Result<(), HelloRefusal> {
        if self.0.is_empty() { Ok(()) } else { Err(HelloRefusal::Malformed) }
    }
}
