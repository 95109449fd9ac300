//! The work on a tap's packets that is left to their receiver.
//!
//! The kernel leaves undone what any receiver accepts; for the others it is completed on delivery
//! (ADR 0014). The names are those of the guest's features (virtio 1.2 §5.1.3). Packets *to* the
//! tap need no agreement: the kernel completes them, except unsegmented UDP before Linux 6.2.

use ringway_net::Negotiated;

/// The work that the receiver of a tap's packets completes itself; the kernel then leaves it
/// undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TapOffloads {
    /// Checksums.
    pub csum: bool,
    /// Segmentation of TCP over IPv4 (needs `csum`).
    pub tso4: bool,
    /// Segmentation of TCP over IPv6 (needs `csum`).
    pub tso6: bool,
    /// Segmentation of TCP with ECN (needs `tso4` or `tso6`).
    pub ecn: bool,
    /// Segmentation of UDP (needs `csum`; Linux 6.2).
    pub uso: bool,
}

impl TapOffloads {
    /// The work that a guest with these features takes (`GUEST_CSUM`, `GUEST_TSO4`, …).
    pub fn accepted_by(negotiated: &Negotiated) -> Self {
        Self {
            csum: negotiated.guest_csum,
            tso4: negotiated.guest_tso4,
            tso6: negotiated.guest_tso6,
            ecn: negotiated.guest_ecn,
            // The kernel grants both or none.
            uso: negotiated.guest_uso4 && negotiated.guest_uso6,
        }
    }

    /// The work that at least one takes.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            csum: self.csum || other.csum,
            tso4: self.tso4 || other.tso4,
            tso6: self.tso6 || other.tso6,
            ecn: self.ecn || other.ecn,
            uso: self.uso || other.uso,
        }
    }

    /// Without what lacks its precondition.
    pub(crate) fn consistent(self) -> Self {
        let (tso4, tso6) = (self.tso4 && self.csum, self.tso6 && self.csum);
        Self {
            csum: self.csum,
            tso4,
            tso6,
            ecn: self.ecn && (tso4 || tso6),
            uso: self.uso && self.csum,
        }
    }

    /// Whether packets longer than the MTU may come.
    pub(crate) fn leaves_segmentation(self) -> bool {
        self.tso4 || self.tso6 || self.uso
    }

    /// As `TUNSETOFFLOAD` wants them.
    pub(crate) fn flags(self) -> libc::c_uint {
        let flag = |is_set: bool, flag: libc::c_uint| if is_set { flag } else { 0 };
        flag(self.csum, libc::TUN_F_CSUM)
            | flag(self.tso4, libc::TUN_F_TSO4)
            | flag(self.tso6, libc::TUN_F_TSO6)
            | flag(self.ecn, libc::TUN_F_TSO_ECN)
            | flag(self.uso, libc::TUN_F_USO4 | libc::TUN_F_USO6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: TapOffloads =
        TapOffloads { csum: true, tso4: true, tso6: true, ecn: true, uso: true };

    #[test]
    fn nothing_is_asked_for_without_its_precondition() {
        assert_eq!(ALL.consistent(), ALL);
        let without_csum = TapOffloads { csum: false, ..ALL };
        assert_eq!(without_csum.consistent(), TapOffloads::default());
        let without_tso = TapOffloads { tso4: false, tso6: false, ..ALL };
        assert_eq!(without_tso.consistent(), TapOffloads { ecn: false, ..without_tso });
    }

    #[test]
    fn two_receivers_get_what_either_takes() {
        let one = TapOffloads { csum: true, tso4: true, ..TapOffloads::default() };
        let other = TapOffloads { csum: true, uso: true, ..TapOffloads::default() };
        assert_eq!(one.or(other), TapOffloads { uso: true, ..one });
        assert_eq!(TapOffloads::default().or(ALL), ALL);
    }

    #[test]
    fn a_guest_accepts_what_it_negotiated() {
        let negotiated = Negotiated { guest_csum: true, guest_tso6: true, ..Negotiated::NOTHING };
        let accepted = TapOffloads::accepted_by(&negotiated);
        assert_eq!(accepted, TapOffloads { csum: true, tso6: true, ..TapOffloads::default() });
        assert_eq!(TapOffloads::accepted_by(&Negotiated::NOTHING), TapOffloads::default());
    }
}
