//! The features that a driver and the device have agreed on, as plain fields.
//!
//! Computed once from the accepted feature bits; from there on no code tests bits.

use ringway_virtq::{Format, QueueOptions};

use crate::header::{DATA_VALID, NEEDS_CSUM};
use crate::{FeatureError, Features, GsoType, HEADER_LEN, NetHeader};
use crate::{HEADER_LEN_HASH, HEADER_LEN_LEGACY};

/// The outcome of feature negotiation.
///
/// ```
/// use ringway_net::{Features, Negotiated};
///
/// let accepted = Features::VERSION_1 | Features::MRG_RXBUF | Features::GUEST_CSUM;
/// let negotiated = Negotiated::new(accepted)?;
/// assert!(negotiated.mergeable && negotiated.guest_csum && !negotiated.guest_tso4);
/// assert_eq!(negotiated.header_len, 12);
///
/// let error = Negotiated::new(Features::VERSION_1 | Features::GUEST_TSO4).unwrap_err();
/// assert_eq!(error.to_string(), "GUEST_TSO4 accepted without GUEST_CSUM");
/// # Ok::<(), ringway_net::FeatureError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Negotiated {
    /// The accepted features themselves, for reports.
    pub features: Features,
    /// Bytes of the header in front of every packet: 10, 12 or 20.
    pub header_len: usize,
    /// `MRG_RXBUF`: a packet to the guest may span several buffers.
    pub mergeable: bool,
    /// Ring format of all queues.
    pub format: Format,
    /// How the rings work.
    pub options: QueueOptions,
    /// `GUEST_CSUM`: the guest takes partial checksums.
    pub guest_csum: bool,
    /// `GUEST_TSO4`: the guest takes unsegmented TCP over IPv4.
    pub guest_tso4: bool,
    /// `GUEST_TSO6`: the guest takes unsegmented TCP over IPv6.
    pub guest_tso6: bool,
    /// `GUEST_ECN`: the guest takes unsegmented TCP with ECN.
    pub guest_ecn: bool,
    /// `GUEST_USO4`: the guest takes unsegmented UDP over IPv4.
    pub guest_uso4: bool,
    /// `GUEST_USO6`: the guest takes unsegmented UDP over IPv6.
    pub guest_uso6: bool,
    /// `CSUM`: the guest may send partial checksums.
    pub csum: bool,
    /// `HOST_TSO4`: the guest may send unsegmented TCP over IPv4.
    pub host_tso4: bool,
    /// `HOST_TSO6`: the guest may send unsegmented TCP over IPv6.
    pub host_tso6: bool,
    /// `HOST_ECN`: the guest may send unsegmented TCP with ECN.
    pub host_ecn: bool,
    /// `HOST_USO`: the guest may send unsegmented UDP.
    pub host_uso: bool,
    /// `CTRL_VQ`: there is a control queue.
    pub ctrl_vq: bool,
    /// `CTRL_MAC_ADDR`: the guest may set its MAC address.
    pub ctrl_mac_addr: bool,
    /// `STATUS`: the guest looks at the link state.
    pub link_status: bool,
    /// `MTU`: the guest takes the advised MTU.
    pub mtu: bool,
}

impl Negotiated {
    /// No feature at all: what holds before a driver has negotiated.
    pub const NOTHING: Self = Self {
        features: Features::empty(),
        header_len: HEADER_LEN_LEGACY,
        mergeable: false,
        format: Format::Split,
        options: QueueOptions {
            event_idx: false,
            indirect: false,
            in_order: false,
            notify_on_empty: false,
        },
        guest_csum: false,
        guest_tso4: false,
        guest_tso6: false,
        guest_ecn: false,
        guest_uso4: false,
        guest_uso6: false,
        csum: false,
        host_tso4: false,
        host_tso6: false,
        host_ecn: false,
        host_uso: false,
        ctrl_vq: false,
        ctrl_mac_addr: false,
        link_status: false,
        mtu: false,
    };

    /// Computes the fields from the features that the driver accepted.
    ///
    /// # Errors
    /// [`FeatureError::Needs`] when a feature lacks what it needs (virtio 1.2 §5.1.3.1).
    pub fn new(features: Features) -> Result<Self, FeatureError> {
        features.check_dependencies()?;
        Ok(Self::from_bits(features))
    }

    /// Computes the fields from the features that a vhost-user front-end accepted; those that lack
    /// what they need are left out (see [`Features::drop_unmet_of_front_end`]).
    #[must_use]
    pub fn of_front_end(features: Features) -> Self {
        Self::from_bits(features.drop_unmet_of_front_end())
    }

    fn from_bits(features: Features) -> Self {
        let has = |feature| features.contains(feature);
        // Legacy drivers may accept the one bit that stood for all three.
        let gso = has(Features::GSO);
        Self {
            features,
            header_len: header_len(features),
            mergeable: has(Features::MRG_RXBUF),
            format: if has(Features::RING_PACKED) { Format::Packed } else { Format::Split },
            options: queue_options(features),
            guest_csum: has(Features::GUEST_CSUM),
            guest_tso4: has(Features::GUEST_TSO4),
            guest_tso6: has(Features::GUEST_TSO6),
            guest_ecn: has(Features::GUEST_ECN),
            guest_uso4: has(Features::GUEST_USO4),
            guest_uso6: has(Features::GUEST_USO6),
            csum: has(Features::CSUM),
            host_tso4: has(Features::HOST_TSO4) || gso,
            host_tso6: has(Features::HOST_TSO6) || gso,
            host_ecn: has(Features::HOST_ECN) || gso,
            host_uso: has(Features::HOST_USO),
            ctrl_vq: has(Features::CTRL_VQ),
            ctrl_mac_addr: has(Features::CTRL_MAC_ADDR),
            link_status: has(Features::STATUS),
            mtu: has(Features::MTU),
        }
    }

    /// How many queue pairs the device has, of `pairs_max` that it offers.
    #[must_use]
    pub fn queue_pairs(&self, pairs_max: u16) -> u16 {
        let has_several = self.features.intersects(Features::MQ.union(Features::RSS));
        if has_several { pairs_max } else { 1 }
    }

    /// The same with only these receive offloads on (§5.1.6.5.6); `features` stays what was
    /// accepted.
    #[must_use]
    pub fn with_guest_offloads(self, offloads: Features) -> Self {
        let has = |feature| offloads.contains(feature);
        Self {
            guest_csum: has(Features::GUEST_CSUM),
            guest_tso4: has(Features::GUEST_TSO4),
            guest_tso6: has(Features::GUEST_TSO6),
            guest_ecn: has(Features::GUEST_ECN),
            guest_uso4: has(Features::GUEST_USO4),
            guest_uso6: has(Features::GUEST_USO6),
            ..self
        }
    }

    /// Whether a device that does not look into packets may give this guest one with that header
    /// (virtio 1.2 §5.1.6.4.1).
    ///
    /// The header of unsegmented UDP does not tell the version of IP: such packets are for guests
    /// that take both.
    #[inline]
    pub fn accepts(&self, header: &NetHeader) -> bool {
        self.takes(header, self.guest_uso4 && self.guest_uso6)
    }

    /// Whether a driver has to expect a packet with that header from its device: as
    /// [`accepts`](Self::accepts), but a device may know the version of IP.
    #[inline]
    pub fn expects(&self, header: &NetHeader) -> bool {
        self.takes(header, self.guest_uso4 || self.guest_uso6)
    }

    #[inline]
    fn takes(&self, header: &NetHeader, uso: bool) -> bool {
        if header.is_plain() {
            return true;
        }
        let gso = match header.gso() {
            Some(GsoType::None) => true,
            Some(GsoType::TcpV4) => self.guest_tso4,
            Some(GsoType::TcpV6) => self.guest_tso6,
            Some(GsoType::UdpL4) => uso,
            Some(GsoType::Ufo) | None => false,
        };
        gso && (!header.needs_csum() || self.guest_csum) && (!header.ecn() || self.guest_ecn)
    }

    /// Whether this guest may send a packet with that header (virtio 1.2 §5.1.6.2.1).
    #[inline]
    pub fn may_send(&self, header: &NetHeader) -> bool {
        if header.is_plain() {
            return true;
        }
        let gso = match header.gso() {
            Some(GsoType::None) => true,
            Some(GsoType::TcpV4) => self.host_tso4,
            Some(GsoType::TcpV6) => self.host_tso6,
            Some(GsoType::UdpL4) => self.host_uso,
            Some(GsoType::Ufo) | None => false,
        };
        gso && (!header.needs_csum() || self.csum) && (!header.ecn() || self.host_ecn)
    }

    /// The part that counts of a header that this guest wrote.
    ///
    /// A device ignores flags that a driver must not set (virtio 1.2 §5.1.6.2.2), so that no
    /// guest can vouch for a checksum in the name of the device. `num_buffers` means nothing in
    /// this direction.
    #[inline]
    #[must_use]
    pub fn from_guest(&self, header: NetHeader) -> NetHeader {
        NetHeader { flags: header.flags & NEEDS_CSUM, num_buffers: 0, ..header }
    }

    /// The header as this guest may see it, once [`accepts`](Self::accepts) has agreed.
    ///
    /// Without `GUEST_CSUM` all flags are 0; otherwise only the two that this device uses are
    /// passed on (virtio 1.2 §5.1.6.4.1).
    #[inline]
    #[must_use]
    pub fn to_guest(&self, header: NetHeader) -> NetHeader {
        let known = if self.guest_csum { NEEDS_CSUM | DATA_VALID } else { 0 };
        NetHeader { flags: header.flags & known, ..header }
    }
}

/// virtio 1.2 §5.1.6: `num_buffers` is always there from 1.0 on; before, only with `MRG_RXBUF`.
fn header_len(features: Features) -> usize {
    if features.contains(Features::HASH_REPORT) {
        HEADER_LEN_HASH
    } else if features.intersects(Features::VERSION_1.union(Features::MRG_RXBUF)) {
        HEADER_LEN
    } else {
        HEADER_LEN_LEGACY
    }
}

fn queue_options(features: Features) -> QueueOptions {
    let packed = features.contains(Features::RING_PACKED);
    QueueOptions {
        event_idx: features.contains(Features::EVENT_IDX),
        indirect: features.contains(Features::INDIRECT_DESC),
        in_order: features.contains(Features::IN_ORDER),
        notify_on_empty: features.contains(Features::NOTIFY_ON_EMPTY) && !packed,
    }
}
