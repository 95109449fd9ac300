//! Two Linux guests under User Mode Linux: found, booted, listened to.
//!
//! How: each guest is one `linux.uml` with this machine's file system as its root, read-only, and
//! one script (`guest.sh`) as its only program. What the script says on the console is the result.
//!
//! Limits: no root and no KVM needed; each guest has [`MEMORY`], boots within [`BOOT_LIMIT`], and
//! everything it needs comes from the packages in [`INSTALL`].

use std::ffi::OsString;
use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use ringway_guests::uml::PRELOAD;

use super::Stage;
use super::console::Console;
use super::keeper::Kept;
use super::measured::{self, Measured, RoundTrip};
use super::switch::{GUESTS, socket};

/// How to get everything on Debian.
pub const INSTALL: &str = "apt-get install user-mode-linux iperf3 iputils-ping iproute2 kmod mount";

/// A guest's memory, in the kernel's notation.
const MEMORY: &str = "256M";

/// Longest time from the start of a guest until it can talk to the other one.
const BOOT_LIMIT: Duration = Duration::from_secs(25);

/// Longest time for 200 echo requests.
const PING_LIMIT: Duration = Duration::from_secs(10);

/// Length of each measurement of throughput.
const SECONDS: u64 = 4;

/// Longest time for one, with its retries.
const THROUGHPUT_LIMIT: Duration = Duration::from_secs(SECONDS + 12);

const SCRIPT: &str = include_str!("guest.sh");

/// Where Debian has the guest kernel's modules.
const MODULES: &str = "/usr/lib/uml/modules";

/// What runs inside the guests; all of it is on the host.
const PROGRAMS: [&str; 5] = ["iperf3", "ping", "ip", "insmod", "mount"];

/// Where guests look for programs.
const DIRECTORIES: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// The programs of the host that are needed.
pub struct Tools {
    linux: PathBuf,
}

/// What is not installed.
#[derive(Debug)]
pub struct Missing(Vec<String>);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} not found: {INSTALL}", self.0.join(", "))
    }
}

impl Tools {
    /// Looks for everything at once.
    pub fn find() -> Result<Self, Missing> {
        let linux = find_program("linux.uml");
        let mut missing: Vec<String> = Vec::new();
        missing.extend(linux.is_none().then(|| "linux.uml".to_string()));
        missing.extend((!Path::new(MODULES).is_dir()).then(|| MODULES.to_string()));
        let absent = PROGRAMS.iter().filter(|program| find_program(program).is_none());
        missing.extend(absent.map(|program| (*program).to_string()));
        match linux {
            Some(linux) if missing.is_empty() => Ok(Self { linux }),
            _ => Err(Missing(missing)),
        }
    }
}

fn find_program(name: &str) -> Option<PathBuf> {
    DIRECTORIES.iter().map(|directory| Path::new(directory).join(name)).find(|path| path.is_file())
}

/// One running guest.
struct Guest<'a> {
    stage: &'a Stage<'a>,
    name: &'static str,
    process: Kept,
    console: Console,
}

/// Boots both guests and lets them measure; `ask` is called while both are connected.
///
/// # Errors
/// A guest does not boot or cannot measure; the text contains the end of its console.
pub fn measure(
    stage: &Stage<'_>,
    tools: &Tools,
    ask: &mut dyn FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Measured> {
    stage.progress.step("booting two Linux guests");
    let script = stage.directory.file("guest.sh");
    std::fs::write(&script, SCRIPT).context("writing the guests' program")?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
    std::fs::write(preload(stage), PRELOAD).context("writing what comes in front of the guests")?;
    let [name_a, name_b] = GUESTS;
    let mut a = Guest::boot(stage, tools, name_a)?;
    let mut b = Guest::boot(stage, tools, name_b)?;
    let version = a.wait_for("ready", BOOT_LIMIT)?;
    b.wait_for("ready", BOOT_LIMIT)?;
    stage.progress.step("measuring the round trip between them");
    let ping = b.wait_for("round-trip", PING_LIMIT)?;
    let round_trip = RoundTrip::from_ping(&ping).with_context(|| format!("ping: {ping}"))?;
    stage.progress.step("measuring throughput from b to a");
    let b_to_a = b.throughput("b-to-a")?;
    stage.progress.step("measuring throughput from a to b");
    let a_to_b = b.throughput("a-to-b")?;
    ask()?;
    Ok(Measured {
        guests: format!("Linux {version} (User Mode Linux)"),
        a_to_b_bits_per_second: a_to_b,
        b_to_a_bits_per_second: b_to_a,
        round_trip,
    })
}

impl<'a> Guest<'a> {
    fn boot(stage: &'a Stage<'a>, tools: &Tools, name: &'static str) -> anyhow::Result<Self> {
        let log = stage.directory.file(&format!("guest-{name}.log"));
        let command = command(stage, tools, name);
        let process =
            Kept::start(&command, &log, None).with_context(|| format!("starting guest {name}"))?;
        Ok(Self { stage, name, process, console: Console::new(log) })
    }

    /// Waits until the guest says `word`, and returns what else it says.
    fn wait_for(&mut self, word: &str, limit: Duration) -> anyhow::Result<String> {
        let found = self.stage.patience.wait_for(limit, || {
            let ended = self.process.has_ended();
            let message = self.console.message(word);
            if message.is_none() && ended {
                return Err(self.failure("ended"));
            }
            Ok(message)
        })?;
        match found {
            Some(message) if message.is_failure() => Err(self.failure(&message.text)),
            Some(message) => Ok(message.text),
            None => Err(self.failure(&format!("no {word:?} within {} s", limit.as_secs()))),
        }
    }

    fn throughput(&mut self, word: &str) -> anyhow::Result<f64> {
        let text = self.wait_for(word, THROUGHPUT_LIMIT)?;
        match measured::bits_per_second(&text) {
            Ok(rate) => Ok(rate),
            Err(why) => bail!("guest {}: {why}", self.name),
        }
    }

    fn failure(&self, why: &str) -> anyhow::Error {
        let tail = self.stage.directory.log_tail(&format!("guest-{}.log", self.name));
        anyhow!("guest {}: {why}; the end of its console:\n{tail}", self.name)
    }
}

/// Where the library is that comes in front of User Mode Linux's `ptrace`.
fn preload(stage: &Stage<'_>) -> PathBuf {
    stage.directory.file("xstate.so")
}

fn command(stage: &Stage<'_>, tools: &Tools, name: &str) -> Vec<OsString> {
    let directory = stage.directory.path().display();
    let script = stage.directory.file("guest.sh");
    let socket = socket(stage, name);
    // The memory must be on /dev/shm and not where the user keeps temporary files.
    let without = ["TMPDIR", "TMP", "TEMP"].map(|variable| format!("--unset={variable}"));
    let mut command: Vec<OsString> = vec!["/usr/bin/env".into()];
    command.extend(without.map(OsString::from));
    command.push(format!("LD_PRELOAD={}", preload(stage).display()).into());
    command.push(tools.linux.clone().into());
    let arguments = [
        format!("mem={MEMORY}"),
        "root=/dev/root rootfstype=hostfs rootflags=/ ro".to_string(),
        format!("init={}", script.display()),
        "con=null con0=null,fd:1 quiet loglevel=4".to_string(),
        format!("virtio_uml.device={}:1", socket.display()),
        // Its own run-time files: not in the user's home directory.
        format!("uml_dir={directory}/ umid={name}"),
        format!("role={name} seconds={SECONDS}"),
    ];
    command.extend(arguments.iter().flat_map(|words| words.split(' ')).map(OsString::from));
    command
}
