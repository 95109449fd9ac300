//! How far both streams of a connection have come, by what the kernel counts of its socket.
//!
//! How: the kernel counts what the other end has acknowledged and what came from it
//! (`tcpi_bytes_acked`, `tcpi_bytes_received`), and says what is still in both queues (`SIOCOUTQ`,
//! `SIOCINQ`). The sums go up by exactly what the socket took and gave, so a flow needs no journal:
//! it remembers both sums of the moment at which the socket was connected, and its sequence
//! numbers follow from those of now (tcp(7); `tcp_ioctl`, `tcp_inq`, `tcp_snd_una_update` in the
//! kernel, from Linux 4.1 on).
//!
//! Limits: after a reset the sums are those of a dead connection, and mean nothing.

/// State of a socket, as `tcpi_state` has it.
const FIN_WAIT1: u8 = 4;
const FIN_WAIT2: u8 = 5;
const TIME_WAIT: u8 = 6;
const CLOSE: u8 = 7;
const CLOSE_WAIT: u8 = 8;
const LAST_ACK: u8 = 9;
const CLOSING: u8 = 11;

/// The kernel's counts of one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SocketCounts {
    /// `tcpi_state`.
    pub state: u8,
    /// `tcpi_bytes_acked`: a SYN and a FIN count one each.
    pub bytes_acked: u64,
    /// `tcpi_bytes_received`: a FIN counts one.
    pub bytes_received: u64,
    /// `SIOCOUTQ`: bytes that the other end has not acknowledged; a FIN counts one.
    pub unacknowledged: u32,
    /// `SIOCINQ`: bytes that were not read, without a FIN.
    pub unread: u32,
}

impl SocketCounts {
    /// Bytes that the socket took, with its FIN, from an unknown beginning.
    pub fn written(&self) -> u64 {
        self.bytes_acked.wrapping_add(u64::from(self.unacknowledged))
    }

    /// Bytes that came, without a FIN, from an unknown beginning.
    pub fn received(&self) -> u64 {
        self.bytes_received.wrapping_sub(u64::from(self.has_received_end()))
    }

    /// Bytes that were read off the socket, from the same beginning as [`Self::received`].
    pub fn taken(&self) -> u64 {
        self.received().wrapping_sub(u64::from(self.unread))
    }

    /// Whether the socket's own half has ended: it was shut down for writing.
    pub fn has_ended(&self) -> bool {
        [FIN_WAIT1, FIN_WAIT2, CLOSING, LAST_ACK, TIME_WAIT, CLOSE].contains(&self.state)
    }

    /// Whether the other end's half has ended.
    pub fn has_received_end(&self) -> bool {
        [CLOSE_WAIT, CLOSING, LAST_ACK, TIME_WAIT, CLOSE].contains(&self.state)
    }
}
