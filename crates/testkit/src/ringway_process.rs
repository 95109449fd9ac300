//! A running `ringway run` for end-to-end tests: started, waited for, asked for statistics, and
//! removed together with its directory, whatever happens to the test.
//!
//! How: the binary is the one in `RINGWAY_BIN`, or `ringway` in a parent directory of the running
//! test. Its log goes to a file that is printed if the test panics.
//!
//! Limits: every wait ends after [`WAIT_LIMIT`].

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringway_control::protocol::{PortStats, StatsReply, request_stats};
use rustix::process::{Pid, Signal, kill_process};

/// Longest wait for anything a healthy ringway does.
const WAIT_LIMIT: Duration = Duration::from_secs(10);

/// Directories that may be left of processes that were killed.
const DIRECTORIES_MAX: usize = 1_000;

/// Names the binary to test.
pub const BINARY_VARIABLE: &str = "RINGWAY_BIN";

/// A running `ringway run`.
#[derive(Debug)]
pub struct RingwayProcess {
    child: Child,
    binary: PathBuf,
    directory: PathBuf,
}

impl RingwayProcess {
    /// Starts one guest port per `(name, options)`, where options are as on the command line
    /// (`packed=off,mtu=9000`, or nothing), and waits until all its sockets accept connections.
    ///
    /// # Errors
    /// No binary, or it does not come up: the text contains its log.
    pub fn start(ports: &[(&str, &str)]) -> io::Result<Self> {
        Self::start_with(ports, &[])
    }

    /// The same with further arguments of `ringway run`.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(ports: &[(&str, &str)], more: &[&str]) -> io::Result<Self> {
        let binary = find_binary()?;
        let directory = new_directory()?;
        let log = File::create(directory.join("log"))?;
        let mut command = Command::new(&binary);
        command.arg("run").arg("--control").arg(directory.join("control.sock"));
        for (name, options) in ports {
            let socket = directory.join(format!("{name}.sock"));
            let comma = if options.is_empty() { "" } else { "," };
            command.arg("--port");
            command.arg(format!("{name}=vm:{}{comma}{options}", socket.display()));
        }
        // Root may look into a process that is in its sandbox; other users may not.
        if !rustix::process::geteuid().is_root() {
            command.args(["--sandbox", "off"]);
        }
        command.args(more);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn()?;
        let mut process = Self { child, binary, directory };
        let mut sockets: Vec<_> = ports.iter().map(|(name, _)| process.socket(name)).collect();
        sockets.push(process.control());
        process.wait_for_sockets(&sockets)?;
        Ok(process)
    }

    /// Where the guest of a port connects.
    pub fn socket(&self, port: &str) -> PathBuf {
        self.directory.join(format!("{port}.sock"))
    }

    /// Where statistics are asked for.
    pub fn control(&self) -> PathBuf {
        self.directory.join("control.sock")
    }

    /// A directory of this instance, removed with it.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Its statistics.
    ///
    /// # Errors
    /// It does not answer.
    pub fn stats(&self) -> io::Result<StatsReply> {
        request_stats(&self.control()).map_err(io::Error::other)
    }

    /// Runs `ringway port` with these words; what it printed.
    ///
    /// # Errors
    /// It fails: the text is what it complained about.
    pub fn port(&self, words: &[&str]) -> io::Result<String> {
        let (verb, rest) = words.split_at(words.len().min(1));
        let mut command = Command::new(&self.binary);
        command.arg("port").args(verb).arg("--control").arg(self.control()).args(rest);
        let output = command.stdin(Stdio::null()).output()?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())),
        }
    }

    /// The statistics of one port.
    ///
    /// # Errors
    /// As [`stats`](Self::stats), and when there is no such port.
    pub fn port_stats(&self, port: &str) -> io::Result<PortStats> {
        let mut stats = self.stats()?;
        let at = stats.ports.iter().position(|entry| entry.name == port);
        at.map(|at| stats.ports.swap_remove(at))
            .ok_or_else(|| io::Error::other(format!("no port {port} in {stats:?}")))
    }

    /// The process id of its supervisor.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the process still runs.
    ///
    /// # Errors
    /// From the operating system.
    pub fn is_running(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Everything logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Sends SIGTERM and waits for the end.
    ///
    /// # Errors
    /// It does not end within [`WAIT_LIMIT`].
    pub fn stop(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(status);
        }
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let deadline = Instant::now() + WAIT_LIMIT;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                return Err(io::Error::other("ringway does not end after SIGTERM"));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Guest sockets are only looked at: connecting would be a guest that comes and goes. That the
    /// control socket answers shows that ringway serves.
    fn wait_for_sockets(&mut self, sockets: &[PathBuf]) -> io::Result<()> {
        let deadline = Instant::now() + WAIT_LIMIT;
        while !sockets.iter().all(|socket| socket.exists()) || self.stats().is_err() {
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("ringway ended: {status}\n{}", self.log())));
            }
            if Instant::now() > deadline {
                return Err(io::Error::other(format!("ringway not ready\n{}", self.log())));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for RingwayProcess {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- log of ringway ---\n{}--- end of log ---", self.log());
        }
        // The directory goes even if the process is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The binary under test.
fn find_binary() -> io::Result<PathBuf> {
    if let Some(binary) = std::env::var_os(BINARY_VARIABLE) {
        return Ok(binary.into());
    }
    let test = std::env::current_exe()?;
    let found =
        test.ancestors().skip(1).take(4).map(|up| up.join("ringway")).find(|at| at.is_file());
    found.ok_or_else(|| {
        let text = "ringway: not built: run `cargo build -p ringway`, or set RINGWAY_BIN";
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}

/// A new directory of a short name: socket paths have about 100 bytes.
fn new_directory() -> io::Result<PathBuf> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    for _ in 0..DIRECTORIES_MAX {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("ringway-test-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        match fs::create_dir(&directory) {
            // Of a process that was killed: in namespaces of its own it had the same number.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| directory),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}
