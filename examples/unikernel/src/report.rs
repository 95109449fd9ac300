//! The statistics page.

use core::fmt;

use ringway_driver::RxStatistics;
use ringway_driver::phy::SmoltcpDevice;
use ringway_net::{Counters, DropReason};
use ringway_virtq::DriverQueue;

use crate::{Guest, machine};

/// The counters at one moment.
#[derive(Debug)]
pub struct Report<'a> {
    transport: &'a str,
    format: ringway_virtq::Format,
    features: ringway_net::Features,
    address: Option<core::net::Ipv4Addr>,
    up_us: u64,
    interrupts: Option<u64>,
    heap_left: usize,
    scheme: &'a str,
    statistics: RxStatistics,
    rx: Counters,
    tx: Counters,
    dropped: Counters,
}

impl<'a> Report<'a> {
    /// Takes the counters.
    pub fn new<Q: DriverQueue>(
        guest: &'a Guest<'_>,
        device: &mut SmoltcpDevice<Q>,
        address: Option<core::net::Ipv4Addr>,
    ) -> Self {
        Self {
            transport: guest.name,
            format: guest.negotiated.format,
            features: guest.negotiated.features,
            address,
            up_us: guest.machine.clock.now_us(),
            interrupts: guest.interrupts.map(|interrupts| interrupts.count()),
            heap_left: machine::heap_left(),
            scheme: guest.options.scheme.name(),
            statistics: device.driver().rx.statistics(),
            rx: *device.driver().rx.counters(),
            tx: *device.driver().tx.counters(),
            dropped: *device.dropped(),
        }
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "ringway unikernel")?;
        writeln!(f, "device    {}, {:?} rings", self.transport, self.format)?;
        writeln!(f, "features  {}", self.features)?;
        match self.address {
            Some(address) => writeln!(f, "address   {address}")?,
            None => writeln!(f, "address   none yet")?,
        }
        writeln!(f, "up        {}.{:03} s", self.up_us / 1_000_000, self.up_us / 1000 % 1000)?;
        match self.interrupts {
            Some(count) => writeln!(f, "interrupts {count}")?,
            None => writeln!(f, "interrupts off: it polls")?,
        }
        writeln!(f, "heap left {} bytes", self.heap_left)?;
        let RxStatistics { posted_buffers, posted_bytes, buffer_len, .. } = self.statistics;
        writeln!(
            f,
            "receive   {}: {posted_buffers} buffers of {posted_bytes} bytes, next {buffer_len}",
            self.scheme
        )?;
        writeln!(
            f,
            "rx_coalesced {}\nrx_no_memory {}",
            self.statistics.coalesced, self.statistics.no_memory
        )?;
        for (name, counters) in [("rx", &self.rx), ("tx", &self.tx), ("stack", &self.dropped)] {
            let Counters { packets, bytes, kicks, .. } = counters;
            writeln!(f, "{name}_packets {packets}\n{name}_bytes {bytes}\n{name}_kicks {kicks}")?;
            for reason in DropReason::ALL {
                let drops = counters.drops[reason as usize];
                if drops > 0 {
                    writeln!(f, "{name}_drop_{} {drops}", reason.name())?;
                }
            }
        }
        Ok(())
    }
}
