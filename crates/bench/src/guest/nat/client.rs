//! What asks in a guest: this program, which opens connections to the provider and sends bytes to
//! and fro; and how it comes there.
//!
//! How: User Mode Linux sees the files of this machine. A QEMU guest fetches the program, and the
//! one library that its other programs do not need, from the provider by HTTP.
//!
//! Limits: IPv4; a guest like this machine.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use ringway_guests::nat_lab::{ECHO, SERVER};
use ringway_guests::shell;
use ringway_guests::stage::Stage;
use ringway_guests::traffic::Side;

/// Where the provider has the program, and behind it the library.
const PROGRAM_PORT: u16 = 7010;

/// A library that programs of Rust need, and those of the guest do not.
const LIBRARY: &str = "libgcc_s.so.1";

/// Longest wait for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// How long flows stay open for a look at the router.
const FLOWS_STAY: Duration = Duration::from_secs(2);

/// Longest request for a file, in bytes.
const REQUEST_LEN_MAX: usize = 4096;

/// `ringway bench nat-client`
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
    /// Asks, and prints the number.
    pub fn run(&self) -> anyhow::Result<()> {
        let until = Instant::now() + Duration::from_secs(self.amount.into());
        let began = Instant::now();
        let mut count = 0_u32;
        match self.what {
            Asked::Connections => {
                while Instant::now() < until {
                    exchange(&mut connect()?)?;
                    count += 1;
                }
                println!("{}", f64::from(count) / began.elapsed().as_secs_f64());
            }
            Asked::RoundTrips => {
                let mut stream = connect()?;
                while Instant::now() < until {
                    exchange(&mut stream)?;
                    count += 1;
                }
                println!("{}", began.elapsed().as_secs_f64() * 1e6 / f64::from(count));
            }
            Asked::Flows => {
                let mut all = Vec::new();
                for _ in 0..self.amount {
                    let mut stream = connect()?;
                    exchange(&mut stream)?;
                    all.push(stream);
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

/// The program as guests get it.
#[derive(Debug)]
pub(super) struct Offer {
    here: PathBuf,
}

/// Lets the provider serve it.
pub(super) fn offer(stage: &Stage) -> anyhow::Result<Offer> {
    let here = std::env::current_exe()?;
    // Without what debuggers read it is a third as long.
    let short = stage.file("client");
    let mut strip = shell::command(&["strip", "-o"]);
    let is_short = shell::output(strip.arg(&short).arg(&here)).is_ok();
    serve(PROGRAM_PORT, if is_short { short } else { here.clone() })?;
    if let Some(library) = library()? {
        serve(PROGRAM_PORT + 1, library)?;
    }
    Ok(Offer { here })
}

/// Where the library is that this process has loaded.
fn library() -> anyhow::Result<Option<PathBuf>> {
    let maps = fs::read_to_string("/proc/self/maps").context("/proc/self/maps")?;
    let path = maps.lines().filter_map(|line| line.find('/').and_then(|at| line.get(at..)));
    Ok(path.map(PathBuf::from).find(|path| path.ends_with(LIBRARY)))
}

fn serve(port: u16, file: PathBuf) -> anyhow::Result<()> {
    let listener = TcpListener::bind((SERVER, port)).context("a file for guests")?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A guest that goes away has no use for the rest.
            let _ = answer(stream, &file);
        }
    });
    Ok(())
}

fn answer(mut stream: TcpStream, file: &Path) -> anyhow::Result<()> {
    let (mut request, mut byte) = (Vec::new(), [0]);
    while !request.ends_with(b"\r\n\r\n") {
        ensure!(request.len() < REQUEST_LEN_MAX, "a long request");
        stream.read_exact(&mut byte)?;
        request.push(byte[0]);
    }
    let bytes = fs::read(file)?;
    write!(stream, "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", bytes.len())?;
    stream.write_all(&bytes)?;
    stream.shutdown(Shutdown::Write)?;
    // Until the guest has all.
    std::io::copy(&mut stream, &mut std::io::sink())?;
    Ok(())
}

impl Offer {
    /// Brings it to a guest; how it is started there.
    pub fn bring(&self, side: &mut Side<'_>, is_fetched: bool) -> anyhow::Result<String> {
        if !is_fetched {
            return Ok(format!("{} nat-client", self.here.display()));
        }
        for (port, file) in [(PROGRAM_PORT, "client"), (PROGRAM_PORT + 1, LIBRARY)] {
            side.must(&format!("busybox wget -q -O {file} http://{SERVER}:{port}/"))?;
        }
        side.must("chmod +x client")?;
        Ok("LD_LIBRARY_PATH=. ./client nat-client".to_string())
    }
}
