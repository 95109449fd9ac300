//! A back-end as a driver's device: the front-end behind the driver's [`Transport`].
//!
//! How: what a driver says to its device becomes vhost-user messages. The memory is shared before
//! the first queue starts, each queue has an eventfd in each direction, and `DRIVER_OK` enables the
//! queues and starts them with a first kick (vhost-user, "Ring states"). A device status that the
//! back-end does not want to know is kept here.
//!
//! Limits: a back-end without a configuration space has none of the features that need one, and no
//! control queue either: such back-ends leave it to the monitor. vhost-user does not tell how
//! long queues may be; 1024 entries is what all known back-ends take.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ringway_driver::{Doorbell, QueueStart, Transport, status};
use ringway_net::Features;
use ringway_virtq::{Areas, Position};
use rustix::event::{EventfdFlags, eventfd};

use crate::frontend::{Frontend, FrontendError};
use crate::message::{MemoryRegion, ProtocolFeatures};
use crate::ring_state::base_from_position;
use crate::socket_error::SocketError;

/// Most entries of a queue.
const QUEUE_SIZE_MAX: u16 = 1024;

/// One, as an eventfd counts.
const ONE: [u8; 8] = 1_u64.to_ne_bytes();

/// Features that only a back-end with a configuration space can have.
const NEED_CONFIG: Features =
    Features::MAC.union(Features::STATUS).union(Features::MTU).union(Features::CTRL_VQ);

/// Where a memory region is, in both of its address spaces.
#[derive(Debug, Clone, Copy)]
struct Place {
    guest_address: u64,
    size: u64,
    user_address: u64,
}

/// A queue that was started.
#[derive(Debug)]
struct Queue {
    index: u16,
    doorbell: EventfdDoorbell,
    call: OwnedFd,
}

/// A device behind a vhost-user socket.
#[derive(Debug)]
pub struct FrontendTransport {
    frontend: Frontend,
    /// Not shared yet.
    memory: Option<Vec<MemoryRegion>>,
    places: Vec<Place>,
    queues: Vec<Queue>,
    status: u8,
    generation: u32,
}

impl FrontendTransport {
    /// A back-end that is connected, and the memory in which the driver's arena lies.
    pub fn new(frontend: Frontend, memory: Vec<MemoryRegion>) -> Self {
        let place = |region: &MemoryRegion| Place {
            guest_address: region.guest_address,
            size: region.size,
            user_address: region.user_address,
        };
        let places = memory.iter().map(place).collect();
        let (queues, memory) = (Vec::new(), Some(memory));
        Self { frontend, memory, places, queues, status: 0, generation: 0 }
    }

    /// The eventfd that becomes readable when the device calls about a queue; it does not block.
    pub fn call_fd(&self, queue: u16) -> Option<BorrowedFd<'_>> {
        let queue = self.queues.iter().find(|started| started.index == queue)?;
        Some(queue.call.as_fd())
    }

    /// Whether the device has called about a queue since this was asked last.
    pub fn take_call(&self, queue: u16) -> bool {
        let mut count = [0; 8];
        let call = self.call_fd(queue);
        call.is_some_and(|call| rustix::io::read(call, &mut count).is_ok_and(|len| len > 0))
    }

    /// The connection, for what a driver has no words for.
    pub fn frontend(&mut self) -> &mut Frontend {
        &mut self.frontend
    }

    /// Where the areas are in the address space that the memory regions call the user's.
    fn user_areas(&self, areas: &Areas) -> Areas {
        let user = |address: u64| {
            let inside = |place: &&Place| {
                address.checked_sub(place.guest_address).is_some_and(|offset| offset < place.size)
            };
            let place = self.places.iter().find(inside);
            // Rings outside the memory are the driver's mistake; the back-end refuses them.
            place.map_or(0, |place| place.user_address + (address - place.guest_address))
        };
        Areas::new(user(areas.descriptor), user(areas.driver), user(areas.device))
    }

    /// The queues stop one by one, and are forgotten.
    fn stop(&mut self) -> Result<(), FrontendError> {
        for queue in std::mem::take(&mut self.queues) {
            self.frontend.stop_queue(queue.index)?;
        }
        Ok(())
    }

    /// Whether the back-end wants to know the device status.
    fn has_status(&self) -> bool {
        self.frontend.protocol_features().contains(ProtocolFeatures::STATUS)
    }
}

/// Kicks a queue by counting its eventfd up.
#[derive(Debug, Clone)]
pub struct EventfdDoorbell(Arc<OwnedFd>);

impl Doorbell for EventfdDoorbell {
    fn kick(&self) {
        // It can fail only when the counter is full, and then the device knows already.
        let _ = rustix::io::write(&*self.0, &ONE);
    }
}

impl Transport for FrontendTransport {
    type Error = FrontendError;
    type Doorbell = EventfdDoorbell;

    fn status(&mut self) -> Result<u8, FrontendError> {
        if self.has_status() {
            self.status = self.frontend.status()?.to_le_bytes()[0];
        }
        Ok(self.status)
    }

    fn set_status(&mut self, status: u8) -> Result<(), FrontendError> {
        if status == 0 {
            self.stop()?;
        }
        if status & status::DRIVER_OK != 0 {
            for queue in &self.queues {
                self.frontend.enable_queue(queue.index, true)?;
            }
        }
        if self.has_status() {
            self.frontend.set_status(status)?;
        }
        self.status = status;
        if status & status::DRIVER_OK != 0 {
            self.queues.iter().for_each(|queue| queue.doorbell.kick());
        }
        Ok(())
    }

    fn offered_features(&mut self) -> Result<Features, FrontendError> {
        let offered = Features::from_bits_retain(self.frontend.offered_features());
        let has_config = self.frontend.protocol_features().contains(ProtocolFeatures::CONFIG);
        Ok(if has_config { offered } else { offered.difference(NEED_CONFIG).drop_unmet() })
    }

    fn accept_features(&mut self, features: Features) -> Result<(), FrontendError> {
        self.frontend.accept_features(features.bits())
    }

    fn queue_size_max(&mut self, _: u16) -> Result<u16, FrontendError> {
        Ok(QUEUE_SIZE_MAX)
    }

    fn start_queue(&mut self, start: &QueueStart) -> Result<EventfdDoorbell, FrontendError> {
        if let Some(memory) = self.memory.take() {
            self.frontend.set_memory(memory)?;
        }
        let (kick, call) = (new_eventfd()?, new_eventfd()?);
        self.frontend.start_queue(crate::frontend::QueueStart {
            index: start.queue,
            size: start.size,
            areas: self.user_areas(&start.areas),
            base: base_from_position(Position::FRESH, start.format),
            kick: kick.as_fd(),
            call: call.as_fd(),
        })?;
        let doorbell = EventfdDoorbell(Arc::new(kick));
        self.queues.push(Queue { index: start.queue, doorbell: doorbell.clone(), call });
        Ok(doorbell)
    }

    fn config_generation(&mut self) -> Result<u32, FrontendError> {
        if self.frontend.config_changed()? {
            self.generation = self.generation.wrapping_add(1);
        }
        Ok(self.generation)
    }

    fn read_config(&mut self, offset: u16, into: &mut [u8]) -> Result<(), FrontendError> {
        let start = usize::from(offset);
        let end = start + into.len();
        // Fields lie in the first few bytes of the space, so the sum is small.
        let bytes = self.frontend.config(u32::try_from(end).unwrap_or(u32::MAX))?;
        into.copy_from_slice(&bytes[start..end]);
        Ok(())
    }
}

fn new_eventfd() -> Result<OwnedFd, FrontendError> {
    let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    fd.map_err(|error| FrontendError::from(SocketError::Io(error.into())))
}
