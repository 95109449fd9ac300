//! The data plane's end of the socket to its supervisor, and the file descriptors that it was
//! started with.

use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, bail};
use ringway_host::JOURNAL_LAYOUT;
use ringway_supervisor::wire::{
    Bytes, Offence, Text, ToData, ToSupervisor, Versions, WIRE_VERSION, WIRE_VERSION_MIN, pieces,
};
use rustix::io::Errno;
use tracing::error;

use super::given::StartFds;
use crate::channel::{Channel, Packet};
use crate::spec_text::{self, PlaneSettings};

const JOURNAL_VERSIONS: Versions = Versions { first: JOURNAL_LAYOUT, last: JOURNAL_LAYOUT };

/// The socket to the supervisor.
pub(super) struct SupervisorEnd {
    channel: Channel,
    pub(super) given: StartFds,
    /// The version of messages that both know.
    pub(super) speaks: u16,
}

impl SupervisorEnd {
    /// Says hello at standard input; the first settings.
    pub(super) fn greet() -> anyhow::Result<(Self, PlaneSettings)> {
        let channel = std::io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
        let channel = Channel::over(channel);
        let wire = Versions { first: WIRE_VERSION_MIN, last: WIRE_VERSION };
        let hello = ToSupervisor::Hello { wire, journal: JOURNAL_VERSIONS };
        channel.send(&hello.encode()).context("there is no supervisor at standard input")?;
        let (mut given, mut speaks) = (StartFds::default(), WIRE_VERSION_MIN);
        let settings = loop {
            let first = channel.receive_with_fds(true).context("the supervisor says nothing")?;
            match ToData::decode_with(&first.bytes, first.fds.len())? {
                ToData::Speaks { version } => speaks = version,
                ToData::Given { fds } => given.add(fds.as_slice()),
                ToData::Config { settings } => break settings,
                _ => bail!("the supervisor says something else first"),
            }
        };
        let settings = spec_text::read_settings(settings).context("the settings")?;
        Ok((Self { channel, given, speaks }, settings))
    }

    /// The next message, if one is there.
    pub(super) fn receive(&self) -> rustix::io::Result<Packet> {
        self.channel.receive_with_fds(false)
    }

    /// This process cannot serve.
    pub(super) fn refuse(&self, why: &anyhow::Error) -> rustix::io::Result<()> {
        let refusal = Some(Text::cut(&format!("{why:#}")));
        self.channel.send(&ToSupervisor::Ready { refusal }.encode())
    }

    /// Waits until the supervisor has room for it, which it soon has.
    pub(super) fn tell(&self, message: &ToSupervisor) {
        if let Err(why) = self.channel.send(&message.encode())
            && why != Errno::PIPE
        {
            error!("the supervisor cannot be told anything: {why}");
        }
    }

    pub(super) fn tell_all(&self, messages: impl IntoIterator<Item = ToSupervisor>) {
        messages.into_iter().for_each(|message| self.tell(&message));
    }

    /// Tells a text in as many messages as it needs.
    pub(super) fn tell_in_pieces<const MAX: usize>(
        &self,
        text: &[u8],
        message: impl Fn(bool, Bytes<MAX>) -> ToSupervisor,
    ) {
        pieces(text).for_each(|(is_last, piece)| self.tell(&message(is_last, piece)));
    }

    /// An order is carried out, or refused; `true`: a guest was told of it.
    pub(super) fn finish(&self, order: u32, outcome: anyhow::Result<bool>) {
        let (is_told, refusal) = match outcome {
            Ok(is_told) => (is_told, None),
            Err(why) => (false, Some(Text::cut(&format!("{why:#}")))),
        };
        self.tell(&ToSupervisor::Finished { order, is_told, is_closing: false, refusal });
    }

    /// A front-end is not served any more; `is_closing`: what it sent is still being closed.
    pub(super) fn unlinked(&self, order: u32, is_closing: bool) {
        let (is_told, refusal) = (false, None);
        self.tell(&ToSupervisor::Finished { order, is_told, is_closing, refusal });
    }

    /// A front-end is to be disconnected.
    pub(super) fn let_go(&self, link: u32, offence: Option<Offence>, why: &str) {
        self.tell(&ToSupervisor::LetGo { link, offence, why: Text::cut(why) });
    }
}

impl AsFd for SupervisorEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
