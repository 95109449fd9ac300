//! Records in a file in memory, for the program that follows in this process: of each document the
//! numbers of its file descriptors on one line, and the document on the next.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use anyhow::{Context, ensure};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use super::{LinkRecord, Record, RecordFds, StoredRecord, TEXT_LEN_MAX, Whole};

/// Writes it; nothing can change it any more.
///
/// # Errors
/// There is no room.
pub fn write(records: &[Record<'_>]) -> anyhow::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(memfd_create("ringway-record", flags)?);
    for Record { text, fds } in records {
        let numbers: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        writeln!(file, "{}\n{text}", serde_json::to_string(&numbers)?)?;
    }
    let all = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    fcntl_add_seals(&file, all)?;
    ensure!(file.metadata()?.len() <= TEXT_LEN_MAX, "more than is ever written down");
    file.rewind()?;
    Ok(file)
}

/// Reads it, with the file descriptors that `take` gives for their numbers.
///
/// # Errors
/// It is none.
pub fn read(
    mut file: File,
    take: impl Fn(RawFd) -> Option<OwnedFd>,
) -> anyhow::Result<Vec<StoredRecord>> {
    file.rewind()?;
    let mut lines = BufReader::new(file.take(TEXT_LEN_MAX)).lines();
    let mut all = Vec::new();
    while let Some(numbers) = lines.next() {
        let numbers: Vec<RawFd> = serde_json::from_str(&numbers?).context("the record's fds")?;
        let text = lines.next().context("the record ends too early")??;
        all.push(StoredRecord { text, fds: RecordFds::new(numbers.into_iter().map(&take)) });
    }
    Ok(all)
}

/// Whether this program could go on from there; it takes nothing.
///
/// # Errors
/// It could not, and why.
pub fn check(file: File) -> anyhow::Result<()> {
    let mut all = read(file, |_| None)?.into_iter();
    Whole::read(&all.next().context("the record is empty")?.text)?;
    for link in all {
        LinkRecord::read(&link.text)?.kept(Ok)?;
    }
    Ok(())
}
