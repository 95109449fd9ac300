//! Settings of ringway as a whole and of no single port: one table, as for the options of ports.

use std::path::PathBuf;

use ringway_net::PollOptions;
use ringway_net::TapCalls;

use super::error::{Origin, SpecError, Syntax};
use super::kind::SWITCH;
use super::port::LowOption;
use super::values::{
    Account, check_socket, parse_choice, parse_count, parse_group, parse_mode, parse_percent,
    parse_poll, parse_processors, parse_tap_calls,
};

/// Permissions of the control socket's file if nothing else is said: its owner's.
pub const CONTROL_MODE: u32 = 0o600;

/// Seconds after which stations are forgotten if nothing else is said, as usual for bridges.
const FDB_AGE_S: u16 = 300;

/// Most workers; each two of them have rings between them.
const WORKERS_MAX: u16 = 32;

/// Everything beside the ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where to answer questions and take orders.
    pub control: PathBuf,
    /// Permissions of that socket's file.
    pub control_mode: u32,
    /// A group whose members may do so too.
    pub control_group: Option<Account>,
    /// Whether multicast goes only where it was asked for.
    pub snoop_multicast: bool,
    /// Seconds after which a station that was not heard is forgotten.
    pub fdb_age: u16,
    /// How many workers carry packets; `None`: as many as ports have queue pairs and the machine
    /// has processors.
    pub workers: Option<u16>,
    /// The processor of each worker; those beyond the list run anywhere.
    pub pins: Vec<u16>,
    /// Whether workers poll before they sleep.
    pub poll: PollOptions,
    /// How packets are written to taps.
    pub tap_writes: TapCalls,
    /// How packets are read from taps.
    pub tap_reads: TapCalls,
    /// Whether rights are given up that a running ringway has no use for.
    pub sandbox: bool,
    /// The file has no ports, and that is meant.
    pub no_ports: bool,
}

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// The name of the setting.
    pub key: &'static str,
    /// The values that it takes, for people.
    pub value: &'static str,
    /// The value without it, for people.
    pub default: &'static str,
    /// The effect of the setting, for people.
    pub about: &'static str,
    read: Read,
    write: fn(&Settings) -> String,
}

/// Reads what was written down.
type Read = fn(&mut Settings, &LowOption) -> Result<(), SpecError>;

/// A row: the key, what reads it into the settings, and what writes it.
macro_rules! setting {
    ($key:expr, |$to:ident, $it:ident| $read:expr, |$of:ident| $write:expr) => {{
        let read: Read = |$to, $it| {
            $read;
            Ok(())
        };
        Setting { key: $key, value: "", default: "", about: "", read, write: |$of| $write }
    }};
}

/// All of them, in the order of the documentation.
pub const SETTINGS: &[Setting] = &[
    setting!("control", |to, it| to.control = path(it)?, |of| of.control.display().to_string())
        .takes("path", "by user")
        .about(
            "the control socket: `ringway.sock` in `$XDG_RUNTIME_DIR`, or in `/run` as root, or \
             in `/tmp/ringway-UID`",
        ),
    setting!(
        "control_mode",
        |to, it| to.control_mode = parse_mode(&it.origin, &it.value)?,
        |of| format!("{:04o}", of.file_mode())
    )
    .takes("octal digits", "0600")
    .about("permissions of the control socket's file"),
    setting!(
        "control_group",
        |to, it| to.control_group = Some(parse_group(&it.origin, &it.value)?),
        |of| group(of)
    )
    .takes("name or number", "none")
    .about("a group whose members may use the control socket; its file belongs to that group"),
    setting!("snoop_multicast", |to, it| to.snoop_multicast = switch(it)?, |of| on_or_off(
        of.snoop_multicast
    ))
    .takes("on or off", "off")
    .about("packets to a multicast group go only to ports that asked for it (IGMP and MLD)"),
    setting!("fdb_age", |to, it| to.fdb_age = count(it, u16::MAX)?, |of| of.fdb_age.to_string())
        .takes("seconds", "300")
        .about(
            "a station that was not heard for so long is not known any more: what is for it goes \
             to all",
        ),
    setting!("workers", |to, it| to.workers = workers(it)?, |of| of
        .workers
        .map_or("auto".into(), |count| count.to_string()))
    .takes("number or auto", "1")
    .about(
        "how many threads carry packets: worker i owns queue pair i of every port; auto: as \
             many as ports have queues and the machine has processors",
    ),
    setting!("pin", |to, it| to.pins = parse_processors(&it.origin, &it.value)?, |of| of
        .pins
        .iter()
        .map(u16::to_string)
        .collect::<Vec<_>>()
        .join(","))
    .takes("processors", "none")
    .about("the processor of each worker, such as 0,1"),
    setting!("poll", |to, it| to.poll.mode = parse_poll(&it.origin, &it.value)?, |of| of
        .poll
        .mode
        .to_string())
    .takes("auto, always or never", "auto")
    .about(
        "whether a worker that has nothing to do looks for packets before it sleeps; auto: as \
             long as recent packets say that it pays",
    ),
    setting!(
        "poll_budget",
        |to, it| to.poll.budget_percent = parse_percent(&it.origin, &it.key, &it.value)?,
        |of| format!("{}%", of.poll.budget_percent)
    )
    .takes("percent", "10%")
    .about(
        "the share of one processor that each worker may spend on looking for packets that do \
             not come; for `poll = auto`",
    ),
    setting!(
        "tap_writes",
        |to, it| to.tap_writes = parse_tap_calls(&it.origin, &it.value)?,
        |of| calls(of.tap_writes)
    )
    .takes("auto, plain or io_uring", "auto")
    .about(
        "how packets are written to taps: one system call each, or several at once with \
             io_uring; auto: as a measurement at the start says; for taps opened later",
    ),
    setting!("tap_reads", |to, it| to.tap_reads = parse_tap_calls(&it.origin, &it.value)?, |of| {
        calls(of.tap_reads)
    })
    .takes("auto, plain or io_uring", "auto")
    .about(
        "how packets are read from taps while many short ones wait: one system call each, or \
             several at once with io_uring; auto: as a measurement at the start says; for taps \
             opened later",
    ),
    setting!("sandbox", |to, it| to.sandbox = switch(it)?, |of| on_or_off(of.sandbox))
        .takes("on or off", "on")
        .about(
            "whether ringway gives up, at its start, rights that it has no use for; off: for \
             debuggers, which cannot look into it otherwise",
        ),
    setting!("no_ports", |to, it| to.no_ports = switch(it)?, |of| on_or_off(of.no_ports))
        .takes("on or off", "off")
        .about(
            "the file has no ports, and that is meant: without it, a file that has none any more \
             is refused on SIGHUP",
        ),
];

/// Every key, in the order of the table.
pub fn keys() -> Vec<&'static str> {
    SETTINGS.iter().map(|setting| setting.key).collect()
}

impl Settings {
    /// Nothing but defaults, with the control socket at `control`.
    pub fn new(control: PathBuf) -> Self {
        Self {
            control,
            control_mode: CONTROL_MODE,
            control_group: None,
            snoop_multicast: false,
            fdb_age: FDB_AGE_S,
            workers: Some(1),
            pins: Vec::new(),
            poll: PollOptions::default(),
            tap_writes: TapCalls::default(),
            tap_reads: TapCalls::default(),
            sandbox: true,
            no_ports: false,
        }
    }

    /// Sets what was written down; the last one of a key counts. Gives everything that is wrong.
    pub fn change(&mut self, written: &[LowOption]) -> Vec<SpecError> {
        let mut errors: Vec<SpecError> =
            written.iter().filter_map(|option| self.set(option).err()).collect();
        if errors.is_empty() {
            errors.extend(self.contradiction(written));
        }
        errors
    }

    fn set(&mut self, option: &LowOption) -> Result<(), SpecError> {
        let LowOption { origin, key, .. } = option;
        let Some(setting) = SETTINGS.iter().find(|setting| setting.key == key) else {
            return Err(origin.unknown_key("setting", key, &keys()));
        };
        (setting.read)(self, option)
    }

    /// The settings that are no defaults, key by key, as they would be written down; a path that is
    /// no text is left out.
    pub fn written(&self) -> Vec<(&'static str, String)> {
        let is_default = |setting: &&Setting| match setting.key {
            "control" => self.control.to_str().is_none(),
            // Beside a group it would say that the group may not.
            "control_mode" => self.control_mode == CONTROL_MODE,
            "control_group" => self.control_group.is_none(),
            "pin" => self.pins.is_empty(),
            // An older data plane does not know it.
            "fdb_age" => self.fdb_age == FDB_AGE_S,
            _ => false,
        };
        let all = SETTINGS.iter().filter(|setting| !is_default(setting));
        all.map(|setting| (setting.key, setting.value_of(self))).collect()
    }

    /// A named group must be able to open the file: `control_mode` may not forbid it.
    fn contradiction(&self, written: &[LowOption]) -> Option<SpecError> {
        const GROUP_MAY_USE: u32 = 0o060;
        let group = self.control_group.as_ref()?;
        let mode = written.iter().find(|option| option.key == "control_mode")?;
        if self.control_mode & GROUP_MAY_USE == GROUP_MAY_USE {
            return None;
        }
        let wrong = format!("group {} may use a socket that it cannot open", group.name);
        let advice = format!("write {}, or leave it out", mode.origin.assign(&mode.key, "0660"));
        Some(mode.origin.wrong(wrong, advice))
    }

    /// Permissions of the file: a group that is named can open it if nothing else was said.
    pub fn file_mode(&self) -> u32 {
        match (&self.control_group, self.control_mode) {
            (Some(_), CONTROL_MODE) => 0o660,
            (_, mode) => mode,
        }
    }
}

impl Setting {
    const fn takes(self, value: &'static str, default: &'static str) -> Self {
        Self { value, default, ..self }
    }

    const fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    /// The value of the setting, as in a file.
    pub fn value_of(&self, settings: &Settings) -> String {
        (self.write)(settings)
    }
}

fn path(it: &LowOption) -> Result<PathBuf, SpecError> {
    let path = PathBuf::from(&it.value);
    check_socket(&it.origin, &path)?;
    Ok(path)
}

fn switch(it: &LowOption) -> Result<bool, SpecError> {
    parse_choice(&it.origin, &it.key, &it.value, SWITCH.0)
}

fn count(it: &LowOption, max: u16) -> Result<u16, SpecError> {
    parse_count(&it.origin, &it.key, &it.value, max)
}

fn workers(it: &LowOption) -> Result<Option<u16>, SpecError> {
    if it.value == "auto" { Ok(None) } else { count(it, WORKERS_MAX).map(Some) }
}

fn on_or_off(is_on: bool) -> String {
    if is_on { "on" } else { "off" }.to_owned()
}

fn group(settings: &Settings) -> String {
    settings.control_group.as_ref().map_or("none".into(), Account::to_string)
}

/// How taps are written or read, as in a file.
fn calls(calls: TapCalls) -> String {
    let word = match calls {
        TapCalls::Auto => "auto",
        TapCalls::Plain => "plain",
        TapCalls::IoUring => "io_uring",
    };
    word.to_owned()
}

/// A setting given as a flag of its own.
pub fn flag(key: &str, value: &str) -> LowOption {
    let typed = format!("--{} {value}", key.replace('_', "-"));
    let origin = Origin { typed, syntax: Syntax::LongFlag };
    LowOption { origin, key: key.into(), value: value.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let typed = [
            ("control_mode", "0660"),
            ("control_group", "0"),
            ("snoop_multicast", "on"),
            ("fdb_age", "60"),
            ("workers", "auto"),
            ("workers", "3"),
            ("pin", "0,2"),
            ("poll", "never"),
            ("poll_budget", "7%"),
            ("tap_writes", "io_uring"),
            ("tap_reads", "plain"),
            ("sandbox", "off"),
            ("no_ports", "on"),
        ];
        for count in 0..=typed.len() {
            let mut sent = Settings::new("c.sock".into());
            let options: Vec<_> = typed[..count].iter().map(|(key, to)| flag(key, to)).collect();
            assert_eq!(sent.change(&options), []);
            let written: Vec<_> = sent.written().iter().map(|(key, to)| flag(key, to)).collect();
            let mut read = Settings::new("elsewhere".into());
            assert_eq!((read.change(&written), &read), (vec![], &sent));
        }
    }
}
