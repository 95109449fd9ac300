//! The control socket: one JSON line in, one JSON line out; never waits for a client.

use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use anyhow::{Context, bail};
use tracing::warn;

use super::{Daemon, Wake};
use crate::config::Settings;
use crate::config::settings::CONTROL_MODE;
use crate::control::{LINE_LEN_MAX, answer};

/// Clients served at the same time; one more waits.
const CLIENTS_MAX: usize = 16;

/// The listening socket and its clients.
pub(super) struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    clients: [Option<Client>; CLIENTS_MAX],
}

struct Client {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl ControlSocket {
    /// Listens at `path`; a socket file that nobody serves any more is replaced.
    pub(super) fn bind(settings: &Settings) -> anyhow::Result<Self> {
        let path = settings.control.as_path();
        let shown = path.display();
        if UnixStream::connect(path).is_ok() {
            bail!("{shown}: another ringway listens here: choose another with --control SOCKET");
        }
        if std::fs::symlink_metadata(path).is_ok_and(|found| is_socket(&found)) {
            std::fs::remove_file(path).with_context(|| format!("{shown}: cannot be replaced"))?;
        }
        let listener = UnixListener::bind(path)
            .with_context(|| format!("{shown}: cannot listen: choose another with --control"))?;
        listener.set_nonblocking(true)?;
        permit(settings).inspect_err(|_| drop(std::fs::remove_file(path)))?;
        Ok(Self { listener, path: path.to_owned(), clients: Default::default() })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // Already removed by somebody else is as good.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Who may open the socket's file: first the owner alone, then whoever was named.
fn permit(settings: &Settings) -> anyhow::Result<()> {
    let path = settings.control.as_path();
    let shown = path.display();
    std::fs::set_permissions(path, Permissions::from_mode(CONTROL_MODE))?;
    if let Some(group) = &settings.control_group {
        chown(path, None, Some(group.id)).with_context(|| {
            format!("{shown}: cannot be given to group {}: use one you are in", group.name)
        })?;
    }
    std::fs::set_permissions(path, Permissions::from_mode(settings.file_mode()))
        .with_context(|| format!("{shown}: permissions"))
}

fn is_socket(found: &std::fs::Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_socket(&found.file_type())
}

impl Daemon {
    pub(super) fn accept_control_client(&mut self) {
        let control = &mut self.control;
        let Some(slot) = control.clients.iter().position(Option::is_none) else { return };
        let token = Wake::ControlClient(u32::try_from(slot).unwrap_or(u32::MAX)).token();
        let Ok((stream, _)) = control.listener.accept() else { return };
        let added =
            stream.set_nonblocking(true).and_then(|()| self.poller.add(stream.as_fd(), token));
        match added {
            Ok(()) => {
                let client = Client { stream, input: Vec::new(), output: Vec::new() };
                control.clients[slot] = Some(client);
            }
            Err(why) => warn!("control client: {why}"),
        }
        if control.clients.iter().all(Option::is_some) {
            let _ = self.poller.remove(control.listener.as_fd());
        }
    }

    pub(super) fn serve_control_client(&mut self, slot: u32) {
        let control = &mut self.control;
        let Some(Some(client)) = control.clients.get_mut(slot as usize) else { return };
        let mut is_alive = client.receive().is_ok();
        while let Some(line) = self.next_control_line(slot) {
            let reply = answer(&line, || self.stats());
            if let Some(client) = self.control_client(slot) {
                client.output.extend_from_slice(reply.as_bytes());
                client.output.push(b'\n');
            }
        }
        let Some(client) = self.control_client(slot) else { return };
        is_alive &= client.input.len() <= LINE_LEN_MAX && client.send().is_ok();
        if !is_alive {
            self.drop_control_client(slot);
        }
    }

    fn control_client(&mut self, slot: u32) -> Option<&mut Client> {
        self.control.clients.get_mut(slot as usize)?.as_mut()
    }

    fn next_control_line(&mut self, slot: u32) -> Option<String> {
        let client = self.control_client(slot)?;
        let end = client.input.iter().position(|&byte| byte == b'\n')?;
        let line: Vec<u8> = client.input.drain(..=end).collect();
        Some(String::from_utf8_lossy(&line[..end]).into_owned())
    }

    fn drop_control_client(&mut self, slot: u32) {
        let control = &mut self.control;
        let was_full = control.clients.iter().all(Option::is_some);
        let Some(client) = control.clients.get_mut(slot as usize).and_then(Option::take) else {
            return;
        };
        let _ = self.poller.remove(client.stream.as_fd());
        if was_full {
            let _ = self.poller.add(control.listener.as_fd(), Wake::Control.token());
        }
    }
}

impl Client {
    /// Takes what has arrived, at most one line too much; an error ends the client.
    fn receive(&mut self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        while self.input.len() <= LINE_LEN_MAX {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.input.extend_from_slice(&buffer[..n]),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }

    /// Sends all of the output; a client that does not read its reply is dropped.
    fn send(&mut self) -> io::Result<()> {
        let output = std::mem::take(&mut self.output);
        (&self.stream).write_all(&output)
    }
}
