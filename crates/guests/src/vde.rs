//! `vde_switch`: a switch in user space for virtual machines that send each packet to it as a
//! datagram.
//!
//! How: a machine says on a stream socket where its own datagram socket is, and hears where that of
//! its port is, for as long as both stay open.
//!
//! Limits: packets of [`PACKET_LEN_MAX`] bytes.

use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ChildStdin;
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::own_loader::OwnLoader;
use crate::process::Process;
use crate::stage::Stage;

/// Longest packet that it passes on, in bytes.
pub const PACKET_LEN_MAX: usize = 1518;

const LIMIT: Duration = Duration::from_secs(10);

/// The beginning of a request: a fixed number, the version, and that a port is wanted.
const REQUEST: [u32; 3] = [0xfeed_face, 3, 0];
/// Address family of such a socket, and the bytes of its path in an address.
const AF_UNIX: u16 = 1;
const PATH_LEN: usize = 108;

/// A running switch.
#[derive(Debug)]
pub struct Vde {
    directory: PathBuf,
    _process: Process,
    /// It ends when this does.
    _input: ChildStdin,
}

/// A port of it, as a machine has it.
#[derive(Debug)]
pub struct VdePort {
    /// Connected to the switch, and never waits.
    pub socket: UnixDatagram,
    _control: UnixStream,
}

impl Vde {
    /// Starts it.
    ///
    /// # Errors
    /// It does not come up: the text has what it printed.
    pub fn start(stage: &Stage, program: &OwnLoader) -> anyhow::Result<Self> {
        let directory = stage.file("vde");
        let mut command = program.command();
        command.arg("--sock").arg(&directory);
        let (mut process, input, _) = Process::start_piped(stage, "vde_switch", command)?;
        process.wait_until("listening", LIMIT, |_| directory.join("ctl").exists())?;
        Ok(Self { directory, _process: process, _input: input })
    }

    /// Takes a port; `own` is where its socket is to be.
    ///
    /// # Errors
    /// The switch does not give one.
    pub fn port(&self, own: &Path) -> anyhow::Result<VdePort> {
        let socket = UnixDatagram::bind(own).with_context(|| own.display().to_string())?;
        let mut control = UnixStream::connect(self.directory.join("ctl"))?;
        control.set_read_timeout(Some(LIMIT))?;
        control.write_all(&request(own)?)?;
        let mut answer = [0; 2 + PATH_LEN];
        control.read_exact(&mut answer).context("vde_switch gives no port")?;
        let path = answer[2..].split(|byte| *byte == 0).next().unwrap_or_default();
        socket.connect(Path::new(std::ffi::OsStr::from_bytes(path)))?;
        socket.set_nonblocking(true)?;
        Ok(VdePort { socket, _control: control })
    }
}

fn request(own: &Path) -> anyhow::Result<Vec<u8>> {
    let path = own.as_os_str().as_bytes();
    ensure!(path.len() < PATH_LEN, "{}: too long", own.display());
    let mut request: Vec<u8> = REQUEST.iter().flat_map(|number| number.to_le_bytes()).collect();
    request.extend(AF_UNIX.to_le_bytes());
    request.extend(path);
    request.resize(4 * REQUEST.len() + 2 + PATH_LEN, 0);
    // Behind it a description would follow.
    request.push(0);
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_the_socket() {
        let request = request(Path::new("/a/b")).expect("a short path");
        assert_eq!(request.len(), 12 + 110 + 1);
        assert_eq!(&request[..18], b"\xce\xfa\xed\xfe\x03\0\0\0\0\0\0\0\x01\0/a/b");
        assert!(super::request(Path::new(&"x".repeat(108))).is_err());
    }
}
