//! What asks in a guest: this program, which opens connections to the provider and sends bytes to
//! and fro; and how it comes there.
//!
//! How: User Mode Linux sees the files of this machine. A QEMU guest fetches the program, and the
//! one library that its other programs do not need, from the provider by HTTP.
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
use ringway_guests::{Process, Side, Stage, shell};

/// Where the provider has the program and the library.
const FILES_PORT: u16 = 7010;

/// A library that programs of Rust need, and those of the guest do not.
const LIBRARY: &str = "libgcc_s.so.1";

/// Longest wait for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// How long flows stay open for a look at the router.
const FLOWS_STAY: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub struct ClientArgs {
    what: Asked,
    /// Seconds, or how many flows
    amount: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Asked {
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
            Asked::Connections => {
                while goes_on() {
                    exchange(&mut connect()?)?;
                    count += 1;
                }
                println!("{}", f64::from(count) / began.elapsed().as_secs_f64());
            }
            Asked::RoundTrips => {
                let mut stream = connect()?;
                while goes_on() {
                    exchange(&mut stream)?;
                    count += 1;
                }
                println!("{}", began.elapsed().as_secs_f64() * 1e6 / f64::from(count));
            }
            Asked::Flows => {
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

#[derive(Debug)]
pub(super) struct Offer {
    here: PathBuf,
    /// Serves it, and the library, to guests that do not see this machine's files.
    _server: Option<Process>,
}

/// Lets the provider serve it, if guests fetch it.
pub(super) fn offer(stage: &Stage, is_fetched: bool) -> anyhow::Result<Offer> {
    let here = std::env::current_exe()?;
    let mut server = None;
    if is_fetched {
        let files = stage.file("files");
        fs::create_dir_all(&files)?;
        // Without what debuggers read it is a third as long.
        let mut strip = shell::command(&["strip", "-o"]);
        if shell::output(strip.arg(files.join("client")).arg(&here)).is_err() {
            fs::copy(&here, files.join("client"))?;
        }
        if let Some(library) = library()? {
            fs::copy(library, files.join(LIBRARY))?;
        }
        let words = ["busybox", "httpd", "-f", "-p", &format!("{SERVER}:{FILES_PORT}"), "-h"];
        let mut httpd = shell::command(&words);
        httpd.arg(files);
        server = Some(Process::start(stage, "httpd", httpd)?);
    }
    Ok(Offer { here, _server: server })
}

/// Where the library is that this process has loaded.
fn library() -> anyhow::Result<Option<PathBuf>> {
    let maps = fs::read_to_string("/proc/self/maps").context("/proc/self/maps")?;
    let path = maps.lines().filter_map(|line| line.find('/').and_then(|at| line.get(at..)));
    Ok(path.map(PathBuf::from).find(|path| path.ends_with(LIBRARY)))
}

impl Offer {
    /// Brings it to a guest; how it is started there.
    pub fn bring(&self, side: &mut Side<'_>, is_fetched: bool) -> anyhow::Result<String> {
        if !is_fetched {
            return Ok(format!("{} nat-client", self.here.display()));
        }
        for file in ["client", LIBRARY] {
            side.must(&format!("busybox wget -q http://{SERVER}:{FILES_PORT}/{file}"))?;
        }
        side.must("chmod +x client")?;
        Ok("LD_LIBRARY_PATH=. ./client nat-client".to_string())
    }
}
