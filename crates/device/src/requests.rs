//! Whether one of the packets that go to a guest is a request: may its sender wait for an answer?
//!
//! One write of an application becomes long packets, and a shorter one behind them. Its sender
//! waits for that one no more than for the long packets before it. So the first short packet behind
//! a long one of the same flow is no request; a second one is.
//!
//! Limits: eight flows are remembered, and of two flows in the same place only the last one. A
//! request directly behind long packets of its own connection is missed.

use ringway_net::{Flow, LONG_LEN, Packet, is_request};

/// Flows that are known for their long packets at the same time.
const STREAMS: usize = 8;

/// Reads packets only while it is watching, and only until one was a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Requests {
    is_watching: bool,
    was_one: bool,
    /// Flows whose last packet was long.
    streams: [Option<u32>; STREAMS],
}

impl Requests {
    /// Starts to look at packets, or stops.
    pub fn watch(&mut self, is_watching: bool) {
        if is_watching && !self.is_watching {
            // Packets that passed meanwhile are not known.
            self.streams = Default::default();
        }
        self.is_watching = is_watching;
    }

    /// Whether there was a request since the last time asked; `None`: the packets were not watched.
    pub fn take(&mut self) -> Option<bool> {
        let was_one = std::mem::take(&mut self.was_one);
        self.is_watching.then_some(was_one)
    }

    /// Whether the next packet is looked at.
    #[inline]
    pub(crate) fn looks(&self) -> bool {
        self.is_watching && !self.was_one
    }

    /// This packet goes to the guest.
    #[inline]
    pub(crate) fn see(&mut self, packet: &Packet<'_>) {
        if self.looks() {
            self.look_at(packet);
        }
    }

    fn look_at(&mut self, packet: &Packet<'_>) {
        if packet.len >= LONG_LEN {
            self.note_stream(packet);
        } else if is_request(packet) {
            self.was_one = !self.ends_stream(packet);
        }
    }

    fn note_stream(&mut self, packet: &Packet<'_>) {
        if let Some(stream) = stream(packet) {
            self.streams[place(stream)] = Some(stream);
        }
    }

    /// Whether it comes directly behind a long packet of its flow.
    fn ends_stream(&mut self, packet: &Packet<'_>) -> bool {
        let Some(stream) = stream(packet) else { return false };
        let last = &mut self.streams[place(stream)];
        let is_end = *last == Some(stream);
        if is_end {
            *last = None;
        }
        is_end
    }
}

/// The flow of a packet that has ports.
fn stream(packet: &Packet<'_>) -> Option<u32> {
    let flow = Flow::of(packet)?;
    flow.transport.map(|_| flow.conversation())
}

fn place(stream: u32) -> usize {
    stream as usize % STREAMS
}

#[cfg(test)]
mod tests {
    use ringway_net::NetHeader;
    use ringway_testkit::TestMemory;

    use super::*;

    /// Ethernet, IPv4 with that protocol, and the two ports, all in front of zeros.
    fn bytes(protocol: u8, port: u16, len: u32) -> Vec<u8> {
        let mut bytes = vec![0; 12];
        let ip_len = u16::try_from(len - 14).unwrap().to_be_bytes();
        bytes.extend([8, 0, 0x45, 0, ip_len[0], ip_len[1], 0, 0, 0, 0, 64, protocol]);
        bytes.extend([0; 10]);
        bytes.extend(port.to_be_bytes());
        bytes.extend([0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x18]);
        bytes.resize(len as usize, 0);
        bytes
    }

    /// Whether such a packet is a request.
    fn asks(requests: &mut Requests, protocol: u8, port: u16, len: u32) -> bool {
        const AT: u64 = 0x1000;
        let memory = TestMemory::new(&[(AT, 0x2000)]).unwrap();
        let payload = memory.regions().slice(AT, len).unwrap();
        payload.write(0, &bytes(protocol, port, len));
        requests.see(&Packet { header: &NetHeader::ZERO, payload: &[payload], len });
        requests.take() == Some(true)
    }

    const TCP: u8 = 6;
    const PING: u8 = 1;

    fn watching() -> Requests {
        let mut requests = Requests::default();
        requests.watch(true);
        requests
    }

    #[test]
    fn the_end_of_what_long_packets_carry_is_no_request() {
        let mut requests = watching();
        assert!(!asks(&mut requests, TCP, 7, LONG_LEN));
        assert!(!asks(&mut requests, TCP, 7, 2962));
        assert!(asks(&mut requests, TCP, 7, 2962), "behind that one");
    }

    #[test]
    fn short_packets_of_others_are_requests() {
        let mut requests = watching();
        assert!(asks(&mut requests, TCP, 7, 2962), "no long one before");
        assert!(!asks(&mut requests, TCP, 7, LONG_LEN));
        assert!(asks(&mut requests, TCP, 8, 2962), "another flow");
        assert!(asks(&mut requests, PING, 7, 98));
        assert!(!asks(&mut requests, TCP, 7, 2962), "still its end");
        assert!(!asks(&mut requests, PING, 7, LONG_LEN));
        assert!(asks(&mut requests, PING, 7, 2962), "no ports");
    }

    #[test]
    fn what_passed_unwatched_is_not_known() {
        let mut requests = watching();
        assert!(!asks(&mut requests, TCP, 7, LONG_LEN));
        requests.watch(true);
        assert!(!asks(&mut requests, TCP, 7, 2962), "told the same once more");
        assert!(!asks(&mut requests, TCP, 7, LONG_LEN));
        requests.watch(false);
        requests.watch(true);
        assert!(asks(&mut requests, TCP, 7, 2962));
    }

    #[test]
    fn packets_are_not_read_unless_watched() {
        let mut requests = Requests::default();
        assert!(!asks(&mut requests, PING, 7, 98));
        requests.watch(true);
        assert_eq!(requests.take(), Some(false));
        assert!(asks(&mut requests, PING, 7, 98));
    }
}
