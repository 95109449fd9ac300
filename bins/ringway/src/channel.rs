//! The socket between supervisor and data plane: one message, one packet (`SOCK_SEQPACKET`).
//!
//! The supervisor never waits: what finds no room is queued by its caller. It takes no file
//! descriptors either: the kernel closes those that come without room for them. The data plane
//! waits until its message is taken.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringway_supervisor::wire::{MESSAGE_FDS_MAX, MESSAGE_LEN_MAX};
use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg,
    sendmsg, socketpair,
};

/// Tells a data plane how many packets its taps take at once: its supervisor has measured it, once
/// for all data planes.
pub const MEASURED: &str = "RINGWAY_TAP_CALLS_MEASURED";

/// The most bytes of messages that the kernel holds until they are received.
const BUFFER_LEN: usize = 1024 * 1024;

/// One end.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
}

/// A message with its file descriptors.
#[derive(Debug)]
pub struct Packet {
    pub bytes: Vec<u8>,
    pub fds: Vec<OwnedFd>,
    /// The kernel could not give all of them to this process.
    pub has_lost_fds: bool,
}

impl Channel {
    /// Both ends: the supervisor's, and the one that a data plane is started with.
    pub fn pair() -> rustix::io::Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        for end in [&ours, &theirs] {
            // A smaller one is only slower.
            let _ = rustix::net::sockopt::set_socket_send_buffer_size(end, BUFFER_LEN);
        }
        Ok((Self::over(ours), theirs))
    }

    pub fn over(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Sends without waiting; `AGAIN`: there is no room.
    pub fn try_send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
        self.send_with(bytes, fds, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    /// Waits until there is room.
    pub fn send(&self, bytes: &[u8]) -> rustix::io::Result<()> {
        rustix::io::retry_on_intr(|| self.send_with(bytes, &[], SendFlags::NOSIGNAL))
    }

    fn send_with(
        &self,
        bytes: &[u8],
        fds: &[BorrowedFd<'_>],
        flags: SendFlags,
    ) -> rustix::io::Result<()> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MESSAGE_FDS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(Errno::INVAL);
        }
        sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut ancillary, flags).map(drop)
    }

    /// The next message, without any file descriptor. `AGAIN`: there is none; `PIPE`: the other
    /// side has ended.
    pub fn try_receive(&self) -> rustix::io::Result<Vec<u8>> {
        let mut bytes = vec![0; MESSAGE_LEN_MAX];
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        let (_, len) = rustix::io::retry_on_intr(|| recv(&self.socket, &mut bytes[..], flags))?;
        match len {
            0 => Err(Errno::PIPE),
            // Too long for a message; what follows cannot be decoded either.
            len if len > MESSAGE_LEN_MAX => Err(Errno::MSGSIZE),
            len => {
                bytes.truncate(len);
                Ok(bytes)
            }
        }
    }

    /// The next message with its file descriptors, as the data plane takes it. `waits`: until there
    /// is one. Otherwise as [`try_receive`](Self::try_receive).
    pub fn receive_with_fds(&self, waits: bool) -> rustix::io::Result<Packet> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MESSAGE_FDS_MAX))];
        let mut bytes = vec![0; MESSAGE_LEN_MAX];
        let flags = if waits { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = rustix::io::retry_on_intr(|| {
            let mut into = [IoSliceMut::new(&mut bytes)];
            recvmsg(&self.socket, &mut into, &mut ancillary, flags | RecvFlags::CMSG_CLOEXEC)
        })?;
        if received.bytes == 0 {
            return Err(Errno::PIPE);
        }
        bytes.truncate(received.bytes);
        let mut fds = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(came) = message {
                fds.extend(came);
            }
        }
        Ok(Packet { bytes, fds, has_lost_fds: received.flags.contains(ReturnFlags::CTRUNC) })
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_stay_whole_and_fds_only_go_to_the_data_plane() {
        let (supervisor, data_plane) = Channel::pair().expect("sockets");
        let data_plane = Channel::over(data_plane);
        let fd = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("one");
        supervisor.try_send(&[1; 3], &[fd.as_fd(), fd.as_fd()]).expect("room");
        supervisor.try_send(&[2], &[]).expect("room");
        let packet = data_plane.receive_with_fds(true).expect("the first");
        assert_eq!((packet.bytes, packet.fds.len()), (vec![1; 3], 2));
        assert_eq!(data_plane.receive_with_fds(false).expect("the second").bytes, [2]);
        assert_eq!(data_plane.receive_with_fds(false).expect_err("no more"), Errno::AGAIN);
        data_plane.try_send(&[3], &[fd.as_fd()]).expect("room");
        assert_eq!(supervisor.try_receive().expect("its bytes"), [3]);
        assert_eq!(supervisor.try_receive().expect_err("no more"), Errno::AGAIN);
        drop(data_plane);
        assert_eq!(supervisor.try_receive().expect_err("its end"), Errno::PIPE);
    }

    #[test]
    fn who_finds_no_room_does_not_wait() {
        let (supervisor, _data_plane) = Channel::pair().expect("sockets");
        let message = vec![0; MESSAGE_LEN_MAX];
        let full = (0..10_000).find_map(|_| supervisor.try_send(&message, &[]).err());
        assert_eq!(full, Some(Errno::AGAIN));
    }
}
