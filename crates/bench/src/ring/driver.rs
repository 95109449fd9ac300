//! ringway's driver as an end: what goes in is sent to the device, what the device sends comes out.
//!
//! How: packets are copied from and to memory of our own, or they stay in memory that the device
//! sees: see [`Payload`].
//!
//! Limits: one queue pair, polled: the device is asked never to call.

use std::path::Path;

use ringway_driver::rx_buffer::PAGE_LEN;
use ringway_driver::{
    Arena, DriverOptions, LINEAR_LEN_MAX, NetDriver, NetTx, Part, RxOptions, RxScheme, Sent,
    TxFragment, TxOptions,
};
use ringway_net::{Features, HEADER_LEN, NetHeader};
use ringway_testkit::{Attachment, GuestError, GuestOptions};
use ringway_virtq::{Arm, Broken, DriverQueue, Format};

use super::end::{End, Template};

/// Bytes of a buffer into which the device writes; for a packet that does not fit one the driver
/// chooses the length.
pub(super) const RECEIVE_BUFFER: usize = PAGE_LEN as usize;

const RECEIVEQ: usize = 0;
const TRANSMITQ: usize = 1;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Bytes that testpmd writes of a packet that it sends: Ethernet, IPv4 and UDP headers.
const WRITTEN: usize = 42;

/// Where the packets are that the driver sends and receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payload {
    /// In memory of our own: each, of `len` bytes, is copied, as a program's packets are.
    Own { len: usize },
    /// In memory that the device sees, as testpmd's are. A received packet stays where it is, and
    /// only its header is read. A packet to send, of `len` bytes, lies there already behind room
    /// for the header, and its first 42 bytes are written; a short one is copied whole.
    InPlace { len: usize },
    /// The same behind an indirect table: those 42 bytes, copied, and the rest.
    InTwo { len: usize },
}

impl Payload {
    /// The receive buffers for such packets: of a page, which take fewest steps, unless no page
    /// holds one whole; then as the driver chooses.
    fn receive_scheme(self) -> RxScheme {
        let (Self::Own { len } | Self::InPlace { len } | Self::InTwo { len }) = self;
        if HEADER_LEN + len <= RECEIVE_BUFFER { RxScheme::Page } else { RxScheme::Adaptive }
    }
}

/// Packets that lie where the device sees them, and are sent again and again.
#[derive(Debug)]
struct PacketPool {
    /// Each with its header, behind the one before; packets begin at a cache line.
    all: Part,
    stride: usize,
    packet_len: usize,
    is_in_two: bool,
    /// As many as can be in flight. All hold the same, so that one that is in use does no harm.
    count: usize,
    next: usize,
}

impl PacketPool {
    /// For packets of `len` bytes; `None` if they are too short for it to be worth it.
    fn carve(arena: &mut Arena, payload: Payload, count: u16) -> Result<Option<Self>, GuestError> {
        let (len, is_in_two) = match payload {
            Payload::InTwo { len } => (len, true),
            Payload::InPlace { len } if len > LINEAR_LEN_MAX => (len, false),
            Payload::InPlace { .. } | Payload::Own { .. } => return Ok(None),
        };
        let stride = (HEADER_LEN + len).next_multiple_of(LINE);
        let count = usize::from(count);
        let all = arena.carve(LINE + stride * count, LINE)?;
        // A guest writes what it sends.
        all.memory.zero();
        Ok(Some(Self { all, stride, packet_len: len, is_in_two, count, next: 0 }))
    }

    fn place(&self) -> Part {
        let at = LINE - HEADER_LEN + self.next * self.stride;
        let memory = self.all.memory.slice(at, HEADER_LEN + self.packet_len);
        let device_address = self.all.device_address + at as u64;
        Part { memory: memory.expect("so many were carved"), device_address }
    }

    fn send<Q: DriverQueue>(&mut self, tx: &mut NetTx<Q>, packet: &[u8]) -> Result<Sent, Broken> {
        while tx.next_done().is_some() {}
        let (place, header, start) = (self.place(), NetHeader::default(), &packet[..WRITTEN]);
        let sent = if self.is_in_two {
            let at = place.device_address + (HEADER_LEN + WRITTEN) as u64;
            let len = u32::try_from(self.packet_len - WRITTEN).unwrap_or(u32::MAX);
            let rest = TxFragment { device_address: at, len };
            tx.send_fragments(&header, start, &[rest], self.next as u64)?
        } else {
            place.memory.write(HEADER_LEN, start);
            tx.send_whole(&header, place, self.next as u64)?
        };
        match sent {
            Sent::Done => self.next = (self.next + 1) % self.count,
            // Without a free token it does not look for used ones.
            _ => drop(tx.reclaim()?),
        }
        Ok(sent)
    }
}

#[derive(Debug)]
pub(crate) struct DriverEnd<Q> {
    driver: NetDriver<Q>,
    attachment: Attachment,
    payload: Payload,
    pool: Option<PacketPool>,
}

impl<Q: DriverQueue> DriverEnd<Q> {
    pub fn attach(socket: &Path, queue_size: u16, payload: Payload) -> Result<Self, GuestError> {
        let unwanted = Features::CTRL_VQ | Features::MTU;
        let mut accept = (Features::OFFERED - unwanted).drop_unmet();
        accept.set(Features::RING_PACKED, Q::FORMAT == Format::Packed);
        let options = GuestOptions { accept, queue_size, ..GuestOptions::default() };
        let mut attachment = Attachment::new(socket, &options)?;
        if attachment.format() != Q::FORMAT {
            return Err(GuestError::NotNegotiated("RING_PACKED"));
        }
        let mergeable = attachment.negotiated.mergeable;
        let scheme = if mergeable { payload.receive_scheme() } else { RxScheme::Big };
        let mut options = DriverOptions { rx: RxOptions::of(scheme), tx: TxOptions::default() };
        let mut pool = None;
        if !matches!(payload, Payload::Own { .. }) {
            // No more is ever copied.
            options.tx.packet_len_max = u32::try_from(LINEAR_LEN_MAX).unwrap_or(u32::MAX);
            let count = attachment.queues[TRANSMITQ].ring.size;
            pool = PacketPool::carve(&mut attachment.arena, payload, count)?;
        }
        let queue_options = attachment.negotiated.options;
        let receiveq = attachment.queues[RECEIVEQ].ring.start(queue_options);
        let transmitq = attachment.queues[TRANSMITQ].ring.start(queue_options);
        let mut driver = NetDriver::new(receiveq, transmitq, &mut attachment.arena, &options)?;
        // Calls are not waited for; what is there already is found by looking.
        let _ = driver.rx.arm_calls(Arm::Never);
        let _ = driver.tx.arm_calls(Arm::Never);
        attachment.start()?;
        let _ = driver.rx.flush();
        // A vhost-user ring starts with its first kick, wanted or not.
        attachment.queues.iter().for_each(ringway_testkit::AttachedQueue::kick);
        Ok(Self { driver, attachment, payload, pool })
    }
}

impl<Q: DriverQueue> End for DriverEnd<Q> {
    #[inline]
    fn send(&mut self, packet: &Template) -> Result<bool, Broken> {
        let sent = match &mut self.pool {
            None => self.driver.tx.send(&NetHeader::default(), packet.bytes())?,
            Some(pool) => pool.send(&mut self.driver.tx, packet.bytes())?,
        };
        Ok(sent == Sent::Done)
    }

    #[inline]
    fn flush_sent(&mut self) {
        if self.driver.tx.flush() {
            self.attachment.queues[TRANSMITQ].kick();
        }
    }

    #[inline]
    fn receive(&mut self, into: &mut [u8]) -> Result<Option<usize>, Broken> {
        let Some(received) = self.driver.rx.receive()? else { return Ok(None) };
        if let Payload::Own { .. } = self.payload {
            received.copy_to(into);
        }
        Ok(Some(received.len as usize))
    }

    #[inline]
    fn flush_received(&mut self) {
        if self.driver.rx.flush() {
            self.attachment.queues[RECEIVEQ].kick();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use ringway_virtq::{PackedDriver, SplitDriver};

    use super::*;
    use crate::ring::device;

    /// How often the device was kicked, except to start its rings.
    fn kicks<Q: DriverQueue>(mut end: DriverEnd<Q>) -> u64 {
        let packet = Template::new(64).expect("a packet");
        for _ in 0..4 {
            assert_eq!(end.send(&packet), Ok(true));
            end.flush_sent();
        }
        end.driver.rx.counters().kicks + end.driver.tx.counters().kicks
    }

    fn attached<Q: DriverQueue>() -> DriverEnd<Q> {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("s");
        let mut backend = device::bind(&socket, false).expect("a socket");
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    backend.serve().expect("a right front-end");
                }
            });
            let end = DriverEnd::attach(&socket, 16, Payload::Own { len: 64 });
            stop.store(true, Ordering::Relaxed);
            end.expect("a device")
        })
    }

    #[test]
    fn a_device_that_polls_is_never_kicked() {
        assert_eq!(kicks(attached::<SplitDriver>()), 0);
        assert_eq!(kicks(attached::<PackedDriver>()), 0);
    }
}
