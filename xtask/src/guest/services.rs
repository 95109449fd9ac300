//! The other side of the unikernel's services: requests, and transfers with their sums checked.
//!
//! Limits: one connection at a time; every wait has a limit.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use crc32fast::Hasher;

const LIMIT: Duration = Duration::from_secs(20);

const CHUNK_LEN: usize = 256 << 10;

/// The sum behind a stream of the source: CRC-32 in hexadecimal.
const SUM_LEN: usize = 8;

#[derive(Debug)]
pub struct Page(String);

impl Page {
    /// Asks for the page once, on a connection of its own.
    pub fn fetch(address: SocketAddr) -> anyhow::Result<Self> {
        let mut stream = connect(address)?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: unikernel\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text).context("statistics page")?;
        let (head, page) = text.split_once("\r\n\r\n").context("a page without a head")?;
        ensure!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        let len = format!("\r\nContent-Length: {}\r\n", page.len());
        ensure!(head.contains(&len), "{} bytes after {head}", page.len());
        Ok(Self(page.to_string()))
    }

    pub fn number(&self, name: &str) -> anyhow::Result<u64> {
        let mut rest = self.0.lines().filter_map(|line| line.strip_prefix(name));
        let number = rest.find_map(|rest| rest.split_whitespace().next()?.parse().ok());
        number.with_context(|| format!("no {name} in\n{}", self.0))
    }

    /// Whether a line contains all these words.
    pub fn has(&self, words: &[&str]) -> bool {
        self.0.lines().any(|line| words.iter().all(|word| line.split(' ').any(|w| w == *word)))
    }

    pub fn drops(&self) -> Vec<&str> {
        self.0.lines().filter(|line| line.contains("_drop_")).collect()
    }
}

/// Sends bytes to the sink and compares what it says about them.
pub fn fill_sink(address: SocketAddr, bytes: u64) -> anyhow::Result<()> {
    let mut stream = connect(address)?;
    let mut hasher = Hasher::new();
    let mut chunk = vec![0; CHUNK_LEN];
    let mut left = bytes;
    while left > 0 {
        fill(&mut chunk, left);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_LEN);
        hasher.update(&chunk[..len]);
        stream.write_all(&chunk[..len]).context("to the sink")?;
        left -= len as u64;
    }
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("from the sink")?;
    let expected = format!("{bytes} {:08x}\n", hasher.finalize());
    ensure!(answer == expected, "the sink got {answer:?}, not {expected:?}");
    Ok(())
}

/// Reads bytes from the source and compares them with their sum.
pub fn drain_source(address: SocketAddr, bytes: u64) -> anyhow::Result<()> {
    let mut stream = connect(address)?;
    writeln!(stream, "{bytes}")?;
    let mut hasher = Hasher::new();
    let mut chunk = vec![0; CHUNK_LEN];
    let mut left = bytes;
    while left > 0 {
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_LEN);
        match stream.read(&mut chunk[..len]).context("from the source")? {
            0 => bail!("the source ended {left} bytes early"),
            read => {
                hasher.update(&chunk[..read]);
                left -= read as u64;
            }
        }
    }
    let mut sum = String::new();
    stream.read_to_string(&mut sum).context("from the source")?;
    let expected = format!("{:08x}", hasher.finalize());
    ensure!(sum.len() == SUM_LEN && sum == expected, "the source sent {sum:?}, not {expected:?}");
    Ok(())
}

/// Sends a text to the echo service and compares.
pub fn echo(address: SocketAddr) -> anyhow::Result<()> {
    let mut stream = connect(address)?;
    stream.write_all(b"once and for all")?;
    stream.shutdown(Shutdown::Write)?;
    let mut back = String::new();
    stream.read_to_string(&mut back).context("echo")?;
    ensure!(back == "once and for all", "echo: {back:?}");
    Ok(())
}

fn connect(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream =
        TcpStream::connect_timeout(&address, LIMIT).with_context(|| address.to_string())?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    Ok(stream)
}

/// Words that count, starting from where in the stream the chunk is: no two are equal.
fn fill(chunk: &mut [u8], first: u64) {
    for (word, bytes) in (first..).zip(chunk.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&word.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_read() {
        let page = Page("features  CSUM MAC\nrx_packets 12\nrx_drop_malformed 1\n".to_string());
        assert_eq!(page.number("rx_packets").ok(), Some(12));
        assert!(page.number("tx_packets").is_err());
        assert!(page.has(&["features", "MAC"]) && !page.has(&["features", "rx_packets"]));
        assert_eq!(page.drops(), ["rx_drop_malformed 1"]);
    }
}
