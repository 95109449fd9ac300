//! Captures that clients have asked for.
//!
//! Each has a file in memory, into which workers write, and one end of a pair of sockets. The
//! client has the other end: when that is closed the capture ends, and when the capture ends here,
//! the client sees it by the same.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use ringway_host::{
    CAPTURES_MAX, CaptureDirection, CaptureFile, CaptureOptions, Command, ObserverCommand,
};
use ringway_net::PACKET_LEN_MAX;
use ringway_switch::PortId;
use tracing::info;

use super::{DataPlane, Wake};
use crate::control::{CaptureQuestion, CaptureReply, Direction, PROTOCOL_VERSION};

/// All of them, by number.
#[derive(Default)]
pub(super) struct Captures {
    running: BTreeMap<u32, Capture>,
    next: u32,
}

struct Capture {
    port: PortId,
    /// Closed by the client when it has enough.
    client: OwnedFd,
}

impl DataPlane {
    pub(super) fn start_capture(
        &mut self,
        question: &CaptureQuestion,
        fds: Vec<OwnedFd>,
    ) -> anyhow::Result<CaptureReply> {
        let port = self.port_called(&question.name)?;
        let filter = question.parsed_filter().map_err(anyhow::Error::msg)?;
        ensure!(self.captures.running.len() < CAPTURES_MAX, "{CAPTURES_MAX} captures run: end one");
        let Ok([file, client]) = <[OwnedFd; 2]>::try_from(fds) else {
            bail!("no file descriptor is left");
        };
        let file = Arc::new(CaptureFile::open(file).context("the file of captures")?);
        let options = Arc::new(CaptureOptions {
            port,
            direction: question.direction.map(|direction| match direction {
                Direction::ToGuest => CaptureDirection::ToGuest,
                Direction::FromGuest => CaptureDirection::FromGuest,
            }),
            snap: question.snap.unwrap_or(PACKET_LEN_MAX),
            filter,
        });
        self.captures.next = self.captures.next.wrapping_add(1);
        let id = self.captures.next;
        self.poller.add(client.as_fd(), Wake::Capture(id).token())?;
        self.worker.send_all(|| {
            let (options, file) = (options.clone(), file.clone());
            Command::Observe(ObserverCommand::Start { id, options, file })
        });
        self.worker.catch_up();
        self.captures.running.insert(id, Capture { port, client });
        info!(port = question.name, "captured from now on");
        let kind = self.ports.get(&port).map(|port| port.spec.kind.to_string());
        let description = kind.unwrap_or_default();
        Ok(CaptureReply { version: PROTOCOL_VERSION, ok: true, description })
    }

    /// The client has closed its end, or has sent what it may not.
    pub(super) fn end_capture(&mut self, id: u32) {
        let Some(capture) = self.captures.running.remove(&id) else { return };
        let _ = self.poller.remove(capture.client.as_fd());
        self.worker.send_all(|| Command::Observe(ObserverCommand::End { id }));
        // What was under way is in the file when the client sees the end.
        self.worker.catch_up();
        info!(port = self.name(capture.port), "captured no more");
    }

    /// The port goes.
    pub(super) fn end_captures_of(&mut self, port: PortId) {
        let of_port = self.captures.running.iter().filter(|(_, capture)| capture.port == port);
        for id in of_port.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.end_capture(id);
        }
    }
}
