//! The client in a guest: this program, which opens connections to the provider and sends bytes to
//! and fro.
//!
//! How: User Mode Linux sees the files of this machine; a QEMU guest has it in its initramfs.
//!
//! Limits: IPv4; a guest like this machine.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, ValueEnum};
use ringway_guests::nat_lab::{ECHO, SERVER};
use ringway_guests::{Stage, shell};

/// Longest wait for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// How long flows stay open for a look at the router.
const FLOWS_STAY: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub struct ClientArgs {
    what: ClientTask,
    /// Seconds, or how many flows
    amount: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ClientTask {
    /// Connections per second, one at a time, each with one byte there and back
    Connections,
    /// The mean time of one byte there and back on one connection, in µs
    RoundTrips,
    /// Connections that stay open for a while after it was printed how many they are
    Flows,
}

impl ClientArgs {
    pub fn run(&self) -> anyhow::Result<()> {
        let began = Instant::now();
        let goes_on = || began.elapsed() < Duration::from_secs(self.amount.into());
        let mut count = 0_u32;
        match self.what {
            ClientTask::Connections => {
                while goes_on() {
                    exchange(&mut connect()?)?;
                    count += 1;
                }
                println!("{}", f64::from(count) / began.elapsed().as_secs_f64());
            }
            ClientTask::RoundTrips => {
                let mut stream = connect()?;
                while goes_on() {
                    exchange(&mut stream)?;
                    count += 1;
                }
                println!("{}", began.elapsed().as_secs_f64() * 1e6 / f64::from(count));
            }
            ClientTask::Flows => {
                let mut all = Vec::new();
                for _ in 0..self.amount {
                    all.push(connect()?);
                    all.last_mut().map_or(Ok(()), exchange)?;
                }
                println!("{}", all.len());
                thread::sleep(FLOWS_STAY);
            }
        }
        Ok(())
    }
}

fn connect() -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect((SERVER, ECHO)).context("to the provider")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    Ok(stream)
}

fn exchange(stream: &mut TcpStream) -> anyhow::Result<()> {
    let mut byte = [7];
    stream.write_all(&byte)?;
    stream.read_exact(&mut byte).context("no answer")
}

/// A copy without what debuggers read, which is a third as long.
pub(super) fn copy(stage: &Stage) -> anyhow::Result<PathBuf> {
    let (here, copy) = (std::env::current_exe()?, stage.file("client"));
    let mut strip = shell::command(&["strip", "-o"]);
    if shell::output(strip.arg(&copy).arg(&here)).is_err() {
        fs::copy(&here, &copy)?;
    }
    Ok(copy)
}
