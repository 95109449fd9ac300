//! A front-end in a record: its stream, and what is kept of it.

use anyhow::Context;
use ringway_supervisor::frame::{FDS_MAX, Frame, Framer};
use ringway_supervisor::slots::Link;
use serde::{Deserialize, Serialize};

use super::{FdAt, hex, unhex};

/// One connected front-end.
#[derive(Debug, Serialize, Deserialize)]
pub struct LinkRecord {
    pub number: u32,
    pub port: u16,
    pub connection: FdAt,
    /// The port's options when it came.
    pub spec: String,
    /// Messages that were whole so far.
    frames: u32,
    partial: FrameRecord,
    outstanding: Option<FrameRecord>,
    slots: Vec<(u16, FrameRecord)>,
}

/// A message, or the beginning of one.
#[derive(Debug, Serialize, Deserialize)]
pub struct FrameRecord {
    bytes: String,
    fds: Vec<FdAt>,
    has_lost_fds: bool,
}

impl FrameRecord {
    fn of<'a, F>(
        bytes: &[u8],
        fds: &'a [F],
        has_lost_fds: bool,
        put: &mut impl FnMut(&'a F) -> FdAt,
    ) -> Self {
        Self { bytes: hex(bytes), fds: fds.iter().map(put).collect(), has_lost_fds }
    }

    fn frame<F>(
        self,
        take: &mut impl FnMut(FdAt) -> anyhow::Result<F>,
    ) -> anyhow::Result<Frame<F>> {
        anyhow::ensure!(self.fds.len() <= FDS_MAX, "a message with more than {FDS_MAX} fds");
        let bytes = unhex(&self.bytes).context("bytes that are not hexadecimal")?;
        let fds = self.fds.into_iter().map(take).collect::<anyhow::Result<_>>()?;
        Ok(Frame { bytes, fds, has_lost_fds: self.has_lost_fds })
    }
}

/// The front-end of a link, and the place of its connection.
pub struct LinkHead {
    pub number: u32,
    pub port: u16,
    pub connection: FdAt,
}

impl LinkRecord {
    /// The record of a link; `put` gives the place of each file descriptor.
    pub fn of<'a, F>(
        LinkHead { number, port, connection }: LinkHead,
        spec: &[u8],
        kept: &'a Link<F>,
        mut put: impl FnMut(&'a F) -> FdAt,
    ) -> Self {
        let (frames, bytes, fds, has_lost_fds) = kept.framer.partial();
        let partial = FrameRecord::of(bytes, fds, has_lost_fds, &mut put);
        let mut whole = |frame: &'a Frame<F>| {
            FrameRecord::of(&frame.bytes, &frame.fds, frame.has_lost_fds, &mut put)
        };
        let outstanding = kept.framer.outstanding().map(|(_, frame)| whole(frame));
        let slots = kept.replay().map(|(slot, frame)| (slot, whole(frame))).collect();
        let spec = String::from_utf8_lossy(spec).into_owned();
        Self { number, port, connection, spec, frames, partial, outstanding, slots }
    }

    /// Reads a document about a front-end.
    ///
    /// # Errors
    /// It is none.
    pub fn read(text: &str) -> anyhow::Result<Self> {
        serde_json::from_str(text).context("the record of a front-end")
    }

    /// The link that was kept, with the file descriptors that `take` gives.
    ///
    /// # Errors
    /// That cannot be kept.
    pub fn kept<F>(
        self,
        mut take: impl FnMut(FdAt) -> anyhow::Result<F>,
    ) -> anyhow::Result<Link<F>> {
        let partial = self.partial.frame(&mut take)?;
        let outstanding = self.outstanding.map(|frame| frame.frame(&mut take)).transpose()?;
        let framer = Framer::resume(self.frames, partial, outstanding)?;
        let slots = self.slots.into_iter().map(|(slot, frame)| Ok((slot, frame.frame(&mut take)?)));
        Ok(Link::resume(framer, slots.collect::<anyhow::Result<Vec<_>>>()?)?)
    }
}
