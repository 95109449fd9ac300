//! The errors of a tap.

use std::io;

/// Why there is no tap. Each message names the tap and says what to do.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The name has more than 15 bytes.
    #[error("{name}: an interface name has at most 15 bytes, this one has {}", .name.len())]
    NameTooLong {
        /// The name that was asked for.
        name: String,
    },
    /// The name is empty or contains what a name must not.
    #[error("{name:?}: not an interface name: use letters, digits, '-', '_' and '.'")]
    BadName {
        /// The name that was asked for.
        name: String,
    },
    /// The kernel has no tap driver.
    #[error("{name}: no /dev/net/tun: load the driver first with: modprobe tun")]
    NoDriver {
        /// The name that was asked for.
        name: String,
    },
    /// Neither root nor the owner of the tap.
    #[error(
        "{name}: permission denied: run as root, grant CAP_NET_ADMIN, or create it first with: \
         ip tuntap add {name} mode tap user $USER vnet_hdr"
    )]
    PermissionDenied {
        /// The name that was asked for.
        name: String,
    },
    /// Another program has it.
    #[error("{name}: busy: another program has it open")]
    Busy {
        /// The name that was asked for.
        name: String,
    },
    /// There is an interface (or an fd) of that name which is something else.
    #[error("{name}: is not a tap: choose another name, or a file descriptor of a tap")]
    NotATap {
        /// The name that was asked for.
        name: String,
    },
    /// A passed tap without `IFF_VNET_HDR`.
    #[error("{name}: packets have no virtio-net header: open it with IFF_VNET_HDR")]
    NoHeader {
        /// The name of the tap.
        name: String,
    },
    /// Several queues were asked for, and the interface was made for one.
    #[error(
        "{name}: it has one queue: make it anew with: ip tuntap add {name} mode tap multi_queue \
         vnet_hdr, or leave queues out"
    )]
    OneQueue {
        /// The name of the tap.
        name: String,
    },
    /// The MTU was refused.
    #[error("{name}: MTU {mtu}: {source}: a tap takes 68 to 65521 bytes")]
    Mtu {
        /// The name of the tap.
        name: String,
        /// The MTU that was asked for, in bytes.
        mtu: u16,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Anything else.
    #[error("{name}: {what}: {source}")]
    Os {
        /// The name of the tap.
        name: String,
        /// The operation that was attempted.
        what: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
}
