//! A running ringway for tests of the command line: with a configuration file or with ports, asked
//! with the program's own commands, or over its socket by hand. It ends with the test.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Longest wait for anything.
pub const LIMIT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(5);

/// Memory that a process has mapped, and uses.
#[derive(Debug)]
pub struct Memory {
    /// Mappings of files, a guest's memory among them.
    pub files: usize,
    /// Other mappings: stacks, heaps.
    pub others: usize,
    pub resident_kib: u64,
}

pub struct Ringway {
    child: Child,
    directory: PathBuf,
}

impl Ringway {
    /// Starts `ringway run` with these arguments and a control socket in the directory.
    pub fn run(directory: &Path, arguments: &[&str]) -> Self {
        Self::start(Command::new(env!("CARGO_BIN_EXE_ringway")), directory, arguments)
    }

    /// The same by that command.
    pub fn run_by(command: Command, directory: &Path, arguments: &[&str]) -> Self {
        Self::start(command, directory, arguments)
    }

    /// The notes of its data planes for each other.
    pub fn journal(&self) -> File {
        let fds = format!("/proc/{}/fd", self.pid().as_raw_nonzero());
        let is_journal = |path: &PathBuf| {
            path.read_link().is_ok_and(|to| to.to_string_lossy().contains("ringway-journal"))
        };
        let mut fds = std::fs::read_dir(fds).expect("it runs").map(|fd| fd.expect("an fd").path());
        let journal = fds.find(is_journal).expect("it has a journal");
        File::options().read(true).write(true).open(journal).expect("ours")
    }

    /// Ends it at once, as the kernel does that has no memory left.
    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("a child");
    }

    /// The same in a network namespace of its own; `None`: such a thing cannot be made here.
    pub fn run_in_namespace(directory: &Path, arguments: &[&str]) -> Option<Self> {
        let namespace = ["--map-root-user", "--net"];
        let tried = Command::new("unshare").args(namespace).arg("true").output().ok()?;
        let has_driver = Path::new("/dev/net/tun").exists();
        if !tried.status.success() || !has_driver {
            return None;
        }
        let mut command = Command::new("unshare");
        command.args(namespace).arg(env!("CARGO_BIN_EXE_ringway"));
        Some(Self::start(command, directory, arguments))
    }

    /// The same in a PID namespace of its own, as in a container; `None`: such a thing cannot be
    /// made here.
    pub fn run_in_container(directory: &Path, arguments: &[&str]) -> Option<Self> {
        let namespace = ["--map-root-user", "--pid", "--fork", "--kill-child"];
        let tried = Command::new("unshare").args(namespace).arg("true").output().ok()?;
        if !tried.status.success() {
            return None;
        }
        let mut command = Command::new("unshare");
        command.args(namespace).arg(env!("CARGO_BIN_EXE_ringway"));
        Some(Self::start(command, directory, arguments))
    }

    /// Runs a command in the namespaces of this ringway; what it prints.
    pub fn inside(&self, words: &[&str]) -> String {
        let pid = self.child.id().to_string();
        let namespaces = ["--preserve-credentials", "--user", "--net", "--target", &pid];
        let output = Command::new("nsenter").args(namespaces).args(words).output();
        let output = output.expect("nsenter is where unshare is");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Like [`run`](Self::run), with a log that goes there.
    pub fn run_logging_to(log: impl Into<Stdio>, directory: &Path, arguments: &[&str]) -> Self {
        let command = Command::new(env!("CARGO_BIN_EXE_ringway"));
        Self::start_logging_to(log.into(), command, directory, arguments)
    }

    fn start(command: Command, directory: &Path, arguments: &[&str]) -> Self {
        let log = File::create(directory.join("log")).expect("a log");
        Self::start_logging_to(log.into(), command, directory, arguments)
    }

    fn start_logging_to(
        log: Stdio,
        mut command: Command,
        directory: &Path,
        arguments: &[&str],
    ) -> Self {
        command.arg("run");
        // Root may look into a process that is in its sandbox; other users may not.
        if !rustix::process::geteuid().is_root() && !arguments.contains(&"--sandbox") {
            command.args(["--sandbox", "off"]);
        }
        let child = command
            .args(arguments)
            .arg("--control")
            .arg(directory.join("control.sock"))
            .current_dir(directory)
            .env("RINGWAY_LOG", "info")
            .env("STATE_DIRECTORY", directory)
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("ringway starts");
        let ringway = Self { child, directory: directory.to_owned() };
        wait_for("an answer", || ringway.ask(&["stats", "--json"]).status.success().then_some(()));
        ringway
    }

    /// Runs another command of ringway on this one.
    pub fn ask(&self, arguments: &[&str]) -> Output {
        let (command, rest) =
            arguments.split_at(if ["port", "forward"].contains(&arguments[0]) { 2 } else { 1 });
        Command::new(env!("CARGO_BIN_EXE_ringway"))
            .args(command)
            .arg("--control")
            .arg(self.control())
            .args(rest)
            .current_dir(&self.directory)
            .output()
            .expect("ringway runs")
    }

    /// The output of a command that must succeed.
    pub fn told(&self, arguments: &[&str]) -> String {
        let output = self.ask(arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stderr), self.log());
        text(&output.stdout)
    }

    /// The errors of a command that must fail.
    pub fn refused(&self, arguments: &[&str]) -> String {
        let output = self.ask(arguments);
        assert!(!output.status.success(), "{arguments:?} was accepted");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// The state of a port, if there is one of that name.
    pub fn state(&self, port: &str) -> Option<String> {
        let stats: Value = serde_json::from_str(&self.told(&["stats", "--json"])).expect("JSON");
        let ports = stats["ports"].as_array().expect("ports");
        let port = ports.iter().find(|entry| entry["name"] == port)?;
        port["state"].as_str().map(str::to_owned)
    }

    /// The error of a port, if it has one.
    pub fn error(&self, port: &str) -> Option<String> {
        let stats: Value = serde_json::from_str(&self.told(&["stats", "--json"])).expect("JSON");
        let ports = stats["ports"].as_array().expect("ports");
        let port = ports.iter().find(|entry| entry["name"] == port)?;
        port["error"].as_str().map(str::to_owned)
    }

    /// Asks it to stop, and waits for no longer than that.
    pub fn must_end_soon(&mut self, at_most: Duration) {
        let begun = Instant::now();
        self.signal(rustix::process::Signal::TERM);
        let ended = wait_for("the end", || self.child.try_wait().expect("a child"));
        assert!(ended.success() && begun.elapsed() < at_most, "{ended} {:?}", begun.elapsed());
    }

    /// Names of all ports.
    pub fn names(&self) -> Vec<String> {
        let list: Value =
            serde_json::from_str(&self.told(&["port", "list", "--json"])).expect("JSON");
        let ports = list["ports"].as_array().expect("ports").iter();
        ports.map(|port| port["port"]["name"].as_str().expect("a name").to_owned()).collect()
    }

    pub fn control(&self) -> PathBuf {
        self.directory.join("control.sock")
    }

    pub fn connect(&self) -> Client {
        Client::new(UnixStream::connect(self.control()).expect("a control socket"))
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// A line of the log can come after the answer to the request that caused it.
    #[track_caller]
    pub fn assert_logged(&self, part: &str) {
        wait_for(part, || self.log().contains(part).then_some(()));
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("it runs");
    }

    /// Sends SIGHUP and waits until the log says what came of it.
    pub fn reload(&self) {
        let over = |log: &str| {
            log.matches("read again").count() + log.matches("nothing has changed").count()
        };
        let before = over(&self.log());
        self.signal(rustix::process::Signal::HUP);
        wait_for("reload", || (over(&self.log()) > before).then_some(()));
    }

    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// The process that carries packets. Asks the kernel: ringway may have no descriptor left.
    pub fn data_plane(&self) -> rustix::process::Pid {
        let pid = self.child.id();
        let children = format!("/proc/{pid}/task/{pid}/children");
        let first =
            || std::fs::read_to_string(&children).ok()?.split_whitespace().next()?.parse().ok();
        rustix::process::Pid::from_raw(wait_for("a data plane", first)).expect("not 0")
    }

    /// How many file descriptors it may have.
    pub fn fds_max(&self) -> rustix::process::Rlimit {
        rustix::process::getrlimit(rustix::process::Resource::Nofile)
    }

    /// Open file descriptors, of both processes.
    pub fn fds(&self) -> usize {
        let of = |pid: rustix::process::Pid| {
            let path = format!("/proc/{}/fd", pid.as_raw_nonzero());
            std::fs::read_dir(path).expect("it runs").count()
        };
        of(self.pid()) + of(self.data_plane())
    }

    /// Open file descriptors of the supervisor alone.
    pub fn supervisor_fds(&self) -> usize {
        let path = format!("/proc/{}/fd", self.pid().as_raw_nonzero());
        std::fs::read_dir(path).expect("it runs").count()
    }

    /// The memory of the process that carries packets.
    pub fn memory(&self) -> Memory {
        Self::memory_of(self.data_plane())
    }

    /// The memory of the supervisor.
    pub fn supervisor_memory(&self) -> Memory {
        Self::memory_of(self.pid())
    }

    fn memory_of(pid: rustix::process::Pid) -> Memory {
        let pid = pid.as_raw_nonzero();
        let read =
            |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).expect("it runs");
        let status = read("status");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok());
        let maps = read("maps");
        // Behind addresses, rights, offset and device: the inode, 0 for what is not of a file.
        let is_file =
            |line: &&str| line.split_whitespace().nth(4).is_some_and(|inode| inode != "0");
        let files = maps.lines().filter(is_file).count();
        let others = maps.lines().count() - files;
        Memory { files, others, resident_kib: resident.expect("VmRSS") }
    }

    /// Processor time that both processes have used so far, in clock ticks.
    pub fn ticks(&self) -> u64 {
        let of = |pid: rustix::process::Pid| -> u64 {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
            let stat = stat.expect("it runs");
            let fields = stat.rsplit(')').next().expect("fields").split_whitespace();
            fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
        };
        of(self.pid()) + of(self.data_plane())
    }
}

impl Drop for Ringway {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of ringway ---\n{}--- end of log ---", self.log());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One connection to a control socket.
pub struct Client {
    reader: BufReader<UnixStream>,
}

impl Client {
    pub fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
        Self { reader: BufReader::new(stream) }
    }

    pub fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    /// The next line, or an empty text at the end.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        // A connection that was reset has ended too.
        let _ = self.reader.read_line(&mut line);
        line
    }

    /// Asks, and returns what is answered.
    pub fn ask(&mut self, request: &Value) -> Value {
        self.send(format!("{request}\n").as_bytes()).expect("connected");
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|why| panic!("{request}: {why}: {line}"))
    }
}

/// Tries until it works.
#[track_caller]
pub fn wait_for<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(Instant::now() < deadline, "{what}: not within {LIMIT:?}");
        sleep(PAUSE);
    }
}
