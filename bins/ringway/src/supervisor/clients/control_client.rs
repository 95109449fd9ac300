//! One client of the control socket: its lines, and answers that it has not read yet.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use ringway_host::{Interest, PeerCredentials};
use rustix::net::{RecvFlags, recv};

use crate::control::fds::send_with_fds;
use crate::control::{LINE_LEN_MAX, refusal};
use crate::supervisor::record::{ClientRecord, Fds};

/// Most bytes of answers that a client has not read when another supervisor takes it over.
const CARRIED_LEN_MAX: usize = 64 << 10;

/// A client, as told from those before it in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientId {
    pub slot: usize,
    pub serial: u64,
}

pub struct Client {
    pub serial: u64,
    pub stream: UnixStream,
    /// It is dropped at the end of its turn.
    pub is_broken: bool,
    /// Its question is not answered yet: nothing more is taken from it.
    pub is_waiting: bool,
    /// It is ringway's own user, or root.
    pub is_trusted: bool,
    /// Why it may not ask; it hears that once it does.
    pub objection: Option<String>,
    pub input: Vec<u8>,
    /// It sends nothing more, and still gets the answers to what it has asked.
    has_ended: bool,
    pub output: Vec<u8>,
    /// They go with the first bytes of the output.
    pub fds: Vec<OwnedFd>,
    /// When something last came from it, or went to it.
    pub active_at: Instant,
    /// Since when it owes us the rest of a line, or has not read an answer.
    pub owes_since: Option<Instant>,
    /// `None`: nothing is wanted of it now.
    pub interest: Option<Interest>,
}

/// Ringway's own user, or root.
pub fn is_trusted(peer: &PeerCredentials) -> bool {
    peer.user == 0 || peer.user == rustix::process::geteuid().as_raw()
}

impl Client {
    pub fn id(&self, slot: usize) -> ClientId {
        ClientId { slot, serial: self.serial }
    }

    pub fn new(serial: u64, stream: UnixStream, objection: Option<String>) -> Self {
        let is_trusted = PeerCredentials::of(&stream).is_ok_and(|peer| is_trusted(&peer));
        Self {
            serial,
            stream,
            is_broken: false,
            is_waiting: false,
            is_trusted,
            objection,
            input: Vec::new(),
            has_ended: false,
            output: Vec::new(),
            fds: Vec::new(),
            active_at: Instant::now(),
            owes_since: None,
            interest: Some(Interest::Readable),
        }
    }

    /// The record of it for the next supervisor. `None`: it leaves too much unread.
    pub fn record<'a>(&'a self, slot: usize, fds: &mut Fds<'a>) -> Option<ClientRecord> {
        if self.output.len() > CARRIED_LEN_MAX {
            return None;
        }
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let (input, output) = (text(&self.input)?, text(&self.output)?);
        let stream = fds.put(self.stream.as_fd());
        let (serial, is_waiting) = (self.serial, self.is_waiting);
        Some(ClientRecord { slot, serial, stream, is_waiting, input, output })
    }

    /// Takes what has arrived, at most one line too much, and nothing while answers wait to be
    /// read; an error ends the client.
    pub fn receive(&mut self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        while self.output.is_empty() && self.input.len() <= LINE_LEN_MAX && !self.has_ended {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.has_ended = true,
                Ok(n) => {
                    self.input.extend_from_slice(&buffer[..n]);
                    self.active_at = Instant::now();
                }
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }

    /// The next line without its end, unless answers still wait to be read.
    pub fn next_line(&mut self) -> Option<String> {
        if !self.output.is_empty() || self.is_waiting {
            return None;
        }
        let end = self.input.iter().position(|&byte| byte == b'\n')?;
        let line: Vec<u8> = self.input.drain(..=end).collect();
        Some(String::from_utf8_lossy(&line[..end]).into_owned())
    }

    /// A line without end is no question.
    pub fn check_len(&mut self) -> io::Result<()> {
        if self.input.len() <= LINE_LEN_MAX || self.has_line() {
            return Ok(());
        }
        let why = format!("a line is longer than {LINE_LEN_MAX} bytes");
        self.output.extend_from_slice((refusal(&[why]) + "\n").as_bytes());
        let _ = self.send();
        Err(io::ErrorKind::InvalidData.into())
    }

    /// It has all that it will ever get.
    pub fn is_over(&self) -> bool {
        self.has_ended && !self.has_line() && !self.is_waiting && self.output.is_empty()
    }

    pub fn has_line(&self) -> bool {
        self.input.contains(&b'\n')
    }

    /// Sends as much of the output as the client takes now.
    pub fn send(&mut self) -> io::Result<()> {
        let mut sent = 0;
        let outcome = loop {
            if sent == self.output.len() {
                break Ok(());
            }
            match self.write(sent) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    sent += n;
                    self.fds.clear();
                }
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => break Ok(()),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => break Err(why),
            }
        };
        self.output.drain(..sent);
        // Progress counts: a large answer may take a while to read.
        if sent > 0 {
            (self.owes_since, self.active_at) = (None, Instant::now());
        }
        outcome
    }

    fn write(&self, from: usize) -> io::Result<usize> {
        let bytes = &self.output[from..];
        match self.fds.is_empty() {
            true => (&self.stream).write(bytes),
            false => Ok(send_with_fds(&self.stream, bytes, &self.fds)?),
        }
    }

    /// It owes us the rest of a line, or the reading of an answer.
    pub fn note_debt(&mut self, now: Instant) {
        let is_within = !self.input.is_empty() && !self.has_line();
        let owes = !self.output.is_empty() || is_within && !self.is_waiting;
        self.owes_since = owes.then(|| self.owes_since.unwrap_or(now));
    }

    /// From when on it may have to leave to others: it has asked nothing that is not answered, and
    /// was silent for so long. `None`: it is owed an answer, or owes us something.
    pub fn leaves_from(&self, silence: Duration) -> Option<Instant> {
        if self.objection.is_some() {
            return Some(self.active_at);
        }
        let is_idle = !self.is_waiting && self.output.is_empty() && self.input.is_empty();
        // A question that was not read yet.
        let has_sent = || {
            let mut next = [std::mem::MaybeUninit::uninit(); 1];
            recv(&self.stream, &mut next, RecvFlags::PEEK | RecvFlags::DONTWAIT).is_ok()
        };
        (is_idle && !has_sent()).then(|| self.active_at + silence)
    }

    pub fn wanted(&self) -> Interest {
        match (self.output.is_empty(), self.has_line()) {
            (false, _) => Interest::Writable,
            // More lines are here already: come back as soon as others had their turn.
            (true, true) => Interest::Both,
            (true, false) => Interest::Readable,
        }
    }
}
