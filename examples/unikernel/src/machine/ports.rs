//! Input and output ports, and what is behind them: the serial line, PCI configuration space.
//!
//! Limits: no other code uses these ports; one processor.

use core::arch::asm;
use core::fmt;

use ringway_driver::{ConfigSpace, FunctionAddress};

/// The first serial line.
const SERIAL: u16 = 0x3f8;
/// Its line status, and the bit that says it takes another byte.
const SERIAL_STATUS: u16 = SERIAL + 5;
const SERIAL_READY: u8 = 1 << 5;
/// How often it is asked before a byte is given up: there may be no serial line at all.
const SERIAL_LOOKS_MAX: u32 = 100_000;

/// PCI's first access mechanism.
const PCI_ADDRESS: u16 = 0xcf8;
const PCI_DATA: u16 = 0xcfc;
const PCI_ENABLE: u32 = 1 << 31;

macro_rules! accesses {
    ($($input:ident $output:ident $word:ty, $register:tt $name:literal);*) => {$(
        /// Reads a port. Reading one that belongs to a device can have an effect on it.
        pub fn $input(port: u16) -> $word {
            let value: $word;
            // SAFETY: a port access touches no memory that Rust knows of.
            unsafe {
                asm!(
                    concat!("in ", $name, ", dx"),
                    in("dx") port,
                    out($register) value,
                    options(nomem, nostack, preserves_flags)
                );
            }
            value
        }

        /// Writes a port; the caller knows what is behind it.
        pub fn $output(port: u16, value: $word) {
            // SAFETY: as for reading; no device that is reached like this writes to memory.
            unsafe {
                asm!(
                    concat!("out dx, ", $name),
                    in("dx") port,
                    in($register) value,
                    options(nomem, nostack, preserves_flags)
                );
            }
        }
    )*};
}

accesses!(in_u8 out_u8 u8, "al" "al"; in_u32 out_u32 u32, "eax" "eax");

/// The serial line as a writer. What it does not take is lost.
#[derive(Debug)]
pub struct Serial;

impl fmt::Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            let ready = || in_u8(SERIAL_STATUS) & SERIAL_READY != 0;
            if (0..SERIAL_LOOKS_MAX).any(|_| ready()) {
                out_u8(SERIAL, byte);
            }
        }
        Ok(())
    }
}

/// PCI configuration space through ports: bus 0 to 255, the first 256 bytes.
#[derive(Debug, Clone, Copy)]
pub struct PciPorts;

impl PciPorts {
    fn select(function: FunctionAddress, offset: u16) {
        let FunctionAddress { bus, device, function } = function;
        let address = u32::from(bus) << 16 | u32::from(device) << 11 | u32::from(function) << 8;
        out_u32(PCI_ADDRESS, PCI_ENABLE | address | u32::from(offset & 0xfc));
    }
}

impl ConfigSpace for PciPorts {
    fn read(&self, function: FunctionAddress, offset: u16) -> u32 {
        Self::select(function, offset);
        in_u32(PCI_DATA)
    }

    fn write(&self, function: FunctionAddress, offset: u16, value: u32) {
        Self::select(function, offset);
        out_u32(PCI_DATA, value);
    }
}
