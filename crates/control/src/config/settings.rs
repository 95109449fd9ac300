//! What concerns ringway as a whole and no single port: one table, as for the options of ports.

use std::path::PathBuf;

use ringway_net::PollOptions;
use ringway_net::TapCalls;

use super::error::{Origin, SpecError, Syntax};
use super::port::LowOption;
use super::values::{
    Account, check_socket, parse_count, parse_group, parse_mode, parse_processors,
};
use super::values::{parse_percent, parse_poll, parse_switch, parse_tap_calls};

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
    /// What it is called.
    pub key: &'static str,
    /// What it takes, for people.
    pub value: &'static str,
    /// What holds without it, for people.
    pub default: &'static str,
    /// What it does.
    pub about: &'static str,
    field: Field,
}

#[derive(Debug, Clone, Copy)]
enum Field {
    Control,
    ControlMode,
    ControlGroup,
    SnoopMulticast,
    FdbAge,
    Workers,
    Pin,
    Poll,
    PollBudget,
    TapWrites,
    TapReads,
    Sandbox,
    NoPorts,
}

/// All of them, in the order of the documentation.
pub const SETTINGS: &[Setting] = &[
    Setting {
        key: "control",
        value: "path",
        default: "by user",
        about: "the control socket: `ringway.sock` in `$XDG_RUNTIME_DIR`, or in `/run` as root, or \
                in `/tmp/ringway-UID`",
        field: Field::Control,
    },
    Setting {
        key: "control_mode",
        value: "octal digits",
        default: "0600",
        about: "permissions of the control socket's file",
        field: Field::ControlMode,
    },
    Setting {
        key: "control_group",
        value: "name or number",
        default: "none",
        about: "a group whose members may use the control socket; its file belongs to that group",
        field: Field::ControlGroup,
    },
    Setting {
        key: "snoop_multicast",
        value: "on or off",
        default: "off",
        about: "packets to a multicast group go only to ports that asked for it (IGMP and MLD)",
        field: Field::SnoopMulticast,
    },
    Setting {
        key: "fdb_age",
        value: "seconds",
        default: "300",
        about: "a station that was not heard for so long is not known any more: what is for it \
                goes to all",
        field: Field::FdbAge,
    },
    Setting {
        key: "workers",
        value: "number or auto",
        default: "1",
        about: "how many threads carry packets: worker i owns queue pair i of every port; \
                auto: as many as ports have queues and the machine has processors",
        field: Field::Workers,
    },
    Setting {
        key: "pin",
        value: "processors",
        default: "none",
        about: "the processor of each worker, such as 0,1",
        field: Field::Pin,
    },
    Setting {
        key: "poll",
        value: "auto, always or never",
        default: "auto",
        about: "whether a worker that has nothing to do looks for packets before it sleeps; auto: \
                as long as recent packets say that it pays",
        field: Field::Poll,
    },
    Setting {
        key: "poll_budget",
        value: "percent",
        default: "10%",
        about: "the share of one processor that each worker may spend on looking for packets that \
                do not come; for `poll = auto`",
        field: Field::PollBudget,
    },
    Setting {
        key: "tap_writes",
        value: "auto, plain or io_uring",
        default: "auto",
        about: "how packets are written to taps: one system call each, or several at once with \
                io_uring; auto: as a measurement at the start says; for taps opened later",
        field: Field::TapWrites,
    },
    Setting {
        key: "tap_reads",
        value: "auto, plain or io_uring",
        default: "auto",
        about: "how packets are read from taps while many short ones wait: one system call each, \
                or several at once with io_uring; auto: as a measurement at the start says; for \
                taps opened later",
        field: Field::TapReads,
    },
    Setting {
        key: "sandbox",
        value: "on or off",
        default: "on",
        about: "whether ringway gives up, at its start, rights that it has no use for; off: for \
                debuggers, which cannot look into it otherwise",
        field: Field::Sandbox,
    },
    Setting {
        key: "no_ports",
        value: "on or off",
        default: "off",
        about: "the file has no ports, and that is meant: without it, a file that has none any \
                more is refused on SIGHUP",
        field: Field::NoPorts,
    },
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
        let LowOption { origin, key, value } = option;
        let Some(setting) = SETTINGS.iter().find(|setting| setting.key == key) else {
            return Err(origin.unknown_key("setting", key, &keys()));
        };
        match setting.field {
            Field::Control => {
                let path = PathBuf::from(value);
                check_socket(origin, &path)?;
                self.control = path;
            }
            Field::ControlMode => self.control_mode = parse_mode(origin, value)?,
            Field::Workers if value == "auto" => self.workers = None,
            Field::Workers => {
                self.workers = Some(parse_count(origin, setting.key, value, WORKERS_MAX)?);
            }
            Field::Pin => self.pins = parse_processors(origin, value)?,
            Field::Poll => self.poll.mode = parse_poll(origin, value)?,
            Field::PollBudget => self.poll.budget_percent = parse_percent(origin, key, value)?,
            Field::TapWrites => self.tap_writes = parse_tap_calls(origin, value)?,
            Field::TapReads => self.tap_reads = parse_tap_calls(origin, value)?,
            Field::ControlGroup => self.control_group = Some(parse_group(origin, value)?),
            Field::Sandbox => self.sandbox = parse_switch(origin, key, value)?,
            Field::NoPorts => self.no_ports = parse_switch(origin, key, value)?,
            Field::SnoopMulticast => self.snoop_multicast = parse_switch(origin, key, value)?,
            Field::FdbAge => self.fdb_age = parse_count(origin, key, value, u16::MAX)?,
        }
        Ok(())
    }

    /// What is no default, key by key, as it would be written down; a path that is no text is left
    /// out.
    pub fn written(&self) -> Vec<(&'static str, String)> {
        let is_default = |setting: &&Setting| match setting.field {
            Field::Control => self.control.to_str().is_none(),
            // Beside a group it would say that the group may not.
            Field::ControlMode => self.control_mode == CONTROL_MODE,
            Field::ControlGroup => self.control_group.is_none(),
            Field::Pin => self.pins.is_empty(),
            // An older data plane does not know it.
            Field::FdbAge => self.fdb_age == FDB_AGE_S,
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
    /// What it is, as in a file.
    pub fn value_of(&self, settings: &Settings) -> String {
        let switch = |is_on: bool| if is_on { "on" } else { "off" }.to_owned();
        match self.field {
            Field::Control => settings.control.display().to_string(),
            Field::ControlMode => format!("{:04o}", settings.file_mode()),
            Field::ControlGroup => {
                settings.control_group.as_ref().map_or("none".into(), |group| group.name.clone())
            }
            Field::SnoopMulticast => switch(settings.snoop_multicast),
            Field::FdbAge => settings.fdb_age.to_string(),
            Field::Workers => settings.workers.map_or("auto".into(), |count| count.to_string()),
            Field::Pin => settings.pins.iter().map(u16::to_string).collect::<Vec<_>>().join(","),
            Field::Poll => settings.poll.mode.to_string(),
            Field::PollBudget => format!("{}%", settings.poll.budget_percent),
            Field::TapWrites => calls(settings.tap_writes).to_owned(),
            Field::TapReads => calls(settings.tap_reads).to_owned(),
            Field::Sandbox => switch(settings.sandbox),
            Field::NoPorts => switch(settings.no_ports),
        }
    }
}

/// How taps are written or read, as in a file.
fn calls(calls: TapCalls) -> &'static str {
    match calls {
        TapCalls::Auto => "auto",
        TapCalls::Plain => "plain",
        TapCalls::IoUring => "io_uring",
    }
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
