//! Many bytes one way, with a sum that proves that they arrived: a sink and a source.
//!
//! How: the sink reads until the peer closes its direction, then answers with one line: how many
//! bytes, and their CRC-32 in eight hexadecimal digits. The source reads one line with a number,
//! sends that many bytes, then their CRC-32 in eight digits, and closes.
//!
//! Limits: the bytes are made up on the way; no two neighbouring 64-bit words are equal, so that a
//! piece that is missing, doubled or misplaced changes the sum.

use core::fmt::{self, Write};

use crc32fast::Hasher;
use smoltcp::socket::tcp::Socket;

use crate::conversation::send;
use crate::{Conversation, Text};

/// Connections of each service at the same time.
const CONNECTIONS: usize = 2;
/// Several of the largest packets.
const BUFFER_LEN: usize = 512 << 10;
/// An odd number with many bits set: its multiples look unlike each other.
const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;
/// Longest line in bytes.
const LINE_LEN_MAX: usize = 32;

/// Reads until the end, then says what it got.
#[derive(Debug, Default)]
pub struct Sink {
    hasher: Hasher,
    bytes: u64,
    answered: bool,
}

impl Conversation for Sink {
    const PORT: u16 = 9;
    const CONNECTIONS: usize = CONNECTIONS;
    const BUFFER_LEN: usize = BUFFER_LEN;

    fn step<R: fmt::Display>(&mut self, socket: &mut Socket<'_>, _: &R) {
        while socket.can_recv() {
            let taken = socket.recv(|bytes| {
                self.hasher.update(bytes);
                (bytes.len(), bytes.len())
            });
            self.bytes += taken.unwrap_or(0) as u64;
        }
        if !socket.may_recv() && !self.answered {
            let mut line = Text::<LINE_LEN_MAX>::new();
            let _ = writeln!(line, "{} {:08x}", self.bytes, self.hasher.clone().finalize());
            // Nothing was sent before, so the buffer has room for a line.
            send(socket, line.bytes());
            self.answered = true;
            socket.close();
        }
    }
}

/// Sends as many bytes as it is asked for, then their sum.
#[derive(Debug, Default)]
pub struct Source {
    state: SourceState,
    hasher: Hasher,
    word: u64,
}

#[derive(Debug)]
enum SourceState {
    Asked(Text<LINE_LEN_MAX>),
    Sending(u64),
    Done,
}

impl Default for SourceState {
    fn default() -> Self {
        Self::Asked(Text::new())
    }
}

impl Conversation for Source {
    const PORT: u16 = 19;
    const CONNECTIONS: usize = CONNECTIONS;
    const BUFFER_LEN: usize = BUFFER_LEN;

    fn step<R: fmt::Display>(&mut self, socket: &mut Socket<'_>, _: &R) {
        match &mut self.state {
            SourceState::Asked(line) => match read_number(socket, line) {
                RequestedBytes::NotYet => return,
                RequestedBytes::Nonsense => return socket.abort(),
                RequestedBytes::Bytes(bytes) => self.state = SourceState::Sending(bytes),
            },
            SourceState::Sending(_) => {}
            SourceState::Done => return,
        }
        self.send(socket);
    }
}

impl Source {
    fn send(&mut self, socket: &mut Socket<'_>) {
        let SourceState::Sending(left) = &mut self.state else { return };
        while *left > 0 && socket.can_send() {
            let made = socket.send(|room| {
                let len = usize::try_from(*left).unwrap_or(usize::MAX).min(room.len());
                fill(&mut room[..len], self.word);
                self.hasher.update(&room[..len]);
                (len, len as u64)
            });
            let Ok(made) = made else { return };
            self.word += made;
            *left -= made;
        }
        let mut sum = Text::<8>::new();
        let _ = write!(sum, "{:08x}", self.hasher.clone().finalize());
        let room = socket.send_capacity() - socket.send_queue();
        if *left == 0 && room >= sum.bytes().len() {
            send(socket, sum.bytes());
            self.state = SourceState::Done;
            socket.close();
        }
    }
}

/// Fills with words that follow from where in the stream the first byte is.
fn fill(bytes: &mut [u8], first: u64) {
    for (at, chunk) in (first..).step_by(8).zip(bytes.chunks_mut(8)) {
        let word = at.wrapping_mul(STRIDE).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

/// The number of bytes that a peer has asked for.
#[derive(Debug, PartialEq, Eq)]
enum RequestedBytes {
    NotYet,
    Bytes(u64),
    Nonsense,
}

fn read_number(socket: &mut Socket<'_>, line: &mut Text<LINE_LEN_MAX>) -> RequestedBytes {
    // The bytes that do not fit stay in the socket, and the line is then too long.
    let read = socket.recv(|bytes| (line.append(bytes), ()));
    if read.is_err() && !socket.may_recv() {
        return RequestedBytes::Nonsense;
    }
    parse(line.bytes())
}

fn parse(line: &[u8]) -> RequestedBytes {
    let Some(end) = line.iter().position(|byte| *byte == b'\n') else {
        return if line.len() < LINE_LEN_MAX {
            RequestedBytes::NotYet
        } else {
            RequestedBytes::Nonsense
        };
    };
    let number = core::str::from_utf8(&line[..end]).ok().and_then(|text| text.trim().parse().ok());
    number.map_or(RequestedBytes::Nonsense, RequestedBytes::Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_lines() {
        assert_eq!(parse(b"12"), RequestedBytes::NotYet);
        assert_eq!(parse(b"12\r\n"), RequestedBytes::Bytes(12));
        assert_eq!(parse(b"0\nrest"), RequestedBytes::Bytes(0));
        for nonsense in [&b"\n"[..], b"-1\n", b"1x\n", b"18446744073709551616\n", &[b'1'; 32]] {
            assert_eq!(parse(nonsense), RequestedBytes::Nonsense, "{nonsense:?}");
        }
    }

    #[test]
    fn no_two_words_of_the_stream_are_equal() {
        let mut bytes = [0; 4096];
        fill(&mut bytes, 24);
        let mut words: alloc::vec::Vec<&[u8]> = bytes.chunks(8).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 512);
    }
}
