//! Connections of one service: listening, talking, ending, and listening again.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};

/// One side of a connection, from its beginning (the default) to its end.
pub trait Conversation: Default {
    /// Where it listens.
    const PORT: u16;
    /// Connections at the same time.
    const CONNECTIONS: usize;
    /// Bytes that are buffered in each direction.
    const BUFFER_LEN: usize;

    /// Does what can be done now. `report` is what a statistics page shows.
    fn step<R: fmt::Display>(&mut self, socket: &mut Socket<'_>, report: &R);
}

/// A service.
#[derive(Debug)]
pub struct Listener<C> {
    connections: Vec<Connection<C>>,
}

#[derive(Debug)]
struct Connection<C> {
    socket: SocketHandle,
    conversation: C,
}

impl<C: Conversation> Listener<C> {
    /// Allocates the sockets.
    pub fn new(sockets: &mut SocketSet<'_>) -> Self {
        let buffer = || SocketBuffer::new(vec![0; C::BUFFER_LEN]);
        let mut connection = || {
            let mut socket = Socket::new(buffer(), buffer());
            // Acknowledgements at once: the other side may count on them.
            socket.set_ack_delay(None);
            Connection { socket: sockets.add(socket), conversation: C::default() }
        };
        Self { connections: (0..C::CONNECTIONS).map(|_| connection()).collect() }
    }

    /// One step of every connection.
    pub fn step<R: fmt::Display>(&mut self, sockets: &mut SocketSet<'_>, report: &R) {
        for Connection { socket, conversation } in &mut self.connections {
            let socket = sockets.get_mut::<Socket<'_>>(*socket);
            match socket.state() {
                State::Closed | State::TimeWait => {
                    // Both sides have closed. Waiting for late packets would keep the socket from
                    // the next peer, and there are few of them.
                    socket.abort();
                    *conversation = C::default();
                    let listening = socket.listen(C::PORT);
                    debug_assert!(listening.is_ok(), "a closed socket listens");
                }
                State::Listen | State::SynReceived => {}
                _ => conversation.step(socket, report),
            }
        }
    }
}

/// Sends as much of `bytes` as there is room for; returns what is left.
pub fn send<'a>(socket: &mut Socket<'_>, bytes: &'a [u8]) -> &'a [u8] {
    let sent = socket.send_slice(bytes).unwrap_or(0);
    &bytes[sent..]
}
