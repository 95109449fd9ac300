//! The other side of the unikernel's services: requests, and transfers with their sums checked.
//!
//! Limits: one connection at a time; every wait has a limit.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, ensure};

const LIMIT: Duration = Duration::from_secs(20);

/// The sum behind a stream of the source: CRC-32 in hexadecimal.
const SUM_LEN: usize = 8;

#[derive(Debug)]
pub struct Page(String);

impl Page {
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
pub fn fill_sink(address: SocketAddr, bytes: usize) -> anyhow::Result<()> {
    // Words that count: no two are equal.
    let word = |at: u64| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    let sent: Vec<u8> = (0..).flat_map(word).take(bytes).collect();
    let answer = ask(address, &sent)?;
    let expected = format!("{bytes} {:08x}\n", crc32fast::hash(&sent));
    ensure!(answer == expected, "the sink got {answer:?}, not {expected:?}");
    Ok(())
}

/// Reads bytes from the source and compares them with their sum.
pub fn drain_source(address: SocketAddr, bytes: usize) -> anyhow::Result<()> {
    let mut stream = connect(address)?;
    writeln!(stream, "{bytes}")?;
    let mut received = Vec::new();
    stream.read_to_end(&mut received).context("from the source")?;
    ensure!(received.len() == bytes + SUM_LEN, "the source sent {} bytes", received.len());
    let sum = received.split_off(bytes);
    let expected = format!("{:08x}", crc32fast::hash(&received));
    ensure!(sum == expected.as_bytes(), "the source sent {sum:?}, not {expected:?}");
    Ok(())
}

pub fn echo(address: SocketAddr) -> anyhow::Result<()> {
    let back = ask(address, b"once and for all")?;
    ensure!(back == "once and for all", "echo: {back:?}");
    Ok(())
}

/// Sends all of it, ends its half, and reads what is answered.
pub fn ask(address: SocketAddr, bytes: &[u8]) -> anyhow::Result<String> {
    let mut stream = connect(address)?;
    stream.write_all(bytes).with_context(|| format!("to {address}"))?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).with_context(|| format!("from {address}"))?;
    Ok(answer)
}

fn connect(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream =
        TcpStream::connect_timeout(&address, LIMIT).with_context(|| address.to_string())?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    Ok(stream)
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
