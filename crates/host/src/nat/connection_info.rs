//! The kernel's knowledge of a connection (`tcp_info`, linux/tcp.h).

use ringway_nat::SocketCounts;

/// Bytes of `tcp_info` (linux/tcp.h) that are asked for: up to behind `tcpi_snd_wnd`.
pub(crate) const INFO_LEN: libc::socklen_t = 232;
const STATE_AT: usize = 0;
const BYTES_ACKED_AT: usize = 120;
const BYTES_RECEIVED_AT: usize = 128;
const SEND_WINDOW_AT: usize = 228;

/// `tcp_info`, as the kernel gives it.
pub(crate) struct ConnectionInfo(pub(crate) [u8; INFO_LEN as usize]);

impl ConnectionInfo {
    fn bytes<const LEN: usize>(&self, at: usize) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes.copy_from_slice(&self.0[at..at + LEN]);
        bytes
    }

    /// The window that the other end has told, in bytes.
    pub(crate) fn send_window(&self) -> u32 {
        u32::from_ne_bytes(self.bytes(SEND_WINDOW_AT))
    }

    /// The counts in it; those of both queues are asked for otherwise.
    pub(crate) fn counts(&self) -> SocketCounts {
        SocketCounts {
            state: self.0[STATE_AT],
            bytes_acked: u64::from_ne_bytes(self.bytes(BYTES_ACKED_AT)),
            bytes_received: u64::from_ne_bytes(self.bytes(BYTES_RECEIVED_AT)),
            ..SocketCounts::default()
        }
    }
}
