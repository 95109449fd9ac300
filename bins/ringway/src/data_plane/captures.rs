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

use super::ports::Ports;
use super::wake::{Wake, Wakes};
use super::workers::Workers;
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

/// A capture that may start.
pub(super) struct NewCapture {
    options: CaptureOptions,
    file: CaptureFile,
    client: OwnedFd,
}

impl Captures {
    /// Looks whether a capture is possible.
    pub(super) fn prepare(
        &self,
        question: &CaptureQuestion,
        fds: Vec<OwnedFd>,
        ports: &Ports,
    ) -> anyhow::Result<NewCapture> {
        let ids = question.ports().iter().map(|name| ports.called(name));
        let ids: Vec<PortId> = ids.collect::<Result<_, _>>()?;
        let filter = question.parsed_filter().map_err(anyhow::Error::msg)?;
        ensure!(self.running.len() < CAPTURES_MAX, "{CAPTURES_MAX} captures run: end one");
        let Ok([file, client]) = <[OwnedFd; 2]>::try_from(fds) else {
            bail!("no file descriptor is left");
        };
        let file = CaptureFile::open(file).context("the file of captures")?;
        let options = CaptureOptions {
            ports: ids,
            direction: question.direction.map(|direction| match direction {
                Direction::ToGuest => CaptureDirection::ToGuest,
                Direction::FromGuest => CaptureDirection::FromGuest,
            }),
            snap: question.snap.unwrap_or(PACKET_LEN_MAX),
            sample: question.sample.unwrap_or(1),
            filter,
        };
        Ok(NewCapture { options, file, client })
    }

    pub(super) fn start(
        &mut self,
        NewCapture { options, file, client }: NewCapture,
        ports: &Ports,
        wakes: &Wakes,
        workers: &Workers,
    ) -> anyhow::Result<CaptureReply> {
        let (captured, options, file) = (options.ports.clone(), Arc::new(options), Arc::new(file));
        self.next = self.next.wrapping_add(1);
        let id = self.next;
        wakes.watch(&client, Wake::Capture(id))?;
        workers.ask_all(move |worker| worker.start_capture(id, options, file));
        info!(port = ports.names(&captured), "captured from now on");
        let first = captured.first().and_then(|port| ports.port(*port));
        let description = first.map(|port| port.spec.kind.to_string()).unwrap_or_default();
        self.running.insert(id, Capture { ports: captured, client });
        Ok(CaptureReply { version: PROTOCOL_VERSION, ok: true, description })
    }

    /// The client has closed its end, or has sent what it may not.
    pub(super) fn end(&mut self, id: u32, ports: &Ports, wakes: &Wakes, workers: &Workers) {
        let Some(capture) = self.running.remove(&id) else { return };
        wakes.forget(&capture.client);
        // Packets that were under way are in the file when the client sees the end.
        workers.ask_all(move |worker| worker.end_capture(id));
        info!(port = ports.names(&capture.ports), "captured no more");
    }

    /// The captures of a port.
    pub(super) fn of(&self, port: PortId) -> Vec<u32> {
        let of_port = self.running.iter().filter(|(_, capture)| capture.ports.contains(&port));
        of_port.map(|(id, _)| *id).collect()
    }
}
