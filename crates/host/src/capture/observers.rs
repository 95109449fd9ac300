//! Captures and mirrors of one worker: they see packets besides the receivers.
//!
//! While there are none, each visit asks once whether there are any, and nothing more.

use std::sync::Arc;

use ringway_net::{DropReason, NetHeader, Packet};
use ringway_switch::{Filter, PEEK_LEN, PortId};

use super::options::CaptureOptions;
use super::sampler::Sampler;
use super::{
    CaptureDirection, CaptureFile, CaptureOutput, CaptureRecord, CaptureWriter, DroppedBy,
};
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
        self.place(port).filter(|_| is_it)
    }

    fn place(&self, port: PortId) -> Option<u16> {
        self.places.get(usize::from(port.0)).copied().flatten()
    }

    fn output(&self, outcome: Outcome) -> CaptureOutput {
        match outcome.reached {
            0 | 1 => {
                let place = outcome.to.and_then(|to| self.place(to));
                place.map_or(CaptureOutput::Unknown, CaptureOutput::One)
            }
            count => CaptureOutput::Several(count),
        }
    }
}

/// All captures and mirrors of a worker.
#[derive(Debug, Default)]
pub(crate) struct Observers {
    captures: Vec<Capture>,
    /// The ports that are mirrored, and where copies go.
    pub(crate) mirrors: Vec<(PortId, PortId)>,
    /// Of the packet in hand.
    outcome: Outcome,
}

/// The outcome of a packet that was taken from a port.
#[derive(Debug, Clone, Copy, Default)]
struct Outcome {
    /// Ports that it was for, and those of them that have it.
    receivers: u32,
    reached: u16,
    /// The last of those that have it, and why the last of the others dropped it.
    to: Option<PortId>,
    dropped: Option<DropReason>,
}

/// One side of a record: which port, and which of its queue pairs.
type Side = (PortId, u16);

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
        self.note(to, CaptureDirection::ToGuest, packet, (None, Outcome::default()));
    }

    /// Starts a capture, if the file has a ring for this worker.
    pub(crate) fn start(
        &mut self,
        id: u32,
        options: Arc<CaptureOptions>,
        file: Arc<CaptureFile>,
        worker: u16,
    ) {
        if self.captures.len() < CAPTURES_MAX
            && let Some(writer) = CaptureWriter::new(file, worker)
        {
            self.captures.push(Capture::new(id, options, writer));
        }
    }

    pub(crate) fn end(&mut self, id: u32) {
        self.captures.retain(|capture| capture.id != id);
    }

    /// The port goes, and its number may be another one's.
    pub(crate) fn forget(&mut self, port: PortId) {
        self.captures.retain(|capture| !capture.options.ports.contains(&port));
        self.mirrors.retain(|(of, to)| *of != port && *to != port);
    }

    /// The packet in hand was given to a port, also of another worker, or dropped there.
    pub(crate) fn went_to(&mut self, to: PortId, dropped: Option<DropReason>) {
        self.outcome.receivers += 1;
        match dropped {
            Some(_) => self.outcome.dropped = dropped,
            None => {
                self.outcome.reached = self.outcome.reached.saturating_add(1);
                self.outcome.to = Some(to);
            }
        }
    }

    /// A packet arrived at a port, or was dropped there.
    pub(crate) fn given(&mut self, to: Side, packet: &Packet<'_>, dropped: Option<DropReason>) {
        let dropped = dropped.map(DroppedBy::Port);
        self.note(to, CaptureDirection::ToGuest, packet, (dropped, Outcome::default()));
    }

    /// A port sent something that was no packet: none of its bytes are there.
    pub(crate) fn refused(&mut self, from: Side, reason: DropReason) {
        let packet = Packet { header: &NetHeader::ZERO, payload: &[], len: 0 };
        let dropped = Some(DroppedBy::Port(reason));
        self.note(from, CaptureDirection::FromGuest, &packet, (dropped, Outcome::default()));
    }

    /// A packet was taken from a port, and everything is done about it.
    pub(crate) fn taken(&mut self, from: Side, packet: &Packet<'_>, refused: Option<DropReason>) {
        let outcome = std::mem::take(&mut self.outcome);
        // Of several receivers some have it.
        let by_receiver = outcome.dropped.filter(|_| outcome.receivers == 1);
        let dropped = refused.map(DroppedBy::Port).or(by_receiver.map(DroppedBy::Receiver));
        self.note(from, CaptureDirection::FromGuest, packet, (dropped, outcome));
    }

    fn note(
        &mut self,
        (port, pair): Side,
        direction: CaptureDirection,
        packet: &Packet<'_>,
        (dropped, outcome): (Option<DroppedBy>, Outcome),
    ) {
        for capture in &mut self.captures {
            let Some(place) = capture.place_of(port, direction) else { continue };
            let Some(stands_for) = capture.sampler.take() else { continue };
            let output = capture.output(outcome);
            let Capture { options, writer, .. } = capture;
            if !options.filter.as_ref().is_none_or(|filter| passes(filter, packet)) {
                continue;
            }
            let record = CaptureRecord {
                direction,
                port: place,
                pair,
                output,
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
    filter.passes(&head[..len], packet.len)
}
