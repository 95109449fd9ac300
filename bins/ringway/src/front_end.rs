//! The programs that can use a port, as `ringway attach --for` names them.

use clap::ValueEnum;

/// A program that can use a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FrontEnd {
    /// QEMU's command line
    Qemu,
    /// Elements of libvirt's domain XML
    Libvirt,
    /// Cloud Hypervisor's command line
    CloudHypervisor,
    /// crosvm's command line
    Crosvm,
    /// User Mode Linux' command line
    Uml,
    /// DPDK's options for its virtio-user device
    Dpdk,
}
