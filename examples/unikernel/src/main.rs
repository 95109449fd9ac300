//! A guest without an operating system, on ringway's driver.
//!
//! How: find a network device, on PCI or where the loader says that memory-mapped ones are; bring
//! it up; then poll the device and the stack for ever. On PCI it sleeps when there is nothing to
//! do, until the device's MSI-X interrupt; elsewhere it never does. See the README for what it
//! offers and how it is started.
//!
//! Limits: one device, one queue pair, one processor.
#![no_std]
#![no_main]
extern crate alloc;

mod machine;
mod options;
mod report;

use ringway_driver::phy::SmoltcpDevice;
use ringway_driver::{
    Arena, BroughtUp, Doorbell, DriverOptions, MmioError, MmioTransport, NetDriver, NetRx,
    PciTransport, QueueSet, Queues, RxOptions, Transport, TxOptions, Wanted, bring_up,
    net_functions,
};
use ringway_net::{Features, MacAddress, Negotiated, NetConfig};
use ringway_services::Services;
use ringway_virtq::{Arm, DriverQueue};

use machine::{Interrupts, Machine, PciPorts};
use options::Options;
use report::Report;

/// Bytes of rings and buffers: 256 packets of 64 KiB to receive, 4.5 MiB for those to send, and the
/// rings.
const ARENA_LEN: usize = 24 << 20;

/// PCI buses that are looked at.
const BUSES: u8 = 4;

/// Vectors of one queue pair and the control queue.
const VECTORS: u16 = 3;

/// Rounds in which nothing moves before it sleeps: going to sleep and waking up take longer.
const IDLE_ROUNDS: u32 = 64;

/// Used when the device has no address for us.
const MAC_DEFAULT: MacAddress = MacAddress::local(1);

fn main(machine: &Machine) -> ! {
    println!("ringway unikernel: {}", machine.command_line);
    let functions = (0..BUSES).flat_map(|bus| net_functions(&PciPorts, bus));
    for function in functions {
        match PciTransport::new(PciPorts, function, machine::registers) {
            Ok(transport) => run_pci(machine, transport),
            Err(error) => println!("{function:?}: {error:?}"),
        }
    }
    for address in options::mmio_places(machine.command_line) {
        let Some(registers) = machine::registers(address, options::MMIO_LEN) else { continue };
        match MmioTransport::new(registers) {
            Ok(transport) => run(machine, "virtio-mmio", transport, None),
            Err(MmioError::NotVirtio | MmioError::Device(_)) => {}
            Err(error) => println!("{address:#x}: {error:?}"),
        }
    }
    panic!("no network device");
}

/// With interrupts, if the device has as many vectors as it needs.
fn run_pci(machine: &Machine, mut transport: PciTransport<PciPorts>) -> ! {
    let is_able = transport.vectors() >= usize::from(VECTORS);
    let wanted = is_able && Options::new(machine.command_line).interrupts;
    let interrupts = wanted.then(|| Interrupts::prepare(machine.clock)).flatten();
    if let Some((address, data)) = interrupts.map(|interrupts| interrupts.message()) {
        for vector in 0..VECTORS {
            transport.set_vector(vector, address, data).expect("the device has so many");
        }
    }
    run(machine, "virtio-pci", transport, interrupts)
}

/// Brings the device up and serves for ever.
fn run<T: Transport>(
    machine: &Machine,
    name: &'static str,
    mut transport: T,
    interrupts: Option<Interrupts>,
) -> ! {
    let options = Options::new(machine.command_line);
    let (memory, address) = machine::share(ARENA_LEN).expect("memory for the arena");
    let mut arena = Arena::new(memory, address);
    // The arena is where its addresses say, and nothing here turns an IOMMU on.
    let accept = Wanted::DEFAULT.accept.difference(options.without) | Features::ACCESS_PLATFORM;
    let wanted = Wanted { accept, vectors: interrupts.is_some(), ..Wanted::DEFAULT };
    let up = match bring_up(&mut transport, &mut arena, &wanted) {
        Ok(up) => up,
        Err(error) => panic!("{name}: {error}"),
    };
    let BroughtUp { negotiated, config, queues } = up;
    println!("{name}: {:?} rings, {}", negotiated.format, negotiated.features);
    let guest = Guest { machine, name, interrupts, options, negotiated, config };
    match queues {
        Queues::Split(queues) => guest.serve(queues, arena),
        Queues::Packed(queues) => guest.serve(queues, arena),
    }
}

/// Everything that is settled.
struct Guest<'a> {
    machine: &'a Machine,
    name: &'static str,
    interrupts: Option<Interrupts>,
    options: Options,
    negotiated: Negotiated,
    config: NetConfig,
}

impl Guest<'_> {
    fn serve<Q: DriverQueue, D: Doorbell>(self, queues: QueueSet<Q, D>, mut arena: Arena) -> ! {
        let pair = queues.pairs.into_iter().next().expect("bring-up starts a queue pair");
        let rx = RxOptions::negotiated(self.options.scheme, &self.negotiated);
        let options = DriverOptions { rx, tx: TxOptions::negotiated(&self.negotiated) };
        let (receiveq, transmitq) = (pair.receiveq, pair.transmitq);
        let driver = NetDriver::new(receiveq.queue, transmitq.queue, &mut arena, &options);
        let driver = driver.expect("memory for the buffers");
        let mut device = SmoltcpDevice::new(driver, &self.negotiated, &self.config);
        let mac = if self.config.mac.is_station() { self.config.mac } else { MAC_DEFAULT };
        let clock = self.machine.clock;
        let (addressing, seed) = (self.options.addressing, clock.seed());
        let mut services = Services::new(&mut device, mac, addressing, seed, clock.now_us());
        let (mut address, mut has_sent) = (None, false);
        let (mut moved, mut idle) = (0, 0);
        // The packets that were sent are looked at when there is more to send.
        let _ = device.driver().tx.arm_calls(Arm::Never);
        println!("serving as {mac}, {} KiB of heap left", machine::heap_left() >> 10);
        loop {
            let report = Report::new(&self, &mut device, services.address());
            let due_us = services.poll(&mut device, clock.now_us(), &report);
            let kicks = device.flush();
            if kicks.transmitq {
                transmitq.doorbell.kick();
            }
            if kicks.receiveq {
                receiveq.doorbell.kick();
            }
            if !has_sent && device.driver().tx.counters().packets > 0 {
                has_sent = true;
                println!("first packet {} us after the start", clock.now_us());
            }
            if services.address() != address {
                address = services.address();
                println!("address {address:?} {} us after the start", clock.now_us());
            }
            if let Some(broken) = device.broken() {
                panic!("the device broke the rules: {broken:?}");
            }
            let driver = device.driver();
            let packets = driver.rx.counters().packets + driver.tx.counters().packets;
            idle = if packets == moved { idle + 1 } else { 0 };
            moved = packets;
            match self.interrupts {
                Some(interrupts) if idle >= IDLE_ROUNDS => {
                    sleep(interrupts, &mut driver.rx, due_us);
                    idle = 0;
                }
                _ => core::hint::spin_loop(),
            }
        }
    }
}

/// Until a packet has arrived, or something is due.
fn sleep<Q: DriverQueue>(interrupts: Interrupts, rx: &mut NetRx<Q>, due_us: Option<u64>) {
    let due_us = due_us.unwrap_or(u64::MAX);
    if due_us > 0 && !rx.arm_calls(Arm::Next) {
        interrupts.sleep(due_us);
    }
    let _ = rx.arm_calls(Arm::Never);
}
