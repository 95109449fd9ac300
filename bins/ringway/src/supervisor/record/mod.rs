//! Records that a supervisor writes for the one that takes its place: JSON documents, each with the
//! file descriptors that it names by their place in a list.
//!
//! The first document is about the whole, each other one about a front-end. Fields that a reader
//! does not know are ignored; what is there is checked before anything is opened or closed.
//!
//! Limits: [`TEXT_LEN_MAX`] bytes of all documents; front-ends as in `ringway_supervisor::slots`.

pub mod file;
mod link;
mod port;

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use ringway_switch::PORTS_MAX;
use serde::{Deserialize, Serialize};

use crate::config::settings::flag;
use crate::config::{LowOption, Settings};

pub use link::{LinkHead, LinkRecord};
pub use port::{ListenerRecord, NewcomerRecord, PortRecord, TapRecord, VmRecord};

/// The version of what is written here.
pub const RECORD_VERSION: u32 = 1;
/// The same while a front-end has told a log in which written pages are to be marked: programs that
/// would not do that do not read it. No other version is read.
pub const RECORD_VERSION_LOGS: u32 = 2;

/// In a store, the key of the document about the whole.
pub const WHOLE: &str = "whole";

/// The prefix of the names of front-ends' records.
pub const LINK: &str = "link-";

/// Most bytes of all documents: as much as is kept of 256 front-ends, with room.
pub const TEXT_LEN_MAX: u64 = 256 << 20;

/// A document, and the file descriptors that it names.
pub struct Record<'a> {
    pub text: String,
    pub fds: Vec<BorrowedFd<'a>>,
}

/// The place of a file descriptor in the list of its document.
pub type FdAt = usize;

/// The file descriptors of a document that is being written.
#[derive(Default)]
pub struct Fds<'a>(Vec<BorrowedFd<'a>>);

impl<'a> Fds<'a> {
    pub fn put(&mut self, fd: BorrowedFd<'a>) -> FdAt {
        self.0.push(fd);
        self.0.len() - 1
    }

    /// The document of that value.
    ///
    /// # Errors
    /// It has a path that is no text.
    pub fn with(self, value: &impl Serialize) -> anyhow::Result<Record<'a>> {
        Ok(Record { text: serde_json::to_string(value)?, fds: self.0 })
    }
}

/// A document that was read, with its file descriptors.
pub struct StoredRecord {
    pub text: String,
    pub fds: RecordFds,
}

/// Each may be taken once; those that are not are closed.
#[derive(Default)]
pub struct RecordFds(Vec<Option<OwnedFd>>);

impl RecordFds {
    pub fn new(fds: impl IntoIterator<Item = Option<OwnedFd>>) -> Self {
        Self(fds.into_iter().collect())
    }

    /// # Errors
    /// It did not come along.
    pub fn take(&mut self, at: FdAt) -> anyhow::Result<OwnedFd> {
        let fd = self.0.get_mut(at).and_then(Option::take);
        fd.with_context(|| format!("file descriptor {at} did not come along"))
    }
}

/// Everything that is of no front-end.
#[derive(Debug, Serialize, Deserialize)]
pub struct Whole {
    version: u32,
    /// When it was started, by the clock that counts from the start of the machine.
    pub started_ms: u64,
    settings: Vec<(String, String)>,
    over: Vec<(String, String)>,
    pub workers: u16,
    /// The machine's id, which default MAC addresses follow.
    pub machine: String,
    instance: String,
    pub file: Option<PathBuf>,
    pub control: ListenerRecord,
    pub clients: Vec<ClientRecord>,
    pub ports: Vec<PortRecord>,
    pub plane: Option<PlaneRecord>,
    pub journal: Option<FdAt>,
    /// How it was made; its head may say anything.
    #[serde(default)]
    pub journal_layout: Option<u16>,
    pub next: Numbers,
    pub counts: CountsRecord,
    pub quarantined: Vec<u16>,
    /// The data plane that was not to go on: whether its process has ended.
    pub ended: Option<FdAt>,
    /// Names of what a service manager keeps.
    pub stored: Vec<String>,
    /// The client that is to be answered that the supervisor was replaced.
    pub asked: Option<AskedRecord>,
    /// Streams with a byte for each signal that was caught: to stop, and to read the file again.
    #[serde(default)]
    pub caught: Option<[FdAt; 2]>,
}

/// The data plane that goes on.
#[derive(Debug, Serialize, Deserialize)]
pub struct PlaneRecord {
    pub number: u32,
    pub pid: i32,
    pub channel: FdAt,
    pub may_route: bool,
    /// The version of what both speak; an older program does not say it.
    pub speaks: Option<u16>,
}

/// A client of the control socket.
#[derive(Debug, Serialize, Deserialize)]
pub struct ClientRecord {
    pub slot: usize,
    pub serial: u64,
    pub stream: FdAt,
    pub is_waiting: bool,
    pub input: String,
    pub output: String,
}

/// The client that has asked for an upgrade, and for how long packets waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedRecord {
    pub slot: usize,
    pub serial: u64,
    pub stall_us: u64,
}

/// The numbers that were given out last.
#[derive(Debug, Serialize, Deserialize)]
pub struct Numbers {
    pub plane: u32,
    pub order: u32,
    pub ask: u32,
    pub link: u32,
    pub client: u64,
}

/// For statistics.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct CountsRecord {
    pub deaths: u64,
    pub upgrades: u64,
    #[serde(default)]
    pub forbidden_call: Option<u32>,
}

/// Settings, the options that count more than a file's, and what default MAC addresses follow.
pub struct Common<'a> {
    pub settings: &'a Settings,
    pub over: &'a [LowOption],
    pub identity: (&'a str, &'a [u8]),
}

impl Whole {
    /// A record without ports, clients, a data plane and a file, with all counts at their start.
    pub fn new(common: &Common<'_>, control: ListenerRecord) -> Self {
        let text = |(key, value): (&str, String)| (key.to_owned(), value);
        let over = common.over.iter();
        Self {
            version: RECORD_VERSION,
            started_ms: 0,
            settings: common.settings.written().into_iter().map(text).collect(),
            over: over.map(|option| (option.key.clone(), option.value.clone())).collect(),
            workers: 1,
            machine: common.identity.0.to_owned(),
            instance: hex(common.identity.1),
            file: None,
            control,
            clients: vec![],
            ports: vec![],
            plane: None,
            journal: None,
            journal_layout: None,
            next: Numbers { plane: 0, order: 0, ask: 0, link: 0, client: 0 },
            counts: CountsRecord::default(),
            quarantined: vec![],
            ended: None,
            stored: vec![],
            asked: None,
            caught: None,
        }
    }

    /// Only programs that mark written pages in a front-end's log may go on from here.
    pub fn needs_log(&mut self) {
        self.version = RECORD_VERSION_LOGS;
    }

    /// Reads the first document.
    ///
    /// # Errors
    /// It is of another version, or says what cannot be.
    pub fn read(text: &str) -> anyhow::Result<Self> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let Version { version } = serde_json::from_str(text).context("its record")?;
        ensure!(
            (RECORD_VERSION..=RECORD_VERSION_LOGS).contains(&version),
            "the record has version {version}, and this program reads versions {RECORD_VERSION} to \
             {RECORD_VERSION_LOGS}"
        );
        let whole: Self = serde_json::from_str(text).context("its record")?;
        ensure!(whole.ports.len() <= PORTS_MAX, "more than {PORTS_MAX} ports");
        whole.settings()?;
        whole.instance()?;
        for port in &whole.ports {
            port.spec()?;
            port.as_in_file()?;
        }
        Ok(whole)
    }

    /// # Errors
    /// One of them is none.
    pub fn settings(&self) -> anyhow::Result<Settings> {
        let written: Vec<_> = self.settings.iter().map(|(key, to)| flag(key, to)).collect();
        let mut settings = Settings::new("".into());
        if let Some(why) = settings.change(&written).first() {
            bail!("{why}");
        }
        ensure!(!settings.control.as_os_str().is_empty(), "no control socket");
        Ok(settings)
    }

    pub fn over(&self) -> Vec<LowOption> {
        self.over.iter().map(|(key, to)| flag(key, to)).collect()
    }

    /// # Errors
    /// It is not hexadecimal.
    pub fn instance(&self) -> anyhow::Result<Vec<u8>> {
        unhex(&self.instance).context("bytes that are not hexadecimal")
    }
}

pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digits = |byte: &u8| [byte >> 4, byte & 15].map(|half| DIGITS[usize::from(half)]);
    bytes.iter().flat_map(digits).collect()
}

pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let half = |digit: u8| char::from(digit).to_digit(16);
    let byte = |pair: &[u8]| u8::try_from(half(pair[0])? << 4 | half(*pair.get(1)?)?).ok();
    text.as_bytes().chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(has_log: bool) -> String {
        let settings = Settings::new("/run/control.sock".into());
        let common = Common { settings: &settings, over: &[], identity: ("machine", &[1]) };
        let path = PathBuf::from("/run/control.sock");
        let control = ListenerRecord { fd: 0, path, file: (0, 0), made_for: (0, 0) };
        let mut whole = Whole::new(&common, control);
        if has_log {
            whole.needs_log();
        }
        serde_json::to_string(&whole).expect("a document")
    }

    /// Programs before those that mark pages read version 1 alone.
    #[test]
    fn a_record_says_that_written_pages_are_to_be_marked() {
        for (has_log, version) in [(false, 1), (true, 2)] {
            let text = written(has_log);
            assert!(text.contains(&format!("\"version\":{version},")), "{text}");
            Whole::read(&text).expect("both are read");
        }
        let later = written(true).replace("\"version\":2,", "\"version\":3,");
        let why = Whole::read(&later).expect_err("it is not known").to_string();
        assert!(why.contains("version 3") && why.contains("1 to 2"), "{why}");
    }
}
