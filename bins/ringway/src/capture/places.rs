//! The ports that are captured, and the files.

use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};

use crate::args::CaptureArgs;
use crate::config::error::no_port;
use crate::control::PortListReply;
use crate::port_command::{names, spec_of};

/// Stands for standard output.
pub const STANDARD_OUTPUT: &str = "-";

/// A port as a file names it.
pub struct Interface {
    pub name: String,
    /// The port's kind and place.
    pub description: String,
}

/// The ports, and the file.
///
/// # Errors
/// There is no such port.
pub fn places(
    args: &CaptureArgs,
    listed: &PortListReply,
) -> anyhow::Result<(Vec<Interface>, PathBuf)> {
    let interface = |name: &str| -> anyhow::Result<Interface> {
        let Some((port, _)) = listed.ports.iter().zip(names(listed)).find(|(_, it)| *it == name)
        else {
            bail!(no_port(name, names(listed)));
        };
        let kind = spec_of(port).map(|spec| spec.kind.to_string());
        Ok(Interface { name: name.to_owned(), description: kind.unwrap_or_default() })
    };
    let is_port = |name: &String| names(listed).any(|it| it == name);
    let (typed, file) = match args.places.split_last() {
        // The first one is a port, unless all are meant.
        Some((last, before)) if !is_port(last) && (args.all || !before.is_empty()) => {
            (before, last.as_str())
        }
        _ => (&args.places[..], STANDARD_OUTPUT),
    };
    let interfaces = match args.all {
        true => {
            ensure!(typed.is_empty(), "--all is for all ports: leave {} out", typed.join(" "));
            names(listed).map(interface).collect::<Result<Vec<_>, _>>()?
        }
        false => typed.iter().map(|name| interface(name)).collect::<Result<Vec<_>, _>>()?,
    };
    ensure!(!interfaces.is_empty(), "there are no ports");
    let is_double =
        |(at, it): (usize, &Interface)| interfaces[..at].iter().any(|other| other.name == it.name);
    ensure!(!interfaces.iter().enumerate().any(is_double), "a port is named twice");
    Ok((interfaces, PathBuf::from(file)))
}

/// A ring of files.
#[derive(Debug)]
pub struct Ring {
    file: PathBuf,
    files: u32,
    /// Bytes of each.
    pub bytes: u64,
    /// The number of the one that is written.
    at: u32,
}

impl Ring {
    /// The one that was asked for, if one was.
    ///
    /// # Errors
    /// Standard output is no ring.
    pub fn of(args: &CaptureArgs, file: &Path) -> anyhow::Result<Option<Self>> {
        let Some((files, bytes)) = args.files.zip(args.file_bytes) else { return Ok(None) };
        ensure!(file != Path::new(STANDARD_OUTPUT), "a ring of files needs the name of a file");
        Ok(Some(Self { file: file.to_path_buf(), files, bytes, at: 1 }))
    }

    /// The file that is written: `vm0.1.pcapng` of `vm0.pcapng`.
    pub fn path(&self) -> PathBuf {
        let ending = self.file.extension().and_then(|it| it.to_str()).unwrap_or("pcapng");
        self.file.with_extension(format!("{}.{ending}", self.at))
    }

    /// The next one; behind the last one the first.
    pub fn turn(&mut self) {
        self.at = self.at % self.files + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_ring_are_numbered_in_a_circle() {
        let mut ring = Ring { file: "a/vm0.pcapng".into(), files: 2, bytes: 100_000, at: 1 };
        let mut paths = Vec::new();
        for _ in 0..3 {
            paths.push(ring.path());
            ring.turn();
        }
        assert_eq!(paths, ["a/vm0.1.pcapng", "a/vm0.2.pcapng", "a/vm0.1.pcapng"].map(Path::new));
    }
}
