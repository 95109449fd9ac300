//! vhost-user requests out of a stream, whole, one at a time.
//!
//! The reader asks first how much to read: [`Framer::wanted`] ends with the header, then with the
//! payload, so that file descriptors are always those of the message that is being read. While a
//! request is outstanding nothing is wanted. Limits: a message of [`FRAME_LEN_MAX`] bytes and
//! [`FDS_MAX`] fds.

use std::mem::take;

pub use ringway_vhost_user::FDS_MAX;
use ringway_vhost_user::codec::{HEADER_LEN, Header, HeaderError, PAYLOAD_LEN_MAX};
use thiserror::Error;

/// Most bytes of a message, with its header.
pub const FRAME_LEN_MAX: usize = HEADER_LEN + PAYLOAD_LEN_MAX as usize;

/// One whole message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame<F> {
    /// Header and payload.
    pub bytes: Vec<u8>,
    /// The file descriptors that came along.
    pub fds: Vec<F>,
    /// The kernel could not hand over all fds that came along.
    pub has_lost_fds: bool,
}

/// Why a connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BadFrame {
    /// Nothing tells where the next message would begin.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// No message has so many.
    #[error("more than {FDS_MAX} file descriptors came with one message")]
    TooManyFds,
    /// The bytes that are said to be a message, or the beginning of one, are neither.
    #[error("not a message, or not the beginning of one")]
    NotOne,
}

/// The stream of one front-end.
#[derive(Debug)]
pub struct Framer<F> {
    bytes: Vec<u8>,
    fds: Vec<F>,
    has_lost_fds: bool,
    wanted: usize,
    number: u32,
    outstanding: Option<Frame<F>>,
}

impl<F> Default for Framer<F> {
    fn default() -> Self {
        let (bytes, fds, has_lost_fds, number) = (Vec::new(), Vec::new(), false, 0);
        Self { bytes, fds, has_lost_fds, wanted: HEADER_LEN, number, outstanding: None }
    }
}

impl<F> Framer<F> {
    /// The stream of another supervisor, which had read the beginning of a message, and handed over
    /// so many.
    ///
    /// # Errors
    /// The beginning is none, or what is outstanding is no whole message.
    pub fn resume(
        number: u32,
        partial: Frame<F>,
        outstanding: Option<Frame<F>>,
    ) -> Result<Self, BadFrame> {
        if outstanding.as_ref().is_some_and(|frame| missing(&frame.bytes) != Ok(0)) {
            return Err(BadFrame::NotOne);
        }
        let Frame { bytes, fds, has_lost_fds } = partial;
        let wanted = missing(&bytes)?;
        if wanted == 0 || fds.len() > FDS_MAX {
            return Err(BadFrame::NotOne);
        }
        Ok(Self { bytes, fds, has_lost_fds, wanted, number, outstanding })
    }

    /// The bytes that were read of the next message, and how many messages were whole before it.
    pub fn partial(&self) -> (u32, &[u8], &[F], bool) {
        (self.number, &self.bytes, &self.fds, self.has_lost_fds)
    }

    /// The most bytes to read next. 0: nothing, because a request is outstanding.
    pub fn wanted(&self) -> usize {
        if self.outstanding.is_some() { 0 } else { self.wanted }
    }

    /// Takes what was read; `true`: a request is complete, and outstanding from now on.
    ///
    /// # Errors
    /// The connection cannot go on. What came is dropped with this value.
    ///
    /// # Panics
    /// More bytes than were wanted.
    pub fn push(
        &mut self,
        bytes: &[u8],
        fds: impl IntoIterator<Item = F>,
        has_lost_fds: bool,
    ) -> Result<bool, BadFrame> {
        assert!(bytes.len() <= self.wanted(), "{} bytes were not wanted", bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.fds.extend(fds);
        self.has_lost_fds |= has_lost_fds;
        if self.fds.len() > FDS_MAX {
            return Err(BadFrame::TooManyFds);
        }
        self.wanted = missing(&self.bytes)?;
        if self.wanted > 0 {
            return Ok(false);
        }
        let (bytes, fds) = (take(&mut self.bytes), take(&mut self.fds));
        let has_lost_fds = take(&mut self.has_lost_fds);
        self.outstanding = Some(Frame { bytes, fds, has_lost_fds });
        self.number = self.number.wrapping_add(1);
        self.wanted = HEADER_LEN;
        Ok(true)
    }

    /// The request that is outstanding, and its number.
    pub fn outstanding(&self) -> Option<(u32, &Frame<F>)> {
        self.outstanding.as_ref().map(|frame| (self.number, frame))
    }

    /// The request of that number was carried out or refused; the stream goes on. `None`: another
    /// one is outstanding, or none.
    pub fn finish(&mut self, number: u32) -> Option<Frame<F>> {
        self.outstanding.take_if(|_| self.number == number)
    }

    /// Whether the stream may end here: not within a message.
    pub fn is_between(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Bytes until the header, or then the message, is complete.
fn missing(bytes: &[u8]) -> Result<usize, BadFrame> {
    let Some(header) = bytes.first_chunk() else { return Ok(HEADER_LEN - bytes.len()) };
    let len = HEADER_LEN + Header::parse(header)?.payload_len as usize;
    len.checked_sub(bytes.len()).ok_or(BadFrame::NotOne)
}
