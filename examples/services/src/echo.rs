//! Everything back (RFC 862).

use core::fmt;

use smoltcp::socket::tcp::Socket;

use crate::Conversation;

/// One connection that gets back what it sends.
#[derive(Debug, Default)]
pub struct Echo;

impl Conversation for Echo {
    const PORT: u16 = 7;
    const CONNECTIONS: usize = 2;
    const BUFFER_LEN: usize = 64 << 10;

    fn step<R: fmt::Display>(&mut self, socket: &mut Socket<'_>, _: &R) {
        // Bytes that cannot be sent yet stay where they are received.
        while socket.can_recv() && socket.can_send() {
            let mut bytes = [0; 2048];
            let room = (socket.send_capacity() - socket.send_queue()).min(bytes.len());
            let received = socket.recv_slice(&mut bytes[..room]).unwrap_or(0);
            if received == 0 || socket.send_slice(&bytes[..received]) != Ok(received) {
                return;
            }
        }
        if !socket.may_recv() && socket.recv_queue() == 0 {
            socket.close();
        }
    }
}
