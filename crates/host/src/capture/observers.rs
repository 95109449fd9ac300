//! Who is to see packets beside those that they are for: the captures of one worker.
//!
//! While there is none, nothing here is asked more often than once for each visit.

use std::sync::Arc;

use ringway_net::{DropReason, Packet};
use ringway_switch::{Filter, PEEK_LEN, PortId};

use super::command::{CaptureCommand, CaptureOptions};
use super::{CaptureDirection, CaptureRecord, CaptureWriter, DroppedBy};
use crate::os::clock::now;

/// Most captures at a time.
pub const CAPTURES_MAX: usize = 4;

/// One capture.
#[derive(Debug)]
struct Capture {
    id: u32,
    options: Arc<CaptureOptions>,
    writer: CaptureWriter,
}

/// All captures of a worker.
#[derive(Debug, Default)]
pub(crate) struct Observers {
    captures: Vec<Capture>,
    /// Receivers that the packet in hand was given to, and why the last one dropped it.
    receivers: u32,
    dropped: Option<DropReason>,
}

impl Observers {
    /// `None`: there is no capture.
    #[inline]
    pub(crate) fn if_any(&mut self) -> Option<&mut Self> {
        if self.captures.is_empty() { None } else { Some(self) }
    }

    /// Starts a capture, if the file has a ring for this worker, or ends one.
    pub(crate) fn carry_out(&mut self, command: CaptureCommand, worker: u16) {
        match command {
            CaptureCommand::Start { id, options, file } => {
                if self.captures.len() < CAPTURES_MAX
                    && let Some(writer) = CaptureWriter::new(file, worker)
                {
                    self.captures.push(Capture { id, options, writer });
                }
            }
            CaptureCommand::End { id } => self.captures.retain(|capture| capture.id != id),
        }
    }

    /// The port goes, and its number may be another one's.
    pub(crate) fn forget(&mut self, port: PortId) {
        self.captures.retain(|capture| capture.options.port != port);
    }

    /// A packet was given to a port, or dropped there.
    pub(crate) fn given(
        &mut self,
        (to, pair): (PortId, u16),
        packet: &Packet<'_>,
        dropped: Option<DropReason>,
    ) {
        self.receivers += 1;
        self.dropped = dropped;
        let dropped = dropped.map(DroppedBy::Port);
        self.note((to, pair), CaptureDirection::ToGuest, packet, dropped);
    }

    /// A packet was taken from a port, and everything is done about it.
    pub(crate) fn taken(
        &mut self,
        from: (PortId, u16),
        packet: &Packet<'_>,
        refused: Option<DropReason>,
    ) {
        // Of several receivers some have it.
        let by_receiver = self.dropped.filter(|_| self.receivers == 1).map(DroppedBy::Receiver);
        (self.receivers, self.dropped) = (0, None);
        let dropped = refused.map(DroppedBy::Port).or(by_receiver);
        self.note(from, CaptureDirection::FromGuest, packet, dropped);
    }

    fn note(
        &mut self,
        (port, pair): (PortId, u16),
        direction: CaptureDirection,
        packet: &Packet<'_>,
        dropped: Option<DroppedBy>,
    ) {
        let is_it = |options: &CaptureOptions| {
            options.port == port && options.direction.is_none_or(|only| only == direction)
        };
        for Capture { options, writer, .. } in &mut self.captures {
            if !is_it(options) || !options.filter.as_ref().is_none_or(|it| passes(it, packet)) {
                continue;
            }
            let header = *packet.header;
            let (time_ns, packet_len) = (now().0, packet.len);
            let record = CaptureRecord { direction, pair, time_ns, header, dropped, packet_len };
            writer.put(&record, packet, options.snap);
        }
    }
}

fn passes(filter: &Filter, packet: &Packet<'_>) -> bool {
    let mut head = [0; PEEK_LEN];
    let len = packet.copy_out(&mut head);
    filter.passes(&head[..len])
}
