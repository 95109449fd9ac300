//! Who is to see packets beside those that they are for: the captures of one worker, and mirrors.
//!
//! While there are none, nothing here is asked more often than once for each visit.

use std::sync::Arc;

use ringway_net::{DropReason, Packet};
use ringway_switch::{Filter, PEEK_LEN, PortId};

use super::command::{CaptureOptions, ObserverCommand};
use super::sampler::Sampler;
use super::{CaptureDirection, CaptureRecord, CaptureWriter, DroppedBy};
use crate::os::clock::now;

/// Most captures at a time.
pub const CAPTURES_MAX: usize = 4;

/// One capture.
#[derive(Debug)]
struct Capture {
    id: u32,
    options: Arc<CaptureOptions>,
    /// By the number of a port: its place among those that are captured.
    places: Vec<Option<u16>>,
    sampler: Sampler,
    writer: CaptureWriter,
}

impl Capture {
    fn new(id: u32, options: Arc<CaptureOptions>, writer: CaptureWriter) -> Self {
        let mut places = Vec::new();
        for (place, port) in (0..).zip(&options.ports) {
            let at = usize::from(port.0);
            places.resize(places.len().max(at + 1), None);
            places[at] = Some(place);
        }
        let sampler = Sampler::new(options.sample, now().0);
        Self { id, options, places, sampler, writer }
    }

    /// The place of a port whose packets in that direction are captured.
    fn place_of(&self, port: PortId, direction: CaptureDirection) -> Option<u16> {
        let is_it = self.options.direction.is_none_or(|only| only == direction);
        self.places.get(usize::from(port.0)).copied().flatten().filter(|_| is_it)
    }
}

/// All captures and mirrors of a worker.
#[derive(Debug, Default)]
pub(crate) struct Observers {
    captures: Vec<Capture>,
    /// Of which port, and where copies go.
    mirrors: Vec<(PortId, PortId)>,
    /// Receivers that the packet in hand was given to, and why the last one dropped it.
    receivers: u32,
    dropped: Option<DropReason>,
}

impl Observers {
    /// `None`: there is neither.
    #[inline]
    pub(crate) fn if_any(&mut self) -> Option<&mut Self> {
        if self.captures.is_empty() && self.mirrors.is_empty() { None } else { Some(self) }
    }

    /// Where copies of a port's packets go.
    pub(crate) fn mirror_of(&self, port: PortId) -> Option<PortId> {
        self.mirrors.iter().find(|(of, _)| *of == port).map(|(_, to)| *to)
    }

    /// Whether copies go there.
    pub(crate) fn is_mirror(&self, port: PortId) -> bool {
        self.mirrors.iter().any(|(_, to)| *to == port)
    }

    /// A copy was given to the port for mirrors.
    pub(crate) fn copied(&mut self, to: (PortId, u16), packet: &Packet<'_>) {
        self.note(to, CaptureDirection::ToGuest, packet, None);
    }

    /// Starts a capture, if the file has a ring for this worker, or ends one.
    pub(crate) fn carry_out(&mut self, command: ObserverCommand, worker: u16) {
        match command {
            ObserverCommand::Start { id, options, file } => {
                if self.captures.len() < CAPTURES_MAX
                    && let Some(writer) = CaptureWriter::new(file, worker)
                {
                    self.captures.push(Capture::new(id, options, writer));
                }
            }
            ObserverCommand::Mirror { mirrors } => self.mirrors = mirrors,
            ObserverCommand::End { id } => self.captures.retain(|capture| capture.id != id),
        }
    }

    /// The port goes, and its number may be another one's.
    pub(crate) fn forget(&mut self, port: PortId) {
        self.captures.retain(|capture| !capture.options.ports.contains(&port));
        self.mirrors.retain(|(of, to)| *of != port && *to != port);
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
        for capture in &mut self.captures {
            let Some(place) = capture.place_of(port, direction) else { continue };
            let Some(stands_for) = capture.sampler.take() else { continue };
            let Capture { options, writer, .. } = capture;
            if !options.filter.as_ref().is_none_or(|filter| passes(filter, packet)) {
                continue;
            }
            let record = CaptureRecord {
                direction,
                port: place,
                pair,
                time_ns: now().0,
                header: *packet.header,
                dropped,
                stands_for,
                packet_len: packet.len,
            };
            writer.put(&record, packet, options.snap);
        }
    }
}

fn passes(filter: &Filter, packet: &Packet<'_>) -> bool {
    let mut head = [0; PEEK_LEN];
    let len = packet.copy_out(&mut head);
    filter.passes(&head[..len])
}
