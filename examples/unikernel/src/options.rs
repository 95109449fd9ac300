//! The words on the command line.
//!
//! `address=A.B.C.D/N` and `gateway=A.B.C.D` instead of DHCP, `packed=off` for split rings,
//! `scheme=NAME` for how long receive buffers are (`big`, `page`, `mtu`, `ewma`, `adaptive`),
//! `interrupts=off` to poll on PCI as well. The loader's own words (`virtio_mmio.device=…`) say
//! where devices are; everything else is ignored.

use ringway_driver::RxScheme;
use ringway_net::Features;
use ringway_services::Addressing;

/// Named places of memory-mapped devices that are looked at.
const MMIO_MAX: usize = 32;

/// Bytes of the registers of a memory-mapped device.
pub const MMIO_LEN: usize = 0x200;

/// The first place of `microvm`, and how many there are.
const MICROVM_MMIO: u64 = 0xfeb0_0000;
const MICROVM_MMIO_PLACES: usize = 24;

/// The options that are wanted.
#[derive(Debug)]
pub struct Options {
    /// Where the address comes from.
    pub addressing: Addressing,
    /// How long receive buffers are.
    pub scheme: RxScheme,
    /// To sleep until the device calls, where that is possible.
    pub interrupts: bool,
    /// Features not to accept.
    pub without: Features,
}

impl Options {
    /// Reads the command line; what cannot be read is as if it were not there.
    pub fn new(command_line: &str) -> Self {
        let value = |key: &str| {
            let mut words = command_line.split_ascii_whitespace();
            words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
        };
        let address = value("address").and_then(|text| text.parse().ok());
        let gateway = value("gateway").and_then(|text| text.parse().ok());
        let scheme = value("scheme").and_then(RxScheme::from_name);
        let scheme = scheme.unwrap_or(RxScheme::Adaptive);
        let mut without = Features::empty();
        without.set(Features::RING_PACKED, value("packed") == Some("off"));
        without.set(Features::MRG_RXBUF, !scheme.needs_mergeable());
        let addressing =
            address.map_or(Addressing::Dhcp, |address| Addressing::Fixed(address, gateway));
        let interrupts = value("interrupts") != Some("off");
        Self { addressing, scheme, interrupts, without }
    }
}

/// Where memory-mapped devices may be: those that the loader names, in words such as
/// `virtio_mmio.device=SIZE@ADDRESS:INTERRUPT`; then the places of QEMU's `microvm`, which names
/// them on the command line only if it has no other way.
pub fn mmio_places(command_line: &str) -> impl Iterator<Item = u64> {
    let words = command_line.split_ascii_whitespace();
    let named = words.filter_map(|word| word.strip_prefix("virtio_mmio.device="));
    let address = |place: &str| {
        let (_, address) = place.split_once('@')?;
        let address = address.split(':').next()?.strip_prefix("0x")?;
        u64::from_str_radix(address, 16).ok()
    };
    let known = (MICROVM_MMIO..).step_by(MMIO_LEN).take(MICROVM_MMIO_PLACES);
    named.filter_map(address).take(MMIO_MAX).chain(known)
}
