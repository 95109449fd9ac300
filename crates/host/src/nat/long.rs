//! Messages that are no frame for their guest as they are: longer than a packet, or several
//! together for a guest that does not take them so.

use ringway_nat::{Emit, Guest, Read};
use ringway_net::DropReason;
use ringway_switch::PortId;

use crate::forward::Fabric;
use crate::forward::budget::UNIT_LEN;
use crate::nat::NatPort;
use crate::nat::fill::write;
use crate::nat::visit::Turn;

/// Most bytes of datagrams in one frame: with the longest headers it is below 64 KiB.
const TOGETHER_LEN_MAX: usize = 65_480;

impl NatPort {
    /// A message that is no frame for its guest as it is. What is longer than a packet goes there
    /// in parts, which are due next; several that are not are one frame, which is completed.
    pub(crate) fn give_long(
        &mut self,
        guest: Guest,
        mut emit: Emit,
        fabric: &mut Fabric<'_>,
    ) -> Turn {
        let message = std::mem::take(&mut self.sockets.vectors.gathered);
        let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
        if self.sockets.is_no_answer(emit.flow, &message, self.now) {
            self.sockets.vectors.gathered = message;
            self.emitted(&emit, Read::TooLong);
            return Turn::Goes;
        }
        match emit.segment_len().map(usize::from) {
            Some(_) if !emit.is_longer(len) => {
                self.give_several(guest, &mut emit, &message, fabric);
            }
            None => self.nat.cut(&emit, &message),
            Some(each) => {
                message.chunks(each).for_each(|message| self.nat.cut(&emit, message));
                // From now on each waits in the socket for its turn.
                if let Some((socket, _)) = self.sockets.of(emit.flow) {
                    socket.fd.come_alone();
                    socket.take_several(false);
                }
            }
        }
        fabric.delivery.work += 1 + len / UNIT_LEN;
        self.sockets.vectors.gathered = message;
        self.emitted(&emit, Read::Bytes(len));
        Turn::Goes
    }

    /// Several datagrams of one length, and a last one, as one frame.
    fn give_several(
        &mut self,
        guest: Guest,
        emit: &mut Emit,
        message: &[u8],
        fabric: &mut Fabric<'_>,
    ) {
        let (head_len, bytes) = (emit.head().len(), self.scratch.bytes());
        let each = emit.segment_len().map_or(message.len(), usize::from);
        for several in message.chunks((TOGETHER_LEN_MAX / each * each).max(each)) {
            let len = u32::try_from(several.len()).unwrap_or(u32::MAX);
            let Some(header) = emit.finish(len) else { return };
            write(&[bytes], emit.head());
            bytes.write(head_len, several);
            // Without room the rest is lost, as on any other link.
            if self.deliver(guest, header, head_len + several.len(), fabric) != Turn::Goes {
                return fabric.count_drop_at(PortId(guest.0), DropReason::NoRoom);
            }
        }
    }
}
