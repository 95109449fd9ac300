//! Where a capture is written: a file that stays readable whatever happens, or a pipe.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// Stands for standard output.
const STANDARD_OUTPUT: &str = "-";

/// The output.
pub enum Output {
    /// A file, or what has the name of one.
    File {
        file: File,
        path: PathBuf,
        written: u64,
    },
    Standard {
        written: u64,
    },
}

/// Why nothing more can be written.
pub enum Ended {
    /// The program that read it has ended.
    Unread,
    /// For another reason; so many blocks of the last ones are not in it.
    Refused { why: anyhow::Error, blocks_lost: u64 },
}

impl Output {
    /// Opens the file, or takes standard output.
    ///
    /// # Errors
    /// It cannot be made, or is a terminal.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        if path != Path::new(STANDARD_OUTPUT) {
            let shown = path.display();
            let file = File::create(path).with_context(|| format!("{shown}: cannot be written"))?;
            return Ok(Self::File { file, path: path.to_owned(), written: 0 });
        }
        if io::stdout().is_terminal() {
            bail!("a capture is no text: name a file, or add `| tcpdump -r -`");
        }
        Ok(Self::Standard { written: 0 })
    }

    /// Bytes so far.
    pub fn written(&self) -> u64 {
        match self {
            Self::File { written, .. } | Self::Standard { written } => *written,
        }
    }

    /// Writes whole blocks, which end at `ends`. If not all fit, the file ends with the last one
    /// that does.
    ///
    /// # Errors
    /// It takes no more.
    pub fn write(&mut self, bytes: &[u8], ends: &[usize]) -> Result<(), Ended> {
        let (done, outcome) = match self {
            Self::File { file, .. } => write_all(file, bytes),
            Self::Standard { .. } => write_all(&mut io::stdout().lock(), bytes),
        };
        let whole = ends.iter().copied().filter(|end| *end <= done).max().unwrap_or(0);
        let before = self.written();
        match self {
            Self::File { written, .. } | Self::Standard { written } => *written += whole as u64,
        }
        let Err(why) = outcome else { return Ok(()) };
        if why.kind() == io::ErrorKind::BrokenPipe {
            return Err(Ended::Unread);
        }
        let lost = ends.iter().filter(|end| **end > done).count();
        let why = match self {
            Self::File { file, path, .. } => {
                // Half a block would be an error for readers. A pipe has no length.
                let _ = file.set_len(before + whole as u64);
                anyhow::Error::new(why).context(path.display().to_string())
            }
            Self::Standard { .. } => anyhow::Error::new(why).context("standard output"),
        };
        Err(Ended::Refused { why, blocks_lost: lost as u64 })
    }
}

/// How many bytes were written, and why not all.
fn write_all(to: &mut impl Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut done = 0;
    while done < bytes.len() {
        match to.write(&bytes[done..]) {
            Ok(0) => return (done, Err(io::ErrorKind::WriteZero.into())),
            Ok(len) => done += len,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return (done, Err(why)),
        }
    }
    (done, to.flush())
}
