//! Sleeping until a device calls, or until a time.
//!
//! How: interrupts are taken at one place only, in [`Interrupts::sleep`], while the processor is
//! halted; all other code runs with them off and finds what came meanwhile the next time it
//! sleeps. So handlers need to save nothing of anybody's: they count, and tell the local APIC that
//! they are done. Devices send messages to it (MSI-X); its own timer limits the sleep.
//!
//! Limits: one processor; the red zone below the stack is kept free at that one place.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU64, Ordering};

use ringway_driver::Registers;

use super::clock::Clock;
use super::memory::registers;
use super::ports::out_u8;

/// The local APIC: where it is, and its registers.
const APIC: u64 = 0xfee0_0000;
const APIC_LEN: usize = 0x400;
const ID: usize = 0x20;
const END: u32 = 0xb0;
const SPURIOUS: usize = 0xf0;
const TIMER: usize = 0x320;
const LEGACY_INPUT: usize = 0x350;
const TIMER_START: usize = 0x380;
const TIMER_NOW: usize = 0x390;
const TIMER_DIVISOR: usize = 0x3e0;

const ENABLED: u32 = 1 << 8;
const MASKED: u32 = 1 << 16;
const BY_16: u32 = 0b0011;

/// The masks of the two legacy interrupt controllers.
const LEGACY_MASKS: [u16; 2] = [0x21, 0xa1];

/// Vectors: what a device sends, the timer, and what the APIC sends when there was nothing.
const DEVICE_VECTOR: u8 = 0x40;
const TIMER_VECTOR: u8 = 0x41;
const SPURIOUS_VECTOR: u8 = 0xff;

/// The code segment, and a present 64-bit interrupt gate.
const CODE_SEGMENT: u64 = 8;
const GATE: u64 = 0x8e;

/// How long the timer is measured, and the longest sleep.
const MEASURED_US: u64 = 1000;
const SLEEP_MAX_US: u64 = 100_000;

/// Interrupts from devices.
static FROM_DEVICES: AtomicU64 = AtomicU64::new(0);

global_asm!(
    ".section .text.interrupts, \"ax\"",
    "interrupt_device: incq {from_devices}(%rip)",
    "interrupt_timer: push %rax",
    "mov ${apic_end}, %eax",
    "movl $0, (%rax)",
    "pop %rax",
    "interrupt_spurious: iretq",
    ".text",
    from_devices = sym FROM_DEVICES,
    apic_end = const APIC + END as u64,
    options(att_syntax)
);

unsafe extern "C" {
    fn interrupt_device();
    fn interrupt_timer();
    fn interrupt_spurious();
}

/// The interrupt table: two words per vector, 4096 bytes.
#[repr(align(16))]
struct InterruptTable([AtomicU64; 512]);

/// The last byte of it.
const TABLE_LIMIT: u16 = 4095;
const _: () = assert!(size_of::<InterruptTable>() == TABLE_LIMIT as usize + 1);

static TABLE: InterruptTable = InterruptTable([const { AtomicU64::new(0) }; 512]);

/// The pointer that `lidt` reads.
#[repr(C, packed)]
struct TablePointer {
    limit: u16,
    base: u64,
}

/// Interrupts of devices and of the timer.
#[derive(Debug, Clone, Copy)]
pub struct Interrupts {
    apic: Registers,
    ticks_per_ms: u32,
}

impl Interrupts {
    /// Prepares them; none is taken before the first sleep. Takes 1 ms. `None`: no local APIC.
    pub fn prepare(clock: Clock) -> Option<Self> {
        let apic = registers(APIC, APIC_LEN)?;
        LEGACY_MASKS.iter().for_each(|port| out_u8(*port, 0xff));
        let handlers = [
            (DEVICE_VECTOR, interrupt_device as *const ()),
            (TIMER_VECTOR, interrupt_timer as *const ()),
            (SPURIOUS_VECTOR, interrupt_spurious as *const ()),
        ];
        for (vector, handler) in handlers {
            let (at, address) = (2 * usize::from(vector), handler.addr() as u64);
            let low = address & 0xffff | CODE_SEGMENT << 16 | GATE << 40 | address >> 16 << 48;
            TABLE.0[at].store(low, Ordering::Relaxed);
            TABLE.0[at + 1].store(address >> 32, Ordering::Relaxed);
        }
        let base = (&raw const TABLE).expose_provenance() as u64;
        let pointer = TablePointer { limit: TABLE_LIMIT, base };
        // SAFETY: the table lives for ever; its entries are complete or not present.
        unsafe { asm!("lidt [{}]", in(reg) &raw const pointer, options(nostack, readonly)) };
        apic.write_u32(SPURIOUS, ENABLED | u32::from(SPURIOUS_VECTOR));
        apic.write_u32(LEGACY_INPUT, MASKED);
        apic.write_u32(TIMER_DIVISOR, BY_16);
        apic.write_u32(TIMER, MASKED);
        apic.write_u32(TIMER_START, u32::MAX);
        let (start, from) = (clock.now_us(), apic.read_u32(TIMER_NOW));
        while clock.now_us() - start < MEASURED_US {}
        let ticks_per_ms = from.wrapping_sub(apic.read_u32(TIMER_NOW)).max(1);
        apic.write_u32(TIMER_START, 0);
        apic.write_u32(TIMER, u32::from(TIMER_VECTOR));
        Some(Self { apic, ticks_per_ms })
    }

    /// Where a device writes, and what, to interrupt us.
    pub fn message(&self) -> (u64, u32) {
        let processor = u64::from(self.apic.read_u32(ID) >> 24);
        (APIC | processor << 12, DEVICE_VECTOR.into())
    }

    /// Halts until an interrupt, at most that long, or 100 ms. One that came before counts.
    pub fn sleep(&self, us: u64) {
        let ticks = us.clamp(1, SLEEP_MAX_US) * u64::from(self.ticks_per_ms) / 1000;
        self.apic.write_u32(TIMER_START, u32::try_from(ticks).unwrap_or(u32::MAX).max(1));
        // SAFETY: the handlers keep all registers, and write below the red zone only.
        unsafe {
            asm!("sub rsp, 128", "sti", "hlt", "cli", "add rsp, 128");
        }
    }

    /// Interrupts from devices so far.
    pub fn count(&self) -> u64 {
        FROM_DEVICES.load(Ordering::Relaxed)
    }
}
