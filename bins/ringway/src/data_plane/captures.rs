//! Captures that clients have asked for.
//!
//! Each has a file in memory, into which workers write, and one end of a pair of sockets. The
//! client has the other end: when that is closed the capture ends, and when the capture ends here,
//! the client sees it by the same.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use ringway_host::{CAPTURES_MAX, CaptureDirection, CaptureFile, CaptureOptions};
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
    ports: Vec<PortId>,
    /// Closed by the client when it has enough.
    client: OwnedFd,
}

impl DataPlane {
    pub(super) fn start_capture(
        &mut self,
        question: &CaptureQuestion,
        fds: Vec<OwnedFd>,
    ) -> anyhow::Result<CaptureReply> {
        let ports: Vec<PortId> =
            question.ports().iter().map(|name| self.port_called(name)).collect::<Result<_, _>>()?;
        let filter = question.parsed_filter().map_err(anyhow::Error::msg)?;
        ensure!(self.captures.running.len() < CAPTURES_MAX, "{CAPTURES_MAX} captures run: end one");
        let Ok([file, client]) = <[OwnedFd; 2]>::try_from(fds) else {
            bail!("no file descriptor is left");
        };
        let file = Arc::new(CaptureFile::open(file).context("the file of captures")?);
        let options = Arc::new(CaptureOptions {
            ports: ports.clone(),
            direction: question.direction.map(|direction| match direction {
                Direction::ToGuest => CaptureDirection::ToGuest,
                Direction::FromGuest => CaptureDirection::FromGuest,
            }),
            snap: question.snap.unwrap_or(PACKET_LEN_MAX),
            sample: question.sample.unwrap_or(1),
            filter,
        });
        self.captures.next = self.captures.next.wrapping_add(1);
        let id = self.captures.next;
        self.wakes.watch(&client, Wake::Capture(id))?;
        self.worker.ask_all(move |worker| worker.start_capture(id, options, file));
        info!(port = self.names_of(&ports), "captured from now on");
        let first = ports.first().and_then(|port| self.ports.get(port));
        let kind = first.map(|port| port.spec.kind.to_string());
        self.captures.running.insert(id, Capture { ports, client });
        let description = kind.unwrap_or_default();
        Ok(CaptureReply { version: PROTOCOL_VERSION, ok: true, description })
    }

    /// The client has closed its end, or has sent what it may not.
    pub(super) fn end_capture(&mut self, id: u32) {
        let Some(capture) = self.captures.running.remove(&id) else { return };
        self.wakes.forget(&capture.client);
        // Packets that were under way are in the file when the client sees the end.
        self.worker.ask_all(move |worker| worker.end_capture(id));
        info!(port = self.names_of(&capture.ports), "captured no more");
    }

    fn names_of(&self, ports: &[PortId]) -> String {
        ports.iter().map(|port| self.name(*port)).collect::<Vec<_>>().join(", ")
    }

    /// The port goes.
    pub(super) fn end_captures_of(&mut self, port: PortId) {
        let running = self.captures.running.iter();
        let of_port = running.filter(|(_, capture)| capture.ports.contains(&port));
        for id in of_port.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.end_capture(id);
        }
    }
}
