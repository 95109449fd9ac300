//! TCP connections whose content is numbered: each byte that comes back from a guest was sent, in
//! that order, and none is missing.
//!
//! How: a thread sends numbers, the guest's `nc -e cat` echoes them, and another thread counts
//! along. Limits: eight bytes a number; who waits for longer than [`LIMIT`] gives up.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};

use super::process::LOOK_EVERY;

/// Longest silence of a connection.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Bytes that must come before a connection counts as alive.
const ALIVE_BYTES: u64 = 1 << 17;

/// How much is sent at once, and how long the sender sleeps then.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// In bytes, a multiple of eight.
    pub chunk_len: usize,
    /// Behind each chunk.
    pub pause: Duration,
}

/// A connection under traffic.
#[derive(Debug)]
pub struct Numbered {
    shared: Arc<Shared>,
    sender: JoinHandle<io::Result<u64>>,
    receiver: Option<JoinHandle<io::Result<u64>>>,
}

#[derive(Debug, Default)]
struct Shared {
    is_over: AtomicBool,
    /// Bytes that were sent, or came back if any come back.
    moved: AtomicU64,
}

impl Numbered {
    /// The peer echoes everything.
    ///
    /// # Errors
    /// The connection cannot be set up.
    pub fn echoed(stream: TcpStream, pace: Pace) -> anyhow::Result<Self> {
        let mut connection = Self::sent(stream.try_clone()?, pace, false)?;
        stream.set_read_timeout(Some(LIMIT))?;
        let shared = Arc::clone(&connection.shared);
        connection.receiver = Some(thread::spawn(move || receive(stream, &shared)));
        Ok(connection)
    }

    /// The peer takes everything and answers nothing.
    ///
    /// # Errors
    /// The connection cannot be set up.
    pub fn swallowed(stream: TcpStream, pace: Pace) -> anyhow::Result<Self> {
        Self::sent(stream, pace, true)
    }

    fn sent(stream: TcpStream, pace: Pace, counts: bool) -> anyhow::Result<Self> {
        stream.set_write_timeout(Some(LIMIT))?;
        let shared = Arc::new(Shared::default());
        let copy = Arc::clone(&shared);
        let sender = thread::spawn(move || send(stream, pace, counts, &copy));
        Ok(Self { shared, sender, receiver: None })
    }

    /// Waits until more has moved: since now, not before.
    ///
    /// # Errors
    /// The connection has ended, or nothing moves.
    pub fn wait_for_more(&self) -> anyhow::Result<()> {
        let (wanted, deadline) = (self.moved() + ALIVE_BYTES, Instant::now() + LIMIT);
        while self.moved() < wanted {
            let has_ended = self.sender.is_finished()
                || self.receiver.as_ref().is_some_and(JoinHandle::is_finished);
            ensure!(!has_ended, "the connection has ended after {} bytes", self.moved());
            ensure!(Instant::now() < deadline, "nothing moves after {} bytes", self.moved());
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Bytes up to now.
    pub fn moved(&self) -> u64 {
        self.shared.moved.load(Ordering::Relaxed)
    }

    /// Sends no more, and waits for all that is still on the way; how many bytes it was.
    ///
    /// # Errors
    /// A byte was wrong, or is missing.
    pub fn finish(self) -> anyhow::Result<u64> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let sent = joined(self.sender).context("sending")?;
        if let Some(receiver) = self.receiver {
            let came = joined(receiver).context("what came back")?;
            ensure!(came == sent, "{came} of {sent} bytes came back");
        }
        Ok(sent)
    }
}

fn joined(thread: JoinHandle<io::Result<u64>>) -> anyhow::Result<u64> {
    Ok(thread.join().map_err(|_| anyhow!("it panicked"))??)
}

fn send(mut stream: TcpStream, pace: Pace, counts: bool, shared: &Shared) -> io::Result<u64> {
    let mut numbers = 0_u64..;
    let mut sent = 0;
    while !shared.is_over.load(Ordering::Relaxed) {
        let chunk: Vec<u8> =
            numbers.by_ref().take(pace.chunk_len / 8).flat_map(u64::to_le_bytes).collect();
        stream.write_all(&chunk)?;
        sent += chunk.len() as u64;
        if counts {
            shared.moved.store(sent, Ordering::Relaxed);
        }
        thread::sleep(pace.pause);
    }
    stream.shutdown(Shutdown::Write)?;
    Ok(sent)
}

fn receive(mut stream: TcpStream, shared: &Shared) -> io::Result<u64> {
    let mut came = 0_u64;
    let mut bytes = vec![0; 1 << 16];
    loop {
        let len = stream.read(&mut bytes)?;
        if len == 0 {
            return Ok(came);
        }
        for byte in bytes.iter().take(len) {
            if *byte != expected(came) {
                let text = format!("byte {came} is {byte}, not {}", expected(came));
                return Err(io::Error::new(ErrorKind::InvalidData, text));
            }
            came += 1;
        }
        shared.moved.store(came, Ordering::Relaxed);
    }
}

/// The byte at this place of the content.
fn expected(at: u64) -> u8 {
    (at / 8).to_le_bytes()[(at % 8) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const PACE: Pace = Pace { chunk_len: 1 << 14, pause: Duration::from_millis(1) };

    /// A peer that does this with what comes, until the end.
    fn peer(answer: fn(&mut [u8])) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a place");
        let place = listener.local_addr().expect("its address");
        thread::spawn(move || -> io::Result<()> {
            let (mut stream, _) = listener.accept()?;
            let mut bytes = [0; 4096];
            while let len @ 1.. = stream.read(&mut bytes)? {
                answer(&mut bytes[..len]);
                stream.write_all(&bytes[..len])?;
            }
            Ok(())
        });
        TcpStream::connect(place).expect("it listens")
    }

    #[test]
    fn what_comes_back_is_counted() {
        let connection = Numbered::echoed(peer(|_| ()), PACE).expect("set up");
        connection.wait_for_more().expect("it moves");
        assert!(connection.finish().expect("all came back") >= ALIVE_BYTES);
    }

    #[test]
    fn a_wrong_byte_is_told() {
        let connection = Numbered::echoed(peer(|bytes| bytes[7] ^= 1), PACE).expect("set up");
        assert!(connection.wait_for_more().is_err());
        let error = format!("{:#}", connection.finish().expect_err("it was wrong"));
        assert!(error.contains("byte 7") || error.contains("sending"), "{error}");
    }
}
