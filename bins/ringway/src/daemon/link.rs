//! One connected front-end: its socket, its session, and the memory it shared.

use std::os::fd::{AsFd, OwnedFd};

use ringway_host::GuestMemory;
use ringway_net::{MacAddress, Negotiated};
use ringway_switch::PortId;
use ringway_vhost_user::{Connection, Offer, Received, Session};
use tracing::{debug, warn};

use super::Daemon;

/// Messages handled before other ports get their turn.
const MESSAGES_PER_TURN: usize = 32;

/// The state that lasts as long as one connection.
pub(super) struct Link {
    pub(super) connection: Connection,
    /// The MAC address this guest was given; the port may have another for the next one.
    pub(super) mac: MacAddress,
    pub(super) session: Session,
    pub(super) memory: GuestMemory,
    pub(super) negotiated: Option<Negotiated>,
    pub(super) back_end_channel: Option<OwnedFd>,
}

impl Link {
    pub(super) fn new(connection: Connection, mac: MacAddress, offer: Offer) -> Self {
        Self {
            connection,
            mac,
            session: Session::new(offer),
            memory: GuestMemory::empty(),
            negotiated: None,
            back_end_channel: None,
        }
    }

    /// Changes the configuration space; `true`: the guest was told.
    pub(super) fn change_config(&mut self, config: Vec<u8>) -> bool {
        let Some(message) = self.session.set_config(config) else { return false };
        let Some(channel) = &self.back_end_channel else { return false };
        ringway_vhost_user::send_on_channel(channel.as_fd(), &message).is_ok()
    }
}

impl Daemon {
    /// Handles what a front-end sent; a connection that ends or breaks is dropped.
    pub(super) fn serve_link(&mut self, id: PortId) {
        for _ in 0..MESSAGES_PER_TURN {
            let Some(port) = self.ports.get_mut(&id) else { return };
            let Some(link) = port.vm.as_mut().and_then(|vm| vm.link.as_mut()) else { return };
            match link.connection.receive() {
                Ok(Received::Request(request)) => {
                    debug!(port = port.spec.name, ?request, "request");
                    let outcome = link.session.handle(request);
                    if let Some(why) = &outcome.refused {
                        warn!(port = port.spec.name, "refused: {why}");
                    }
                    let applied = self.apply(id, outcome.effects);
                    if !self.reply(id, outcome.pending, applied) {
                        return self.drop_link(id);
                    }
                }
                Ok(Received::Nothing) => return,
                Ok(Received::Closed) => return self.drop_link(id),
                Err(why) => {
                    warn!(port = port.spec.name, "connection ended: {why}");
                    return self.drop_link(id);
                }
            }
        }
    }

    /// `false`: the reply could not be sent.
    fn reply(
        &mut self,
        id: PortId,
        pending: ringway_vhost_user::PendingReply,
        applied: ringway_vhost_user::Applied,
    ) -> bool {
        let Some(port) = self.ports.get_mut(&id) else { return false };
        let Some(link) = port.vm.as_mut().and_then(|vm| vm.link.as_mut()) else { return false };
        let Some(bytes) = link.session.complete(pending, applied) else { return true };
        match link.connection.send(&bytes) {
            Ok(()) => true,
            Err(why) => {
                warn!(port = port.spec.name, "reply: {why}");
                false
            }
        }
    }
}
