//! The bare machine: everything of this program that is not ordinary Rust.
//!
//! How: [`boot`] gets from the loader into `kernel_start` below, which prepares memory and calls
//! the program's `main` with a [`Machine`]. Beyond that there are ports, a clock, memory, and the
//! words that the loader passes on.
//!
//! Limits: x86-64, one processor; interrupts only while it sleeps.

mod boot;
mod clock;
mod interrupts;
mod loader;
mod memory;
mod memory_functions;
mod ports;

use core::arch::asm;
use core::fmt::Write;
use core::panic::PanicInfo;

pub use clock::Clock;
pub use interrupts::Interrupts;
use loader::StartInfo;
pub use memory::{left as heap_left, registers, share};
pub use ports::{PciPorts, Serial};

/// Prints a line on the serial line.
#[macro_export]
macro_rules! println {
    ($($words:tt)*) => {{
        use core::fmt::Write;
        // The serial line never fails.
        let _ = writeln!($crate::machine::Serial, $($words)*);
    }};
}

/// The machine that `main` gets.
#[derive(Debug)]
pub struct Machine {
    /// The words that the loader passes on.
    pub command_line: &'static str,
    /// Time since start.
    pub clock: Clock,
}

/// Called by the start code, once.
#[unsafe(no_mangle)]
extern "C" fn kernel_start(info: &'static StartInfo) -> ! {
    let clock = Clock::start();
    assert!(info.is_known(), "the loader says something that we cannot read");
    let here = (kernel_start as *const ()).addr() as u64;
    let end = info.memory_end(here).expect("the memory in which we run is in the map");
    memory::open(end);
    crate::main(&Machine { command_line: info.command_line(), clock })
}

/// Resets the machine: an interrupt without a table for it.
pub fn reset() -> ! {
    let no_table = [0_u64; 2];
    // SAFETY: there is no way back, and that is the point.
    unsafe {
        asm!("lidt [{}]", "int3", in(reg) &no_table, options(noreturn));
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    // The serial line never fails.
    let _ = writeln!(Serial, "{info}");
    reset()
}
