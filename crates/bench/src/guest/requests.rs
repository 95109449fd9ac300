//! Requests and answers of one byte over one TCP connection: what a round trip costs with
//! everything on its way, the other side's program too.
//!
//! Limits: one at a time; the other side sends back what it got.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

/// Longest wait for a connection and for an answer.
const LIMIT: Duration = Duration::from_secs(5);

/// Requests that are answered per second.
///
/// # Errors
/// There is no answer.
pub fn per_second(address: &str, duration: Duration) -> anyhow::Result<f64> {
    let address: SocketAddr = address.parse().with_context(|| address.to_string())?;
    let stream = TcpStream::connect_timeout(&address, LIMIT);
    let mut stream = stream.with_context(|| address.to_string())?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LIMIT))?;
    ask(&mut stream)?;
    let (started, mut answers) = (Instant::now(), 0_u32);
    while started.elapsed() < duration {
        ask(&mut stream)?;
        answers += 1;
    }
    Ok(f64::from(answers) / started.elapsed().as_secs_f64())
}

fn ask(stream: &mut TcpStream) -> anyhow::Result<()> {
    stream.write_all(b"?").context("request")?;
    let mut answer = [0];
    stream.read_exact(&mut answer).context("answer")?;
    ensure!(answer == *b"?", "answered {answer:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    #[test]
    fn answers_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address").to_string();
        let answering = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut byte = [0];
            let mut answers = 0;
            while matches!(stream.read(&mut byte), Ok(1)) {
                stream.write_all(&byte).expect("answered");
                answers += 1;
            }
            answers
        });
        let rate = per_second(&address, Duration::from_millis(50)).expect("answered");
        let answers = answering.join().expect("ended");
        assert!(answers > 1 && rate > 0.0, "{answers} {rate}");
        assert!(rate < f64::from(answers) / 0.05, "the first is not counted");
    }
}
