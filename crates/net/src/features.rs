//! Feature bits of a network device: what may be offered, what was accepted, what needs what.
//!
//! Names are the specification's without their prefix (virtio 1.2 §5.1.3 and §6; bits 26 and 30
//! belong to vhost and vhost-user). Bits from 64 on are not represented: vhost-user carries 64.

use core::fmt;

use bitflags::bitflags;

bitflags! {
    /// A set of feature bits. Bits without a name are kept, so that they can be reported.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Features: u64 {
        /// The device completes partial checksums of packets from the driver.
        const CSUM = 1 << 0;
        /// The driver accepts packets with partial checksums.
        const GUEST_CSUM = 1 << 1;
        /// The driver may change its receive offloads at run time.
        const CTRL_GUEST_OFFLOADS = 1 << 2;
        /// The device advises a maximum MTU.
        const MTU = 1 << 3;
        /// The device has given a MAC address.
        const MAC = 1 << 5;
        /// Legacy: all of `HOST_TSO4`, `HOST_TSO6` and `HOST_ECN`.
        const GSO = 1 << 6;
        /// The driver accepts unsegmented TCP over IPv4.
        const GUEST_TSO4 = 1 << 7;
        /// The driver accepts unsegmented TCP over IPv6.
        const GUEST_TSO6 = 1 << 8;
        /// The driver accepts unsegmented TCP with ECN.
        const GUEST_ECN = 1 << 9;
        /// The driver accepts unfragmented UDP.
        const GUEST_UFO = 1 << 10;
        /// The device accepts unsegmented TCP over IPv4.
        const HOST_TSO4 = 1 << 11;
        /// The device accepts unsegmented TCP over IPv6.
        const HOST_TSO6 = 1 << 12;
        /// The device accepts unsegmented TCP with ECN.
        const HOST_ECN = 1 << 13;
        /// The device accepts unfragmented UDP.
        const HOST_UFO = 1 << 14;
        /// One packet may span several receive buffers.
        const MRG_RXBUF = 1 << 15;
        /// The configuration space has a status field (link up or down).
        const STATUS = 1 << 16;
        /// There is a control queue.
        const CTRL_VQ = 1 << 17;
        /// Receive modes (promiscuous, all-multicast) can be set.
        const CTRL_RX = 1 << 18;
        /// VLANs can be filtered.
        const CTRL_VLAN = 1 << 19;
        /// More receive modes.
        const CTRL_RX_EXTRA = 1 << 20;
        /// The driver can announce itself with gratuitous packets.
        const GUEST_ANNOUNCE = 1 << 21;
        /// There are several queue pairs, steered automatically.
        const MQ = 1 << 22;
        /// The MAC address can be set through the control queue.
        const CTRL_MAC_ADDR = 1 << 23;
        /// `VIRTIO_F_NOTIFY_ON_EMPTY`: call when the available ring has run empty, whatever the
        /// driver asked for (legacy).
        const NOTIFY_ON_EMPTY = 1 << 24;
        /// `VHOST_F_LOG_ALL`: log every write to guest memory (migration; vhost only).
        const LOG_ALL = 1 << 26;
        /// `VIRTIO_F_ANY_LAYOUT`: headers may share an element with data (legacy).
        const ANY_LAYOUT = 1 << 27;
        /// `VIRTIO_F_INDIRECT_DESC`
        const INDIRECT_DESC = 1 << 28;
        /// `VIRTIO_F_EVENT_IDX`
        const EVENT_IDX = 1 << 29;
        /// `VHOST_USER_F_PROTOCOL_FEATURES` (vhost-user only, never seen by a driver)
        const PROTOCOL_FEATURES = 1 << 30;
        /// `VIRTIO_F_VERSION_1`
        const VERSION_1 = 1 << 32;
        /// `VIRTIO_F_ACCESS_PLATFORM`: addresses go through an IOMMU.
        const ACCESS_PLATFORM = 1 << 33;
        /// `VIRTIO_F_RING_PACKED`
        const RING_PACKED = 1 << 34;
        /// `VIRTIO_F_IN_ORDER`
        const IN_ORDER = 1 << 35;
        /// `VIRTIO_F_ORDER_PLATFORM`
        const ORDER_PLATFORM = 1 << 36;
        /// `VIRTIO_F_SR_IOV`
        const SR_IOV = 1 << 37;
        /// `VIRTIO_F_NOTIFICATION_DATA`
        const NOTIFICATION_DATA = 1 << 38;
        /// `VIRTIO_F_NOTIF_CONFIG_DATA`
        const NOTIF_CONFIG_DATA = 1 << 39;
        /// `VIRTIO_F_RING_RESET`
        const RING_RESET = 1 << 40;
        /// `VIRTIO_F_ADMIN_VQ`
        const ADMIN_VQ = 1 << 41;
        /// Statistics can be read through the control queue.
        const DEVICE_STATS = 1 << 50;
        /// Hashes can be taken over inner headers of tunnels.
        const HASH_TUNNEL = 1 << 51;
        /// Notifications can be coalesced per queue.
        const VQ_NOTF_COAL = 1 << 52;
        /// Notifications can be coalesced.
        const NOTF_COAL = 1 << 53;
        /// The driver accepts unsegmented UDP over IPv4.
        const GUEST_USO4 = 1 << 54;
        /// The driver accepts unsegmented UDP over IPv6.
        const GUEST_USO6 = 1 << 55;
        /// The device accepts unsegmented UDP.
        const HOST_USO = 1 << 56;
        /// The header carries a hash of the packet (20-byte header).
        const HASH_REPORT = 1 << 57;
        /// The driver's `hdr_len` is exact. It is passed on and never relied upon: code that needs
        /// the length of the headers looks at them.
        const GUEST_HDRLEN = 1 << 59;
        /// Receive-side scaling.
        const RSS = 1 << 60;
        /// The device reports coalesced segments and duplicate acknowledgements.
        const RSC_EXT = 1 << 61;
        /// A standby for another device with the same MAC address.
        const STANDBY = 1 << 62;
        /// The configuration space has speed and duplex.
        const SPEED_DUPLEX = 1 << 63;
    }
}

/// One line of the dependency table: `feature` needs at least one of `any_of`.
struct Dependency {
    feature: Features,
    any_of: Features,
}

const fn needs(feature: Features, any_of: Features) -> Dependency {
    Dependency { feature, any_of }
}

const GUEST_TSO: Features = Features::GUEST_TSO4.union(Features::GUEST_TSO6);
const HOST_TSO: Features = Features::HOST_TSO4.union(Features::HOST_TSO6);

/// virtio 1.2 §5.1.3.1 (later revisions where they add a line). A feature never stands above one
/// it needs, so one pass from the top drops everything that is unmet.
///
/// `CTRL_RX_EXTRA`, `HASH_REPORT` and `CTRL_GUEST_OFFLOADS` are not listed there; all three work
/// through the control queue only and Linux refuses or ignores them without it.
const DEPENDENCIES: [Dependency; 25] = [
    needs(Features::GUEST_TSO4, Features::GUEST_CSUM),
    needs(Features::GUEST_TSO6, Features::GUEST_CSUM),
    needs(Features::GUEST_ECN, GUEST_TSO),
    needs(Features::GUEST_UFO, Features::GUEST_CSUM),
    needs(Features::GUEST_USO4, Features::GUEST_CSUM),
    needs(Features::GUEST_USO6, Features::GUEST_CSUM),
    needs(Features::HOST_TSO4, Features::CSUM),
    needs(Features::HOST_TSO6, Features::CSUM),
    needs(Features::HOST_ECN, HOST_TSO),
    needs(Features::HOST_UFO, Features::CSUM),
    needs(Features::HOST_USO, Features::CSUM),
    needs(Features::RSC_EXT, HOST_TSO),
    needs(Features::CTRL_RX, Features::CTRL_VQ),
    needs(Features::CTRL_VLAN, Features::CTRL_VQ),
    needs(Features::GUEST_ANNOUNCE, Features::CTRL_VQ),
    needs(Features::MQ, Features::CTRL_VQ),
    needs(Features::CTRL_MAC_ADDR, Features::CTRL_VQ),
    needs(Features::NOTF_COAL, Features::CTRL_VQ),
    needs(Features::VQ_NOTF_COAL, Features::CTRL_VQ),
    needs(Features::RSS, Features::CTRL_VQ),
    needs(Features::DEVICE_STATS, Features::CTRL_VQ),
    needs(Features::CTRL_RX_EXTRA, Features::CTRL_VQ),
    needs(Features::HASH_REPORT, Features::CTRL_VQ),
    needs(Features::CTRL_GUEST_OFFLOADS, Features::CTRL_VQ),
    needs(Features::HASH_TUNNEL, Features::RSS.union(Features::HASH_REPORT)),
];

impl Features {
    /// Features that a driver may turn off and on again with `CTRL_GUEST_OFFLOADS`.
    pub const GUEST_OFFLOADS: Self = Self::GUEST_CSUM
        .union(GUEST_TSO)
        .union(Self::GUEST_ECN)
        .union(Self::GUEST_UFO)
        .union(Self::GUEST_USO4)
        .union(Self::GUEST_USO6);

    /// Features that a guest port offers, before the user turns anything off. `PROTOCOL_FEATURES`
    /// is not one of them: the vhost-user session adds that bit.
    pub const OFFERED: Self = Self::VERSION_1
        .union(Self::MAC)
        .union(Self::STATUS)
        .union(Self::MTU)
        .union(Self::CSUM)
        .union(Self::GUEST_CSUM)
        .union(HOST_TSO)
        .union(Self::HOST_ECN)
        .union(Self::HOST_USO)
        .union(GUEST_TSO)
        .union(Self::GUEST_ECN)
        .union(Self::GUEST_USO4)
        .union(Self::GUEST_USO6)
        .union(Self::GUEST_HDRLEN)
        .union(Self::MRG_RXBUF)
        .union(Self::CTRL_VQ)
        .union(Self::CTRL_MAC_ADDR)
        .union(Self::CTRL_RX)
        .union(Self::CTRL_RX_EXTRA)
        .union(Self::CTRL_VLAN)
        .union(Self::CTRL_GUEST_OFFLOADS)
        .union(Self::GUEST_ANNOUNCE)
        .union(Self::NOTF_COAL)
        .union(Self::VQ_NOTF_COAL)
        .union(Self::RING_PACKED)
        .union(Self::EVENT_IDX)
        .union(Self::INDIRECT_DESC)
        .union(Self::IN_ORDER)
        .union(Self::NOTIFY_ON_EMPTY);

    /// Features that a guest port can have and offers only when told to: several queue pairs come
    /// with their number, two cost time for every packet, and a Linux guest accepts
    /// `ACCESS_PLATFORM` wherever it is offered, also where its monitor cannot do with it (User
    /// Mode Linux).
    pub const ON_REQUEST: Self =
        Self::MQ.union(Self::RSS).union(Self::HASH_REPORT).union(Self::ACCESS_PLATFORM);

    /// Features that decide about rings and headers, and only their commands need the control
    /// queue: a vhost-user front-end that keeps the control queue to itself accepts them without
    /// `CTRL_VQ`.
    pub const CONTROL_ELSEWHERE: Self = Self::MQ.union(Self::RSS).union(Self::HASH_REPORT);

    /// Checks that every feature in the set has what it needs (virtio 1.2 §5.1.3.1).
    ///
    /// # Errors
    /// [`FeatureError::Needs`] with the first feature that lacks something.
    pub fn check_dependencies(self) -> Result<(), FeatureError> {
        match DEPENDENCIES.iter().find(|line| line.unmet_in(self)) {
            Some(line) => Err(FeatureError::Needs { feature: line.feature, any_of: line.any_of }),
            None => Ok(()),
        }
    }

    /// The set without the features that lack what they need: what is left to offer after some
    /// features were turned off.
    ///
    /// ```
    /// use ringway_net::Features;
    ///
    /// let offer = (Features::OFFERED - Features::CSUM).drop_unmet();
    /// assert!(!offer.intersects(Features::HOST_TSO4 | Features::HOST_TSO6 | Features::HOST_ECN));
    /// ```
    #[must_use]
    pub fn drop_unmet(self) -> Self {
        let drop = |set: Self, line: &Dependency| match line.unmet_in(set) {
            true => set.difference(line.feature),
            false => set,
        };
        DEPENDENCIES.iter().fold(self, drop)
    }

    /// The features that a vhost-user front-end accepted, without those that lack what they need.
    /// QEMU and DPDK's virtio-user answer the control queue themselves and leave out `CTRL_VQ`;
    /// Cloud Hypervisor does the same and accepts it. So what was accepted of
    /// [`CONTROL_ELSEWHERE`](Self::CONTROL_ELSEWHERE) holds with and without `CTRL_VQ`.
    #[must_use]
    pub fn drop_unmet_of_front_end(self) -> Self {
        self.drop_unmet() | (self & Self::CONTROL_ELSEWHERE)
    }

    /// Names of the features in the set, lowest bit first; bits without a name are left out.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        self.iter_names().map(|(name, _)| name)
    }
}

impl Dependency {
    fn unmet_in(&self, set: Features) -> bool {
        set.intersects(self.feature) && !set.intersects(self.any_of)
    }
}

impl fmt::Display for Features {
    /// Names separated by spaces; bits without a name in hexadecimal at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = self.iter_names();
        let mut separator = "";
        for (name, _) in names.by_ref() {
            write!(f, "{separator}{name}")?;
            separator = " ";
        }
        match names.remaining().bits() {
            0 => Ok(()),
            bits => write!(f, "{separator}{bits:#x}"),
        }
    }
}

/// Why a set of accepted features cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeatureError {
    /// `feature` is there without any of the features it needs.
    Needs {
        /// The feature that lacks something.
        feature: Features,
        /// It needs at least one of these.
        any_of: Features,
    },
}

impl fmt::Display for FeatureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Needs { feature, any_of } => {
                write!(f, "{feature} accepted without ")?;
                let mut separator = "";
                for name in any_of.names() {
                    write!(f, "{separator}{name}")?;
                    separator = " or ";
                }
                Ok(())
            }
        }
    }
}

impl core::error::Error for FeatureError {}
